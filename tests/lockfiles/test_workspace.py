"""A uv workspace that is no project itself, as uv 0.13.9 locks it: who is in the environment?"""

import pytest

from preflight.lockfiles import applying, document

PACKAGE = """
[[package]]
name = "{}"
version = "1"
source = {{ registry = "https://mirrors.example.org/pypi/simple" }}
"""
MEMBER = """
[[package]]
name = "{name}"
version = "0.2"
source = {{ editable = "pkgs/{name}" }}
dependencies = [{needs}]
"""
GROUPS = '[manifest.dependency-groups]\ndev = [{ name = "iniconfig" }]\n'


def workspace(groups=""):
    needs = {"a": ["click", "toml"], "b": ["click", "torch"]}
    text = 'version = 1\nrequires-python = ">=3.9"\n[manifest]\nmembers = ["a", "b"]\n' + groups
    for name, all_of in needs.items():
        text += MEMBER.format(name=name, needs=", ".join(f'{{ name = "{n}" }}' for n in all_of))
    return text + "".join(map(PACKAGE.format, ("click", "toml", "torch", "iniconfig")))


@pytest.mark.parametrize("groups", ["", GROUPS])
def test_what_one_member_alone_needs_may_be_left_out_and_is_compared_where_it_is(groups):
    made, _ = document.load("uv.lock", workspace(groups).encode(), applying.Target("3.11.7"))
    entries = {one.name: (one.applies, one.group) for one in made.entries.get(())}
    assert entries["click"] == ("", "")
    assert entries["toml"] == entries["torch"] == ("", "?")
    expected = "only with dev" if groups else "nothing that is wanted here needs it"
    assert entries["iniconfig"][0] == expected


def test_of_one_member_all_is_wanted():
    text = workspace().replace('members = ["a", "b"]', 'members = ["b"]')
    made, _ = document.load("uv.lock", text.encode(), applying.Target("3.11.7"))
    assert {one.name for one in made.entries.get(()) if not one.applies and not one.group} == {
        "click",
        "torch",
    }
