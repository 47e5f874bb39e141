"""What holds for every rule: pure, never raising, well said, and careful with what is unknown."""

import random
from dataclasses import replace

import pytest

from preflight import snapshot as s
from preflight.rules import registry
from preflight.rules.registry import RULES, Finding, NotApplicable, Passed, Undecided, fact_at
from tests import random_snapshots
from tests.rules.build import M, outcomes, snap, torch, word

SEED = 20261129
COUNT = 2000
NAMES = [one.name for one in RULES]


def random_sample(count, seed=SEED):
    source = random.Random(seed)
    return [random_snapshots.snapshot(source) for _ in range(count)]


SAMPLE = random_sample(COUNT)

# -- the table ------------------------------------------------------------------------------


def test_the_table():
    assert len(set(NAMES)) == len(NAMES)
    for one in RULES:
        assert registry.rule(one.name) is one
        assert one.severity in (registry.FAIL, registry.WARN, registry.INFO)
        assert one.meaning.endswith(".") and one.meaning[0].isupper() or "/dev" in one.meaning
        assert "Fix:" in one.documentation and len(one.documentation) > 150, one.name
        assert not any(line.startswith("  ") for line in one.documentation.splitlines()[:1])
        assert M.references(one.sources) or one.name == "matrix/outdated", one.name
    assert registry.rule("no/such-rule") is None


def test_places():
    seen = snap(gpus=[{"name": "Tesla T4"}], env={"A": "1"}, driver={"version": "535.1"},
                torch=torch("12.4"))  # fmt: skip
    for place, value in [("driver.version", "535.1"), ("gpus[0].name", "Tesla T4"), ("env.A", "1"),
                         ("frameworks[0].cuda", "12.4")]:  # fmt: skip
        assert fact_at(seen, place).value == value
    assert fact_at(seen, "env.B").absent and not fact_at(seen, "driver.cuda").looked
    found = registry.evidence(seen, "driver.cuda", "env.B", "driver.version")
    assert [(one.fact, one.value) for one in found] == [
        ("env.B", "absent"), ("driver.version", "535.1"),
    ]  # fmt: skip


def test_evidence_keeps_what_another_witness_says():
    version = s.merge(s.known("535.1", "/proc"), s.known("535.2", "nvml"))
    found = registry.evidence(s.Snapshot(driver=s.Driver(version=version)), "driver.version")
    assert [(one.value, one.source) for one in found] == [("535.1", "/proc"), ("535.2", "nvml")]


# -- on anything ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_rule_never_raises_and_says_everything(name):
    seen = set()
    for number, one in enumerate(SAMPLE):
        try:
            found = outcomes(name, one)
        except Exception as error:
            raise AssertionError(f"random snapshot {number} of seed {SEED}: {error!r}") from error
        assert found, f"random snapshot {number} of seed {SEED}: no answer at all"
        for outcome in found:
            seen.add(type(outcome))
            _well_said(one, name, outcome)
    # Otherwise the sample would prove less than it seems to.
    wanted = {NotApplicable, Passed, Finding}
    if name == "matrix/outdated":  # young tables are no reason for a pass
        wanted.discard(Passed)
    assert wanted <= seen, seen


def _well_said(snapshot, name, outcome):
    if isinstance(outcome, Finding):
        for text in (outcome.summary, outcome.observed, outcome.needed, outcome.why):
            assert isinstance(text, str) and text.strip(), outcome
        assert outcome.fix and all(one.strip() for one in outcome.fix), outcome
        assert outcome.severity in ("", "fail", "warn", "info")
        M.references(outcome.sources)  # KeyError: a source that is not in the table
        for proof in outcome.evidence:
            assert not fact_at(snapshot, proof.fact).unknown, proof
    elif isinstance(outcome, Undecided):
        assert outcome.note and outcome.missing is not None
        for place in outcome.missing:
            assert isinstance(fact_at(snapshot, place), s.Fact), place
    else:
        assert (outcome.why if isinstance(outcome, NotApplicable) else outcome.note).strip()


def test_every_rule_is_pure():
    for one in SAMPLE[:300]:
        before = repr(one)
        for name in NAMES:
            assert outcomes(name, one) == outcomes(name, one), name
        assert repr(one) == before


def test_nothing_known_fails_nothing():
    """Not on an empty snapshot, and not where every look was in vain."""
    lost = s.unknown("could not be read")
    blind = replace(
        s.Snapshot(origin="live"), gpus=lost, compats=lost, frameworks=lost, env=lost,
        extensions=lost, libraries=lost, logs=lost,
        driver=s.Driver(version=lost, visible=lost, cuda=lost, libcuda=lost, device_nodes=lost,
                        uvm_device=lost, nvml=lost, libcuda_path=lost, library_version=lost),
    )  # fmt: skip
    for seen in (s.Snapshot(), s.Snapshot(origin="live"), blind):
        for name in NAMES:
            assert {word(name, one) for one in outcomes(name, seen)} <= {"unknown", "n/a"}, name


def test_a_failed_probe_is_never_a_pass():
    lost = s.unknown("could not be read")
    driver = s.Driver(version=lost, visible=lost, cuda=lost, libcuda=lost, nvml=lost,
                      device_nodes=lost, uvm_device=lost, libcuda_path=lost)  # fmt: skip
    seen = snap("live", torch=torch("12.4", arch_list=["sm_80"]))
    seen = replace(seen, driver=driver, gpus=lost, compats=lost)
    for name in NAMES:
        words = {word(name, one) for one in outcomes(name, seen)}
        assert words <= {"unknown", "n/a"}, (name, words)


# -- what is blanked does not turn into a fail ------------------------------------------------

BRANCHES = ["418.87", "450.80.02", "470.82.01", "525.60.13", "535.104.05", "550.54.15",
            "575.57.08", "580.95.05", "590.44.01"]  # fmt: skip
COMPATS = ["10.2", "11.4", "11.8", "12.2", "12.6", "12.9", "13.0", "13.2"]


def consistent(source):
    """A random described machine without contradictions: what it says follows from its driver."""
    build = source.choice([row for row in M.torch_builds(platform="x86_64") if "cuda" in row])
    gpu = source.choice(["A100", "V100", "H100", "T4", "RTX 4090", "B200"])
    row = M.find_gpu(gpu)
    version = source.choice(BRANCHES)
    cuda = M.newest_cuda(version)
    document = {
        "os": {"arch": "x86_64", "container": True},
        "python": "3.11.7",
        "gpus": [{"name": row["name"], "count": source.choice([1, 8]),
                  "compute_capability": row["capability"], "uuid": "GPU-aabb"}],
        "env": {"CUDA_VISIBLE_DEVICES": "0"} if source.random() < 0.3 else {},
        "torch": {"version": build["versions"][0] + "+" + build["variant"], "build": "pip",
                  "cuda": build["cuda"]},
    }  # fmt: skip
    driver = {"version": version, "libcuda": "host", "visible": True, "uvm_device": True,
              "device_nodes": ["/dev/nvidia0"], "library_version": version}  # fmt: skip
    if source.random() < 0.5:
        cuda = source.choice(COMPATS)
        document["compat"] = {"cuda": cuda, "resolved": True,
                              "path": f"/usr/local/cuda-{cuda}/compat/libcuda.so.1"}  # fmt: skip
        driver.update(libcuda="compat", library_version=None)
        del driver["library_version"]
    if source.random() < 0.5:
        driver["cuda"] = cuda
    return snap(driver=driver, **document)


def blanked(record, place):
    """The snapshot with one fact unknown."""
    first, _, rest = place.partition(".")
    if first == "env":
        return replace(record, env=s.unknown("blanked"))
    name, _, index = first.partition("[")
    value = getattr(record, name)
    if not rest:
        return replace(record, **{name: s.unknown("blanked")})
    if not index:
        inner = value.value if isinstance(value, s.Fact) else value
        changed = blanked(inner, rest)
        new = replace(value, value=changed) if isinstance(value, s.Fact) else changed
        return replace(record, **{name: new})
    number = int(index.rstrip("]"))
    items = list(value.value)
    items[number] = blanked(items[number], rest)
    return replace(record, **{name: replace(value, value=tuple(items))})


def test_an_unknown_fact_never_turns_a_pass_into_a_fail():
    """Less is known than before: then a rule may be unsure, or lean on another fact, not fail."""
    source = random.Random(SEED)
    tried = 0
    for _ in range(400):
        seen = consistent(source)
        for name in NAMES:
            passed = [one for one in outcomes(name, seen) if isinstance(one, Passed)]
            places = {proof.fact for one in passed for proof in one.evidence}
            subjects = {one.subject for one in passed}
            for place in sorted(places):
                tried += 1
                for one in outcomes(name, blanked(seen, place)):
                    wrong = isinstance(one, Finding) and one.subject in subjects
                    assert not (wrong and word(name, one) == "fail"), (name, place, seen, one)
    assert tried > 1000


@pytest.mark.parametrize("field", ["version", "visible", "libcuda", "cuda", "uvm_device",
                                   "device_nodes", "library_version"])  # fmt: skip
def test_a_healthy_machine_with_one_fact_unknown_is_failed_by_no_rule(field):
    source = random.Random(SEED + 1)
    healthy = 0
    for _ in range(150):
        seen = consistent(source)
        if any(word(n, one) == "fail" for n in NAMES for one in outcomes(n, seen)):
            continue
        healthy += 1
        unsure = blanked(seen, "driver." + field)
        for name in NAMES:
            words = [word(name, one) for one in outcomes(name, unsure)]
            assert "fail" not in words, (name, field, unsure)
    assert healthy > 20
