"""The questions one asks of `compat/`, the sourced driver / CUDA / GPU / framework tables.

Every answer carries the keys of the sources it rests on; :meth:`Matrix.references` turns keys
into titles and addresses. Nothing here looks at the machine.

The rules encoded (NVIDIA CUDA Compatibility guide, and the tables' own sources):

* backward: a libcuda runs every CUDA up to its own version;
* minor-version: within one CUDA major from 11 on, a newer toolkit runs on a driver at or above
  the major's floor, without compiling PTX newer than the driver's own PTX ISA;
* forward: a compat libcuda brings its own, newer CUDA to an older kernel driver;
* machine code runs on its own major and an equal or higher minor; ``a`` targets only on their
  own capability, ``f`` targets on their family; PTX compiles for any equal or newer capability.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import lru_cache
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from . import tables

Numbers = Tuple[int, ...]
Row = Mapping[str, Any]

NATIVE, MINOR, FORWARD, NO, UNDECIDED = (
    "native", "minor-version", "forward-compat", "no", "unknown",
)  # fmt: skip

#: From this CUDA major on there is minor-version compatibility.
FIRST_MINOR_COMPATIBLE = 11


#: Smaller numbers are no Linux driver's: a Windows file version (31.0.15.3623), a typing slip.
FIRST_BRANCH = 100


class Way(NamedTuple):
    """In which way a libcuda runs a CUDA: `kind`, the libcuda's own CUDA, and its sources.

    `oldest_driver` is the oldest driver that runs this CUDA without a compat library.
    """

    kind: str
    ceiling: str
    oldest_driver: str
    sources: Tuple[str, ...]

    @property
    def runs(self) -> bool:
        return self.kind in (NATIVE, MINOR, FORWARD)


class Kernels(NamedTuple):
    """What serves a GPU: `kind` is "sass", "ptx", "none" or "unknown"; `by` the target used."""

    kind: str
    by: str


@lru_cache(maxsize=4096)
def numbers(version: str) -> Numbers:
    """The leading dotted numbers of a version: "535.104.05" gives (535, 104, 5), "x" gives ()."""
    found: List[int] = []
    for part in version.strip().split("."):
        digits = ""
        for char in part:
            if not "0" <= char <= "9":
                break
            digits += char
        if not digits:
            break
        found.append(int(digits[:9]))
        if len(digits) != len(part):
            break
    return tuple(found)


def cuda_numbers(version: str) -> Optional[Tuple[int, int]]:
    """(major, minor) of a CUDA version: "12.4.131" gives (12, 4), "12" gives (12, 0)."""
    found = numbers(version)
    if not found:
        return None
    return found[0], found[1] if len(found) > 1 else 0


def cuda_of_tag(tag: str) -> Optional[str]:
    """The CUDA of a torch variant or local version: "cu121" gives "12.1"; None for "cpu"."""
    found = re.match(r"cu([0-9]{1,2})([0-9])(?![0-9])", tag)  # also cu117.with.pypi.cudnn
    return f"{found.group(1)}.{found.group(2)}" if found else None


#: How a reference says that its row is less sure than its source.
TRUSTS = {"secondary": " (a secondary source)", "derived": " (derived from it)"}


def cited(row: Row) -> Tuple[str, ...]:
    """The keys of a row's sources, with the row's trust behind a blank where it is not primary."""
    less = str(row.get("trust", ""))
    return tuple(f"{key} {less}" if less in TRUSTS else str(key) for key in row["source"])


def _title(source: Row, trust: str) -> str:
    overlay = f" (overlay {source['overlay']})" if "overlay" in source else ""
    return str(source["title"]) + TRUSTS.get(trust, "") + overlay


class Matrix:
    """The tables of `compat/`, as read by :func:`load`."""

    def __init__(self, source: Mapping[str, Any]) -> None:
        self._tables = source
        self._date = ""
        self._branches: List[Row] = sorted(
            source["drivers"]["branch"], key=lambda row: int(row["branch"])
        )
        self._branch_numbers = [int(row["branch"]) for row in self._branches]
        self._toolkits: Dict[Tuple[int, int], Row] = {}
        for row in source["toolkits"]["toolkit"]:
            key = cuda_numbers(row["cuda"])
            if key:
                self._toolkits[key] = row
        self._gpus: Optional[Dict[str, Row]] = None

    @property
    def date(self) -> str:
        """The day the newest of its own sources was read (ISO date); overlays do not count."""
        if not self._date:
            rows = self._tables["sources"]["source"].values()
            own = [row for row in rows if "overlay" not in row]
            self._date = max(str(row["read"]) for row in own or rows)
        return self._date

    def references(self, keys: Iterable[str]) -> List[Tuple[str, str]]:
        """(title, address) of each source key as :func:`cited` gives it; the address may be empty.

        A source that is cited twice is named once, with its lesser trust.
        """
        sources = self._tables["sources"]["source"]
        named: Dict[str, str] = {}
        for one in keys:
            key, _, trust = one.partition(" ")
            named[key] = named.get(key) or trust
        return [(_title(sources[k], t), sources[k].get("url", "")) for k, t in named.items()]

    @property
    def replaced(self) -> Tuple[str, ...]:
        """What overlays say otherwise than the built-in tables, a phrase each."""
        said = getattr(self._tables, "replaced", ())
        return tuple(f"{one.table} {one.key}, replaced by {one.overlay}" for one in said)

    # -- drivers and CUDA -----------------------------------------------------------------

    def branch(self, driver: str) -> Optional[Row]:
        """The row of the branch that a driver version belongs to.

        For a version between two known branches the older one's row; for one newer than the
        matrix knows, the newest row (see :meth:`newer_than_known`); None when unparsable or older.
        """
        found = numbers(driver)
        at = bisect_right(self._branch_numbers, found[0]) if found else 0
        return self._branches[at - 1] if at else None

    def older_than_known(self, driver: str) -> bool:
        """Whether a driver's branch is older than every branch in the matrix."""
        found = numbers(driver)
        return bool(found) and FIRST_BRANCH <= found[0] < self._branch_numbers[0]

    def newer_than_known(self, driver: str) -> bool:
        """Whether a driver's branch is newer than every branch in the matrix."""
        found = numbers(driver)
        return bool(found) and found[0] > int(self._branches[-1]["branch"])

    def newest_cuda(self, driver: str) -> Optional[str]:
        """The highest CUDA that a driver's own libcuda offers ("12.2" for 535.*)."""
        row = self.branch(driver)
        return str(row["cuda"]) if row else None

    def branch_for_cuda(self, cuda: str) -> Optional[Row]:
        """The oldest branch whose own libcuda offers at least this CUDA."""
        need = cuda_numbers(cuda)
        for row in self._branches:
            offered = cuda_numbers(row["cuda"])
            if need and offered and offered >= need:
                return row
        return None

    def toolkit(self, cuda: str) -> Optional[Row]:
        """The row of a CUDA toolkit by major.minor."""
        key = cuda_numbers(cuda)
        return self._toolkits.get(key) if key else None

    def oldest_driver(self, cuda: str) -> Optional[str]:
        """The oldest Linux driver that runs this CUDA at all without a compat library.

        From CUDA 11 on, a minor release the matrix does not know has its major's floor.
        """
        row = self.toolkit(cuda) or self._floor_row(cuda)
        return str(row["minimum"]) if row else None

    def _floor_row(self, cuda: str) -> Optional[Row]:
        need = cuda_numbers(cuda)
        if not need or need[0] < FIRST_MINOR_COMPATIBLE:
            return None
        known = [key for key in self._toolkits if key[0] == need[0]]
        return self._toolkits[max(known)] if known else None

    def way(
        self,
        cuda: str,
        *,
        driver: Optional[str] = None,
        ceiling: Optional[str] = None,
        compat: bool = False,
    ) -> Way:
        """In which way a libcuda runs `cuda`.

        `driver` is the kernel driver, `ceiling` the CUDA of the libcuda that would be loaded
        (from the driver's branch when not given), `compat` whether that is a compat libcuda.
        """
        need = cuda_numbers(cuda)
        own = self.newest_cuda(driver) if driver else None
        top = ceiling or own
        offered = cuda_numbers(top) if top else None
        oldest = self.oldest_driver(cuda) or ""
        sources = self._way_sources(cuda, driver)
        if need and not top and driver and self.older_than_known(driver) and oldest:
            return Way(NO, "", oldest, sources)
        if not need or not offered or not top:
            return Way(UNDECIDED, top or "", oldest, sources)
        certain = ceiling is not None or not self.newer_than_known(driver or "")
        native = cuda_numbers(own) if own else None
        lifted = compat or (native is not None and offered > native)
        if offered >= need:
            kind = FORWARD if lifted and native is not None and native < need else NATIVE
            return Way(kind, top, oldest, sources)
        if not oldest:
            return Way(UNDECIDED, top, oldest, sources)
        if need[0] == offered[0] and need[0] >= FIRST_MINOR_COMPATIBLE:
            return Way(
                self._minor(offered, oldest, None if lifted else driver), top, oldest, sources
            )
        return Way(NO if certain else UNDECIDED, top, oldest, sources)

    def _minor(self, offered: Tuple[int, int], oldest: str, driver: Optional[str]) -> str:
        """Minor-version compatibility needs the major's floor, not only its CUDA number."""
        if driver and numbers(driver):
            given = numbers(driver)  # "580" alone stands for any driver of that branch
            return MINOR if given >= numbers(oldest)[: len(given)] else NO
        first = self._toolkits.get((offered[0], 0))
        floor_is_higher = first is not None and numbers(oldest) > numbers(str(first["minimum"]))
        return UNDECIDED if floor_is_higher and offered[1] == 0 else MINOR

    def _way_sources(self, cuda: str, driver: Optional[str]) -> Tuple[str, ...]:
        keys: List[str] = []
        toolkit = self.toolkit(cuda) or self._floor_row(cuda)
        for row in (toolkit, self.branch(driver) if driver else None):
            keys.extend(cited(row)[:1] if row else [])  # the first one is the nearest
        return tuple(keys)

    def ptx_isa(self, cuda: str) -> Optional[Numbers]:
        """The PTX ISA of a CUDA; for one newer than the matrix knows, at least the newest known."""
        row = self.toolkit(cuda)
        if row is None:
            need = cuda_numbers(cuda)
            older = [key for key in self._toolkits if need and key <= need]
            row = self._toolkits[max(older)] if older else None
        return numbers(str(row["ptx"])) if row and "ptx" in row else None

    def compiles_ptx(self, ptx_of: str, ceiling: str) -> Optional[bool]:
        """Whether a libcuda of CUDA `ceiling` can compile PTX made by CUDA `ptx_of`."""
        need, offered = cuda_numbers(ptx_of), cuda_numbers(ceiling)
        if not need or not offered:
            return None
        if offered >= need:
            return True
        made, known = self.ptx_isa(ptx_of), self.ptx_isa(ceiling)
        return made <= known if made and known else None

    def cudas(self) -> List[str]:
        """Every CUDA of the toolkit table, oldest first."""
        return [str(self._toolkits[key]["cuda"]) for key in sorted(self._toolkits)]

    # -- GPUs -----------------------------------------------------------------------------

    def gpu(self, name: str) -> Optional[Row]:
        """The row of a GPU product by any of its names ("Tesla V100-SXM2-32GB")."""
        if self._gpus is None:
            self._gpus = {}
            for row in self._tables["gpus"]["gpu"]:
                for one in [row["name"], *row.get("names", [])]:
                    self._gpus.setdefault(_plain(one), row)
        plain = _plain(name)
        return self._gpus.get(plain) or self._gpus.get(plain.replace(" laptop gpu", ""))

    def gpu_on_bus(self, device: str) -> Optional[Row]:
        """The row of a GPU by its PCI vendor and device id ("10de:20b2")."""
        for row in self._tables["gpus"]["gpu"]:
            if device in row.get("pci", []):
                found: Row = row
                return found
        return None

    def find_gpu(self, text: str) -> Optional[Row]:
        """The row of a product by name or part of it ("A100", "rtx 4090").

        A part that fits products of different compute capability names none of them.
        """
        row = self.gpu(text)
        if row is not None:
            return row
        words = set(_plain(text).replace("-", " ").split())
        generations = self._tables["architectures"]["architecture"]
        if words <= {str(row["name"]).lower() for row in generations}:
            return None  # a generation names no product
        fits = [
            one
            for one in self._tables["gpus"]["gpu"]
            for name in [one["name"], *one.get("names", [])]
            if words and words <= set(_plain(name).replace("-", " ").split())
        ]
        return fits[0] if len({one["capability"] for one in fits}) == 1 else None

    def gpus_like(self, text: str) -> List[str]:
        """Product names that share a word with `text`."""
        words = set(_plain(text).replace("-", " ").split())
        rows = self._tables["gpus"]["gpu"]
        return [r["name"] for r in rows if words & set(_plain(r["name"]).replace("-", " ").split())]

    def capability(self, name: str) -> Optional[str]:
        """The compute capability of a GPU product by name ("8.0"), None when not in the table."""
        row = self.gpu(name)
        return str(row["capability"]) if row else None

    def forward_eligible(self, name: str) -> str:
        """Whether forward compatibility supports a GPU product: "yes", "no", "some", "unknown"."""
        row = self.gpu(name)
        if row and "forward" in row:
            return str(row["forward"])
        words = _plain(name).split()
        return "no" if "geforce" in words or "titan" in words else "unknown"

    def class_sources(self, eligible: str) -> Tuple[str, ...]:
        """Sources of what forward compatibility says about GPU classes."""
        keys: List[str] = []
        for row in self._tables["forward"].get("class", []):
            if row.get("eligible") == eligible:
                keys.extend(cited(row))
        return tuple(keys)

    def architecture(self, capability: str) -> Optional[Row]:
        """The row of the architecture with a compute capability ("7.0" gives Volta)."""
        for row in self._tables["architectures"]["architecture"]:
            if capability in row["capabilities"]:
                found: Row = row
                return found
        return None

    def newer_than_any_gpu(self, capability: str) -> bool:
        """Whether a compute capability is higher than every one in the matrix."""
        rows = self._tables["architectures"]["architecture"]
        known = max(numbers(one) for row in rows for one in row["capabilities"])
        return numbers(capability) > known

    def kernels(self, capability: str, targets: Sequence[str]) -> Kernels:
        """Which of the build's `targets` ("sm_80", "sm_90a", "compute_90") serves a GPU."""
        architecture = self.architecture(capability)
        jetson = bool(architecture and architecture.get("jetson"))
        code = [one for one in targets if one.startswith("sm_") and _serves(one, capability)]
        exact = "sm_" + capability.replace(".", "")
        if jetson and code and exact not in [one.rstrip("af") for one in code]:
            return Kernels("unknown", code[-1])
        if code:
            return Kernels("sass", exact if exact in code else code[-1])
        ptx = [one for one in targets if one.startswith("compute_") and _serves(one, capability)]
        return Kernels("ptx", ptx[-1]) if ptx else Kernels("none", "")

    def libraries_know(self, cuda: str, capability: str) -> Optional[bool]:
        """Whether CUDA's own libraries of this toolkit can hold machine code for a GPU."""
        row = self.toolkit(cuda)
        if not row or "targets" not in row:
            return None
        return self.kernels(capability, row["targets"]).kind == "sass"

    # -- forward compatibility --------------------------------------------------------------

    def compat_base(self, cuda: str, driver: str) -> Tuple[str, Tuple[str, ...]]:
        """("yes" | "no" | "unlisted", sources): may cuda-compat of `cuda` sit on this driver?

        No, too, on a branch that has this CUDA or a newer one of its own.
        """
        major = (numbers(driver) or (0,))[0]
        for row in self._tables["forward"]["package"]:
            if cuda_numbers(row["cuda"]) != cuda_numbers(cuda):
                continue
            sources = cited(row)
            if major in row.get("newer", []):
                return "no", sources
            for column in ("documented", "listed", "noted"):
                if major in row.get(column, []):
                    return "yes", sources
            return ("no" if major in row.get("excluded", []) else "unlisted"), sources
        return "unlisted", ()

    def compat_bases(self, cuda: str) -> List[int]:
        """The driver branches that cuda-compat of `cuda` may sit on, by any source that counts."""
        for row in self._tables["forward"]["package"]:
            if cuda_numbers(row["cuda"]) == cuda_numbers(cuda):
                named = {b for c in ("documented", "listed", "noted") for b in row.get(c, [])}
                return sorted(named - set(row.get("newer", [])))
        return []

    # -- torch ----------------------------------------------------------------------------

    def torch_builds(self, version: str = "", platform: str = "") -> List[Row]:
        """The public torch builds, by exact release ("2.8.0") and platform ("x86_64")."""
        return [
            row
            for row in self._tables["torch"]["build"]
            if (not version or version in row["versions"])
            and (not platform or row["platform"] == platform)
        ]

    def default_torch(self, version: str, platform: str) -> Optional[Row]:
        """The build that the default index gives for a release on a platform."""
        for row in self.torch_builds(version, platform):
            if version in row.get("default", []):
                return row
        return None

    def torch_build(self, version: str, variant: str, platform: str) -> Optional[Row]:
        """The build of a release and variant ("cu128") on a platform."""
        for row in self.torch_builds(version, platform):
            if row["variant"] == variant:
                return row
        return None

    def torch_options(self, version: str, variant: str) -> str:
        """What pip must be told for a build that is not the default; empty where no row says it.

        "--index-url URL", "--extra-index-url URL" or "-f URL".
        """
        rows = [r for r in self._tables["torch"].get("install", []) if version in r["versions"]]
        exact = [row for row in rows if variant in row.get("variants", [])]
        general = [row for row in rows if "variants" not in row]
        for row in exact + general:
            return str(row["options"]).replace("{variant}", variant)
        return ""

    def torch_releases(self) -> List[str]:
        """Every torch release of the table, oldest first."""
        versions = {one for row in self.torch_builds() for one in row["versions"]}
        return sorted(versions, key=numbers)

    def torch_detail(self, version: str, platform: str, variant: str) -> Row:
        """What else is known of a build (cudnn, nccl, layout, …); empty when nothing is.

        A row of exactly this variant goes before one for any.
        """
        fits = [
            row
            for row in self._tables["torch"].get("detail", [])
            if version in row["versions"] and platform in row["platforms"]
        ]
        exact = [row for row in fits if row.get("variant") == variant]
        general = [row for row in fits if "variant" not in row]
        found: Row = (exact + general + [{}])[0]
        return found

    def pins(self, version: str, platform: str) -> Tuple[str, ...]:
        """The GPU libraries and triton that the wheel of the default index requires."""
        for row in self._tables["pins"]["pins"]:
            if version in row["versions"] and platform in row["platforms"]:
                return tuple(row.get("pins", []))
        return ()

    def torches_of(self, package: str, version: str) -> List[str]:
        """The torch releases that a torchvision, torchaudio, … belongs to, oldest first."""
        rows = self._tables["companions"]["companion"]
        return [str(row["torch"]) for row in rows if version in row.get(package, [])]

    def accepts(self, package: str, version: str, torch: str) -> bool:
        """Whether a companion that pins no torch exactly takes this one (or any from its own)."""
        for row in self._tables["companions"].get("loose", []):
            if row["package"] == package and version in row["versions"]:
                fits = self.torches_of(package, version)
                least = str(row.get("torch", ">=" + (fits[0] if fits else "0")))
                return numbers(torch) >= numbers(least.lstrip(">="))
        return False

    def binds(self, package: str) -> str:
        """What an extension is tied to: "torch-version", "torch-abi" or "cuda-version"."""
        for row in self._tables["extensions"]["extension_package"]:
            if package and package in (row["package"], *row.get("also", [])):
                return str(row["binds"])
        return "torch-abi"

    def tensorflow(self, package: str, version: str) -> Optional[Row]:
        """The wheel of a TensorFlow release, by the package's name."""
        for row in self._tables["tensorflow"]["tensorflow"]:
            if row["package"] == package and version in row["versions"]:
                found: Row = row
                return found
        return None

    def jax(self, package: str, version: str) -> Optional[Row]:
        """The wheel of one of JAX's plugins."""
        for row in self._tables["jax"]["jax"]:
            if row["package"] == package and version in row["versions"]:
                found: Row = row
                return found
        return None

    def is_extension(self, package: str) -> bool:
        """Whether a package has compiled code that fits one torch, C++ ABI or CUDA only."""
        rows = self._tables["extensions"]["extension_package"]
        return any(package in (row["package"], *row.get("also", [])) for row in rows)

    def packages_of(self, library: str) -> List[Row]:
        """The wheels (one a CUDA major) or system packages that bring a library of that name."""
        return [row for row in self._tables["libraries"]["library"] if library in row["names"]]

    def mark(self, platform: str) -> Optional[Row]:
        """What is known of a platform or launcher that can be recognised, by its name."""
        for row in self._tables["marks"]["mark"]:
            if row["platform"] == platform:
                found: Row = row
                return found
        return None

    def marks(self) -> List[Row]:
        """By what platforms are recognised, the first that holds counts."""
        return list(self._tables["marks"]["mark"])

    def job_kinds(self) -> List[Row]:
        """By what kinds of jobs are told apart, on platforms that have several."""
        return list(self._tables["marks"]["job_kind"])

    def variables(self, *platforms: str) -> List[Row]:
        """The variables of platforms or launchers, by their names; of all where none is named."""
        rows = self._tables["platforms"]["variable"]
        return [row for row in rows if not platforms or row["platform"] in platforms]

    def renamed(self) -> List[Row]:
        """Variables that have another name now, or that nobody reads."""
        return list(self._tables["renamed"]["renamed"])

    def companion(self, version: str) -> Optional[Row]:
        """The torchvision, torchaudio, … that belong to a torch release."""
        for row in self._tables["companions"]["companion"]:
            if row["torch"] == version:
                found: Row = row
                return found
        return None

    def nccl_variables(self) -> Mapping[str, Row]:
        """What is known of NCCL's environment variables, by name."""
        return {str(row["name"]): row for row in self._tables["nccl"]["nccl_variable"]}

    def nccl_reader(self, variable: str) -> Optional[Row]:
        """Who else reads or sets a variable whose name is like NCCL's."""
        for row in self._tables["nccl"]["nccl_reader"]:
            if variable in row["names"] or variable.startswith(tuple(row.get("prefixes", ()))):
                found: Row = row
                return found
        return None

    def nccl_presets(self) -> List[Row]:
        """What platforms set for NCCL, by the kernel module that drives the RDMA devices."""
        return list(self._tables["nccl"]["nccl_preset"])


def targets(row: Row, unsure: bool = False) -> Tuple[str, ...]:
    """The targets of a torch build row: ("sm_75", ..., "compute_120")."""
    code, ptx = list(row.get("sm", [])), list(row.get("ptx", []))
    if unsure:
        code += row.get("sm_unsure", [])
        ptx += row.get("ptx_unsure", [])
    code.sort(key=numbers)
    return tuple(
        ["sm_" + one.replace(".", "") for one in code]
        + ["compute_" + one.replace(".", "") for one in ptx]
    )


@lru_cache(maxsize=4096)
def _serves(target: str, capability: str) -> bool:
    text = target.split("_", 1)[1]
    suffix = text[-1] if text and text[-1] in "af" else ""
    digits = text[: len(text) - len(suffix)]
    have = numbers(capability)
    if not digits.isdigit() or len(digits) < 2 or len(have) < 2:
        return False
    made = (int(digits[:-1]), int(digits[-1]))
    if suffix == "a":
        return have[:2] == made
    if suffix == "f" or target.startswith("sm_"):
        return have[0] == made[0] and have[1] >= made[1]
    return have[:2] >= made


@lru_cache(maxsize=1024)
def _plain(name: str) -> str:
    words = name.lower().replace("(r)", "").replace("(tm)", "").split()
    return " ".join(words[1:] if words[:1] == ["nvidia"] else words)


_loaded: Dict[Tuple[str, ...], Matrix] = {}


def load(overlays: Sequence[str] = ()) -> Matrix:
    """The matrix shipped with this package, with the rows of overlay directories on top.

    Raises tables.BadTables for an overlay that cannot be read.
    """
    key = tuple(overlays)
    if key not in _loaded:
        _loaded[key] = Matrix(tables.built_in(key))
    return _loaded[key]
