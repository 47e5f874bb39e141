"""What is required and not there, as `pip check` says it, and behind extras besides."""

import ensurepip
import glob
import os
import random
import re
import subprocess
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet

from preflight.lockfiles.versions import satisfies
from preflight.probes import requires
from preflight.probes.distributions import normalize
from preflight.probes.installed import first_of_each
from preflight.roots import Root
from tests.probes.fake_root import Image

SITE = "/site"


@pytest.fixture
def image(tmp_path):
    return Image(tmp_path).folders(SITE)


def add(image, name, version, *fields, body="\n\nA readme.\nRequires-Dist: not-this-one\n"):
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *fields]
    return image.dist(SITE, name.replace("-", "_"), version, "\n".join(lines) + body)


def rows(image, python="3.11.7", arch="x86_64"):
    return list(requires.unmet(image.root, first_of_each(image.root, [SITE]), python, arch))


def told(image, **where):
    return [(one.owner, one.needs, one.found) for one in rows(image, **where)]


def test_what_is_there_in_a_version_that_fits_is_not_told(image):
    add(image, "a", "1.0", "Requires-Dist: b>=2,<3", "Requires-Dist: c (==1.0)")
    add(image, "b", "2.5")
    add(image, "c", "1.0+cu128")
    assert rows(image) == []


def test_what_is_missing_or_of_another_version_is_told_with_its_place(image):
    add(
        image, "a", "1.0", "Requires-Dist: Not.There>=2", "Requires-Dist: b==2.0 ; os_name=='posix'"
    )
    add(image, "b", "2.0.1")
    missing, other = rows(image)
    assert (missing.owner, missing.name, missing.found) == ("a 1.0", "not-there", "")
    assert missing.source == "/site/a-1.0.dist-info/METADATA" and missing.line == 4
    assert (other.needs, other.found, other.line) == ("b==2.0", "2.0.1", 5)


@pytest.mark.parametrize(
    "marker, expected",
    [
        ('sys_platform == "linux"', 1),
        ('sys_platform == "win32"', 0),
        ('python_version < "3.9"', 0),
        ('python_version >= "3.9"', 1),
        ('platform_machine == "aarch64"', 0),
        ('extra == "dev"', 0),
        ('extra != "dev"', 1),
        ('python_version < "3.9" or extra == "dev"', 0),
        ('python_version >= "3.9" or extra == "dev"', 1),
        ("what is this", 0),
    ],
)
def test_markers_are_those_of_the_jobs_python_and_platform(image, marker, expected):
    add(image, "a", "1.0", f"Requires-Dist: b; {marker}")
    assert len(rows(image)) == expected


def test_a_marker_that_cannot_be_decided_says_nothing(image):
    add(image, "a", "1.0", 'Requires-Dist: b; python_version < "3.9"')
    assert rows(image, python="") == []


def toolkit(image, cublas):
    """torch as it comes since 2.11: its pins lie behind extras of a metapackage."""
    extra = "(sys_platform == 'linux' or sys_platform == 'win32') and extra == "
    add(image, "torch", "2.14.1", "Requires-Dist: cuda-toolkit[cublas,cudart]==13.0.3")
    add(
        image, "cuda-toolkit", "13.0.3.0",
        f"Requires-Dist: nvidia-cublas==13.1.1.3.*; {extra}'cublas'",
        f"Requires-Dist: nvidia-cuda-runtime==13.0.96.*; {extra}'cudart'",
        f"Requires-Dist: nvidia-npp==13.0.1.2.*; {extra}'npp'",
    )  # fmt: skip
    add(image, "nvidia-cublas", cublas)
    return add(image, "nvidia-cuda-runtime", "13.0.96")


def test_extras_that_somebody_asks_for_are_walked(image):
    toolkit(image, "13.6.0.2")
    (one,) = told(image)
    assert one == ("cuda_toolkit[cublas] 13.0.3.0", "nvidia-cublas==13.1.1.3.*", "13.6.0.2")


def test_extras_that_are_met_and_extras_that_nobody_asks_for_are_not_told(image):
    assert told(toolkit(image, "13.1.1.3")) == []


def test_extras_are_walked_through_extras_in_any_spelling(image):
    add(image, "a", "1", "Requires-Dist: b[All_Of.it]")
    add(
        image, "b", "1",
        "Requires-Dist: b[one]; extra == 'all-of-it'",
        "Requires-Dist: b[all-of-it]; extra == 'one'",
        'Requires-Dist: gone; "one" == extra',
    )  # fmt: skip
    assert told(image) == [("b[one] 1", "gone", "")]


def test_an_ngc_pre_release_meets_neither_bound(image):
    add(image, "torch", "2.9.0a0+145a3a7bda.nv25.10")
    add(image, "a", "1", "Requires-Dist: torch>=2.9")
    add(image, "b", "1", "Requires-Dist: torch<2.9")
    add(image, "c", "1", "Requires-Dist: torch>=2.8")
    assert {owner for owner, _needs, _found in told(image)} == {"a 1", "b 1"}


def test_the_python_that_is_required(image):
    add(image, "new", "1", "Requires-Python: >=3.12")
    add(image, "late", "1", "Requires-Python: >=3.11.4")
    (one,) = rows(image)
    assert (one.owner, one.name, one.needs, one.found) == (
        "new 1",
        "python",
        "python>=3.12",
        "3.11.7",
    )
    assert told(image, python="3.11") == [("new 1", "python>=3.12", "3.11")]
    assert told(image, python="3.11.2")[0][0] == "late 1"
    assert rows(image, python="") == []
    assert rows(image, python="3.12.0rc1") == []


def test_the_first_of_a_name_on_the_path_is_the_one(image):
    add(image, "a", "1", "Requires-Dist: b>=2")
    add(image, "b", "1")
    image.dist("/before", "b", "2.0")
    dists = first_of_each(image.root, ["/before", SITE])
    assert list(requires.unmet(image.root, dists, "3.11.7", "x86_64")) == []


def test_metadata_as_pip_reads_it(image):
    add(image, "folded", "1", "Requires-Dist: gone;\n  python_version > '3'")
    add(image, "direct", "1", "Requires-Dist: gone @ https://e.org/a;b.whl ; python_version < '3'")
    add(image, "crlf", "1", "Requires-Dist: gone\r", body="\r\n\r\nx")
    add(image, "licence", "1", "License: first", "second line unindented", "Requires-Dist: gone")
    add(image, "long", "1", *[f"Classifier: {'x' * 100}"] * 300, "Requires-Dist: gone")
    add(image, "invalid", "1", "Requires-Dist: gone (1.0)", "Requires-Dist: ]", "Requires-Dist:")
    assert {one.owner for one in rows(image)} == {"folded 1", "crlf 1", "long 1"}


def test_eggs_say_it_in_requires_txt(image):
    image.write(f"{SITE}/old.egg-info/PKG-INFO", "Name: old\nVersion: 1\n")
    image.write(
        f"{SITE}/old.egg-info/requires.txt",
        "gone>=1\nthere\n\n[:python_version < '3']\nno\n\n[dev]\nno\n"
        "[dev:os_name=='posix']\nno;a\n",
    )
    image.write(f"{SITE}/plain.egg-info", "Name: plain\nVersion: 1\n")
    add(image, "there", "1")
    add(image, "asks", "1", "Requires-Dist: old[dev]")
    found = [(one.owner, one.name) for one in rows(image)]
    assert found == [("old 1", "gone"), ("old[dev] 1", "no")]


def test_metadata_that_cannot_be_read_says_nothing(image):
    image.folders(f"{SITE}/x-1.dist-info/METADATA")
    image.write(f"{SITE}/y-1.dist-info/METADATA", "\x00\ufffd" * 100)
    image.link(f"{SITE}/z-1.dist-info/METADATA", "METADATA")
    assert rows(image) == []


def test_no_flood_of_rows(image):
    for number in range(20):
        many = [f"Requires-Dist: gone-{one}" for one in range(100)]
        add(image, f"a{number}", "1", *many)
    assert len(rows(image)) == requires.ROWS


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(max_size=60), max_size=12), st.binary(max_size=200))
def test_no_metadata_breaks_it(tmp_path_factory, lines, rest):
    image = Image(tmp_path_factory.mktemp("fuzz")).folders(SITE)
    add(image, "b", "1")
    fields = ["Name: a", "Version: 1", *[f"Requires-Dist: {one}" for one in lines]]
    data = "\n".join(fields).encode("utf-8", "replace") + rest
    image.dist(SITE, "a", "1")
    (image.folder / "site/a-1.dist-info/METADATA").write_bytes(data)
    for one in rows(image):
        assert one.owner and one.name == normalize(one.name)


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_plain_versions_are_compared_as_packaging_does(data):
    numbers = st.lists(st.sampled_from([0, 0, 1, 2, 10]), min_size=1, max_size=4)
    release = numbers.map(lambda parts: ".".join(map(str, parts)))
    operators = st.sampled_from([">=", "<=", "==", "!=", "<", ">", "~="])
    clause = st.builds("{}{}".format, operators, release)
    clause |= st.builds("{}{}.*".format, st.sampled_from(["==", "!="]), release)
    version = data.draw(release)
    spec = ",".join(data.draw(st.lists(clause, min_size=1, max_size=3)))
    if not re.search(r"~=\d+(,|$)", spec):
        assert satisfies(version, spec) == SpecifierSet(spec).contains(version, prereleases=True)


# -- pip check itself -------------------------------------------------------------------------

VERSIONS = [
    "1.0",
    "1.0.0",
    "1.1",
    "2.0",
    "2.0.1",
    "2.1rc1",
    "2.1",
    "2.9.0a0+145a3a7bda.nv25.10",
    "2.9.0+cu128",
    "2.9.0",
    "3.0.post1",
    "3.0.dev2",
    "1!1.0",
    "2024.1",
    "0.0.1b2",
    "10.0",
]
MARKERS = (
    'python_version < "3.9"', "python_version >= '3.8'", 'sys_platform == "win32"',
    'platform_system == "Linux"', "platform_machine == 'nothing'", 'python_full_version < "3.11.4"',
    '(python_version < "3" or sys_platform == "linux")', 'os_name == "nt" or python_version >= "3"',
)  # fmt: skip


PIP = glob.glob(os.path.join(os.path.dirname(ensurepip.__file__), "_bundled", "pip-*.whl"))
#: Before 23.1 `pip check` breaks where "A or extra == …" holds and what it is for is missing.
OLD = bool(PIP) and tuple(map(int, re.findall(r"\d+", os.path.basename(PIP[0]))))[:2] < (23, 1)


def some_spec(r):
    clauses = []
    for _ in range(r.choice([0, 1, 1, 2])):
        version = r.choice(VERSIONS)
        public = version.partition("+")[0]
        clauses.append(
            r.choice(
                [f"=={version}", f"!={version}", f">={public}", f"<={public}", f"<{public}",
                 f"> {public}", f"~={public}" if "." in public else f"=={public}",
                 f"=={re.match(r'(?:[0-9]+!)?[0-9.]*[0-9]', public).group()}.*"]
            )
        )  # fmt: skip
    text = r.choice([",", ", "]).join(clauses)
    return f" ({text})" if text and r.random() < 0.3 else text


def some_marker(r):
    marker = r.choice(MARKERS)
    extra = f"extra == '{r.choice('ab')}'"
    forms = ["", "", marker, extra, f"({marker}) and {extra}", f"{marker} or {extra}",
             f"{extra} and ({marker})", f"{marker} and {extra}"]  # fmt: skip
    chosen = r.choice([one for one in forms if not (OLD and f"or {extra}" in one)])
    return f"; {chosen}" if chosen else ""


def grow(site, r, groups):
    """Random small groups of packages that require each other, on disk."""
    for group in range(groups):
        names = [f"g{group}-p{one}" for one in range(r.randint(2, 6))]
        for name in names:
            if r.random() < 0.15:
                continue
            lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {r.choice(VERSIONS)}"]
            for _ in range(r.randint(0, 5)):
                extras = r.choice(["", "", "[a]", "[a,b]"])
                other = r.choice([str.upper, str.lower])(r.choice(names))
                lines.append(f"Requires-Dist: {other}{extras}{some_spec(r)}{some_marker(r)}")
            folder = site / f"{name.replace('-', '_')}-{lines[2][9:]}.dist-info"
            folder.mkdir()
            (folder / "METADATA").write_text("\n".join(lines) + "\n\nreadme\n")
            (folder / "WHEEL").write_text("Wheel-Version: 1.0\nTag: py3-none-any\n")


def pip_says(python):
    """{(owner, name, version found)} of `pip check`, run from the wheel that ensurepip brings."""
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": PIP[0], "PIP_CONFIG_FILE": os.devnull}
    run = subprocess.run(
        [python, "-m", "pip", "check"],
        env=env,
        capture_output=True,
        text=True,
    )
    found = set()
    for line in run.stdout.splitlines():
        one = re.match(r"(\S+) \S+ requires ([^,]+), which is not installed", line)
        if one:
            found.add((normalize(one.group(1)), normalize(one.group(2)), ""))
        one = re.match(r"(\S+) \S+ has requirement .+, but you have (\S+) (\S+?)\.$", line)
        if one:
            found.add((normalize(one.group(1)), normalize(one.group(2)), one.group(3)))
    return found


@pytest.mark.skipif(not PIP, reason="this Python brings no pip")
def test_pip_check_finds_the_same(tmp_path, monkeypatch):
    base = os.path.realpath(sys.executable)
    subprocess.run([base, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    (site,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    grow(site, random.Random(2026), 150)
    monkeypatch.setattr(requires, "ROWS", 10_000)
    root = Root()
    version = "{}.{}.{}".format(*sys.version_info[:3])
    ours = requires.unmet(root, first_of_each(root, [str(site)]), version, os.uname().machine)
    without_extras = {
        (normalize(one.owner.split()[0]), one.name, one.found)
        for one in ours
        if "[" not in one.owner
    }
    theirs = {one for one in pip_says(str(tmp_path / "venv/bin/python")) if one[0] != "pip"}
    assert len(theirs) > 100
    assert without_extras == theirs


def test_six_hundred_packages_take_no_time(image):
    r = random.Random(1)
    for number in range(600):
        lines = [f"Classifier: Some :: Thing {one}" for one in range(20)]
        for _ in range(8):
            extra = r.choice(["", "", "; extra == 'dev'", "; extra == 'test'"])
            lines.append(f"Requires-Dist: p{r.randrange(600)}>=0.{r.randrange(30)}{extra}")
        add(image, f"p{number}", f"1.{r.randrange(20)}.{r.randrange(20)}", *lines)
    dists = first_of_each(image.root, [SITE])
    started = time.perf_counter()
    assert list(requires.unmet(image.root, dists, "3.11.7", "x86_64")) == []
    assert time.perf_counter() - started < 1  # some 0.06 s where nothing else runs
