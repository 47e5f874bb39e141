"""Rules about platforms: each breaks where a job would, and holds where one runs."""

import json

import pytest

from tests.rules.build import finding, say, torch

WORLD = "platform/world-size-mismatch"
RANKS = "platform/rank-out-of-range"
NAME = "platform/master-unresolvable"
REACH = "platform/master-unreachable"
FORM = "platform/variable-malformed"
RENAMED = "platform/variable-renamed"
OMP = "platform/omp-threads"

DLC = {"DLC_JOB_ID": "dlc1", "WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "dlc1-master-0",
       "MASTER_PORT": "23456", "NPROC_PER_NODE": "8"}  # fmt: skip
RIGHT = ("torchrun --nnodes=$WORLD_SIZE --node_rank=$RANK --master_addr=$MASTER_ADDR "
         "--master_port=$MASTER_PORT --nproc_per_node=8 train.py")  # fmt: skip
EIGHT = [{"name": "NVIDIA A100-SXM4-80GB", "count": 8, "compute_capability": "8.0"}]


def job(command, env=None, gpus=EIGHT, **more):
    """A described job: its command, the variables it has (DLC's by default), its GPUs."""
    described = {"env": DLC if env is None else env, "job": {"command": command, **more}}
    if gpus is not None:
        described["gpus"] = gpus
    return described


# -- nodes and processes ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        RIGHT,
        f"bash -c 'cd /mnt/data && {RIGHT}'".replace("$", "$"),
        RIGHT.replace("--nproc_per_node=8", "--nproc_per_node=$NPROC_PER_NODE"),
        RIGHT.replace("--nproc_per_node=8", "--nproc_per_node=gpu"),
        RIGHT.replace("--nproc_per_node=8", "--nproc_per_node=4"),
        RIGHT.replace("--nnodes=$WORLD_SIZE", "--nnodes=1:2"),
        "accelerate launch --num_machines 2 --num_processes 16 --machine_rank $RANK train.py",
        "deepspeed --num_gpus 8 --num_nodes 2 train.py",
    ],
)
def test_right_launch_lines_of_dlc(line):
    assert say(WORLD, **job(line), torch=torch("12.4")) == ["pass"]


@pytest.mark.parametrize(
    ("line", "env", "nodes", "words"),
    [
        # WORLD_SIZE multiplied by the GPUs, while the platform tells of two nodes.
        (RIGHT, {**DLC, "WORLD_SIZE": "16"}, 2, "waits for 16 nodes, and the job has 2"),
        (RIGHT.replace("$WORLD_SIZE", "16"), DLC, None, "waits for 16 nodes, and the job has 2"),
        ("export WORLD_SIZE=16; " + RIGHT, DLC, None, "waits for 16 nodes, and the job has 2"),
        ("deepspeed --num_nodes 16 train.py", DLC, None, "waits for 16 nodes"),
        ("torchrun --nnodes=16 train.py", {"PET_NNODES": "2"}, None, "waits for 16 nodes"),
        ("srun torchrun --nnodes=16 train.py",
         {"SLURM_JOB_ID": "1", "SLURM_JOB_NUM_NODES": "2"}, None, "waits for 16 nodes"),
        ("torchrun --nnodes=16 t.py", {"SM_CURRENT_HOST": "a", "SM_HOSTS": '["a", "b"]'}, None,
         "waits for 16 nodes, and the job has 2"),
    ],
)  # fmt: skip
def test_more_nodes_than_there_are(line, env, nodes, words):
    more = {} if nodes is None else {"nodes": nodes}
    found = finding(WORLD, **job(line, env, **more), torch=torch("12.4"))
    assert words in found.summary and found.severity == "fail"
    assert any(proof.fact == "job.command" for proof in found.evidence)


def test_the_fix_can_be_pasted():
    found = finding(WORLD, **job("torchrun --nproc_per_node=8 train.py"), torch=torch("12.4"))
    assert found.severity == "warn" and "each node trains alone" in found.summary
    assert found.fix[0] == RIGHT


@pytest.mark.parametrize(
    "line",
    ["torchrun --nproc_per_node=8 train.py", "torchrun --standalone --nproc_per_node=8 train.py",
     "python -m torch.distributed.launch --nproc_per_node=8 train.py", "swift sft --model x",
     "python train.py"],
)  # fmt: skip
def test_nodes_that_train_alone_warn_and_do_not_stop(line):
    assert say(WORLD, **job(line), torch=torch("12.4")) == ["warn"]


@pytest.mark.parametrize(
    ("line", "env", "gpus"),
    [
        # One GPU a node: a node is a process.
        ("python train.py", {**DLC, "NPROC_PER_NODE": "1"}, [{**EIGHT[0], "count": 1}]),
        ("swift sft", {**DLC, "NNODES": "2", "NODE_RANK": "0"}, EIGHT),
        ("NNODES=2 NODE_RANK=0 swift sft", DLC, EIGHT),
        # One node: Python may start the others itself, or use all GPUs in one process.
        ("python train.py", {**DLC, "WORLD_SIZE": "1"}, EIGHT),
        # A CPU job: NPROC_PER_NODE=0 is how PAI says so.
        ("python train.py", {**DLC, "NPROC_PER_NODE": "0"}, []),
        # Slurm starts a process for every task; WORLD_SIZE is none of its variables.
        ("srun python train.py", {"SLURM_JOB_ID": "1", "SLURM_JOB_NUM_NODES": "2"}, EIGHT),
        ("python train.py", {"SLURM_JOB_ID": "1", "SLURM_JOB_NUM_NODES": "2"}, EIGHT),
        # Not known what it launches.
        ("bash run.sh", DLC, EIGHT),
        ("python -m vllm.entrypoints.api_server", DLC, EIGHT),
        ("ray start --head", DLC, EIGHT),
        ("mpirun -np 16 python train.py", DLC, EIGHT),
        ("torchrun --nnodes=$UNHEARD_OF --nproc_per_node=8 t.py", DLC, EIGHT),
        ("torchrun --nproc_per_node=8 t.py", {**DLC, "WORLD_SIZE": "1"}, EIGHT),
    ],
)
def test_what_may_be_meant_is_not_judged(line, env, gpus):
    assert set(say(WORLD, **job(line, env, gpus), torch=torch("12.4"))) <= {"pass", "n/a"}


def test_more_processes_than_gpus():
    line = "torchrun --nproc_per_node=8 train.py"
    four = [{**EIGHT[0], "count": 4}]
    found = finding(WORLD, **job(line, {}, four), torch=torch("12.4"))
    assert found.severity == "fail" and "has 4 GPU(s)" in found.summary
    assert "invalid device ordinal" in found.why
    # Without a CUDA build it may be a job for the CPU.
    assert say(WORLD, **job(line, {}, four)) == ["warn"]
    assert say(WORLD, **job(line, {}, EIGHT), torch=torch("12.4")) == ["pass"]
    assert say(WORLD, **job(line, {"CUDA_VISIBLE_DEVICES": "0,1"}), torch=torch("12.4")) == ["fail"]
    assert say(WORLD, **job(line, {"CUDA_VISIBLE_DEVICES": ""}), torch=torch("12.4")) == ["n/a"]
    sliced = [{**EIGHT[0], "count": 1, "mig_mode": True}]
    assert say(WORLD, **job(line, {}, sliced), torch=torch("12.4")) == ["n/a"]
    assert say(WORLD, **job(line, {}, None), torch=torch("12.4")) == ["n/a"]
    spread = "accelerate launch --num_machines 2 --num_processes 32 train.py"
    assert say(WORLD, **job(spread, {}, EIGHT), torch=torch("12.4")) == ["fail"]


def test_eight_tasks_that_start_eight_processes_each():
    line = "srun --ntasks-per-node=8 torchrun --nproc-per-node=8 train.py"
    slurm = {"SLURM_JOB_ID": "1"}
    found = finding(WORLD, **job(line, slurm), torch=torch("12.4"))
    assert "8 tasks of 8 processes" in found.summary and found.severity == "fail"
    step = {**slurm, "SLURM_STEP_NUM_TASKS": "16", "SLURM_STEP_NUM_NODES": "2"}
    inside = "torchrun --nproc-per-node=8 train.py"
    assert say(WORLD, **job(inside, step), torch=torch("12.4")) == ["fail"]
    one = {**step, "SLURM_STEP_NUM_TASKS": "2"}
    assert say(WORLD, **job(inside, one), torch=torch("12.4")) == ["pass"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("torchrun --nnodes='$WORLD_SIZE' t.py", "--nnodes=$WORLD_SIZE"),
        ("torchrun --nnodes='' t.py", "--nnodes is empty"),
        ("torchrun --nproc-per-node=0 t.py", "--nproc-per-node=0"),
        ("torchrun --nproc-per-node=8.0 t.py", "--nproc-per-node=8.0"),
        ("torchrun --node-rank=worker-1 t.py", "--node-rank=worker-1"),
    ],
)
def test_options_that_are_no_numbers(line, words):
    found = finding(WORLD, **job(line, {}))
    assert words in found.summary and found.severity == "fail"


def test_the_gpus_that_pai_says_it_gave():
    env = {**DLC, "KUBERNETES_CONTAINER_RESOURCE_GPU": "8"}
    assert say(WORLD, **job(RIGHT, env), torch=torch("12.4")) == ["pass"]
    found = finding(WORLD, **job("bash run.sh", env, [{**EIGHT[0], "count": 7}]))
    assert found.severity == "warn" and "7 GPU(s) are here" in found.summary
    bare = {"KUBERNETES_CONTAINER_RESOURCE_GPU": "8"}
    assert say(WORLD, **job("bash run.sh", bare, [{**EIGHT[0], "count": 7}])) == ["n/a"]


def test_within_torchrun_the_counts_are_of_processes():
    inside = {**DLC, "TORCHELASTIC_RUN_ID": "none", "WORLD_SIZE": "16", "RANK": "9",
              "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "8", "GROUP_WORLD_SIZE": "2",
              "GROUP_RANK": "1"}  # fmt: skip
    assert say(WORLD, **job("python train.py", inside)) == ["pass"]
    assert say(WORLD, **job("python train.py", {**inside, "WORLD_SIZE": "2"})) == ["fail"]
    assert say(WORLD, **job("python train.py", {**inside, "WORLD_SIZE": "12"})) == ["warn"]


def test_several_launchers_variables():
    mpi = {"OMPI_COMM_WORLD_SIZE": "16", "OMPI_COMM_WORLD_RANK": "3"}
    assert say(WORLD, **job("python t.py", {**mpi, "WORLD_SIZE": "2"})) == ["warn"]
    assert "warn" not in say(WORLD, **job("python t.py", {**mpi, "WORLD_SIZE": "16"}))
    slurm = {"SLURM_JOB_ID": "1", "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "16"}
    assert say(WORLD, **job("python t.py", {**slurm, "WORLD_SIZE": "2"})) == ["warn"]
    assert "warn" not in say(WORLD, **job("python t.py", {**slurm, "WORLD_SIZE": "16"}))


def test_a_launch_line_that_reads_what_nobody_sets():
    line = RIGHT.replace("$WORLD_SIZE", "$PAI_WORKER_NUM")
    found = finding(WORLD, **job(line))
    assert "PAI_WORKER_NUM" in found.summary and "$WORLD_SIZE" in found.needed
    assert "warn" not in say(WORLD, **job(line, {**DLC, "PAI_WORKER_NUM": "2"}))


# -- ranks ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({"RANK": "0", "WORLD_SIZE": "2"}, ["pass"]),
        ({"RANK": "1", "WORLD_SIZE": "2"}, ["pass"]),
        ({"RANK": "2", "WORLD_SIZE": "2"}, ["fail"]),
        ({"RANK": "-1", "WORLD_SIZE": "2"}, ["fail"]),
        ({"RANK": "worker-0", "WORLD_SIZE": "2"}, ["fail"]),
        ({"RANK": "", "WORLD_SIZE": "2"}, ["fail"]),
        ({"RANK": "0", "WORLD_SIZE": "0"}, ["fail"]),
        ({"RANK": "x"}, ["fail"]),
        ({"RANK": "7"}, ["n/a"]),
        ({}, ["n/a"]),
        ({"LOCAL_RANK": "8", "LOCAL_WORLD_SIZE": "8"}, ["fail"]),
        ({"PET_NODE_RANK": "1", "PET_NNODES": "1:4"}, ["pass"]),
        ({"PET_NODE_RANK": "4", "PET_NNODES": "1:4"}, ["fail"]),
        ({"OMPI_COMM_WORLD_RANK": "16", "OMPI_COMM_WORLD_SIZE": "16"}, ["fail"]),
        ({"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "4"}, ["pass"]),
        ({"SLURM_NODEID": "2", "SLURM_JOB_NUM_NODES": "2"}, ["fail"]),
        ({"NODE_RANK": "2", "NNODES": "2"}, ["fail"]),
    ],
)
def test_ranks(env, said):
    assert say(RANKS, env=env) == said


def test_a_rank_of_minus_one_is_a_job_of_one():
    """Scripts write LOCAL_RANK=-1 for "not distributed": that stops nothing by itself."""
    for name in ("LOCAL_RANK", "RANK"):
        assert say(RANKS, env={name: "-1"}, job={"command": "python train.py"}) == ["warn"]
    assert say(RANKS, env={"LOCAL_RANK": "-2"}, job={"command": "python train.py"}) == ["fail"]
    assert say(RANKS, env={"RANK": "-1", "WORLD_SIZE": "2"}) == ["fail"]


def test_a_launcher_to_come_sets_ranks_anew():
    env = {"RANK": "5", "WORLD_SIZE": "2"}
    assert say(RANKS, **job("torchrun t.py", env)) == ["warn"]
    assert say(RANKS, **job("python t.py", env)) == ["fail"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("torchrun --nnodes=2 --node-rank=1 --master-addr=h t.py", ["n/a"]),
        ("torchrun --nnodes=2 --node-rank=2 --master-addr=h t.py", ["fail"]),
        # Forgotten --nnodes, with a place to meet: the second node waits for ever.
        ("torchrun --node-rank=1 --master-addr=h --master-port=1 t.py", ["fail"]),
        ("torchrun --node-rank=1 t.py", ["n/a"]),
        ("torchrun --node-rank=5 --nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=h t.py", ["n/a"]),
        ("torchrun --standalone --node-rank=5 t.py", ["n/a"]),
    ],
)
def test_the_rank_of_a_node(line, said):
    assert say(RANKS, **job(line, {}, None)) == said


# -- where the nodes meet ---------------------------------------------------------------------


def met(state="connected", rank=1, addresses=("10.0.0.1",), local=False, **more):
    """A job of two nodes as the probe saw it."""
    return {
        "env": {**DLC, "RANK": str(rank)},
        "master": {"address": "dlc1-master-0", "port": "23456", "addresses": list(addresses),
                   "local": local, "state": state},
        "host": {"master_resolves": True},
        **more,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("state", "rank", "local", "said"),
    [
        ("connected", 1, False, ["pass"]),
        ("refused", 1, False, ["info"]),
        ("timed out", 1, False, ["warn"]),
        ("unreachable", 1, False, ["warn"]),
        ("refused", 1, True, ["warn"]),
        ("free", 0, True, ["pass"]),
        ("taken", 0, True, ["warn"]),
        ("free", 0, False, ["warn"]),
    ],
)
def test_how_the_master_answers(state, rank, local, said):
    assert say(REACH, **met(state, rank, local=local)) == said
    assert say(NAME, **met(state, rank, local=local)) == ["pass"]


def test_a_taken_port_fails_what_is_to_be_started():
    found = finding(REACH, **met("taken", 0, local=True, job={"command": RIGHT}))
    assert found.severity == "fail" and "ss -ltnp" in found.fix[0]


def test_in_kubernetes_the_first_node_may_be_behind_a_service():
    described = met("free", 0)
    described["env"]["KUBERNETES_SERVICE_HOST"] = "10.0.0.1"
    assert say(REACH, **described) == ["info"]


@pytest.mark.parametrize(
    ("line", "env", "said"),
    [
        ("torchrun --nnodes=2 --nproc_per_node=8 t.py", DLC, ["fail"]),  # reads no MASTER_ADDR
        ("torchrun --nnodes=2 --master_addr=localhost t.py", DLC, ["fail"]),
        ("python t.py", {**DLC, "MASTER_ADDR": "127.0.0.1"}, ["fail"]),
        ("python t.py", {**DLC, "MASTER_PORT": "tcp://1"}, ["fail"]),
        ("python t.py", {**DLC, "MASTER_PORT": "70000"}, ["fail"]),
        ("python t.py", {**DLC, "WORLD_SIZE": "1", "MASTER_ADDR": "localhost"}, ["n/a"]),
        ("python t.py", DLC, ["unknown"]),  # nobody has looked yet
        (RIGHT, DLC, ["unknown"]),
        ("torchrun --standalone t.py", {"MASTER_ADDR": "localhost"}, ["n/a"]),
        ("torchrun --nnodes=2 --rdzv-backend=etcd --rdzv-endpoint=localhost:1 t.py", {}, ["n/a"]),
    ],
)
def test_where_the_nodes_would_meet(line, env, said):
    assert say(NAME, **job(line, env)) == said


def test_a_name_that_does_not_resolve():
    described = met()
    described["host"] = {"master_resolves": False}
    found = finding(NAME, **described)
    assert "does not resolve" in found.summary and "getent hosts dlc1-master-0" in found.fix[0]
    assert say(REACH, **described) == ["n/a"]


def test_a_name_that_is_loopback_here():
    assert say(NAME, **met(addresses=("127.0.1.1",), rank=1)) == ["fail"]
    assert say(NAME, **met(addresses=("127.0.1.1",), rank=0, local=True)) == ["pass"]


def test_within_torchrun_the_nodes_have_met():
    described = met("taken", 0, local=True)
    described["env"]["TORCHELASTIC_RUN_ID"] = "x"
    assert say(REACH, **described) == ["n/a"] and say(NAME, **described) == ["n/a"]


# -- single variables -------------------------------------------------------------------------


def cluster(**changed):
    whole = {"cluster": {"worker": ["a:2222", "b:2222"], "ps": ["p:2222"]},
             "task": {"type": "worker", "index": 1}, "environment": "cloud"}  # fmt: skip
    return {"DLC_JOB_ID": "dlc1", "TF_CONFIG": json.dumps({**whole, **changed})}


@pytest.mark.parametrize(
    ("env", "said"),
    [
        (cluster(), ["pass"]),
        (cluster(task={"type": "evaluator", "index": 0}), ["pass"]),
        (cluster(task={"type": "worker", "index": "1"}), ["pass"]),
        ({"TF_CONFIG": "{}"}, ["pass"]),
        (cluster(task={"type": "worker", "index": 2}), ["fail"]),
        (cluster(task={"type": "chief", "index": 0}), ["fail"]),
        (cluster(task={"type": "worker"}), ["fail"]),
        (cluster(task=None), ["fail"]),
        (cluster(cluster=["a:1"]), ["fail"]),
        (cluster(cluster={"worker": "a:1,b:1"}), ["fail"]),
        (cluster(cluster={"worker": ["a", "b"]}), ["fail"]),
        ({"TF_CONFIG": "{'cluster': {}}"}, ["fail"]),
        ({"TF_CONFIG": ""}, ["fail"]),
        ({"TF_CONFIG": "[" * 100_000}, ["fail"]),
        ({"DLC_JOB_ID": "d", "NPROC_PER_NODE": "0"}, ["pass"]),
        ({"DLC_JOB_ID": "d", "NPROC_PER_NODE": "eight"}, ["warn"]),
        ({"NPROC_PER_NODE": "eight"}, ["n/a"]),
        ({"SM_TRAINING_ENV": "(masked)", "SM_HOSTS": '["a"]'}, ["pass"]),
        ({"SM_TRAINING_ENV": "(masked)", "SM_HOSTS": "a"}, ["fail"]),
        ({}, ["n/a"]),
    ],
)
def test_variables_with_a_form(env, said):
    assert say(FORM, env=env) == said


def test_tf_config_of_a_job_without_tensorflow_stops_nothing():
    env = {"TF_CONFIG": "{"}
    assert say(FORM, env=env, torch=torch("12.4")) == ["warn"]
    assert say(FORM, env=env, tensorflow={"version": "2.15.0"}) == ["fail"]


def test_names_that_nobody_reads_and_names_that_changed():
    assert say(RENAMED, env={"NCCL_TIMEOUT": "1800"}) == ["warn"]
    assert "timeout=" in finding(RENAMED, env={"NCCL_TIMEOUT": "1800"}).why
    assert say(RENAMED, env={"NCCL_SOCKET_IF_NAME": "eth0"}) == ["warn"]
    old = {"NCCL_ASYNC_ERROR_HANDLING": "1"}
    found = finding(RENAMED, env=old, torch=torch("12.4", "2.6.0"))
    assert found.severity == "info" and "TORCH_NCCL_ASYNC_ERROR_HANDLING" in found.fix[0]
    assert say(RENAMED, env=old, torch=torch("11.7", "1.13.1")) == ["pass"], "it reads the old one"
    both = {**old, "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"}
    assert say(RENAMED, env=both, torch=torch("12.4", "2.6.0")) == ["pass"]
    assert say(RENAMED, env={"NCCL_DEBUG": "INFO"}) == ["n/a"]


@pytest.mark.parametrize(
    ("threads", "cpus", "processes", "said"),
    [
        ("1", 96, 8, ["info"]),
        ("1", 8, 8, ["pass"]),
        ("12", 96, 8, ["pass"]),
        ("96", 96, 8, ["info"]),
        ("96", 8, None, ["info"]),
        ("x", 8, 8, ["info"]),
        ("0", 8, 8, ["info"]),
        ("4,2", 8, 2, ["pass"]),
        ("4", None, 8, ["unknown"]),
        (None, 8, 8, ["n/a"]),
    ],
)
def test_threads(threads, cpus, processes, said):
    env = {} if threads is None else {"OMP_NUM_THREADS": threads}
    host = {} if cpus is None else {"cpus": cpus}
    known = {} if processes is None else {"processes_per_node": processes}
    assert say(OMP, env=env, host=host, job=known) == said
