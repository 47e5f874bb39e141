"""Becoming the job's command, with real processes: what the command sees with preflight in front
of it must be what it sees without."""

import ctypes
import os
import random
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

import preflight
from preflight import handover, launch

HOME = str(Path(preflight.__file__).parent.parent)
FRONT = Path(__file__).with_name("launch_front.py")
PASS = "preflight: PASS"


def front(judge, *command, **options):
    """The command line that judges by `judge` of launch_front.py and becomes `command`."""
    words = [f"{name}={value}" for name, value in options.items()]
    return [sys.executable, str(FRONT), HOME, judge, *words, "exec", "--", *command]


def run(judge, *command, env=None, options=None, **keywords):
    keywords.setdefault("stdout", subprocess.PIPE)
    keywords.setdefault("stderr", subprocess.PIPE)
    words = front(judge, *command, **(options or {}))
    return subprocess.run(words, env=environment(env), timeout=30, check=False, **keywords)


def environment(extra=None):
    mine = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
    mine.update(extra or {})
    return mine


def lines(done):
    return done.stderr.decode().splitlines()


def twice(*command, **keywords):
    """What `command` prints without and with preflight in front of it."""
    keywords.setdefault("env", environment())
    words = list(command)
    return tuple(
        subprocess.run(one, stdout=subprocess.PIPE, timeout=30, check=False, **keywords).stdout
        for one in (words, front("good", *words))
    )


# ---- the command is the same process, and gets everything as it was


def test_it_becomes_the_command():
    words = front("good", "sh", "-c", "echo $$; pwd; umask; exit 37")
    process = subprocess.Popen(words, stdout=subprocess.PIPE, cwd="/usr", env=environment())
    out = process.communicate(timeout=30)[0].decode().split()
    assert out[:2] == [str(process.pid), "/usr"]
    assert process.returncode == 37


def test_a_command_that_dies_by_a_signal_is_seen_to_do_so():
    assert run("good", "sh", "-c", "kill -9 $$").returncode == -9


def test_umask_and_limits_are_the_same():
    before, after = twice(
        "sh", "-c", "umask; ulimit -a", preexec_fn=lambda: os.umask(0o037) and None
    )
    assert before == after


def test_standard_input_is_left_to_the_command():
    data = os.urandom(1 << 16)
    assert run("good", "cat", input=data).stdout == data


def test_inherited_descriptors_work(tmp_path):
    (tmp_path / "seven").write_text("from seven")
    words = front("good", "sh", "-c", "cat <&7")
    shell = ["sh", "-c", 'exec 7<"$0"; exec "$@"', str(tmp_path / "seven"), *words]
    assert subprocess.run(shell, stdout=subprocess.PIPE, timeout=30, check=True).stdout == (
        b"from seven"
    )


@pytest.mark.parametrize("closed", ["", "<&-", ">&-", "2>&-", "<&- 2>&-", "<&- >&- 2>&-"])
def test_no_descriptor_is_added_or_lost(tmp_path, closed):
    def seen(words):
        target = tmp_path / "seen"
        script = f'exec "$@" {closed}'
        listing = 'cd /proc/self/fd; for n in *; do if [ -e "$n" ]; then echo $n; fi; done > "$0"'
        command = ["sh", "-c", listing, str(target)]
        shell = ["sh", "-c", script, "sh", *words, *command]
        assert subprocess.run(shell, timeout=30, check=False, env=environment()).returncode == 0
        return target.read_text()

    assert seen(front("good")) == seen([])


def test_arguments_arrive_byte_for_byte():
    words = [b"a b", b"new\nline", b"\xff\xfe", b"", "驱动".encode(), b"--", b"-x=$HOME", b"\x80"]
    before, after = twice("sh", "-c", "tr '\\0' '|' </proc/$$/cmdline", "sh", *words)
    assert before == after
    assert b"\xff\xfe" in after


LOCALES = [
    {"LANG": "C"},
    {},
    {"LC_ALL": "C"},
    {"LC_CTYPE": ""},
    {"LC_CTYPE": "C", "LANG": "C"},
    {"LC_ALL": "POSIX", "PYTHONIOENCODING": "latin-1"},
    {"LANG": "C", "PYTHONCOERCECLOCALE": "0"},
    {"LANG": "en_US.ISO-8859-1", b"ODD\xff": b"\xff\n"},
]


@pytest.mark.parametrize("variables", LOCALES, ids=str)
def test_the_environment_is_the_same(variables):
    before, after = twice(
        "cat", "/proc/self/environ", env={"PATH": os.environ["PATH"], **variables}
    )
    assert before == after


def test_arguments_survive_a_c_locale():
    words = ["sh", "-c", "cat /proc/$$/cmdline; :", "sh", b"\xff", "é".encode()]
    before, after = twice(*words, env={"PATH": os.environ["PATH"], "LC_ALL": "C"})
    assert before == after


def test_odd_environment_entries_are_the_same():
    entries = [b"PATH=" + os.fsencode(os.environ["PATH"]), b"TWICE=1", b"TWICE=2", b"NO_EQUALS"]
    assert raw_environment(["cat", "/proc/self/environ"], entries) == b"\0".join(entries) + b"\0"
    assert raw_environment(["cat", "/proc/self/environ"], entries[:3]).count(b"TWICE") == 2


def raw_environment(command, entries):
    words = [os.fsencode(word) for word in front("good", *command)]
    argv = (ctypes.c_char_p * (len(words) + 1))(*words, None)
    envp = (ctypes.c_char_p * (len(entries) + 1))(*entries, None)
    libc = ctypes.CDLL(None)
    done = subprocess.run(
        ["false"],
        preexec_fn=lambda: libc.execve(words[0], argv, envp),
        stdout=subprocess.PIPE,
        check=True,
    )
    return done.stdout


def test_python_variables_of_the_job_do_not_reach_our_imports(tmp_path):
    (tmp_path / "json.py").write_text("raise ImportError('the job has a json of its own')")
    done = run("isolated", "sh", "-c", "echo $PYTHONPATH", env={"PYTHONPATH": str(tmp_path)})
    assert lines(done)[-1] == PASS
    assert done.stdout.decode().strip() == str(tmp_path)


# ---- signals


def ignoring(*numbers):
    def prepare():
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)

    return prepare


def blocking(*numbers):
    return lambda: signal.pthread_sigmask(signal.SIG_BLOCK, numbers)


PREPARED = {
    "usual": lambda: None,  # not None: subprocess might then use posix_spawn, which ignores some
    "nohup": ignoring(signal.SIGHUP),
    "background": ignoring(signal.SIGINT, signal.SIGQUIT),
    "alarm ignored": ignoring(signal.SIGALRM),
    "all ignored": ignoring(signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD),
    "blocked": blocking(signal.SIGTERM, signal.SIGUSR1, signal.SIGALRM),
}


@pytest.mark.parametrize("judge", ["good", "isolated"])
@pytest.mark.parametrize("name", PREPARED)
def test_dispositions_and_mask_are_the_same(name, judge):
    words = ["grep", "^Sig", "/proc/self/status"]
    direct, ours = (
        subprocess.run(
            one, stdout=subprocess.PIPE, preexec_fn=PREPARED[name], env=environment(), check=True
        ).stdout.decode()
        for one in (words, front(judge, *words))
    )
    assert without_queue(ours) == without_queue(direct)


def without_queue(status):
    return [line for line in status.splitlines() if not line.startswith("SigQ")]


def test_the_command_may_run_longer_than_our_timeout():
    assert run("good", "sleep", "1", options={"timeout": 0.5}).returncode == 0


def test_a_timer_that_the_job_was_started_with_still_rings():
    done = run(
        "good", "sleep", "20", preexec_fn=lambda: signal.setitimer(signal.ITIMER_REAL, 1.0) and None
    )
    assert done.returncode == -signal.SIGALRM


class Slow:
    """A start whose checks take a minute; in the body they are under way, children and all."""

    def __init__(self, *before, prepare=None, judge="slow"):
        self.words = [*before, *front(judge, "sh", "-c", "echo started")]
        self.prepare = prepare

    def __enter__(self):
        self.process = subprocess.Popen(
            self.words, stdout=subprocess.PIPE, preexec_fn=self.prepare, env=environment()
        )
        assert self.process.stdout.readline() == b"judging\n"
        self.main = (
            children(self.process.pid)[0] if self.words[0] == "unshare" else self.process.pid
        )
        eventually(lambda: len(children(self.main)) == 2)
        self.workers = children(self.main)
        return self

    def __exit__(self, *_error):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        eventually(lambda: not any(alive(pid) for pid in self.workers), seconds=2.0)

    def send(self, number):
        """Send it; the exit code, and how long it took."""
        started = time.monotonic()
        os.kill(self.main, number)
        return self.process.wait(timeout=10), time.monotonic() - started


def children(pid):
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def eventually(holds, seconds=10.0):
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.01)


ENDINGS = [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)]


@pytest.mark.parametrize(("number", "code"), ENDINGS)
def test_a_signal_during_the_checks_ends_them_at_once(number, code):
    with Slow() as slow:
        ended, seconds = slow.send(number)
    assert ended == code
    assert seconds < 1.0


@pytest.mark.parametrize(("number", "code"), [*ENDINGS, (signal.SIGALRM, 0)])
def test_a_signal_in_the_moment_of_a_fork_leaves_no_child(number, code):
    done = run(f"signalled_at_fork_{int(number)}", "true")
    assert done.returncode == code
    (worker,) = done.stdout.split()
    eventually(lambda: not alive(int(worker)), seconds=2.0)


def test_an_ignored_signal_ends_nothing():
    with Slow(prepare=ignoring(signal.SIGHUP), judge="slowish") as slow:
        assert slow.send(signal.SIGHUP)[0] == 0
        assert slow.process.stdout.read() == b"started\n"


def can_unshare():
    probe = ["unshare", "-pf", "--mount-proc", "true"]
    return shutil.which("unshare") and subprocess.run(probe, check=False).returncode == 0


pid_1 = pytest.mark.skipif(not can_unshare(), reason="no right to a PID namespace (unshare -p)")


@pid_1
@pytest.mark.parametrize(("number", "code"), ENDINGS)
def test_as_pid_1_a_signal_ends_the_checks_too(number, code):
    with Slow("unshare", "-pf", "--mount-proc") as slow:
        ended, seconds = slow.send(number)
    assert ended == code
    assert seconds < 1.0


@pid_1
def test_as_pid_1_it_becomes_the_command():
    words = ["unshare", "-pf", "--mount-proc", *front("isolated", "sh", "-c", "echo $$; exit 5")]
    done = subprocess.run(words, stdout=subprocess.PIPE, env=environment(), check=False)
    assert (done.returncode, done.stdout) == (5, b"1\n")


def test_a_signal_at_any_moment_ends_it():
    """Also between the last check and exec: no moment swallows a SIGTERM."""
    for _ in range(40):
        process = subprocess.Popen(
            front("good", "sleep", "60"), stderr=subprocess.DEVNULL, env=environment()
        )
        time.sleep(random.uniform(0.02, 0.12))
        process.terminate()
        assert process.wait(timeout=10) in (143, -signal.SIGTERM)


def test_a_signal_that_comes_when_the_handlers_go_is_not_lost():
    code = (
        "import os, signal, sys; from preflight import handover, __main__ as front;"
        "front._handle_signals(); before = signal.sigpending;"
        "signal.sigpending = lambda: (os.kill(os.getpid(), 15), before())[1];"
        "handover.replace(['true'])"
    )
    done = subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": HOME}, check=False)
    assert done.returncode == 143


# ---- preflight's own faults do not stop a job, unless chosen


FAULTS = ["raises", "exits", "recursion", "memory", "imports", "nonsense"]


@pytest.mark.parametrize("judge", FAULTS)
def test_an_own_fault_does_not_stop_the_job(judge):
    done = run(judge, "echo", "started")
    assert (done.returncode, done.stdout) == (0, b"started\n")
    assert "a fault of preflight itself" in lines(done)[-1]
    assert lines(done)[-1].endswith("; starting anyway")


@pytest.mark.parametrize("judge", FAULTS)
def test_an_own_fault_stops_it_where_chosen(judge):
    done = run(judge, "echo", "started", options={"fail_closed": True})
    assert (done.returncode, done.stdout) == (70, b"")
    assert lines(done)[-1].endswith("; not starting (fail-closed)")


@pytest.mark.timed
@pytest.mark.parametrize("judge", ["hangs", "swallows", "hangs_in_a_child"])
def test_nothing_waits_past_the_deadline(judge):
    started = time.monotonic()
    done = run(
        judge, "sh", "-c", "echo $$; cat /proc/$$/task/$$/children", options={"timeout": 0.5}
    )
    assert time.monotonic() - started < 4.0
    assert lines(done)[-1] == "preflight: no verdict within 0.5 s; starting anyway"
    assert len(done.stdout.split()) <= 2  # the shell itself and its cat, no worker of ours


def test_no_verdict_stops_it_where_chosen():
    done = run("hangs", "echo", "started", options={"timeout": 0.5, "fail_closed": True})
    assert (done.returncode, done.stdout) == (70, b"")


def test_without_its_command_line_it_still_starts_the_job():
    done = run("no_cli", "echo", "started")
    assert (done.returncode, done.stdout) == (0, b"started\n")
    assert "starting anyway" in lines(done)[-1]


def test_without_its_command_line_it_stops_where_chosen():
    done = run("no_cli", "echo", "started", env={"PREFLIGHT_FAIL_CLOSED": "1"})
    assert (done.returncode, done.stdout) == (70, b"")


# ---- what a job's log shows


def test_a_pass_is_two_lines_and_the_verdict_is_the_last():
    done = run("good", "sh", "-c", "echo from the job >&2")
    assert lines(done) == [
        "preflight: checking before: sh ...",
        PASS,
        "from the job",
    ]


@pytest.mark.parametrize(("judge", "code"), [("bad", 78), ("sick", 75)])
def test_a_fail_stops_and_says_why(judge, code):
    done = run(judge, "echo", "started")
    assert (done.returncode, done.stdout) == (code, b"")
    assert lines(done) == [
        "preflight: checking before: echo started",
        "preflight: driver/too-old: first",
        "preflight: gpu/none: second  line [31m 驱动",
        "preflight: FAIL driver/too-old; fix: newer driver",
    ]


def test_mode_warn_says_the_same_and_goes_on():
    done = run("bad", "echo", "started", options={"mode": "warn"})
    assert (done.returncode, done.stdout) == (0, b"started\n")
    assert lines(done)[-1] == (
        "preflight: FAIL driver/too-old; fix: newer driver; starting anyway (mode warn)"
    )


def test_mode_off_does_nothing():
    done = run("raises", "echo", "started", options={"mode": "off"})
    assert (done.returncode, done.stdout, done.stderr) == (0, b"started\n", b"")


def test_the_variable_switches_off_before_anything_is_loaded():
    done = run("no_cli", "echo", "started", env={"PREFLIGHT_MODE": "off"})
    assert (done.returncode, done.stdout, done.stderr) == (0, b"started\n", b"")


def test_a_flag_wins_over_the_variable():
    words = front("bad", "echo", "started")
    words.insert(words.index("exec") + 1, "--mode=enforce")
    done = subprocess.run(words, env=environment({"PREFLIGHT_MODE": "off"}), check=False)
    assert done.returncode == 78


@pytest.mark.parametrize("name", handover.LOCAL_RANKS)
def test_only_local_rank_0_speaks(name):
    assert run("bad", "true", env={name: "1"}).stderr == b""
    assert run("bad", "true", env={name: "0"}).stderr != b""


def test_the_number_of_the_node_silences_nobody():
    assert lines(run("good", "true", env={"RANK": "3", "NODE_RANK": "3"}))[-1] == PASS


def test_torchruns_rank_wins_over_the_schedulers():
    assert run("good", "true", env={"LOCAL_RANK": "1", "SLURM_LOCALID": "0"}).stderr == b""


def test_what_the_checks_wrote_is_not_lost():
    assert run("writes", "echo", "started").stdout == b"a report\nstarted\n"


def test_a_log_shows_no_secrets():
    def shown(text):
        return launch.shortened(text.split())

    assert shown("python train.py --key abc") == "python train.py ..."
    assert shown("env TOKEN=abc python x y") == "env TOKEN=... python x ..."
    assert shown("torchrun --nproc_per_node 8 t.py") == "torchrun ..."
    assert shown("true") == "true"
    assert len(shown("x" * 500)) == 80


def test_probes_leave_time_for_judging():
    assert launch.probing_seconds(30) == 28
    assert launch.probing_seconds(1) == 0.9


# ---- a standard error that cannot be written to


def full_pipe():
    read, write = os.pipe()
    os.set_blocking(write, False)
    try:
        while True:
            os.write(write, b"x" * 4096)
    except BlockingIOError:
        pass
    return read, write


@pytest.mark.timed
@pytest.mark.parametrize("blocking", [True, False])
def test_a_full_pipe_delays_but_does_not_stop(blocking):
    read, write = full_pipe()
    os.set_blocking(write, blocking)
    started = time.monotonic()
    done = run("many_lines", "echo", "started", stderr=write)
    assert time.monotonic() - started < 4.0
    assert (done.returncode, done.stdout) == (0, b"started\n")
    os.close(read)
    os.close(write)


def test_a_reader_that_is_gone_does_not_stop():
    read, write = os.pipe()
    os.close(read)
    done = run("many_lines", "echo", "started", stderr=write)
    os.close(write)
    assert (done.returncode, done.stdout) == (0, b"started\n")


def test_a_slow_reader_gets_every_line():
    words = front("many_lines", "true")
    process = subprocess.Popen(words, stderr=subprocess.PIPE, env=environment())
    time.sleep(0.5)
    written = process.communicate(timeout=30)[1].splitlines()
    assert written[-1] == PASS.encode()
    assert len(written) == 3002


# ---- a command that cannot be run


def script(path, text, mode=0o755):
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def refused(*command, **keywords):
    done = run("good", *command, **keywords)
    assert lines(done)[-2] == PASS
    return done.returncode, lines(done)[-1]


@pytest.mark.parametrize("name", ["no-such-command", "/no/such/command", "/etc/passwd/x", ""])
def test_not_found_is_127(name):
    assert refused(name) == (127, f"preflight: cannot start {name}: not found")


def test_not_executable_is_126(tmp_path):
    path = script(tmp_path / "plain", "#!/bin/sh\n", mode=0o644)
    code, line = refused(path)
    assert code == 126
    assert line.startswith(f"preflight: cannot start {path}: it is not executable")
    assert refused(str(tmp_path)) == (126, f"preflight: cannot start {tmp_path}: it is a directory")


def test_a_script_without_its_first_line_is_126_with_a_hint(tmp_path):
    code, line = refused(script(tmp_path / "bare", "echo hello\n"))
    assert code == 126
    assert "without a #! line" in line


def test_a_missing_interpreter_is_126_and_named_as_such(tmp_path):
    code, line = refused(script(tmp_path / "lost", "#!/no/such/interpreter\n"))
    assert code == 126
    assert "interpreter" in line


def test_another_processors_program_is_126(tmp_path):
    program = bytearray(Path(sys.executable).resolve().read_bytes()[:64])
    program[18:20] = b"\xfe\xca"  # e_machine
    (tmp_path / "alien").write_bytes(bytes(program))
    (tmp_path / "alien").chmod(stat.S_IRWXU)
    code, line = refused(str(tmp_path / "alien"))
    assert code == 126
    assert "another kind of processor" in line


def test_the_search_goes_on_as_execvp_does(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    script(tmp_path / "a" / "tool", "#!/bin/sh\necho first\n", mode=0o644)
    path = {"PATH": f"{tmp_path}/a:{tmp_path}/b"}
    assert refused("tool", env=path)[0] == 126
    script(tmp_path / "b" / "tool", "#!/bin/sh\necho second\n")
    assert run("good", "tool", env=path).stdout == b"second\n"


def test_an_empty_entry_of_path_is_the_working_directory(tmp_path):
    script(tmp_path / "tool", "#!/bin/sh\necho here\n")
    assert run("good", "tool", env={"PATH": ":/bin"}, cwd=str(tmp_path)).stdout == b"here\n"


def test_without_path_the_usual_directories_are_searched():
    words = front("good", "true")
    assert subprocess.run(words, env={"LANG": "C"}, check=False).returncode == 0


def test_a_command_too_long_for_the_kernel_is_126():
    code, line = refused("true", env={"PATH": "/bin", "X": "y" * 100}, options={"stretch": 1})
    assert code == 126
    assert "Argument list too long" in line


def test_after_a_refusal_a_closed_log_still_ends_with_the_code():
    read, write = os.pipe()
    os.close(read)
    assert run("good", "no-such-command", stderr=write).returncode == 127
    os.close(write)
