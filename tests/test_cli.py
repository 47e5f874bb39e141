"""The command line, as a person or a script meets it: real processes, real files."""

import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

import preflight
from preflight import cli
from preflight.reports import json_report
from preflight.rules.registry import RULES

HOME = str(Path(preflight.__file__).parent.parent)
CASES = Path(__file__).parent / "cases"
BAD_CASE = str(CASES / "004-torch210-cu121-driver-470.json")
GOOD_CASE = str(CASES / "193-ok-colab-460-cu113.json")
WARN_CASE = str(CASES / "022-merlin2112-entrypoint-lost.json")
SICK_CASE = str(CASES / "062-nvml-mismatch-colabfold.json")


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """An empty working directory: no policy lies about."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words, env=None, stdin=b"", **keywords):
    mine = {"PATH": os.environ["PATH"], "PYTHONPATH": HOME, "LANG": "C.UTF-8"}
    mine.update(env or {})
    return subprocess.run(
        [sys.executable, "-m", "preflight", *words], input=stdin, env=mine, timeout=60,
        capture_output=True, check=False, **keywords,
    )  # fmt: skip


def out(done):
    return done.stdout.decode("utf-8")


def one_line(done, *words):
    """Wrong usage: one line on standard error that names what is wrong, and exit code 2."""
    lines = done.stderr.decode("utf-8").splitlines()
    assert done.returncode == 2, (done.returncode, done.stderr)
    assert len(lines) == 1 and lines[0].startswith("preflight: "), done.stderr
    assert done.stdout == b""
    assert len(lines[0]) < 600
    for word in words:
        assert word in lines[0], (word, lines[0])


def written(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


# -- wrong usage ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["nonsense"], ["nonsense"]),
        (["check", "nonsense"], ["nonsense"]),
        (["--nonsense"], ["--nonsense"]),
        (["check", "--nonsense=1"], ["--nonsense"]),
        (["diagnose", GOOD_CASE, "--nonsense"], ["--nonsense"]),
        (["diagnose"], ["FILE"]),
        (["--timeout"], ["--timeout"]),
        (["--timeout", "soon"], ["--timeout", "soon"]),
        (["--timeout", "0"], ["--timeout"]),
        (["--timeout", "nan"], ["--timeout"]),
        (["--tim", "3"], ["--tim"]),  # no abbreviations: a later option could clash
        (["--format", "yaml"], ["--format", "yaml"]),
        (["--fail-on", "never"], ["--fail-on", "never"]),
        (["--root", "/no/such/directory"], ["--root", "/no/such/directory"]),
        (["--python", "/no/such/python"], ["--python", "/no/such/python"]),
        (["--env-file", "/no/such/file"], ["--env-file", "/no/such/file"]),
        (["--policy", "/no/such/policy.toml"], ["/no/such/policy.toml"]),
        (["--policy", "/"], ["/"]),
        (["--assume", "nonsense"], ["nonsense"]),
        (["--assume", "gpu=no such card"], ["no such card"]),
        (["--assume", "driver=535", "--assume", "driver=550"], ["535", "550"]),
        (["--output", "/no/such/directory/report.txt"], ["/no/such/directory/report.txt"]),
        (["--output", "json="], ["--output"]),
        (["diagnose", GOOD_CASE, "--output", "/no/such/directory/x"], ["/no/such/directory/x"]),
        (["exec"], ["command"]),
        (["exec", "--"], ["command"]),
        (["exec", "true"], ["true"]),
        (["exec", "--mode", "strict", "--", "true"], ["--mode", "strict"]),
        (["exec", "--nonsense", "--", "true"], ["--nonsense"]),
        (["exec", "--timeout", "x", "--", "true"], ["--timeout"]),
        (["rules", "no/such-rule"], ["no/such-rule"]),
        (["rules", "too-old"], ["too-old", "driver/too-old-for-cuda"]),
        (["diagnose", "/no/such/file.json"], ["/no/such/file.json"]),
        (["diagnose", "/"], ["/"]),
    ],
)  # fmt: skip
def test_wrong_usage(words, named):
    one_line(run(*words), *named)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PREFLIGHT_TIMEOUT", "soon"),
        ("PREFLIGHT_FORMAT", "yaml"),
        ("PREFLIGHT_FAIL_ON", "never"),
        ("PREFLIGHT_MODE", "strict"),
        ("PREFLIGHT_FAIL_CLOSED", "perhaps"),
        ("PREFLIGHT_ASSUME_GPU", "no such card"),
        ("PREFLIGHT_ASSUME_NONSENSE", "1"),
        ("PREFLIGHT_POLICY", "/no/such/policy.toml"),
        ("PREFLIGHT_ROOT", "/no/such/directory"),
    ],
)
def test_wrong_variables(name, value):
    one_line(run("check", env={name: value}), value if name != "PREFLIGHT_ASSUME_NONSENSE" else "")


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("fail-on = ", "nvalid value"),
        ("[severity]\n'no/such-rule' = 'off'\n", "no/such-rule"),
        ("nonsense = 1\n", "nonsense"),
        ("mode = 'strict'\n", "strict"),
        (b"\xff\xfe\x00", ""),
        ("a = " + "[" * 30_000, ""),
    ],
    ids=lambda text: repr(text)[:20],
)
def test_broken_policies(here, content, named):
    path = written(here / "team.toml", content)
    one_line(run("--policy", path), path, named)
    one_line(run("exec", "--policy", path, "--", "true"), path, named)


def test_a_policy_that_lies_about_is_used_and_named_when_broken(here):
    written(here / "preflight.toml", "fail-on = 'never'")
    one_line(run("diagnose", GOOD_CASE), "preflight.toml", "never")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write and read anything")
def test_files_without_permission(here):
    path = written(here / "secret.toml", "")
    os.chmod(path, 0)
    one_line(run("--policy", path), path, "ermission")
    written(here / "full.txt", "")
    os.chmod(str(here / "full.txt"), stat.S_IRUSR)
    one_line(run("--output", str(here / "full.txt")), "full.txt", "ermission")


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("", ""),
        ("garbage", ""),
        ("{", ""),
        ("[]", "object"),
        ("null", "object"),
        (b"\xff\xfe{}", ""),
        (b'{"python": "\xe9"}', ""),
        ('{"pythn": "3.11"}', "pythn"),
        ('{"driver": {"versoin": "1"}}', "driver.versoin"),
        ('{"gpus": [{"count": 1e999}]}', "gpus[0].count"),
        ('{"gpus": [{"memory_gib": 1e999}]}', "gpus[0].memory_gib"),
        ('{"gpus": [{"memory_gib": NaN}]}', "gpus[0].memory_gib"),
        ('{"schema": "preflight.snapshot/1", "x": 1}', "x"),
        ('{"schema": "preflight.snapshot/1", "driver": {"version": {"value": 1}}}',
         "driver.version"),
        ('{"schema": "preflight.snapshot/99"}', "schema"),
        ("[" * 200_000, ""),
        ('{"driver": ' * 100_000, ""),
    ],
    ids=lambda text: repr(text)[:20],
)  # fmt: skip
def test_documents_that_cannot_be_read(here, content, named):
    path = written(here / "given.json", content)
    one_line(run("diagnose", path), path, named)


def test_a_document_on_standard_input():
    one_line(run("diagnose", "-", stdin=b"garbage"), "-")
    document = Path(BAD_CASE).read_bytes()
    done = run("diagnose", "-", stdin=document)
    assert done.returncode == 78 and b"driver/too-old-for-cuda" in done.stdout
    with_mark = run("diagnose", "-", stdin=b"\xef\xbb\xbf" + document)
    assert with_mark.stdout == done.stdout


def test_a_number_of_many_digits_is_read_or_refused(here):
    path = written(here / "given.json", '{"gpus": [{"count": ' + "9" * 6000 + "}]}")
    done = run("diagnose", path)
    assert b"Traceback" not in done.stderr
    assert done.returncode in (0, 2) and len(done.stdout) < 20_000


def test_an_argument_that_is_no_text():
    done = run("diagnose", b"/no/such/\xff\nfile")
    assert done.returncode == 2 and done.stderr.count(b"\n") == 1
    done = run(b"\xff\xfe\n\x1b[31m")
    assert done.returncode == 2 and done.stderr.count(b"\n") == 1 and b"\x1b" not in done.stderr


# -- help, version, rules ---------------------------------------------------------------------


def test_help_mentions_everything():
    done = run("--help")
    assert done.returncode == 0 and done.stderr == b""
    for name in cli.COMMANDS:
        if name != "check":
            assert f"preflight {name}" in out(done), name
    for words in ("Exit codes", "PREFLIGHT_TIMEOUT", "75", "78", "--root", "--assume"):
        assert words in out(done), words


@pytest.mark.parametrize("command", list(cli.COMMANDS))
def test_every_command_has_help(command):
    done = run(command, "--help")
    assert done.returncode == 0 and out(done).startswith("usage: preflight")


def test_version():
    done = run("--version")
    assert (done.returncode, out(done)) == (0, f"preflight {preflight.__version__}\n")


def test_rules():
    done = run("rules")
    assert done.returncode == 0
    rows = out(done).splitlines()
    assert [row.split()[:2] for row in rows] == [[one.name, one.severity] for one in RULES]
    for rule in RULES[:3]:
        one = run("rules", rule.name)
        assert one.returncode == 0 and "Fix:" in out(one)
        assert out(one).startswith(f"{rule.name} ({rule.severity})")


# -- diagnose ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "options", "code"),
    [
        (GOOD_CASE, [], 0),
        (BAD_CASE, [], 78),
        (WARN_CASE, [], 0),
        (WARN_CASE, ["--fail-on", "warn"], 78),
        (SICK_CASE, [], 75),
        (GOOD_CASE, ["--fail-on", "unknown"], 0),
        (BAD_CASE, ["--assume", "driver=535.104.05"], 0),
        (GOOD_CASE, ["--assume", "driver=418.87"], 78),
        (BAD_CASE, ["--fail-on", "WARN"], 78),
    ],
)
def test_diagnose(path, options, code):
    done = run("diagnose", path, *options)
    assert done.returncode == code, out(done)
    assert done.stderr == b""
    last = out(done).splitlines()[-1].split(":")[0]
    assert last in {0: ("PASS", "WARN"), 75: ("FAIL",), 78: ("FAIL", "WARN")}[code]


def test_fail_on_by_variable_and_flag():
    env = {"PREFLIGHT_FAIL_ON": "warn"}
    assert run("diagnose", WARN_CASE, env=env).returncode == 78
    assert run("diagnose", WARN_CASE, "--fail-on", "fail", env=env).returncode == 0


@pytest.mark.parametrize(("until", "code"), [("2999-01-01", 0), ("2020-01-01", 78)])
def test_waivers(here, until, code):
    policy = written(here / "team.toml",
                     f'[[waiver]]\nrule = "driver/too-old-for-cuda"\nreason = "known here"\n'
                     f'until = "{until}"\n')  # fmt: skip
    done = run("diagnose", BAD_CASE, "--policy", policy)
    assert done.returncode == code
    assert ("known here" in out(done)) == (code == 0)


def test_a_retry_code_of_the_policy(here):
    policy = written(here / "team.toml", "retry-exit-code = 138\n")
    assert run("diagnose", SICK_CASE, "--policy", policy).returncode == 138


def test_quiet_verbose_and_explain():
    quiet = out(run("diagnose", BAD_CASE, "-q"))
    assert quiet.count("\n") == 1 and quiet.startswith("FAIL: driver/too-old-for-cuda")
    plain = out(run("diagnose", BAD_CASE))
    verbose = out(run("diagnose", BAD_CASE, "-v"))
    assert verbose.startswith(plain.rsplit("\n\n", 1)[0])
    assert all(rule.name in verbose for rule in RULES)
    explained = out(run("diagnose", BAD_CASE, "--explain"))
    assert "why" in explained and "source" in explained and "why     " not in plain


# -- formats and outputs ----------------------------------------------------------------------


def test_json_is_the_contract():
    document = json.loads(out(run("diagnose", BAD_CASE, "--format", "json")))
    jsonschema.Draft202012Validator(json_report.json_schema()).validate(document)
    assert document["schema"] == "preflight.report/1" and document["verdict"] == "fail"
    assert document["findings"][0]["rule"] == "driver/too-old-for-cuda"


def test_the_snapshot_of_a_report_can_be_diagnosed_again(here):
    first = json.loads(out(run("diagnose", BAD_CASE, "--format", "json")))
    path = written(here / "snapshot.json", json.dumps(first["snapshot"]))
    second = json.loads(out(run("diagnose", path, "--format", "json")))
    for document in (first, second):
        document.pop("milliseconds")
    assert first == second


def test_a_plain_output_is_instead_of_standard_output(here):
    done = run("diagnose", BAD_CASE, "--output", "report.txt")
    assert done.returncode == 78 and done.stdout == b""
    assert (here / "report.txt").read_text() == out(run("diagnose", BAD_CASE))


def test_outputs_with_formats_come_beside_it(here):
    done = run("diagnose", BAD_CASE, "--output", "json=a.json", "--output", "text=b.txt")
    assert out(done) == out(run("diagnose", BAD_CASE)) == (here / "b.txt").read_text()
    assert json.loads((here / "a.json").read_text())["verdict"] == "fail"


def test_outputs_by_variable(here):
    done = run("diagnose", BAD_CASE, env={"PREFLIGHT_OUTPUT": "json=a.json"})
    assert "FAIL" in out(done)
    assert json.loads((here / "a.json").read_text())["verdict"] == "fail"
    done = run("diagnose", BAD_CASE, env={"PREFLIGHT_OUTPUT": "c.txt"})
    assert done.stdout == b"" and "FAIL" in (here / "c.txt").read_text()


def test_a_file_is_not_touched_when_the_input_is_wrong(here):
    (here / "report.txt").write_text("the last one")
    one_line(run("diagnose", "/no/such/file", "--output", "report.txt"))
    assert (here / "report.txt").read_text() == "the last one"


@pytest.mark.parametrize("command", [["check"], ["diagnose", GOOD_CASE], ["snapshot"]])
def test_what_cannot_be_written_is_said_before_the_work(here, command):
    done = run(*command, "--output", "text=first.txt", "--output", "json=/no/such/directory/x")
    one_line(done, "/no/such/directory/x")
    first = here / "first.txt"
    assert not first.exists() or first.read_bytes() == b""


def test_standard_output_as_a_file():
    done = run("diagnose", BAD_CASE, "--output", "json=-", "-q")
    assert '"verdict": "fail"' in out(done)


# -- terminals, pipes, locales ----------------------------------------------------------------


def in_terminal(*words, env=None):
    """What is written to a terminal of its own."""
    leader, follower = os.openpty()
    mine = {"PATH": os.environ["PATH"], "PYTHONPATH": HOME, "LANG": "C.UTF-8", "TERM": "xterm"}
    mine.update(env or {})
    process = subprocess.Popen([sys.executable, "-m", "preflight", *words], stdout=follower,
                               stderr=follower, stdin=subprocess.DEVNULL, env=mine)  # fmt: skip
    os.close(follower)
    chunks = []
    while True:
        try:
            chunk = os.read(leader, 65536)
        except OSError:
            break
        if not chunk:
            break
        chunks.append(chunk)
    process.wait(timeout=60)
    os.close(leader)
    return b"".join(chunks)


def test_colour_only_on_a_terminal_that_wants_it():
    assert b"\x1b[31;1mFAIL\x1b[0m" in in_terminal("diagnose", BAD_CASE)
    for env in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert b"\x1b" not in in_terminal("diagnose", BAD_CASE, env=env)
    assert b"\x1b" in in_terminal("diagnose", BAD_CASE, env={"NO_COLOR": ""})
    assert b"\x1b" not in run("diagnose", BAD_CASE).stdout
    assert b"\x1b" not in in_terminal("diagnose", BAD_CASE, "--format", "json")


@pytest.mark.parametrize("words", [["diagnose", BAD_CASE, "--explain", "-v"], ["rules"],
                                   ["diagnose", BAD_CASE, "--format", "json"],
                                   ["--help"]])  # fmt: skip
def test_a_reader_that_goes_away(words):
    mine = {"PATH": os.environ["PATH"], "PYTHONPATH": HOME, "LANG": "C.UTF-8"}
    process = subprocess.Popen([sys.executable, "-m", "preflight", *words], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, env=mine)  # fmt: skip
    process.stdout.read(1)
    process.stdout.close()
    said = process.stderr.read()
    assert process.wait(timeout=60) in (0, 78) and said == b""
    process.stderr.close()


@pytest.mark.parametrize("words", [["diagnose", BAD_CASE], ["rules"], ["--version"]])
@pytest.mark.parametrize("closed", [0, 1, 2])
def test_closed_streams(words, closed):
    script = f'exec "$0" "$@" {closed}>&-'
    mine = {"PATH": os.environ["PATH"], "PYTHONPATH": HOME, "LANG": "C.UTF-8"}
    done = subprocess.run(["/bin/sh", "-c", script, sys.executable, "-m", "preflight", *words],
                          env=mine, stdin=subprocess.DEVNULL, capture_output=True,
                          timeout=60, check=False)  # fmt: skip
    assert done.returncode in (0, 78)
    assert b"Traceback" not in done.stderr + done.stdout


def test_a_full_disk_is_no_fault():
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full")
    with open("/dev/full", "wb") as full:
        mine = {"PATH": os.environ["PATH"], "PYTHONPATH": HOME, "LANG": "C.UTF-8"}
        done = subprocess.run([sys.executable, "-m", "preflight", "diagnose", BAD_CASE],
                              stdout=full, stderr=subprocess.PIPE, env=mine,
                              check=False)  # fmt: skip
    assert done.returncode == 78 and b"Traceback" not in done.stderr
    one_line(run("diagnose", BAD_CASE, "--output", "/dev/full"), "/dev/full")


NAME = "Größe 显卡 😀"


@pytest.mark.parametrize(
    "env",
    [{"LC_ALL": "C"}, {"LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
     {"PYTHONIOENCODING": "ascii"}, {"PYTHONIOENCODING": "latin-1"}, {"LC_ALL": "C.UTF-8"}],
)  # fmt: skip
def test_locales_that_cannot_write_a_name(here, env):
    document = {"driver": {"version": "470.82.01"}, "gpus": [{"name": NAME}],
                "torch": {"version": "2.6.0+cu124", "cuda": "12.4"}}  # fmt: skip
    path = written(here / "given.json", json.dumps(document, ensure_ascii=False))
    done = run("diagnose", path, "--output", "json=full.json", "--output", "text=full.txt", env=env)
    assert done.returncode == 78 and done.stderr == b""
    assert b"Traceback" not in done.stdout
    assert NAME in (here / "full.txt").read_text(encoding="utf-8")
    full = json.loads((here / "full.json").read_text(encoding="utf-8"))
    assert full["snapshot"]["gpus"]["value"][0]["name"]["value"] == NAME
    if env.get("LC_ALL") == "C.UTF-8":
        assert NAME in out(done)


def test_json_on_standard_output_stays_json_whatever_the_locale(here):
    path = written(here / "given.json", json.dumps({"gpus": [{"name": NAME}]}))
    done = run("diagnose", path, "--format", "json", env={"PYTHONIOENCODING": "ascii"})
    document = json.loads(done.stdout.decode("utf-8"))
    assert document["snapshot"]["gpus"]["value"][0]["name"]["value"] == NAME


def test_a_lone_surrogate_is_written_somehow(here):
    path = written(here / "given.json", '{"gpus": [{"name": "x\\ud800y"}]}')
    for fmt in ("text", "json"):
        done = run("diagnose", path, "--format", fmt, "--output", f"{fmt}=copy")
        assert done.returncode == 0 and b"Traceback" not in done.stderr
    assert json.loads((here / "copy").read_text(encoding="utf-8"))


# -- the machine and directories --------------------------------------------------------------


def test_a_directory(here):
    (here / "image").mkdir()
    done = run("--root", str(here / "image"))
    assert done.returncode == 0 and out(done).splitlines()[-1].startswith("UNKNOWN")
    assert run("check", "--root", str(here / "image"), "--fail-on", "unknown").returncode in (
        75,
        78,
    )
    seen = json.loads(out(run("snapshot", "--root", str(here / "image"))))
    assert (seen["origin"], seen["root"]) == ("directory", str(here / "image"))


def test_snapshot_and_diagnose_agree_on_this_machine(here):
    done = run("snapshot", "--output", "snapshot.json")
    assert done.returncode == 0 and done.stdout == b"" and done.stderr == b""
    document = json.loads((here / "snapshot.json").read_text())
    assert document["schema"] == "preflight.snapshot/1" and document["origin"] == "live"
    assert run("diagnose", "snapshot.json").returncode in (0, 75, 78)


def test_the_commands_own_line_is_check():
    flags = ["--assume", "driver=470.82.01", "--assume", "gpu=A100", "--root", "/"]
    plain, named = run(*flags, "-q"), run("check", *flags, "-q")
    assert (plain.returncode, plain.stdout) == (named.returncode, named.stdout)


def test_times_are_in_the_report(here):
    (here / "image").mkdir()
    document = json.loads(out(run("--root", str(here / "image"), "--format", "json")))
    jsonschema.Draft202012Validator(json_report.json_schema()).validate(document)
    assert document["milliseconds"]["total"] > 0
    assert any(re.match(r"probe\.", name) for name in document["milliseconds"])
