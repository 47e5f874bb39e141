"""The architecture holds: who imports whom, what is imported when, what a rule must bring."""

import ast
import importlib
from pathlib import Path
from typing import Dict, Iterator, List, NamedTuple, Set, Tuple

import pytest

import preflight
from preflight import matrix
from preflight.rules import registry

SOURCE = Path(preflight.__file__).resolve().parent

#: Top to bottom: a module imports from below, or from its own package, and never from above.
LAYERS = (
    ("__main__",),
    ("cli", "docs"),
    ("execute",),
    ("check", "whatif", "tables_check", "linktree", "lockcheck"),
    ("lockwrite",),
    ("inspect", "reports", "launch", "settings", "intake", "progress"),
    ("probes", "assume", "verdict"),
    ("policy", "pages"),
    ("rules",),
    ("isolate", "binary", "snapshot_json", "lockfiles", "builds", "launching", "datafiles"),
    ("matrix",),
    ("snapshot", "roots", "tables", "handover", "__init__"),
    ("tables_schema", "files", "records", "declared"),
)
LEVEL: Dict[str, int] = {name: at for at, names in enumerate(LAYERS) for name in names}
#: The one way up: exec writes its report files as check does.
ALLOWED = {("execute", "cli")}

#: What a rule may know of preflight.
RULES_KNOW = {"rules", "matrix", "snapshot", "lockfiles", "builds", "launching"}
#: Never imported: what is judged is not run.
JUDGED = {"torch", "numpy", "tensorflow", "jax"}
#: Not before a probe asks for it, in its own process.
LATE = {"pynvml", "ctypes"}


class Import(NamedTuple):
    """One import: the module as a dotted name, and whether it runs when the file is loaded."""

    name: str
    early: bool


def modules() -> List[str]:
    """Every module of preflight, as its dotted path below the package ("rules.driver")."""
    paths = [one.relative_to(SOURCE).with_suffix("") for one in SOURCE.rglob("*.py")]
    return sorted(".".join(one.parts) for one in paths)


def tree(module: str) -> ast.Module:
    """The syntax tree of a module."""
    return ast.parse(SOURCE.joinpath(*module.split(".")).with_suffix(".py").read_text("utf-8"))


def imports(module: str) -> Iterator[Import]:
    """Everything a module imports, at its top level or within."""
    top = tree(module)
    late = {
        id(node)
        for scope in ast.walk(top)
        if isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        for node in ast.walk(scope)
    }
    for node in ast.walk(top):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, id(node) not in late)
        elif isinstance(node, ast.ImportFrom):
            base = absolute(module, node)
            for alias in node.names:
                yield Import(f"{base}.{alias.name}", id(node) not in late)


def absolute(module: str, node: ast.ImportFrom) -> str:
    """The module that `from … import` names, without leading dots."""
    if not node.level:
        return node.module or ""
    package = ["preflight", *module.split(".")][: -node.level]
    return ".".join([*package, *filter(None, [node.module])])


def parts(module: str) -> Set[str]:
    """The parts of preflight (first names below the package) that a module imports."""
    found = set()
    for one in imports(module):
        names = one.name.split(".")
        if names[0] == "preflight" and len(names) > 1:
            found.add(names[1] if names[1] in LEVEL else "__init__")
    return found


MODULES = modules()


@pytest.mark.parametrize("module", MODULES)
def test_it_can_be_imported(module: str) -> None:
    importlib.import_module(f"preflight.{module}".replace(".__init__", ""))


@pytest.mark.parametrize("module", MODULES)
def test_imports_run_one_way(module: str) -> None:
    part = module.split(".")[0]
    assert part in LEVEL, f"{part} has no place in LAYERS: give it one"
    wrong = [
        other
        for other in parts(module) - {part}
        if LEVEL[other] <= LEVEL[part] and (part, other) not in ALLOWED
    ]
    assert wrong == [], f"{module} imports from its own layer, or one above"


def test_the_layers_are_those_of_the_files() -> None:
    there = {one.split(".")[0] for one in MODULES}
    assert there - set(LEVEL) == set()
    assert len(LEVEL) == sum(len(names) for names in LAYERS), "named twice"


@pytest.mark.parametrize("module", [one for one in MODULES if one.startswith("rules.")])
def test_a_rule_knows_only_facts_and_tables(module: str) -> None:
    assert parts(module) - {"__init__"} <= RULES_KNOW
    outside = {one.name.split(".")[0] for one in imports(module)}
    assert not outside & {"os", "time", "datetime", "subprocess", "socket", "pathlib", "random"}


@pytest.mark.parametrize("module", [one for one in MODULES if one.startswith("probes.")])
def test_a_probe_judges_nothing(module: str) -> None:
    assert not parts(module) & {"rules", "verdict", "policy", "matrix"}


@pytest.mark.parametrize("module", MODULES)
def test_only_the_entry_points_know_the_command_line(module: str) -> None:
    if module not in ("__main__", "execute"):
        assert "cli" not in parts(module)


@pytest.mark.parametrize("module", MODULES)
def test_what_is_judged_is_not_imported(module: str) -> None:
    assert not {one.name.split(".")[0] for one in imports(module)} & JUDGED
    early = {one.name.split(".")[0] for one in imports(module) if one.early}
    assert not early & LATE


# -- the rules --------------------------------------------------------------------------------

NAMES = [one.name for one in registry.RULES]


@pytest.mark.parametrize("name", NAMES)
def test_a_rule_has_all_its_parts(name: str) -> None:
    rule = registry.rule(name)
    assert rule is not None and rule.meaning.endswith(".")
    assert callable(rule.function)
    lines = rule.documentation.splitlines()
    assert lines[0].endswith("."), "the first line is a sentence"
    assert len(lines) > 2 and lines[1] == "", "and then the details"
    assert sum(line.startswith("Fix:") for line in lines) == 1
    assert rule.documentation.rstrip().endswith(".")


def is_rule(node: ast.AST) -> bool:
    """Whether a function has the look of a rule: public, of two, yielding outcomes."""
    if not isinstance(node, ast.FunctionDef) or node.name.startswith("_") or not node.returns:
        return False
    names = {one.id for one in ast.walk(node.returns) if isinstance(one, ast.Name)}
    return {"Iterator", "Outcome"} <= names and len(node.args.args) == 2


def rules_in(module: str) -> Set[str]:
    """The functions of a module that have the look of a rule."""
    return {node.name for node in tree(module).body if is_rule(node)}


def names_taken(module: str) -> Set[Tuple[str, str]]:
    """(module, name) of everything a module of the rules takes from another one of them."""
    taken = {tuple(one.name.rsplit(".", 1)) for one in imports(module) if one.name.count(".") == 3}
    return {(of[len("preflight.") :], name) for of, name in taken if of.startswith("preflight.")}


def test_no_rule_is_left_out_of_the_table() -> None:
    """Rules stand in the module of their subject, or in a part that this module takes them from."""
    subjects = {name.split("/")[0] for name in NAMES}
    parts_of_rules = {
        one for one in MODULES if one.startswith("rules.") and one[len("rules.") :] not in subjects
    }
    written = {f"{subject}/{name}" for subject in subjects for name in rules_in(f"rules.{subject}")}
    for subject in subjects:
        for part, name in names_taken(f"rules.{subject}"):
            if part in parts_of_rules and name in rules_in(part):
                written.add(f"{subject}/{name}")
    assert {one.replace("_", "-") for one in written} == set(NAMES)


#: Functions of a part that look like rules and are none: who runs them.
PARTS_OF_A_RULE = {("rules.ptx", "outcomes"): "driver/too-old-for-ptx"}


def test_no_rule_lies_in_a_part_that_nobody_takes_it_from() -> None:
    subjects = {name.split("/")[0] for name in NAMES}
    taken = {one for subject in subjects for one in names_taken(f"rules.{subject}")}
    for module in MODULES:
        if module.startswith("rules.") and module[len("rules.") :] not in subjects:
            idle = {(module, name) for name in rules_in(module)} - taken - set(PARTS_OF_A_RULE)
            assert not idle, f"{idle}: in no module of a subject"
    assert set(PARTS_OF_A_RULE.values()) <= set(NAMES)


def cited() -> Set[Tuple[str, str]]:
    """(module, key) of every source that the code of a rule cites."""
    return {
        (module, element.value)
        for module in MODULES
        if module.startswith("rules.")
        for node in ast.walk(tree(module))
        if isinstance(node, ast.keyword) and node.arg == "sources"
        for literal in ast.walk(node.value)
        if isinstance(literal, ast.Tuple)
        for element in literal.elts
        if isinstance(element, ast.Constant)
    }


def test_every_source_cited_is_in_the_matrix() -> None:
    table, keys = matrix.load(), cited()
    assert keys
    for module, key in sorted(keys):
        try:
            ((title, _url),) = table.references([key])
        except KeyError:
            pytest.fail(f"{module} cites {key!r}, which is no source of the matrix")
        assert title
