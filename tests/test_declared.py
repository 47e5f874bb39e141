"""`[data]` and `[output]` of a policy: what they may say, and what is refused with its place."""

import json
import os
import subprocess
import sys

import pytest

from preflight import declared, policy
from preflight.declared import Declared
from preflight.policy import BadPolicy

FULL = """
[[data]]
path = "${DATA_DIR}/train"
kind = "webdataset"
glob = "*.tar"
files-min = 100
files-max = 200
bytes-min = "80GB"
bytes-max = "1.5TiB"
sample = 4
throughput-min = "200MB/s"
recursive = false

[[data]]
path = "eval"
files-min = 0

[[output]]
path = "/mnt/output"
free = "500 GB"
inodes = 1000
create = true
checkpoint = "/mnt/output/step-*"
"""


def read(tmp_path, text):
    path = tmp_path / "preflight.toml"
    path.write_text(text)
    return policy.read(str(path)).paths


def test_everything_that_can_be_said(tmp_path):
    assert read(tmp_path, FULL) == (
        Declared("data", "${DATA_DIR}/train", "data[0]", kind="webdataset", glob="*.tar",
                 files_min=100, files_max=200, bytes_min=80 * 10**9, bytes_max=3 * 2**39,
                 sample=4, throughput_min=200 * 10**6, recursive=False),
        Declared("data", "eval", "data[1]", may_be_empty=True),
        Declared("output", "/mnt/output", "output[0]", free=500 * 10**9, inodes=1000, create=True),
        Declared("checkpoint", "/mnt/output/step-*", "output[0].checkpoint", create=True),
    )  # fmt: skip


def test_one_table_is_enough(tmp_path):
    one, two = read(tmp_path, '[data]\npath = "a"\n[output]\ncheckpoint = "b"\n')
    assert (one.place, one.path, one.sample, one.kind) == ("data", "a", 8, "auto")
    assert (two.role, two.place) == ("checkpoint", "output.checkpoint")
    assert read(tmp_path, "") == () and read(tmp_path, "data = []\noutput = []") == ()


def test_it_may_stand_in_pyproject(tmp_path):
    path = tmp_path / "pyproject.toml"
    path.write_text('[tool.preflight.data]\npath = "a"\n[[tool.preflight.output]]\npath = "b"\n')
    assert [one.place for one in policy.read(str(path)).paths] == ["data", "output[0]"]


@pytest.mark.parametrize(
    ("text", "size"),
    [("1", 1), ("10B", 10), ("10kB", 10**4), ("10 K", 10**4), ("1.5MB", 1_500_000),
     ("2GiB", 2**31), ("1Ti", 2**40), ("3pb", 3 * 10**15), ("0.5 g", 5 * 10**8)],
)  # fmt: skip
def test_sizes(tmp_path, text, size):
    assert read(tmp_path, f'[output]\npath = "a"\nfree = "{text}"')[0].free == size
    rate = read(tmp_path, f'[data]\npath = "a"\nthroughput-min = "{text}/s"')
    assert rate[0].throughput_min == size


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("data = 1", "data: expected a table"),
        ('data = ["/x"]', "data[0]: expected a table"),
        ("[data]\n", "data: needs a path"),
        ('[[data]]\npath = "a"\n[[data]]\nkind = "tar"', "data[1]: needs a path"),
        ("[output]\nfree = 1", "output: needs a path"),
        ('[data]\npath = ""', "data.path: is no path"),
        ("[data]\npath = 1", "data.path: expected a string"),
        ('[data]\npath = "/x/*.tar"', "data.path: a pattern goes into glob"),
        ('[data]\npath = "$HOME/x"', "data.path: a variable is written ${NAME}"),
        ('[data]\npath = "${A-b}/x"', "data.path: a variable is written ${NAME}"),
        ('[data]\npath = "a"\nkind = "csv"', "data.kind: 'csv' is none of auto, any"),
        ('[data]\npath = "a"\nkind = ["tar"]', "data.kind: ['tar'] is none of"),
        ('[data]\npath = "a"\nfiles-min = -1', "data.files-min: expected a whole number"),
        ('[data]\npath = "a"\nfiles-min = true', "data.files-min: expected a whole number"),
        ('[data]\npath = "a"\nfiles-min = 5\nfiles-max = 4', "data.files-max: is below"),
        ('[data]\npath = "a"\nbytes-max = 0', "data.bytes-max: is below"),
        ('[data]\npath = "a"\nbytes-min = "ten"', "data.bytes-min: 'ten' is no size"),
        ('[data]\npath = "a"\nbytes-min = "-1GB"', "data.bytes-min: '-1GB' is no size"),
        ('[data]\npath = "a"\nbytes-min = 1.5', "data.bytes-min: expected a whole number"),
        ('[data]\npath = "a"\nthroughput-min = "1GB"', "data.throughput-min: '1GB' is no rate"),
        ('[data]\npath = "a"\nsample = 257', "data.sample: more than 256"),
        ('[data]\npath = "a"\nrecursive = "no"', "data.recursive: expected true or false"),
        ('[data]\npath = "a"\nfree = 1', "data.free: unknown key (known: bytes-max"),
        ('[[output]]\npath = "a"\nglob = "x"', "output[0].glob: unknown key"),
        ('[[data]]\npath = "a"\n' * 33, "data[32]: more than 32 paths"),
    ],
)
def test_what_is_refused_is_refused_with_file_and_place(tmp_path, text, place):
    with pytest.raises(BadPolicy) as caught:
        read(tmp_path, text)
    said = str(caught.value)
    assert said.startswith(f"{tmp_path}/preflight.toml: {place}"), said
    assert "\n" not in said


def test_every_kind_is_known(tmp_path):
    for kind in declared.KINDS:
        assert read(tmp_path, f'[data]\npath = "a"\nkind = "{kind}"')[0].kind == kind


# -- from the policy to the exit code ---------------------------------------------------------


def run(folder, *words, env=None):
    """(exit code, standard output, standard error) of a command line run in a folder."""
    found = subprocess.run(
        [sys.executable, "-m", "preflight", *words],
        cwd=folder,
        capture_output=True,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path), **(env or {})},
    )
    return found.returncode, found.stdout.decode(), found.stderr.decode()


@pytest.fixture
def job(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.jsonl").write_text('{"a": 1}\n')
    (tmp_path / "preflight.toml").write_text('[data]\npath = "${WHERE}"\n[output]\npath = "."\n')
    return tmp_path


def storage_of(text):
    report = json.loads(text)
    found = [one for one in report["findings"] if one["rule"] == "host/path-unusable"]
    return report["snapshot"]["storage"]["paths"]["value"], found


def test_a_healthy_job_has_its_line_and_no_finding(job):
    code, out, _err = run(job, "--format", "json", env={"WHERE": "data"})
    rows, found = storage_of(out)
    assert found == [] and [one["role"] for one in rows] == ["data", "output"] and code != 75
    _code, out, _err = run(job, env={"WHERE": "data"})
    assert "  ok  storage" in out and f"{job}/data 1 file, 9 bytes" in " ".join(out.split())
    assert sorted(os.listdir(job)) == ["data", "preflight.toml"]


def test_exec_stops_a_job_whose_data_is_not_there(job):
    code, out, err = run(job, "exec", "--", "echo", "started", env={"WHERE": "nothing"})
    assert (code, out) == (75, "")
    last = err.splitlines()[-1]
    assert last.startswith(f"preflight: FAIL host/path-unusable: {job}/nothing is not there")


def test_exec_stops_for_good_where_a_file_is_cut_off(job):
    (job / "data" / "b.jsonl").write_text('{"a": 1}\n{"a": ')
    code, out, err = run(job, "exec", "--", "echo", "started", env={"WHERE": "data"})
    assert (code, out) == (78, "") and "b.jsonl is cut off" in err


def test_exec_starts_a_healthy_job(job):
    code, out, _err = run(job, "exec", "--", "echo", "started", env={"WHERE": "data"})
    assert (code, out) == (0, "started\n")


def test_a_bad_policy_is_wrong_usage(job):
    (job / "preflight.toml").write_text("[data]\nkind = 3\npath = 'x'")
    code, _out, err = run(job)
    assert code == 2 and "preflight.toml: data.kind: 3 is none of" in err


def test_an_image_whose_policy_names_mounts_is_not_failed(job):
    root = job / "root"
    (root / "etc").mkdir(parents=True)
    (job / "preflight.toml").write_text('[data]\npath = "/mnt/data"\n[output]\npath = "/out"')
    _code, out, _err = run(job, "--root", str(root), "--format", "json")
    rows, found = storage_of(out)
    assert found == [] and [one["state"] for one in rows] == ["missing", "missing"]
    assert not (root / "out").exists()
