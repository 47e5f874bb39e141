"""`platform/world-size-mismatch`: nodes, processes, GPUs and the launch command held together."""

from __future__ import annotations

from typing import Callable, Iterator, List, Tuple

from ..launching import counts, meeting, shell
from ..launching.command import NNODES, NPROC, PORT, RANK, TOTAL
from ..matrix import Matrix
from ..snapshot import Snapshot
from . import common
from .jobs import Job, job, per_node, told
from .registry import (
    FAIL,
    WARN,
    Finding,
    NotApplicable,
    Outcome,
    Passed,
    evidence,
)

#: What torchrun takes for --nproc-per-node besides a number.
NPROC_WORDS = ("auto", "cpu", "gpu", "xpu")
_PLACES = ("job.platform", "job.command", "job.nodes", "env.WORLD_SIZE", "env.RANK",
           "env.NPROC_PER_NODE")  # fmt: skip


def world_size_mismatch(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """WORLD_SIZE, RANK, NPROC_PER_NODE, the GPUs and the launch command contradict each other.

    In PAI DLC (and Volcano, Baidu AIHC, Tencent TI) WORLD_SIZE and RANK count nodes; torchrun sets
    both anew, for processes, in what it starts. So ``--nnodes=$WORLD_SIZE --node_rank=$RANK
    --nproc_per_node=8`` is right there, and a script that reads them without a launcher, or a
    WORLD_SIZE that somebody multiplied by the GPUs, is wrong. The command after ``exec --`` is read
    as its launcher reads it (torchrun, accelerate, deepspeed, mpirun, srun, swift; through env,
    bash -c and their like), and held against the nodes that the platform tells and the GPUs here.

    What must end in an error or wait for ever fails: more nodes asked for than there are, more
    processes than GPUs with a CUDA build, options that are no numbers. What runs and is most
    likely not meant (every node training alone) warns. A script whose content is not read is not
    judged.

    Fix: torchrun --nnodes=$WORLD_SIZE --node_rank=$RANK --master_addr=$MASTER_ADDR
    --master_port=$MASTER_PORT --nproc_per_node=GPUS train.py.
    """
    if not told(s):
        yield NotApplicable("nothing is known of how the job is started")
        return
    j = job(s, m)
    found = [one for check in CHECKS for one in check(s, m, j)]
    if found:
        yield from found
    else:
        yield _nothing(j)


def _nothing(j: Job) -> Outcome:
    if j.within == "torchrun":
        return Passed("the variables that torchrun set agree")
    if j.launch is None:
        return NotApplicable("no launch command is known to hold the variables against")
    if j.launcher in ("shell", "program", "ray", "dlrover-run", "horovodrun", "mpirun", "srun", ""):
        return NotApplicable("what the command launches is not read, or its launcher counts itself")
    if any(shell.hidden(one) for one in (j.last.options if j.last else {}).values()):
        return NotApplicable("a variable of the launch command is not known")
    if j.nodes is None and j.gpus is None:
        return NotApplicable("neither the nodes nor the GPUs of the job are known")
    return Passed(f"{j.launcher} starts what this job has")


def _finding(
    s: Snapshot, severity: str, summary: str, observed: str, needed: str, why: str,
    fix: Tuple[str, ...], *places: str,
) -> Finding:  # fmt: skip
    return Finding(
        summary=summary, observed=observed, needed=needed, why=why, fix=fix, severity=severity,
        evidence=evidence(s, *_PLACES, *places),
    )  # fmt: skip


def right_line(j: Job) -> str:
    """The launch line that fits this job, to be pasted."""
    gpus = j.gpus or counts.whole(j.env.get("NPROC_PER_NODE", "")) or 0
    script = j.last.script if j.last and j.last.script.endswith(".py") else "train.py"
    nodes, rank = str(j.mark.get("nodes", "")), str(j.mark.get("node_rank", ""))
    each = f"--nproc_per_node={gpus or 'GPUS'}"
    if j.nodes == 1 or not nodes or not rank:
        return f"torchrun --standalone {each} {script}"
    if j.platform == "kubeflow":
        return f"torchrun {script}  # PET_NNODES, PET_NPROC_PER_NODE and PET_NODE_RANK set the rest"
    return (
        f"torchrun --nnodes=${nodes} --node_rank=${rank} --master_addr=$MASTER_ADDR "
        f"--master_port=$MASTER_PORT {each} {script}"
    )


# -- the options themselves -------------------------------------------------------------------


def _options(s: Snapshot, m: Matrix, j: Job) -> Iterator[Outcome]:
    """Numbers that are none: an empty variable, a `$NAME` that no shell replaced."""
    if j.launcher != "torchrun" or j.last is None:
        return
    for name in (NNODES, NPROC, RANK, PORT):
        text, source = j.option(name)
        given = name in j.last.options or bool(text)
        if not given or shell.HIDDEN in text or _readable(name, text):
            continue
        source = source or "--" + name
        literal = "$" in text
        says = f"{source}={text}" if text else f"{source} is empty"
        yield _finding(
            s, FAIL, f"{says}: torchrun needs a number",
            f"{says} in the launch command", "a number",
            "Without a shell nothing replaces $NAME: torchrun gets the text itself and stops."
            if literal else "torchrun cannot read it and stops with a ValueError.",
            (f"sh -c 'exec {right_line(j)}'" if literal else right_line(j),),
        )  # fmt: skip


def _readable(name: str, text: str) -> bool:
    if name == NNODES:
        return counts.span(text) is not None
    number = counts.whole(text)
    if name == NPROC:
        return text in NPROC_WORDS or (number is not None and number > 0) or _other_device(text)
    return number is not None


def _other_device(text: str) -> bool:
    """Backends that are added to torch count their devices under their own names."""
    return text.isalpha()


# -- processes and GPUs -----------------------------------------------------------------------


def _processes(s: Snapshot, m: Matrix, j: Job) -> Iterator[Outcome]:
    """More processes on a node than GPUs."""
    wanted, how = per_node(j), "--nproc-per-node"
    if j.launcher == "accelerate" and j.last:
        total = counts.whole(j.last.get(TOTAL))
        machines = counts.whole(j.last.get(NNODES)) or 1
        wanted, how = (total // machines if total and machines > 0 else None), "--num_processes"
    tasks = _tasks_per_node(j)
    if wanted is None or not j.gpus or wanted * tasks <= j.gpus:
        return
    build = next(iter(common.builds(s, m)), None)
    each = f"{tasks} tasks of {wanted}" if tasks > 1 else str(wanted)
    yield _finding(
        s, FAIL if build and build.framework.name.value == "torch" else WARN,
        f"{each} processes are started on this node, and it has {j.gpus} GPU(s)",
        f"{how} gives {each} processes; {j.gpus} GPU(s) can be used",
        f"at most {j.gpus} processes on this node",
        "Each process takes the GPU of its LOCAL_RANK: those above the last one stop with "
        "'CUDA error: invalid device ordinal', and two on one GPU are refused by NCCL.",
        (f"{how}={j.gpus * max(machines_of(j), 1) if how == '--num_processes' else j.gpus}",
         "--nproc-per-node=gpu takes as many as there are"),
        "gpus", "env.CUDA_VISIBLE_DEVICES",
    )  # fmt: skip


def machines_of(j: Job) -> int:
    """The machines that an accelerate launch names."""
    return counts.whole(j.last.get(NNODES)) or 1 if j.last else 1


def _tasks_per_node(j: Job) -> int:
    """How many times a node starts the launcher: srun's tasks there."""
    outer = j.launch
    if outer and outer.launcher == "srun" and j.last is not outer:
        return max(counts.whole(outer.get(NPROC)) or 1, 1)
    tasks = counts.whole(j.env.get("SLURM_STEP_NUM_TASKS", ""))
    nodes = counts.whole(j.env.get("SLURM_STEP_NUM_NODES", ""))
    if j.within or not tasks or not nodes or nodes < 1:
        return 1
    return max(tasks // nodes, 1)


def _granted(s: Snapshot, m: Matrix, j: Job) -> Iterator[Outcome]:
    """The GPUs that PAI says it gave, against those that are here."""
    name = "KUBERNETES_CONTAINER_RESOURCE_GPU"
    given = counts.whole(j.env.get(name, ""))
    if given is None or not j.platform.startswith("pai-") or not s.gpus.known or j.gpus is None:
        return
    there = sum(max(one.count.get(1), 0) for one in s.gpus.get(()))
    if there == given or s.gpus.assumed or (there == 0 and given == 0):
        return
    yield _finding(
        s, WARN, f"{name}={given}, and {there} GPU(s) are here",
        f"{name}={given}; the driver shows {there} GPU(s)", "as many as the job asked for",
        "Launch scripts take their processes per node from this variable or from the GPUs they "
        "see: where the two differ, ranks are missing or have no GPU.",
        (f"--nproc_per_node={there}, or another node; look at nvidia-smi -L",),
        "env." + name, "gpus",
    )  # fmt: skip


# -- nodes ------------------------------------------------------------------------------------


def _nodes(s: Snapshot, m: Matrix, j: Job) -> Iterator[Outcome]:
    """The nodes that the launcher waits for, against those of the job."""
    asked = meeting.asked_nodes(j.launch, j.env)
    if asked is None or j.nodes is None or j.nodes < 1 or j.within or _tasks_per_node(j) > 1:
        return
    source = j.option(NNODES)[1] or "--nnodes, which is not given,"
    said = f"{source} is {asked[0]}" + (f" to {asked[1]}" if asked[0] != asked[1] else "")
    if asked[0] > j.nodes:
        yield _finding(
            s, FAIL, f"{j.launcher} waits for {asked[0]} nodes, and the job has {j.nodes}",
            f"{said}; the job has {j.nodes} node(s)", f"--nnodes={j.nodes}",
            "Rendezvous waits for every node that is asked for, and ends in a timeout. --nnodes "
            "counts nodes, not processes.",
            (right_line(j),),
        )  # fmt: skip
    elif asked[1] < j.nodes:
        yield _alone(s, j, said)


def _alone(s: Snapshot, j: Job, said: str) -> Finding:
    alone = "each node trains alone" if j.launcher == "torchrun" else "nodes are left over"
    return _finding(
        s, WARN, f"{said}, and the job has {j.nodes} nodes: {alone}",
        f"{said}; the job has {j.nodes} nodes", f"{j.nodes} nodes",
        "Without an error: every node runs the whole job by itself on its own GPUs, and all of "
        "them write the same checkpoints. Meant only where nodes work apart.",
        (right_line(j),),
    )  # fmt: skip


def _swift(s: Snapshot, m: Matrix, j: Job) -> Iterator[Outcome]:
    """ms-swift starts torchrun as soon as NPROC_PER_NODE is set, with NNODES of its own."""
    if j.launcher != "swift" or not j.nodes or j.nodes < 2 or not s.env.known or j.last is None:
        return
    own = {**j.env, **j.last.variables}
    if "NPROC_PER_NODE" in own and counts.whole(own.get("NNODES", "1")) == 1:
        yield _finding(
            s, WARN, f"NNODES is not set, and the job has {j.nodes} nodes: each trains alone",
            "NPROC_PER_NODE is set, NNODES is not, and the command is swift", f"NNODES={j.nodes}",
            "swift starts torchrun itself as soon as NPROC_PER_NODE is set (which DLC does), on "
            "one node unless NNODES and NODE_RANK say otherwise; no error tells.",
            (f"NNODES=${j.mark.get('nodes', 'WORLD_SIZE')} "
             f"NODE_RANK=${j.mark.get('node_rank', 'RANK')} swift …",),
            "env.NNODES", "env.NODE_RANK",
        )  # fmt: skip


def _plain(s: Snapshot, m: Matrix, j: Job) -> Iterator[Outcome]:
    """Plain Python where the platform's WORLD_SIZE counts nodes of several GPUs."""
    script = j.last.script if j.last else ""
    if j.launcher != "python" or not script.endswith(".py") or not j.counts_nodes:
        return
    each = s.job.processes_per_node.value or j.gpus
    each = each or counts.whole(j.env.get("NPROC_PER_NODE", ""))
    outer = j.launch.launcher if j.launch else ""
    if not j.nodes or j.nodes < 2 or not each or each < 2 or outer in ("srun", "mpirun"):
        return
    yield _finding(
        s, WARN,
        f"{script} is started once a node, and WORLD_SIZE={j.nodes} counts nodes, not processes",
        f"python {script} on {j.nodes} nodes of {each} GPUs; no launcher starts the other ranks",
        f"a launcher, and a world of {j.nodes * each} processes",
        "A script that takes WORLD_SIZE and RANK as they are makes a world of one process a node: "
        "the other GPUs stay idle, or, where it starts processes itself, ranks come twice and "
        "init_process_group waits for ever.",
        (right_line(j),),
    )  # fmt: skip


def _started(s: Snapshot, m: Matrix, j: Job) -> Iterator[Outcome]:
    """The command starts less on this node than the job is described to run there."""
    told, starts = s.job.processes_per_node.value, per_node(j)
    if not told or not starts or s.origin != "described" or starts >= told or j.within:
        return
    yield _finding(
        s, WARN, f"{j.launcher} starts {starts} process(es) on a node, and the job has {told}",
        f"--nproc-per-node gives {starts}; the job has {told} processes a node",
        f"--nproc-per-node={told}",
        "The ranks that are not started leave their GPUs idle; a world that counts them waits "
        "for ever.",
        (right_line(j._replace(gpus=told)),), "job.processes_per_node",
    )  # fmt: skip


# -- several launchers ------------------------------------------------------------------------


def _rewritten(s: Snapshot, m: Matrix, j: Job) -> Iterator[Outcome]:
    """Within torchrun: what it set must still agree."""
    world, local, groups = (
        counts.whole(j.env.get(name, ""))
        for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE")
    )
    if j.within != "torchrun" or world is None or local is None or local < 1:
        return
    if world < local:
        yield _finding(
            s, FAIL, f"WORLD_SIZE={world} within torchrun, and {local} processes run on this node",
            f"WORLD_SIZE={world}, LOCAL_WORLD_SIZE={local}", f"at least {local}",
            "Somebody set WORLD_SIZE again after torchrun: ranks come twice and hang.",
            ("do not set WORLD_SIZE or RANK in what torchrun starts",), "env.LOCAL_WORLD_SIZE",
        )  # fmt: skip
    elif groups and world != local * groups:
        yield _finding(
            s, WARN, f"WORLD_SIZE={world} within torchrun, whose {groups} nodes have {local} each",
            f"WORLD_SIZE={world}, LOCAL_WORLD_SIZE={local}, GROUP_WORLD_SIZE={groups}",
            f"WORLD_SIZE={local * groups}, unless nodes differ",
            "Either the nodes start different numbers of processes, or WORLD_SIZE was set again.",
            ("do not set WORLD_SIZE in what torchrun starts",),
            "env.LOCAL_WORLD_SIZE", "env.GROUP_WORLD_SIZE",
        )  # fmt: skip


#: Who counts the ranks of what it started, and how: (name, variable, needed besides).
_OTHERS: List[Tuple[str, str, str]] = [
    ("mpirun", "OMPI_COMM_WORLD_SIZE", ""),
    ("mpirun", "PMI_SIZE", ""),
    ("mpirun", "MV2_COMM_WORLD_SIZE", ""),
    ("srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID"),
]


def _contradicting(s: Snapshot, m: Matrix, j: Job) -> Iterator[Outcome]:
    """A WORLD_SIZE besides the ranks that mpirun or srun has started."""
    world = counts.whole(j.env.get("WORLD_SIZE", ""))
    if world is None or j.within == "torchrun" or j.launcher not in ("python", ""):
        return
    for name, variable, also in _OTHERS:
        tasks = counts.whole(j.env.get(variable, ""))
        if tasks is None or tasks < 2 or tasks == world or (also and also not in j.env):
            continue
        yield _finding(
            s, WARN, f"WORLD_SIZE={world}, and {name} has started {tasks} ranks",
            f"WORLD_SIZE={world}, {variable}={tasks}", f"WORLD_SIZE={tasks}, or none",
            f"What reads WORLD_SIZE (torch's env://) and what reads {variable} (MPI, DeepSpeed) "
            "build worlds of different sizes, which wait for each other.",
            (f"export WORLD_SIZE=${variable}, and RANK likewise, in each rank",), "env." + variable,
        )  # fmt: skip
        return


def _invented(s: Snapshot, m: Matrix, j: Job) -> Iterator[Outcome]:
    """A launch line that reads a variable which no platform sets."""
    names = {name for value in (j.last.options if j.last else {}).values()
             for name in shell.hidden(value)}  # fmt: skip
    for row in m.renamed():
        if row["name"] in names and row["product"] == "nobody" and row["name"] not in j.env:
            now = str(row.get("now", ""))
            yield _finding(
                s, WARN, f"the launch command reads ${row['name']}, which nobody sets",
                f"${row['name']} in the launch command", f"${now}" if now else "another variable",
                f"{row['meaning']}.", (right_line(j),),
            )  # fmt: skip


Check = Callable[[Snapshot, Matrix, Job], Iterator[Outcome]]
CHECKS: Tuple[Check, ...] = (
    _options, _processes, _granted, _nodes, _swift, _plain, _started, _rewritten, _contradicting,
    _invented,
)  # fmt: skip
