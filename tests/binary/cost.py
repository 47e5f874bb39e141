"""What the whole analysis of a torch install costs: time beside `import torch`, private memory.

`python -m tests.binary.cost VENV [--cold]` prints it; tests/real holds it to the bars.
"""

import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

ANALYSIS = """
import json, sys, time
started = time.perf_counter()
from preflight.binary import elf, fatbin, loader, symbols, torch_preload, versions
from preflight.roots import Root
python, site = sys.argv[1:3]
root, check = Root(), symbols.Checker().check
process = loader.Process(root, {}, python, cwd="/", check=check)
process.start()
package = site + "/torch"
cuda = torch_preload.cuda_version(root, package)
imported = torch_preload.import_torch(process, package, [site], cuda)
linked = time.perf_counter() - started
kernels = {}
said = []
for one in process.objects:
    if one.path.startswith(package) or "libnccl" in one.path:
        kernels[one.path] = fatbin.read(one.file.host_path)
    said += versions.read(one.file.host_path)
with elf.ElfFile(site + "/torch/lib/libc10.so") as file:
    abi = versions.cxx11_abi(file)
seconds = time.perf_counter() - started
with open("/proc/self/status") as status:
    memory = {line.split()[0]: int(line.split()[1]) for line in status if line.startswith("Rss")}
with open("/proc/self/smaps_rollup") as rollup:
    rows = dict(line.split(":") for line in rollup.read().splitlines()[1:])
private = sum(int(rows[name].split()[0]) for name in ("Private_Dirty", "Private_Clean"))
print(json.dumps({
    "seconds": seconds, "linked": linked, "error": imported.error, "objects": len(process.objects),
    "fatbins": sum(one.fatbins for one in kernels.values()),
    "versions": sorted((one.library, one.version) for one in said), "abi": abi,
    "anonymous_mib": memory["RssAnon:"] / 1024, "private_mib": private / 1024,
}))
"""


def forget(paths):
    """Drop files from the page cache, where nobody else maps them."""
    for path in paths:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(handle)


def measure(venv, cold=False):
    """The analysis, and the seconds of `import torch`, each in a process of its own."""
    site = glob.glob(os.path.join(venv, "lib/python3*/site-packages"))[0]
    python = os.path.join(venv, "bin/python")
    libraries = glob.glob(site + "/**/*.so*", recursive=True)
    answers, imports = [], []
    # Both with their bytecode kept, as installed packages have it.
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    folder = tempfile.mkdtemp()
    env["PYTHONPYCACHEPREFIX"] = folder
    for words in ([sys.executable, "-c", ANALYSIS, python, site], [python, "-c", "import torch"]):
        subprocess.run(words, env=env, check=True, stdout=subprocess.DEVNULL)
    for _ in range(1 if cold else 3):
        if cold:
            forget(libraries)
        words = [sys.executable, "-c", ANALYSIS, python, site]
        done = subprocess.run(words, env=env, stdout=subprocess.PIPE, check=True)
        answers.append(json.loads(done.stdout.decode()))
        if cold:
            forget(libraries)
        started = time.perf_counter()
        subprocess.run([python, "-c", "import torch"], env=env, check=True)
        imports.append(time.perf_counter() - started)
    shutil.rmtree(folder)
    best = min(answers, key=lambda one: one["seconds"])
    return dict(best, import_torch=min(imports))


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], "--cold" in sys.argv), indent=1))
