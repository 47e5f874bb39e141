"""What pyarrow and Pillow say of a file, where they are installed beside preflight (`--thorough`).

Our own readers look at ends and lengths; these decode, and find bytes that changed in between. They
are imported by the process that looks at one path, and never for a directory that is an image:
what comes from there is nobody's trusted input.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

from .reading import Damaged

#: What is larger than this, decoded, is left to our own readers.
PIXELS, GROUP = 50_000_000, 256 << 20


def check(handle: int, kind: str) -> str:
    """The library that decoded the file; empty: none is here, or none knows it.

    Raises :class:`Damaged` with the library's words.
    """
    call = {"parquet": _parquet, "image": _image}.get(kind)
    os.lseek(handle, 0, os.SEEK_SET)
    return call(handle) if call else ""


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except Exception:  # noqa: BLE001 - not installed, or broken: then ours have to do
        return None


def _parquet(handle: int) -> str:
    module = _module("pyarrow.parquet")
    if module is None:
        return ""
    try:
        with os.fdopen(os.dup(handle), "rb") as stream:
            file = module.ParquetFile(stream)
            if file.num_row_groups and file.metadata.row_group(0).total_byte_size < GROUP:
                file.read_row_group(0, use_threads=False)
    except (ValueError, OSError) as error:  # ArrowInvalid is a ValueError
        raise Damaged(f"is damaged: pyarrow says {_first_line(error)}") from None
    except Exception:  # noqa: BLE001 - a feature that this pyarrow does not have is no damage
        return ""
    return "pyarrow"


def _image(handle: int) -> str:
    module = _module("PIL.Image")
    if module is None:
        return ""
    try:
        with os.fdopen(os.dup(handle), "rb") as stream:
            picture = module.open(stream)
            if picture.size[0] * picture.size[1] > PIXELS:
                return ""
            picture.load()
    except (OSError, SyntaxError) as error:  # a broken PNG is a SyntaxError to Pillow
        if type(error).__name__ == "UnidentifiedImageError":
            return ""
        raise Damaged(f"is damaged: Pillow says {_first_line(error)}") from None
    except Exception:  # noqa: BLE001 - see above
        return ""
    return "Pillow"


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
