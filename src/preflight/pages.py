"""What the matrix says about one driver, CUDA, GPU or torch release: `preflight matrix …`.

A page is a title, entries (a label with values) and sources: one shape for text and JSON.
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from .matrix import MINOR, NATIVE, Matrix, Row, cuda_numbers, numbers, targets

COMMON_GPUS = 24  # as many products as fit a line or two


class Entry(NamedTuple):
    """One line of a page: what it is about, and one or more values."""

    label: str
    values: Tuple[str, ...]


class Page(NamedTuple):
    """What is known of one thing. `trust`: primary, secondary or derived."""

    title: str
    entries: Tuple[Entry, ...]
    trust: str
    sources: Tuple[Tuple[str, str], ...]


class NotInMatrix(ValueError):
    """Nothing is known of what was asked for: the message says what is near."""


def page(m: Matrix, subject: str, name: str) -> Page:
    """The page on a "driver", "cuda", "gpu" or "torch"; raises NotInMatrix."""
    return PAGES[subject](m, name)


def as_json(one: Page) -> Dict[str, Any]:
    """The page as a JSON document."""
    return {
        "schema": "preflight.matrix/1",
        "title": one.title,
        "entries": {entry.label: list(entry.values) for entry in one.entries},
        "trust": one.trust,
        "references": [{"title": title, "url": url} for title, url in one.sources],
    }


def _entry(label: str, *values: Any) -> List[Entry]:
    """A line, unless there is nothing to say."""
    texts = tuple(str(one) for one in values if one not in (None, "", (), []))
    return [Entry(label, texts)] if texts else []


def _page(m: Matrix, title: str, entries: List[Entry], *rows: Optional[Row]) -> Page:
    keys = [key for row in rows if row for key in row["source"]]
    trusts = [str(row["trust"]) for row in rows if row]
    weakest = next((t for t in ("derived", "secondary") if t in trusts), "primary")
    overlays = dict.fromkeys(str(row["overlay"]) for row in rows if row and "overlay" in row)
    entries += _entry("from overlay", *overlays)
    return Page(title, tuple(entries), weakest, tuple(m.references(keys)))


# -- the pages ------------------------------------------------------------------------------


def driver(m: Matrix, name: str) -> Page:
    """What a driver runs: its CUDA, minor-version and forward compatibility, GPUs, torch."""
    row = m.branch(name)
    if row is None:
        raise NotInMatrix(f"driver {name}: no driver version, or older than the matrix knows")
    newer = m.newer_than_known(name)
    entries = _entry("branch", f"R{row['branch']}, {row.get('kind', '')}".rstrip(", "))
    if newer:
        known = f"newer than the matrix knows: what R{row['branch']} runs, it runs"
        entries = _entry("branch", known)
    ends = None if newer else row.get("eol")
    entries += _entry("support ends", "over" if ends == "past" else ends)
    entries += _entry("own CUDA", row["cuda"] + (" or newer" if newer else ""))
    entries += _entry("runs natively", _span(_cudas(m, name, NATIVE)))
    minor = _cudas(m, name, MINOR)
    if minor:
        limit = f"{_span(minor)} (machine code only: it compiles PTX up to CUDA {row['cuda']})"
        entries += _entry("by minor version", limit)
    entries += _entry("by compat package", ", ".join(_compats(m, name)))
    entries += _entry("GPUs", "not known" if newer else f"{row['oldest']} to {row['newest']}")
    entries += _entry("dropped", None if newer else ", ".join(row.get("drops", [])))
    entries += _entry("torch", *_torch_for(m, name))
    return _page(m, f"NVIDIA driver {name}", entries, row)


def _cudas(m: Matrix, driver_version: str, kind: str) -> List[str]:
    return [one for one in m.cudas() if m.way(one, driver=driver_version).kind == kind]


def _span(versions: Sequence[str]) -> str:
    if not versions:
        return ""
    return versions[0] if len(versions) == 1 else f"{versions[0]} to {versions[-1]}"


def _compats(m: Matrix, driver_version: str) -> List[str]:
    fits = [c for c in m.cudas() if m.compat_base(c, driver_version)[0] == "yes"]
    return [f"{one}" for one in fits]


def _torch_for(m: Matrix, driver_version: str) -> List[str]:
    """The newest torch release of each variant that a driver runs, the newest CUDA first."""
    found: Dict[str, Tuple[str, str]] = {}
    for row in m.torch_builds(platform="x86_64"):
        way = m.way(row["cuda"], driver=driver_version) if "cuda" in row else None
        if way is None or not way.runs:
            continue
        for version in row["versions"]:
            best = found.get(row["variant"])
            if best is None or numbers(version) > numbers(best[0]):
                found[row["variant"]] = (version, way.kind)
    order = sorted(found, key=lambda tag: int(tag[2:]) if tag[2:].isdigit() else 0, reverse=True)
    return [f"{tag}: up to {found[tag][0]} ({found[tag][1]})" for tag in order]


def cuda(m: Matrix, name: str) -> Page:
    """What a CUDA needs: drivers, compat bases, architectures, PTX, torch builds."""
    row = m.toolkit(name)
    if row is None:
        raise NotInMatrix(f"cuda {name}: not in the matrix ({_span(m.cudas())})")
    version = str(row["cuda"])
    native = m.branch_for_cuda(version)
    entries = _entry("oldest driver", f"{row['minimum']} (without a compat package)")
    entries += _entry("native from", f"R{native['branch']}" if native else None)
    entries += _entry("its own driver", row.get("driver"))
    entries += _entry("compat package on", ", ".join(f"R{b}" for b in m.compat_bases(version)))
    entries += _entry("machine code for", ", ".join(row["targets"]))
    entries += _entry("deprecated", row.get("deprecated"))
    entries += _entry("PTX ISA", row.get("ptx"))
    entries += _entry("torch", *_torch_with(m, version))
    entries += _entry("note", row.get("note"))
    return _page(m, f"CUDA {version}", entries, row, native)


def _torch_with(m: Matrix, version: str) -> List[str]:
    wanted = cuda_numbers(version)
    rows = [r for r in m.torch_builds() if "cuda" in r and cuda_numbers(r["cuda"]) == wanted]
    return [f"{one['platform']} {one['variant']}: {_list(one['versions'])}" for one in rows]


def _list(versions: Iterable[str]) -> str:
    return ", ".join(sorted(versions, key=numbers))


def gpu(m: Matrix, name: str) -> Page:
    """What a GPU is, which drivers and CUDA know it, and which torch builds have code for it."""
    row = m.find_gpu(name)
    if row is None:
        near = m.gpus_like(name)
        hint = f"; did you mean {', '.join(near[:6])}?" if near else ""
        raise NotInMatrix(f"gpu {name}: no such product in the matrix{hint}")
    capability = str(row["capability"])
    architecture = m.architecture(capability)
    kind = architecture["name"] if architecture else ""
    entries = _entry("compute capability", f"{capability} (sm_{capability.replace('.', '')})")
    entries += _entry("architecture", f"{kind}, {row['class']}".strip(", "))
    first = row.get("first_branch") or (architecture or {}).get("first_branch")
    entries += _entry("first driver branch", f"R{first}" if first else None)
    entries += _entry("first driver that names it", row.get("first_driver"))
    last = (architecture or {}).get("last_branch")
    entries += _entry("last driver branch", f"R{last}" if last else "still supported")
    entries += _entry("CUDA", _span(list(filter(None, (
        (architecture or {}).get("first_cuda"), (architecture or {}).get("last_cuda") or "today",
    )))))  # fmt: skip
    entries += _entry("forward compatibility", row.get("forward"))
    entries += _entry("MIG", {True: "yes", False: "no"}.get(row.get("mig", "")))
    entries += _entry("PCI", ", ".join(row.get("pci", [])))
    entries += _entry("torch", *_torch_on(m, capability))
    entries += _entry("note", row.get("note"))
    return _page(m, str(row["name"]), entries, row, architecture)


def _torch_on(m: Matrix, capability: str) -> List[str]:
    """The public x86_64 builds with code for a GPU, by variant."""
    found: Dict[str, List[str]] = {}
    for row in m.torch_builds(platform="x86_64"):
        if "sm" in row and m.kernels(capability, targets(row)).kind == "sass":
            found.setdefault(row["variant"], []).extend(row["versions"])
    order = sorted(found, key=lambda tag: int(tag[2:]) if tag[2:].isdigit() else 0, reverse=True)
    spans = {tag: sorted(found[tag], key=numbers) for tag in order}
    return [f"{tag}: {_span(spans[tag])}" for tag in order]


def torch(m: Matrix, name: str) -> Page:
    """The builds of a torch release: CUDA, architectures, Pythons, pins, companions."""
    release, _, variant = name.partition("+")
    rows = [r for r in m.torch_builds(release) if not variant or r["variant"] == variant]
    if not rows or not release:
        raise NotInMatrix(f"torch {name}: not in the matrix ({_span(m.torch_releases())})")
    entries: List[Entry] = []
    for row in rows:
        entries += _entry(f"{row['platform']} {row['variant']}", *_build(m, release, row))
    entries += _entry("pins on x86_64", ", ".join(m.pins(release, "x86_64")))
    companion = m.companion(release)
    for one in ("torchvision", "torchaudio", "torchtext", "torchdata"):
        entries += _entry(one, _list((companion or {}).get(one, [])))
    entries += _entry("triton", (companion or {}).get("triton"))
    return _page(m, f"torch {release}", entries, *rows, companion)


def _build(m: Matrix, release: str, row: Row) -> List[str]:
    lines = []
    if release in row.get("default", []):
        lines.append("what the default index gives")
    if "cuda" in row:
        oldest = m.oldest_driver(row["cuda"])
        lines.append(f"CUDA {row['cuda']}, driver {oldest} or newer")
        lines.append("code: " + (", ".join(targets(row)) or "not known"))
        unsure = sorted(set(targets(row, unsure=True)) - set(targets(row)))
        if unsure:
            lines.append("perhaps: " + ", ".join(unsure))
    detail = m.torch_detail(release, row["platform"], row["variant"])
    inside = [f"{n} {detail[k]}" for n, k in (("cuDNN", "cudnn"), ("NCCL", "nccl")) if k in detail]
    if inside:
        lines.append(", ".join(inside))
    if "pythons" in row:
        lines.append(f"Python {row['pythons']}")
    if "min_glibc" in row:
        lines.append(f"glibc {row['min_glibc']} or newer")
    return lines


PAGES = {"driver": driver, "cuda": cuda, "gpu": gpu, "torch": torch}
