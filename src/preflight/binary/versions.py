"""Which version a library is, by what the file itself says.

Most CUDA libraries tell their version by a function that returns a constant: the constant is read
from the function's code (x86-64 and AArch64), nothing is called. cuDNN has it as data, NCCL as
text too (where it is linked into torch), libstdc++ and glibc by the symbol versions they define.
"""

from __future__ import annotations

import re
import struct
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from . import elf

#: Functions that return a version are short; cudaRuntimeGetVersion has 460 bytes.
CODE_LIMIT = 1024
#: And those they call begin with the constant.
CALLED_SIZE = 24
#: libtorch_cuda.so of torch 1.12 has 37 MB of read-only data.
TEXT_LIMIT = 256 << 20


class Version(NamedTuple):
    """A library's version ("2.30.7") and what in the file says so."""

    library: str
    version: str
    source: str


def read(host_path: str) -> List[Version]:
    """What an ELF file says of its version; raises BadElf and OSError."""
    with elf.ElfFile(host_path) as file:
        return of(file)


def of(file: elf.ElfFile) -> List[Version]:
    """The same for an open file."""
    found = [one for way in _WAYS for one in way(file)]
    first: Dict[str, Version] = {}
    for one in found:
        first.setdefault(one.library, one)
    return list(first.values())


# -- constants in code ----------------------------------------------------------------------


class _Function(NamedTuple):
    library: str
    #: Values that can be a version.
    lowest: int
    highest: int
    text: Callable[[int], str]


def _thousands(value: int) -> str:
    """cuFFT's way: 12004 is 12.0.4."""
    return f"{value // 1000}.{value % 1000 // 100}.{value % 100}"


def _ten_thousands(value: int) -> str:
    """130101 is 13.1.1."""
    return f"{value // 10000}.{value % 10000 // 100}.{value % 100}"


def _nccl(value: int) -> str:
    """ncclGetVersion: 23007 is 2.30.7, and before 2.9 2708 is 2.7.8."""
    return _thousands(value) if value < 10000 else _ten_thousands(value)


def _cudnn(value: int) -> str:
    """cudnnGetVersion: 92400 is 9.24.0, 8500 is 8.5.0."""
    return _thousands(value) if value < 10000 else _ten_thousands(value)


def _cublas(value: int) -> str:
    """cublasLtGetVersion: 130101 is 13.1.1, and before CUDA 11 10202 is 10.2.2."""
    return _thousands(value) if value < 100000 else _ten_thousands(value)


def _runtime(value: int) -> str:
    """cudaRuntimeGetVersion: 13000 is 13.0."""
    return f"{value // 1000}.{value % 1000 // 10}"


_FUNCTIONS = {
    b"ncclGetVersion": _Function("nccl", 2000, 99999, _nccl),
    b"cudaRuntimeGetVersion": _Function("cudart", 8000, 39990, _runtime),
    b"cublasLtGetVersion": _Function("cublasLt", 10000, 399999, _cublas),
    b"cufftGetVersion": _Function("cufft", 8000, 39999, _thousands),
    b"curandGetVersion": _Function("curand", 8000, 39999, _thousands),
    b"cusolverGetVersion": _Function("cusolver", 8000, 39999, _thousands),
    b"cusparseGetVersion": _Function("cusparse", 8000, 39999, _thousands),
    b"cusparseLtGetVersion": _Function("cusparseLt", 100, 9999, _thousands),
    b"cudnnGetVersion": _Function("cudnn", 6000, 199999, _cudnn),
}
#: These store a major and a minor.
_PAIRS = {b"nvJitLinkVersion": "nvJitLink", b"nvrtcVersion": "nvrtc"}


def _by_code(file: elf.ElfFile) -> Iterator[Version]:
    for name, function in _FUNCTIONS.items():
        for symbol in file.lookup(name)[:1]:
            # cudaRuntimeGetVersion has another function answer.
            for code in (_code(file, symbol), *_called(file, symbol)):
                values = {one for one in _constants(file, code) if _fits(one, function)}
                if len(values) == 1:
                    yield Version(function.library, function.text(values.pop()), name.decode())
                    break
    for name, library in _PAIRS.items():
        for symbol in file.lookup(name)[:1]:
            pair = [one for one in _constants(file, _code(file, symbol)) if one < 1000][:2]
            if len(pair) == 2:
                yield Version(library, "{}.{}".format(*pair), name.decode())


def _fits(value: int, function: _Function) -> bool:
    return function.lowest <= value <= function.highest


def _code(file: elf.ElfFile, symbol: elf.Symbol) -> bytes:
    size = min(symbol.size, CODE_LIMIT) if symbol.defined else 0
    return file.loaded(symbol.value, size) if size else b""


def _called(file: elf.ElfFile, symbol: elf.Symbol) -> Iterator[bytes]:
    """The first bytes of each function that one calls."""
    code = _code(file, symbol)
    places = _calls_aarch64(code) if file.machine == "aarch64" else _calls(code)
    for place in places:
        try:
            yield file.loaded(symbol.value + place, CALLED_SIZE)
        except elf.BadElf:
            continue  # not a call after all


def _calls(code: bytes) -> Iterator[int]:
    for one in _CALL.finditer(code):
        yield one.end() + int.from_bytes(one.group(1), "little", signed=True)


def _calls_aarch64(code: bytes) -> Iterator[int]:
    for position, word in enumerate(_words(code)):
        if word & 0x7C000000 == 0x14000000:  # b, bl
            distance = word & 0x3FFFFFF
            yield 4 * (position + distance - (distance >> 25 << 26))


def _constants(file: elf.ElfFile, code: bytes) -> List[int]:
    """Numbers that code puts into the result register or through a pointer, in order."""
    if file.machine == "aarch64":
        return list(_constants_aarch64(code))
    return [struct.unpack("<I", one.group(1))[0] for one in _IMMEDIATE.finditer(code)]


#: call and jmp.
_CALL = re.compile(rb"[\xe8\xe9](.{4})", re.DOTALL)
#: mov $…,%eax, and movl $…,(%register) with and without a short displacement.
_IMMEDIATE = re.compile(
    rb"(?:\xb8|\xc7(?:[\x00-\x03\x06\x07]|\x04\x24|[\x40-\x43\x45-\x47].))(.{4})", re.DOTALL
)


def _constants_aarch64(code: bytes) -> Iterator[int]:
    """movz, and movz with movk for the upper half, of 32-bit registers."""
    values: Dict[int, int] = {}
    words = _words(code)
    for position, word in enumerate(words):
        kind, number, register = word & 0xFFE00000, word >> 5 & 0xFFFF, word & 31
        if kind == 0x52800000:  # movz
            values[register] = number
            upper = words[position + 1 : position + 4]
            if not any(one & 0xFFE0001F == 0x72A00000 | register for one in upper):
                yield number
        elif kind == 0x72A00000 and register in values:  # movk, lsl #16
            yield values[register] | number << 16


def _words(code: bytes) -> Tuple[int, ...]:
    count = len(code) // 4
    return struct.unpack(f"<{count}I", code[: count * 4])


# -- data, texts and versions of symbols ----------------------------------------------------

_CUDNN_DATA = (b"cudnn_graph_version", b"cudnn_ops_infer_version", b"cudnn_adv_infer_version",
               b"cudnn_cnn_infer_version", b"cudnn_ops_train_version", b"cudnn_adv_train_version",
               b"cudnn_cnn_train_version")  # fmt: skip
_NCCL_TEXT = re.compile(rb"NCCL version (\d+\.\d+\.\d+)")
_GLIBC_TEXT = re.compile(rb"GNU C Library [^\n\0]{0,200}release version (\d+\.\d+)")


def _by_data(file: elf.ElfFile) -> Iterator[Version]:
    """cuDNN's libraries each hold the version they are of."""
    for name in _CUDNN_DATA:
        for symbol in file.lookup(name)[:1]:
            if symbol.defined and symbol.size == 4:
                (value,) = struct.unpack("<I", file.loaded(symbol.value, 4))
                version = f"{value >> 16}.{value >> 8 & 255}.{value & 255}"
                if 6 <= value >> 16 < 100:
                    yield Version("cudnn", version, name.decode())


def _by_symbol_versions(file: elf.ElfFile) -> Iterator[Version]:
    soname = file.soname or ""
    for library, start, prefix in (
        ("libstdc++", "libstdc++.so", b"GLIBCXX_"),
        ("glibc", "libc.so.6", b"GLIBC_"),
    ):
        if soname.startswith(start):
            names = [one.version for one in file.version_definitions()]
            highest = _highest(names, prefix)
            if highest:
                yield Version(library, highest, prefix.decode() + highest)


def _by_text(file: elf.ElfFile) -> Iterator[Version]:
    soname = file.soname or ""
    if soname == "libc.so.6":
        yield from _texts(file, "glibc", _GLIBC_TEXT)
    # NCCL inside torch: 1.13 and before, and conda's builds.
    if soname.startswith("libtorch_cuda") and not any("libnccl" in one for one in file.needed):
        yield from _texts(file, "nccl", _NCCL_TEXT)


def _texts(file: elf.ElfFile, library: str, pattern: re.Pattern[bytes]) -> Iterator[Version]:
    section = file.section(".rodata")
    if section:
        size = min(section.size, TEXT_LIMIT)
        found = pattern.search(file.data, section.offset, section.offset + size)
        if found:
            text = found.group(0).decode("ascii", "replace")
            yield Version(library, found.group(1).decode(), text)


#: The first that says a library's version counts.
_WAYS: Tuple[Callable[[elf.ElfFile], Iterator[Version]], ...] = (
    _by_data, _by_code, _by_text, _by_symbol_versions,
)  # fmt: skip


def _highest(names: Sequence[bytes], prefix: bytes) -> str:
    found = [
        tuple(map(int, one[len(prefix) :].split(b".")))
        for one in names
        if re.match(re.escape(prefix) + rb"\d+(\.\d+)*$", one)
    ]
    return ".".join(map(str, max(found))) if found else ""


def needed_version(file: elf.ElfFile, prefix: str) -> str:
    """The highest version a file needs of a kind ("GLIBC_", "GLIBCXX_"); empty for none."""
    return _highest([one.version for one in file.version_needs()], prefix.encode())


# -- the C++ ABI of torch -------------------------------------------------------------------

#: Names in torch's namespaces, and std::string as either ABI writes it into a name. Other names
#: say nothing: old builds export parts of a libstdc++ that was linked into them.
_TORCH_NAME = re.compile(rb"_ZN?K?(?:3c10|2at|5torch|6caffe2)")
_NEW_STRING, _OLD_STRING = (b"__cxx11", b"B5cxx11"), re.compile(rb"[EKRSPvbcijlmxy_]Ss")


def cxx11_abi(file: elf.ElfFile) -> Optional[bool]:
    """Whether one of torch's libraries (libc10.so) is of the C++11 ABI; None when no name says."""
    return _abi(file.exported().names)


def wanted_cxx11_abi(file: elf.ElfFile) -> Optional[bool]:
    """The ABI that an extension expects of torch; None where no name it takes from it says so."""
    return _abi(file.undefined().names)


def _abi(names: Sequence[bytes]) -> Optional[bool]:
    names = [name for name in names if _TORCH_NAME.match(name)]
    if any(mark in name for name in names for mark in _NEW_STRING):
        return True
    return False if any(_OLD_STRING.search(name) for name in names) else None
