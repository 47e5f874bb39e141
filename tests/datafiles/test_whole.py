"""Files written by the writers people use: whole ones are never called damaged, cut ones are found.

What a cut one is to a real reader stands in truth.json (tests/data/storage/make.py).
"""

import json
import os
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preflight import datafiles, declared
from preflight.datafiles import lines
from tests.data.storage.places import places

FOLDER = Path(__file__).parents[1] / "data" / "storage"
SAMPLES = sorted(
    one for one in FOLDER.iterdir() if one.is_file() and one.suffix not in (".py", ".json")
)
NAMES = [one.name for one in SAMPLES]
TRUTH = json.loads((FOLDER / "truth.json").read_text())
KINDS = [one for one in declared.KINDS if one not in ("auto", "any")]


def looked(tmp_path, data, kind, budget=datafiles.reading.BYTES):
    """(word, problem): whole, mild or damaged."""
    path = tmp_path / "file"
    path.write_bytes(data)
    handle = os.open(path, os.O_RDONLY)
    try:
        reader = datafiles.Reader(handle, budget)
        return "whole", datafiles.check(reader, kind)
    except datafiles.Damaged as error:
        return ("mild" if error.mild else "damaged"), str(error)
    finally:
        os.close(handle)


def kind(name):
    """The kind by the name; of a checkpoint of torch by how it begins."""
    found = datafiles.kind_of(name)
    if not found:
        with open(FOLDER / name, "rb") as stream:
            found = datafiles.begins_as(datafiles.Reader(stream.fileno()))
    return found


def test_every_kind_has_a_sample_and_every_sample_is_small():
    assert {kind(name) for name in NAMES} == set(KINDS) - {"webdataset"}
    assert set(NAMES) == set(TRUTH)
    assert max(one.stat().st_size for one in SAMPLES) <= 20_480 + 512
    assert set(datafiles.CHECKED) == set(declared.KINDS)


@pytest.mark.parametrize("name", NAMES)
def test_a_whole_file_is_whole(tmp_path, name):
    assert looked(tmp_path, (FOLDER / name).read_bytes(), kind(name))[0] == "whole"


@pytest.mark.parametrize("name", NAMES)
def test_a_file_that_is_cut_is_found(tmp_path, name):
    """Whatever a reader refuses is found; what is called damaged a reader refuses."""
    data = (FOLDER / name).read_bytes()
    missed, wrong, found = [], [], 0
    for cut in places(len(data)):
        word, problem = looked(tmp_path, data[:cut], kind(name))
        taken = cut in TRUTH[name]
        found += word != "whole"
        if not taken and word == "whole":
            missed.append(cut)
        if taken and word == "damaged":
            wrong.append((cut, problem))
    assert (missed, wrong) == ([], [])
    assert found > len(places(len(data))) / 2


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_file_is_found(tmp_path, name):
    word = "mild" if kind(name) in ("tfrecord", "jsonl") else "damaged"
    assert looked(tmp_path, b"", kind(name)) == (word, "is empty (0 bytes)")


def test_what_decoders_pass_over_is_not_called_damaged(tmp_path):
    """Bytes between a scan and the next marker; another archive's compression; other pictures."""
    data = (FOLDER / "baseline0.jpg").read_bytes()
    assert looked(tmp_path, data + b"trailer", "image")[0] == "whole"
    progressive = (FOLDER / "progressive.jpg").read_bytes()
    at = progressive.index(b"\xff\xda", progressive.index(b"\xff\xda") + 2)
    stuffed = progressive[:at] + b"\x12\x34" + progressive[at:]
    assert looked(tmp_path, stuffed, "image")[0] == "whole"
    assert looked(tmp_path, b"BZh9" + bytes(50), "tar")[0] == "whole"
    assert looked(tmp_path, b"BM" + bytes(50), "image")[0] == "mild"


@pytest.mark.parametrize("name", NAMES)
def test_within_a_small_budget_a_whole_file_is_not_called_damaged(tmp_path, name):
    data = (FOLDER / name).read_bytes()
    for budget in (1, 4096, 9000, 20000):
        assert looked(tmp_path, data, kind(name), budget)[0] == "whole"


def test_a_record_whose_bytes_changed_is_found(tmp_path):
    data = bytearray((FOLDER / "plain.tfrecord").read_bytes())
    data[40] ^= 1
    assert looked(tmp_path, bytes(data), "tfrecord")[0] == "damaged"


def test_the_sum_of_tfrecord_is_castagnolis():
    """RFC 3720, B.4: 32 bytes of zeros, of ones, ascending."""
    for data, wanted in ((bytes(32), 0x8A9136AA), (b"\xff" * 32, 0x62A8AB43),
                         (bytes(range(32)), 0x46DD794E)):  # fmt: skip
        masked = ((wanted >> 15 | wanted << 17) + 0xA282EAD8) & 0xFFFFFFFF
        assert lines.masked_crc32c(data) == masked


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("x.tar", "tar"),
        ("x.TGZ", "tar"),
        ("x.tar.gz", "tar"),
        ("train.tfrecord-00000-of-00010", "tfrecord"),
        ("x.tfrecords.gz", "tfrecord"),
        ("part-0.snappy.parquet", "parquet"),
        ("x.jsonl.gz", "jsonl"),
        ("train-00000-of-00010", ""),
        ("model-00001-of-00002.safetensors", "safetensors"),
        ("n0144.JPEG", "image"),
        ("x.txt", ""),
        ("x.txt.gz", "gzip"),
        ("x\n.tar", "tar"),
        ("tar", ""),
    ],
)
def test_kinds_by_name(name, said):
    assert datafiles.kind_of(name) == said


@pytest.mark.parametrize("name", NAMES)
def test_kinds_by_beginning(name):
    data = (FOLDER / name).read_bytes()
    if kind(name) not in ("jsonl", "safetensors") and not name.endswith(("gz", "webp", "gif")):
        with open(FOLDER / name, "rb") as stream:
            found = datafiles.begins_as(datafiles.Reader(stream.fileno()))
        assert found == kind(name), data[:16]


# -- hostile bytes ----------------------------------------------------------------------------

HEADS = st.sampled_from([b"", b"PAR1", b"PK\x03\x04", b"PK\x05\x06", b"\x89PNG\r\n\x1a\n",
                         b"GIF89a", b"\xff\xd8\xff\xda\0\2", b"RIFF\xff\xff\xff\xffWEBP",
                         b"\x1f\x8b\x08\0",
                         b"\x93NUMPY\1\0", b"{", struct.pack("<Q", 2), bytes(512)])  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(HEADS, st.binary(max_size=2048), st.sampled_from(["", "PAR1"]), st.sampled_from(KINDS))
def test_any_bytes_are_answered(tmp_path_factory, head, body, tail, asked):
    folder = tmp_path_factory.mktemp("fuzz")
    word, said = looked(folder, head + body + tail.encode(), asked)
    assert word in ("whole", "mild", "damaged") and said


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(NAMES), st.data())
def test_changed_samples_are_answered(tmp_path_factory, name, data):
    content = bytearray((FOLDER / name).read_bytes())
    for _ in range(data.draw(st.integers(1, 8))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    word, said = looked(tmp_path_factory.mktemp("fuzz"), bytes(content), kind(name))
    assert word in ("whole", "mild", "damaged") and said


def test_what_unpacks_to_very_much_is_bounded(tmp_path):
    """A bomb: 64 MiB of zeros in 64 KiB; nothing of it is kept."""
    import gzip
    import resource
    import time

    data = gzip.compress(bytes(64 << 20))
    before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    for asked in ("tar", "tfrecord", "jsonl"):
        looked(tmp_path, data, asked)
    assert time.monotonic() - started < 20
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 120 << 10
