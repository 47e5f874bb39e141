"""Limits by cgroup: version 1 for real where this machine lets us make one, else as laid out."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from preflight.probes import cgroups
from preflight.roots import Root
from tests.probes.fake_root import Image

V1_MOUNTS = """\
30 25 0:26 / /sys/fs/cgroup ro - tmpfs tmpfs ro,mode=755
31 30 0:27 {root} /sys/fs/cgroup/memory ro,nosuid - cgroup cgroup rw,memory
32 30 0:28 {root} /sys/fs/cgroup/cpu,cpuacct ro,nosuid - cgroup cgroup rw,cpu,cpuacct
"""
V2_MOUNTS = "31 30 0:27 {root} /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw,nsdelegate\n"
NO_LIMIT = str(9223372036854771712)
GIB = 1 << 30


@pytest.fixture
def image(tmp_path):
    return Image(tmp_path)


def v1(image, path, shown="/"):
    image.write("/proc/self/cgroup", f"9:memory:{path}\n8:cpu,cpuacct:{path}\n1:name=systemd:/\n")
    return image.write("/proc/self/mountinfo", V1_MOUNTS.format(root=shown))


def v2(image, path, shown="/", controllers="cpuset cpu io memory pids"):
    image.write("/proc/self/cgroup", f"0::{path}\n")
    image.write("/sys/fs/cgroup/cgroup.controllers", controllers + "\n")
    return image.write("/proc/self/mountinfo", V2_MOUNTS.format(root=shown))


def memory_v1(image, directory, limit, usage=0, inactive=0, hierarchical=NO_LIMIT):
    at = "/sys/fs/cgroup/memory" + directory
    image.write(at + "/memory.limit_in_bytes", f"{limit}\n")
    image.write(at + "/memory.usage_in_bytes", f"{usage}\n")
    stat = f"cache 0\nhierarchical_memory_limit {hierarchical}\ntotal_inactive_file {inactive}\n"
    return image.write(at + "/memory.stat", stat)


def memory_v2(image, directory, limit, usage=0, inactive=0):
    at = "/sys/fs/cgroup" + directory
    image.write(at + "/memory.max", f"{limit}\n").write(at + "/memory.current", f"{usage}\n")
    return image.write(at + "/memory.stat", f"anon 0\ninactive_file {inactive}\n")


def test_v1_in_a_container(image):
    """Docker without a cgroup namespace: the path is the host's, only its own part is mounted."""
    v1(image, "/docker/abc", shown="/docker/abc")
    memory_v1(image, "", 8 * GIB, usage=3 * GIB, inactive=GIB)
    found = cgroups.memory(image.root)
    assert (found.limit, found.used) == (8 * GIB, 2 * GIB)
    assert found.source == "/sys/fs/cgroup/memory/memory.limit_in_bytes"


def test_v1_of_a_parent_that_is_not_mounted(image):
    """The kernel says in memory.stat what the limit is with all those above."""
    v1(image, "/kubepods/pod1/abc", shown="/kubepods/pod1/abc")
    memory_v1(image, "", NO_LIMIT, hierarchical=4 * GIB)
    assert cgroups.memory(image.root).limit == 4 * GIB


def test_v1_without_a_limit(image):
    v1(image, "/user")
    memory_v1(image, "/user", NO_LIMIT, usage=5)
    memory_v1(image, "", NO_LIMIT)
    assert cgroups.memory(image.root)[:2] == (None, 5)


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ((16, 8, 4), 4),
        ((4, 8, 16), 4),
        ((16, 4, 8), 4),
        ((None, None, 4), 4),
        ((4, None, None), 4),
        ((None, None, None), None),
    ],
)
@pytest.mark.parametrize("version", ["v1", "v2"])
def test_the_smallest_limit_up_the_tree_holds(image, version, limits, expected):
    places = ["/a", "/a/b", "/a/b/c"]
    if version == "v1":
        v1(image, "/a/b/c")
        memory_v1(image, "", NO_LIMIT)
    else:
        v2(image, "/a/b/c")
    for place, limit in zip(places, limits):
        text = str(limit * GIB) if limit else (NO_LIMIT if version == "v1" else "max")
        (memory_v1 if version == "v1" else memory_v2)(image, place, text)
    found = cgroups.memory(image.root)
    assert found.limit == (expected * GIB if expected else None)


def test_v2_in_a_container_with_a_cgroup_namespace(image):
    v2(image, "/")
    memory_v2(image, "", 2 * GIB, usage=GIB, inactive=GIB // 2)
    assert cgroups.memory(image.root)[:2] == (2 * GIB, GIB // 2)
    assert cgroups.group(image.root, "memory").version == "v2"


def test_v2_with_a_path_of_outside(image):
    """A process that was moved out of its namespace's root sees "..": what is mounted is ours."""
    v2(image, "/../../system.slice")
    memory_v2(image, "", 2 * GIB)
    assert cgroups.memory(image.root).limit == 2 * GIB


def test_a_hybrid_has_the_controller_in_version_1(image):
    image.write("/proc/self/cgroup", "4:memory:/a\n0::/a\n")
    mounts = V1_MOUNTS.format(root="/") + (
        "33 30 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup rw\n"
    )
    image.write("/proc/self/mountinfo", mounts)
    image.write("/sys/fs/cgroup/unified/cgroup.controllers", "hugetlb\n")
    memory_v1(image, "/a", GIB)
    assert cgroups.group(image.root, "memory").version == "v1"
    assert cgroups.memory(image.root).limit == GIB
    assert cgroups.group(image.root, "pids") is None


@pytest.mark.parametrize(
    ("quota", "period", "expected"), [("250000", "100000", 2.5), ("-1", "100000", None)]
)
def test_cpu_quota_v1(image, quota, period, expected):
    v1(image, "/docker/abc", shown="/docker/abc")
    image.write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", quota + "\n")
    image.write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", period + "\n")
    assert cgroups.cpu_quota(image.root).value == expected


@pytest.mark.parametrize(
    ("outer", "inner", "expected"),
    [("max 100000", "max 100000", None), ("400000 100000", "max 100000", 4.0),
     ("400000 100000", "50000 100000", 0.5), ("nonsense", "", None), ("100000 0", "x y", None)],
)  # fmt: skip
def test_cpu_quota_v2(image, outer, inner, expected):
    v2(image, "/pod/container")
    image.write("/sys/fs/cgroup/pod/cpu.max", outer + "\n")
    image.write("/sys/fs/cgroup/pod/container/cpu.max", inner + "\n")
    fact = cgroups.cpu_quota(image.root)
    assert fact.value == expected and (fact.known or fact.absent)


def test_names_with_blanks_and_colons(image):
    """mountinfo writes them in octal; a path of /proc/self/cgroup may have colons."""
    image.write("/proc/self/cgroup", "0::/a:b\n")
    image.write("/proc/self/mountinfo", V2_MOUNTS.replace("/sys/fs/cgroup", "/sys/my\\040cgroup")
                .format(root="/"))  # fmt: skip
    image.write("/sys/my cgroup/cgroup.controllers", "memory\n")
    image.write("/sys/my cgroup/a:b/memory.max", f"{GIB}\n")
    assert cgroups.memory(image.root).limit == GIB


def test_nothing_to_see(image):
    assert cgroups.memory(image.root) is None
    assert cgroups.cpu_quota(image.root).absent


# -- for real -------------------------------------------------------------------------------


def hierarchy(controller, limit):
    """A directory in which cgroups of this controller can be made, else the test is skipped."""
    found = cgroups.group(Root(), controller)
    if found is None:
        pytest.skip(f"no {controller} cgroup is mounted here")
    here = Path(found.directory) / f"preflight-test-{os.getpid()}"
    try:
        here.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup can be made here: {error}")
    if not (here / limit).exists():
        here.rmdir()
        pytest.skip(f"{limit} is not there: the controller is not given on")
    return found.version, here


ASK = """
import json, sys
from preflight.probes import cgroups, host
from preflight.roots import Root
memory, quota = cgroups.memory(Root()), cgroups.cpu_quota(Root())
print(json.dumps([memory.limit if memory else None, memory.used if memory else None, quota.value]))
"""


def inside(directory, script=ASK):
    """What a process that was put into the cgroup says."""
    code = f"open({str(directory / 'cgroup.procs')!r}, 'w').write('0')\n" + script
    source = str(Path(cgroups.__file__).resolve().parents[2])
    environment = {**os.environ, "PYTHONPATH": source}
    ran = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, check=False, timeout=60
    )
    assert ran.returncode == 0, ran.stderr.decode()
    import json

    return json.loads(ran.stdout)


def test_a_real_memory_limit_and_a_smaller_one_above():
    names = {"v1": "memory.limit_in_bytes", "v2": "memory.max"}
    found = cgroups.group(Root(), "memory")
    version, outer = hierarchy("memory", names[found.version if found else "v1"])
    inner = outer / "inner"
    try:
        inner.mkdir()
        (outer / names[version]).write_text(str(300 << 20))
        (inner / names[version]).write_text(str(200 << 20))
        limit, used, _quota = inside(inner)
        assert limit == 200 << 20 and 0 < used < 200 << 20
        (inner / names[version]).write_text("-1" if version == "v1" else "max")
        assert inside(inner)[0] == 300 << 20
    finally:
        for one in (inner, outer):
            if one.exists():
                one.rmdir()


def test_a_real_cpu_quota():
    found = cgroups.group(Root(), "cpu")
    version, here = hierarchy("cpu", "cpu.max" if found and found.version == "v2"
                              else "cpu.cfs_quota_us")  # fmt: skip
    try:
        if version == "v2":
            (here / "cpu.max").write_text("150000 100000")
        else:
            (here / "cpu.cfs_quota_us").write_text("150000")
        assert inside(here)[2] == 1.5
    finally:
        here.rmdir()
