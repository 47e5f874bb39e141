"""`preflight matrix check DIR`: every kind of mistake is found, with its file and row."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import preflight
from preflight import tables, tables_check

ROOT = Path(__file__).resolve().parents[1]
COMPAT = ROOT / "compat"
HOME = str(Path(preflight.__file__).parent.parent)


@pytest.fixture
def copy(tmp_path):
    """Our own tables, to be spoiled."""
    directory = tmp_path / "compat"
    shutil.copytree(str(COMPAT), str(directory))
    return directory


def spoil(directory, name, after, old, new):
    """The first `old` behind `after` becomes `new`."""
    path = directory / f"{name}.toml"
    text = path.read_text("utf-8")
    assert after in text, (name, after)
    at = text.index(old, text.index(after))
    path.write_text(text[:at] + new + text[at + len(old) :], "utf-8")


def add(directory, name, row):
    with open(str(directory / f"{name}.toml"), "a", encoding="utf-8") as stream:
        stream.write("\n" + row + "\n")


def overlay(tmp_path, **files):
    """A directory with a few tables."""
    directory = tmp_path / "overlay"
    directory.mkdir(exist_ok=True)
    for name, text in files.items():
        (directory / f"{name}.toml").write_text(text, "utf-8")
    return str(directory)


def test_a_copy_of_ours_is_good(copy):
    assert tables_check.check(str(copy)) == []


A10 = '"NVIDIA A10"\n'

#: file, a place in it, what is there, what comes instead, and what the problem then says.
MISTAKES = [
    # The form of a row.
    ("gpus", A10, 'capability = "8.6"', 'capability = "8.61"',
     "gpus.toml: [[gpu]] * (NVIDIA A10): capability '8.61' is no compute capability (as in 8.6)"),
    ("gpus", A10, 'capability = "8.6"', 'capabilty = "8.6"',
     "[[gpu]] * (NVIDIA A10): no key is called 'capabilty'"),
    ("gpus", A10, 'capability = "8.6"\n', "",
     "(NVIDIA A10): has no 'capability'"),
    ("gpus", A10, "first_branch = 455", 'first_branch = "455"',
     "(NVIDIA A10): first_branch is not a number: '455'"),
    ("gpus", A10, "first_branch = 455", "first_branch = true",
     "first_branch is not a number: True"),
    ("gpus", A10, "mig = false", "mig = 0", "mig is not true or false: 0"),
    ("gpus", A10, 'names = ["A10"]', 'names = "A10"',
     "names is not a list of strings: 'A10'"),
    ("gpus", A10, 'names = ["A10"]', "names = []", "names is empty"),
    ("gpus", A10, 'names = ["A10"]', 'names = ["A10", "A10"]', "names has 'A10' twice"),
    ("gpus", A10, 'class = "data-center"', 'class = " data-center"', "spaces around"),
    ("gpus", A10, 'forward = "yes"', 'forward = "maybe"',
     "forward 'maybe' is none of yes, no, some, unknown"),
    ("gpus", A10, "10de:2236", "10DE:2236", "pci '10DE:2236' is no PCI vendor"),
    ("gpus", A10, 'trust = "primary"', 'trust = "sure"', "trust 'sure' is none of"),
    ("gpus", A10, 'source = ["cuda-gpus", ', 'source = ["cuda-gpu", ',
     "gpus.toml: [[gpu]] * (NVIDIA A10): source 'cuda-gpu' is not in sources.toml"),
    ("gpus", A10, A10, '"NVIDIA A10G"\n', "says again what [[gpu]] * says"),
    ("gpus", "[[gpu]]", "[[gpu]]", "[[card]]", "gpus.toml: 'card' is none of its tables, [[gpu]]"),
    ("drivers", "branch = 535", 'cuda = "12.2"', 'cuda = "12"',
     "drivers.toml: [[branch]] * (535): cuda '12' is no CUDA version"),
    ("drivers", "branch = 535", 'released = "2023-05-30"', 'released = "May"', "is no date"),
    ("drivers", "branch = 535", 'eol = "2026-06"', 'eol = "never"', "eol 'never' is no month"),
    ("forward", 'cuda = "12.8"', "listed = [470, 535,", "listed = [535, 470,",
     "forward.toml: [[package]] * (12.8): listed do not ascend"),
    ("torch", '["2.6.0"]', 'pythons = "3.9-3.13"', 'pythons = ">=3.9"', "is no range of Pythons"),
    ("sources", "[source.cuda-gpus]", "https://", "http://",
     "sources.toml: [source.cuda-gpus]: url "
     "'http://developer.nvidia.com/cuda-gpus' does not begin"),
    ("sources", "[source.cuda-gpus]", 'read = "2026-11-29"', 'read = "2026-13-29"',
     "[source.cuda-gpus]: has no 'read'"),
    ("sources", "[source.cuda-gpus]", "title", "tilte", "no key is called 'tilte'"),
    # Spelling.
    ("torch", "[[install]]", '"2.0.0", "2.0.1"', '"2.0.0", "2.0.01"',
     "torch.toml: [[install]] * (2.0.0, …): versions '2.0.01' is no version as packaging writes"),
    ("torch", "[[install]]", '"2.0.0", "2.0.1"', '"2.0.1", "2.0.0"', "versions do not ascend"),
    ("pins", '["1.13.0"]', "==11.7.99", "=11.7.99", "is no requirement as packaging writes it"),
    ("pins", '["1.13.0"]', '"nvidia-cublas-cu11==11.10.3.66",\n    ', "", None),
    ("companions", 'torch = "2.6.0"', '"==3.2.0"', '"3.2.0 or so"', "is no range of versions"),
    # Drivers.
    ("drivers", "branch = 535", 'cuda = "12.2"', 'cuda = "12.6"',
     "drivers.toml: [[branch]] * (545): cuda '12.3' is lower than that of an older branch"),
    ("drivers", "branch = 535", 'first = "535.43.02"', 'first = "530.43.02"',
     "(535): first '530.43.02' is of another branch"),
    ("drivers", "branch = 535", 'newest = "Hopper"', 'newest = "Hoper"',
     "(535): 'Hoper' is no architecture of architectures.toml"),
    ("drivers", "branch = 535", 'oldest = "Maxwell"', 'oldest = "Pascal"',
     "(535): oldest 'Pascal': by architectures.toml it is Maxwell"),
    ("drivers", "branch = 535", 'newest = "Hopper"', 'newest = "Blackwell"', "Blackwell"),
    ("architectures", '"Volta"', "last_branch = 580", "last_branch = 570",
     "architectures.toml: [[architecture]] * (Volta): last_branch 570, but R575 does not drop it"),
    ("architectures", '"Volta"', "last_branch = 580", "last_branch = 581",
     "(Volta): last_branch 581 is no branch of drivers.toml"),
    ("architectures", '"Volta"', "last_branch = 580\n", "",
     "(Volta): R590 drops it, and it has no last_branch"),
    # Toolkits.
    ("toolkits", 'cuda = "12.4"', 'driver = "550.54.14"', 'driver = "535.54.14"',
     "toolkits.toml: [[toolkit]] * (12.4): driver '535.54.14' is not of branch 550"),
    ("toolkits", 'cuda = "12.4"', "branch = 550", "branch = 545", "branch 545 reports CUDA 12.3"),
    ("toolkits", 'cuda = "12.4"', "branch = 550", "branch = 551", "551 is no branch of drivers"),
    ("toolkits", 'cuda = "12.4"', 'minimum = "525.60.13"', 'minimum = "560.60.13"',
     "(12.4): minimum '560.60.13' is newer than its driver '550.54.14'"),
    ("toolkits", 'cuda = "12.4"', 'minimum = "525.60.13"', 'minimum = "530.30.02"',
     "(12.4): minimum '530.30.02': the other 12.x have '525.60.13'"),
    ("toolkits", 'cuda = "12.4"', 'ptx = "8.4"', 'ptx = "8.0"', "ptx '8.0' is lower than that of"),
    ("toolkits", 'cuda = "12.4"', 'max_capability = "9.0"', 'max_capability = "10.0"',
     "max_capability '10.0' is not that of its targets"),
    ("toolkits", 'cuda = "12.4"', '"sm_50", "sm_52"', '"sm_52", "sm_50"', "targets do not ascend"),
    ("toolkits", 'version = "12.4.1"', 'cudart = "12.4.127"', 'cudart = "12.5.127"',
     "toolkits.toml: [[release]] * (12.4.1): cudart '12.5.127' is not of CUDA 12.4"),
    ("toolkits", 'version = "12.4.1"', "compat_driver = \"550", "compat_driver = \"555",
     "compat_driver '555.54.15' is not of branch 550"),
    ("toolkits", 'version = "12.4.1"', 'label = "Update 1"', 'label = "GA"', "has another GA"),
    ("toolkits", 'version = "12.4.0"', 'label = "GA"', 'label = "Beta"',
     "toolkits.toml: [[toolkit]] * (12.4): no [[release]] with label GA"),
    ("toolkits", 'version = "12.4.1"', "12.4.1", "12.44.1", "CUDA 12.44 is no toolkit"),
    # Architectures and GPUs.
    ("architectures", '"Volta"', 'last_cuda = "12.9"', 'last_cuda = "12.8"',
     "(Volta): last_cuda '12.8' is not the last with a target"),
    ("architectures", '"Volta"', 'first_cuda = "9.0"', 'first_cuda = "9.1"',
     "(Volta): first_cuda '9.1' is not the first with a target"),
    ("architectures", '"Volta"', 'first_cuda = "9.0"', 'first_cuda = "12.7"',
     "(Volta): first_cuda '12.7' is no CUDA of toolkits.toml"),
    ("architectures", '"Volta"', 'compat_until = "13.0"', 'compat_until = "13.1"',
     "(Volta): compat_until '13.1': its last branch reports CUDA 13.0"),
    ("architectures", '"Volta"', 'compat_until = "13.0"\n', "", "compat_until and last_branch go"),
    ("architectures", '"Volta"', '"7.0", "7.2"', '"7.0", "7.5"',
     "(Turing): capability '7.5' is of another architecture too"),
    ("gpus", A10, 'capability = "8.6"', 'capability = "8.5"',
     "gpus.toml: [[gpu]] * (NVIDIA A10): capability '8.5' is no capability of architectures.toml"),
    ("gpus", A10, 'names = ["A10"]', 'names = ["A10", "a-40"]',
     "a name of it is one of NVIDIA A10"),
    ("gpus", A10, "10de:2236", "10de:20b2", "pci '10de:20b2' is of a GPU of capability"),
    ("gpus", A10, '"data-center"', '"data-centre"', "'data-centre' is no [[class]] of"),
    ("gpus", A10, 'forward = "yes"', 'forward = "no"', "forward 'no': its class says 'yes'"),
    ("gpus", A10, "first_branch = 455", "first_branch = 456", "456 is no branch of"),
    ("gpus", A10, "first_branch = 455", "first_branch = 440", "440 is older than Ampere"),
    ("gpus", A10, "first_branch = 455\n", "", "first_branch: Ampere GA10x has 455"),
    ("gpus", '"Tesla T4"\n', "mig = false", "mig = true",
     "mig is true below compute capability 8.0"),
    # Forward compatibility.
    ("forward", 'cuda = "12.8"', "documented = [535]", "documented = [418, 535]",
     "forward.toml: [[package]] * (12.8): R418: allowed and excluded"),
    ("forward", 'cuda = "12.8"', "documented = [535]", "documented = [535, 580]",
     "R580: documented, and not older"),
    ("forward", 'cuda = "12.8"', "stale = [525]", "stale = [526]", "stale: 526 is no branch of"),
    ("forward", 'cuda = "12.8"', "newer = [570", "newer = [535, 570",
     "R535: newer, and older than it"),
    ("forward", 'class = "geforce"', "error = 804\n", "",
     "forward.toml: [[class]] * (geforce): eligible is 'no' without an error"),
    # torch.
    ("torch", '["2.6.0"]', 'cuda = "11.8"', 'cuda = "11.7"',
     "torch.toml: [[build]] * (x86_64 cu118 2.6.0): variant 'cu118' is not of CUDA 11.7"),
    ("torch", '["2.6.0"]', '"8.6", "9.0"]', '"8.6", "9.0", "12.0"]',
     "(x86_64 cu118 2.6.0): sm '12.0' is no target of CUDA 11.8"),
    ("torch", '["2.6.0"]', 'sm = ["5.0", "6.0"', 'sm = ["6.0", "5.0"', "sm do not ascend"),
    ("torch", '["2.6.0"]', 'sm_unsure = ["3.7"]', 'sm_unsure = ["5.0"]',
     "sm_unsure '5.0' is in sm as well"),
    ("torch", 'variant = "rocm6.1"', "min_glibc", 'sm = ["9.0"]\nmin_glibc',
     "(x86_64 rocm6.1 2.4.0, …): sm in a build without CUDA"),
    ("torch", 'default = ["2.7.0", "2.7.1"]', '"2.7.0", "2.7.1"', '"2.6.0", "2.7.1"',
     "default '2.6.0' is not among its versions"),
    ("torch", '["2.6.0"]', "sm_unsure", 'default = ["2.6.0"]\nsm_unsure',
     "2.6.0 has another default"),
    ("torch", '[[detail]]\nversions = ["2.6.0"]', '"2.6.0"', '"2.6.1"',
     "[[detail]] * (cu126 x86_64 2.6.1): no [[build]] with CUDA is 2.6.1 for x86_64"),
    ("torch", "[[install]]", '"2.6.0", ', "",
     "no [[install]] without variants says how to ask for"),
    # What goes with it.
    ("pins", '["1.13.0"]', "cuda-runtime-cu11==11.7.99", "cuda-runtime-cu11==11.8.89",
     "nvidia-cuda-runtime-cu11 11.8.89, but the default of 1.13.0 has CUDA 11.7"),
    ("pins", '["1.13.0"]', "nvidia-cudnn-cu11==8.5.0.96", "nvidia-cudnn-cu11==8.7.0.84",
     "pins.toml: [[pins]] * (x86_64 1.13.0): nvidia-cudnn 8.7.0.84, but [[detail]] of 1.13.0 has"),
    ("pins", '["1.13.0"]', "nvidia-cublas-cu11==11.10.3.66", "nvidia-cublas-cu12==12.1.0.26",
     "nvidia-cublas-cu12, but the default of 1.13.0 is cu117"),
    ("pins", '["1.13.0"]', '["1.13.0"]', '["1.12.7"]', "torch.toml has no default of 1.12.7"),
    ("pins", "[[metapackage]]", "extra ==", "python_version ==", "its extras are not those that"),
    ("companions", 'torch = "2.6.0"', '"==3.2.0"', '"==3.3.0"',
     "companions.toml: [[companion]] * (2.6.0): triton: [[pins]] of 2.6.0 say ==3.2.0"),
    ("companions", 'torch = "2.6.0"', 'built = "cu124"', 'built = "cu126"',
     "built 'cu126' is not the default of 2.6.0"),
    ("companions", 'torch = "2.6.0"', '["0.21.0"]', '["0.21.0", "0.22.0"]',
     "torchvision 0.22.0 is of 2.6.0 too, and not [[loose]]"),
    ("companions", 'torch = "2.6.0"', 'torch = "2.6.0"', 'torch = "2.6.9"',
     "torch.toml has no build of 2.6.9"),
    # The others.
    ("tensorflow", '["1.15.0"]', 'libs = "system"', 'libs = "extra"',
     "tensorflow.toml: [[tensorflow]] * (tensorflow 1.15.0): pins and libs = 'extra' go together"),
    ("tensorflow", '["1.15.0"]', 'cuda = "10.0"', 'cuda = "10.3"', "cuda '10.3' is no CUDA of"),
    ("jax", '["0.4.30"]', "cuda_major = 12", "cuda_major = 13", "is not of CUDA 13"),
    ("jax", '["0.4.30"]', "min_branch = 525", "min_branch = 535",
     "jax.toml: [[jax]] * (jax-cuda12-plugin 0.4.30): min_branch 535: CUDA 12 "
     "begins with 525.60.13"),
    ("extensions", "[[extension]]", 'package = "', 'package = "x',
     "no [[extension_package]] is 'x"),
    ("ngc", 'release = "18.11"', 'driver = "410.48"', 'driver = "384.48"',
     "ngc.toml: [[ngc]] * (18.11): driver '384.48' is older than 10.0 asks for"),
    ("ngc", 'release = "18.11"', 'cuda_release = "10.0', 'cuda_release = "10.1',
     "cuda_release '10.1.130' is not of 10.0"),
    ("ngc", 'release = "18.11"', 'bases = ["384"]', 'bases = ["385"]', "'385' is of no branch of"),
    ("ngc", 'release = "18.11"', 'min_capability = "6.0"', 'min_capability = "4.0"',
     "min_capability '4.0' is of no architecture"),
    ("ngc", "[[ngc_image]]", '"18.09"', '"18.08"', "releases '18.08' is no [[ngc]]"),
    ("ngc", "[[ngc_image]]", "{release}-py3", "latest", "a tag without {release}"),
    ("errors", "codes = [34]", "cudaErrorStubLibrary", "cudaErrorInsufficientDriver",
     "name 'cudaErrorInsufficientDriver' is of another row too"),
    ("errors", "codes = [34]", "codes = [34]", "codes = [35]", "code of cuda 35 is of another row"),
    ("require", 'releases = ["10.0"]', "tesla = [384]", "tesla = [580]",
     "R580 is newer than CUDA 10.0"),
    ("require", 'releases = ["10.0"]', '["10.0"]', '["10.1.0"]',
     "releases '10.1.0' is not of CUDA"),
]  # fmt: skip


READ = {}
read_toml = tables.read_toml


def read_once(path):
    """As tables.read_toml, which takes its time, but each content once."""
    content = Path(path).read_bytes()
    if content not in READ:
        READ[content] = read_toml(path)
    return READ[content]


def found(problems, words):
    """Whether a problem says `words`, in which "*" stands for a number."""
    head, star, tail = words.partition("*")
    for one in problems:
        at = one.find(head)
        rest = one[at + len(head) :].lstrip("0123456789") if star else one[at + len(head) :]
        if at >= 0 and rest.startswith(tail):
            return True
    return False


@pytest.mark.parametrize(
    ("name", "after", "old", "new", "words"), MISTAKES, ids=[f"{m[0]}: {m[3]}" for m in MISTAKES]
)
def test_a_mistake_is_found(copy, monkeypatch, name, after, old, new, words):
    monkeypatch.setattr(tables, "read_toml", read_once)
    spoil(copy, name, after, old, new)
    problems = tables_check.check(str(copy))
    if words is None:  # says less, and nothing wrong
        assert problems == []
        return
    assert found(problems, words), problems[:8]
    assert all(one.split(":")[0].endswith(".toml") and "\n" not in one for one in problems)
    assert all(len(one) < 300 for one in problems)


def test_rows_that_belong_to_nothing(copy):
    add(copy, "torch", '[[install]]\nversions = ["2.6.0"]\noptions = "x"\ntrust = "primary"\n'
        'source = ["torch-wheels"]')  # fmt: skip
    problems = tables_check.check(str(copy))
    assert len(problems) == 1 and "says again what [[install]]" in problems[0]


# -- directories and files ------------------------------------------------------------------


def refused(directory, *words):
    with pytest.raises(tables.BadTables) as caught:
        tables_check.check(str(directory))
    text = str(caught.value)
    assert "\n" not in text and len(text) < 400
    for word in (str(directory), *words):
        assert word in text, text


def test_no_such_directory(tmp_path):
    refused(tmp_path / "nowhere", "no such directory of tables")


def test_a_file_is_no_directory(tmp_path):
    (tmp_path / "gpus.toml").write_text("")
    refused(tmp_path / "gpus.toml", "Not a directory")


def test_an_empty_directory(tmp_path):
    (tmp_path / "README.md").write_text("soon")
    refused(tmp_path, "no tables (NAME.toml)")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_what_may_not_be_read(tmp_path, copy):
    (copy / "gpus.toml").chmod(0)
    refused(copy, "gpus.toml: Permission denied")
    copy.chmod(0)
    try:
        refused(copy, "Permission denied")
    finally:
        copy.chmod(0o700)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"[[gpu]\n", "line 1"),
        (b"\xff\xfe", "utf-8"),
        (b"x = 1\nx = 2\n", "line 2"),
        (b"x = " + b"[" * 100000, ""),
        (b"x = " + b"1" * 5000, ""),
        (b"# " + b"x" * (5 << 20), "larger than 4 MiB"),
        (b"\x00", "line 1"),
    ],
    ids=["broken", "not utf-8", "a key twice", "deep", "a long number", "giant", "nul"],
)
def test_broken_files(tmp_path, content, words):
    (tmp_path / "gpus.toml").write_bytes(content)
    try:
        refused(tmp_path, "gpus.toml", words)
    except pytest.fail.Exception:  # a number of any length is a number on old Pythons
        assert content.startswith(b"x = 1") and tables_check.check(str(tmp_path))


def test_odd_files(tmp_path):
    os.mkfifo(str(tmp_path / "gpus.toml"))
    refused(tmp_path, "gpus.toml: not a file")
    (tmp_path / "gpus.toml").unlink()
    (tmp_path / "gpus.toml").mkdir()
    refused(tmp_path, "gpus.toml: not a file")
    (tmp_path / "gpus.toml").rmdir()
    (tmp_path / "gpus.toml").symlink_to("nowhere.toml")
    refused(tmp_path, "gpus.toml", "No such file")


@pytest.mark.parametrize(
    "text",
    [
        "gpu = 1",
        "gpu = [1, 'x', [], {}]",
        "[gpu]\nname = 'x'",
        "x = 2020-01-01",
        "[[gpu]]",
        "[[gpu]]\nname = 1\ncapability = [[]]\nsource = [1]\nnames = {}\ntrust = 2020-01-01",
        "[[gpu]]\nname = ''\nsource = []",
        "[[gpu]]\n'\\u0000' = 'x'",
        '[[gpu]]\nname = "a\\nb\\u2028c"',
    ],
)
def test_rows_of_another_kind_are_problems_and_no_fault(tmp_path, text):
    (tmp_path / "gpus.toml").write_text(text, "utf-8")
    problems = tables_check.check(str(tmp_path))
    assert problems and all(one.startswith("gpus.toml: ") for one in problems)
    assert all(len(one.splitlines()) == 1 for one in problems)


def test_a_table_that_does_not_exist(tmp_path):
    problems = tables_check.check(overlay(tmp_path, driver="[[branch]]\nbranch = 1\n"))
    assert len(problems) == 1
    assert problems[0].startswith("driver.toml: no table is called so; there are drivers, toolkits")


# -- overlays -------------------------------------------------------------------------------

SOURCE = """
[source.our-wiki]
title = "Our wiki"
url = "https://wiki.example.com/gpu"
read = "2026-11-29"
"""
GPU = """
[[gpu]]
name = "NVIDIA A10X"
capability = "8.6"
class = "data-center"
forward = "yes"
first_branch = 455
trust = "primary"
source = ["our-wiki"]
"""


def test_an_overlay_is_checked_beside_the_built_in_tables(tmp_path):
    assert tables_check.check(overlay(tmp_path, gpus=GPU, sources=SOURCE)) == []


def test_an_overlay_may_cite_what_the_built_in_tables_cite(tmp_path):
    assert tables_check.check(overlay(tmp_path, gpus=GPU.replace("our-wiki", "cuda-gpus"))) == []


def test_an_overlay_without_its_source(tmp_path):
    (problem,) = tables_check.check(overlay(tmp_path, gpus=GPU))
    assert problem == (
        "gpus.toml: [[gpu]] 1 (NVIDIA A10X): source 'our-wiki' is not in sources.toml"
    )


def test_an_overlay_that_contradicts_the_built_in_tables(tmp_path):
    second = GPU.replace("A10X", "A10Y").replace("8.6", "8.5")
    (problem,) = tables_check.check(overlay(tmp_path, gpus=GPU + second, sources=SOURCE))
    assert problem == (
        "gpus.toml: [[gpu]] 2 (NVIDIA A10Y): capability '8.5' is no capability of "
        "architectures.toml"
    )


def test_a_built_in_row_that_an_overlay_contradicts_is_said_to_be_built_in(tmp_path):
    branch = """
        [[branch]]
        branch = 535
        cuda = "12.3"
        kind = "LTSB"
        released = "2023-05-30"
        oldest = "Maxwell"
        newest = "Hopper"
        trust = "primary"
        source = ["our-wiki"]
    """
    problems = tables_check.check(overlay(tmp_path, drivers=branch, sources=SOURCE))
    expected = "toolkits.toml: [[toolkit]] (12.2), built in: branch 535 reports CUDA 12.3"
    assert expected in problems


def test_an_overlay_needs_no_companions(tmp_path):
    """What makes our own tables complete is not asked of an overlay."""
    build = """
        [[build]]
        versions = ["2.6.0.post1"]
        platform = "x86_64"
        variant = "cu124"
        cuda = "12.4"
        sm = ["8.0"]
        min_glibc = "2.17"
        trust = "primary"
        source = ["our-wiki"]
    """
    assert tables_check.check(overlay(tmp_path, torch=build, sources=SOURCE)) == []


# -- the command ----------------------------------------------------------------------------


def command(directory):
    return subprocess.run(
        [sys.executable, "-m", "preflight", "matrix", "check", str(directory)],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": HOME, "LANG": "C.UTF-8"},
        capture_output=True, check=False, timeout=60,
    )  # fmt: skip


def test_the_command(copy, tmp_path):
    good = command(copy)
    assert (good.returncode, good.stdout, good.stderr) == (0, b"", b"")
    spoil(copy, "gpus", '"NVIDIA A10"\n', '"8.6"', '"8.5"')
    bad = command(copy)
    assert bad.returncode == 78 and bad.stderr == b""
    assert bad.stdout.startswith(b"gpus.toml: [[gpu]] ") and bad.stdout.count(b"\n") == 1
    for directory in (tmp_path / "nowhere", tmp_path):
        unreadable = command(directory)
        assert unreadable.returncode == 2 and unreadable.stdout == b""
        assert unreadable.stderr.startswith(b"preflight: ") and unreadable.stderr.count(b"\n") == 1
