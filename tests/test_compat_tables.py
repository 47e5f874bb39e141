"""The tables under compat/ are well formed, agree with each other and cite their sources."""

import datetime
import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

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
    "forward": ("package", "class", "forward_rule"),
    "torch": ("build", "detail", "install"),
    "pins": ("pins", "metapackage"),
    "companions": ("companion", "loose"),
    "tensorflow": ("tensorflow",),
    "jax": ("jax", "jax_requires", "jax_era"),
    "extensions": ("extension_package", "extension"),
    "ngc": ("ngc", "ngc_image", "ngc_framework"),
    "errors": ("error",),
    "require": ("requirement", "brands", "require_rule", "container_variable"),
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
    "forward_rule": "topic! meaning!",
    "build": "versions! platform! variant! cuda default sm sm_unsure ptx ptx_unsure pythons "
    "min_glibc! cxx11_abi",
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
    "requirement": "releases! cuda! driver tesla branches brands systems seen",
    "brands": "brands! names!",
    "require_rule": "topic! form meaning!",
    "container_variable": "name! value! meaning!",
}
COMMON = "note trust! source!"

INTEGERS = {"branch", "first_branch", "last_branch", "error", "cuda_major", "min_branch"}
INTEGER_LISTS = {
    "documented", "listed", "stale", "noted", "excluded", "newer", "codes", "tesla", "branches",
}  # fmt: skip
BOOLEANS = {"mig", "jetson", "cxx11_abi", "cpu"}
STRING_LISTS = {
    "drops", "targets", "capabilities", "names", "pci", "versions", "default", "sm", "sm_unsure",
    "ptx", "ptx_unsure", "source", "platforms", "variants", "layout", "pins", "requires",
    "torchvision", "torchaudio", "torchtext", "torchdata", "also", "errors", "says", "bases",
    "releases", "tags", "messages", "systems", "seen",
}  # fmt: skip
#: Keys that have another type in one table than elsewhere.
OTHER_TYPES = {
    ("toolkit", "ptx"): str, ("ngc", "stale"): bool, ("jax_era", "cuda"): list,
    ("jax_era", "cudnn"): list, ("extension", "cuda"): list, ("extension", "torch"): list,
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
    keys.update(branch="branch", release="version", companion="torch", error="cause")
    key = keys.get(table) or next((k for k in ("versions", "releases", "package") if k in row), "")
    return f"{table} {row.get(key) or next(iter(row.values()))}"


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


def as_list(value):
    return value if isinstance(value, list) else [value]


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
            kind = OTHER_TYPES.get((table, key)) or type_of(key)
            if kind is list and key in INTEGER_LISTS:
                assert all(isinstance(item, int) for item in value), where
                assert ascending(value), where
            elif kind is list:
                assert isinstance(value, list), where
                assert value and all(isinstance(item, str) and item for item in value), where
                assert len(set(value)) == len(value), where
            else:
                assert type(value) is kind, where
                assert kind is not str or (value.strip() == value and value), where


def type_of(key):
    if key in BOOLEANS:
        return bool
    if key in INTEGERS:
        return int
    return list if key in INTEGER_LISTS | STRING_LISTS else str


def test_every_row_says_how_far_to_trust_it_and_why():
    for table, row in EVERY_ROW:
        assert row["trust"] in TRUST, label(table, row)
        unknown = set(row["source"]) - set(SOURCES)
        assert not unknown, (label(table, row), unknown)
        for key in ("compat_trust", "capability_trust", "nccl_trust", "layout_trust"):
            assert row.get(key, "primary") in TRUST, label(table, row)


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
        for key in ("cuda", "first_cuda", "last_cuda", "compat_until", "ptx", "min_cuda"):
            if isinstance(row.get(key), str):
                assert len(version(row[key])) == 2, (label(table, row), key)
        for key in ("first", "driver", "minimum", "first_driver", "compat_driver", "cudart"):
            if key in row and table != "requirement":
                assert len(version(row[key])) in (2, 3), (label(table, row), key)


#: Tables whose `versions` are those of a Python package, in the spelling of `packaging`.
NORMALISED = ("build", "detail", "install", "pins", "loose", "tensorflow", "jax", "jax_requires",
              "extension", "ngc_framework")  # fmt: skip


def test_versions_of_packages_are_normalised_and_ascend():
    for table in NORMALISED:
        for row in rows(table):
            versions = row.get("versions", [])
            assert all(str(Version(text)) == text for text in versions), label(table, row)
            assert ascending(map(Version, versions)), label(table, row)
    for row in rows("companion"):
        for key in ("torchvision", "torchaudio", "torchtext", "torchdata"):
            versions = row.get(key, [])
            assert all(str(Version(text)) == text for text in versions), row["torch"]
            assert ascending(map(Version, versions)), row["torch"]


def test_requirements_and_ranges_parse_and_are_in_order():
    for table, row in EVERY_ROW:
        for key in ("requires", "pins"):
            texts = row.get(key, [])
            assert [str(Requirement(text)) for text in texts] == texts, label(table, row)
            assert len(set(texts)) == len(texts), label(table, row)
            assert table == "extension" or texts == sorted(texts), label(table, row)
        for key in ("range", "torch_range", "python", "triton"):
            assert SpecifierSet(row.get(key, "")) is not None, label(table, row)


def test_cuda_versions_exist_as_toolkits():
    oldest = min(map(version, TOOLKITS))
    for table, row in EVERY_ROW:
        if table == "jax_era":
            continue  # specifiers
        values = [
            (key, value)
            for key in ("cuda", "first_cuda", "last_cuda", "min_cuda")
            for value in as_list(row.get(key, []))
        ]
        for key, value in values:
            if version(value) < oldest:
                assert table == "architecture", label(table, row)
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


BUILDS = {
    (text, row["platform"], row["variant"]): row
    for row in rows("build")
    for text in row["versions"]
}
TORCH = {text for text, _, _ in BUILDS}
DEFAULTS = {
    (text, row["platform"]): row["variant"]
    for row in rows("build")
    for text in row.get("default", [])
}


def test_glibc_and_abi_follow_the_build_image():
    """From 2.7 on everything was built on a newer system, in 2.6.0 only cu126."""
    for (text, platform, variant), row in BUILDS.items():
        new = Version(text) >= Version("2.7") or (text, variant) == ("2.6.0", "cu126")
        if platform == "x86_64":
            assert row["cxx11_abi"] is new, (text, variant)
            assert row["min_glibc"] == ("2.28" if new else "2.17"), (text, variant)
        assert row["min_glibc"] in {"2.17", "2.28"}
        assert "cxx11_abi" in row or (platform, variant) == ("aarch64", "cpu")


def test_details_belong_to_builds_with_cuda():
    seen = set()
    for row in rows("detail"):
        assert row["libs"] in {"bundled", "wheels", "metapackage", "mixed"}
        assert ("cudnn" in row) == ("cudnn_linkage" in row)
        assert row.get("cudnn_linkage", "wheel") in {"static", "bundled", "wheel"}
        assert row["nccl_linkage"] in {"static", "dynamic"}
        assert row.get("origin", "package index") in {"package index", "download.pytorch.org"}
        for text in row["versions"]:
            for platform in row["platforms"]:
                key = (text, platform, row["variant"])
                assert "cuda" in BUILDS[key], key
                assert (*key, row.get("origin")) not in seen, key
                seen.add((*key, row.get("origin")))
    with_cuda = {key for key, row in BUILDS.items() if "cuda" in row}
    # Builds known from reports only.
    missing = with_cuda - {key[:3] for key in seen}
    assert {BUILDS[key]["source"][0] for key in missing} <= {"torch-reports"}


def test_installing_a_variant_is_known_for_every_build():
    for text, _, variant in BUILDS:
        fits = [row for row in rows("install") if text in row["versions"]]
        assert len([row for row in fits if "variants" not in row]) == 1, text
        special = [row for row in fits if variant in row.get("variants", [])]
        assert len(special) <= 1, (text, variant)


# ---- pins


def pinned(row):
    """{name: version} of the exact pins of a row."""
    found = {}
    for one in map(Requirement, row.get("pins", [])):
        exact = [spec.version for spec in one.specifier if spec.operator == "=="]
        found[one.name] = exact[0] if exact else str(one.specifier)
    return found


def test_every_default_wheel_has_its_requirements_once():
    seen = {}
    for row in rows("pins"):
        for text in row["versions"]:
            for platform in row["platforms"]:
                assert (text, platform) in DEFAULTS, (text, platform)
                seen.setdefault((text, platform), []).append(row.get("pythons"))
    assert set(seen) == {key for key in DEFAULTS if Version(key[0]) >= Version("1.13")}
    for key, pythons in seen.items():
        assert len(set(pythons)) == len(pythons), key
        assert len(pythons) == 1 or None not in pythons, key


def test_pins_are_of_the_cuda_of_the_default_wheel():
    for row in rows("pins"):
        for text in row["versions"]:
            variant = DEFAULTS.get((text, "x86_64")) if "pins" in row else None
            for name in pinned(row) if variant else ():
                suffix = re.search(r"-cu(\d+)$", name)
                assert not suffix or variant.startswith("cu" + suffix.group(1)), (text, name)
            cuda = BUILDS[text, "x86_64", variant]["cuda"] if variant else ""
            for name in ("nvidia-cuda-runtime-cu11", "nvidia-cuda-runtime-cu12", "cuda-toolkit"):
                found = pinned(row).get(name)
                assert not found or found.startswith(cuda + "."), (text, name, found)


def test_details_agree_with_the_pins():
    for row in rows("detail"):
        for text in row["versions"]:
            default = DEFAULTS.get((text, "x86_64")) == row["variant"]
            if not default or row.get("origin") == "download.pytorch.org":
                continue
            for pins in rows("pins"):
                if text in pins["versions"] and "x86_64" in pins["platforms"]:
                    names = {re.sub(r"-cu\d+$", "", k): v for k, v in pinned(pins).items()}
                    assert names["nvidia-cudnn"] == row["cudnn"], text
                    assert names.get("nvidia-nccl", row["nccl"]) == row["nccl"], text
                    assert ("nvidia-nccl" in names) == (row["nccl_linkage"] == "dynamic"), text
                    assert ("cuda-toolkit" in names) == (row["libs"] == "metapackage"), text


def test_metapackages_are_those_that_torch_asks_for():
    asked = {}
    for one in (Requirement(pin) for row in rows("pins") for pin in row.get("pins", [])):
        if one.extras:
            fits = [
                row["version"]
                for row in rows("metapackage")
                if row["name"] == one.name and one.specifier.contains(row["version"])
            ]
            assert len(fits) == 1, one
            asked.setdefault((one.name, fits[0]), set()).update(one.extras)
    for row in rows("metapackage"):
        given = set(re.findall(r'extra == "(.*?)"', " ".join(row["requires"])))
        assert given == asked[row["name"], row["version"]], row["version"]


# ---- companions


def test_companions_of_every_torch():
    names = [row["torch"] for row in rows("companion")]
    assert ascending(map(Version, names))
    assert set(names) == TORCH
    for row in rows("companion"):
        assert re.match(r"^\d{4}-\d\d-\d\d$", row.get("released", "2020-01-01")), row["torch"]
        built = row.get("built")
        assert built in {None, DEFAULTS.get((row["torch"], "x86_64"))}, row["torch"]
        triton = [
            str(one.specifier)
            for pins in rows("pins")
            if row["torch"] in pins["versions"]
            for one in map(Requirement, pins.get("pins", []))
            if one.name == "triton"
        ]
        assert set(triton) == ({row["triton"]} if "triton" in row else set()), row["torch"]


def test_a_companion_that_two_torches_share_is_a_loose_one():
    loose = {(row["package"], text) for row in rows("loose") for text in row["versions"]}
    owners = {}
    for row in rows("companion"):
        for package in ("torchvision", "torchaudio", "torchtext", "torchdata"):
            for text in row.get(package, []):
                owners.setdefault((package, text), []).append(row["torch"])
    shared = {key for key, torches in owners.items() if len(torches) > 1}
    assert shared <= loose
    for row in rows("loose"):
        for text in row["versions"]:
            for torch in owners.get((row["package"], text), []):
                assert SpecifierSet(row.get("torch", "")).contains(torch), (row["package"], text)


# ---- TensorFlow, JAX


def check_targets(row, cuda):
    toolkit = TOOLKITS[cuda]
    able = {target_capability(target) for target in toolkit["targets"]}
    for key in ("sm", "ptx"):
        values = [capability(text) for text in row.get(key, [])]
        assert ascending(values), (row["versions"], key)
        assert set(values) <= able, (row["versions"], key, set(values) - able)
    assert set(row.get("ptx", [])) <= set(row.get("sm", [])), row["versions"]


def test_tensorflow():
    seen = set()
    for row in rows("tensorflow"):
        assert row["package"] in {"tensorflow", "tensorflow-gpu"}
        assert row["libs"] in {"system", "extra"}
        assert ("pins" in row) == (row["libs"] == "extra"), row["versions"]
        check_targets(row, row["cuda"])
        for text in row["versions"]:
            assert text not in seen
            seen.add(text)
        pins = {re.sub(r"-cu\d+$", "", name): value for name, value in pinned(row).items()}
        if pins:
            assert row["cuda"] + "." in pins["nvidia-cuda-runtime"], row["versions"]
            assert row["cudnn"] + "." in pins["nvidia-cudnn"], row["versions"]
    assert ascending(Version(row["versions"][0]) for row in rows("tensorflow"))


def test_jax():
    floors = {12: 525, 13: 580}
    seen = set()
    for row in rows("jax"):
        major = row["cuda_major"]
        assert row["package"] == f"jax-cuda{major}-plugin"
        assert row["min_branch"] == floors[major]
        assert row["min_branch"] in BRANCHES
        for key in ("cuda", "min_cuda"):
            assert version(row.get(key, f"{major}.0"))[0] == major, row["versions"]
        assert ("sm" in row) <= ("cuda" in row)
        if "cuda" in row:
            check_targets(row, row["cuda"])
        for key in ("cudnn", "nccl"):
            assert SpecifierSet(row.get(key, "")) is not None
        for text in row["versions"]:
            assert (row["package"], text) not in seen
            seen.add((row["package"], text))
    for row in rows("jax_requires"):
        assert {(row["package"], text) for text in row["versions"]} <= seen
        wanted = {one.name: str(one.specifier) for one in map(Requirement, row["requires"])}
        for build in rows("jax"):
            if build["package"] == row["package"] and set(build["versions"]) & set(row["versions"]):
                suffix = "-cu" + str(build["cuda_major"])
                for key in ("cudnn", "nccl"):
                    same = SpecifierSet(wanted["nvidia-" + key + suffix])
                    assert same == SpecifierSet(build[key]), (row["versions"], key)


# ---- extensions


def test_extensions():
    packages = [row["package"] for row in rows("extension_package")]
    named = [name for name in packages if name != "*"]
    assert len(set(named)) == len(named)
    for row in rows("extension_package"):
        assert row["binds"] in {"torch-version", "torch-abi", "cuda-version"}
    assert {row["package"] for row in rows("extension")} == set(named)
    seen = {}
    for row in rows("extension"):
        where = (row["package"], row.get("versions"), row.get("range"))
        assert row.get("cuda_match", "major") in {"major", "minor"}, where
        for text in row.get("torch", []):
            # Development versions were built against too, and patch releases that came to nothing.
            found = Version(text)
            assert found.is_prerelease or text in TORCH, (where, text)
        if "built" in row:
            torch, variant = row["built"].split("+")
            assert (torch, "x86_64", variant) in BUILDS, where
        if row.get("torch") and row.get("requires"):
            wanted = [one for one in map(Requirement, row["requires"]) if one.name == "torch"]
            assert all(one.specifier.contains(row["torch"][0]) for one in wanted), where
        # One package, one version, one torch: one row.
        for text in row.get("versions", []):
            key = (row["package"], text, tuple(row.get("torch", [])), row.get("torch_range"))
            assert seen.setdefault(key, row) is row, key


# ---- NGC


#: Images built for a driver older than the final release of their toolkit asks for.
NGC_ON_A_BETA = {"19.11"}


def test_ngc_months():
    releases = [row["release"] for row in rows("ngc")]
    assert ascending(map(version, releases))
    for row in rows("ngc"):
        name = row["release"]
        assert row.get("cuda_release", row["cuda"] + ".").startswith(row["cuda"] + "."), name
        floor = version(TOOLKITS[row["cuda"]]["minimum"])
        if "driver" in row:
            assert version(row["driver"]) >= floor or name in NGC_ON_A_BETA, name
            assert version(row["driver"])[0] == TOOLKITS[row["cuda"]]["branch"], name
        for branch in row.get("excluded", []):
            assert branch in BRANCHES, (name, branch)
        for text in row.get("bases", []) + row.get("says", []):
            assert int(text.split(".")[0]) in BRANCHES, (name, text)
        assert row["min_capability"] in BY_CAPABILITY, name
        able = TOOLKITS[row["cuda"]]
        assert capability(able["min_capability"]) <= capability(row["min_capability"]), name


def test_ngc_images():
    months = {row["release"] for row in rows("ngc")}
    seen = set()
    for row in rows("ngc_image"):
        assert all("{release}" in tag for tag in row["tags"])
        for name in row["releases"]:
            assert name in months
            assert (row["product"], name) not in seen
            seen.add((row["product"], name))
    assert {name for product, name in seen if product == "pytorch"} == months
    builds = [(row["product"], row["release"]) for row in rows("ngc_framework")]
    assert len(set(builds)) == len(builds)
    assert set(builds) <= seen


# ---- errors, requirements


def test_errors_are_told_apart():
    names = [name for row in rows("error") for name in row.get("names", [])]
    assert len(set(names)) == len(names)
    codes = [
        (row["domain"], code)
        for row in rows("error")
        if "names" in row
        for code in row.get("codes", [])
    ]
    assert len(set(codes)) == len(codes)
    messages = [text for row in rows("error") for text in row.get("messages", [])]
    assert len(set(messages)) == len(messages)
    for row in rows("error"):
        assert row["domain"] in {"cuda", "nvml", "loader", "container", "torch"}
        assert row.get("messages") or row.get("codes"), row["cause"]
        assert len(row.get("codes", [])) in {0, 1, len(row.get("names", []))}, row["cause"]


def test_requirements_of_images():
    brands = {row["brands"]: row["names"] for row in rows("brands")}
    for row in rows("requirement"):
        for name in row["releases"]:
            assert name == row["cuda"] or name.startswith(row["cuda"] + "."), name
        assert ("branches" in row) == ("brands" in row), row["releases"]
        assert row.get("brands", "geforce") in brands
        for branch in row.get("tesla", []) + row.get("branches", []):
            # Older than what reports this CUDA, or the branch of the toolkit itself.
            assert branch in BRANCHES, (row["releases"], branch)
            assert version(BRANCHES[branch]["cuda"]) <= version(row["cuda"]), row["releases"]
        for month in row.get("seen", []):
            assert re.match(r"^\d{4}-\d\d$", month)
