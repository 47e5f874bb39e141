"""Launch lines as people write them, and what is in them."""

ENV = {"WORLD_SIZE": "2", "RANK": "1", "MASTER_ADDR": "dlc1-master-0", "MASTER_PORT": "23456",
       "EMPTY": "", "N": "8", "GPUS": ""}  # fmt: skip

DLC = {"nnodes": "2", "node-rank": "1", "master-addr": "dlc1-master-0", "master-port": "23456",
       "nproc-per-node": "8"}  # fmt: skip

#: (line, launcher, options) of launchers that start the training processes themselves.
LINES = [
    ("torchrun train.py", "torchrun", {}),
    ("torchrun --nnodes=$WORLD_SIZE --node_rank=$RANK --master_addr=$MASTER_ADDR "
     "--master_port=$MASTER_PORT --nproc_per_node=8 train.py --lr 1", "torchrun", DLC),
    ("torchrun --nnodes ${WORLD_SIZE} --node-rank ${RANK:-0} --master-addr ${MASTER_ADDR} "
     "--master-port $MASTER_PORT --nproc-per-node ${GPUS:-8} train.py", "torchrun", DLC),
    ("python3 -m torch.distributed.run --nproc-per-node=gpu --standalone -m pkg.train", "torchrun",
     {"nproc-per-node": "gpu"}),
    ("python -u -X faulthandler -m torch.distributed.launch --use_env --nproc_per_node=4 t.py",
     "torchrun", {"nproc-per-node": "4"}),
    ("torchrun --rdzv-backend c10d --rdzv-endpoint=h:29400 --rdzv-id 7 --max-restarts 3 "
     "--nnodes 1:4 --tee 3 -r 3 t.py", "torchrun",
     {"rdzv-backend": "c10d", "rdzv-endpoint": "h:29400", "nnodes": "1:4"}),
    ("torchrun --nproc 8 --log-dir /x t.py", "torchrun", {"nproc-per-node": "8"}),
    ("torchrun --nproc-per-node=$((4 * 2)) t.py", "torchrun", {"nproc-per-node": "\0arithmetic\0"}),
    ("torchrun --nproc-per-node=$UNKNOWN t.py", "torchrun", {"nproc-per-node": "\0UNKNOWN\0"}),
    ("torchrun --nproc-per-node='$N' t.py", "torchrun", {"nproc-per-node": "$N"}),
    ('torchrun --nproc-per-node="$N" t.py', "torchrun", {"nproc-per-node": "8"}),
    ("torchrun --nproc-per-node=$EMPTY t.py", "torchrun", {"nproc-per-node": ""}),
    ("accelerate launch --num_machines 2 --num_processes=16 --machine_rank $RANK "
     "--main_process_ip $MASTER_ADDR --main_process_port 23456 --mixed_precision bf16 --multi_gpu "
     "train.py --num_processes 3", "accelerate",
     {"nnodes": "2", "processes": "16", "node-rank": "1", "master-addr": "dlc1-master-0",
      "master-port": "23456"}),
    ("python -m accelerate.commands.launch --num_processes 8 t.py", "accelerate",
     {"processes": "8"}),
    ("deepspeed --num_gpus 8 --num_nodes=2 --hostfile /h train.py --deepspeed ds.json",
     "deepspeed", {"nproc-per-node": "8", "nnodes": "2", "hostfile": "/h"}),
    ("python train.py --lr 3", "python", {}),
    ("python3.11 -m mypkg.train", "python", {}),
    ("/opt/conda/bin/python -c 'print(1)'", "python", {}),
    ("swift sft --model x", "swift", {}),
    ("bash run.sh", "shell", {}),
    ("./launch.sh 8", "shell", {}),
    ("sleep_forever", "program", {}),
    ("for i in 1 2; do torchrun t.py; done", "shell", {}),
    ("torchrun a.py; torchrun b.py", "shell", {}),
    ("torchrun $(cat args) t.py", "shell", {}),
    ("a || torchrun t.py", "shell", {}),
]  # fmt: skip

#: What may stand around a launch line without changing it.
AROUND = [
    "{}", "env A=b {}", "nohup {} > log 2>&1", "bash -c '{}'", 'sh -lc "{}"', "exec {}",
    "cd /mnt/data && {}", "pip install -r requirements.txt\n{}", "{} 2>&1 | tee train.log",
    "stdbuf -oL {}", "numactl -N 0 --membind 0 {}", "tini -- {}", "timeout 30 {}",
    "taskset -c 0-7 {}", "nice -n 5 {}", "conda run -n base --no-capture-output {}", "uv run {}",
    "nsys profile {}", "preflight exec --timeout 9 -- {}", "set -ex; export FOO=1; {}",
    "HF_TOKEN=secret {}", "# a comment\n{}",
]  # fmt: skip
