"""Which NVIDIA wheels a framework's own package metadata asks for, and in which versions."""

from __future__ import annotations

import posixpath
import re
from typing import Dict, Iterator, Mapping, Tuple

from .. import snapshot as s
from ..roots import Root

#: NAME[EXTRAS] SPECIFIER of a requirement; older metadata has the specifier in brackets.
_LINE = re.compile(
    r"^Requires-Dist: *([\w.-]+) *(?:\[([\w, -]*)\])? *\(?([\w.*,<>=!~+ -]*?)\)? *(?:;(.*))?$",
    re.MULTILINE,
)
#: From torch 2.11 on its extras name most wheels.
METAPACKAGE = "cuda-toolkit"
METADATA_LIMIT = 1 << 20


def read(
    root: Root, site: str, name: str, release: str, extra: str = ""
) -> s.Fact[Mapping[str, str]]:
    """{wheel: specifier} of NVIDIA's wheels that the distribution `name` asks for.

    `site` is where it is installed; `extra` the one under which it asks for them. Absent where it
    asks for none, unknown where there is no metadata.
    """
    pattern = rf"{re.escape(name.replace('-', '_'))}-{re.escape(release)}(\+[\w.]+)?\.dist-info$"
    folders = [one for one in root.names(site) if re.match(pattern, one, re.IGNORECASE)]
    place = f"{site}/{folders[0]}/METADATA" if folders else ""
    text = root.first_text((place,)) if place else None
    if text is None:
        return s.unknown(f"no metadata of {name} {release}", site)
    found: Dict[str, str] = {}
    for wheel, extras, specifier in _lines(text[1], extra):
        if wheel == METAPACKAGE:
            found.update(_of_metapackage(root, site, extras))
        elif wheel.startswith("nvidia-"):
            found[wheel] = specifier
    return s.known(found, place) if found else s.absent(place)


def _of_metapackage(root: Root, site: str, extras: str) -> Iterator[Tuple[str, str]]:
    for folder in root.names(site):
        if re.match(r"cuda_toolkit-[\w.]+\.dist-info$", folder):
            text = root.first_text((posixpath.join(site, folder, "METADATA"),))
            for extra in extras.split(",") if text else ():
                for wheel, _, specifier in _lines(text[1] if text else "", extra.strip()):
                    yield wheel, specifier


def _lines(text: str, extra: str) -> Iterator[Tuple[str, str, str]]:
    """(name, extras, specifier) of what is required without an extra, or under this one."""
    for name, extras, specifier, marker in _LINE.findall(text[:METADATA_LIMIT]):
        under = re.search(r"extra *== *['\"]([\w-]+)['\"]", marker)
        if (under.group(1) if under else "") == extra:
            yield re.sub(r"[-_.]+", "-", name).lower(), extras, specifier.strip()
