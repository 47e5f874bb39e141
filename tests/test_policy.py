"""Policy files: what they may say, and what is refused with its place."""

import pytest

from preflight import policy
from preflight.policy import BadPolicy, Policy, Waiver

FULL = """
fail-on = "warn"
mode = "warn"
fail-closed = true
timeout = 12
retry-exit-code = 138
assume = ["gpu=A100", "driver=535.104.05"]

[severity]
"driver/too-old-for-ptx" = "warn"
"gpu/no-kernels-for-architecture" = "off"

[[waiver]]
rule = "driver/too-old-for-cuda"
reason = "the P100 queue is being retired"
until = "2027-03-31"

[[waiver]]
rule = "link/stub-libcuda"
reason = "a build image"
until = 2027-04-01
"""


def written(tmp_path, text, name="preflight.toml"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


def test_everything_that_can_be_said(tmp_path):
    assert policy.read(written(tmp_path, FULL)) == Policy(
        severity={"driver/too-old-for-ptx": "warn", "gpu/no-kernels-for-architecture": "off"},
        waivers=(
            Waiver("driver/too-old-for-cuda", "the P100 queue is being retired", "2027-03-31"),
            Waiver("link/stub-libcuda", "a build image", "2027-04-01"),
        ),
        fail_on="warn",
        mode="warn",
        fail_closed=True,
        timeout=12.0,
        retry_exit_code=138,
        assume=("gpu=A100", "driver=535.104.05"),
    )


def test_the_example_in_the_documentation_is_good(tmp_path):
    example = (policy.__doc__ or "").partition("\n\n")[2]
    assert policy.read(written(tmp_path, example)).waivers


def test_nothing_said_is_nothing_decided(tmp_path):
    assert policy.read(written(tmp_path, "")) == Policy()
    assert policy.parse({}) == Policy()


def test_pyproject(tmp_path):
    text = '[project]\nname = "x"\n[tool.preflight]\nfail-on = "warn"\n'
    assert policy.read(written(tmp_path, text, "pyproject.toml")).fail_on == "warn"
    assert policy.read(written(tmp_path, '[project]\nname = "x"\n', "pyproject.toml")) == Policy()


RULE = "driver/too-old-for-cuda"


@pytest.mark.parametrize(
    ("document", "place"),
    [
        ({"failon": "warn"}, "failon"),
        ({"waivers": []}, "waivers"),
        ({"fail-on": "never"}, "fail-on"),
        ({"fail-on": 1}, "fail-on"),
        ({"fail-on": ["warn"]}, "fail-on"),
        ({"mode": "strict"}, "mode"),
        ({"fail-closed": "yes"}, "fail-closed"),
        ({"fail-closed": 1}, "fail-closed"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": -1}, "timeout"),
        ({"timeout": 3601}, "timeout"),
        ({"timeout": True}, "timeout"),
        ({"timeout": "30"}, "timeout"),
        ({"timeout": float("nan")}, "timeout"),
        ({"timeout": float("inf")}, "timeout"),
        ({"retry-exit-code": 0}, "retry-exit-code"),
        ({"retry-exit-code": 255}, "retry-exit-code"),
        ({"retry-exit-code": 137}, "retry-exit-code"),
        ({"retry-exit-code": 143}, "retry-exit-code"),
        ({"retry-exit-code": 245}, "retry-exit-code"),
        ({"retry-exit-code": 256}, "retry-exit-code"),
        ({"retry-exit-code": 75.0}, "retry-exit-code"),
        ({"retry-exit-code": True}, "retry-exit-code"),
        ({"assume": "gpu=A100"}, "assume"),
        ({"assume": [1]}, "assume"),
        ({"severity": []}, "severity"),
        ({"severity": {"driver/no-such": "warn"}}, "severity"),
        ({"severity": {RULE: "error"}}, "severity"),
        ({"severity": {RULE: 1}}, "severity"),
        ({"severity": {RULE: []}}, "severity"),
        ({"waiver": {}}, "waiver"),
        ({"waiver": ["x"]}, "waiver[0]"),
        ({"waiver": [{}]}, "waiver[0]"),
        ({"waiver": [{"rule": RULE, "until": "2027-01-01"}]}, "waiver[0]"),
        ({"waiver": [{"rule": RULE, "reason": "x", "until": "2027-01-01", "by": "me"}]},
         "waiver[0]"),
        ({"waiver": [{"rule": "no/such", "reason": "x", "until": "2027-01-01"}]}, "waiver[0]"),
        ({"waiver": [{"rule": RULE, "reason": " ", "until": "2027-01-01"}]}, "waiver[0].reason"),
        ({"waiver": [{"rule": RULE, "reason": "x", "until": "soon"}]}, "waiver[0].until"),
        ({"waiver": [{"rule": RULE, "reason": "x", "until": "2027-02-30"}]}, "waiver[0].until"),
        ({"waiver": [{"rule": RULE, "reason": "x", "until": "2027"}]}, "waiver[0].until"),
        ({"waiver": [{"rule": RULE, "reason": "x", "until": ""}]}, "waiver[0].until"),
        ({"waiver": [{"rule": RULE, "reason": "x", "until": "31-03-2027"}]}, "waiver[0].until"),
        ({"waiver": [{"rule": RULE, "reason": "x", "until": 20270101}]}, "waiver[0].until"),
    ],
)  # fmt: skip
def test_what_is_refused(document, place):
    with pytest.raises(BadPolicy) as caught:
        policy.parse(document)
    assert str(caught.value).startswith(place)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "fail-on = ",
        "= 1",
        "[severity",
        'fail-on = "warn"\nfail-on = "fail"',
        b"\xff\xfe\x00",
        b'fail-on = "w\xe9rn"',
        "\x00",
        "a = " + "[" * 20000,
    ],
    ids=lambda text: repr(text)[:20],
)
def test_broken_files_name_the_file(tmp_path, text):
    path = written(tmp_path, text)
    with pytest.raises(BadPolicy) as caught:
        policy.read(path)
    assert str(caught.value).startswith(path + ": ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["tool = 3", "[tool]\npreflight = 3", "[[tool]]\nx = 1",
                                  '[tool]\npreflight = "warn"',
                                  "[[tool.preflight]]\nx = 1"])  # fmt: skip
def test_a_pyproject_of_another_shape(tmp_path, text):
    path = written(tmp_path, text, "pyproject.toml")
    with pytest.raises(BadPolicy) as caught:
        policy.read(path)
    assert str(caught.value).startswith(path + ": ")


def test_files_that_cannot_be_read(tmp_path):
    for path in (tmp_path / "nothing.toml", tmp_path):
        with pytest.raises(BadPolicy) as caught:
            policy.read(str(path))
        assert str(path) in str(caught.value)


def test_a_place_inside_a_file_is_named_with_the_file(tmp_path):
    path = written(tmp_path, '[severity]\n"no/such" = "off"\n')
    with pytest.raises(BadPolicy) as caught:
        policy.read(path)
    assert str(caught.value).startswith(path + ": severity") and "no/such" in str(caught.value)
