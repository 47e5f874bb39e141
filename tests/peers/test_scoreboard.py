"""preflight's own row of the scoreboard: every verdict right, and soon."""

import statistics
from pathlib import Path

import pytest

from tests.peers import scenarios
from tests.peers.scenarios import DEADLINE, SCENARIOS, Missing

RUNS = 3
SECONDS = 1.0


@pytest.mark.parametrize("name", SCENARIOS)
def test_preflight_is_right_and_quick(name: str, tmp_path: Path) -> None:
    scenario = SCENARIOS[name]
    try:
        stage = scenarios.set_up(name, tmp_path)
    except Missing as missing:
        pytest.skip(str(missing))
    times = []
    for _ in range(RUNS):
        ran = scenarios.check(stage, scenario)
        assert scenarios.verdict_of(ran) == scenario.expected, ran.out
        assert ran.code == (78 if scenario.expected == "fail" else 0)
        times.append(ran.seconds)
    limit = DEADLINE + SECONDS if scenario.hangs else SECONDS
    assert statistics.median(times) < limit


def test_a_stand_in_nvidia_smi_is_good_enough_for_others(tmp_path: Path) -> None:
    """The stand-ins are fair: what peers ask nvidia-smi for is answered, in its own format."""
    try:
        stage = scenarios.set_up("S1", tmp_path)
    except Missing as missing:
        pytest.skip(str(missing))
    query = ["--query-gpu=index,name,driver_version,memory.total", "--format=csv,noheader,nounits"]
    ran = stage.run(["nvidia-smi", *query])
    assert ran.out == "0, NVIDIA A100-SXM4-80GB, 535.104.05, 81920\n"
    assert "CUDA Version: 12.2" in stage.run(["nvidia-smi"]).out
    assert "<cuda_version>12.2</cuda_version>" in stage.run(["nvidia-smi", "-q", "-x"]).out
