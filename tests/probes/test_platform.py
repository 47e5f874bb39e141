"""Which platform runs a job: by what only it sets, its metadata, and the command it starts."""

import json
import random

import pytest

from preflight import snapshot_json, tables
from preflight.probes import platform, system
from preflight.probes.platform import METADATA
from tests.probes.fake_root import Image

MARKS = tables.built_in()["marks"]
PYTORCH = {"WORLD_SIZE": "2", "RANK": "1", "MASTER_ADDR": "h", "MASTER_PORT": "23456"}


@pytest.fixture
def image(tmp_path):
    return Image(tmp_path)


def job(image, env, *command):
    return platform.read(image.root, env, command, MARKS).job


@pytest.mark.parametrize(
    ("env", "name", "by"),
    [
        ({"DLC_JOB_ID": "dlc1"}, "pai-dlc", "DLC_JOB_ID"),
        ({"PAI_TRAINING_JOB_ID": "train1"}, "pai-training", "PAI_TRAINING_JOB_ID"),
        ({"DSW_INSTANCE_ID": "dsw-1"}, "pai-dsw", "DSW_INSTANCE_ID"),
        ({"TORCHELASTIC_RUN_ID": "none"}, "torchrun", "TORCHELASTIC_RUN_ID"),
        ({"PET_NNODES": "2"}, "kubeflow", "PET_NNODES"),
        ({"SLURM_JOB_ID": "7"}, "slurm", "SLURM_JOB_ID"),
        ({"OMPI_COMM_WORLD_SIZE": "2"}, "mpi", "OMPI_COMM_WORLD_SIZE"),
        ({"RAY_ADDRESS": "auto"}, "ray", "RAY_ADDRESS"),
        ({"VC_TASK_INDEX": "0"}, "volcano", "VC_TASK_INDEX"),
        ({"VC_TASK_INDEX": "0", "MA_JOB_DIR": "/x"}, "modelarts", "MA_JOB_DIR"),
        ({"SM_CURRENT_HOST": "algo-1", "SM_HOSTS": '["algo-1"]'}, "sagemaker",
         "SM_CURRENT_HOST, SM_HOSTS"),
        ({"AZUREML_RUN_ID": "r"}, "azure-ml", "AZUREML_RUN_ID"),
        ({"CLUSTER_SPEC": "{}"}, "vertex", "CLUSTER_SPEC"),
        ({"MLP_TASK_ID": "t"}, "volcengine", "MLP_TASK_ID"),
        ({"SLURM_JOB_ID": "7", "TORCHELASTIC_RUN_ID": "x"}, "slurm", "SLURM_JOB_ID"),
        ({"DLC_JOB_ID": "d", "SLURM_JOB_ID": "7"}, "pai-dlc", "DLC_JOB_ID"),
    ],
)  # fmt: skip
def test_recognised(image, env, name, by):
    found = job(image, env)
    assert found.platform.value == name
    assert found.platform.source.endswith(by)


@pytest.mark.parametrize(
    "env",
    [
        {},
        # Of other people's Services in the namespace, of OpenPAI, of a shell profile.
        {"DSW_95221_SERVICE_HOST": "10.192.9.246", "PAI_WORKSPACE_ID": "1"},
        {"PAI_CONFIG_PATH": "/x", "KUBERNETES_SERVICE_HOST": "10.0.0.1"},
        {"DLC_REGION_ID": "cn-hangzhou"},
        PYTORCH,
        {"DLC_JOB_ID": ""},
    ],
)
def test_not_recognised(image, env):
    found = job(image, env)
    assert found.platform.absent and not found.nodes.known and not found.kind.known


def test_openpai_is_not_taken_for_pai(image):
    assert job(image, {"PAI_CURRENT_TASK_ROLE_NAME": "worker"}).platform.value == "openpai"


@pytest.mark.parametrize(
    ("env", "kind"),
    [
        (PYTORCH, "pytorch"),
        ({"TF_CONFIG": "{}"}, "tensorflow"),
        ({"OMPI_COMM_WORLD_SIZE": "2"}, "mpi"),
        ({"RAY_ADDRESS": "auto"}, "ray"),
        ({"SLURM_JOB_ID": "1"}, "slurm"),
        ({}, None),
    ],
)
def test_kinds_of_dlc_jobs(image, env, kind):
    assert job(image, {"DLC_JOB_ID": "dlc1", **env}).kind.value == kind


@pytest.mark.parametrize(
    ("env", "nodes", "rank"),
    [
        ({"DLC_JOB_ID": "d", **PYTORCH}, 2, 1),
        # torchrun sets both anew, for processes; its own variables tell of nodes.
        ({"DLC_JOB_ID": "d", **PYTORCH, "WORLD_SIZE": "16", "RANK": "9", "GROUP_RANK": "1",
          "GROUP_WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "x"}, 2, 1),
        # mpirun leaves them alone.
        ({"DLC_JOB_ID": "d", **PYTORCH, "OMPI_COMM_WORLD_SIZE": "16"}, 2, 1),
        ({"PET_NNODES": "4", "PET_NODE_RANK": "3"}, 4, 3),
        ({"PET_NNODES": "1:4", "PET_NODE_RANK": "3"}, None, 3),
        ({"SLURM_JOB_ID": "1", "SLURM_JOB_NUM_NODES": "3", "SLURM_NODEID": "0"}, 3, 0),
        ({"SM_CURRENT_HOST": "b", "SM_HOSTS": '["a", "b"]'}, 2, None),
        ({"DLC_JOB_ID": "d", "WORLD_SIZE": "two", "RANK": ""}, None, None),
        ({"DLC_JOB_ID": "d", "WORLD_SIZE": "0", "RANK": "0"}, None, 0),
        (PYTORCH, None, None),  # of nobody known: it may count either
    ],
)  # fmt: skip
def test_nodes(image, env, nodes, rank):
    found = job(image, env)
    assert (found.nodes.value, found.node_rank.value) == (nodes, rank)


def test_the_command_is_kept_as_launchers_read_it_and_without_secrets(image):
    env = {"DLC_JOB_ID": "d", **PYTORCH, "WANDB_API_KEY": "s3cret"}
    text = ("export HF_TOKEN=s3cret; torchrun --nnodes=$WORLD_SIZE --nproc_per_node=8 "
            "--rdzv-conf=key=s3cret train.py --key s3cret")  # fmt: skip
    found = job(image, env, "bash", "-c", text)
    assert found.command.value == "torchrun --nnodes=2 --nproc-per-node=8 train.py"
    assert found.processes_per_node.value == 8
    assert job(image, env, "torchrun", "t.py").processes_per_node.value == 1
    assert not job(image, env, "python", "t.py").processes_per_node.known
    assert not job(image, env).command.looked


def test_the_metadata_of_pai(image):
    sources = [{"DataSourceType": "oss", "MountPath": "/mnt/data", "Uri": "oss://secret-bucket/"},
               {"DataSourceType": "nas", "MountPath": "/mnt/nas"}, {"Uri": "x"}, 3]  # fmt: skip
    image.write(METADATA, json.dumps({"DLC_REGION_ID": "cn-hangzhou", "DATA_SOURCES": sources}))
    found = job(image, {})
    assert (found.platform.value, found.platform.source) == ("pai-dlc", METADATA)
    assert found.mounts.value == ("oss /mnt/data", "nas /mnt/nas")
    image.write(METADATA, json.dumps({"DLC_REGION_ID": "x", "DATA_SOURCES": json.dumps(sources)}))
    assert job(image, {}).mounts.value == ("oss /mnt/data", "nas /mnt/nas")


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "[" * 100_000, '{"DATA_SOURCES": 3}', "\0"])
def test_metadata_that_cannot_be_read_tells_nothing(image, text):
    image.write(METADATA, text)
    found = job(image, {"DSW_INSTANCE_ID": "d"})
    assert found.platform.value == "pai-dsw" and not found.mounts.known


def test_metadata_out_of_bounds_or_out_of_the_root_is_not_read(image):
    image.write("/x", json.dumps({"DLC_REGION_ID": "x"}))
    image.link(METADATA, "../../../../../../" + str(image.folder) + "/outside")
    assert job(image, {}).platform.absent
    (image.folder / METADATA.lstrip("/")).unlink()
    image.write(METADATA, '{"DLC_REGION_ID": "x", "more": "' + "x" * (1 << 20) + '"}')
    assert job(image, {}).platform.absent


def test_whatever_the_variables_hold(image):
    source = random.Random(20261129)
    names = sorted({name for row in MARKS["mark"] for name in row["variables"]} | set(PYTORCH)
                   | {"PET_NODE_RANK", "GROUP_WORLD_SIZE", "SM_HOSTS", "TF_CONFIG"})  # fmt: skip
    values = ["", "0", "-1", "2", "9" * 40, "[", '["a"]', "{}", "é", "\n", "1:2", "x" * 10_000]
    for _ in range(500):
        env = {one: source.choice(values) for one in names if source.random() < 0.3}
        command = [source.choice(["torchrun", "--nnodes", "=", "bash", "-c", "'", *values])
                   for _ in range(source.randrange(5))]  # fmt: skip
        found = platform.read(image.root, env, command, MARKS)
        assert snapshot_json.from_json(snapshot_json.to_json(found)) == found


def test_what_is_recognised_is_kept_in_the_environment_too():
    names = {name for row in MARKS["mark"] for name in row["variables"]}
    names |= {row[key] for row in MARKS["mark"] for key in ("nodes", "node_rank", "processes")
              if key in row}  # fmt: skip
    kept = system.environment(dict.fromkeys(names, "1"), "test").get({})
    assert names == set(kept)


def test_hyperparameters_are_not_kept():
    env = {"PAI_HPS": '{"key": "s3cret"}', "PAI_HPS_KEY": "s3cret", "PAI_USER_ARGS": "--k s3cret",
           "SM_TRAINING_ENV": "s3cret", "SM_HPS": "s3cret", "MLP_TASK_CMD": "s3cret",
           "DET_SESSION_TOKEN": "s3cret", "DET_EXPERIMENT_CONFIG": "s3cret",
           "MLP_WORKER_TOKEN": "s3cret", "DLC_USER_TOKEN": "s3cret"}  # fmt: skip
    assert "s3cret" not in json.dumps(system.environment(env, "test").get({}))
