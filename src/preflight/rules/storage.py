"""The rule on the paths that a policy declares: data, output, checkpoints."""

from __future__ import annotations

import re
from typing import Iterator, List, Optional, Sequence, Tuple

from ..matrix import Matrix
from ..snapshot import Snapshot, StorageFile, StoragePath
from .registry import WARN, Evidence, Finding, NotApplicable, Outcome, Passed, Undecided

DATA, OUTPUT, CHECKPOINT = "data", "output", "checkpoint"
#: A rate is one only of at least so much, or of a sample that took as long as this to be read.
ENOUGH, LONG = 8_000_000, 0.5
#: Files named in a finding.
NAMED = 3
#: What the kernel says of a FUSE mount whose daemon is gone, and of an NFS file handle likewise.
_DEAD = re.compile(r"Transport endpoint is not connected|Stale file handle|Input/output error")
_READ_ONLY = "Read-only file system"
#: Where a format is described, by the kind of the file.
_FORMATS = {
    "parquet": ("parquet-format",),
    "safetensors": ("safetensors-format",),
    "tfrecord": ("tfrecord-format",),
}


def path_unusable(s: Snapshot, m: Matrix) -> Iterator[Outcome]:
    """A declared data, output or checkpoint path is missing, unreadable, empty or not writable.

    It is asked only of the paths that the policy declares in `[data]` and `[output]`. A data path
    has to be there, readable and not empty, with the files and bytes that are asked for; a sample
    of its files is opened and looked at for truncation by its kind (tar, TFRecord, Parquet, JSON
    lines, zip, images, safetensors, npy): one that a reader would refuse fails, one that readers
    may pass over (a tar without its end) warns, as does a read rate below the floor that is asked
    for (the page cache may make a rate better than it is, never worse). An output path has to be
    a directory in which a file can be made, with the space asked for. A checkpoint that is not
    whole warns. On the first rank all of it is looked at; the others see whether the paths are
    there, readable and writable. In a directory (--root) a path that is not there is no fault: a
    mount may bring it. What a mount that hangs did not answer is unknown.

    A missing path, a dead mount or a full disk may be cured by another try (75); a file that is
    cut off, a variable that is not set, or an output that is no directory is not (78).

    Fix: mount it, give the job's user its permissions, copy the file again, or correct the policy.
    """
    paths = s.storage.paths
    if not paths.get(()):
        if paths.unknown and paths.looked:
            yield Undecided(("storage.paths",), "whether the declared paths can be used")
        else:
            yield NotApplicable("the policy declares no path")
        return
    for row in paths.get(()):
        yield from _Path(s, row).outcomes()


def seen(row: StoragePath) -> str:
    """A path in a few words, as for a line of the report."""
    words = [label(row)]
    if row.hung:
        words.append("gives no answer")
    elif row.state == "missing":
        words.append("is not there" if row.role == DATA or not row.create else "is not there yet")
    elif row.role == DATA and (row.files or row.listed == "all"):
        least = "at least " if row.listed != "all" else ""
        words.append(f"{least}{row.files:,} file{'s' * (row.files != 1)}, {size(row.bytes)}")
    elif row.role == CHECKPOINT and row.newest:
        words.append(f"newest is {row.newest}" + (f" of {row.newest_at}" if row.newest_at else ""))
    elif row.space:
        words.append(f"{size(row.free)} free")
    if row.throughput and row.read >= ENOUGH and not row.hung and row.state != "missing":
        words.append(f"read at {size(row.throughput)}/s")
    told = row.mount_words and not row.own_disk and (row.state != "missing" or row.hung)
    where = f" ({row.mount_words})" if told else ""
    return " ".join(words[:1]) + (" " if words[1:] else "") + ", ".join(words[1:]) + where


def label(row: StoragePath) -> str:
    """What a path is called."""
    return row.at or row.path or row.place or "a declared path"


def size(count: int) -> str:
    """Bytes in units of 1000, as disks and policies have them, never rounded up: "1.23 GB"."""
    for unit, power in (("PB", 15), ("TB", 12), ("GB", 9), ("MB", 6), ("kB", 3)):
        if count >= 10**power:
            whole, rest = divmod(count * 100 // 10**power, 100)
            digits = 2 if whole < 10 else 1 if whole < 100 else 0
            decimals = f"{rest:02}"[:digits].rstrip("0")
            return f"{whole:,}" + ("." + decimals if decimals else "") + " " + unit
    return f"{count} bytes"


class _Path:
    """What the facts say of one path."""

    def __init__(self, s: Snapshot, row: StoragePath) -> None:
        self.s = s
        self.row = row
        self.name = label(row)
        self.damaged = [one for one in s.storage.damaged.get(()) if one.at == row.at]

    def outcomes(self) -> Iterator[Outcome]:
        row = self.row
        elsewhere = self._elsewhere()
        if elsewhere:
            yield NotApplicable(elsewhere)
            return
        found = list(self._findings())
        yield from found
        if row.hung:
            yield self._unsure("whether {} can be used")
        elif not found:
            open_question = self._open()
            if open_question:
                yield self._unsure(open_question)
            else:
                yield Passed(f"{self._fine()}", self.name, self._evidence())

    def _elsewhere(self) -> str:
        """Why nothing can be said of a path here; empty: something can."""
        row = self.row
        if self.s.origin != "directory":
            return ""
        if row.unset:
            return f"{row.path}: {row.unset} is not given here (--env-file)"
        if row.role != DATA:
            return f"{self.name}: whether it can be written is known where the job runs"
        if row.state == "missing":
            return f"{self.name} is not in this directory: a mount may bring it"
        return ""

    def _findings(self) -> Iterator[Finding]:
        row = self.row
        first = self._unusable()
        if first is not None:
            yield first
            return
        if row.role == DATA:
            yield from self._amount()
            yield from self._rate()
        else:
            yield from self._room()
        yield from self._broken()

    # -- there, readable, writable ----------------------------------------------------------

    def _unusable(self) -> Optional[Finding]:
        row = self.row
        if row.unset:
            return self._finding(
                f"{row.path}: {row.unset} is not set",
                "a value for " + row.unset,
                "The policy's path is made of a variable that the job's environment does not have.",
                (f"export {row.unset.split(', ')[0]}=…, or write the path into the policy",),
                lasting=True,
            )
        if row.state == "missing":
            return self._missing()
        if row.role == DATA and row.problem:
            return self._unreadable()
        if row.state == "other" or (row.role != DATA and row.state == "file"):
            what = "a directory" if row.role != DATA else "a directory or a file"
            return self._finding(
                f"{self.name} is not {what}", what, "Something else lies at the declared path.",
                (f"ls -ld {quoted(self.name)}", self._policy_line()), lasting=True,
            )  # fmt: skip
        if row.role != DATA and (row.problem or row.writable == "no"):
            return self._unwritable()
        if row.role == DATA and not row.may_be_empty:
            return self._empty()
        return None

    def _missing(self) -> Optional[Finding]:
        row = self.row
        if row.role != DATA and row.create:
            if row.writable != "no":
                return None
            return self._finding(
                f"{self.name} is not there and cannot be made in {row.parent or '/'}",
                "a directory in which it can be made",
                "The job would fail when it first writes there.",
                (f"mkdir -p {quoted(self.name)} as a user who may", self._mount_line()),
            )
        parent = f"; the nearest that is there is {row.parent}" if row.parent else ""
        return self._finding(
            f"{self.name} is not there" + (", and nothing is mounted there" * bool(row.own_disk)),
            f"the {row.role or 'declared'} path {row.path}",
            f"The policy declares it, and no file or directory has that name{parent}.",
            (self._mount_line(), self._policy_line()),
        )

    def _unreadable(self) -> Finding:
        row = self.row
        return self._finding(
            f"{self.name} cannot be read: {row.problem}{self._on()}",
            "a path that the job's user can read",
            "The job would get the same error.",
            self._permission_lines("a+rX"),
        )

    def _unwritable(self) -> Finding:
        row = self.row
        problem = f": {row.problem}" if row.problem else ""
        return self._finding(
            f"{self.name} cannot be written{problem}{self._on()}",
            "a directory in which a file can be made",
            "Making one file there failed; the job would fail when it first writes.",
            self._permission_lines("u+rwX"),
        )

    def _permission_lines(self, mode: str) -> Tuple[str, ...]:
        row = self.row
        if _DEAD.search(row.problem):
            where = quoted(row.mount or self.name)
            return (f"umount -l {where} and mount it again, or start the job on another node",)
        if _READ_ONLY in row.problem:
            return ("mount it for writing: on PAI, leave the data set's read-only option out",
                    self._policy_line())  # fmt: skip
        if "space" in row.problem or "quota" in row.problem.lower():
            return (f"make room: du -xsh {quoted(self.name)}/* | sort -h | tail",)
        where = quoted(self.name)
        return (f"chmod -R {mode} {where} as its owner (ls -ldn {where}; id)",
                "OSS: give the job's RAM role or AccessKey the bucket's permissions")  # fmt: skip

    def _empty(self) -> Optional[Finding]:
        row = self.row
        if row.blank == "yes" or (row.state == "file" and row.weighed == "all" and not row.bytes):
            nothing = ", and nothing is mounted there" * bool(row.own_disk)
            return self._finding(
                f"{self.name} is empty{nothing}",
                "data",
                "A mount that did not come leaves an empty directory behind."
                if row.state != "file" else "A file of 0 bytes is an upload that did not happen.",
                (self._mount_line(), f"ls -la {quoted(self.name)}"),
            )  # fmt: skip
        if row.listed == "all" and not row.files:
            what = f"no file in {self.name} matches {row.glob}" if row.glob else (
                f"{self.name} has no files"
            )  # fmt: skip
            return self._finding(
                what, "data files", "It has entries, and none of them counts as data.",
                (f"ls -laR {quoted(self.name)} | head", self._policy_line()),
            )  # fmt: skip
        return None

    # -- how much -----------------------------------------------------------------------------

    def _amount(self) -> Iterator[Finding]:
        row = self.row
        for what, have, least, most, known in (
            ("files", row.files, row.files_min, row.files_max, row.listed),
            ("bytes", row.bytes, row.bytes_min, row.bytes_max, row.weighed),
        ):
            say = size if what == "bytes" else lambda number: f"{number:,} files"
            if least and known == "all" and have < least:
                yield self._finding(
                    f"{self.name} has {say(have)}, at least {say(least)} are asked for",
                    f"{row.place or 'the policy'}: {what}-min = {least}",
                    "A part of the data is missing: an upload or a copy has not ended.",
                    (f"compare with the source: find {quoted(self.name)} -type f | wc -l; "
                     f"du -sb {quoted(self.name)}", self._policy_line()),
                )  # fmt: skip
            elif most and have > most:
                yield self._finding(
                    f"{self.name} has {say(have)}, at most {say(most)} are asked for",
                    f"{row.place or 'the policy'}: {what}-max = {most}",
                    "More lies there than belongs to this data: another version, or leftovers.",
                    (f"ls -lt {quoted(self.name)} | head", self._policy_line()),
                )

    def _rate(self) -> Iterator[Finding]:
        row = self.row
        if row.throughput_min and row.throughput and row.throughput < row.throughput_min:
            if not _meaningful(row):
                return
            yield self._finding(
                f"{self.name} is read at {size(row.throughput)}/s, "
                f"{size(row.throughput_min)}/s are asked for{self._on()}",
                f"{row.place or 'the policy'}: throughput-min of {row.throughput_min} bytes/s",
                f"{size(row.read)} of {row.sampled or 1} sample files were read, one after the "
                "other. The page cache can only have made it faster. The GPUs would wait for data.",
                ("more loader workers may reach it; else CPFS, a cache, or a copy on local disk",
                 self._policy_line()),
                severity=WARN,
            )  # fmt: skip

    def _room(self) -> Iterator[Finding]:
        row = self.row
        if row.free_min and row.space and row.free < row.free_min:
            yield self._finding(
                f"{self.name} has {size(row.free)} free, {size(row.free_min)} are asked for"
                + self._on(),
                f"{row.place or 'the policy'}: free = {row.free_min} bytes",
                "The job would run until the disk is full, and lose its checkpoint then.",
                (f"make room: du -xsh {quoted(self.name)}/* | sort -h | tail",
                 "write to a larger volume"),
            )  # fmt: skip
        if row.inodes_min and row.inodes_all and row.inodes < row.inodes_min:
            yield self._finding(
                f"{self.name} has {row.inodes:,} inodes free, {row.inodes_min:,} are asked for",
                f"{row.place or 'the policy'}: inodes = {row.inodes_min}",
                "No more files can be made than there are inodes, however much space is left.",
                (f"find {quoted(self.name)} -xdev -type f | wc -l; remove small files",),
            )

    # -- whole ----------------------------------------------------------------------------------

    def _broken(self) -> Iterator[Finding]:
        hard = [one for one in self.damaged if not one.mild]
        soft = [one for one in self.damaged if one.mild]
        for files, severity in ((hard, ""), (soft, WARN)):
            if files:
                yield self._not_whole(files, severity)

    def _not_whole(self, files: Sequence[StorageFile], severity: str) -> Finding:
        row = self.row
        first = files[0]
        count = max(len(files), row.empties if not severity else 0)
        more = f" (and {count - 1} more)" if count > 1 else ""
        what = "the newest checkpoint" if row.role == CHECKPOINT else "data"
        path = self.name if row.state == "file" or row.role == CHECKPOINT else (
            f"{self.name}/{first.name}"
        )  # fmt: skip
        named = first.name if row.role == CHECKPOINT else path
        unread = first.problem.startswith("cannot be ")
        finding = self._finding(
            f"{what} is not whole: {named} {first.problem or 'is damaged'}{more}",
            f"files that are whole ({row.sampled} were opened)",
            "Whatever reads it stops there, perhaps after hours."
            if not severity
            else "A job that resumes from it fails, or takes an older one."
            if row.role == CHECKPOINT
            else "Readers pass over it without a word, and what was cut off is missing.",
            (
                f"copy it again from its source, and compare: sha256sum {quoted(path)}"
                if row.role != CHECKPOINT
                else f"resume from the one before, or remove {named}",
                self._policy_line(),
            ),
            severity=severity,
            lasting=not unread,
            sources=_FORMATS.get(first.kind, ()),
        )
        proofs = tuple(
            Evidence("storage.damaged", f"{one.name}: {one.problem}", f"{size(one.bytes)}")
            for one in files[:20]
        )
        return _with(finding, proofs)

    # -- otherwise ------------------------------------------------------------------------------

    def _open(self) -> str:
        """What is asked and not known; empty: nothing."""
        row = self.row
        if row.state == "" and row.role == DATA and not row.files:
            return "whether {} can be used"
        if row.role != DATA and row.writable != "yes":
            return "whether {} can be written"
        if row.free_min and row.role == OUTPUT and not row.space:
            return "how much is free in {}"
        least = row.listed == "at least"
        if least and row.files < row.files_min:
            return "how many files are in {}"
        if least and not row.files and not row.may_be_empty:
            return "whether there are files in {}"
        if row.weighed == "at least" and row.bytes < row.bytes_min:
            return "how large {} is"
        low = row.throughput_min and 0 < row.throughput < row.throughput_min
        if low and not _meaningful(row):
            return "how fast {} is read (the sample is too small)"
        return ""

    def _fine(self) -> str:
        row = self.row
        if row.state == "missing":
            return f"{self.name} is not there yet, and the job can make it"
        if row.role != DATA:
            return seen(row) + ", can be written"
        looked = f"; {row.sampled} looked at" if row.sampled else ""
        part = f", {row.partly} of them in part" if row.partly else ""
        return seen(row) + looked + part

    def _unsure(self, note: str) -> Undecided:
        return Undecided(("storage.complete",), note.format(self.name), self.name)

    def _on(self) -> str:
        return f" (on {self.row.mount_words})" if self.row.mount_words else ""

    def _mount_line(self) -> str:
        return f"mount the data set at {quoted(self.name)} (PAI: the job's data set, mount path)"

    def _policy_line(self) -> str:
        return f"correct {self.row.place or 'the path'} in the policy (preflight.toml)"

    def _evidence(self) -> Tuple[Evidence, ...]:
        row, paths = self.row, self.s.storage.paths
        words: List[str] = [seen(row)]
        words += [row.problem] if row.problem else []
        words += ["first: " + ", ".join(row.names.split("\n"))] if row.names else []
        words += [f"mounted at {row.mount}"] if row.mount else []
        return (Evidence("storage.paths", "; ".join(words), paths.source, paths.assumed),)

    def _finding(
        self,
        summary: str,
        needed: str,
        why: str,
        fix: Sequence[str],
        severity: str = "",
        lasting: bool = False,
        sources: Tuple[str, ...] = (),
    ) -> Finding:
        return Finding(
            summary=summary, observed=seen(self.row), needed=needed, why=why, fix=tuple(fix),
            evidence=self._evidence(), subject=self.name, severity=severity, lasting=lasting,
            sources=sources,
        )  # fmt: skip


def _with(finding: Finding, proofs: Tuple[Evidence, ...]) -> Finding:
    return Finding(
        summary=finding.summary, observed=finding.observed, needed=finding.needed, why=finding.why,
        fix=finding.fix, evidence=finding.evidence + proofs, subject=finding.subject,
        severity=finding.severity, lasting=finding.lasting, sources=finding.sources,
    )  # fmt: skip


def _meaningful(row: StoragePath) -> bool:
    """Whether enough was read for a rate: of a few small files it is the delay of each."""
    return row.read >= ENOUGH or row.read >= LONG * row.throughput


def quoted(text: str) -> str:
    """As a shell takes it for one word."""
    if re.fullmatch(r"[\w@%+=:,./-]+", text):
        return text
    return "'" + text.replace("'", "'\"'\"'") + "'"
