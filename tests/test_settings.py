"""A flag wins over its variable, the variable over the policy file; bad requests are named."""

import argparse

import pytest

from preflight import policy, settings
from preflight.settings import BadUsage, Output

FLAGS = {
    "format": None, "output": None, "policy": None, "fail_on": None, "assume": None,
    "timeout": None, "root": None, "python": None, "env_file": None,
}  # fmt: skip


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """A directory with no policy in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(settings, "POLICY_PLACES", ("preflight.toml",))
    return tmp_path


def gather(env=None, **flags):
    return settings.gather(argparse.Namespace(**{**FLAGS, **flags}), env or {})


def refused(*words, env=None, **flags):
    with pytest.raises((BadUsage, policy.BadPolicy)) as caught:
        gather(env, **flags)
    message = str(caught.value)
    assert "\n" not in message and all(word in message for word in words), message


def test_defaults():
    asked = gather()
    assert (asked.format, asked.outputs, asked.timeout, asked.root) == ("text", (), 30.0, "/")
    assert (asked.fail_on, asked.mode, asked.fail_closed, asked.assume) == (
        "fail", "enforce", False, (),
    )  # fmt: skip
    assert asked.policy == policy.Policy()


def test_offline():
    assert gather().offline is False
    assert gather(offline=True).offline is True
    assert gather({"PREFLIGHT_OFFLINE": "1"}).offline is True
    assert gather({"PREFLIGHT_OFFLINE": "0"}).offline is False
    refused("PREFLIGHT_OFFLINE", env={"PREFLIGHT_OFFLINE": "maybe"})


POLICY = """
fail-on = "warn"
mode = "warn"
timeout = 12
fail-closed = true
"""


@pytest.mark.parametrize(
    ("field", "flag", "variable", "by_flag", "by_variable", "by_policy"),
    [
        ("fail_on", {"fail_on": "unknown"}, {"PREFLIGHT_FAIL_ON": "fail"}, "unknown", "fail",
         "warn"),
        ("mode", {"mode": "off"}, {"PREFLIGHT_MODE": "enforce"}, "off", "enforce", "warn"),
        ("timeout", {"timeout": "3"}, {"PREFLIGHT_TIMEOUT": "4.5"}, 3.0, 4.5, 12.0),
        ("fail_closed", {"fail_closed": True}, {"PREFLIGHT_FAIL_CLOSED": "0"}, True, False, True),
    ],
)  # fmt: skip
def test_who_wins(here, field, flag, variable, by_flag, by_variable, by_policy):
    (here / "preflight.toml").write_text(POLICY)
    assert getattr(gather(), field) == by_policy
    assert getattr(gather(variable), field) == by_variable
    assert getattr(gather(variable, **flag), field) == by_flag
    assert getattr(gather(dict.fromkeys(variable, "")), field) == by_policy


def test_an_unset_flag_does_not_win(here):
    (here / "preflight.toml").write_text(POLICY)
    assert gather(fail_closed=False).fail_closed is True


@pytest.mark.parametrize("text", ["WARN", "Warn", " warn "])
def test_case_and_spaces_of_a_variable(text):
    assert gather({"PREFLIGHT_FAIL_ON": text}).fail_on == "warn"


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"fail_on": "never"}, ("--fail-on", "never", "warn")),
        ({"format": "yaml"}, ("--format", "yaml", "json")),
        ({"timeout": "soon"}, ("--timeout", "soon")),
        ({"timeout": "0"}, ("--timeout", "0")),
        ({"timeout": "-1"}, ("--timeout",)),
        ({"timeout": "3601"}, ("--timeout",)),
        ({"timeout": "nan"}, ("--timeout",)),
        ({"timeout": "inf"}, ("--timeout",)),
        ({"mode": "strict"}, ("--mode", "strict")),
        ({"root": "/no/such/directory"}, ("--root", "/no/such/directory")),
        ({"python": "/no/such/python"}, ("--python", "/no/such/python")),
        ({"env_file": "/no/such/file"}, ("--env-file", "/no/such/file")),
        ({"policy": "/no/such/policy.toml"}, ("/no/such/policy.toml",)),
        ({"output": ["json="]}, ("--output",)),
        ({"output": [""]}, ("--output",)),
    ],
)
def test_bad_flags(flags, words):
    refused(*words, **flags)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PREFLIGHT_FAIL_ON", "never"),
        ("PREFLIGHT_FORMAT", "yaml"),
        ("PREFLIGHT_TIMEOUT", "soon"),
        ("PREFLIGHT_MODE", "strict"),
        ("PREFLIGHT_FAIL_CLOSED", "perhaps"),
    ],
)
def test_bad_variables_are_named(name, value):
    refused(name, value, env={name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [("PREFLIGHT_ROOT", "/no/such/directory"), ("PREFLIGHT_PYTHON", "/no/such/python"),
     ("PREFLIGHT_ENV_FILE", "/no/such/file"), ("PREFLIGHT_POLICY", "/no/such/policy.toml"),
     ("PREFLIGHT_OUTPUT", "json=")],
)  # fmt: skip
def test_bad_values_of_variables_are_named(name, value):
    refused(value, env={name: value})


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", True), ("true", True), ("YES", True), ("on", True), ("0", False), ("False", False),
     ("no", False), ("off", False), ("", False)],
)  # fmt: skip
def test_flags_as_variables(text, value):
    assert gather({"PREFLIGHT_FAIL_CLOSED": text}).fail_closed is value


# -- where a policy is found ------------------------------------------------------------------


def test_policy_by_flag_variable_place_and_pyproject(here):
    (here / "pyproject.toml").write_text('[tool.preflight]\nfail-on = "unknown"\n')
    assert gather().fail_on == "unknown"
    (here / "preflight.toml").write_text('fail-on = "warn"')
    assert gather().fail_on == "warn"
    (here / "other.toml").write_text('fail-on = "fail"\nmode = "off"')
    assert gather({"PREFLIGHT_POLICY": "other.toml"}).mode == "off"
    (here / "another.toml").write_text('mode = "warn"')
    assert gather({"PREFLIGHT_POLICY": "other.toml"}, policy="another.toml").mode == "warn"


def test_a_pyproject_that_does_not_mention_us_is_not_read(here):
    (here / "pyproject.toml").write_text("this = is no TOML")
    assert gather().policy == policy.Policy()


def test_a_broken_policy_that_is_found_is_named(here):
    (here / "preflight.toml").write_text("fail-on = ")
    refused("preflight.toml")


# -- outputs, root, environment ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "fmt", "expected"),
    [
        (["out.txt"], None, [Output("text", "out.txt")]),
        (["out.txt"], "json", [Output("json", "out.txt")]),
        (["json=out.json"], None, [Output("json", "out.json")]),
        (["json=a", "text=b", "c"], None, [Output("json", "a"), Output("text", "b"),
                                          Output("text", "c")]),
        (["-"], "json", [Output("json", "-")]),
        (["a=b"], None, [Output("text", "a=b")]),  # no format: a name with = in it
        (["json=a=b"], None, [Output("json", "a=b")]),
    ],
)  # fmt: skip
def test_outputs(given, fmt, expected):
    assert list(gather(output=given, format=fmt).outputs) == expected


def test_output_by_variable():
    env = {"PREFLIGHT_OUTPUT": "json=x"}
    assert gather(env).outputs == (Output("json", "x"),)
    assert gather(env, output=["y"]).outputs == (Output("text", "y"),)


def test_a_directory_has_no_environment_of_ours(here):
    (here / "image").mkdir()
    env = {"CUDA_VISIBLE_DEVICES": "", "PATH": "/usr/bin"}
    assert gather(env).env == env
    assert gather(env, root=str(here / "image")).env == {}
    assert gather({**env, "PREFLIGHT_ROOT": str(here / "image")}).root == str(here / "image")
    (here / "env").write_text("A=1\n")
    asked = gather(env, root=str(here / "image"), env_file=str(here / "env"))
    assert asked.env == {"A": "1"} and asked.env_source == str(here / "env")


def test_the_python_of_a_directory_is_looked_for_in_it(here):
    (here / "image").mkdir()
    asked = gather(root=str(here / "image"), python="/opt/conda/bin/python")
    assert asked.python == "/opt/conda/bin/python"


def test_env_files(here):
    text = "# a comment\n\nA=1\nB=two words\nC=\nD=x=y\n  # another\nE='quoted'\r\nF= kept \n"
    (here / "env").write_bytes(text.encode() + b"G=\xff\n")
    assert settings.read_env_file(str(here / "env")) == {
        "A": "1", "B": "two words", "C": "", "D": "x=y", "E": "'quoted'", "F": " kept ",
        "G": "\ufffd",
    }  # fmt: skip


def test_only_line_ends_end_a_line_of_an_env_file(here):
    """A value may hold what Unicode calls a line separator, or a form feed."""
    (here / "env").write_bytes("A=1\u20282\nB=3\x0c4\nC=5\x856\n".encode())
    assert settings.read_env_file(str(here / "env")) == {
        "A": "1\u20282", "B": "3\x0c4", "C": "5\x856",
    }  # fmt: skip


@pytest.mark.parametrize("text", ["A\n", "=1\n", "A B=1\n", "export A=1\n", "ok=1\nnonsense\n"])
def test_bad_env_files(here, text):
    (here / "env").write_text(text)
    with pytest.raises(BadUsage) as caught:
        settings.read_env_file(str(here / "env"))
    line = len(text.splitlines())
    assert str(here / "env") in str(caught.value) and f"line {line}" in str(caught.value)


# -- assumptions ------------------------------------------------------------------------------


def test_assumptions_by_flag_variable_and_policy(here):
    (here / "preflight.toml").write_text('assume = ["gpu=T4", "driver=470", "platform=slurm"]')
    env = {"PREFLIGHT_ASSUME_GPU": "A100, H100", "PREFLIGHT_ASSUME_CUDA": "12.2"}
    assert gather().assume == ("gpu=T4", "driver=470", "platform=slurm")
    assert set(gather(env).assume) == {"gpu=A100", "gpu=H100", "cuda=12.2", "driver=470",
                                       "platform=slurm"}  # fmt: skip
    asked = gather(env, assume=["GPU=V100", "driver=580.65.06"])
    assert set(asked.assume) == {"GPU=V100", "driver=580.65.06", "cuda=12.2", "platform=slurm"}
