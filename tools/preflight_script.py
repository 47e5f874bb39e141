#!python
"""The command, as pip installs it: the job's PYTHONPATH goes last before anything is imported.

An entry point would import `preflight` from there: many a training repository has one of its own.
"""

import os
import sys

given = os.environ.get("PYTHONPATH")
if given and not sys.flags.ignore_environment:
    try:
        foreign = {os.path.abspath(one) for one in given.split(os.pathsep)}
        sys.path.sort(key=lambda one: one in foreign)
    except OSError:  # a relative one, and the working directory is gone
        pass

from preflight.__main__ import main  # noqa: E402

sys.exit(main())
