"""`preflight lock`: the table, the verdict, exit codes; and locks in check and exec."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = str(Path(__file__).resolve().parents[1] / "src")


class Job:
    """A directory with a Python environment of made-up packages, as a root."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.cwd = root / "job"
        self.cwd.mkdir(parents=True)
        self.site = root / "usr/lib/python3.11/site-packages"
        (root / "usr/bin").mkdir(parents=True)
        (root / "usr/bin/python3.11").write_bytes(b"\x7fELF")
        (root / "usr/bin/python3.11").chmod(0o755)
        self.site.mkdir(parents=True)
        (self.site.parent / "os.py").write_text("")
        (root / "lib64").mkdir()
        (root / "lib64/ld-linux-x86-64.so.2").write_bytes(b"")

    def install(self, name, version):
        info = self.site / f"{name}-{version}.dist-info"
        info.mkdir()
        text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\n"
        (info / "METADATA").write_text(text)

    def write(self, name, text):
        (self.cwd / name).write_text(text)

    def run(self, *words, **env):
        line = [sys.executable, "-m", "preflight", *words]
        variables = {"PYTHONPATH": SOURCE, "PATH": os.environ["PATH"], "HOME": "/nowhere",
                     "PREFLIGHT_ROOT": str(self.root), **env}  # fmt: skip
        done = subprocess.run(
            line, env=variables, cwd=str(self.cwd), capture_output=True, check=False, timeout=60
        )
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    def lock(self, *words, **env):
        env_file = self.root / "env"
        env_file.write_text("PWD=/job\nPATH=/usr/bin\n")
        return self.run("lock", "--env-file", str(env_file), "--python", "/usr/bin/python3.11",
                        *words, **env)  # fmt: skip


@pytest.fixture
def job(tmp_path):
    return Job(tmp_path / "image")


def test_a_lock_that_holds(job):
    job.install("numpy", "1.26.4")
    job.write("requirements.lock.txt", "numpy==1.26.4\n")
    code, out, err = job.lock()
    assert (code, err) == (0, "")
    assert "ok  numpy==1.26.4  1.26.4" in out
    assert out.rstrip().splitlines()[-1].startswith("PASS")


def test_a_lock_that_does_not(job):
    job.install("torch", "2.5.1")
    job.write("requirements.txt", "torch==2.6.0\nnumpy==1.26.4\n")
    code, out, _err = job.lock()
    assert code == 78, "asked for, it is meant"
    assert "DRIFT  torch==2.6.0" in out and "missing  numpy==1.26.4" in out
    assert "FAIL: lock/drifted" in out


def test_json_is_a_report(job):
    job.install("torch", "2.5.1")
    job.write("requirements.txt", "torch==2.6.0\n")
    code, out, _err = job.lock("--format", "json")
    document = json.loads(out)
    assert code == 78 and document["verdict"] == "fail"
    assert document["schema"] == "preflight.report/1"
    entries = document["snapshot"]["locks"]["value"][0]["entries"]["value"]
    assert entries == [{"name": "torch", "spec": "==2.6.0", "line": 1}]


def test_a_machine_that_is_elsewhere(job):
    job.write("requirements.txt", "torch==2.6.0\n")
    old = job.lock("requirements.txt", "--driver", "470.82.01", "--gpu", "A100")
    assert old[0] == 78 and "lock/framework-unsupported" in old[1] and "+cu118" in old[1]
    new = job.lock("requirements.txt", "--driver", "550.54.15", "--gpu", "A100")
    assert new[0] == 0, new
    aged = job.lock("requirements.txt", "--driver", "550.54.15", "--python-version", "3.8")
    assert aged[0] == 78 and "has no wheel for Python 3.8" in aged[1]
    none = job.lock("requirements.txt", "--driver", "550.54.15", "--python-version", "py3")
    assert none[0] == 2 and "--python-version py3: no Python, as 3.11 or 3.11.7" in none[2]


def test_a_build_that_another_index_chooses_is_not_called_fine(job):
    job.write("requirements.txt", "--index-url https://nexus.example.com/simple\ntorch==2.6.0\n")
    code, out, _err = job.lock("requirements.txt", "--driver", "470.82.01", "--gpu", "A100")
    assert code == 0 and "PASS" not in out
    assert "which build of torch the indexes have (--index-url https://nexus" in out


def test_what_cannot_be_looked_at_is_wrong_usage(job):
    assert job.lock("gone.txt")[0::2] == (2, "preflight: lock: gone.txt: no such file\n")
    code, out, err = job.lock()
    assert (code, out) == (2, "") and "no lock file in /job" in err


def test_a_broken_file_names_the_line(job):
    job.write("requirements.txt", "numpy==1\nnumpy =\n")
    code, out, _err = job.lock()
    assert code == 78 and "line 2: 'numpy =' is no requirement" in out


def test_extra_packages_when_asked(job):
    job.install("numpy", "1.26.4")
    job.install("stray", "1.0")
    job.write("requirements.txt", "numpy==1.26.4\n")
    assert job.lock()[0] == 0
    code, out, _err = job.lock("--exact", "--fail-on", "warn")
    assert code == 78 and "in no lock: stray 1.0" in out


def test_many_entries_are_shown_where_something_is_wrong(job):
    lines = "".join(f"package{n}==1.0\n" for n in range(300))
    for number in range(300):
        job.install(f"package{number}", "1.0" if number else "2.0")
    job.write("requirements.lock.txt", lines)
    out = job.lock()[1]
    assert "DRIFT  package0==1.0" in out and "and 299 that are as the lock says" in out
    assert "ok  package299==1.0" in job.lock("-v")[1]


# -- in check and exec ------------------------------------------------------------------------


def test_check_verifies_what_it_finds(job):
    job.install("numpy", "2.0")
    job.write("requirements.lock.txt", "# pip freeze\nnumpy==1.26.4\n")
    env_file = job.root / "env"
    env_file.write_text("PWD=/job\nPATH=/usr/bin\n")
    words = ("check", "--env-file", str(env_file), "--python", "/usr/bin/python3.11")
    out = job.run(*words)[1]
    assert "WARN lock/drifted: one package is not what /job/requirements.lock.txt says" in out
    assert "WARN  locks" in out


def test_exec_warns_of_drift_and_starts(job, tmp_path):
    place = tmp_path / "job"
    place.mkdir()
    (place / "requirements.lock.txt").write_text("# pip freeze\nno-such-package==1\n")
    done = subprocess.run(
        [sys.executable, "-m", "preflight", "exec", "--", "echo", "started"],
        env={"PYTHONPATH": SOURCE, "PATH": os.environ["PATH"], "PREFLIGHT_PYTHON": sys.executable},
        cwd=str(place), capture_output=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.stdout == b"started\n", done.stderr
    assert b"lock/drifted" in done.stderr


def test_a_policy_names_locks(job):
    job.install("torch", "2.5.1")
    job.write("deps.txt", "torch==2.6.0\n")
    job.write("preflight.toml", 'locks = ["deps.txt"]\n')
    assert "DRIFT  torch==2.6.0" in job.lock()[1]
    assert "DRIFT  torch==2.6.0" in job.lock(PREFLIGHT_LOCK="deps.txt")[1]
