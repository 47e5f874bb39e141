"""Which mount a path lies on, and what kind of storage that is."""

from __future__ import annotations

import re
from typing import List, NamedTuple, Optional, Tuple

from ..roots import Root

MOUNTINFO = "/proc/self/mountinfo"
_ESCAPE = re.compile(r"\\([0-7]{3})")


class Mount(NamedTuple):
    """A line of mountinfo: where, which file system, from what (without credentials)."""

    point: str
    kind: str
    source: str
    read_only: bool = False

    @property
    def words(self) -> str:
        """What it is, with its article: "an OSS mount by ossfs"."""
        for kind, source, words in _KNOWN:
            if re.match(kind, self.kind) and re.search(source, self.source):
                return words
        return f"a {self.kind} mount"

    @property
    def local(self) -> bool:
        """Whether it is the container's or the machine's own, and not something mounted for it."""
        return self.kind in ("overlay", "aufs") or self.point == "/"


#: File system type and source as patterns, the first that fits counts. The names of the FUSE
#: types are those that the drivers of ACK (alibaba-cloud-csi-driver) and fluid look for.
_KNOWN: Tuple[Tuple[str, str, str], ...] = (
    (r"fuse\.ossfs2", "", "an OSS mount by ossfs2"),
    (r"fuse\.ossfs|ossfs", "", "an OSS mount by ossfs"),
    (r"fuse(\.\w+)?$", r"^ossfs2?\b", "an OSS mount by ossfs"),
    (r"fuse\.jindo", "", "an OSS mount by JindoFuse"),
    (r"fuse(\.\w+)?$", r"^jindo", "an OSS mount by JindoFuse"),
    (r".*", r"\bcpfs[\w.-]*\.aliyuncs\.com", "a CPFS mount"),
    (r"cpfs|gpfs", "", "a CPFS or GPFS mount"),
    (r"(ali)?fuse\.aliyun-alinas", "", "a NAS or CPFS mount by the EFC client"),
    (r"nfs", r"\bnas\.aliyuncs\.com", "a NAS mount (NFS)"),
    (r"nfs", "", "an NFS mount"),
    (r"lustre", "", "a Lustre mount"),
    (r"beegfs", "", "a BeeGFS mount"),
    (r"ceph|fuse\.ceph", "", "a Ceph mount"),
    (r"fuse\.juicefs|JuiceFS", "", "a JuiceFS mount"),
    (r"fuse\.alluxio", "", "an Alluxio mount"),
    (r"fuse\.(s3fs|mountpoint-s3|goofys)", "", "an S3 mount"),
    (r"fuse\.gcsfuse", "", "a Cloud Storage mount by gcsfuse"),
    (r"virtiofs|9p", "", "a mount that the hypervisor shares"),
    (r"cifs|smb", "", "an SMB mount"),
    (r"overlay|aufs", "", "the container's own disk (overlay)"),
    (r"tmpfs|ramfs", "", "memory (tmpfs)"),
    (r"(ext[234]|xfs|btrfs|zfs|f2fs)$", "", "a disk"),
)


def mounts(root: Root) -> List[Mount]:
    """The mounts of this process, in the order in which they were made; none of a directory."""
    if not root.live:
        return []
    try:
        text = root.text(MOUNTINFO)
    except OSError:
        return []
    return [one for one in map(_mount, text.splitlines()) if one is not None]


def _mount(line: str) -> Optional[Mount]:
    before, dash, after = line.partition(" - ")
    columns, more = before.split(" "), after.split(" ")
    if not dash or len(columns) < 6 or len(more) < 2:
        return None
    read_only = "ro" in columns[5].split(",") or (len(more) > 2 and "ro" in more[2].split(","))
    return Mount(_plain(columns[4]), _plain(more[0]), _without_secret(_plain(more[1])), read_only)


def _plain(text: str) -> str:
    return _ESCAPE.sub(lambda found: chr(int(found.group(1), 8)), text)


def _without_secret(source: str) -> str:
    return re.sub(r"//[^/@\s]*@", "//", source)


def of(path: str, found: List[Mount]) -> Optional[Mount]:
    """The mount that `path` (absolute, plain) lies on: the deepest, of equals the last made."""
    best: Optional[Mount] = None
    for one in found:
        inside = path == one.point or path.startswith(one.point.rstrip("/") + "/")
        if inside and (best is None or len(one.point) >= len(best.point)):
            best = one
    return best
