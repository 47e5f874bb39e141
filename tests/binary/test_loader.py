"""The search for libraries, against the real ld.so."""

import os
import shutil
from pathlib import Path

import pytest

from preflight.binary import loader
from preflight.roots import Root
from tests.binary import trees

SEED = int(os.environ.get("PREFLIGHT_SEED", "20261129"))
CASES = int(os.environ.get("PREFLIGHT_CASES", "120"))

needs_tools = pytest.mark.skipif(
    trees.tools_missing() is not None, reason=f"no {trees.tools_missing()} here"
)


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    """Libraries linked once for all cases."""
    return trees.make_pool(tmp_path_factory.mktemp("pool"), SEED)


def predicted(case):
    """What preflight says, in the form of what ld.so prints."""
    root = Root(str(case.top)) if case.chroot else Root()
    return started(loader.Process(root, case.env, case.program, cwd=case.cwd, conf=False))


def started(process):
    opened = process.start()
    fatal = [one for one in opened.problems if one.text != loader.NOT_FOUND]
    if fatal:
        return trees.Traced((), (), str(fatal[0]))
    skipped = (process.executable, trees.LOADER)
    found = [(one.name, one.path) for one in process.objects if one.path not in skipped]
    missing = [one.name for one in opened.links if one.problem]
    return trees.Traced(tuple(sorted(found)), tuple(sorted(missing)), "")


def check(pool, tmp_path, chroot):
    wrong = []
    for number in range(CASES):
        case = trees.make_case(pool, tmp_path / str(number), SEED + number, chroot)
        truth, answer = trees.trace(case), predicted(case)
        if truth.error:
            truth = trees.Traced((), (), truth.error)
        if truth != answer:
            wrong.append((number, case, truth, answer))
        else:
            shutil.rmtree(str(case.top))
    assert not wrong, f"{len(wrong)} of {CASES}; the first: {wrong[0]}"


@needs_tools
def test_every_tree_is_resolved_as_ld_so_does(pool, tmp_path):
    check(pool, tmp_path, chroot=False)


@needs_tools
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may chroot")
def test_every_image_root_is_resolved_as_ld_so_does_inside(pool, tmp_path):
    check(pool, tmp_path, chroot=True)


def head(path):
    with open(str(path), "rb") as stream:
        return stream.read(5)


def libraries(folder, most):
    """Some shared objects below a folder, always the same."""
    found = []
    for path in sorted(Path(folder).rglob("*.so*")):
        if path.is_file() and not path.is_symlink() and head(path) == b"\x7fELF\x02":
            found.append(str(path))
    return found[:: max(1, len(found) // most)]


@needs_tools
def test_libraries_of_this_system_are_resolved_as_ld_so_does():
    wrong = []
    for path in libraries("/usr/lib/x86_64-linux-gnu", 120):
        truth = trees.trace_library(path)
        answer = started(loader.Process(Root(), {}, path, cwd="/"))
        if truth != answer:
            wrong.append((path, truth, answer))
    assert not wrong, wrong[0]
