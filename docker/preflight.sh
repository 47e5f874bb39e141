#!/bin/sh
# Sets up /opt/preflight around the packages that lie there: preflight.sh [PYTHON]
#
# The commands start Python with -I: the job's PYTHONPATH, PYTHONHOME and user site are for the
# job's Python, and must not reach the one that checks it.
set -eu
home=/opt/preflight
python=${1:-python3}

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 8))' || {
    echo "preflight needs Python 3.8 or later; $python is older or missing (--build-arg PYTHON=...)" >&2
    exit 1
}
"$python" -m venv --without-pip "$home"
"$home/bin/python" -I - <<'PYTHON'
import sysconfig
with open(sysconfig.get_path("purelib") + "/preflight.pth", "w") as stream:
    stream.write("/opt/preflight/packages\n")
PYTHON
# Compiled now: at start the user of the job may not write here.
"$home/bin/python" -I -m compileall -q "$home/packages"

for name in preflight pai-preflight; do
    cat >"$home/bin/$name" <<'PYTHON'
#!/opt/preflight/bin/python -I
import sys

from preflight.__main__ import main

sys.exit(main())
PYTHON
    chmod 755 "$home/bin/$name"
    # Another package's command of the same name is left alone; use the full path then.
    [ -e "/usr/local/bin/$name" ] || ln -s "$home/bin/$name" "/usr/local/bin/$name"
done
"$home/bin/python" -I -c "import preflight.__main__"
