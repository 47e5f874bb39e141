"""What `preflight lock` calls drift is what pip would change: `pip install --dry-run --report`.

Environments and lock files are made up at random, of wheels made here: nothing is fetched.
"""

import json
import os
import random
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Dict, List, Set

import pytest

from preflight import snapshot as s
from preflight.lockfiles.applying import Target
from preflight.probes import distributions, locks
from preflight.roots import Root
from preflight.rules import lock as rules

VERSIONS = ("1.0", "1.0+cu118", "1.0+cu121", "1.1", "2.0rc1", "2.0", "2.0.post1", "1!0.5")
NAMES = ("alpha", "beta-lib", "gamma.x", "delta_y", "torchvision", "nvidia-nccl-cu12")
SPECS = ("=={}", "=={}", "==={}", ">={}", "<={}", "!={}", "~={}", "")
MARKERS = ("", "", "", ' ; python_version < "3"', ' ; sys_platform == "linux"',
           ' ; platform_machine == "riscv"', ' ; extra == "x"')  # fmt: skip


def normal(name: str) -> str:
    return distributions.normalize(name)


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every version of every package, as an empty wheel."""
    folder = tmp_path_factory.mktemp("wheels")
    for name in NAMES:
        for version in VERSIONS:
            plain = normal(name).replace("-", "_")
            info = f"{plain}-{version}.dist-info"
            with zipfile.ZipFile(folder / f"{plain}-{version}-py3-none-any.whl", "w") as wheel:
                wheel.writestr(f"{info}/METADATA", metadata(name, version))
                wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\n"
                               "Tag: py3-none-any\n")  # fmt: skip
                wheel.writestr(f"{info}/RECORD", "")
    return folder


def metadata(name: str, version: str) -> str:
    return f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"


def environment(folder: Path, packages: Dict[str, str]) -> None:
    for name, version in packages.items():
        info = folder / f"{normal(name).replace('-', '_')}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(metadata(name, version))
        (info / "INSTALLER").write_text("pip\n")
        (info / "RECORD").write_text("")


def a_lock(source: random.Random) -> str:
    lines = []
    for name in NAMES:
        if source.random() < 0.2:
            continue
        spec = source.choice(SPECS)
        version = source.choice(VERSIONS)
        if "~=" in spec or spec.startswith((">", "<")):
            version = version.partition("+")[0]
        lines.append(name + spec.format(version) + source.choice(MARKERS))
    return "\n".join(lines) + "\n"


def pip_would_change(site: Path, wheels: Path, lock: Path) -> Set[str]:
    """The names that pip would install."""
    words = [sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--report", "-",
             "--no-index", "--no-deps", "--find-links", str(wheels), "--pre",
             "-r", str(lock)]  # fmt: skip
    env = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(site),
        "HOME": str(site),
        "PIP_CONFIG_FILE": os.devnull,
    }
    done = subprocess.run(words, env=env, capture_output=True, check=False, timeout=120)
    if done.returncode:
        pytest.skip(f"this pip has no dry run: {done.stderr.decode()[-300:]}")
    report = json.loads(done.stdout.decode())
    return {normal(one["metadata"]["name"]) for one in report["install"]}


def preflight_calls_drift(site: Path, lock: Path) -> List[rules.Drift]:
    root = Root()
    python = s.PythonEnv(
        version=s.known(".".join(map(str, sys.version_info[:3])), "test"),
        path=s.known((str(site),), "test"),
        packages=distributions.packages(root, [str(site)]),
    )
    target = Target(python.version.get(""), os.uname().machine)
    seen = s.Snapshot(
        origin="live", python=python, locks=locks.read(root, {}, target, "/", [str(lock)])
    )
    (one,) = rules.held(seen)
    return list(rules._drift(seen, one))


@pytest.mark.parametrize("seed", range(25))
def test_drift_is_what_pip_would_change(seed: int, tmp_path: Path, wheels: Path) -> None:
    source = random.Random(seed)
    packages = {n: source.choice(VERSIONS) for n in NAMES if source.random() < 0.8}
    lock = tmp_path / "lock.txt"
    site = tmp_path / "site"
    environment(site, packages)
    lock.write_text(a_lock(source))
    theirs = pip_would_change(site, wheels, lock)
    ours = {one.pin.name for one in preflight_calls_drift(site, lock)}
    assert ours == theirs, f"{lock.read_text()}\n{packages}"


def test_both_answers_are_among_them(tmp_path: Path, wheels: Path) -> None:
    """Otherwise the comparison above would prove less than it seems to."""
    lock = tmp_path / "lock.txt"
    lock.write_text("alpha==1.0\nbeta-lib==1.1\ntorchvision==1.0\n")
    environment(tmp_path / "site", {"alpha": "1.0", "beta-lib": "2.0", "torchvision": "1.0+cu118"})
    changed = pip_would_change(tmp_path / "site", wheels, lock)
    found = preflight_calls_drift(tmp_path / "site", lock)
    assert changed == {"beta-lib"} == {one.pin.name for one in found}
