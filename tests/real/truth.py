"""What a real PyTorch says of the driver and the GPUs it finds. No verdicts here."""

import json
import os
import subprocess
from typing import Any, Dict, Mapping, Optional

#: The questions, asked in the order in which a job would meet the answers.
QUESTIONS = r"""
import json, os, sys, warnings

caught = []
warnings.simplefilter("always")
warnings.showwarning = lambda message, *rest: caught.append(str(message))
answer = {"import_error": None, "error": None, "capabilities": [], "names": []}

def tell():
    answer["warnings"] = caught
    os.write(int(sys.argv[1]), json.dumps(answer).encode())
    os._exit(0)

try:
    import torch
except BaseException as error:
    answer["import_error"] = answer["error"] = f"{type(error).__name__}: {error}"
    tell()
answer["version"] = torch.__version__
answer["cuda"] = torch.version.cuda
answer["available"] = torch.cuda.is_available()
answer["device_count"] = torch.cuda.device_count()
# Not torch.cuda.get_arch_list(), which is empty where CUDA is not available.
flags = getattr(torch._C, "_cuda_getArchFlags", lambda: None)()
answer["arch_list"] = flags.split() if flags else []
try:
    torch.cuda.init()
    for device in range(torch._C._cuda_getDeviceCount()):
        answer["capabilities"].append("%d.%d" % torch.cuda.get_device_capability(device))
        answer["names"].append(torch.cuda.get_device_name(device))
except BaseException as error:
    answer["error"] = f"{type(error).__name__}: {error}"
tell()
"""


def ask_torch(
    python: str,
    env_overrides: Optional[Mapping[str, Optional[str]]] = None,
    timeout: float = 120,
) -> Dict[str, Any]:
    """What the torch of the interpreter `python` says, asked in a child process.

    `env_overrides` go over our environment; None takes a variable away. With LD_PRELOAD on the
    library of `fakes.build_runtime`, torch also gets to look at the stand-in's devices.

    The answer has "version", "cuda", "available", "device_count", "capabilities", "names",
    "arch_list", "warnings" and "error": the text of the exception that torch.cuda.init() raised,
    or None. When the import failed, "import_error" has that text too and most others are
    missing. A child that ended otherwise gives "died" (its exit status, or "timeout") and its
    "output".
    """
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    for name, value in (env_overrides or {}).items():
        if value is None:
            environment.pop(name, None)
        else:
            environment[name] = value
    read, write = os.pipe()
    child = subprocess.Popen(
        [python, "-c", QUESTIONS, str(write)],
        env=environment,
        pass_fds=[write],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    os.close(write)
    try:
        output, _ = child.communicate(timeout=timeout)
        died: Any = child.returncode
    except subprocess.TimeoutExpired:
        child.kill()
        output, _ = child.communicate()
        died = "timeout"
    with os.fdopen(read, "rb") as pipe:
        text = pipe.read()
    if not text:
        return {"died": died, "output": output.decode(errors="replace")}
    answer: Dict[str, Any] = json.loads(text.decode())
    return answer
