"""What pyarrow and Pillow find beyond our own readers, where they are installed."""

import os
import sys
from pathlib import Path

import pytest

from preflight.datafiles import Damaged, Reader, check, libraries

FOLDER = Path(__file__).parents[1] / "data" / "storage"
FILES = {"parquet": "plain.parquet", "image": "plain.png"}


def decoded(path, kind):
    handle = os.open(path, os.O_RDONLY)
    try:
        check(Reader(handle), kind)
        return libraries.check(handle, kind)
    finally:
        os.close(handle)


@pytest.mark.parametrize(
    ("module", "kind", "at"), [("pyarrow", "parquet", 4), ("PIL", "image", 300)]
)
def test_what_is_whole_is_decoded_and_what_changed_in_between_is_found(tmp_path, module, kind, at):
    pytest.importorskip(module)
    assert decoded(FOLDER / FILES[kind], kind) in ("pyarrow", "Pillow")
    data = bytearray((FOLDER / FILES[kind]).read_bytes())
    data[at : at + 60] = bytes(60)
    path = tmp_path / FILES[kind]
    path.write_bytes(data)
    with pytest.raises(Damaged):
        decoded(path, kind)


@pytest.mark.parametrize(("name", "kind"), [("pyarrow.parquet", "parquet"), ("PIL.Image", "image")])
def test_without_a_library_ours_have_to_do(monkeypatch, name, kind):
    monkeypatch.setitem(sys.modules, name, None)
    assert decoded(FOLDER / FILES[kind], kind) == ""


def test_other_kinds_are_not_decoded():
    assert decoded(FOLDER / "plain.zip", "zip") == ""
