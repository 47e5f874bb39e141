"""Machines that checkers get wrong, as stand-ins: what each looks like, and the right verdict."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

from tests import fakes
from tests.fakes import A100, H100, FakeGpu
from tests.real import stack

#: Of preflight's check, where the driver hangs: long enough to be sure, short enough to wait for.
DEADLINE = 3.0

BANNER = """\
Tue Sep 23 10:11:16 2025
+-----------------------------------------------------------------------------------------+
| {head:87} |
|-----------------------------------------+------------------------+----------------------|
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
|   0  {name:30} On | 00000000:1B:00.0   Off |                    0 |
| N/A   30C    P0             60W /  400W |       4MiB / {memory:6d}MiB |      0%      Default |
+-----------------------------------------------------------------------------------------+"""
OLD_HEAD = "NVIDIA-SMI {driver}   Driver Version: {driver}   CUDA Version: {cuda}"
#: Since R610 the banner tells the two halves of the driver apart.
NEW_HEAD = "NVIDIA-SMI {driver}   KMD Version: {driver}   CUDA UMD Version: {cuda}"

XML = """\
<?xml version="1.0" ?>
<nvidia_smi_log><driver_version>{driver}</driver_version><cuda_version>{cuda}</cuda_version>
<attached_gpus>1</attached_gpus><gpu id="00000000:1B:00.0"><product_name>{name}</product_name>
<uuid>GPU-1b000000-0000-0000-0000-000000000000</uuid>
<fb_memory_usage><total>{memory} MiB</total><used>4 MiB</used></fb_memory_usage></gpu>
</nvidia_smi_log>"""

SCRIPT = """\
#!/bin/sh
for word in "$@"; do
    case $word in
        --query-gpu=*) fields=${{word#--query-gpu=}} ;;
        --format=*) format=$word ;;
        -L) echo 'GPU 0: {name} (UUID: GPU-1b000000-0000-0000-0000-000000000000)'; exit ;;
        -x|--xml-format) cat <<'END'
{xml}
END
            exit ;;
    esac
done
if [ -z "$fields" ]; then cat <<'END'
{banner}
END
    exit
fi
case $format in *noheader*) ;; *) echo "$fields" ;; esac
unit=' MiB'
case $format in *nounits*) unit= ;; esac
line=
for field in $(echo "$fields" | tr ',' ' '); do
    case $field in
        name|gpu_name) value='{name}' ;;
        driver_version) value={driver} ;;
        compute_cap) value={capability} ;;
        memory.total) value={memory}$unit ;;
        memory.used) value=4$unit ;;
        memory.free) value={memory}$unit ;;
        index|gpu_index|count|gpu_count) value=0; case $field in *count) value=1 ;; esac ;;
        uuid|gpu_uuid) value=GPU-1b000000-0000-0000-0000-000000000000 ;;
        pci.bus_id|gpu_bus_id) value=00000000:1B:00.0 ;;
        *) value='[N/A]' ;;
    esac
    line=${{line:+$line, }}$value
done
echo "$line"
"""


@dataclass(frozen=True)
class Scenario:
    """A machine, the torch in it, and the right verdict: "fail", "ok" or "unknown".

    `smi` says what nvidia-smi does: "old" or "new" banner, "hangs" or "" (not there).
    `needs_proc`: it is only itself with a /proc/driver of its own.
    """

    title: str
    expected: str
    driver: str = ""
    cuda: str = ""
    gpu: FakeGpu = H100
    torch: str = "cu130"
    smi: str = "old"
    compat: Optional[Tuple[str, str]] = None
    needs_proc: bool = False
    options: Dict[str, Any] = field(default_factory=dict)

    @property
    def hangs(self) -> bool:
        """Whether a checker has to give up on the driver."""
        return "hang" in self.options.values()


SCENARIOS: Dict[str, Scenario] = {
    "S1": Scenario("driver 535 / CUDA 12.2, torch for 13.0", "fail", "535.104.05", "12.2", A100),
    "S2": Scenario(
        "driver 535 / CUDA 12.2, torch for 12.8: minor-version compatibility", "ok",
        "535.104.05", "12.2", A100, torch="cu12",
    ),
    "S3": Scenario(
        "driver 535, cuda-compat 13.2 on an A100, torch for 13.0: forward compatibility", "ok",
        "535.104.05", "12.2", A100, compat=("595.45.04", "13.2"),
    ),
    "S5": Scenario(
        "driver 610, nvidia-smi's renamed banner, no NVML", "ok",
        "610.43.02", "13.3", smi="new", needs_proc=True, options={"nvml": "absent"},
    ),
    "S6a": Scenario("nvidia-smi hangs", "ok", "580.95.05", "13.0", smi="hangs"),
    "S6b": Scenario(
        "NVML hangs when initialised", "unknown", "580.95.05", "13.0", options={"nvml": "hang"}
    ),
    "CPU": Scenario("no GPU, torch for the CPU", "ok", torch="cpu", smi=""),
}  # fmt: skip

#: What a compat libcuda of CUDA 13.2 says of itself.
NOTE = {"CUDA Version": 13020, "Driver": [535, 550, 570, 575, 580], "Device": [2, 14]}


@dataclass(frozen=True)
class Stage:
    """A scenario set up: the environment of torch, variables, and the /proc/driver, if any."""

    venv: str
    variables: Dict[str, str]
    proc: Optional[Path]

    def run(self, words: List[str], timeout: float = 60, **more: str) -> stack.Ran:
        """Run a command on this machine."""
        line = stack.behind(self.proc, words) if self.proc else words
        return stack.run(line, stack.environment(**{**self.variables, **more}), timeout)


class Missing(Exception):
    """What a scenario needs is not on this machine; the text says what."""


def torch_of(kind: str) -> str:
    """The environment of a kind of torch; raises Missing."""
    if kind == "cpu":
        found, problem = stack.extra_venv("torch-cpu", "torch==2.13.0+cpu", always=True)
    elif kind == "cu12":
        found, problem = stack.extra_venv("torch-cu12", "torch==2.8.0")
    else:
        found, problem = stack.torch_venv()
    if problem:
        raise Missing(problem)
    return found


def set_up(name: str, directory: Path) -> Stage:
    """Build the machine of a scenario in `directory`; raises Missing."""
    scenario = SCENARIOS[name]
    problem = stack.own_gpu() or ("" if fakes.compiler() else "no C compiler")
    no_proc = stack.no_proc()
    if problem or (scenario.needs_proc and no_proc):
        raise Missing(problem or no_proc)
    venv = torch_of(scenario.torch)
    bin_directory = directory / "bin"
    bin_directory.mkdir(parents=True)
    if scenario.smi:
        smi = bin_directory / "nvidia-smi"
        smi.write_text(script(scenario))
        smi.chmod(0o755)
    variables = {"PATH": f"{bin_directory}:{os.environ['PATH']}"}
    if scenario.driver:
        variables["LD_LIBRARY_PATH"] = libraries(scenario, directory)
    proc = None
    if scenario.driver and not no_proc:
        proc = stack.write_proc(directory / "proc", scenario.driver, [scenario.gpu])
    return Stage(venv, variables, proc)


def libraries(scenario: Scenario, directory: Path) -> str:
    """The LD_LIBRARY_PATH of a scenario."""
    gpus = [scenario.gpu]
    driver = fakes.build(
        directory / "driver", driver=scenario.driver, cuda=scenario.cuda, gpus=gpus,
        **scenario.options,
    )  # fmt: skip
    if not scenario.compat:
        return str(driver)
    version, cuda = scenario.compat
    compat = fakes.build(
        directory / "compat",
        driver=version, cuda=cuda, gpus=gpus, nvml="absent",
        libcuda_file=f"libcuda.so.{version}", fwd_note=NOTE,
    )  # fmt: skip
    return f"{compat}:{driver}"


def script(scenario: Scenario) -> str:
    """The stand-in nvidia-smi."""
    if scenario.smi == "hangs":
        return "#!/bin/sh\nexec sleep 300\n"
    # With a compat libcuda in front, nvidia-smi prints its CUDA, as NVML does.
    cuda = scenario.compat[1] if scenario.compat else scenario.cuda
    values = {
        "driver": scenario.driver,
        "cuda": cuda,
        "name": scenario.gpu.name,
        "capability": scenario.gpu.capability,
        "memory": int(scenario.gpu.memory_gib * 1024),
    }
    head = (NEW_HEAD if scenario.smi == "new" else OLD_HEAD).format(**values)
    banner = BANNER.format(head=head, **values)
    return SCRIPT.format(banner=banner, xml=XML.format(**values), **values)


def check(stage: Stage, scenario: Scenario) -> stack.Ran:
    """preflight's own check of it."""
    words = ["check", "--python", stage.venv]
    if scenario.hangs:
        words += ["--timeout", f"{DEADLINE:g}"]
    return stage.run(stack.command(*words))


def verdict_of(ran: stack.Ran) -> str:
    """What preflight said: "fail", "ok" or "unknown" ("warn" is its own word)."""
    word = ran.last.partition(":")[0].lower()
    return {"pass": "ok"}.get(word, word)
