"""Symbols and versions without a provider, against ld.so with LD_BIND_NOW=1."""

import os
import random
import re
import subprocess

import pytest

from preflight.binary import elf, loader, symbols
from preflight.roots import Root
from tests.binary.trees import LOADER, tools_missing

SEED = int(os.environ.get("PREFLIGHT_SEED", "20261129"))
CASES = int(os.environ.get("PREFLIGHT_CASES", "150"))

pytestmark = pytest.mark.skipif(tools_missing() is not None, reason=f"no {tools_missing()} here")

LIBRARIES = ["libp.so.1", "libq.so.1"]
FUNCTIONS = {"libp.so.1": [f"p{n}" for n in range(8)], "libq.so.1": [f"q{n}" for n in range(8)]}
START = 'void _start(void) { __asm__("mov $60, %eax; xor %edi, %edi; syscall"); }\n'


def gcc(target, source, *options):
    text = target.parent / (target.name + ".c")
    text.write_text(source)
    subprocess.run(
        ["gcc", "-nostdlib", "-fPIC", "-O0", "-fno-asynchronous-unwind-tables", str(text)]
        + ["-o", str(target), *options],
        check=True,
        stderr=subprocess.DEVNULL,
    )
    return target


def script(dice, names, old):
    """A version script: V1 and V2 with the names dealt out, or other versions altogether."""
    first = [one for one in names if dice.random() < 0.5]
    second = [one for one in names if one not in first]
    nodes = [f"V1 {{ {_globals(first)}}};"]
    if second or old:
        nodes.append(f"V2 {{ {_globals(second)}}} V1;")
    text = "\n".join(nodes) + "\n"
    return text.replace("V2", "V3") if dice.random() < 0.2 and names else text


def _globals(names):
    return "".join(["global: ", *(f"{one}; " for one in names)]) if names else ""


def provider(dice, folder, name, kind):
    """A build of a library; `full` ones have everything."""
    names = list(FUNCTIONS[name])
    if kind != "full" and kind != "full-plain":
        names = [one for one in names if dice.random() < 0.85]
    old = [one for one in names if dice.random() < 0.2]
    versioned = kind not in ("full-plain", "plain", "bare")
    source = "".join(f"void {one}(void) {{}}\n" for one in names)
    options = ["-shared", f"-Wl,-soname,{name}"]
    path = folder / name
    folder.mkdir(parents=True)
    if versioned:
        for one in old:
            # An older version beside the default one, or (half of them) no default at all.
            sign = dice.choice(["@", "@@"])
            source += f"void {one}_old(void) {{}}\n"
            source += f'__asm__(".symver {one}_old,{one}_x{sign}V1");\n'
        (folder / "map").write_text(script(dice, names, old))
        options.append(f"-Wl,--version-script,{folder / 'map'}")
    if kind == "plain":
        # Versions of what it needs itself, so that it has version words but defines none.
        options += ["-Wl,--no-as-needed", str(folder.parent / "base/libbase.so.1")]
        source += "void base(void); void use(void) { base(); }\n"
    return gcc(path, source, *options)


def user(dice, folder, target, against, program):
    """Something that takes functions of both libraries, strongly or weakly."""
    source = ""
    body = ""
    for names in FUNCTIONS.values():
        for one in dice.sample(names, dice.randint(1, 5)):
            weak = "__attribute__((weak)) " if dice.random() < 0.25 else ""
            source += f"{weak}extern void {one}(void);\n"
            if dice.random() < 0.4:
                source += f"void *at_{one} = (void *){one};\n"
            else:
                body += f"  if ({one}) {one}();\n" if weak else f"  {one}();\n"
    source += f"void use_{target.partition('.')[0]}(void) {{\n{body}}}\n"
    libraries = [str(against / name) for name in LIBRARIES]
    rest = ["-Wl,--no-as-needed", *libraries, "-Wl,-z,lazy"]
    if program:
        return gcc(folder / target, source + START, "-pie", "-e", "_start", *rest)
    return gcc(folder / target, source, "-shared", f"-Wl,-soname,{target}", *rest)


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    """Builds of the libraries, and users linked against full builds."""
    dice = random.Random(SEED)
    folder = tmp_path_factory.mktemp("symbols")
    (folder / "base").mkdir()
    (folder / "base/map").write_text("B1 { global: base; };")
    gcc(
        folder / "base/libbase.so.1", "void base(void) {}\n", "-shared",
        "-Wl,-soname,libbase.so.1", f"-Wl,--version-script,{folder / 'base/map'}",
    )  # fmt: skip
    builds = {name: [] for name in LIBRARIES}
    for name in LIBRARIES:
        for number in range(12):
            kind = ["full", "full-plain", "plain", "bare"][number] if number < 4 else "versioned"
            builds[name].append(provider(dice, folder / f"{name}-{number}", name, kind))
    for number in range(2):
        (folder / f"full{number}").mkdir()
        for name in LIBRARIES:
            (folder / f"full{number}" / name).symlink_to(builds[name][number])
    users = [
        user(dice, folder, f"libuser{n}.so", folder / f"full{n % 4 == 3:d}", False)
        for n in range(8)
    ]
    programs = [
        user(dice, folder, f"program{n}", folder / f"full{n % 4 == 3:d}", True) for n in range(8)
    ]
    return builds, users, programs, folder / "base"


def arrange(pool, folder, dice):
    """A directory with one build of each library; (program, environment)."""
    builds, users, programs, base = pool
    folder.mkdir()
    for name in LIBRARIES:
        (folder / name).symlink_to(dice.choice(builds[name]))
    env = {"LD_LIBRARY_PATH": f"{folder}:{base}"}
    preloads = [str(one) for one in dice.sample(users, dice.randint(0, 2))]
    if dice.random() < 0.2:
        other = dice.choice(LIBRARIES)
        preloads.append(str(dice.choice(builds[other])))
    if preloads:
        env["LD_PRELOAD"] = ":".join(preloads)
    return str(dice.choice(programs)), env


def run(program, env):
    return subprocess.run(
        [program],
        env=dict(env, LC_ALL="C"),
        capture_output=True,
        text=True,
        timeout=20,
    )


def said(program, env):
    """Everything that ld.so reports when it binds at once and goes on (as `ldd -r`)."""
    done = run(program, dict(env, LD_BIND_NOW="1", LD_WARN="1", LD_TRACE_LOADED_OBJECTS="1"))
    lines = done.stdout.splitlines() + done.stderr.splitlines()
    said = {one.strip() for one in lines if re.search("undefined|not found|Inconsistency", one)}
    # Where a version is missing ld.so ends, though it would list the symbols too when asked to.
    return {one for one in said if "required by" in one} or said


def texts(problems, program):
    """Problems in the form of that listing."""
    found = set()
    for one in problems:
        if one.kind == "symbol" and one.path:
            found.add(f"{one.text}\t({one.path})")
        else:
            found.add(f"{program}: {one}" if one.kind == "version" else str(one))
    return found


def without_line(text):
    return re.sub(r"dl-lookup.c: \d+: ", "dl-lookup.c: ", text)


def test_what_ld_so_reports_is_predicted(pool, tmp_path):
    wrong = []
    outcomes = set()
    for number in range(CASES):
        dice = random.Random(SEED + number)
        program, env = arrange(pool, tmp_path / str(number), dice)
        process = loader.Process(Root(), env, program, cwd="/", check=symbols.Checker().check)
        problems = process.start().problems
        answer = texts(problems, program)
        truth = {without_line(one) for one in said(program, env)}
        ends = [one for one in problems if one.text == symbols.ASSERTION]
        outcomes |= {one.kind for one in problems} | ({"ends"} if ends else set())
        # An assertion ends the process: what was reported before it depends on the order.
        fine = symbols.ASSERTION in truth and truth <= answer if ends else truth == answer
        started = run(program, dict(env, LD_BIND_NOW="1"))
        if bool(started.returncode) != bool(problems):
            fine = False
        if started.returncode and not ends:
            fine = fine and str(problems[0]) in started.stderr
        if not fine:
            wrong.append((number, env, truth, answer, started.stderr))
    assert not wrong, f"{len(wrong)} of {CASES}; the first: {wrong[0]}"
    assert outcomes == {"symbol", "version", "ends"}


def test_what_is_linked_well_has_no_problem(tmp_path):
    for program in ("/bin/sh", "/usr/bin/env", "/usr/bin/readelf", LOADER):
        if os.path.exists(program):
            process = loader.Process(Root(), {}, program, check=symbols.Checker().check)
            assert process.start().problems == ()


@pytest.mark.parametrize("visibility", ["default", "internal", "hidden", "protected"])
@pytest.mark.parametrize("style", ["gnu", "sysv"])
def test_what_is_hidden_serves_no_other_file(tmp_path, visibility, style):
    """Linkers leave no such name for others to see; ld.so does not rely on it."""
    words = ["-shared", f"-Wl,--hash-style={style}", "-Wl,-soname,libp.so.1"]
    library = gcc(tmp_path / "libp.so.1", "void p(void) {}\nvoid q(void) {}\n", *words)
    source = "extern void p(void); void use(void) { p(); }\n" + START
    program = str(gcc(tmp_path / "program", source, "-pie", "-e", "_start", str(library)))
    with elf.ElfFile(str(library)) as file:
        names = file.exported()
        number = names.numbers[names.names.index(b"p")]
        place = file._offset(dict(file.dynamic)[6]) + 24 * number + 5
    data = bytearray(library.read_bytes())
    data[place] = ["default", "internal", "hidden", "protected"].index(visibility)
    library.write_bytes(data)
    env = {"LD_LIBRARY_PATH": str(tmp_path)}
    process = loader.Process(Root(), env, program, cwd="/", check=symbols.Checker().check)
    answer = texts(process.start().problems, program)
    assert answer == said(program, env)
    assert bool(answer) == (visibility in ("internal", "hidden"))
