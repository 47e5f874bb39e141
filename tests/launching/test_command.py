"""Launch commands are read as their launchers read them, whatever stands around."""

import random

import pytest

from preflight.launching import command, counts, meeting, shell
from tests.launching.lines import AROUND, ENV, LINES


def read(line, env=None):
    return command.of_text(line, (ENV if env is None else env).get)


@pytest.mark.parametrize(("line", "launcher", "options"), LINES)
def test_a_line(line, launcher, options):
    found = read(line)
    assert (found.launcher, dict(found.options)) == (launcher, options)


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize(("line", "launcher", "options"), LINES[:7] + LINES[12:17])
def test_what_stands_around_a_line_does_not_change_it(around, line, launcher, options):
    if "'" in around and "$" in line:
        return  # those quotes keep a shell from replacing anything, in a shell within as well
    found = read(around.format(line))
    assert (found.launcher, dict(found.options)) == (launcher, options)


def test_a_shell_within_replaces_what_the_outer_one_left():
    line = "bash -c 'torchrun --nnodes=$WORLD_SIZE t.py'"
    assert dict(read(line).options) == {"nnodes": "2"}


@pytest.mark.parametrize(("line", "launcher", "options"), LINES)
def test_what_is_written_is_read_as_the_same(line, launcher, options):
    found = read(line)
    assert read(command.written(found), {}) == found


def test_what_is_written_holds_no_secret():
    line = ("HF_TOKEN=hf_abc bash -c 'export KEY=s3cret; torchrun --rdzv-conf=password=s3cret "
            "--nnodes=2 t.py --token s3cret'")  # fmt: skip
    text = command.written(read(line))
    assert text == "torchrun --nnodes=2 t.py"


def test_nothing_is_replaced_in_an_argument_vector():
    """ENTRYPOINT ["preflight", "exec", "--", "torchrun", "--nnodes=$WORLD_SIZE"]: no shell."""
    words = ["torchrun", "--nnodes=$WORLD_SIZE", "t.py"]
    found = command.of_words(words, ENV.get)
    assert dict(found.options) == {"nnodes": "$WORLD_SIZE"}
    assert read(command.written(found)) == found
    shell_words = ["sh", "-c", "torchrun --nnodes=$WORLD_SIZE t.py"]
    assert dict(command.of_words(shell_words, ENV.get).options) == {"nnodes": "2"}


def test_what_a_line_sets_counts_for_the_next_word_and_not_for_its_own():
    assert dict(read("export WORLD_SIZE=16; torchrun --nnodes=$WORLD_SIZE t.py").options) == {
        "nnodes": "16"
    }
    own = read("WORLD_SIZE=16 torchrun --nnodes=$WORLD_SIZE t.py")
    assert dict(own.options) == {"nnodes": "2"} and dict(own.variables) == {"WORLD_SIZE": "16"}


@pytest.mark.parametrize(
    ("line", "outer", "outer_options", "inner"),
    [
        ("srun -N2 --ntasks-per-node=8 --gpus 8 --container-image x python train.py", "srun",
         {"nnodes": "2", "nproc-per-node": "8"}, "python"),
        ("srun --label -n 16 bash -c 'torchrun --nnodes=2 t.py'", "srun", {"processes": "16"},
         "torchrun"),
        ("mpirun --allow-run-as-root -np 16 -H a:8,b:8 -x NCCL_DEBUG=INFO -mca btl ^openib "
         "-bind-to none python train.py", "mpirun", {"processes": "16", "hosts": "a:8,b:8"},
         "python"),
        ("mpiexec -n 4 -ppn 2 python t.py", "mpirun", {"processes": "4", "nproc-per-node": "2"},
         "python"),
        ("horovodrun -np 8 -H localhost:8 python t.py", "horovodrun",
         {"processes": "8", "hosts": "localhost:8"}, "python"),
    ],
)  # fmt: skip
def test_launchers_that_start_another_command(line, outer, outer_options, inner):
    found = read(line)
    assert (found.launcher, dict(found.options)) == (outer, outer_options)
    assert found.last.launcher == inner
    assert read(command.written(found), {}) == found


def test_any_text_is_read_without_an_error():
    source = random.Random(20261129)
    pieces = ["torchrun", "--nnodes", "=", "$", "${", "}", "'", '"', "\\", "`", "(", ")", "&&", ";",
              "|", "<", ">", "2>&1", "\n", " ", "#", "-c", "bash", "env", "A=b", "srun", "é", "\0",
              "--", "-", "timeout", "$((", "))", "python", "-m", "<<EOF"]  # fmt: skip
    for _ in range(5000):
        line = "".join(source.choice(pieces) for _ in range(source.randrange(12)))
        found = read(line)
        if found is not None and "\0" not in line:
            again = read(command.written(found), {})
            assert again == found, line


def test_a_line_within_a_line_without_end():
    line = "torchrun t.py"
    for _ in range(50):
        line = "bash -c " + shell.quoted(line)
        if len(line) > 100_000:
            break
    found = read(line)
    assert found is None or found.launcher in ("shell", "torchrun")


# -- where the nodes meet ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "env", "expected"),
    [
        ("torchrun --nnodes=2 --master-addr=h --master-port=1 t.py", {}, ("h", "1")),
        ("torchrun --nnodes=2 --master-addr=h t.py", {}, ("h", "29500")),
        ("torchrun --nnodes=2 t.py", {"MASTER_ADDR": "h"}, ("127.0.0.1", "29500")),
        ("torchrun --nnodes=2 t.py", {"PET_MASTER_ADDR": "h"}, ("h", "29500")),
        ("torchrun t.py", {"PET_NNODES": "2", "PET_MASTER_ADDR": "h"}, ("h", "29500")),
        ("torchrun --nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=h t.py", {}, ("h", "29400")),
        ("torchrun --nnodes=2 --rdzv-endpoint=[::1]:7 t.py", {}, ("::1", "7")),
        ("torchrun --nnodes=2 --rdzv-backend=etcd --rdzv-endpoint=h:1 t.py", {}, None),
        ("torchrun --nnodes=1 --master-addr=h t.py", {}, None),
        ("torchrun --standalone t.py", {"MASTER_ADDR": "h"}, None),
        ("torchrun --nnodes=2 --master-addr=$WHO t.py", {}, None),
        ("python t.py", {"MASTER_ADDR": "h", "MASTER_PORT": "1"}, ("h", "1")),
        ("bash run.sh", {"MASTER_ADDR": "h"}, ("h", "")),
        ("MASTER_ADDR=x python t.py", {"MASTER_ADDR": "h", "MASTER_PORT": "1"}, ("x", "1")),
        ("accelerate launch --num_machines 2 --main_process_ip h t.py", {}, ("h", "")),
    ],
)
def test_where_the_nodes_meet(line, env, expected):
    found = meeting.meeting(read(line, env), env)
    assert (found and (found.address, found.port)) == expected


def test_spans_and_counts():
    assert counts.span("2") == (2, 2) and counts.span("1:4") == (1, 4)
    assert [counts.span(one) for one in ("", "0", "4:1", "a", "1:2:3", "-1")] == [None] * 6
    assert counts.count('["a", "b"]') == 2 and counts.count("3") == 3
    assert [counts.count(one) for one in ("", "x", "[", '"a"', "{}")] == [None] * 5
    assert counts.whole(" 8 ") == 8 and counts.whole("8.0") is None and counts.whole("８") is None
