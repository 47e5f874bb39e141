"""environment.yml is read whole, each entry with its line, and other YAML files are told apart."""

from typing import Tuple

import pytest

from preflight.lockfiles.model import LOCK, REQUIREMENTS, BadLock, NoLock
from tests.lockfiles.reading import SAMPLES, by_name, cut_off, read, sample, written


def test_an_export_has_versions_builds_and_pips_section() -> None:
    parsed = sample("environment-export.yml")
    assert (parsed.format, parsed.role) == ("conda-environment", LOCK)
    assert len(parsed.entries) == 20
    torch = by_name(parsed)["pytorch"]
    assert torch.manager == "conda"
    assert (torch.spec, torch.build) == ("==2.5.1", "py3.11_cuda12.4_cudnn9.1.0_0")
    assert by_name(parsed)["flash-attn"].spec == "==2.7.0.post2"
    assert by_name(parsed)["flash-attn"].manager == ""


def test_each_entry_has_the_line_it_stands_on() -> None:
    for name in ("environment-export.yml", "environment-by-hand.yml", "environment-no-builds.yml"):
        for one in sample(name).entries:
            if one.name:
                assert one.name in written(name, one.line).lower(), one


def test_credentials_and_tokens_of_channels_are_left_out() -> None:
    parsed = sample("environment-export.yml")
    assert parsed.indexes[-1] == "--channel https://conda.example.org/private"
    assert "secret" not in str(parsed) and "tk-0123" not in str(parsed)


def test_every_form_of_matchspec_is_read() -> None:
    found = by_name(sample("environment-by-hand.yml"))
    said = {name: (one.spec, one.build) for name, one in found.items() if one.manager}
    assert said == {
        "python": ("=3.11", ""),
        "pytorch": ("==2.5.1", "py3.11_cuda12.4_cudnn9.1.0_0"),
        "cudnn": ("=9.1.*", ""),
        "numpy": (">=1.24,<2", ""),
        "scipy": ("~=1.11", ""),
        "pyyaml": ("", ""),
        "blas": ("", "mkl"),
        "cupy": (">=13", "*cuda12*"),
        "python_abi": ("3.11.*", "*_cp311"),
        "ninja": ("==1.11.1", ""),
        "gxx": ("=12|13", ""),
        "bzip2": ("==1.0.8", "hd590300_5"),
        "nccl": (">=2.21", ""),
        "libcxx": ("=17", ""),
        "pip": ("", ""),
    }
    assert found["pytorch"].index_url == "pytorch"
    assert (found["cudnn"].index_url, found["cudnn"].platform) == ("conda-forge", "linux-64")
    assert found["bzip2"].files[0].hash == "md5:69b8b6202a07720f448be700e300ccf4"
    assert found["libcxx"].platform == "osx-64"


def test_pips_section_is_read_as_a_requirements_file() -> None:
    parsed = sample("environment-by-hand.yml")
    found = by_name(parsed)
    assert [(one.role, one.path) for one in parsed.includes] == [
        ("requirements", "requirements.txt"),
        ("constraints", "constraints.txt"),
    ]
    assert "--extra-index-url https://download.pytorch.org/whl/cu124" in parsed.indexes
    assert "--channel nvidia/label/cuda-12.4.1" in parsed.indexes
    assert found["torchaudio"].spec == "==2.5.1+cu124"
    assert found["triton"].marker == 'platform_machine == "x86_64"'
    assert found["apex"].url.startswith("git+https://github.com/NVIDIA/apex@")
    assert (found["einops"].spec, found["safetensors"].spec) == ("==0.8.0", ">=0.4")
    name = "environment-by-hand.yml"
    assert all(one.path in written(name, one.line) for one in parsed.includes)
    assert parsed.platforms == ("linux-64", "linux-aarch64")


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("environment-export.yml", LOCK),
        ("environment-no-builds.yml", LOCK),
        ("environment-from-history.yml", REQUIREMENTS),
        ("environment-by-hand.yml", REQUIREMENTS),
    ],
)
def test_what_a_tool_resolved_is_told_from_what_people_asked_for(name: str, role: str) -> None:
    assert sample(name).role == role


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("docker-compose.yml", "services:\n  web:\n    image: cuda\n"),
        (".github/workflows/ci.yml", "name: ci\non: push\njobs:\n  test:\n    steps: []\n"),
        ("Chart.yaml", "dependencies:\n  - name: redis\n    repository: https://e.org\n"),
        ("pubspec.yaml", "dependencies:\n  flutter:\n    sdk: flutter\n"),
        ("environment.yml", "name: x\nchannels: [a]\n"),
        ("environment.yaml", "- a\n- b\n"),
        ("environment.yml", ""),
        ("environment.yml", "dependencies: numpy\n"),
    ],
)
def test_another_yaml_file_is_no_lock(name: str, text: str) -> None:
    with pytest.raises(NoLock, match="^(line 1: |line 2: )?no conda environment: "):
        read(text, name)


@pytest.mark.parametrize(
    "name",
    [
        "environment.yml",
        "environment-gpu.yaml",
        "environment.lock.yml",
        "gpu-env.yml",
        "conda.yaml",
    ],
)
def test_a_conda_environment_is_known_by_name_or_content(name: str) -> None:
    assert read("name: x\ndependencies: [numpy=1.26]\n", name).entries[0].spec == "=1.26"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("dependencies:\n  - numpy==\n", "line 2: 'numpy==' has an operator without a version"),
        ("dependencies:\n  - =1.2\n", "line 2: '=1.2' names no package"),
        ("dependencies:\n  - npm: [x]\n", "line 2: 'npm' is no installer that conda knows"),
        ("dependencies:\n  - pip:\n    - a\n    - 'b =='\n", "line 4: 'b ==' is no requirement"),
        (
            "dependencies:\n  - pip:\n    - |\n      a==1\n      --bad\n",
            "line 5: '--bad' is no option",
        ),
        ("dependencies:\n  - [a]\n", "line 2: a dependency must be a text"),
        ("dependencies: []\ndependencies: []\n", "line 2: 'dependencies' stands twice"),
        ("dependencies:\n\t- a\n", "line 2: is no YAML: "),
        ("dependencies: [a\n", "line 2: is no YAML: "),
        ("dependencies: [*a]\n", "line 1: \\*a stands for nothing"),
        ("dependencies: &a [*a]\n", "line 1: \\*a holds itself"),
        ("dependencies: [!!python/object/apply:os.system [id]]\n", "line 1: has the tag "),
        ("dependencies: []\n---\na: b\n", "line 2: is a second document"),
        ("dependencies: " + "[" * 99 + "\n", "line 1: nested too deeply"),
        ("a\x07: b\n", "line 1: holds a character that no text has"),
        ('dependencies: ["\\ud800"]\n', "line 1: is no YAML"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_line(text: str, reason: str) -> None:
    with pytest.raises(BadLock, match=f"^{reason}"):
        read(text)


def test_no_dependencies_are_none_and_merged_mappings_count() -> None:
    assert read("name: x\ndependencies:\n").entries == ()
    text = "base: &b\n  channels: [a]\n  dependencies: [x=1]\n<<: *b\nchannels: [c]\n"
    parsed = read(text)
    assert parsed.indexes == ("--channel c",) and parsed.entries[0].spec == "=1"


def test_aliases_cannot_multiply_without_end() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    with pytest.raises(BadLock, match="line 6: has more than 500000 values"):
        read("\n".join([*lines, "dependencies: *a11"]))
    many = "dependencies:\n- &p\n  pip:\n" + "  - a\n" * 2000 + "- *p\n" * 2000
    with pytest.raises(BadLock, match="has more than 500000 values"):
        read(many)


@pytest.mark.parametrize("name", sorted(one.name for one in SAMPLES.glob("environment-*.yml")))
def test_a_file_cut_off_anywhere_is_read_or_refused(name: str) -> None:
    cut_off(name)


def test_without_pyyaml_the_reader_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    from preflight.lockfiles.model import NeedsLibrary

    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(NeedsLibrary, match=r"pip install 'pai-preflight\[yaml\]'") as raised:
        read("dependencies: [a]\n")
    assert (raised.value.library, raised.value.extra) == ("PyYAML", "yaml")


def test_the_loader_without_libyaml_says_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    import yaml

    names: Tuple[str, ...] = ("environment-export.yml", "environment-by-hand.yml")
    fast = [sample(name) for name in names]
    monkeypatch.delattr(yaml, "CSafeLoader", raising=False)
    assert [sample(name) for name in names] == fast
    with pytest.raises(BadLock, match="^line 1: is no YAML: an escape"):
        read('dependencies: ["\\ud800"]\n')
