"""Makes the samples again, with nvcc: `python make.py [NVCC]`. What was asked for is samples.json.

Small CUDA objects, one for each way to ask for GPU code; kept so that the tests need no nvcc.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent

#: A kernel that leaves a few bytes of code, and something to link it to.
KERNEL = "__global__ void NAME(int *p) { *p = 1; }\nvoid call_NAME(int *p) { NAME<<<1, 1>>>(p); }\n"
MANY = ["75", "80", "86", "89", "90", "100", "103", "110", "120", "121"]


def code(*names):
    """Options for each of sm_XX, compute_XX or lto_XX."""
    return [f"-gencode=arch=compute_{one.partition('_')[2]},code={one}" for one in names]


def sm(*numbers):
    return ["sm_" + one for one in numbers]


#: name: (what is asked for in each source file, other options)
OBJECTS = {
    "one": (sm("75"), []),
    "many": ([*sm(*MANY), "compute_121"], []),
    "exact": (sm("90a"), []),
    "exact-with-ptx": (["sm_90a", "compute_90a"], []),
    "family": (["sm_100f", "compute_100f"], []),
    # nvcc takes sm_100 or sm_100f, not both.
    "exact-of-100": (sm("100", "100a", "103"), []),
    "families-of-100": (sm("100a", "100f", "103f"), []),
    "exact-of-120": (sm("120", "120a", "121a"), []),
    "families-of-120": (sm("110f", "120f", "121f"), []),
    "ptx-only": (["compute_75"], []),
    "ptx-of-many": (["compute_80", "compute_90", "compute_90a", "compute_120f"], []),
    "compressed": (["sm_80", "sm_90a", "compute_90"], ["-Xfatbin", "-compress-all"]),
    "compressed-for-size": (["sm_80", "compute_80"], ["--compress-mode=size"]),
    "uncompressed": (["sm_80", "sm_100f", "compute_90a"], ["--no-compress"]),
    "compressed-for-speed": (["sm_80", "sm_120a"], ["--compress-mode=speed"]),
    "debug": (["sm_90", "compute_90"], ["-G"]),
    "lines": (["sm_86"], ["-lineinfo"]),
}


def table():
    """samples.json: for each file the options, and what is asked for."""
    rows = {}
    for name, (names, more) in OBJECTS.items():
        rows[f"{name}.elf"] = {"options": [*code(*names), *more], "fatbins": [names]}
    rows["short-form.elf"] = {"options": ["-arch=sm_86"], "fatbins": [["sm_86", "compute_86"]]}
    waiting = {"fatbins": [], "relocatable": ["sm_80", "sm_90"]}
    rows["relocatable.elf"] = {"options": [*code("sm_80", "sm_90"), "-rdc=true"], **waiting}
    lto = {"fatbins": [], "relocatable": ["lto_80"]}
    rows["for-linking.elf"] = {"options": [*code("lto_80"), "-rdc=true"], **lto}
    return rows


#: Linked from several objects: what each of them holds.
LINKED = {
    "two-objects.elf": [["sm_80", "sm_90"], ["sm_80", "compute_80"]],
    "archive.a": [["sm_75", "sm_90a"], ["compute_75"]],
}
DEVICE_LINKED = ("device-linked.elf", ["sm_80", "sm_90a"])


def main(nvcc: str = "nvcc") -> None:
    """Build all."""
    rows = table()
    with tempfile.TemporaryDirectory() as work:
        for name, row in rows.items():
            _compile(nvcc, Path(work), "k", row["options"], HERE / name)
        for name, groups in LINKED.items():
            objects = []
            for number, names in enumerate(groups):
                objects.append(Path(work) / f"{number}.o")
                _compile(nvcc, Path(work), f"k{number}", code(*names), objects[-1])
            kind = ["-lib"] if name.endswith(".a") else ["-shared", "-cudart", "none"]
            (HERE / name).unlink() if (HERE / name).exists() else None
            _run([nvcc, *kind, *map(str, objects), "-o", str(HERE / name)])
            rows[name] = {"options": [], "fatbins": groups}
        name, names = DEVICE_LINKED
        made, linked = Path(work) / "r.o", Path(work) / "d.o"
        _compile(nvcc, Path(work), "k", [*code(*names), "-rdc=true"], made)
        _run([nvcc, "-dlink", *code(*names), "-Xcompiler=-fPIC", str(made), "-o", str(linked)])
        _run(["ld", "-r", str(made), str(linked), "-o", str(HERE / name)])
        rows[name] = {"options": ["-dlink"], "fatbins": [names], "relocatable": names}
    (HERE / "samples.json").write_text(json.dumps(rows, indent=1, sort_keys=True) + "\n")


def _compile(nvcc, work, kernel, options, target):
    source = work / f"{kernel}.cu"
    source.write_text(KERNEL.replace("NAME", kernel))
    _run([nvcc, "-c", "-O1", "-Xcompiler=-fPIC", *options, str(source), "-o", str(target)])


def _run(words):
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main(*sys.argv[1:])
