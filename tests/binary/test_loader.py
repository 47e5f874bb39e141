"""The search for libraries, against the real ld.so."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from preflight.binary import loader
from preflight.binary.machine import Cpu, read_machine
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


def shared(folder, name, *options):
    """A library with nothing in it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    command = ["gcc", "-shared", "-nostdlib", "-x", "c", "/dev/null", "-x", "none"]
    command += [f"-Wl,-soname,{name}", "-Wl,--no-as-needed"]
    subprocess.run([*command, *options, "-o", str(path)], check=True)
    return path


def program(path, *options):
    path.parent.mkdir(parents=True, exist_ok=True)
    command = ["gcc", "-nostdlib", "-x", "c", "-", "-x", "none", "-o", str(path), "-e", "f"]
    command += ["-Wl,--no-as-needed", "-fPIC", "-pie"]
    subprocess.run([*command, *options], input=b"void f(void) {}", check=True)
    return str(path)


@needs_tools
def test_every_copy_that_the_search_meets_is_told_in_its_order(tmp_path):
    name = "libtwice.so.1"
    copies = [shared(tmp_path / part, name) for part in ("rpath", "variable", "unused")]
    options = [f"-Wl,-rpath,{tmp_path / 'rpath'}", "-Wl,--disable-new-dtags", str(copies[0])]
    main = program(tmp_path / "main", *options)
    process = loader.Process(Root(), {"LD_LIBRARY_PATH": str(tmp_path / "variable")}, main)
    (link,) = process.start().links
    assert (link.rule, link.path) == ("rpath", str(copies[0]))
    met = [(one.rule, one.path) for one in process.candidates(name)]
    assert met == [("rpath", str(copies[0])), ("ld-library-path", str(copies[1]))]


@needs_tools
def test_what_dlopen_opens_does_not_inherit_the_rpath_of_its_caller(tmp_path):
    """Only the bare name is sought there; what the new library needs is not."""
    needed = shared(tmp_path / "deep", "libneeded.so")
    opened = shared(tmp_path / "opened", "libopened.so", str(needed))
    old = ["-Wl,--disable-new-dtags", f"-Wl,-rpath,{tmp_path / 'deep'}:{tmp_path / 'opened'}"]
    caller = shared(tmp_path / "caller", "libcaller.so", *old)
    main = program(tmp_path / "main", str(caller), f"-Wl,-rpath,{tmp_path / 'caller'}")
    process = loader.Process(Root(), {}, main, cwd="/")
    process.start()
    by = next(one for one in process.objects if one.path.endswith("libcaller.so"))
    count = len(process.objects)
    failed = process.open("libopened.so", caller=by)
    assert failed.object.path == str(opened)
    assert failed.error == "libneeded.so: " + loader.NOT_FOUND
    assert len(process.objects) == count  # all of it or nothing
    assert process.open("libneeded.so", caller=by).error == ""
    assert process.open(str(opened), caller=by).error == ""  # now it is loaded under that name


@needs_tools
@pytest.mark.parametrize("kind", ["auxiliary", "filter"])
@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("also_needed", [True, False])
def test_a_filter_needs_what_it_stands_before_and_an_auxiliary_does_not(
    tmp_path, kind, there, also_needed
):
    behind = shared(tmp_path, "libbehind.so")
    needed = [str(behind)] if also_needed else []
    front = shared(tmp_path, "libfront.so", f"-Wl,--{kind}=libbehind.so", *needed)
    main = program(tmp_path / "main", str(front), f"-Wl,-rpath-link,{tmp_path}")
    if not there:
        behind.unlink()
    env = {"LD_LIBRARY_PATH": str(tmp_path)}
    process = loader.Process(Root(), env, main, cwd="/")
    error = process.start().error
    real = subprocess.run([main], env=env, stderr=subprocess.PIPE, text=True, check=False)
    assert (error in real.stderr) if error else "libbehind.so" not in real.stderr
    assert bool(error) == (not there and (also_needed or kind == "filter"))


@needs_tools
def test_a_fork_goes_its_own_way(tmp_path):
    library = shared(tmp_path, "libone.so")
    process = loader.Process(Root(), {}, program(tmp_path / "main"), cwd="/")
    process.start()
    other = process.fork()
    assert other.open(str(library)).error == ""
    assert len(other.objects) == len(process.objects) + 1
    assert process.open("libone.so").error.startswith("libone.so: ")


@needs_tools
def test_without_a_cache_an_image_is_searched_as_its_conf_says(tmp_path):
    shared(tmp_path / "opt/lib", "libcuda.so.1")
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/ld.so.conf").write_text("/opt/lib\n")
    found = loader.find(Root(str(tmp_path)), {}, "libcuda.so.1", "x86_64")
    assert found == loader.Found("/opt/lib/libcuda.so.1", "ld-conf")
    assert loader.find(Root(str(tmp_path)), {}, "libother.so.1", "x86_64") is None
    env = {"LD_LIBRARY_PATH": "/opt/lib"}
    found = loader.find(Root(str(tmp_path)), env, "libcuda.so.1", "x86_64")
    assert found.found_by == "ld-library-path"
    # Of another machine: passed over.
    assert loader.find(Root(str(tmp_path)), env, "libcuda.so.1", "aarch64") is None


def test_levels_of_processors():
    flags = {"cx16", "lahf_lm", "popcnt", "pni", "sse4_1", "sse4_2", "ssse3"}
    assert Cpu("", frozenset()).level == 1
    assert Cpu("", frozenset(flags)).level == 2
    flags |= {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"}
    assert Cpu("", frozenset(flags)).level == 3
    flags |= {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
    assert Cpu("", frozenset(flags)).level == 4


def test_older_loaders_search_older_subdirectories(tmp_path):
    """As glibc 2.31 says with LD_DEBUG=libs on such a processor."""
    (tmp_path / "ld.so").write_bytes(b"\0haswell\0xeon_phi\0avx512_1\0\0/lib64/\0/usr/lib64/\0")
    haswell = Cpu("GenuineIntel", frozenset(["avx2", "bmi1", "bmi2", "abm", "movbe", "popcnt"]))
    machine = read_machine(Root(str(tmp_path)), "/ld.so", "x86_64", haswell)
    assert machine.directories == ("/lib64", "/usr/lib64") and machine.lib == "lib64"
    assert machine.hwcaps == () and machine.platform == "haswell"
    assert machine.legacy == (
        "tls/haswell/x86_64", "tls/haswell", "tls/x86_64", "tls",
        "haswell/x86_64", "haswell", "x86_64",
    )  # fmt: skip
    newer = Cpu("AuthenticAMD", haswell.features)
    assert read_machine(Root(str(tmp_path)), "/ld.so", "x86_64", newer).platform == "x86_64"


# -- what is ours, and what is the file's -----------------------------------------------------


def test_an_empty_file_is_too_short(tmp_path):
    """As a full disk or a broken layer leaves it; ld.so's words."""
    empty = tmp_path / "libempty.so"
    empty.write_bytes(b"")
    found = loader.Files(Root(), "x86_64").look(str(empty))
    assert found.problem == "file too short" and not found.foreign


def test_no_descriptors_left_is_no_fault_of_the_library(tmp_path):
    import resource

    library = shutil.copy("/proc/self/exe", tmp_path / "libx.so")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = loader.Files(Root(), "x86_64")
    taken = len(os.listdir("/proc/self/fd")) - 1
    resource.setrlimit(resource.RLIMIT_NOFILE, (taken, hard))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            files.look(str(library))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert files.look(str(library)) is not None
