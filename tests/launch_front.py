"""A `preflight exec` with a judge of the test's choice.

Usage: launch_front.py HOME JUDGE [OPTION=VALUE...] exec [...] -- CMD...
"""

import os
import signal
import sys
import time
import types
from functools import partial

sys.path.insert(0, sys.argv[1])

from preflight import launch  # noqa: E402
from preflight.__main__ import main  # noqa: E402

OPTIONS = {"timeout": float, "fail_closed": bool, "mode": str, "stretch": int}


def good():
    return launch.Judgement(0, (), "PASS")


def bad(code=78):
    lines = ("driver/too-old: first", "gpu/none: second\n line\x1b[31m 驱动")
    return launch.Judgement(code, lines, "FAIL driver/too-old; fix: newer driver")


def sick():
    return bad(75)


def isolated():
    from preflight import isolate

    answers = isolate.run({"one": isolate.Task(lambda: 1, 5), "two": isolate.Task(lambda: 2, 5)})
    assert {name: one.value for name, one in answers.items()} == {"one": 1, "two": 2}, answers
    return good()


def hangs_in_a_child(seconds=60):
    from preflight import isolate

    task = isolate.Task(lambda: time.sleep(60), seconds)
    isolate.run({"one": task, "two": task})
    return good()


def slow(seconds=60):
    print("judging", flush=True)
    return hangs_in_a_child(seconds)


def slowish():
    return slow(1.5)


def raises():
    raise KeyError("something")


def exits():
    sys.exit(3)


def recursion():
    return recursion()


def memory():
    raise MemoryError


def imports():
    import preflight.no_such_module  # noqa: F401


def nonsense():
    return "neither this nor that"


def hangs():
    while True:
        try:
            time.sleep(60)
        except Exception:  # noqa: BLE001 - as a careless check would
            pass


def swallows():
    try:
        time.sleep(60)
    except BaseException:  # noqa: BLE001 - as a very careless check would
        pass
    hangs()


def signalled_at_fork(number):
    """Get the signal when the child exists and nobody but the kernel has noted it yet."""
    fork = os.fork

    def fork_and_signal():
        pid = fork()
        if pid:
            os.write(1, str(pid).encode())
            os.kill(os.getpid(), number)
        return pid

    os.fork = fork_and_signal
    return hangs_in_a_child()


def writes():
    print("a report")
    return good()


def many_lines():
    return launch.Judgement(0, tuple("x" * 100 for _ in range(3000)), "PASS")


def run(argv):
    command = argv[argv.index("--") + 1 :]
    command += ["x" * 100_000] * (40 if options.pop("stretch", 0) else 0)
    return launch.become(command, judges[judge], **options)


judges = dict(globals())
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGALRM, signal.SIGTERM):
    judges[f"signalled_at_fork_{int(number)}"] = partial(signalled_at_fork, number)


judge = sys.argv[2]
start = sys.argv.index("exec")
pairs = (one.split("=") for one in sys.argv[3:start])
options = {name: OPTIONS[name](value) for name, value in pairs}
cli = types.ModuleType("preflight.cli")
if judge != "no_cli":
    cli.main = run
sys.modules["preflight.cli"] = cli
sys.exit(main(sys.argv[start:]))
