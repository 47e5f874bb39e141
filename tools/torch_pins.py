"""Reads again, from the package index, what each published torch wheel requires.

python tools/torch_pins.py [RELEASE ...]    read, and write tests/data/torch_pins/RELEASE.json
python tools/torch_pins.py --check [...]    read, and compare with the stored copy and pins.toml

Without releases: all of compat/pins.toml, and the metapackages it names. The index is the one that
pip is set up for. pip 23.3 or later reads no more of a wheel than its metadata (half a MB); it is
ended as soon as it begins to download one as a whole.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

from packaging.requirements import Requirement

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TOP = Path(__file__).resolve().parents[1]
STORED = TOP / "tests" / "data" / "torch_pins"
#: pip tries these for one machine, the newest first.
TAGS = ("manylinux_2_28", "manylinux_2_17", "manylinux2014", "manylinux1", "linux")
OLDEST_PIP = (23, 3)
#: Reading one wheel's metadata takes seconds.
SECONDS = 300


class Wheel(NamedTuple):
    """One wheel: its file name ("" where the index has none), and its requirements."""

    name: str
    requires: Tuple[str, ...]


class Failed(Exception):
    """pip did not do what was asked; the text is what it printed."""


def main(arguments: Sequence[str]) -> int:
    """Read and write, or compare; returns an exit code, 1 where something differs."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("release", nargs="*", help="torch releases; all of pins.toml by default")
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    parser.add_argument("--jobs", type=int, default=4, help="wheels read at a time")
    options = parser.parse_args(arguments)
    version = _pip_version()
    if version < OLDEST_PIP:
        print("pip 23.3 or later is needed: python -m pip install -U pip", file=sys.stderr)
        return 2
    try:
        found = read(options.release, options.jobs)
    except Failed as error:
        print(error, file=sys.stderr)
        return 2
    if options.check:
        return _compare(found)
    STORED.mkdir(parents=True, exist_ok=True)
    for stem, content in found.items():
        (STORED / (stem + ".json")).write_text(text(content), encoding="utf-8")
    print(f"{len(found)} files in {STORED.relative_to(TOP)}")
    return 0


def _compare(found: Dict[str, Any]) -> int:
    wrong = 0
    for stem, content in found.items():
        path = STORED / (stem + ".json")
        kept = path.read_text(encoding="utf-8") if path.exists() else ""
        if kept != text(content):
            wrong += 1
            print(f"{stem}: the index and the stored copy differ")
        for line in differences(stem, content):
            wrong += 1
            print(line)
    print(f"{len(found)} read again, {wrong} differences")
    return 1 if wrong else 0


# ---- the tables


def table(name: str) -> Any:
    """One file of compat/."""
    with open(str(TOP / "compat" / (name + ".toml")), "rb") as stream:
        return tomllib.load(stream)


def stated(row: Dict[str, Any]) -> List[str]:
    """The requirements of a [[pins]] row, normalised, in order of name."""
    pins = []
    for name, _, own in (one.partition("; ") for one in row.get("pins", [])):
        marker = " and ".join(filter(None, (row.get("marker"), own)))
        pins.append(f"{name}; {marker}" if marker else name)
    return normalised(pins + row.get("requires", []))


def normalised(requires: Sequence[str]) -> List[str]:
    """Requirements in the one spelling that `packaging` gives them, sorted."""
    return sorted(str(Requirement(one)) for one in requires)


def asked_extras(name: str, version: str, rows: List[Dict[str, Any]]) -> Set[str]:
    """The extras of a metapackage's version that any torch wheel asks for."""
    asked: Set[str] = set()
    for one in (Requirement(pin) for row in rows for pin in row.get("pins", [])):
        if one.name == name and one.specifier.contains(version):
            asked |= one.extras
    return asked


def extras(requires: Sequence[str], asked: Set[str], machine: str) -> List[str]:
    """What a metapackage adds on Linux: 'nvidia-cublas==13.1.0.3.*; extra == "cublas"', sorted."""
    found = []
    for one in map(Requirement, requires):
        for extra in asked:
            here = {"sys_platform": "linux", "platform_machine": machine}
            if one.marker and one.marker.evaluate({**here, "extra": extra}):
                found.append(f'{one.name}{one.specifier}; extra == "{extra}"')
    return normalised(found)


def differences(stem: str, content: Any) -> List[str]:
    """Where compat/pins.toml says something else than `content`, what the index said."""
    pins = table("pins")
    if stem.startswith("torch-"):
        return _torch_differences(stem[len("torch-") :], content, pins["pins"])
    name, _, version = stem.rpartition("-")
    rows = [one for one in pins["metapackage"] if (one["name"], one["version"]) == (name, version)]
    asked = asked_extras(name, version, pins["pins"])
    seen = [extras(content["requires"], asked, machine) for machine in ("x86_64", "aarch64")]
    if [normalised(row["requires"]) for row in rows] * 2 == seen:
        return []
    return [f"{stem}: pins.toml differs from the metadata"]


def _torch_differences(release: str, content: Any, rows: List[Dict[str, Any]]) -> List[str]:
    found = []
    for platform, groups in content.items():
        for group in groups:
            for wheel in group["wheels"]:
                python = python_of(wheel)
                fits = [
                    row
                    for row in rows
                    if release in row["versions"]
                    and platform in row["platforms"]
                    and ("pythons" not in row or python in pythons(row["pythons"]))
                ]
                if len(fits) != 1 or stated(fits[0]) != normalised(group["requires"]):
                    found.append(f"{wheel}: pins.toml differs from its metadata")
    return found


def pythons(ranges: str) -> List[str]:
    """The Pythons of "3.9-3.11,3.13t": 3.9, 3.10, 3.11, 3.13t."""
    found = []
    for part in ranges.split(","):
        free = "t" if part.endswith("t") else ""
        ends = [int(one.split(".")[1]) for one in part.rstrip("t").split("-")]
        found += [f"3.{minor}{free}" for minor in range(ends[0], ends[-1] + 1)]
    return found


def python_of(wheel: str) -> str:
    """The Python of a wheel's name: "3.13t" of torch-2.7.0-cp313-cp313t-manylinux_2_28_x86_64."""
    match = re.search(r"-cp3(\d+)m?-cp3\d+(m|t)?-", wheel)
    if match is None:
        raise ValueError(wheel)
    return f"3.{match.group(1)}{'t' if match.group(2) == 't' else ''}"


def wanted(releases: Sequence[str]) -> List[Tuple[str, str, List[str]]]:
    """(release, platform, Pythons) to read, from the wheels that torch.toml calls the default."""
    known = [version for row in table("pins")["pins"] for version in row["versions"]]
    chosen = list(releases) or sorted(set(known))
    found = []
    for row in table("torch")["build"]:
        for release in row.get("default", []):
            if release in chosen:
                found.append((release, row["platform"], pythons(row["pythons"])))
    return found


# ---- the index


def read(releases: Sequence[str], jobs: int) -> Dict[str, Any]:
    """{"torch-2.1.0": {platform: [{wheels, requires}]}, "cuda-toolkit-13.0.2": {requires}}."""
    tasks = [
        (release, platform, python)
        for release, platform, many in wanted(releases)
        for python in many
    ]
    with ThreadPoolExecutor(max_workers=jobs) as pool:
        wheels = list(pool.map(lambda task: torch_wheel(*task), tasks))
    found: Dict[str, Any] = {}
    for (release, platform, python), wheel in zip(tasks, wheels):
        groups = found.setdefault("torch-" + release, {}).setdefault(platform, [])
        if not wheel.name:
            print(f"torch {release} {platform}: no wheel for Python {python}", file=sys.stderr)
            continue
        for group in groups:
            if group["requires"] == list(wheel.requires):
                group["wheels"].append(wheel.name)
                break
        else:
            groups.append({"wheels": [wheel.name], "requires": list(wheel.requires)})
    for row in [] if releases else table("pins")["metapackage"]:
        wheel = _wheel([f"{row['name']}=={row['version']}"])
        found[f"{row['name']}-{row['version']}"] = {"requires": list(wheel.requires)}
    return found


def torch_wheel(release: str, platform: str, python: str) -> Wheel:
    """The wheel that a plain install takes on that platform by that Python."""
    abi = "cp" + python.replace(".", "")
    words = ["--implementation", "cp", "--python-version", python.rstrip("t")]
    for tag in TAGS:
        words += ["--platform", f"{tag}_{platform}"]
    for one in [abi] + ([abi + "m"] if python in ("3.6", "3.7") else []):
        words += ["--abi", one]
    return _wheel([*words, "torch==" + release])


def _wheel(words: List[str]) -> Wheel:
    with tempfile.TemporaryDirectory() as scratch:
        report = str(Path(scratch) / "report.json")
        command = [
            *_PIP, "install", "-v", "--no-cache-dir", "--use-feature=fast-deps", "--dry-run",
            "--ignore-installed", "--no-deps", "--only-binary=:all:", "--target", scratch,
            "--report", report, *words,
        ]  # fmt: skip
        printed = _run(command)
        if printed is None:
            return Wheel("", ())
        with open(report, encoding="utf-8") as stream:
            found = json.load(stream)["install"][0]
    name = str(found["download_info"]["url"]).rsplit("/", 1)[1]
    return Wheel(name, tuple(found["metadata"].get("requires_dist", ())))


_PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]


def _pip_version() -> Tuple[int, ...]:
    printed = subprocess.run([*_PIP, "--version"], stdout=subprocess.PIPE, text=True).stdout
    match = re.match(r"pip (\d+)\.(\d+)", printed)
    return tuple(map(int, match.groups())) if match else ()


def _run(command: List[str]) -> Optional[str]:
    """What pip printed; None where there is no such wheel. Ended when it downloads a large file."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    lines = []
    with process:
        for line in process.stdout or ():
            lines.append(line)
            if re.match(r"\s*Downloading .*\.whl .*(MB|GB)\)", line):
                process.kill()
                raise Failed("the index cannot give a wheel's metadata alone: " + line.strip())
    printed = "".join(lines)
    if process.returncode == 0:
        return printed
    if "No matching distribution found" in printed:
        return None
    raise Failed(printed)


def text(content: Any) -> str:
    """The stored form: JSON with one requirement a line."""
    return json.dumps(content, indent=1, ensure_ascii=True) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
