"""torchrun's own parser against ours: the same nodes, processes, ranks and meeting place."""

import json
import subprocess
import sys

import pytest

from preflight.launching import command, meeting
from tests.real import stack

#: Arguments as an argument vector: no shell is between.
LINES = [
    ["t.py"],
    ["--nnodes=2", "--nproc_per_node=8", "--node_rank=1", "--master_addr=h", "--master_port=7",
     "t.py"],
    ["--nnodes", "1:4", "--nproc-per-node", "gpu", "--rdzv-backend", "c10d", "--rdzv-endpoint",
     "h:29400", "--rdzv-id", "x", "t.py", "--nnodes", "9"],
    ["--nproc-per-node=4", "--max-restarts", "3", "-r", "3", "-t", "0:1", "--role", "w", "-m",
     "pkg.mod", "--nproc-per-node", "9"],
    ["--standalone", "--nproc-per-node", "auto", "--no-python", "bash", "-c", "x"],
    ["--node-rank", "3", "--log-dir", "/x", "--start-method", "spawn", "--tee=3", "t.py"],
    ["--monitor-interval", "5", "--local-addr", "1.2.3.4", "--nnodes=3", "t.py"],
    ["--rdzv-conf", "timeout=9", "--run-path", "--nnodes", "2", "t.py"],
    ["--redirects=3", "--local-ranks-filter", "0", "--nproc_per_node", "2", "t.py"],
]  # fmt: skip
#: Variables that give torchrun's options another default.
VARIABLES = [
    {},
    {"PET_NNODES": "5", "PET_NPROC_PER_NODE": "6", "PET_NODE_RANK": "4",
     "PET_MASTER_ADDR": "p", "PET_MASTER_PORT": "77"},
    {"PET_RDZV_ENDPOINT": "e:1", "PET_RDZV_BACKEND": "c10d", "MASTER_ADDR": "not-read"},
]  # fmt: skip
CODE = """
import json, os, sys
from torch.distributed.run import get_args_parser
answers = []
for variables, words in json.load(sys.stdin):
    for name in [one for one in os.environ if one.startswith("PET_")]:
        del os.environ[name]
    os.environ.update(variables)
    args = get_args_parser().parse_args(words)
    answers.append({k: str(getattr(args, k)) for k in (
        "nnodes", "nproc_per_node", "node_rank", "master_addr", "master_port", "rdzv_backend",
        "rdzv_endpoint", "standalone", "training_script")})
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def python() -> str:
    venv, why = stack.torch_venv()
    if why:
        pytest.skip(why)
    return venv + "/bin/python"


def test_the_parsers_agree(python: str) -> None:
    asked = [(variables, words) for variables in VARIABLES for words in LINES]
    done = subprocess.run(
        [python, "-c", CODE], input=json.dumps(asked).encode(), capture_output=True, check=True,
        timeout=120,
    )  # fmt: skip
    for (variables, words), theirs in zip(asked, json.loads(done.stdout.decode())):
        ours = command.of_words(["torchrun", *words], variables.get)
        assert ours is not None

        def option(name: str, default: str) -> str:
            return meeting.option(ours, name, variables)[0] or default  # noqa: B023

        assert option("nnodes", "1:1") == theirs["nnodes"], words
        assert option("nproc-per-node", "1") == theirs["nproc_per_node"], words
        assert option("node-rank", "0") == theirs["node_rank"], words
        assert option("master-addr", "127.0.0.1") == theirs["master_addr"], words
        assert option("master-port", "None") == theirs["master_port"], words
        assert option("rdzv-backend", "static") == theirs["rdzv_backend"], words
        assert option("rdzv-endpoint", "") == theirs["rdzv_endpoint"], words
        assert ("standalone" in ours.flags) == (theirs["standalone"] == "True"), words
        assert ours.script == theirs["training_script"], words


def test_this_python_is_not_the_one_with_torch() -> None:
    """The oracle is asked in a process of its own: nothing of ours imports torch."""
    assert "torch" not in sys.modules
