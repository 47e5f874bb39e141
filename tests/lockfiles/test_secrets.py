"""What opens an index or an artefact is in no lock's record and in no message about it."""

import pytest

from preflight.lockfiles import applying, document
from preflight.lockfiles.model import shown, without_credentials
from preflight.probes.system import environment
from preflight.snapshot import Snapshot, known
from preflight.snapshot_json import to_json


@pytest.mark.parametrize(
    ("url", "clean"),
    [
        ("https://me:s3cret@host/simple", "https://host/simple"),
        ("https://s3cret@host/simple", "https://host/simple"),
        ("https://me:pa@s3cret@host/simple", "https://host/simple"),
        ("git+https://me:s3cret@host/x.git@v1", "git+https://host/x.git@v1"),
        ("https://host/a.whl?Signature=s3cret&Expires=1", "https://host/a.whl?Expires=1"),
        ("https://host/a.whl?OSSAccessKeyId=s3cret", "https://host/a.whl"),
        ("https://host/a.whl?X-Amz-Security-Token=s3cret#sha256=0", "https://host/a.whl#sha256=0"),
        ("https://host/simple?x=1&private_token=s3cret", "https://host/simple?x=1"),
        ("https://host/x?sig=s3cret&a=b", "https://host/x?a=b"),
        # What is no secret stays.
        (
            "https://host/x.git?rev=v1@2&subdirectory=a",
            "https://host/x.git?rev=v1@2&subdirectory=a",
        ),
        ("https://host?x=a@b", "https://host?x=a@b"),
        ("???", "???"),
    ],
)
def test_a_url_keeps_its_place_and_loses_its_secrets(url, clean):
    assert without_credentials(url) == clean


def test_a_message_loses_them_before_it_is_cut():
    assert "s3" not in shown("x @ https://me:" + "s3cret" * 20 + "@host/x trailing")
    assert (
        shown("https://conda.example.com/t/s3cret/main/x") == "'https://conda.example.com/main/x'"
    )


LINES = """
foo @ https://user:s3cret@host/x.whl ; bad marker
torch==1 --hash=https://user:s3cret@h
torch==1 --index-url https://user:s3cret@host/x "
???https://user:s3cret@host
torch<2; python_version < "3" @ https://user:s3cret@h/
--bogushttps://user:s3cret@host/
--index-url https://us:p@s3cret@host/simple
--extra-index-url https://host/simple?token=s3cret
torch @ https://bkt.oss.com/t-1-py3-none-any.whl?Signature=s3cret&Expires=1
-e git+ssh://git:s3cret@h/x#egg=y
-r https://user:s3cret@host/c.txt
""".strip().split("\n")
DEPENDENCIES = [
    "https://me:s3cret@host/linux-64/x.conda",
    "https://host/t/s3cret/c/linux-64/numpy-1.conda",
    "https://me:s3cret@host/c::numpy[version='",
    "pip: ['x @ https://me:s3cret@host/x ; bad']",
]


def _said(path, text):
    made, _parsed = document.load(path, text.encode(), applying.Target("3.11"), named=True)
    return str(to_json(Snapshot(locks=known((made,), path))))


@pytest.mark.parametrize("line", LINES)
def test_requirements(line):
    assert "s3cret" not in _said("requirements.txt", line + "\n")


@pytest.mark.parametrize("line", DEPENDENCIES)
def test_conda(line):
    pytest.importorskip("yaml")
    assert "s3cret" not in _said("environment.yml", f"dependencies:\n  - {line}\n")
    text = f"@EXPLICIT\n{line}#s3\n"
    assert "s3cret" not in _said("explicit.txt", text)


def test_variables():
    seen = environment({"PIP_CONSTRAINT": "https://me:s3cret@host/c.txt /etc/c.txt"}, "x")
    assert seen.value == {"PIP_CONSTRAINT": "https://host/c.txt /etc/c.txt"}
