"""Rules about the room a job has: shared memory, memory, disk, CPUs, open files."""

from dataclasses import replace

import pytest

from preflight import snapshot as s
from tests.rules.build import A100, finding, outcomes, say, snap, torch, word

SHM, MEMORY, DISK = "container/shm-too-small", "host/memory-low", "host/disk-low"
CPUS, FILES = "host/cpus-low", "host/open-files-low"
MIB, GIB = 1 << 20, 1 << 30
ONE = {"gpus_per_node": 1, "processes_per_node": 1}
EIGHT = {"gpus_per_node": 8, "processes_per_node": 8}


@pytest.mark.parametrize(
    ("shm", "job", "expected"),
    [
        # Docker's and Kubernetes' 64 MiB.
        (64 * MIB, {**ONE, "loader_workers": 0}, "pass"),
        (64 * MIB, {**ONE, "loader_workers": 4}, "warn"),
        (64 * MIB, EIGHT, "warn"),
        (64 * MIB, {}, "warn"),
        (64 * MIB, ONE, "info"),
        # 1 GiB: enough for NCCL of eight ranks, not for eight workers of each.
        (GIB, {**EIGHT, "loader_workers": 0}, "pass"),
        (GIB, {**EIGHT, "loader_workers": 8}, "warn"),
        (GIB, {**ONE, "loader_workers": 8}, "pass"),
        (GIB, {}, "unknown"),
        (64 * GIB, {**EIGHT, "loader_workers": 8}, "pass"),
        (0, EIGHT, "warn"),
    ],
)
def test_shm_against_ranks_and_workers(shm, job, expected):
    assert say(SHM, host={"shm_bytes": shm}, job=job) == [expected]


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"gpus": [A100]}, "info"),
        ({"gpus": [dict(A100, count=8)]}, "warn"),
        ({"gpus": [dict(A100, count=8)], "env": {"CUDA_VISIBLE_DEVICES": "3"}}, "info"),
        ({"gpus": [dict(A100, count=8)], "env": {"LOCAL_WORLD_SIZE": "1"}}, "info"),
        ({"gpus": [dict(A100, count=8)], "env": {"CUDA_VISIBLE_DEVICES": ""}}, "n/a"),
        ({"gpus": []}, "n/a"),
    ],
)
def test_ranks_are_told_by_what_is_used(document, expected):
    assert say(SHM, host={"shm_bytes": 64 * MIB}, **document) == [expected]


def test_leftovers_fill_it():
    """883 of 1024 MiB held by ended workers: by what is seen, or by a line of df."""
    seen = {"shm_bytes": GIB, "shm_free_bytes": 100 * MIB}
    assert say(SHM, host=seen, job=EIGHT) == ["warn"]
    assert say(SHM, host=dict(seen, shm_free_bytes=900 * MIB), job=EIGHT) == ["pass"]
    # 15 GiB free of 100 is room enough.
    assert say(SHM, host={"shm_bytes": 100 * GIB, "shm_free_bytes": 15 * GIB}, job=EIGHT) == [
        "pass"
    ]
    log = ["/dev/shm: 883M of 1.0G used"]
    assert say(SHM, host={"shm_bytes": GIB}, logs=log) == ["warn"]
    assert say(SHM, host={"shm_bytes": 16 * GIB}, logs=log) == ["unknown"], "another machine's line"
    assert say(SHM, host={"shm_bytes": GIB}, logs=["/dev/shm: 10M of 1.0G used"]) == ["unknown"]


def test_how_to_enlarge_it_is_said():
    found = finding(SHM, host={"shm_bytes": 64 * MIB}, job={**EIGHT, "loader_workers": 4})
    assert "--shm-size" in found.fix[0] and "medium: Memory" in found.fix[1]
    assert "64 MiB" in found.summary and "2.2 GiB" in found.needed


@pytest.mark.parametrize(
    ("host", "job", "expected"),
    [
        ({"memory_limit_bytes": 4 * GIB, "memory_used_bytes": 3 * GIB}, ONE, "warn"),
        ({"memory_limit_bytes": 4 * GIB, "memory_used_bytes": GIB}, ONE, "pass"),
        ({"memory_limit_bytes": 8 * GIB}, EIGHT, "warn"),
        ({"memory_limit_bytes": 64 * GIB}, EIGHT, "pass"),
        # The cgroup's limit counts, not the node's memory; where the node has less, the node's.
        ({"memory_limit_bytes": GIB, "memory_free_bytes": 500 * GIB}, ONE, "warn"),
        ({"memory_limit_bytes": 500 * GIB, "memory_free_bytes": GIB}, ONE, "warn"),
        ({"memory_limit_bytes": None, "memory_free_bytes": 100 * GIB}, EIGHT, "pass"),
        ({"memory_limit_bytes": None, "memory_free_bytes": GIB}, EIGHT, "warn"),
        ({}, EIGHT, "unknown"),
        ({"memory_limit_bytes": GIB}, {"gpus_per_node": 0}, "n/a"),
    ],
)
def test_memory(host, job, expected):
    assert say(MEMORY, host=host, job=job) == [expected]


def with_rows(document, **rows):
    seen = snap(**document)
    facts = {name: s.known(tuple(value), "test") for name, value in rows.items()}
    return replace(seen, host=replace(seen.host, **facts))


def words(rule, seen):
    return [word(rule, one) for one in outcomes(rule, seen)]


ROOMY = s.Disk("/work", "working directory", "overlay", 50 * GIB, 100 * GIB, 10**6, 10**7)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([ROOMY], ["pass"]),
        ([replace(ROOMY, free=100 * MIB)], ["warn"]),
        ([replace(ROOMY, free=0)], ["warn"]),
        ([replace(ROOMY, inodes_free=12)], ["warn"]),
        ([replace(ROOMY, inodes_free=0, inodes=0)], ["pass"]),  # btrfs, many FUSE mounts
        ([ROOMY, replace(ROOMY, path="/tmp", free=MIB)], ["warn"]),
        ([], ["n/a"]),
    ],
)
def test_disks(rows, expected):
    assert words(DISK, with_rows({}, disks=rows)) == expected


def test_a_disk_that_is_only_told_of():
    assert say(DISK, host={"disk_free_bytes": 10 * MIB}) == ["warn"]
    assert say(DISK, host={"disk_free_bytes": 100 * GIB}) == ["pass"]
    assert say(DISK) == ["unknown"]


@pytest.mark.parametrize(
    ("cpus", "job", "expected"),
    [
        (4.0, EIGHT, "warn"),
        (8.0, EIGHT, "pass"),
        (0.5, ONE, "pass"),  # slow, and no rule of thumb says how slow
        (8.0, {**EIGHT, "loader_workers": 8}, "info"),
        (64.0, {**EIGHT, "loader_workers": 8}, "pass"),
        (4.0, {}, "unknown"),
        (4.0, {"gpus_per_node": 0}, "n/a"),
    ],
)
def test_cpus(cpus, job, expected):
    assert say(CPUS, host={"cpus": cpus}, job=job) == [expected]
    assert say(CPUS, job=EIGHT) == ["unknown"]


def test_ranks_that_are_only_taken_from_the_gpus_warn_nobody():
    """Eight GPUs on a small machine: the job may well be one process."""
    eight = [dict(A100, count=8)]
    assert say(CPUS, host={"cpus": 4.0}, gpus=eight) == ["info"]
    assert say(MEMORY, host={"memory_limit_bytes": 8 * GIB}, gpus=eight) == ["info"]
    assert say(MEMORY, host={"memory_limit_bytes": GIB}, gpus=eight) == ["warn"]


@pytest.mark.parametrize(
    ("soft", "hard", "workers", "expected"),
    [
        (1024, 1024, 4, "pass"),
        (256, 4096, 4, "warn"),
        (1024, 524288, 64, "warn"),
        (-1, -1, 64, "pass"),
        (1048576, 1048576, 64, "pass"),
    ],
)
def test_open_files(soft, hard, workers, expected):
    job = {**EIGHT, "loader_workers": workers}
    seen = with_rows({"job": job}, limits=[s.Limit("nofile", soft, hard)])
    assert words(FILES, seen) == [expected]


def test_the_fix_for_open_files_is_one_that_can_be_done():
    low = [s.Limit("nofile", 256, 256)]
    (found,) = outcomes(FILES, with_rows({"job": EIGHT}, limits=low))
    assert not any(one.startswith("ulimit") for one in found.fix), "the hard limit forbids it"
    (found,) = outcomes(FILES, with_rows({"job": EIGHT}, limits=[s.Limit("nofile", 256, 4096)]))
    assert found.fix[0] == "ulimit -n 4096"


def test_a_cpu_job_is_left_alone():
    low = {"memory_limit_bytes": MIB, "shm_bytes": MIB, "cpus": 0.1}
    for rule in (SHM, MEMORY):
        assert say(rule, host=low, gpus=[], torch=torch(None)) == ["n/a"]
