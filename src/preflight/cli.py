"""Arguments to calls. Nothing heavy is imported until a command needs it."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, Callable, Dict, List, NoReturn, Sequence, Tuple, Type

from . import __version__

if TYPE_CHECKING:
    from .settings import Settings
    from .snapshot import Snapshot
    from .verdict import Report

COMMANDS = (
    "check", "exec", "lock", "diagnose", "what-if", "link", "matrix", "snapshot", "rules",
)  # fmt: skip
USAGE = 2
DOCUMENT_LIMIT = 64 << 20

DESCRIPTION = """\
Will this image's stack run on this driver and this GPU, as this job? Checks before training
starts, without importing torch or initialising CUDA.

  preflight [check]            look at this container, judge, report
  preflight exec -- CMD…       check, then become CMD
  preflight lock [FILE…]       lock files: readable, pinned, installed, able to run
  preflight diagnose FILE|-    judge a described environment or a snapshot (JSON)
  preflight what-if --driver V --gpu NAME --torch SPEC   a stack nobody has installed
  preflight link [PATH|MODULE] what would be loaded, and why (nothing: import torch)
  preflight matrix driver|cuda|gpu|torch NAME   what the tables say of it; matrix check DIR
  preflight snapshot           the facts alone, as JSON
  preflight rules [NAME]       what the rules mean
"""
PURPOSE = {
    "exec": "Check, then become CMD: same PID, environment, descriptors and arguments. A FAIL "
    "stops it with 78 (75 where another node may do), unless the mode is warn or off.",
    "lock": "Verify lock files (those named, else those found here): can they be read, do they "
    "pin, are they what is installed, would their framework run on this driver and GPU, or on "
    "those of --driver and --gpu. --write FILE writes a lock of what is installed.",
    "diagnose": "Judge a described environment, or a snapshot that `preflight snapshot` wrote.",
    "what-if": "Judge a stack nobody has installed, by the same rules.",
    "link": "What the loader would load for a library, a program, a package's compiled modules, or "
    "import torch: which rule found each file, what is missing, the GPU code inside. Runs nothing.",
    "snapshot": "Print the facts of this machine (or --root) as JSON, without judging them.",
    "rules": "List the rules, or explain one: meaning, how it is decided, the fix, the source.",
}
EPILOG = """\
Each option has a PREFLIGHT_ variable (PREFLIGHT_TIMEOUT, PREFLIGHT_ASSUME_DRIVER, …): a flag wins
over the variable, the variable over the policy file (preflight.toml, /etc/preflight.toml, or
[tool.preflight] of pyproject.toml).
Exit codes: 0 nothing failed; 2 wrong usage or unreadable input; 70 preflight broke (fail-closed
only); 75 failed, another node or a retry may cure it; 78 failed for good; with exec otherwise the
command's own, 126 or 127 when it cannot be run.
"""


class _Help(argparse.RawDescriptionHelpFormatter):
    """As wide as the terminal. What argparse asks for that imports compressors, for each option."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_columns() - 2)


def _columns() -> int:
    """As shutil.get_terminal_size says it."""
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given):
        return int(given)
    try:
        return os.get_terminal_size().columns or 80
    except OSError:  # no terminal
        return 80


class _Parser(argparse.ArgumentParser):
    """One line on wrong usage, and exit code 2."""

    def error(self, message: str) -> NoReturn:
        self.exit(USAGE, f"preflight: {message} (see preflight --help)\n")


def main(argv: Sequence[str]) -> int:
    """Run one command line and return its exit code; `exec` returns only when not started."""
    words = list(argv)
    name = words[0] if words[:1] and words[0] in COMMANDS else "check"
    rest = words[1:] if words[:1] == [name] else words
    if name == "check" and rest and not rest[0].startswith("-"):
        return _usage(f"{rest[0]!r} is no command: {', '.join(COMMANDS)}")
    try:
        return int(_RUN[name](rest))
    except _mistakes() as error:  # asked for only when there is one
        return _usage(str(error))


def _mistakes() -> Tuple[Type[Exception], ...]:
    """What says that a request, not preflight, is wrong."""
    from .assume import BadAssumption
    from .policy import BadPolicy
    from .settings import BadUsage
    from .tables import BadTables
    from .whatif import BadStack

    return BadUsage, BadPolicy, BadAssumption, BadStack, BadTables


def _usage(problem: str) -> int:
    _say("preflight: " + problem)
    return USAGE


def _say(line: str) -> None:
    text = "".join(char if char.isprintable() else " " for char in line)
    try:
        os.write(2, (text + "\n").encode("utf-8", "backslashreplace"))
    except OSError:  # nobody listens
        pass


# -- options --------------------------------------------------------------------------------


def _parser(command: str, usage: str) -> _Parser:
    parser = _Parser(
        prog="preflight",
        usage=usage,
        description=PURPOSE.get(command, DESCRIPTION),
        epilog=EPILOG,
        formatter_class=_Help,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"preflight {__version__}")
    if command == "rules":
        return parser
    add = parser.add_argument
    add("--format", metavar="text|json", help="of what is printed")
    add("--output", action="append", metavar="[FORMAT=]FILE",
        help="FILE instead of standard output; FORMAT=FILE beside it")  # fmt: skip
    add("--policy", metavar="FILE", help="severities, waivers and defaults of a team")
    add("--fail-on", metavar="fail|warn|unknown", help="what makes the exit code non-zero")
    add("--explain", action="store_true", help="seen, needed, why, fix and source of each finding")
    add("-v", "--verbose", action="store_true", help="every rule's answer")
    add("-q", "--quiet", action="store_true", help="the verdict alone")
    if command in ("diagnose", "what-if"):
        add("--assume", action="append", metavar="FACT=VALUE", help=argparse.SUPPRESS)
        parser.set_defaults(timeout=None, root=None, python=None, env_file=None)
        return parser
    add("--assume", action="append", metavar="FACT=VALUE",
        help="a fact that cannot be seen here: driver=535.104.05, gpu=A100 (8 x A100, sm_80, "
        "none), cuda=12.2, compat=13.0, platform=NAME")  # fmt: skip
    add("--timeout", metavar="S", help="of the whole check (30)")
    if command != "lock":
        add("--lock", action="append", metavar="FILE", help="a lock file to verify (several by "
            "repeating), besides those found in the working directory")  # fmt: skip
    add("--thorough", action="store_true", help="hash every installed file (slow)")
    add("--offline", action="store_true", help="ask nothing of the network: the master's name is "
        "not resolved, and nothing connects to it")  # fmt: skip
    add("--root", metavar="DIR", help="an unpacked image instead of this machine")
    add("--python", metavar="PATH", help="the job's interpreter or environment")
    add(
        "--env-file",
        metavar="FILE",
        help="the job's environment (NAME=VALUE lines), not ours",
    )
    return parser


# -- commands -------------------------------------------------------------------------------


def _check(words: List[str]) -> int:
    parser = _parser("check", "preflight [check] [options]")
    args = parser.parse_args(words)
    from . import check, settings

    asked = settings.gather(args, os.environ)
    _writable(asked)
    return _report(check.check(asked), asked, args)


def _diagnose(words: List[str]) -> int:
    parser = _parser("diagnose", "preflight diagnose [options] FILE|-")
    parser.add_argument("file", metavar="FILE", help="JSON: described environment or snapshot")
    args = parser.parse_args(words)
    import time

    from . import assume, matrix, settings, verdict

    asked = settings.gather(args, os.environ)
    _writable(asked)
    table = matrix.load(asked.overlays)
    snapshot = assume.apply(_document(args.file), args.assume or [], table)
    report = verdict.judge(snapshot, table, asked.policy, time.strftime("%Y-%m-%d"))
    return _report(report, asked, args)


def _what_if(words: List[str]) -> int:
    parser = _parser("what-if", "preflight what-if --driver V --gpu NAME… --torch SPEC [options]")
    add = parser.add_argument
    add("--driver", metavar="V", default="", help="kernel driver, as 535.104.05")
    add("--gpu", metavar="NAME", action="append", help="A10, 8 x H100, sm_90; several by repeating")
    add(
        "--torch",
        metavar="SPEC",
        default="",
        help="2.6.0 (the default index's build) or 2.6.0+cu124",
    )
    add("--cuda", metavar="V", default="", help="any framework built with this CUDA")
    add("--compat", metavar="V", default="", help="CUDA of a compat libcuda in use")
    add("--arch", metavar="A", default="x86_64", help="x86_64 or aarch64")
    args = parser.parse_args(words)
    import time

    from . import matrix, settings, verdict, whatif

    asked = settings.gather(args, os.environ)
    _writable(asked)
    table = matrix.load(asked.overlays)
    snapshot = whatif.stack(
        table, driver=args.driver, gpus=args.gpu or [], torch=args.torch, cuda=args.cuda,
        compat=args.compat, arch=args.arch,
    )  # fmt: skip
    report = verdict.judge(snapshot, table, asked.policy, time.strftime("%Y-%m-%d"))
    return _report(report, asked, args)


def _document(path: str) -> Snapshot:
    import json

    from . import snapshot, snapshot_json
    from .intake import described
    from .settings import BadUsage

    try:
        data = _bytes(path)
        if len(data) > DOCUMENT_LIMIT:
            raise ValueError(f"larger than {DOCUMENT_LIMIT >> 20} MiB")
        document = json.loads(data.decode("utf-8-sig"))
        if isinstance(document, dict) and document.get("schema") == snapshot.SCHEMA:
            return snapshot_json.from_json(document)
        return described.read(document)
    except OSError as error:
        raise BadUsage(f"{path}: {error.strerror}") from None
    except RecursionError:
        raise BadUsage(f"{path}: nested too deeply") from None
    except ValueError as error:
        raise BadUsage(f"{path}: {error}") from None


def _bytes(path: str) -> bytes:
    if path == "-":
        return sys.stdin.buffer.read(DOCUMENT_LIMIT + 1)
    with open(path, "rb") as stream:
        return stream.read(DOCUMENT_LIMIT + 1)


def _snapshot(words: List[str]) -> int:
    args = _parser("snapshot", "preflight snapshot [options]").parse_args(words)
    from . import check, settings, snapshot_json

    asked = settings.gather(args, os.environ)
    _writable(asked)
    text = _json(snapshot_json.to_json(check.check(asked).snapshot))
    for output in asked.outputs:
        _write(output.path, text)
    return 0 if asked.outputs else _print(text, "json")


def _exec(words: List[str]) -> int:
    usage = "preflight exec [options] [--mode enforce|warn|off] [--fail-closed] -- CMD…"
    parser = _parser("exec", usage)
    parser.add_argument("--mode", metavar="enforce|warn|off", help="of what a FAIL does (enforce)")
    parser.add_argument("--fail-closed", action="store_true",
                        help="preflight's own fault stops the job")  # fmt: skip
    options, command = words, []
    if "--" in words:
        at = words.index("--")
        options, command = words[:at], words[at + 1 :]
    args = parser.parse_args(options)
    if not command:
        return _usage("exec: no command after -- (preflight exec [options] -- CMD…)")
    from . import execute

    return execute.run(args, command)


def _matrix(words: List[str]) -> int:
    parser = _Parser(prog="preflight", usage="preflight matrix driver|cuda|gpu|torch NAME…",
                     allow_abbrev=False)  # fmt: skip
    parser.add_argument("subject", metavar="SUBJECT", help="driver, cuda, gpu, torch or check")
    parser.add_argument("name", nargs="+", metavar="NAME", help="470.82.01, 12.4, H20, 2.6.0, DIR")
    parser.add_argument("--format", metavar="text|json", default="text")
    parser.add_argument("--policy", metavar="FILE", default="")
    args = parser.parse_args(words)
    from . import matrix, pages, settings
    from .reports import matrix_text

    if args.format not in settings.FORMATS:
        raise settings.BadUsage(f"--format: {args.format!r} is none of text, json")
    if args.subject == "check":
        from . import tables_check

        problems = tables_check.check(args.name[0])
        return _print("".join(line + "\n" for line in problems)) or (78 if problems else 0)
    if args.subject not in pages.PAGES:
        return _usage(f"matrix: {args.subject!r} is none of {', '.join(pages.PAGES)}, check")
    table = matrix.load(settings.overlays(args.policy, os.environ))
    try:
        page = pages.page(table, args.subject, " ".join(args.name))
    except pages.NotInMatrix as error:
        return _usage(str(error))
    if args.format == "json":
        return _print(_json(pages.as_json(page)))
    return _print(matrix_text.render(page, _width()))


def _lock(words: List[str]) -> int:
    parser = _parser("lock", "preflight lock [options] [FILE…]")
    add = parser.add_argument
    add("file", nargs="*", metavar="FILE", help="lock files; nothing: those found here")
    add("--exact", action="store_true", help="what is installed and in no lock is drift, too")
    add("--write", metavar="FILE", help="write a lock of what is installed here (- prints it)")
    add("--driver", metavar="V", default="", help="judge for a machine elsewhere: its driver")
    add("--gpu", metavar="NAME", action="append", help="and its GPUs (several by repeating)")
    add("--python-version", metavar="V", default="", help="and its Python, as 3.11")
    add("--arch", metavar="A", default="", help="and its machine, x86_64 or aarch64")
    args = parser.parse_args(words)
    from . import lockcheck, settings, verdict

    asked = settings.gather(args, os.environ)
    _writable(asked)
    if args.write:
        if args.file:
            return _usage("lock: --write makes a lock of what is installed; no FILE is read")
        text_of = lockcheck.written(asked)
        try:
            _write(args.write, text_of)
        except settings.BadUsage as error:
            return _usage(str(error).replace("--output", "lock --write", 1))
        if args.write != "-":
            _say(f"preflight: wrote {args.write}")
        return 0
    elsewhere = lockcheck.Elsewhere(
        args.driver, tuple(args.gpu or ()), args.python_version, args.arch
    )
    report = lockcheck.check(asked, args.file or asked.locks, elsewhere, args.exact)
    if asked.outputs or asked.format != "text" or args.quiet:
        return _report(report, asked, args)
    from .reports import lock_text, text

    _print(lock_text.render(report, text.Style(_colour(), _width()), args.verbose, args.explain))
    return verdict.exit_code(report, asked.fail_on, asked.policy.retry_exit_code)


def _link(words: List[str]) -> int:
    parser = _parser("link", "preflight link [options] [PATH|MODULE]")
    words_for = "a library, a program, or a package; nothing: import torch"
    parser.add_argument("what", nargs="?", default="", metavar="PATH|MODULE", help=words_for)
    args = parser.parse_args(words)
    from . import linktree, settings
    from .binary.elf import BadElf
    from .roots import Root

    asked = settings.gather(args, os.environ)
    _writable(asked)
    try:
        made = linktree.trees(Root(asked.root), asked.env, asked.python, args.what)
    except (OSError, BadElf, linktree.NothingToLink) as error:
        words_of = getattr(error, "strerror", None) or str(error)
        return _usage(f"link: {args.what or 'import torch'}: {words_of}")
    text = _json(linktree.as_json(made)) if asked.format == "json" else linktree.as_text(made)
    for output in asked.outputs:
        _write(output.path, text)
    if not asked.outputs:
        _print(text)
    return 78 if any(one.problems for one in made) else 0


def _rules(words: List[str]) -> int:
    parser = _parser("rules", "preflight rules [NAME]")
    parser.add_argument("name", nargs="?", metavar="NAME")
    args = parser.parse_args(words)
    from .rules import registry

    if args.name is None:
        rows = [f"{r.name:<34} {r.severity:<5} {r.meaning}" for r in registry.RULES]
        return _print("\n".join(rows) + "\n")
    rule = registry.rule(args.name)
    if rule is None:
        near = [r.name for r in registry.RULES if args.name in r.name]
        hint = f"; did you mean {', '.join(near)}?" if near else " (see preflight rules)"
        return _usage(f"rules: no rule is called {args.name!r}{hint}")
    from . import matrix

    sources = [" ".join(filter(None, one)) for one in matrix.load().references(rule.sources)]
    listed = "\n".join("  " + one for one in sources)
    head = f"{rule.name} ({rule.severity})"
    return _print(f"{head}\n\n{rule.documentation}\n\nSources:\n{listed}\n")


_RUN: Dict[str, Callable[[List[str]], int]] = {
    "check": _check,
    "exec": _exec,
    "diagnose": _diagnose,
    "what-if": _what_if,
    "link": _link,
    "lock": _lock,
    "matrix": _matrix,
    "snapshot": _snapshot,
    "rules": _rules,
}


# -- printing -------------------------------------------------------------------------------


def _report(report: Report, asked: Settings, args: argparse.Namespace) -> int:
    from . import verdict

    for output in asked.outputs:
        _write(output.path, _render(report, output.format, args, colour=False))
    named = args.output or [os.environ.get("PREFLIGHT_OUTPUT", "")]
    instead = any(one and not one.startswith(("text=", "json=")) for one in named)
    if not instead:
        _print(_render(report, asked.format, args, colour=_colour()), asked.format)
    return verdict.exit_code(report, asked.fail_on, asked.policy.retry_exit_code)


def _render(report: Report, fmt: str, args: argparse.Namespace, colour: bool) -> str:
    if fmt == "json":
        from .reports import json_report

        return _json(json_report.to_json(report))
    from .reports import text

    style = text.Style(colour, _width())
    if args.quiet:
        return text.verdict_line(report, style) + "\n"
    shown = text.render(report, style, args.explain)
    return shown + text.answers(report, style) if args.verbose else shown


def _json(document: object) -> str:
    import json
    import re

    text = json.dumps(document, indent=2, ensure_ascii=False)
    # Terminals obey C1 controls and overrides of direction too, not only what JSON must escape.
    unsafe = "[\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069]"
    return re.sub(unsafe, lambda found: f"\\u{ord(found.group()):04x}", text) + "\n"


def _colour() -> bool:
    try:
        terminal = os.isatty(1)
    except OSError:
        terminal = False
    return terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _width() -> int:
    import shutil

    return min(120, shutil.get_terminal_size((96, 24)).columns)


def _print(text: str, fmt: str = "text") -> int:
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        # JSON is UTF-8 in every locale; a lone surrogate becomes the escape that JSON has for it.
        json = fmt == "json"
        data = text.encode("utf-8" if json else encoding, "backslashreplace" if json else "replace")
        while data:
            data = data[os.write(1, data) :]
    except OSError:  # the reader went away
        pass
    return 0


def _writable(asked: Settings) -> None:
    """Say that a report cannot be written before the work, not after it."""
    from .settings import BadUsage

    for output in asked.outputs:
        if output.path == "-":
            continue
        try:
            with open(output.path, "ab"):
                pass
        except OSError as error:
            raise BadUsage(f"--output {output.path}: {error.strerror}") from None


def _write(path: str, text: str) -> None:
    from .settings import BadUsage

    if path == "-":
        _print(text, "json")
        return
    try:
        with open(path, "wb") as stream:
            stream.write(text.encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise BadUsage(f"--output {path}: {error.strerror}") from None
