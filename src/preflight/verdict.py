"""From outcomes to the report: the rules are run, the policy is applied, the verdict falls.

The verdict is *fail* or *warn* by the worst finding that counts; else *unknown* when a fact
that was looked for could not be observed and a rule needed it, or when nothing could be decided
at all; else *pass*, also where no rule has a say on the framework (a job for the CPU). A fact
nobody looked for (left out of a description) is listed among the unknowns and does not turn a
decided verdict into unknown.
"""

from __future__ import annotations

from dataclasses import field, replace
from functools import lru_cache
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from .matrix import Matrix
from .policy import Policy, Waiver
from .records import record
from .rules.registry import (
    FAIL,
    INFO,
    OFF,
    RULES,
    WARN,
    Finding,
    NotApplicable,
    Outcome,
    Passed,
    Rule,
    Undecided,
    fact_at,
)
from .snapshot import Snapshot

#: Whether this driver runs this framework: no verdict passes without its answer.
MAIN = "driver/too-old-for-cuda"
PASS, UNKNOWN = "pass", "unknown"
#: The link of the chain that is about lock files.
LOCK = "lock"
#: And the one about the paths that a policy declares.
STORAGE = "storage"
ORDER = {FAIL: 0, WARN: 1, INFO: 2}


class Reference(NamedTuple):
    """Where a rule's knowledge comes from."""

    title: str
    url: str


@record(frozen=True)
class Judged:
    """A finding after policy, with the rule it is of."""

    rule: Rule
    severity: str
    finding: Finding
    references: Tuple[Reference, ...] = ()
    waived: Optional[Waiver] = None

    @property
    def counts(self) -> bool:
        return self.waived is None


class Missing(NamedTuple):
    """A fact that a rule needed: why it is unknown, and how to get it."""

    fact: str
    reason: str
    how_to_know: str
    rule: str
    note: str
    looked: bool


@record(frozen=True)
class Report:
    """What came out: verdict, findings (worst first), unknowns, and every rule's outcomes."""

    verdict: str
    findings: Tuple[Judged, ...]
    unknowns: Tuple[Missing, ...]
    outcomes: Tuple[Tuple[Rule, Outcome], ...]
    snapshot: Snapshot
    matrix_date: str
    milliseconds: Mapping[str, float] = field(default_factory=dict)
    replaced: Tuple[str, ...] = ()  # rows of the matrix that overlays say otherwise


def prepare() -> None:
    """Import all rules; without it, judging does when it comes to each."""
    for one in RULES:
        one.function  # noqa: B018 - a property that imports


def judge(
    snapshot: Snapshot,
    matrix: Matrix,
    policy: Optional[Policy] = None,
    today: str = "",
    rules: Sequence[Rule] = RULES,
) -> Report:
    """The report on a snapshot. `today` (ISO date) decides which waivers still hold.

    `rules`: those that are asked; of the lock's alone the verdict is about the lock.
    """
    policy = policy or Policy()
    if not snapshot.taken:
        snapshot = replace(snapshot, taken=today)
    outcomes: List[Tuple[Rule, Outcome]] = []
    for rule in rules:
        if policy.severity.get(rule.name) != OFF:
            for one in rule.function(snapshot, matrix):
                outcomes.append((rule, one))
    findings = [
        _judged(rule, one, matrix, policy, today)
        for rule, one in outcomes
        if isinstance(one, Finding)
    ]
    findings.sort(key=lambda one: (not one.counts, ORDER[one.severity]))
    unknowns = tuple(_missing(snapshot, outcomes))
    return Report(
        verdict=_verdict(findings, unknowns, outcomes, snapshot),
        findings=tuple(findings),
        unknowns=unknowns,
        outcomes=tuple(outcomes),
        snapshot=snapshot,
        matrix_date=matrix.date,
        replaced=matrix.replaced,
    )


def _judged(rule: Rule, one: Finding, m: Matrix, policy: Policy, today: str) -> Judged:
    severity = one.severity or rule.severity
    chosen = policy.severity.get(rule.name)
    if chosen and (severity != INFO or chosen == INFO):
        severity = chosen
    waiver = next((w for w in policy.waivers if w.rule == rule.name and today <= w.until), None)
    references = tuple(Reference(*one) for one in m.references((*rule.sources, *one.sources)))
    return Judged(rule, severity, one, references, waiver)


def _verdict(
    findings: List[Judged],
    unknowns: Tuple[Missing, ...],
    outcomes: List[Tuple[Rule, Outcome]],
    snapshot: Snapshot,
) -> str:
    frameworks = snapshot.frameworks
    worst = {one.severity for one in findings if one.counts}
    if FAIL in worst:
        return FAIL
    if WARN in worst:
        return WARN
    blocked = any(one.looked for one in unknowns)
    if outcomes and all(rule.rung == LOCK for rule, _one in outcomes):
        sure = any(isinstance(one, Passed) for _rule, one in outcomes)
        return PASS if sure and not blocked else UNKNOWN
    # What is not about ourselves, nor about files that only say what would be installed, nor about
    # data: whether it is whole says nothing of whether the stack runs.
    about = [one for rule, one in outcomes if rule.rung not in ("matrix", LOCK, STORAGE)]
    decided = any(isinstance(one, (Finding, Passed)) for one in about)
    # A framework on which no rule has a say (a CPU job) is fine; no framework is nothing to judge.
    idle = bool(about) and all(isinstance(one, NotApplicable) for one in about)
    decided |= bool(frameworks.value) and idle
    decided &= frameworks.value != () and not frameworks.absent
    # Whether the driver runs the CUDA is the question: where one was told of, and that does not
    # answer it, what else passes is no answer. Where none was told, the rest is judged alone.
    driver = snapshot.driver.version.known or snapshot.driver.cuda.known
    decided &= not any(
        rule.name == MAIN and isinstance(one, Undecided) and (driver or _is_of_build(one))
        for rule, one in outcomes
    )
    return PASS if decided and not blocked else UNKNOWN


def _is_of_build(one: Undecided) -> bool:
    return any(place.startswith("frameworks") for place in one.missing)


def _missing(snapshot: Snapshot, outcomes: List[Tuple[Rule, Outcome]]) -> List[Missing]:
    found: Dict[Tuple[str, str], Missing] = {}
    for rule, one in outcomes:
        if not isinstance(one, Undecided):
            continue
        for place in one.missing or ("",):
            fact = fact_at(snapshot, place) if place else None
            reason = (fact.unknown if fact else "") or "the tables do not decide it"
            looked = fact is None or fact.looked
            silent = looked and snapshot.origin == "live" and place == "driver.cuda"
            how = _SILENT if silent else how_to_know(place)
            missing = Missing(place, reason, how, rule.name, one.note, looked)
            found.setdefault((place, rule.name), missing)
    return list(found.values())


#: A driver that was asked and did not answer is no question of a missing fact.
_SILENT = "nvidia-smi on the node: a driver that hangs or crashes needs a reboot, or another node"

_HOW: Tuple[Tuple[str, str], ...] = (
    ("driver.nvml", _SILENT),
    ("driver.version", "cat /proc/driver/nvidia/version, or --assume driver=VERSION"),
    ("driver.cuda", "nvidia-smi prints it as CUDA Version; or --assume driver=VERSION"),
    ("driver.libcuda", "ldconfig -p | grep libcuda"),
    ("driver.fabric_manager", "systemctl status nvidia-fabricmanager on the node"),
    ("driver.", "run preflight in the container that the job runs in"),
    ("gpus", "nvidia-smi --query-gpu=name,compute_cap --format=csv, or --assume gpu=NAME"),
    ("compats", "ls -l /usr/local/cuda*/compat"),
    ("frameworks", "python -m torch.utils.collect_env; torch.cuda.get_arch_list()"),
    ("python.executable", "--python PATH: the job's interpreter or environment"),
    ("locks", "preflight lock FILE; YAML needs pip install 'pai-preflight[yaml]'"),
    ("python.packages", "python -m pip list"),
    ("storage", "ls -l and time it; preflight --timeout 300; dmesg | tail where a mount hangs"),
    ("host.master_resolves", "getent hosts $MASTER_ADDR"),
    ("master.", "getent hosts $MASTER_ADDR; then nc -vz $MASTER_ADDR $MASTER_PORT"),
    ("job.command", "preflight exec -- COMMAND, as the job starts it"),
    ("job.nodes", "echo $WORLD_SIZE $PET_NNODES $SLURM_JOB_NUM_NODES in the job"),
    ("host.cpus", "nproc"),
    ("job.", "say it in the description (job: …); a live job says it by its variables"),
    ("image.", "docker image inspect IMAGE: Entrypoint, Cmd, Env"),
    ("extensions", "cuobjdump --list-elf FILE.so"),
)


#: Facts of a GPU that its model tells, or its name.
_OF_THE_MODEL = ("", "name", "count", "compute_capability", "memory_gib", "uuid", "brand")


@lru_cache(maxsize=1024)
def how_to_know(place: str) -> str:
    """The command or flag that makes a fact known."""
    if place.startswith("gpus[") and place.partition(".")[2] not in _OF_THE_MODEL:
        return "nvidia-smi -q on the node"
    for beginning, words in _HOW:
        if place.startswith(beginning):
            return words
    return "run preflight where the job runs"


def exit_code(report: Report, fail_on: str = FAIL, retry_code: int = 75) -> int:
    """0; 75 (`retry_code`) when another node or a later try may cure it; 78 otherwise."""
    failing = {"fail": (FAIL,), "warn": (FAIL, WARN), "unknown": (FAIL, WARN, UNKNOWN)}[fail_on]
    if report.verdict not in failing:
        return 0
    counted = [one for one in report.findings if one.counts and one.severity in failing]
    if report.verdict == UNKNOWN:
        # Elsewhere a driver that did not answer here may; a description says no more there.
        return retry_code if report.snapshot.origin == "live" else 78
    curable = all(one.rule.retry and not one.finding.lasting for one in counted)
    return retry_code if curable else 78


def with_times(report: Report, milliseconds: Mapping[str, float]) -> Report:
    """The report with how long each step took."""
    return replace(report, milliseconds=dict(milliseconds))
