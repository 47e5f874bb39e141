"""GPU code in files made by nvcc is found as it was asked for."""

import json
import os
import re
import shutil
import struct
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from preflight.binary import elf, fatbin
from tests.binary.places import TORCH_SITE, needs_torch

SAMPLES = Path(__file__).resolve().parent / "samples"
ASKED = json.loads((SAMPLES / "samples.json").read_text())


def counted(names):
    return dict(Counter(names))


def of_kind(names, prefix):
    return counted(name for name in names if name.startswith(prefix))


@pytest.mark.parametrize("name", sorted(ASKED))
def test_what_nvcc_was_asked_for_is_found(name):
    asked, found = ASKED[name], fatbin.read(str(SAMPLES / name))
    everything = [one for names in asked["fatbins"] for one in names]
    assert found.code == of_kind(everything, "sm_")
    assert found.ptx == of_kind(everything, "compute_")
    assert found.other == {}
    assert found.fatbins == len(asked["fatbins"])
    assert sorted(map(sorted, found.groups)) == sorted(map(sorted, asked["fatbins"]))
    assert found.relocatable == counted(asked.get("relocatable", []))


def test_compression_is_seen_but_not_undone():
    def entries(name):
        with elf.map_file(str(SAMPLES / name)) as data:
            one = next(one for one in elf.sections(data) if one.name == b".nv_fatbin")
            return next(fatbin.fatbins(data, one.offset, one.offset + one.size))

    assert all(map(fatbin.is_compressed, entries("compressed.elf")))
    assert not any(map(fatbin.is_compressed, entries("uncompressed.elf")))


def test_a_file_without_gpu_code_has_none(tmp_path):
    (tmp_path / "empty.a").write_bytes(b"!<arch>\n")
    for path in ("/bin/sh", str(tmp_path / "empty.a")):
        found = fatbin.read(path)
        assert not found.code and not found.ptx and found.fatbins == 0


@pytest.mark.parametrize(
    ("architecture", "capabilities"),
    [
        ("sm_80", {(8, 0), (8, 6), (8, 9)}),
        ("sm_86", {(8, 6), (8, 9)}),
        ("sm_90a", {(9, 0)}),
        ("sm_100", {(10, 0), (10, 3)}),
        ("sm_100f", {(10, 0), (10, 3)}),
        ("sm_103f", {(10, 3)}),
        ("sm_121a", {(12, 1)}),
        ("compute_90", {(9, 0), (10, 0), (10, 3), (12, 0), (12, 1)}),
        ("compute_90a", {(9, 0)}),
        ("compute_120f", {(12, 0), (12, 1)}),
        ("lto_80", set()),
    ],
)
def test_what_runs_where(architecture, capabilities):
    gpus = {(7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (10, 3), (12, 0), (12, 1)}
    assert {one for one in gpus if fatbin.runs_on(architecture, one)} == capabilities


def test_every_fatbin_counts_for_itself():
    two = fatbin.read(str(SAMPLES / "two-objects.elf"))
    assert fatbin.coverage(two, (9, 0)) == (1, 1, 0, ("compute_80", "sm_80", "sm_90"))[:3] + (
        ("compute_80", "sm_90"),
    )
    assert fatbin.coverage(two, (8, 6))[:3] == (2, 0, 0)
    assert fatbin.coverage(two, (7, 5))[:3] == (0, 0, 2)


def cuobjdump():
    """One that is no older than the nvcc of the samples: an older one cannot read them all."""
    here = TORCH_SITE and os.path.join(TORCH_SITE, "triton/backends/nvidia/bin/cuobjdump")
    tool = here if here and os.path.exists(here) else shutil.which("cuobjdump")
    if tool is None:
        return None
    done = subprocess.run([tool, "--version"], stdout=subprocess.PIPE, text=True)
    release = re.search(r"release (\d+)\.", done.stdout)
    return tool if release and int(release.group(1)) >= 13 else None


def listed(tool, option, path, pattern):
    done = subprocess.run([tool, option, path], stdout=subprocess.PIPE, text=True)
    return counted(re.findall(pattern, done.stdout))


def without_family(table):
    """cuobjdump writes sm_100 for sm_100f."""
    names = Counter()
    for name, count in table.items():
        names[name.rstrip("f")] += count
    return dict(names)


@pytest.mark.skipif(cuobjdump() is None, reason="no cuobjdump of CUDA 13 here")
@pytest.mark.parametrize(
    "name", sorted(name for name, row in ASKED.items() if row["fatbins"] and name != "archive.a")
)
def test_samples_agree_with_cuobjdump(name):
    path = str(SAMPLES / name)
    code = listed(cuobjdump(), "--list-elf", path, r"\.(sm_\w+)\.cubin")
    ptx = listed(cuobjdump(), "--list-ptx", path, r"\.(sm_\w+)\.ptx")
    found = fatbin.read(path)
    assert without_family(found.code) == code
    assert {one.replace("compute", "sm"): count for one, count in found.ptx.items()} == ptx


@needs_torch
@pytest.mark.skipif(cuobjdump() is None, reason="no cuobjdump of CUDA 13 here")
@pytest.mark.parametrize(
    "name", ["nvidia/cudnn/lib/libcudnn_ops.so.9", "torch/lib/libtorch_cuda_linalg.so"]
)
def test_real_libraries_agree_with_cuobjdump(name):
    path = os.path.join(TORCH_SITE, name)
    if not os.path.exists(path):
        pytest.skip("no " + name)
    found = fatbin.read(path)
    everything = Counter(without_family(found.code))
    # cuobjdump also compiles the PTX of some, and lists that as machine code.
    listing = Counter(listed(cuobjdump(), "--list-elf", path, r"\.(sm_\w+)\.cubin"))
    extra = listing - everything
    ptx = Counter({one.replace("compute", "sm"): n for one, n in found.ptx.items()})
    assert not everything - listing
    assert not extra - ptx


def test_a_damaged_fatbin_is_one_error(tmp_path):
    data = bytearray((SAMPLES / "one.elf").read_bytes())
    at = data.find(struct.pack("<I", 0xBA55ED50))
    for place, value in ((8, 1 << 40), (16 + 4, 1 << 20), (16 + 4, 0), (16 + 8, 1 << 30)):
        spoilt = bytearray(data)
        struct.pack_into("<I" if value < 1 << 32 else "<Q", spoilt, at + place, value)
        (tmp_path / "spoilt").write_bytes(bytes(spoilt))
        with pytest.raises(elf.BadElf):
            fatbin.read(str(tmp_path / "spoilt"))
