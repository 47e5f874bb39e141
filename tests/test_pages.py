"""`preflight matrix driver|cuda|gpu|torch NAME`: a page for everything in the tables."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import preflight
from preflight import matrix, pages, tables
from preflight.reports import matrix_text

HOME = str(Path(preflight.__file__).parent.parent)
M = matrix.load()
TABLES = tables.built_in()

NAMES = {
    "driver": [row.get("first", str(row["branch"])) for row in TABLES["drivers"]["branch"]],
    "cuda": M.cudas(),
    "gpu": [n for r in TABLES["gpus"]["gpu"] for n in [r["name"], *r.get("names", [])]],
    "torch": M.torch_releases(),
}
VARIANTS = sorted({f"{text}+{r['variant']}" for r in M.torch_builds() for text in r["versions"]})


def entries(subject, name):
    return {one.label: list(one.values) for one in pages.page(M, subject, name).entries}


@pytest.mark.parametrize("subject", sorted(NAMES))
def test_everything_in_the_tables_has_a_page(subject):
    for name in NAMES[subject] + (VARIANTS if subject == "torch" else []):
        page = pages.page(M, subject, name)
        assert page.title and page.entries and page.sources, name
        assert page.trust in ("primary", "secondary", "derived")
        assert all(one.values and all(one.values) for one in page.entries), name
        labels = [one.label for one in page.entries]
        assert len(set(labels)) == len(labels), (name, "a label twice would be lost in JSON")
        text = matrix_text.render(page)
        assert text.startswith(page.title + "\n") and text.endswith("\n")
        assert json.loads(json.dumps(pages.as_json(page)))["title"] == page.title


@pytest.mark.parametrize("width", [1, 60, 80, 200])
def test_no_line_is_wider_than_asked_but_a_long_word(width):
    for name in ("2.6.0", "1.7.1"):
        page = pages.page(M, "torch", name)
        body = matrix_text.render(page, width).split("\nsources")[0].splitlines()
        assert all(len(line) <= max(60, width) for line in body)


def test_a_driver():
    page = entries("driver", "470.82.01")
    assert page["branch"] == ["R470, LTSB"] and page["own CUDA"] == ["11.4"]
    assert page["runs natively"] == ["9.0 to 11.4"]
    assert page["by minor version"][0].startswith("11.5 to 11.8 (machine code only")
    assert "12.2" in page["by compat package"][0].split(", ")
    assert "cu118: up to 2.7.1 (minor-version)" in page["torch"]
    assert not [one for one in page["torch"] if one.startswith("cu121")]


def test_a_cuda():
    page = entries("cuda", "12.4")
    assert page["oldest driver"] == ["525.60.13 (without a compat package)"]
    assert page["native from"] == ["R550"] and page["PTX ISA"] == ["8.4"]
    assert "R535" in page["compat package on"][0].split(", ")
    assert any("2.6.0" in one for one in page["torch"])
    assert entries("cuda", "12.4.1") == page


def test_a_gpu():
    page = entries("gpu", "H20")
    assert page["compute capability"] == ["9.0 (sm_90)"]
    assert page["first driver branch"] == ["R535"] and page["forward compatibility"] == ["yes"]
    assert page["first driver that names it"] == ["535.161.07"]
    assert page["last driver branch"] == ["still supported"]
    volta = entries("gpu", "V100")
    assert volta["last driver branch"] == ["R580"] and volta["CUDA"] == ["9.0 to 12.9"]
    assert not [one for one in volta["torch"] if one.startswith("cu130")]


def test_a_torch():
    page = entries("torch", "2.6.0")
    assert "what the default index gives" in page["x86_64 cu124"]
    assert "CUDA 12.4, driver 525.60.13 or newer" in page["x86_64 cu124"]
    assert page["torchvision"] == ["0.21.0"] and page["triton"] == ["==3.2.0"]
    assert "nvidia-cudnn-cu12==9.1.0.70" in page["pins on x86_64"][0]
    assert {"x86_64 cu118", "x86_64 cpu", "aarch64 cpu", "aarch64 cu126"} <= set(page)
    only = entries("torch", "2.6.0+cu118")
    assert "x86_64 cu118" in only and "x86_64 cu124" not in only


def test_trust_is_that_of_the_weakest_row():
    derived = [row for row in TABLES["gpus"]["gpu"] if row["trust"] == "derived"]
    for row in derived[:3]:
        page = pages.page(M, "gpu", row["name"])
        assert page.trust == "derived"
        assert "sources (in part derived)" in matrix_text.render(page)


# -- what is not there ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("subject", "name", "words"),
    [
        ("driver", "x", "no driver version, or older than the matrix knows"),
        ("driver", "100.1", "older than the matrix knows"),
        ("cuda", "19.0", "not in the matrix (9.0 to "),
        ("cuda", "x", "not in the matrix"),
        ("gpu", "Z9000", "no such product in the matrix"),
        ("gpu", "RTX", "did you mean "),
        ("gpu", "Tesla V1000", "did you mean Tesla "),
        ("torch", "3.1.0", "not in the matrix (1.7.0 to "),
        ("torch", "2.6.0+cu999", "not in the matrix"),
        ("torch", "", "not in the matrix"),
        ("torch", "+cu124", "not in the matrix"),
    ],
)
def test_unknown_names_say_what_is_near(subject, name, words):
    with pytest.raises(pages.NotInMatrix) as caught:
        pages.page(M, subject, name)
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_a_driver_newer_than_the_tables_says_so():
    page = entries("driver", "999.1")
    assert page["branch"][0].startswith("newer than the matrix knows")
    assert page["own CUDA"][0].endswith(" or newer")
    assert "support ends" not in page and page["GPUs"] == ["not known"]


# -- the command ----------------------------------------------------------------------------


def run(*words):
    return subprocess.run(
        [sys.executable, "-m", "preflight", "matrix", *words],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": HOME, "LANG": "C.UTF-8"},
        capture_output=True, check=False, timeout=60, encoding="utf-8",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("words", "title", "says"),
    [
        (("driver", "535.104.05"), "NVIDIA driver 535.104.05", "12.2"),
        (("cuda", "12.4"), "CUDA 12.4", "525.60.13"),
        (("gpu", "H20"), "NVIDIA H20", "9.0 (sm_90)"),
        (("gpu", "RTX", "4090"), "NVIDIA GeForce RTX 4090", "8.9 (sm_89)"),
        (("torch", "2.6.0"), "torch 2.6.0", "cu124"),
    ],
)
def test_the_command(words, title, says):
    done = run(*words)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(title + "\n") and says in done.stdout
    assert "\nsources" in done.stdout and "https://" in done.stdout
    document = json.loads(run(*words, "--format", "json").stdout)
    assert document["schema"] == "preflight.matrix/1" and document["title"] == title
    assert says in json.dumps(document["entries"])
    assert all(set(one) == {"title", "url"} for one in document["references"])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("gpu", "Z9000"), "gpu Z9000: no such product"),
        (("torch", "3.1.0"), "torch 3.1.0: not in the matrix"),
        (("cuda", "19.0"), "cuda 19.0: not in the matrix"),
        (("driver", "x"), "driver x: no driver version"),
        (("planet", "Mars"), "'planet' is none of driver, cuda, gpu, torch, check"),
        (("gpu",), "NAME"),
        (("gpu", "H20", "--format", "xml"), "--format"),
    ],
)
def test_the_command_refuses_in_one_line(words, says):
    done = run(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr and done.stderr.count("\n") == 1
