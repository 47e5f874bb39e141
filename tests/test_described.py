"""Described environments: what each field becomes, and what is refused with its name."""

from dataclasses import fields

import pytest

from preflight import snapshot as s
from preflight.intake import described
from preflight.intake.described import BadDescription


def read(**document):
    return described.read(document)


def refused(document, place):
    with pytest.raises(BadDescription) as caught:
        described.read(document)
    assert str(caught.value).startswith(place), str(caught.value)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 300


def test_left_out_is_unknown_and_null_is_absent():
    seen = read(driver={"version": "535.1", "cuda": None})
    assert seen.driver.version.value == "535.1"
    assert seen.driver.cuda.absent
    assert not seen.driver.libcuda.looked
    assert not seen.gpus.looked and read(gpus=[]).gpus.value == ()
    assert read(driver={"uvm_device": False}).driver.uvm_device.value is False
    assert not read().frameworks.looked and not read().env.looked


def test_everything_is_of_a_description():
    seen = read(driver={"version": "535.1"}, gpus=[{"name": "Tesla T4"}], env={"A": "1"})
    assert seen.origin == "described"
    assert seen.driver.version.source == seen.gpus.source == seen.env.source == "described"


FULL = {
    "driver": {
        "version": "535.1", "library_version": "535.1", "cuda": "12.2", "libcuda": "host",
        "visible": True, "fabric_manager": {"version": "535.1", "state": "running"},
        "uvm_device": True, "devices_openable": True,
        "mps": {"pipe_directory": "/tmp/mps", "reachable": False},
    },
    "compat": {"cuda": "12.4", "version": "550.1", "path": "/x", "resolved": False},
    "gpus": [{"name": "A", "count": 2, "compute_capability": "8.0", "memory_gib": 79.5,
              "mig_mode": True, "mig_devices": ["1g.5gb"], "compute_mode": "Default",
              "in_use_by_others": False, "vgpu": False}],
    "os": {"name": "Ubuntu", "arch": "x86_64", "glibc": "2.35", "kernel": "5.15", "wsl": False},
    "python": "3.11.7",
    "torch": {"version": "2.6.0", "cuda": None, "cudnn": "9", "nccl": "2.21",
              "arch_list": ["sm_80"], "build": "pip",
              "index": "cpu", "cxx11_abi": True, "hip": None},
    "tensorflow": {"version": "2.16.1"},
    "jax": {"version": "0.4.30"},
    "paddle": {"version": "2.6"},
    "packages": {"numpy": "1.26"},
    "packages_conda": {"cuda-nvrtc": "12"},
    "extensions": [{"name": "fast", "version": "1",
                    "built_for": {"torch": "2.6", "cuda": "12.4", "python": "3.11",
                                  "arch_list": ["sm_80"], "cxx11_abi": True, "numpy": "1"}}],
    "libraries": [{"name": "libx.so", "version": "1", "path": "/x", "found_by": "rpath",
                   "needed_version": "2", "needed_by": "torch", "missing": False, "damaged": "no",
                   "missing_symbols": ["y"]}],
    "cuda_toolkit": {"version": "12.4", "home": "/usr/local/cuda", "nvcc": "12.4"},
    "env": {"A": "1"},
    "job": {"nodes": 2, "gpus_per_node": 8, "processes_per_node": 8, "command": "torchrun",
            "platform": "pai-dlc", "uses_torch_compile": True, "builds_extensions": False,
            "loader_workers": 4},
    "host": {"shm_bytes": 1, "memlock_kib": 2, "interfaces": ["eth0"], "infiniband": [],
             "master_resolves": True, "routes_to_master": ["eth0"], "disk_free_bytes": 3,
             "memory_limit_bytes": 4, "cpus": 5},
    "image": {"name": "x", "env": {"B": "2"}, "entrypoint": ["a"], "command": ["b"],
              "base_entrypoint": ["c"], "shell": True, "init": False, "require_cuda": "cuda>=12"},
    "locks": [{"path": "uv.lock", "text": "x", "pins": {"torch": "==2.6"}, "platforms": ["linux"],
               "problem": "none"}],
    "logs": ["error"],
}  # fmt: skip


def test_every_field_of_the_format_is_read():
    seen = described.read(FULL)
    assert seen.driver.fabric_manager.value.state.value == "running"
    assert seen.driver.mps.value.reachable.value is False
    assert seen.compats.value[0].path.value == "/x"
    assert seen.gpus.value[0].memory_gib.value == 79.5
    assert seen.gpus.value[0].mig_devices.value == ("1g.5gb",)
    assert [one.name.value for one in seen.frameworks.value] == [
        "torch", "tensorflow", "jax", "paddle",
    ]  # fmt: skip
    assert seen.frameworks.value[0].cuda.absent and seen.frameworks.value[0].hip.absent
    assert seen.python.version.value == "3.11.7"
    assert seen.python.packages.value == {"numpy": "1.26"}
    assert seen.python.packages_conda.value == {"cuda-nvrtc": "12"}
    assert seen.extensions.value[0].built_for.value.numpy.value == "1"
    assert seen.libraries.value[0].missing_symbols.value == ("y",)
    assert seen.toolkit.nvcc.value == "12.4"
    assert seen.job.loader_workers.value == 4 and seen.host.cpus.value == 5
    assert seen.image.env.value == {"B": "2"}
    assert seen.locks.value[0].pins.value == {"torch": "==2.6"}
    assert seen.logs.value == ("error",)


def test_nothing_of_it_is_lost():
    """Each section of FULL fills every field of its dataclass that the format names."""
    seen = described.read(FULL)
    for name, kind in [("driver", s.Driver), ("os", s.System), ("job", s.Job), ("host", s.Host),
                       ("image", s.Image)]:  # fmt: skip
        record = getattr(seen, name)
        filled = {one.name for one in fields(kind) if getattr(record, one.name).looked}
        assert filled == set(FULL[name])


def test_a_case_document_is_its_description():
    seen = described.read({"description": {"python": "3.11"}, "expected": {}, "case": {}})
    assert seen.python.version.value == "3.11"


@pytest.mark.parametrize("document", [None, [], "text", 3, True])
def test_no_object(document):
    refused(document, "expected an object")
    refused({"description": document}, "description")


@pytest.mark.parametrize(
    ("document", "place"),
    [
        ({"drivers": {}}, "drivers"),
        ({"driver": {"versoin": "1"}}, "driver.versoin"),
        ({"gpus": [{}, {"nam": "x"}]}, "gpus[1].nam"),
        ({"torch": {"cud": "12"}}, "torch.cud"),
        ({"extensions": [{"built_for": {"x": "1"}}]}, "extensions[0].built_for.x"),
        ({"driver": {"mps": {"x": 1}}}, "driver.mps.x"),
        ({"locks": [{"x": 1}]}, "locks[0].x"),
        ({"description": {"x": 1}}, "x"),
        ({"": {}}, ""),
    ],
)
def test_unknown_fields_are_named(document, place):
    refused(document, place + ": unknown field")


@pytest.mark.parametrize(
    ("document", "place"),
    [
        ({"driver": []}, "driver"),
        ({"driver": "535.1"}, "driver"),
        ({"driver": None}, "driver"),
        ({"driver": {"version": 535}}, "driver.version"),
        ({"driver": {"visible": "yes"}}, "driver.visible"),
        ({"driver": {"libcuda": "other"}}, "driver.libcuda"),
        ({"driver": {"mps": []}}, "driver.mps"),
        ({"gpus": {}}, "gpus"),
        ({"gpus": None}, "gpus"),
        ({"gpus": ["A100"]}, "gpus[0]"),
        ({"gpus": [{"count": "8"}]}, "gpus[0].count"),
        ({"gpus": [{"count": 1.5}]}, "gpus[0].count"),
        ({"gpus": [{"count": True}]}, "gpus[0].count"),
        ({"gpus": [{"memory_gib": "80"}]}, "gpus[0].memory_gib"),
        ({"gpus": [{"memory_gib": True}]}, "gpus[0].memory_gib"),
        ({"gpus": [{"mig_devices": "1g"}]}, "gpus[0].mig_devices"),
        ({"python": 3.11}, "python"),
        ({"torch": "2.6.0"}, "torch"),
        ({"torch": {"arch_list": ["sm_80", 90]}}, "torch.arch_list"),
        ({"packages": ["numpy"]}, "python.packages"),
        ({"packages": {"numpy": 1}}, "python.packages"),
        ({"env": []}, "env"),
        ({"env": {"A": 1}}, "env.A"),
        ({"env": None}, "env"),
        ({"compat": [{"cuda": "12.4"}]}, "compat"),
        ({"logs": "error"}, "logs"),
        ({"logs": [1]}, "logs"),
        ({"job": {"nodes": "2"}}, "job.nodes"),
        ({"host": {"cpus": "8"}}, "host.cpus"),
        ({"image": {"entrypoint": "sh"}}, "image.entrypoint"),
    ],
)
def test_wrong_types_are_named(document, place):
    refused(document, place)


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
def test_numbers_that_json_does_not_have(value):
    """Python's parser reads Infinity and 1e999; the report could not be written as JSON."""
    refused({"gpus": [{"memory_gib": value}]}, "gpus[0].memory_gib")
    refused({"host": {"cpus": value}}, "host.cpus")


def test_a_compat_library_that_would_be_picked_is_the_libcuda():
    """`resolved` says it, whether or not `driver.libcuda` was filled in as well."""
    from tests.rules.build import say, torch

    document = {"driver": {"version": "470.129.06"}, "compat": {"cuda": "12.2", "resolved": True}}
    assert "fail" not in say("driver/too-old-for-cuda", torch=torch("12.1"), **document)
    idle = dict(document, compat={"cuda": "12.2", "resolved": False})
    assert say("driver/too-old-for-cuda", torch=torch("12.1"), **idle) == ["fail"]
