"""What a launch command starts: which launcher, on how many nodes, with how many processes.

torchrun and its older names, accelerate, deepspeed, mpirun, srun, horovodrun, ray, swift and plain
Python are read, through `env`, `bash -c`, `nohup`, `numactl` and their like. What they do with an
option is theirs: the names and defaults are of torch.distributed.run's own parser.
"""

from __future__ import annotations

import posixpath
import re
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from . import shell

#: Options of a launcher that are kept, under one name each.
NNODES, NPROC, RANK, ADDRESS, PORT, ENDPOINT, BACKEND, TOTAL = (
    "nnodes", "nproc-per-node", "node-rank", "master-addr", "master-port", "rdzv-endpoint",
    "rdzv-backend", "processes",
)  # fmt: skip
#: Launchers that give every process its own RANK, WORLD_SIZE and LOCAL_RANK.
REWRITING = ("torchrun", "accelerate", "deepspeed")
#: Variables whose values are kept where a command sets them.
KEPT = re.compile(
    r"(WORLD_SIZE|RANK|LOCAL_RANK|NODE_RANK|NNODES|NPROC_PER_NODE|MASTER_ADDR|MASTER_PORT|PET_\w+"
    r"|OMP_NUM_THREADS|CUDA_VISIBLE_DEVICES)$"
)
#: For a script: more of a shell than is read.
UNREAD = "…"
#: Wrappers deeper than this are no launch line.
DEPTH = 12


class Launch(NamedTuple):
    """A launch command. `options` has what was given, as text; `inner` what srun or mpirun starts.

    `launcher`: torchrun, accelerate, deepspeed, mpirun, srun, horovodrun, ray, swift, python,
    shell (a script, or more of a shell than is read), or program.
    """

    launcher: str
    options: Mapping[str, str] = {}
    flags: Tuple[str, ...] = ()
    script: str = ""
    variables: Mapping[str, str] = {}
    inner: Optional[Any] = None  # another Launch

    def get(self, option: str) -> str:
        """What was given for an option; empty: nothing."""
        return self.options.get(option, "")

    @property
    def last(self) -> Launch:
        """The launcher that starts the training processes themselves."""
        inner: Optional[Launch] = self.inner
        return inner.last if inner else self


def of_text(text: str, lookup: shell.Lookup) -> Optional[Launch]:
    """The launch command in a shell text; None where there is none."""
    return _of_text(text, lookup, 0)


def of_words(words: Sequence[str], lookup: shell.Lookup) -> Optional[Launch]:
    """The launch command of an argument vector, in which no shell replaces anything any more."""
    return _of(list(words), {}, lookup, 0)


def _of_text(text: str, lookup: shell.Lookup, depth: int) -> Optional[Launch]:
    exported: Dict[str, str] = {}

    def within(name: str) -> Optional[str]:
        return exported[name] if name in exported else lookup(name)

    try:
        found = _launches(shell.commands(text, within), exported, within, depth)
    except shell.TooMuch:
        return Launch("shell", script=UNREAD)
    if len(found) > 1:
        return Launch("shell", script=UNREAD)
    return found[0] if found else None


#: Commands before a launch line that start nothing which matters to it.
_ASIDE = {"cd", "echo", "mkdir", "set", "ulimit", "pip", "pip3", "source", ".", "unset", "sleep",
          "date", "pwd", "ls", "nvidia-smi", "hostname", "cp", "ln", "rm", "chmod", "true", ":",
          "preflight", "pai-preflight", "env", "printenv", "which", "umask", "wait", "exit",
          "trap"}  # fmt: skip


def _launches(
    given: Iterator[shell.Command], exported: Dict[str, str], lookup: shell.Lookup, depth: int
) -> List[Launch]:
    """The launch commands of several, while `exported` takes up what they set for later ones."""
    found: List[Launch] = []
    for one in given:
        words, name = list(one.words), posixpath.basename(one.words[0])
        if name == "export" or all(_assigned(word) for word in words):
            exported.update(filter(None, map(_assigned, words)))
        elif name in ("preflight", "pai-preflight") and "exec" in words and "--" in words:
            words = words[words.index("--") + 1 :]
            found += filter(None, [_of(words, dict(exported), lookup, depth + 1)])
        elif name not in _ASIDE or (name == "env" and len(words) > 1):
            found += filter(None, [_of(words, dict(exported), lookup, depth + 1)])
    return found


def _assigned(word: str) -> Optional[Tuple[str, str]]:
    name, equals, value = word.partition("=")
    return (name, value) if equals and re.fullmatch(r"[A-Za-z_]\w*", name) else None


#: Commands that become another one: {name: options that take a word}.
_WRAPPERS: Dict[str, Tuple[str, ...]] = {
    "nohup": (), "setsid": (), "time": (), "exec": (), "command": (), "tini": ("-p", "-e"),
    "dumb-init": ("-r", "--rewrite"), "catatonit": (), "unbuffer": (), "s6-setuidgid": (),
    "stdbuf": ("-i", "-o", "-e", "--input", "--output", "--error"),
    "nice": ("-n", "--adjustment"), "ionice": ("-c", "-n", "--class", "--classdata"),
    "numactl": ("-i", "-p", "-P", "-m", "-w", "-N", "-C", "--interleave", "--preferred",
                "--membind", "--cpunodebind", "--physcpubind"),
    "taskset": (), "timeout": ("-k", "-s", "--kill-after", "--signal"), "sudo": ("-u", "-g"),
    "gosu": (), "chrt": (), "catchsegv": (), "nsys": (), "uv": ("--with", "-p", "--python"),
    "poetry": (), "pixi": ("-e", "--environment"), "pipenv": (), "pdm": (), "conda": (
        "-n", "--name", "-p", "--prefix", "--cwd"), "mamba": ("-n", "-p"),
    "micromamba": ("-n", "-p", "--name", "--prefix"), "xvfb-run": ("-s", "-n"),
}  # fmt: skip
#: Wrappers with words of their own before the command: how many, or the word that comes first.
_LEADING = {"taskset": 1, "timeout": 1, "gosu": 1, "chrt": 1, "s6-setuidgid": 1}
_RUN = {"uv", "poetry", "pixi", "pipenv", "pdm", "conda", "mamba", "micromamba"}
_SHELLS = {"sh", "bash", "dash", "ash", "zsh", "ksh"}


def _of(
    words: List[str], variables: Dict[str, str], lookup: shell.Lookup, depth: int
) -> Optional[Launch]:
    while words and depth < DEPTH:
        assigned = _assigned(words[0])
        if assigned:
            variables[assigned[0]] = assigned[1]
            words = words[1:]
            continue
        depth += 1
        name = posixpath.basename(words[0])
        if name == "env":
            words = _after_env(words[1:], variables)
        elif name in _SHELLS:
            return _of_shell(words[1:], variables, lookup, depth)
        elif name in _WRAPPERS:
            rest = _after_wrapper(name, words[1:])
            if rest is None:
                return Launch("program", script=name, variables=_kept(variables))
            words = rest
        else:
            found = _launcher(name, words, lookup, depth)
            return found._replace(variables={**_kept(variables), **found.variables})
    return None


def _kept(variables: Mapping[str, str]) -> Dict[str, str]:
    return {name: value for name, value in variables.items() if KEPT.match(name)}


def _after_env(words: List[str], variables: Dict[str, str]) -> List[str]:
    while words:
        if words[0] in ("-u", "--unset", "-C", "--chdir"):
            words = words[2:]
        elif words[0].startswith("-"):
            words = words[1:]
        else:
            break
    return words


def _after_wrapper(name: str, words: List[str]) -> Optional[List[str]]:
    """What a wrapper runs; None where it runs something else than a command."""
    if name in _RUN:
        if "run" not in words:
            return None
        words = words[words.index("run") + 1 :]
    elif name == "nsys":
        if words[:1] != ["profile"]:
            return None
        words = words[1:]
    words = _after_options(words, _WRAPPERS[name])
    return words[_LEADING.get(name, 0) :]


def _after_options(words: List[str], valued: Sequence[str]) -> List[str]:
    while words and words[0].startswith("-"):
        if words[0] == "--":
            return words[1:]
        words = words[2:] if words[0] in valued else words[1:]
    return words


def _of_shell(
    words: List[str], variables: Dict[str, str], lookup: shell.Lookup, depth: int
) -> Optional[Launch]:
    while words and re.match(r"[-+]", words[0]):
        option, words = words[0], words[1:]
        if re.fullmatch(r"-[a-z]*c[a-z]*", option):

            def within(name: str) -> Optional[str]:
                return variables[name] if name in variables else lookup(name)

            found = _of_text(words[0], within, depth) if words else None
            return found and found._replace(variables={**_kept(variables), **found.variables})
        if option in ("-o", "+o", "-O", "--rcfile", "--init-file"):
            words = words[1:]
    return Launch("shell", script=posixpath.basename(words[0]) if words else UNREAD,
                  variables=_kept(variables))  # fmt: skip


# -- the launchers --------------------------------------------------------------------------

_MODULES = {
    "torch.distributed.run": "torchrun", "torch.distributed.launch": "torchrun",
    "accelerate.commands.launch": "accelerate-launch",
    "accelerate.commands.accelerate_cli": "accelerate", "deepspeed.launcher.runner": "deepspeed",
    "swift.cli.main": "swift",
}  # fmt: skip
_TORCHRUN_FLAGS = {"standalone", "module", "no-python", "run-path", "use-env", "virtual-local-rank",
                   "auto", "help"}  # fmt: skip
_TORCHRUN = {
    "nnodes": NNODES, "nproc-per-node": NPROC, "node-rank": RANK, "master-addr": ADDRESS,
    "master-port": PORT, "rdzv-endpoint": ENDPOINT, "rdzv-backend": BACKEND,
}  # fmt: skip
_TORCHRUN_OTHER = ("rdzv-id", "rdzv-conf", "max-restarts", "monitor-interval", "start-method",
                   "role", "log-dir", "redirects", "tee", "local-ranks-filter", "local-addr",
                   "logs-specs", "numa-binding", "signals-to-handle", "event-log-handler",
                   "shutdown-timeout", "duplicate-stdout-filters",
                   "duplicate-stderr-filters")  # fmt: skip
_ACCELERATE = {
    "num-machines": NNODES, "num-processes": TOTAL, "machine-rank": RANK,
    "main-process-ip": ADDRESS, "main-process-port": PORT, "rdzv-backend": BACKEND,
    "config-file": "config-file",
}  # fmt: skip
_DEEPSPEED = {
    "num-nodes": NNODES, "num-gpus": NPROC, "node-rank": RANK, "master-addr": ADDRESS,
    "master-port": PORT, "hostfile": "hostfile", "H": "hostfile", "include": "include",
    "i": "include", "exclude": "exclude", "e": "exclude", "launcher": "launcher",
}  # fmt: skip
_MPI = {"np": TOTAL, "n": TOTAL, "c": TOTAL, "H": "hosts", "host": "hosts", "hosts": "hosts",
        "hostfile": "hosts", "machinefile": "hosts", "f": "hosts", "npernode": NPROC,
        "ppn": NPROC, "N": NPROC, "x": "", "bind-to": "", "map-by": "", "rank-by": "", "genv": "",
        "prefix": "", "output-filename": "", "wdir": "", "tag-output": None, "cpus-per-proc": "",
        "network-interface": "", "gloo-timeout-seconds": ""}  # fmt: skip
_SRUN = {"nodes": NNODES, "N": NNODES, "ntasks": TOTAL, "n": TOTAL, "ntasks-per-node": NPROC}
_SRUN_FLAGS = {"exclusive", "label", "l", "unbuffered", "u", "overlap", "verbose", "v", "quiet",
               "Q", "pty", "oversubscribe", "s", "kill-on-bad-exit", "K", "no-kill", "k",
               "container-remap-root", "no-container-remap-root", "container-writable",
               "container-mount-home", "no-container-mount-home", "exact", "O", "overcommit",
               "disable-status", "X", "E", "preserve-env", "spread-job", "use-min-nodes",
               "no-container-entrypoint"}  # fmt: skip


def _launcher(name: str, words: List[str], lookup: shell.Lookup, depth: int) -> Launch:
    rest = words[1:]
    if re.fullmatch(r"(platform-)?python[\d.]*t?|pypy\d*", name):
        return _python(rest, lookup, depth)
    return _named(name, rest, lookup, depth)


def _named(name: str, rest: List[str], lookup: shell.Lookup, depth: int) -> Launch:
    if name == "torchrun":
        return _torchrun(rest)
    if name == "accelerate-launch":
        return _accelerate(rest)
    if name == "accelerate" and rest[:1] == ["launch"]:
        return _accelerate(rest[1:])
    if name in ("deepspeed", "ds"):
        return _deepspeed(rest)
    if name in ("mpirun", "mpiexec", "orterun", "mpiexec.hydra", "mpirun_rsh", "horovodrun"):
        return _mpi("horovodrun" if name == "horovodrun" else "mpirun", rest, lookup, depth)
    if name == "srun":
        return _srun(rest, lookup, depth)
    if name in ("swift", "ray", "dlrover-run"):
        return Launch(name)
    if name.endswith((".sh", ".bash")):
        return Launch("shell", script=name)
    return Launch("program", script=name)


def _python(words: List[str], lookup: shell.Lookup, depth: int) -> Launch:
    while words and words[0].startswith("-") and words[0] != "-":
        option, words = words[0], words[1:]
        if option in ("-X", "-W", "--check-hash-based-pycs"):
            words = words[1:]
        elif re.fullmatch(r"-[a-zA-Z]*c", option):
            return Launch("python", script="-c")
        elif re.fullmatch(r"-[a-zA-Z]*m", option):
            module, rest = (words[0] if words else ""), words[1:]
            known = _MODULES.get(module)
            if known:
                return _named(known, rest, lookup, depth)
            return Launch("python", script="-m " + module)
    return Launch("python", script=posixpath.basename(words[0]) if words else "")


def _torchrun(words: List[str]) -> Launch:
    options: Dict[str, str] = {}
    flags: List[str] = []
    known = [*_TORCHRUN, *_TORCHRUN_OTHER, *_TORCHRUN_FLAGS]
    while words and words[0].startswith("-") and words[0] != "-":
        word, words = words[0], words[1:]
        if word == "--":
            break
        name, equals, value = word.partition("=")
        name = _full(name, known)
        if name in _TORCHRUN_FLAGS:
            flags.append(name)
            continue
        if not equals and len(word) > 2 and not word.startswith("--"):
            name, value = _full(word[:2], known), word[2:]  # -r3
        elif not equals:
            value, words = (words[0] if words else ""), words[1:]
        if name in _TORCHRUN:
            options[_TORCHRUN[name]] = value
    script = posixpath.basename(words[0]) if words else ""
    return Launch("torchrun", options, tuple(f for f in flags if f in ("standalone",)), script)


_SHORT = {"-m": "module", "-r": "redirects", "-t": "tee", "-h": "help"}


def _full(name: str, known: Sequence[str]) -> str:
    """An option's name: dashes for underscores, and whole where it was shortened."""
    if name in _SHORT:
        return _SHORT[name]
    plain = name.lstrip("-").replace("_", "-")
    if plain in known:
        return plain
    near = [one for one in known if one.startswith(plain)]
    return near[0] if len(near) == 1 else plain


def _accelerate(words: List[str]) -> Launch:
    options, flags, words = _loose(words, _ACCELERATE, _ACCELERATE_FLAGS)
    return Launch("accelerate", options, flags, posixpath.basename(words[0]) if words else "")


_ACCELERATE_FLAGS = {"multi-gpu", "cpu", "use-deepspeed", "use-fsdp", "tpu", "use-megatron-lm",
                     "m", "module", "no-python", "debug", "quiet", "q", "same-network",
                     "use-mps-device", "use-xpu", "ipex", "no-same-network", "use-tp",
                     "dynamo-use-dynamic", "dynamo-use-fullgraph", "enable-cpu-affinity",
                     "use-parallelism-config", "fp8"}  # fmt: skip


def _deepspeed(words: List[str]) -> Launch:
    boolean = {"no-ssh", "no-ssh-check", "force-multi", "module", "no-python", "no-local-rank",
               "save-pid", "elastic-training", "bind-cores-to-rank",
               "enable-each-rank-log-dir"}  # fmt: skip
    options, flags, words = _loose(words, _DEEPSPEED, boolean)
    return Launch("deepspeed", options, tuple(f for f in flags if f == "no-ssh"),
                  posixpath.basename(words[0]) if words else "")  # fmt: skip


def _loose(
    words: List[str], wanted: Mapping[str, str], boolean: Set[str]
) -> Tuple[Dict[str, str], Tuple[str, ...], List[str]]:
    """Options up to the script: those wanted with values; others take the next word, too."""
    options: Dict[str, str] = {}
    flags: List[str] = []
    while words and words[0].startswith("-") and words[0] != "-":
        word, words = words[0], words[1:]
        name, equals, value = word.partition("=")
        name = name.lstrip("-").replace("_", "-")
        if name in boolean:
            flags.append(name)
            continue
        if not equals:
            script = bool(words) and words[0].endswith((".py", ".sh")) and name not in wanted
            if script or not words or (words[0].startswith("--") and name not in wanted):
                continue
            value, words = words[0], words[1:]
        if wanted.get(name):
            options[wanted[name]] = value
    return options, tuple(flags), words


def _mpi(launcher: str, words: List[str], lookup: shell.Lookup, depth: int) -> Launch:
    options: Dict[str, str] = {}
    while words and words[0].startswith("-"):
        name, equals, value = words[0].lstrip("-").partition("=")
        words = words[1:]
        if name in ("mca", "gmca", "pmca", "genv"):
            words = words[2:]
        elif name in _MPI and _MPI[name] is not None:
            if not equals:
                value, words = (words[0] if words else ""), words[1:]
            option = _MPI[name]
            if option:
                options[option] = value
    return Launch(launcher, options, inner=_of(words, {}, lookup, depth + 1))


def _srun(words: List[str], lookup: shell.Lookup, depth: int) -> Launch:
    options: Dict[str, str] = {}
    while words and words[0].startswith("-"):
        word, words = words[0], words[1:]
        if word == "--":
            break
        name, equals, value = word.lstrip("-").partition("=")
        if not word.startswith("--") and len(name) > 1:
            name, value, equals = name[0], name[1:] + equals + value, "="  # -N2
        if name in _SRUN_FLAGS or (name in ("mpi", "export", "cpu-bind") and not equals):
            words = words[1:] if name in ("export", "cpu-bind") else words
            continue
        if not equals:
            value, words = (words[0] if words else ""), words[1:]
        if name in _SRUN:
            options[_SRUN[name]] = value
    return Launch("srun", options, inner=_of(words, {}, lookup, depth + 1))


# -- as a text ------------------------------------------------------------------------------

_SPELLED: Dict[str, Dict[str, str]] = {
    "accelerate": {NNODES: "num_machines", TOTAL: "num_processes", RANK: "machine_rank",
                   ADDRESS: "main_process_ip", PORT: "main_process_port",
                   BACKEND: "rdzv_backend", "config-file": "config_file"},
    "deepspeed": {NNODES: "num_nodes", NPROC: "num_gpus", RANK: "node_rank",
                  ADDRESS: "master_addr", PORT: "master_port"},
    "srun": {NNODES: "nodes", TOTAL: "ntasks", NPROC: "ntasks-per-node"},
    "mpirun": {TOTAL: "np", NPROC: "npernode", "hosts": "host"},
    "horovodrun": {TOTAL: "np", "hosts": "hosts"},
}  # fmt: skip
_NAMES = {"accelerate": "accelerate launch"}


def written(launch: Launch) -> str:
    """A launch command with what is read of it and nothing else: no secret is in it.

    Reading it again gives the same.
    """
    words = [f"{name}={shell.quoted(value)}" for name, value in sorted(launch.variables.items())]
    if launch.launcher == "shell":
        words += ["bash", shell.quoted(launch.script)]
    elif launch.launcher == "program":
        words.append(shell.quoted(launch.script))
    else:
        words.append(_NAMES.get(launch.launcher, launch.launcher))
        words += ["--" + one.replace("-", "_" if launch.launcher == "deepspeed" else "-")
                  for one in launch.flags]  # fmt: skip
        spelled = _SPELLED.get(launch.launcher, {})
        for option in sorted(launch.options):
            words.append(f"--{spelled.get(option, option)}={shell.quoted(launch.options[option])}")
        if launch.inner:
            words.append(written(launch.inner))
        elif launch.script.startswith("-m "):
            words += ["-m", shell.quoted(launch.script[3:])]
        elif launch.script:
            words.append(shell.quoted(launch.script))
    return " ".join(words)
