"""What the tables are and what a row of each may say: data, and the check of one row.

A new *key* needs a word in ROWS and a reader in `preflight.matrix`; a new row needs nothing here.
"""

from __future__ import annotations

import re
from typing import Any, Dict, Iterator, List, Mapping, Pattern, Tuple

#: {file stem: its tables}; sources.toml, a table of tables, stands apart.
TABLES: Dict[str, Tuple[str, ...]] = {
    "drivers": ("branch",),
    "toolkits": ("toolkit", "release"),
    "architectures": ("architecture",),
    "gpus": ("gpu",),
    "forward": ("package", "class", "forward_rule"),
    "torch": ("build", "detail", "install"),
    "pins": ("pins", "metapackage"),
    "companions": ("companion", "loose"),
    "tensorflow": ("tensorflow",),
    "jax": ("jax", "jax_requires", "jax_era"),
    "extensions": ("extension_package", "extension"),
    "ngc": ("ngc", "ngc_image", "ngc_framework"),
    "errors": ("error",),
    "libraries": ("library",),
    "require": ("requirement", "brands", "require_rule", "container_variable"),
    "marks": ("mark", "job_kind"),
    "platforms": ("variable",),
    "renamed": ("renamed",),
    "nccl": ("nccl_variable", "nccl_reader", "nccl_preset"),
}
SOURCES = "sources"
#: Tables that are directories, with any number of files.
DIRECTORIES = ("platforms",)

#: What a row may say, and what it must say ("!").
ROWS: Dict[str, str] = {
    "branch": "branch! cuda! first released kind eol oldest! newest! drops adds open_modules",
    "toolkit": "cuda! driver branch! minimum! ptx! min_capability! max_capability! targets! "
    "deprecated",
    "release": "version! label! month! cudart driver compat_driver",
    "architecture": "name! capabilities! first_branch last_branch first_cuda! last_cuda "
    "compat_until compat_trust jetson",
    "gpu": "name! names capability! class! forward! first_branch first_driver mig pci",
    "package": "cuda! documented listed stale noted excluded newer",
    "class": "class! eligible! error",
    "forward_rule": "topic! meaning!",
    "build": "versions! platform! variant! cuda default sm sm_unsure ptx ptx_unsure pythons "
    "min_glibc cxx11_abi",
    "detail": "versions! platforms! variant! origin libs! cudnn cudnn_linkage nccl nccl_linkage! "
    "nccl_trust layout! layout_trust",
    "install": "versions! variants options!",
    "pins": "versions! platforms! pythons marker pins requires!",
    "metapackage": "name! version! requires!",
    "companion": "torch! released torchvision! torchaudio! torchtext torchdata triton built",
    "loose": "package! versions! torch built",
    "tensorflow": "versions! package! cuda! cudnn! sm ptx pythons! min_glibc! compiler! libs! pins",
    "jax": "package! versions! cuda_major! cuda min_cuda cudnn nccl built_cudnn built_nccl sm ptx "
    "python min_branch!",
    "jax_requires": "package! versions! requires!",
    "jax_era": "package! range! cuda! cudnn",
    "extension_package": "package! also binds! wheels evidence! errors",
    "extension": "package! versions range torch torch_range built requires python pythons cuda "
    "min_cuda cpu cuda_match cxx11_abis flash_attn",
    "ngc": "release! cuda! cuda_release driver says bases excluded stale cudnn nccl ubuntu! "
    "min_capability! capability_trust",
    "ngc_image": "product! releases! tags! pythons!",
    "ngc_framework": "product! release! versions!",
    "error": "domain! codes names messages cause! tell fix!",
    "library": "names! cuda_major wheel apt",
    "requirement": "releases! cuda! driver tesla branches brands systems seen",
    "brands": "brands! names!",
    "require_rule": "topic! form meaning!",
    "container_variable": "name! value! meaning!",
    "mark": "platform! variables! title! world nodes node_rank processes",
    "job_kind": "platform! kind! variables!",
    "variable": "platform! name! product! meaning! type! form relation example override",
    "renamed": "name! now since product! meaning!",
    "nccl_variable": "name! since until kind! bounds choices initial renamed renamed_since instead",
    "nccl_reader": "who! names! prefixes",
    "nccl_preset": "name! platform! module instances! settings! without",
}
COMMON = "note trust! source!"

#: What makes two rows of a table the same row. A list among SPLIT stands for a row of each of its
#: items, so that a row can take the place of a part of another.
IDENTITY: Dict[str, Tuple[str, ...]] = {
    "branch": ("branch",),
    "toolkit": ("cuda",),
    "release": ("version",),
    "architecture": ("name",),
    "gpu": ("name",),
    "package": ("cuda",),
    "class": ("class",),
    "forward_rule": ("topic",),
    "build": ("platform", "variant", "versions"),
    "detail": ("variant", "origin", "platforms", "versions"),
    "install": ("variants", "versions"),
    "pins": ("pythons", "platforms", "versions"),
    "metapackage": ("name", "version"),
    "companion": ("torch",),
    "loose": ("package", "versions"),
    "tensorflow": ("package", "versions"),
    "jax": ("package", "versions"),
    "jax_requires": ("package", "versions"),
    "jax_era": ("package", "range"),
    "extension_package": ("package", "binds"),
    "extension": ("package", "range", "torch", "torch_range", "versions"),
    "ngc": ("release",),
    "ngc_image": ("product", "releases"),
    "ngc_framework": ("product", "release"),
    "error": ("domain", "cause"),
    "library": ("cuda_major", "names"),
    "requirement": ("systems", "seen", "releases"),
    "brands": ("brands",),
    "require_rule": ("topic", "form"),
    "container_variable": ("name", "value"),
    "mark": ("platform", "variables"),
    "job_kind": ("platform", "kind", "variables"),
    "variable": ("platform", "name", "product"),
    "renamed": ("name",),
    "nccl_variable": ("name",),
    "nccl_reader": ("who",),
    "nccl_preset": ("name",),
}
SPLIT = ("versions", "releases", "platforms", "variants")

INTEGERS = {"branch", "first_branch", "last_branch", "error", "cuda_major", "min_branch"}
INTEGER_LISTS = {
    "documented", "listed", "stale", "noted", "excluded", "newer", "codes", "tesla", "branches",
}  # fmt: skip
BOOLEANS = {"mig", "jetson", "cxx11_abi", "cpu"}
STRING_LISTS = {
    "drops", "targets", "capabilities", "names", "pci", "versions", "default", "sm", "sm_unsure",
    "ptx", "ptx_unsure", "source", "platforms", "variants", "layout", "pins", "requires",
    "torchvision", "torchaudio", "torchtext", "torchdata", "also", "errors", "says", "bases",
    "releases", "tags", "messages", "systems", "seen", "variables",
    "choices", "prefixes", "instances",
    "settings", "without",
}  # fmt: skip
#: Keys that have another type in one table than elsewhere.
OTHER_TYPES: Dict[Tuple[str, str], type] = {
    ("toolkit", "ptx"): str, ("ngc", "stale"): bool, ("jax_era", "cuda"): list,
    ("jax_era", "cudnn"): list, ("extension", "cuda"): list, ("extension", "torch"): list,
}  # fmt: skip

TRUST = ("primary", "secondary", "derived")
#: The values that a key may have; "table.key" where it is one table's only.
CHOICES: Dict[str, Tuple[str, ...]] = {
    "trust": TRUST,
    "compat_trust": TRUST,
    "capability_trust": TRUST,
    "nccl_trust": TRUST,
    "layout_trust": TRUST,
    "gpu.forward": ("yes", "no", "some", "unknown"),
    "class.eligible": ("yes", "no", "some", "unknown"),
    "build.platform": ("x86_64", "aarch64"),
    "platforms": ("x86_64", "aarch64"),
    "detail.libs": ("bundled", "wheels", "metapackage", "mixed"),
    "cudnn_linkage": ("static", "bundled", "wheel"),
    "nccl_linkage": ("static", "dynamic"),
    "origin": ("package index", "download.pytorch.org"),
    "tensorflow.package": ("tensorflow", "tensorflow-gpu"),
    "tensorflow.libs": ("system", "extra"),
    "binds": ("torch-version", "torch-abi", "cuda-version"),
    "cuda_match": ("major", "minor"),
    "cxx11_abis": ("both",),
    "domain": ("cuda", "nvml", "loader", "container", "torch"),
    "world": ("nodes", "processes", "tasks"),
    "variable.form": ("positive", "natural", "port", "object", "list", "cluster"),
    "nccl_variable.kind": ("flag", "number", "choice", "tokens", "list", "text", "none"),
    "nccl_preset.platform": ("pai",),
}

_CUDA = (r"\d+\.\d+", "CUDA version (as in 12.4)")
_DRIVER = (r"\d+\.\d+(\.\d+)?", "version (as in 535.104.05)")
_CAPABILITY = (r"\d+\.\d", "compute capability (as in 8.6)")
_TARGET = (r"sm_\d{2,3}[af]?", "compiler target (as in sm_90)")
_MONTH = (r"\d{4}(-\d\d)?", "month (as in 2024-03)")
_DAY = (r"\d{4}-\d\d-\d\d", "day (as in 2024-03-01)")
_NAME = (r"[a-z0-9]+(-[a-z0-9]+)*", "name (small letters, digits and hyphens)")
_NCCL = (r"\d+\.\d+(\.\d+)?", "release of NCCL (as in 2.18)")
_NGC = (r"\d\d\.\d\d", "month of NGC (as in 24.03)")
#: The form of a value, or of each in a list; "table.key" where it is one table's only.
FORMS: Dict[str, Tuple[str, str]] = {
    "cuda": _CUDA,
    "first_cuda": _CUDA,
    "last_cuda": _CUDA,
    "min_cuda": _CUDA,
    "compat_until": _CUDA,
    "toolkit.ptx": (r"\d+\.\d+", "PTX ISA (as in 8.4)"),
    "jax_era.cuda": (r".+", "requirement"),
    "first": _DRIVER,
    "minimum": _DRIVER,
    "first_driver": _DRIVER,
    "compat_driver": _DRIVER,
    "cudart": _DRIVER,
    "driver": _DRIVER,
    "requirement.driver": (r"\d+(\.\d+)*", "driver version"),
    "capability": _CAPABILITY,
    "capabilities": _CAPABILITY,
    "min_capability": _CAPABILITY,
    "max_capability": _CAPABILITY,
    "sm": _CAPABILITY,
    "sm_unsure": _CAPABILITY,
    "ptx": _CAPABILITY,
    "ptx_unsure": _CAPABILITY,
    "targets": _TARGET,
    "pci": (r"10de:[0-9a-f]{4}", "PCI vendor and device of NVIDIA (as in 10de:20b2)"),
    "branch.released": (r"\d{4}(-\d\d(-\d\d)?)?", "date (as in 2024-03)"),
    "companion.released": _DAY,
    "eol": (r"past|\d{4}-\d\d", "month (as in 2026-06), nor 'past'"),
    "month": _MONTH,
    "seen": (r"\d{4}-\d\d", "month (as in 2024-03)"),
    "release.version": (r"\d+\.\d+\.\d+", "release of CUDA (as in 12.4.1)"),
    "build.pythons": (
        r"3\.\d+(-3\.\d+)?t?(,3\.\d+(-3\.\d+)?t?)*", "range of Pythons (as in 3.9-3.12,3.13t)",
    ),
    "min_glibc": (r"2\.\d+", "version of glibc (as in 2.28)"),
    "since": _NCCL,
    "until": _NCCL,
    "renamed_since": (r"\d+\.\d+", "release of torch (as in 2.2)"),
    "bounds": (r"-?\d+\.\.(-?\d+)?", "range (as in 0..31)"),
    "nccl_variable.name": (r"NCCL_[A-Z0-9_]+", "variable of NCCL's"),
    "nccl_preset.settings": (r"NCCL_[A-Z0-9_]+=.*", "setting (as in NCCL_IB_TC=136)"),
    "ngc.release": _NGC,
    "ngc_framework.release": _NGC,
    "ngc_image.releases": _NGC,
    "mark.platform": _NAME,
    "job_kind.platform": _NAME,
    "variable.platform": _NAME,
    "variables": (r"[A-Za-z_][A-Za-z0-9_]*", "name of a variable"),
}  # fmt: skip
_COMPILED: Dict[str, Pattern[str]] = {}


def stem(file: str) -> str:
    """The table that a file is of, or is a part of: "platforms/slurm" is of "platforms"."""
    directory = file.partition("/")[0]
    return directory if directory in DIRECTORIES else file


def place(stem: str, kind: str, number: int, row: Any) -> str:
    """Where a row is: "gpus.toml: [[gpu]] 12 (NVIDIA A10)"; number 0 is left out."""
    count = f" {number}" if number else ""
    name = label(kind, row)
    return f"{stem}.toml: [[{kind}]]{count}" + (f" ({name})" if name else "")


def label(kind: str, row: Any) -> str:
    """What a row is about, in a few words: its identity."""
    if not isinstance(row, Mapping):
        return ""
    words = []
    for column in IDENTITY.get(kind, ()):
        value = row.get(column)
        if isinstance(value, list):
            value = str(value[0]) + (", …" if len(value) > 1 else "") if value else None
        if value is not None:
            words.append(_clipped(" ".join(str(value).split())))
    return " ".join(words)


def file_problems(found: Mapping[str, Any]) -> Iterator[str]:
    """What is ill-formed in tables ({file stem: its TOML}), each problem with file and row."""
    for file, table in found.items():
        if file == SOURCES:
            yield from _problems_of_sources(table)
        elif stem(file) not in TABLES or file in DIRECTORIES:
            known = ", ".join((*TABLES, SOURCES))
            name = _clipped(" ".join(file.split()))
            yield f"{name}.toml: no table is called so; there are {known}"
        else:
            kinds = TABLES[stem(file)]
            for kind, rows in table.items():
                if kind in kinds and isinstance(rows, list):
                    yield from _problems_of_rows(file, kind, rows)
                else:
                    known = ", ".join(f"[[{one}]]" for one in kinds)
                    yield f"{file}.toml: {_clipped(repr(kind))} is none of its tables, {known}"


def _problems_of_sources(table: Mapping[str, Any]) -> Iterator[str]:
    rows = table.get("source", {})
    if set(table) - {"source"} or not isinstance(rows, Mapping):
        yield f"{SOURCES}.toml: it holds [source.KEY] tables and nothing else"
        return
    for key, row in rows.items():
        for problem in source_problems(key, row):
            yield f"{SOURCES}.toml: [source.{_clipped(key)}]: {problem}"


def _problems_of_rows(stem: str, kind: str, rows: List[Any]) -> Iterator[str]:
    good: Dict[int, Any] = {}
    for number, row in enumerate(rows, 1):
        where = place(stem, kind, number, row)
        found = list(problems(kind, row))
        yield from (f"{where}: {problem}" for problem in found)
        if found:
            continue
        for before, other in good.items():
            if overlap(kind, row, other):
                yield f"{where}: says again what [[{kind}]] {before} says"
        good[number] = row


def unknown_sources(found: Mapping[str, Any], sources: Mapping[str, Any]) -> Iterator[str]:
    """The rows of well-formed tables that cite a source which is none of `sources`."""
    for stem, table in found.items():
        for kind, rows in table.items() if stem != SOURCES else ():
            for number, row in enumerate(rows, 1):
                for key in row["source"]:
                    if key not in sources:
                        where = place(stem, kind, number, row)
                        yield f"{where}: source {_clipped(repr(key))} is not in {SOURCES}.toml"


def problems(kind: str, row: Any) -> Iterator[str]:
    """What is wrong with a row by itself: keys, types, empty or ill-formed values."""
    if not isinstance(row, Mapping):
        yield "is no table"
        return
    words = f"{ROWS[kind]} {COMMON}".split()
    known = {one.rstrip("!") for one in words}
    for key in row:
        if key not in known:
            yield f"no key is called {_clipped(repr(key))}"
    for word in words:
        if word.endswith("!") and word[:-1] not in row:
            yield f"has no {word[:-1]!r}"
    for key, value in row.items():
        if key in known:
            problem = _value(kind, key, value)
            if problem:
                yield f"{key} {problem}"


def source_problems(key: str, row: Any) -> Iterator[str]:
    """What is wrong with a row of sources.toml."""
    if not isinstance(row, Mapping):
        yield "is no table"
        return
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", key):
        yield "its key is not made of small letters, digits and hyphens"
    for unknown in sorted(set(row) - {"title", "url", "read"}):
        yield f"no key is called {_clipped(repr(unknown))}"
    title, url, read = row.get("title"), row.get("url", "https://"), str(row.get("read", ""))
    if not isinstance(title, str) or not title.strip():
        yield "has no 'title'"
    if not isinstance(url, str) or not url.startswith("https://"):
        yield f"url {_clipped(repr(url))} does not begin with https://"
    if not _is_day(read):
        yield "has no 'read', the day it was read (as in 2026-11-29)"


def _is_day(text: str) -> bool:
    from datetime import date

    if not re.fullmatch(_DAY[0], text, re.ASCII):
        return False
    try:
        date(*(int(part) for part in text.split("-")))
    except ValueError:
        return False
    return text > "2020"


def _value(kind: str, key: str, value: Any) -> str:
    """The first thing wrong with one value; "" when nothing is."""
    wanted = OTHER_TYPES.get((kind, key)) or _type(key)
    if wanted is list:
        return _list(kind, key, value)
    if type(value) is not wanted:
        return f"is not {_WORDS[wanted]}: {_clipped(repr(value))}"
    return _text(kind, key, str(value)) if wanted is str else ""


def _list(kind: str, key: str, value: Any) -> str:
    item = int if key in INTEGER_LISTS else str
    if not isinstance(value, list) or any(type(one) is not item for one in value):
        what = "numbers" if item is int else "strings"
        return f"is not a list of {what}: {_clipped(repr(value))}"
    if item is int:
        ascend = all(a < b for a, b in zip(value, value[1:]))
        return "" if ascend else "do not ascend"
    if not value:
        return "is empty: leave the key out"
    twice = [one for number, one in enumerate(value) if one in value[:number]]
    if twice:
        return f"has {_clipped(repr(twice[0]))} twice"
    return next(filter(None, (_text(kind, key, str(one)) for one in value)), "")


def _text(kind: str, key: str, value: str) -> str:
    if not value.strip() or value.strip() != value:
        return "is empty, or has spaces around it"
    choices = CHOICES.get(f"{kind}.{key}") or CHOICES.get(key)
    if choices and value not in choices:
        return f"{_clipped(repr(value))} is none of {', '.join(choices)}"
    form = FORMS.get(f"{kind}.{key}") or FORMS.get(key)
    if form and not _pattern(form[0]).fullmatch(value):
        return f"{_clipped(repr(value))} is no {form[1]}"
    return ""


def _pattern(text: str) -> Pattern[str]:
    if text not in _COMPILED:
        _COMPILED[text] = re.compile(text, re.ASCII)
    return _COMPILED[text]


def _type(key: str) -> type:
    if key in BOOLEANS:
        return bool
    if key in INTEGERS:
        return int
    return list if key in INTEGER_LISTS | STRING_LISTS else str


_WORDS: Dict[type, str] = {str: "a string", int: "a number", bool: "true or false"}


def _clipped(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "…"


def overlap(kind: str, one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two rows of a table are, at least in part, the same row."""
    for column in IDENTITY[kind]:
        mine, theirs = one.get(column), other.get(column)
        if column in SPLIT and isinstance(mine, list) and isinstance(theirs, list):
            if not set(mine) & set(theirs):
                return False
        elif mine != theirs:
            return False
    return True


def remainder(kind: str, row: Mapping[str, Any], new: Mapping[str, Any]) -> List[Dict[str, Any]]:
    """The rows that stay of `row` where `new`, which overlaps it, takes its place."""
    left: List[Dict[str, Any]] = []
    current = dict(row)
    for column in IDENTITY[kind]:
        if column in SPLIT and isinstance(current.get(column), list):
            rest = [one for one in current[column] if one not in new[column]]
            if rest:
                left.append(_narrowed(current, column, rest))
            current = _narrowed(current, column, [o for o in current[column] if o in new[column]])
    return left


def _narrowed(row: Dict[str, Any], column: str, values: List[Any]) -> Dict[str, Any]:
    found = {**row, column: values}
    if column == "versions" and "default" in row:
        found["default"] = [one for one in row["default"] if one in values]
        if not found["default"]:
            del found["default"]
    return found


def laid_on(kind: str, rows: List[Any], new: List[Any]) -> Tuple[List[Any], List[str]]:
    """What stays of `rows` beside `new` ones of the same table, and labels of those replaced."""
    said: List[str] = []
    for one in new:
        kept: List[Any] = []
        for row in rows:
            if overlap(kind, row, one):
                said.append(label(kind, one))
                kept += remainder(kind, row, one)
            else:
                kept.append(row)
        rows = kept
    return rows, said
