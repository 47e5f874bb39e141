"""Rules about packages that belong to one release of a framework."""

from dataclasses import replace

import pytest

from preflight import snapshot as s
from tests.rules.build import M, finding, outcomes, say, snap, torch, word

COMPANION = "framework/companion-mismatch"
PLUGIN = "framework/plugin-mismatch"


def companions(version, packages, cuda="12.4", **more):
    """What is said of companions beside a torch."""
    return say(COMPANION, torch=torch(cuda, version, **more), packages=packages)


def vision(torch_version, version, cuda="12.4", **more):
    return companions(torch_version, {"torchvision": version}, cuda, **more)


def audio(torch_version, version, cuda="12.4", **more):
    return companions(torch_version, {"torchaudio": version}, cuda, **more)


@pytest.mark.parametrize("name", [COMPANION, PLUGIN])
def test_packages_that_could_not_be_read_are_unknown(name):
    blind = replace(
        snap(torch=torch("12.4"), jax={"version": "0.4.30"}),
        python=s.PythonEnv(packages=s.unknown("timed out")),
    )
    assert [word(name, one) for one in outcomes(name, blind)] == ["unknown"]


@pytest.mark.parametrize("name", [COMPANION, PLUGIN])
def test_nothing_to_judge(name):
    assert say(name) == ["n/a"]
    assert say(name, torch=torch("12.4"), packages={"numpy": "2.0"}) == ["n/a"]
    assert say(name, torch=torch("12.4")) == ["n/a"]


# -- torchvision, torchaudio ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("torch_version", "version", "expected"),
    [
        ("2.6.0", "0.21.0", "pass"),
        ("2.6.0+cu124", "0.21.0", "pass"),
        ("2.6.0", "0.21.0+cu124", "pass"),
        ("2.6.0+cu124", "0.21.0+cu124", "pass"),
        ("1.7.0", "0.8.1", "pass"),
        # The patch of another release of this line.
        ("2.5.1", "0.20.0", "warn"),
        ("2.5.0+cu124", "0.20.1", "warn"),
        ("2.1.2", "0.16.0", "warn"),
        # Another line.
        ("2.6.0", "0.20.1", "fail"),
        ("2.6.0", "0.22.0", "fail"),
        ("2.0.1", "0.9.0", "fail"),
        ("1.13.1", "0.15.2", "fail"),
        # Too new for the tables, on either side.
        ("99.0.0", "99.0.0", "unknown"),
        ("2.15.0", "0.30.0", "unknown"),
        ("99.0.0", "0.21.0", "fail"),  # 0.21.0 is known, and pins 2.6.0 exactly
    ],
)
def test_torchvision(torch_version, version, expected):
    assert vision(torch_version, version) == [expected]


@pytest.mark.parametrize(
    ("torch_version", "version", "expected"),
    [
        ("2.6.0", "2.6.0", "pass"),
        ("2.0.0", "2.0.1", "pass"),
        ("2.5.1", "2.5.0", "warn"),
        ("2.6.0", "2.5.1", "fail"),
        ("2.11.0", "2.10.0", "fail"),
        # Before they let go of the exact pin.
        ("2.10.0", "2.11.0", "fail"),
        ("2.10.0", "2.11.1", "fail"),
    ],
)
def test_torchaudio(torch_version, version, expected):
    assert audio(torch_version, version) == [expected]


@pytest.mark.parametrize("version", ["2.11.0", "2.11.1"])
@pytest.mark.parametrize(
    "torch_version",
    ["2.11.0", "2.12.0", "2.12.1", "2.13.0", "2.14.0", "2.14.1", "2.15.0", "2.16.0"],
)
def test_torchaudio_is_loose_from_2_11_on(torch_version, version):
    """There is no torchaudio 2.12: 2.11.x takes any newer torch."""
    assert audio(torch_version, version, cuda="13.0") == ["pass"]


@pytest.mark.parametrize("version", ["0.29.1", "0.29.2"])
@pytest.mark.parametrize(
    ("torch_version", "expected"),
    [("2.14.0", "pass"), ("2.14.1", "pass"), ("2.15.0", "pass"), ("2.16.0", "pass"),
     ("2.13.0", "fail")],
)  # fmt: skip
def test_torchvision_is_loose_from_0_29_1_on(torch_version, version, expected):
    """torch>=2.14.0 is what it declares."""
    assert vision(torch_version, version, cuda="13.0") == [expected]


def test_the_last_torchvision_that_pins_exactly():
    assert vision("2.14.0", "0.29.0", cuda="13.0") == ["pass"]
    assert vision("2.14.1", "0.29.0", cuda="13.0") == ["warn"]
    assert vision("2.15.0", "0.29.0", cuda="13.0") == ["fail"]


def test_every_pair_of_the_table_belongs_together():
    for release in M.torch_releases():
        row = M.companion(release) or {}
        for name in ("torchvision", "torchaudio"):
            for version in row.get(name, []):
                assert companions(release, {name: version}) == ["pass"], (release, name, version)


@pytest.mark.parametrize("build", ["ngc", "source", "vendor"])
def test_other_builds_have_pairs_of_their_own(build):
    assert vision("2.6.0a0+ecf3bae40a.nv25.1", "0.20.0a0", build=build) == ["n/a"]
    assert vision("2.6.0", "0.15.2", build=build) == ["n/a"]


def test_an_ngc_build_is_known_by_its_version():
    """Where nobody said how it was installed."""
    ngc = {"version": "2.6.0a0+ecf3bae40a.nv25.1", "cuda": "12.8"}
    assert say(COMPANION, torch=ngc, packages={"torchvision": "0.20.0a0"}) == ["n/a"]


@pytest.mark.parametrize("version", ["0.20.0.dev20240721+cu124", "0.20.0.dev20240721"])
@pytest.mark.parametrize("torch_version", ["2.5.0.dev20240720+cu124", "2.5.0.dev20240720"])
def test_nightlies_go_together_by_their_day(torch_version, version):
    assert set(vision(torch_version, version)) <= {"n/a", "pass", "unknown"}
    # torchaudio's nightlies lag behind in number.
    assert set(audio(torch_version, "2.4.0.dev20240721+cu124")) <= {"n/a", "pass", "unknown"}


@pytest.mark.parametrize(
    ("torch_version", "version", "expected"),
    [
        ("2.5.0.dev20240720+cu124", "0.19.0", "fail"),
        ("2.12.0.dev20260415", "0.26.0", "fail"),
        ("2.5.0.dev20240720+cu124", "0.21.0", "fail"),
        # A release of the nightly's own line: built for another commit, which may do.
        ("2.5.0.dev20240720+cu124", "0.20.0", "unknown"),
        ("2.6.0a0+ecf3bae40a", "0.21.0", "unknown"),
    ],
)
def test_a_nightly_with_a_release(torch_version, version, expected):
    assert vision(torch_version, version) == [expected]


def test_rebuilds_are_releases():
    """conda-forge numbers its torch 2.1.2.post304."""
    assert vision("2.1.2.post304", "0.16.2", cuda="12.0", build="conda") == ["pass"]
    assert vision("2.1.2.post304", "0.15.2", cuda="12.0", build="conda") == ["fail"]


def test_conda_pins_the_line_only():
    """Its torchvision is built for any patch release of a torch."""
    assert vision("2.5.0", "0.20.1", build="conda") == ["pass"]
    assert vision("2.5.1", "0.21.0", build="conda") == ["fail"]
    other = {"torch": torch("12.4", "2.5.1", build="conda"),
             "packages_conda": {"pytorch": "2.5.1", "torchvision": "0.20.1"}}  # fmt: skip
    assert say(COMPANION, **other) == ["n/a"]


def test_each_companion_is_judged():
    both = {"torchvision": "0.21.0", "torchaudio": "2.5.1", "torchtext": "0.6.0"}
    assert companions("2.6.0", both) == ["pass", "fail"]
    found = finding(COMPANION, torch=torch("12.4", "2.6.0+cu124"), packages=both)
    assert found.fix == ("pip install torchaudio==2.6.0",) and found.subject == "torchaudio 2.5.1"
    assert "frameworks[0].version" in [one.fact for one in found.evidence]


# -- the CUDA in their local version ----------------------------------------------------------


@pytest.mark.parametrize(
    ("torch_version", "cuda", "version", "expected"),
    [
        ("2.5.1+cu121", "12.1", "0.20.1+cu121", "pass"),
        ("2.5.1+cu121", "12.1", "0.20.1+cu124", "pass"),  # of one major: enough since 0.16
        ("2.5.1+cu121", "12.1", "0.20.1+cu118", "fail"),
        ("2.1.0+cu118", "11.8", "0.16.0+cu121", "fail"),
        ("2.5.1", "12.1", "0.20.1+cu118", "fail"),
        ("2.0.1+cu118", "11.8", "0.15.2+cu117", "fail"),  # before, the minor counted too
        ("2.0.1+cu118", "11.8", "0.15.2+cu118", "pass"),
        ("2.5.1+cpu", None, "0.20.1+cu124", "fail"),  # no operator torchvision::nms
        ("2.5.1+cpu", None, "0.20.1+cpu", "pass"),
        # A line alone, where CUDA agrees: as without a local version.
        ("2.5.0+cu121", "12.1", "0.20.1+cu121", "warn"),
        ("2.6.0+cu124", "12.4", "0.20.1+cu124", "fail"),
    ],
)
def test_torchvision_compares_its_cuda_with_torch_s(torch_version, cuda, version, expected):
    assert vision(torch_version, version, cuda) == [expected]


@pytest.mark.parametrize(
    ("torch_version", "cuda", "version", "expected"),
    [
        ("2.5.1+cu121", "12.1", "2.5.1+cu121", "pass"),
        ("2.5.1+cu121", "12.1", "2.5.1+cu124", "fail"),  # the minor counts up to 2.9
        ("2.12.0+cu130", "13.0", "2.11.1+cu132", "pass"),
        ("2.12.0+cu126", "12.6", "2.11.1+cu130", "fail"),
        ("2.5.1+cpu", None, "2.5.1+cu124", "fail"),
    ],
)
def test_torchaudio_compares_its_cuda_with_torch_s(torch_version, cuda, version, expected):
    assert audio(torch_version, version, cuda) == [expected]


def test_a_cpu_companion_beside_a_cuda_torch_imports():
    """It compares no CUDA (its own is -1); what it lacks are kernels, not operators."""
    assert "fail" not in vision("2.5.1+cu124", "0.20.1+cpu")


def test_a_cuda_that_is_not_known_is_not_compared():
    assert vision("2.5.1", "0.20.1+cu118", cuda="12.4", build="conda") == ["fail"]
    unclear = {"version": "2.5.1", "build": "conda"}
    assert say(COMPANION, torch=unclear, packages={"torchvision": "0.20.1+cu118"}) == ["pass"]


def test_a_companion_of_another_cuda_is_said_with_both():
    found = finding(COMPANION, torch=torch("11.8", "2.1.0+cu118"),
                    packages={"torchvision": "0.16.0+cu121"})  # fmt: skip
    assert "CUDA 12.1" in found.summary and "CUDA 11.8" in found.summary
    assert "different CUDA" in found.why


# -- framework/plugin-mismatch ----------------------------------------------------------------


def plugins(jaxlib, plugin, pjrt=None, number=12, **more):
    packages = {"jaxlib": jaxlib, f"jax-cuda{number}-plugin": plugin,
                f"jax-cuda{number}-pjrt": pjrt or plugin, **more}  # fmt: skip
    return {"packages": packages}


@pytest.mark.parametrize(
    ("jaxlib", "plugin", "pjrt", "expected"),
    [
        ("0.4.30", "0.4.30", None, "pass"),
        ("0.4.28+cuda12.cudnn89", "0.4.28", None, "pass"),
        ("0.4.28", "0.4.28+cuda12.cudnn89", None, "pass"),
        ("0.9.0.1", "0.9.0.1", None, "pass"),
        ("0.4.28", "0.4.30", None, "fail"),  # newer
        ("0.4.30", "0.4.28", None, "fail"),  # older
        ("0.4.28+cuda12.cudnn89", "0.4.30", None, "fail"),
        ("0.9.0", "0.9.0.1", None, "fail"),
        ("0.4.30", "0.4.30", "0.4.28", "fail"),
        # jaxlib compares the leading numbers alone.
        ("0.4.38.dev20250317", "0.4.38.dev20250318", None, "pass"),
        ("0.4.38", "0.4.38.post1", None, "pass"),
        ("0.9.1", "0.4.38.dev20260317", None, "fail"),
    ],
)
def test_plugins_are_of_jaxlib_s_version(jaxlib, plugin, pjrt, expected):
    assert say(PLUGIN, **plugins(jaxlib, plugin, pjrt)) == [expected]
    assert say(PLUGIN, **plugins(jaxlib, plugin, pjrt, number=13)) == [expected]


@pytest.mark.parametrize(
    "packages",
    [
        {"jaxlib": "0.4.30"},
        {"jax-cuda12-plugin": "0.4.30"},
        {"jaxlib": "0.4.30", "jax-metal": "0.1.0", "jax-rocm60-plugin": "0.4.28"},
        {"jaxlib": "0.4.30", "jax-cuda12-other": "0.1"},
    ],
)
def test_without_a_plugin(packages):
    assert say(PLUGIN, packages=packages) == ["n/a"]


def test_the_cure_is_one_command_of_jax_s_own_version():
    """jax 0.4.37 goes with jaxlib 0.4.36: the version to ask for is jax's."""
    found = finding(PLUGIN, **plugins("0.4.36", "0.4.35", jax="0.4.37"))
    assert found.fix == ('pip install "jax[cuda12]==0.4.37"',)
    found = finding(PLUGIN, **plugins("0.7.2", "0.8.0", number=13))
    assert found.fix == ('pip install "jax[cuda13]==0.7.2"',)
    assert "jax-cuda13-pjrt 0.8.0" in found.summary
