"""The deep-learning frameworks of a Python environment, read from the files they install.

torch, TensorFlow, JAX and Paddle each write down what they were built for; package metadata is
the second witness. Generated modules are parsed, never executed.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import replace
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Tuple

from ..roots import Root
from ..snapshot import Fact, Framework, PythonEnv, absent, known, merge, unknown
from .distributions import Distribution, distributions, normalize

#: Generated modules are a few hundred bytes; no more than this is parsed.
MODULE_LIMIT = 32 << 10
HEADER_LIMIT = 256 << 10
#: A version, a commit: nothing longer is one.
TEXT_LIMIT = 200

_INSTALLERS = {"pip", "uv", "poetry", "pdm", "pipenv", "rye", "hatch", "installer", "pixi-uv"}
_NOT_TOLD = "no header or package metadata tells it; the binaries would"


def read_frameworks(
    root: Root, python: PythonEnv, env: Mapping[str, str], arch: str
) -> Tuple[Framework, ...]:
    """The frameworks on the interpreter's path: torch, tensorflow, jax, paddle where installed.

    `env` is the job's environment (NGC images name themselves there); `arch` the machine, as
    `uname -m` says it. The kernels inside are not looked at: `arch_list` stays unknown.
    """
    look = _Look(root, python, env, arch)
    found = (_torch(look), _tensorflow(look), _jax(look), _paddle(look))
    return tuple(one for one in found if one is not None)


class _Look:
    """One look at one environment."""

    def __init__(self, root: Root, python: PythonEnv, env: Mapping[str, str], arch: str) -> None:
        self.root = root
        self.env = env
        self.arch = arch
        self.path = python.path.get(())
        self.prefix = python.prefix.get("")
        self.conda = python.packages_conda
        self._dists: Optional[Dict[str, List[Distribution]]] = None

    def everything(self) -> Dict[str, List[Distribution]]:
        """{normalised name: distributions}, in the order in which the interpreter sees them."""
        if self._dists is None:
            self._dists = {}
            for entry in self.path:
                for one in _listed(self.root, entry):
                    self._dists.setdefault(normalize(one.name), []).append(one)
        return self._dists

    def dist(self, name: str) -> Optional[Distribution]:
        """The distribution called `name` that the interpreter would find."""
        return next(iter(self.everything().get(name, ())), None)

    def first_dist(self, names: Iterable[str]) -> Optional[Distribution]:
        """The first of `names` that is installed."""
        return next(filter(None, map(self.dist, names)), None)

    def package(self, name: str, *files: str) -> str:
        """The directory that `import name` would take: the first with __init__.py or `files`."""
        for entry in self.path:
            folder = posixpath.join(entry, name)
            for file in ("__init__.py",) + files:
                if self.root.is_file(posixpath.join(folder, file)):
                    return folder
        return self._linked(name) if self.dist(name) else ""

    def _linked(self, name: str) -> str:
        """Where an editable install's finder, asked after sys.path, says that `name` lies."""
        for entry in self.path:
            for file in self.root.names(entry):
                if file.startswith("__editable__") and file.endswith("_finder.py"):
                    mapping = _module(self.root, posixpath.join(entry, file)).values.get("MAPPING")
                    folder = mapping.get(name) if isinstance(mapping, dict) else None
                    if isinstance(folder, str) and self.root.is_dir(folder):
                        return folder
        return ""

    def conda_version(self, *names: str) -> Fact[str]:
        """The version of the first of `names` that conda installed."""
        for name in names:
            if name in self.conda.get({}):
                return known(self.conda.get({})[name], f"{self.conda.source}/{name}-*.json")
        return absent(self.conda.source)


def _listed(root: Root, entry: str) -> List[Distribution]:
    try:
        return distributions(root, [entry])
    except OSError:
        return []


# -- modules as data ----------------------------------------------------------------------


class _Module(NamedTuple):
    """The module-level names of a generated module, or in `problem` why they are not known."""

    path: str
    values: Mapping[str, Any]
    problem: str = ""

    def text(self, *names: str) -> Fact[str]:
        """The first of `names` that is there; None, False and empty texts are absent."""
        if self.problem:
            return unknown(self.problem, self.path)
        for name in names:
            if name in self.values:
                return self._fact(name, self.values[name])
        return absent(self.path)

    def _fact(self, name: str, value: Any) -> Fact[str]:
        if value is None or value is False or value in _NOTHING:
            return absent(self.path)
        if isinstance(value, str) and value.isprintable() and len(value) <= TEXT_LIMIT:
            return known(value, self.path)
        return unknown(f"{name} is no plain text", self.path)


_NOTHING = ("", "False", "None", "Unknown", "unknown")
_NOT_PLAIN = object()


def _module(root: Root, path: str) -> _Module:
    """The module at `path` as data; a later assignment of a name wins, as it would running."""
    try:
        return _Module(path, _assigned(root.text(path, MODULE_LIMIT).lstrip("\ufeff")))
    except OSError as error:
        return _Module(path, {}, f"cannot be read: {error.strerror}")
    except SyntaxError as error:
        return _Module(path, {}, f"cannot be parsed: line {error.lineno}: {error.msg}")
    except (ValueError, RecursionError, MemoryError) as error:
        return _Module(path, {}, f"cannot be parsed: {type(error).__name__}")


def _assigned(source: str) -> Dict[str, Any]:
    """{name: plain value} of the module-level assignments in `source`."""
    import ast
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = ast.parse(source)
    values: Dict[str, Any] = {}
    for node in tree.body:
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            value = _plain(node.value)
            values.update((one.id, value) for one in targets if isinstance(one, ast.Name))
    return values


def _plain(node: Any) -> Any:
    """A constant, or a dict of constants written as a literal or as OrderedDict([...])."""
    import ast

    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Dict):
        return _pairs(zip(node.keys, node.values))
    if isinstance(node, ast.Call) and len(node.args) == 1:
        items = getattr(node.args[0], "elts", None)
        if items and all(len(getattr(one, "elts", ())) == 2 for one in items):
            return _pairs(tuple(one.elts) for one in items)
        if isinstance(node.args[0], ast.Dict):
            return _plain(node.args[0])
    return _NOT_PLAIN


def _pairs(items: Iterable[Tuple[Any, Any]]) -> Dict[str, Any]:
    import ast

    return {
        key.value: value.value if isinstance(value, ast.Constant) else _NOT_PLAIN
        for key, value in items
        if isinstance(key, ast.Constant) and isinstance(key.value, str)
    }


# -- torch --------------------------------------------------------------------------------


def _torch(look: _Look) -> Optional[Framework]:
    folder = look.package("torch", "version.py")
    if not folder:
        return None
    module = _module(look.root, posixpath.join(folder, "version.py"))
    dists = look.everything().get("torch", [])
    version = _torch_version(module, dists)
    alike = [one for one in dists if _public(one.version) == _public(version.get(""))]
    dist = next(iter(alike + dists), None)
    built = Framework(
        name=known("torch", folder),
        version=version,
        cuda=_stated(module, "cuda"),
        hip=module.text("hip"),
        git_version=module.text("git_version"),
        build=_build(look, folder, version, dist, _TORCH),
        index=_index(version),
        path=known(folder, folder),
    )
    return _with_libraries(look, built, posixpath.dirname(folder))


def _unsaid(module: _Module, name: str) -> Fact[str]:
    return unknown(f"no {name} is stated", module.path)


def _stated(module: _Module, name: str) -> Fact[str]:
    """The text of `name`, which is unknown rather than absent where the module lacks it."""
    return module.text(name) if module.problem or name in module.values else _unsaid(module, name)


def _torch_version(module: _Module, dists: List[Distribution]) -> Fact[str]:
    """`__version__`; metadata, which may lack the local part, differs where the rest does.

    The first metadata on the path counts, and all that lies beside the package.
    """
    version = _stated(module, "__version__")
    if not version.known:
        return version
    site = posixpath.dirname(posixpath.dirname(module.path))
    for number, dist in enumerate(dists):
        near = number == 0 or posixpath.dirname(dist.where) == site
        if near and _public(dist.version) != _public(version.get("")):
            version = merge(version, known(dist.version, dist.where))
    return version


def _public(version: str) -> str:
    return version.partition("+")[0]


def _index(version: Fact[str]) -> Fact[str]:
    """The package index that a local part such as +cu130 stands for."""
    if not version.known:
        return unknown(version.unknown, version.source)
    local = version.get("").partition("+")[2]
    found = re.match(r"cu\d+|cpu|xpu|rocm[\d.]+", local)
    return known(found.group().rstrip("."), version.source) if found else absent(version.source)


def _with_libraries(look: _Look, built: Framework, site: str) -> Framework:
    """`built` with the NCCL and cuDNN that lie beside it; absent in a build without CUDA."""
    if built.cuda.absent:
        return replace(built, nccl=absent(built.cuda.source), cudnn=absent(built.cuda.source))
    return replace(
        built,
        nccl=_library(look, built, _headers(look, built, site, _NCCL), _NCCL),
        cudnn=_library(look, built, _headers(look, built, site, _CUDNN), _CUDNN),
    )


class _Part(NamedTuple):
    """A library that a framework brings: where its header lies, and who packages it."""

    name: str
    headers: Tuple[str, ...]


_NCCL = _Part("nccl", ("nccl.h",))
_CUDNN = _Part("cudnn", ("cudnn_version.h", "cudnn_version_v9.h", "cudnn_version_v8.h"))


def _headers(look: _Look, built: Framework, site: str, part: _Part) -> List[str]:
    """Headers that would tell the version: the wheels', in vendors' images also the system's."""
    wheels = [posixpath.join(site, "nvidia", part.name, "include", part.headers[0])]
    folders = ["/usr/include", f"/usr/include/{look.arch or 'x86_64'}-linux-gnu"]
    system = [posixpath.join(one, name) for one in folders for name in part.headers]
    build = built.build.get("")
    return system + wheels if build == "ngc" else wheels + system * (build == "vendor")


def _library(look: _Look, built: Framework, headers: Iterable[str], part: _Part) -> Fact[str]:
    found: Fact[str] = unknown(_NOT_TOLD, built.path.get(""))
    for path in headers:
        version = _header_version(look.root, path, part.name)
        if version:
            found = known(version, path)
            break
    if built.build.get("") == "conda":
        packaged = look.conda_version(part.name)
        return merge(found, packaged) if packaged.known else found
    for dist in _packaged(look, part.name):
        if not dist.version.startswith(found.get("?") + "."):
            found = merge(found, known(dist.version, dist.where))
    return found


def _packaged(look: _Look, name: str) -> List[Distribution]:
    """The nvidia-NAME-cuNN wheels, newest CUDA first; two of them overwrite each other."""
    pattern = re.compile(rf"nvidia-{name}-cu(\d+)$")
    names = [one for one in look.everything() if pattern.match(one)]
    names.sort(key=lambda one: int(one.rpartition("-cu")[2][:4]), reverse=True)
    return [look.everything()[one][0] for one in names]


def _header_version(root: Root, path: str, name: str) -> str:
    try:
        text = root.head(path, HEADER_LIMIT).decode("utf-8", "replace")
    except OSError:
        return ""
    pattern = r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+\(?(\d{1,9})\b"
    defined = dict(re.findall(pattern, text, re.M))
    names = [f"{name.upper()}_{part}" for part in ("MAJOR", "MINOR", _PATCH[name])]
    if all(one in defined for one in names):
        return ".".join(str(int(defined[one])) for one in names)
    return _nccl_version(int(defined.get("NCCL_VERSION_CODE", 0))) if name == "nccl" else ""


_PATCH = {"nccl": "PATCH", "cudnn": "PATCHLEVEL"}


def _nccl_version(code: int) -> str:
    """2708 is 2.7.8; from 2.9 on 20903 is 2.9.3."""
    major, rest = divmod(code, 10000 if code >= 10000 else 1000)
    return f"{major}.{rest // 100}.{rest % 100}" if code else ""


# -- where a build comes from -------------------------------------------------------------


class _Origin(NamedTuple):
    """How a framework is called by those who package it."""

    conda: Tuple[str, ...]
    ngc_local: str  # NVIDIA's mark in the local part; "+nv..." of torch is another vendor's
    ngc_variables: Tuple[str, ...] = ()


_TORCH = _Origin(
    ("pytorch", "libtorch", "pytorch-gpu", "pytorch-cpu"),
    r"\.nv\d",
    ("NVIDIA_PYTORCH_VERSION", "NVIDIA_BUILD_ID"),
)
_TENSORFLOW = _Origin(("tensorflow", "tensorflow-base", "tensorflow-gpu"), r"(^|\.)nv\d")
_JAX = _Origin(("jax", "jaxlib"), r"(^|\.)nv\d")
_PADDLE = _Origin(("paddlepaddle", "paddlepaddle-gpu"), r"(^|\.)nv\d")


def _build(
    look: _Look, folder: str, version: Fact[str], dist: Optional[Distribution], origin: _Origin
) -> Fact[str]:
    """Who built it: ngc, source, conda, pip, vendor."""
    text = version.get(dist.version if dist else "")
    local = text.partition("+")[2]
    if re.search(origin.ngc_local, local):
        return known("ngc", version.source)
    named = [one for one in origin.ngc_variables if look.env.get(one)]
    if named and "a0+" in text:
        return known("ngc", "environment variable " + named[0])
    if re.match(r"git", local) or re.search(r"a0\+[0-9a-f]{7,40}$", text):
        return known("source", version.source)
    return _packager(look, folder, text, dist, origin)


def _packager(
    look: _Look, folder: str, version: str, dist: Optional[Distribution], origin: _Origin
) -> Fact[str]:
    installer, source = _installer(look.root, dist) if dist else ("", folder)
    if installer not in _INSTALLERS and folder.startswith(look.prefix + "/"):
        packaged = look.conda_version(*origin.conda)
        if packaged.known and _public(packaged.get("")) == _public(version):
            return known("conda", packaged.source)
    if dist and _editable(look.root, dist):
        return known("source", dist.where)
    usual = re.match(r"$|cu\d|cpu|xpu|rocm|cuda\d", version.partition("+")[2])
    return known("pip" if installer in _INSTALLERS and usual else "vendor", source)


def _installer(root: Root, dist: Distribution) -> Tuple[str, str]:
    """(first word of INSTALLER in small letters, its path)."""
    path = posixpath.join(dist.where, "INSTALLER")
    try:
        words = root.text(path, 4096).lower().split()
    except OSError:
        words = []
    return (words[0], path) if words else ("", dist.where)


def _editable(root: Root, dist: Distribution) -> bool:
    """Whether a source directory was linked in: by pip's record, or as setuptools does."""
    if dist.where.endswith(".egg-info"):
        return "-packages/" not in dist.where
    try:
        text = root.text(posixpath.join(dist.where, "direct_url.json"), 1 << 16)
    except OSError:
        return False
    return bool(re.search(r'"editable"\s*:\s*true', text))


# -- TensorFlow ---------------------------------------------------------------------------

_TENSORFLOW_DISTS = (
    "tensorflow", "tensorflow-gpu", "tensorflow-cpu", "tensorflow-intel", "tensorflow-rocm",
    "tensorflow-cpu-aws", "tensorflow-aarch64", "intel-tensorflow", "nvidia-tensorflow",
    "tf-nightly", "tf-nightly-gpu", "tf-nightly-cpu",
)  # fmt: skip


def _tensorflow(look: _Look) -> Optional[Framework]:
    dist = look.first_dist(_TENSORFLOW_DISTS)
    folder = look.package("tensorflow")
    info = _build_info(look.root, posixpath.dirname(folder)) if folder else None
    if info is None or (dist is None and info.problem):
        return None
    version = _dist_version(look, _TENSORFLOW_DISTS, folder)
    return Framework(
        name=known("tensorflow", folder),
        version=version,
        cuda=_if_built(info, "is_cuda_build", "cuda_version", "cuda_version_number"),
        hip=_if_built(info, "is_rocm_build", "rocm_version", "rocm_version_number"),
        cudnn=_if_built(info, "is_cuda_build", "cudnn_version", "cudnn_version_number"),
        nccl=_tensorflow_nccl(look, info),
        build=_build(look, folder, version, dist, _TENSORFLOW),
        index=_index(version),
        path=known(folder, folder),
    )


def _dist_version(look: _Look, names: Iterable[str], folder: str) -> Fact[str]:
    """The version by package metadata; further names of the same thing in `differs`."""
    version: Fact[str] = unknown("no package metadata", folder)
    for name in names:
        dist = look.dist(name)
        if dist:
            version = merge(version, known(dist.version, dist.where))
    return version


def _build_info(root: Root, site: str) -> _Module:
    """The values of build_info.py, be they module-level names or one dict called build_info."""
    inner = "python/platform/build_info.py"
    paths = [posixpath.join(site, one, inner) for one in ("tensorflow", "tensorflow_core")]
    path = next((one for one in paths if root.is_file(one)), paths[0])
    module = _module(root, path)
    inside = module.values.get("build_info")
    return module._replace(values=inside) if isinstance(inside, dict) else module


def _if_built(info: _Module, flag: str, *names: str) -> Fact[str]:
    """The first of `names` where `flag` is true; absent where the build is of another kind."""
    if info.problem:
        return unknown(info.problem, info.path)
    if info.values.get(flag) is False or (flag == "is_rocm_build" and flag not in info.values):
        return absent(info.path)
    stated = info.text(*names)
    return stated if stated.known else unknown(f"no {names[0]} is stated", info.path)


def _tensorflow_nccl(look: _Look, info: _Module) -> Fact[str]:
    if info.values.get("is_cuda_build") is False:
        return absent(info.path)
    found: Fact[str] = unknown(_NOT_TOLD, info.path)
    for dist in _packaged(look, "nccl"):
        found = merge(found, known(dist.version, dist.where))
    return found


# -- JAX ----------------------------------------------------------------------------------


def _jax(look: _Look) -> Optional[Framework]:
    dist = look.first_dist(["jax"])
    folder = look.package("jax", "version.py")
    if dist is None or not folder:
        return None
    version = known(dist.version, dist.where)
    jaxlib = look.dist("jaxlib")
    local = jaxlib.version.partition("+")[2] if jaxlib else ""
    cuda = _jax_cuda(look, jaxlib, local)
    built = Framework(
        name=known("jax", folder),
        version=version,
        cuda=cuda,
        hip=_jax_hip(look, folder),
        build=_build(look, folder, version, dist, _JAX),
        index=known(local, jaxlib.where) if jaxlib and local else absent(dist.where),
        path=known(folder, folder),
    )
    built = _with_libraries(look, built, posixpath.dirname(folder))
    return _jax_cudnn(built, local, jaxlib)


def _jax_cuda(look: _Look, jaxlib: Optional[Distribution], local: str) -> Fact[str]:
    """What the CUDA plugins were made for; in old releases jaxlib's own local part."""
    if jaxlib is None:
        return unknown("jaxlib is not installed", look.prefix)
    found: Fact[str] = absent(jaxlib.where)
    for major, dist in _plugins(look, "cuda"):
        found = merge(found, _jax_runtime(look, major, dist))
    stated = re.match(r"cuda(\d\d)(\d?)(?:\.|$)", local)
    if found.known or not stated:
        return found
    return known(".".join(filter(None, stated.groups())), jaxlib.where)


def _plugins(look: _Look, kind: str) -> List[Tuple[str, Distribution]]:
    """(number, distribution) of the jax-KINDnn-plugin and -pjrt packages, newest first."""
    found = []
    for name, dists in look.everything().items():
        matched = re.match(rf"jax-{kind}(\d{{1,3}})-(plugin|pjrt)$", name)
        if matched:
            found.append((matched.group(1), dists[0]))
    return sorted(found, key=lambda one: (-int(one[0]), one[1].name))


def _jax_runtime(look: _Look, major: str, plugin: Distribution) -> Fact[str]:
    """X.Y of the CUDA runtime wheel of that major, else the major."""
    for name in ("nvidia-cuda-runtime-cu" + major, "nvidia-cuda-runtime"):
        dist = look.dist(name)
        if dist and dist.version.split(".")[0] == major:
            return known(".".join(dist.version.split(".")[:2]), dist.where)
    return known(major, plugin.where)


def _jax_hip(look: _Look, folder: str) -> Fact[str]:
    for number, dist in _plugins(look, "rocm"):
        return known(number if len(number) == 1 else f"{number[:-1]}.{number[-1]}", dist.where)
    return absent(folder)


def _jax_cudnn(built: Framework, local: str, jaxlib: Optional[Distribution]) -> Framework:
    """`built` with cuDNN from a local part such as cuda11.cudnn86 where nothing else tells."""
    stated = re.search(r"cudnn(\d)(\d*)", local)
    if jaxlib is None or not stated or built.cudnn.known:
        return built
    return replace(built, cudnn=known(".".join(filter(None, stated.groups())), jaxlib.where))


# -- Paddle -------------------------------------------------------------------------------

_PADDLE_DISTS = ("paddlepaddle-gpu", "paddlepaddle", "paddlepaddle-rocm")


def _paddle(look: _Look) -> Optional[Framework]:
    dist = look.first_dist(_PADDLE_DISTS)
    folder = look.package("paddle")
    if dist is None or not folder:
        return None
    version = _dist_version(look, _PADDLE_DISTS, folder)
    places = [posixpath.join(folder, one) for one in ("version/__init__.py", "version.py")]
    module = _module(look.root, next(filter(look.root.is_file, places), places[0]))
    cuda = _paddle_cuda(module, dist)
    return Framework(
        name=known("paddle", folder),
        version=version,
        cuda=cuda,
        hip=unknown("not stated", dist.where) if "rocm" in dist.name else absent(dist.where),
        cudnn=absent(cuda.source) if cuda.absent else _stated(module, "cudnn_version"),
        nccl=absent(cuda.source) if cuda.absent else unknown(_NOT_TOLD, module.path),
        git_version=module.text("commit"),
        build=_build(look, folder, version, dist, _PADDLE),
        index=absent(dist.where),
        path=known(folder, folder),
    )


def _paddle_cuda(module: _Module, dist: Distribution) -> Fact[str]:
    """`cuda_version`; before that was written, the .post number, or the name without -gpu."""
    if module.problem or "cuda_version" in module.values:
        return module.text("cuda_version")
    if normalize(dist.name) == "paddlepaddle":
        return absent(dist.where)
    stated = re.search(r"\.post(\d{2,3})$", dist.version)
    if stated:
        number = stated.group(1)
        return known(f"{number[:-1]}.{number[-1]}", dist.where)
    return _unsaid(module, "cuda_version")
