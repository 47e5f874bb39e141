"""Names of environment variables that stand in a library's read-only text.

NCCL's parameters are composed by the preprocessor ("NCCL_" and the name become one literal), so
the full name is in the file, and a variable whose name is in no text is read by nobody. The other
way round a name may stand in a message only: what is found here is *not more than* what is read,
give or take a constant of the interface, which no one sets.
"""

from __future__ import annotations

import re
from typing import FrozenSet, Iterator

from . import elf

#: libtorch_cuda.so of torch 1.12, with NCCL inside, has 37 MB of read-only data.
SECTION_LIMIT = 256 << 20
#: NCCL 2.30 has 250; more than this is no list of variables.
NAME_LIMIT = 4096
#: At the end of a text. Compilers put a text behind another's last bytes, so what goes before
#: the name says nothing.
_NCCL = re.compile(rb"NCCL_[A-Z0-9_]{1,80}(?=\0)")
#: Macros of nccl.h that are quoted in messages.
_CONSTANTS = ("_INITIALIZER", "NCCL_SPLIT_NOCOLOR", "NCCL_UNIQUE_ID_BYTES")


def nccl_variables(host_path: str) -> FrozenSet[str]:
    """The names of NCCL_* variables in an ELF file's read-only data.

    Raises OSError and BadElf, also where the file has no such section.
    """
    with elf.ElfFile(host_path) as file:
        parts = [one for one in elf.sections(file.data) if one.name.startswith(b".rodata")]
        if not parts:
            raise elf.BadElf("no section of read-only data")
        if sum(one.size for one in parts) > SECTION_LIMIT:
            raise elf.BadElf("more read-only data than any library has")
        found = {name for one in parts for name in _names(file, one)}
    if len(found) > NAME_LIMIT:
        raise elf.BadElf("more names than any library has")
    return frozenset(one for one in found if not one.endswith(_CONSTANTS))


def _names(file: elf.ElfFile, part: elf.Section) -> Iterator[str]:
    """Searched where it is mapped: nothing of the section is copied but the names."""
    for one in _NCCL.finditer(file.data, part.offset, part.offset + part.size):
        yield one.group().decode("ascii")
