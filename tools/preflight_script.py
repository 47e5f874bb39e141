#!python
"""The command, as pip installs it: the job's PYTHONPATH goes last before anything is imported.

An entry point would import `preflight` from there: many a training repository has one of its own.
"""

import gc
import os
import sys

# What is imported here stays to the end, and that is near: to look through it again and again for
# garbage would be a twentieth of the time that a job waits.
gc.set_threshold(100_000)

given = os.environ.get("PYTHONPATH")
if given and not sys.flags.ignore_environment:
    try:
        foreign = {os.path.abspath(one) for one in given.split(os.pathsep)}
        sys.path.sort(key=lambda one: one in foreign)
    except OSError:  # a relative one, and the working directory is gone
        pass

from preflight.__main__ import main  # noqa: E402

sys.exit(main())
