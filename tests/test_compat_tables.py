"""The tables under compat/ are well formed, agree with each other and cite their sources."""

import datetime
import re
from pathlib import Path

import pytest

try:
    import tomllib
except ImportError:  # before Python 3.11
    import tomli as tomllib

COMPAT = Path(__file__).resolve().parents[1] / "compat"

TABLES = {
    "drivers": ("branch",),
    "toolkits": ("toolkit", "release"),
    "architectures": ("architecture",),
    "gpus": ("gpu",),
    "forward": ("package", "class"),
    "torch": ("build",),
}

# What a row may say, and what it must say ("!"). A new key needs a line here and a reader in
# preflight.matrix.
KEYS = {
    "branch": "branch! cuda! first released! kind! eol oldest! newest! drops adds open_modules",
    "toolkit": "cuda! driver branch! minimum! ptx! min_capability! max_capability! targets! "
    "deprecated",
    "release": "version! label! month! cudart driver compat_driver",
    "architecture": "name! capabilities! first_branch last_branch first_cuda! last_cuda "
    "compat_until compat_trust jetson",
    "gpu": "name! names capability! class! forward! first_branch first_driver mig pci",
    "package": "cuda! documented listed stale noted excluded newer",
    "class": "class! eligible! error",
    "build": "versions! platform! variant! cuda default sm sm_unsure ptx ptx_unsure pythons",
}
COMMON = "note trust! source!"

INTEGERS = {"branch", "first_branch", "last_branch", "error"}
INTEGER_LISTS = {"documented", "listed", "stale", "noted", "excluded", "newer"}
BOOLEANS = {"mig", "jetson"}
STRING_LISTS = {
    "drops", "targets", "capabilities", "names", "pci", "versions", "default", "sm", "sm_unsure",
    "ptx", "ptx_unsure", "source",
}  # fmt: skip
TRUST = {"primary", "secondary", "derived"}

# A driver branch that reports a CUDA for which no toolkit exists.
DRIVER_ONLY_CUDA = {"12.7"}

# (variant, capability): why a wheel holds code that its toolkit cannot make. None is known.
UNEXPECTED_CODE = {}


def load(name):
    with open(str(COMPAT / (name + ".toml")), "rb") as file:
        return tomllib.load(file)


DATA = {name: load(name) for name in TABLES}
SOURCES = load("sources")["source"]


def rows(table):
    for name, tables in TABLES.items():
        if table in tables:
            return DATA[name][table]
    raise KeyError(table)


def label(table, row):
    keys = {"architecture": "name", "gpu": "name", "toolkit": "cuda", "package": "cuda"}
    keys.update(branch="branch", release="version", build="versions")
    return "{} {}".format(table, row.get(keys.get(table, "class")))


EVERY_ROW = [(table, row) for tables in TABLES.values() for table in tables for row in rows(table)]


def version(text):
    assert re.match(r"^\d+(\.\d+)+$", text), f"not a version: {text!r}"
    return tuple(int(part) for part in text.split("."))


def capability(text):
    assert re.match(r"^\d+\.\d$", text), f"not a compute capability: {text!r}"
    return version(text)


def target_capability(target):
    """The capability of a compiler target: sm_120a is 12.0."""
    match = re.match(r"^sm_(\d+)(\d)[af]?$", target)
    assert match, target
    return int(match.group(1)), int(match.group(2))


def ascending(values):
    values = list(values)
    return all(a < b for a, b in zip(values, values[1:]))


BRANCHES = {row["branch"]: row for row in rows("branch")}
TOOLKITS = {row["cuda"]: row for row in rows("toolkit")}
ARCHITECTURES = {row["name"]: row for row in rows("architecture")}
BY_CAPABILITY = {c: row for row in rows("architecture") for c in row["capabilities"]}


# ---- every row


def test_files_are_the_known_ones():
    assert {path.stem for path in COMPAT.glob("*.toml")} == set(TABLES) | {"sources"}
    for name, tables in TABLES.items():
        assert set(DATA[name]) == set(tables)
        assert all(rows(table) for table in tables)


@pytest.mark.parametrize("table", sorted(KEYS))
def test_rows_have_the_keys_the_matrix_reads(table):
    words = (KEYS[table] + " " + COMMON).split()
    known = {word.rstrip("!") for word in words}
    required = {word.rstrip("!") for word in words if word.endswith("!")}
    for row in rows(table):
        assert set(row) <= known, (label(table, row), set(row) - known)
        assert required <= set(row), (label(table, row), required - set(row))


@pytest.mark.parametrize("table", sorted(KEYS))
def test_values_have_their_type_and_are_never_empty(table):
    for row in rows(table):
        for key, value in row.items():
            where = (label(table, row), key)
            if key in BOOLEANS:
                assert isinstance(value, bool), where
            elif key in INTEGERS:
                assert isinstance(value, int) and not isinstance(value, bool), where
            elif key in INTEGER_LISTS:
                assert all(isinstance(item, int) for item in value), where
                assert ascending(value), where
            elif key in STRING_LISTS and (table, key) != ("toolkit", "ptx"):
                assert isinstance(value, list), where
                assert value and all(isinstance(item, str) and item for item in value), where
                assert len(set(value)) == len(value), where
            else:
                assert isinstance(value, str) and value.strip() == value and value, where


def test_every_row_says_how_far_to_trust_it_and_why():
    for table, row in EVERY_ROW:
        assert row["trust"] in TRUST, label(table, row)
        unknown = set(row["source"]) - set(SOURCES)
        assert not unknown, (label(table, row), unknown)
        assert row.get("compat_trust", "primary") in TRUST, label(table, row)


def test_every_source_has_a_title_and_the_day_it_was_read():
    for key, source in SOURCES.items():
        assert re.match(r"^[a-z0-9]+(-[a-z0-9]+)*$", key), key
        assert set(source) <= {"title", "url", "read"}, key
        assert source["title"], key
        day = datetime.datetime.strptime(source["read"], "%Y-%m-%d").date()
        assert datetime.date(2020, 1, 1) < day, key
        assert source.get("url", "https://").startswith("https://"), key


def test_every_source_is_used():
    used = {key for _, row in EVERY_ROW for key in row["source"]}
    rules = COMPAT.parent / "src" / "preflight" / "rules"
    used |= set(re.findall(r'"([a-z0-9-]+)"', "".join(p.read_text() for p in rules.glob("*.py"))))
    assert set(SOURCES) - used == set()


def test_versions_parse():
    for table, row in EVERY_ROW:
        for key in ("cuda", "first_cuda", "last_cuda", "compat_until", "ptx"):
            if isinstance(row.get(key), str):
                assert len(version(row[key])) == 2, (label(table, row), key)
        for key in ("first", "driver", "minimum", "first_driver", "compat_driver", "cudart"):
            if key in row:
                assert len(version(row[key])) in (2, 3), (label(table, row), key)


def test_cuda_versions_exist_as_toolkits():
    oldest = min(map(version, TOOLKITS))
    for table, row in EVERY_ROW:
        for key in ("cuda", "first_cuda", "last_cuda"):
            value = row.get(key)
            if value is None or version(value) < oldest:
                assert value is None or table == "architecture", label(table, row)
            elif value in DRIVER_ONLY_CUDA:
                assert table == "branch" and "note" in row, label(table, row)
            else:
                assert value in TOOLKITS, (label(table, row), key)


# ---- drivers


def test_branches_ascend_and_their_cuda_never_falls():
    assert ascending(row["branch"] for row in rows("branch"))
    cuda = [version(row["cuda"]) for row in rows("branch")]
    assert cuda == sorted(cuda)


def test_branch_details():
    for row in rows("branch"):
        if "first" in row:
            assert version(row["first"])[0] == row["branch"]
        assert re.match(r"^\d{4}(-\d\d(-\d\d)?)?$", row["released"]), row["branch"]
        assert re.match(r"^(past|\d{4}-\d\d)$", row.get("eol", "past")), row["branch"]
        for name in [row["oldest"], row["newest"]] + row.get("drops", []):
            assert name in ARCHITECTURES, (row["branch"], name)


def test_branches_and_architectures_tell_the_same_story():
    """The branch after an architecture's last one drops it; oldest and newest follow from that."""
    ordered = sorted(BRANCHES)
    dropped = {}
    for branch in ordered:
        for name in BRANCHES[branch].get("drops", []):
            assert name not in dropped
            dropped[name] = branch
    discrete = [row for row in rows("architecture") if not row.get("jetson")]
    ended = {row["name"]: row["last_branch"] for row in discrete if "last_branch" in row}
    assert set(dropped) == set(ended)
    for name, last in ended.items():
        assert ordered[ordered.index(last) + 1] == dropped[name], name
    for branch in ordered:
        alive = [
            row["name"]
            for row in discrete
            if row.get("first_branch", 0) <= branch <= row.get("last_branch", 9999)
        ]
        assert BRANCHES[branch]["oldest"] == alive[0], branch
        assert BRANCHES[branch]["newest"] in alive, branch


# ---- toolkits


def test_toolkits_ascend():
    assert ascending(version(row["cuda"]) for row in rows("toolkit"))
    assert sorted(map(version, TOOLKITS))[0] == (9, 0)
    ptx = [version(row["ptx"]) for row in rows("toolkit")]
    assert ptx == sorted(ptx)


def test_toolkit_runs_on_its_own_driver():
    for row in rows("toolkit"):
        if "driver" in row:
            assert version(row["minimum"]) <= version(row["driver"]), row["cuda"]
            assert version(row["driver"])[0] == row["branch"], row["cuda"]
        else:
            assert version(row["minimum"])[0] <= row["branch"], row["cuda"]
        assert BRANCHES[row["branch"]]["cuda"] == row["cuda"]


def test_floors_of_minor_version_compatibility():
    floors = {11: "450.80.02", 12: "525.60.13", 13: "580.65.06"}
    for row in rows("toolkit"):
        major = version(row["cuda"])[0]
        if major in floors and row["cuda"] != "11.0":
            assert row["minimum"] == floors[major], row["cuda"]
    assert TOOLKITS["11.0"]["minimum"] == "450.36.06"


def test_toolkit_targets_match_its_capabilities():
    for row in rows("toolkit"):
        targets = [target_capability(target) for target in row["targets"]]
        assert targets == sorted(targets), row["cuda"]
        assert min(targets) == capability(row["min_capability"]), row["cuda"]
        assert max(targets) == capability(row["max_capability"]), row["cuda"]


def test_releases_belong_to_a_toolkit():
    assert ascending(version(row["version"]) for row in rows("release"))
    first = {}
    for row in rows("release"):
        cuda = ".".join(row["version"].split(".")[:2])
        toolkit = TOOLKITS[cuda]
        assert re.match(r"^\d{4}(-\d\d)?$", row["month"]), row["version"]
        if "cudart" in row:
            assert row["cudart"].startswith(cuda + "."), row["version"]
        for key in ("driver", "compat_driver"):
            if key in row and row["label"] != "Developer preview":
                assert version(row[key])[0] == toolkit["branch"], (row["version"], key)
        if row["label"] == "GA":
            assert cuda not in first
            first[cuda] = row
    assert set(first) == set(TOOLKITS)
    for cuda, row in first.items():
        assert row.get("driver") == TOOLKITS[cuda].get("driver"), cuda


# ---- architectures and GPUs


def test_architectures_are_told_apart():
    assert len(ARCHITECTURES) == len(rows("architecture"))
    capabilities = [capability(c) for row in rows("architecture") for c in row["capabilities"]]
    assert ascending(capabilities)


def test_architectures_follow_the_toolkits():
    oldest = min(map(version, TOOLKITS))
    for row in rows("architecture"):
        own = {capability(c) for c in row["capabilities"]}
        able = [
            version(cuda)
            for cuda, toolkit in TOOLKITS.items()
            if own & {target_capability(target) for target in toolkit["targets"]}
        ]
        if version(row["first_cuda"]) >= oldest:
            assert min(able) == version(row["first_cuda"]), row["name"]
        if "last_cuda" not in row:
            assert max(able) == max(map(version, TOOLKITS)), row["name"]
        elif able:
            assert max(able) == version(row["last_cuda"]), row["name"]
        else:
            assert version(row["last_cuda"]) < oldest, row["name"]


def test_compat_libraries_end_with_the_last_branch():
    for row in rows("architecture"):
        assert ("compat_until" in row) == ("last_branch" in row), row["name"]
        if "last_branch" in row:
            assert row["compat_until"] == BRANCHES[row["last_branch"]]["cuda"], row["name"]


def squeeze(name):
    """As forgiving as a reader of names may be."""
    name = re.sub(r"[^a-z0-9]", "", name.lower())
    return name[6:] if name.startswith("nvidia") else name


def test_gpu_names_are_unique():
    owner = {}
    for row in rows("gpu"):
        for name in {squeeze(name) for name in [row["name"]] + row.get("names", [])}:
            assert name not in owner, (row["name"], owner.get(name))
            owner[name] = row["name"]


def test_gpus_agree_with_their_architecture():
    classes = {row["class"]: row for row in rows("class")}
    for row in rows("gpu"):
        name = row["name"]
        assert row["capability"] in BY_CAPABILITY, name
        architecture = BY_CAPABILITY[row["capability"]]
        assert row["class"] in classes, name
        assert row["forward"] in {"yes", "no", "some", "unknown"}, name
        assert row["forward"] == classes[row["class"]]["eligible"], name
        jetson = row["class"] == "jetson"
        if not jetson:
            assert ("first_branch" in row) == ("first_branch" in architecture), name
        if "first_branch" in row:
            assert row["first_branch"] in BRANCHES, name
            assert row["first_branch"] >= architecture["first_branch"], name
        if "first_driver" in row:
            assert version(row["first_driver"])[0] >= row["first_branch"], name
        if row.get("mig"):
            assert capability(row["capability"]) >= (8, 0), name


def test_a_pci_id_stands_for_one_capability():
    seen = {}
    for row in rows("gpu"):
        for pci in row.get("pci", []):
            assert re.match(r"^10de:[0-9a-f]{4}$", pci), row["name"]
            assert seen.setdefault(pci, row["capability"]) == row["capability"], pci


# ---- forward compatibility


def test_packages_ascend_and_miss_no_toolkit():
    assert ascending(version(row["cuda"]) for row in rows("package"))
    covered = {row["cuda"] for row in rows("package")}
    assert covered == {c for c in TOOLKITS if (10, 0) <= version(c) <= (13, 4)}


def test_packages_and_branches():
    for row in rows("package"):
        cuda = version(row["cuda"])
        own = {branch for branch, b in BRANCHES.items() if b["cuda"] == row["cuda"]}
        lists = {key: set(row.get(key, [])) for key in INTEGER_LISTS}
        for key, branches in lists.items():
            assert branches <= set(BRANCHES), (row["cuda"], key)
        said_yes = lists["documented"] | lists["listed"] | lists["noted"]
        assert said_yes, row["cuda"]
        assert not lists["excluded"] & said_yes, row["cuda"]
        assert (said_yes & lists["newer"]) <= own, row["cuda"]
        assert not lists["documented"] & lists["newer"], row["cuda"]
        assert all(version(BRANCHES[b]["cuda"]) < cuda for b in lists["documented"]), row["cuda"]
        assert all(version(BRANCHES[b]["cuda"]) <= cuda for b in said_yes), row["cuda"]
        assert all(version(BRANCHES[b]["cuda"]) >= cuda for b in lists["newer"]), row["cuda"]
        assert ("documented" in row) == ("newer" in row) == (cuda >= (12, 2)), row["cuda"]


def test_classes():
    names = [row["class"] for row in rows("class")]
    assert len(set(names)) == len(names)
    assert set(names) == {row["class"] for row in rows("gpu")}
    for row in rows("class"):
        assert row["eligible"] in {"yes", "no", "some", "unknown"}
        assert row.get("error", 804) == 804
        assert row["eligible"] != "no" or "error" in row


# ---- torch


def test_builds_are_told_apart():
    seen = set()
    for row in rows("build"):
        assert row["platform"] in {"x86_64", "aarch64"}
        for text in row["versions"]:
            assert len(version(text)) == 3
            key = (text, row["platform"], row["variant"])
            assert key not in seen, key
            seen.add(key)


def test_one_default_for_each_version_and_platform():
    defaults = {}
    for row in rows("build"):
        assert set(row.get("default", [])) <= set(row["versions"]), row["variant"]
        for text in row.get("default", []):
            key = (text, row["platform"])
            assert key not in defaults, key
            defaults[key] = row["variant"]
    published = {(text, row["platform"]) for row in rows("build") for text in row["versions"]}
    # The LTS release was never on the package index.
    assert published - set(defaults) == {("1.8.2", "x86_64")}


def test_variants_name_their_cuda():
    for row in rows("build"):
        variant = row["variant"]
        if variant.startswith("cu"):
            assert variant == "cu" + row["cuda"].replace(".", "")
            assert row["sm"], variant
        else:
            assert variant == "cpu" or re.match(r"^rocm\d+(\.\d+)+$", variant), variant
            assert not {"cuda", "sm", "sm_unsure", "ptx", "ptx_unsure"} & set(row), variant


def test_wheels_hold_what_their_toolkit_can_make():
    found = {}
    for row in rows("build"):
        if "cuda" not in row:
            continue
        toolkit = TOOLKITS[row["cuda"]]
        low, high = capability(toolkit["min_capability"]), capability(toolkit["max_capability"])
        for key in ("sm", "sm_unsure", "ptx", "ptx_unsure"):
            values = [capability(c) for c in row.get(key, [])]
            assert ascending(values), (row["variant"], key)
            for text in row.get(key, []):
                inside = low <= capability(text) <= high
                if not inside or "sm_" + text.replace(".", "") not in toolkit["targets"]:
                    found[row["variant"], text] = row["versions"]
        assert not set(row["sm"]) & set(row.get("sm_unsure", [])), row["variant"]
        assert not set(row.get("ptx", [])) & set(row.get("ptx_unsure", [])), row["variant"]
    assert set(found) == set(UNEXPECTED_CODE), found


def test_python_ranges():
    for row in rows("build"):
        for part in row.get("pythons", "3.8").split(","):
            match = re.match(r"^3\.(\d+)(?:-3\.(\d+))?t?$", part)
            assert match, (row["versions"], part)
            assert int(match.group(1)) <= int(match.group(2) or match.group(1))
