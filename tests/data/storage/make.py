"""Writes the samples in this folder with the writers that people use, and what real readers say of
each when it is cut off: `truth.json`, {sample: the cuts of `places` that a reader still takes}.

python -m venv V; V/bin/pip install pyarrow safetensors pillow crc32c tfrecord webdataset numpy
V/bin/python make.py [PYTHON-WITH-TORCH]

Made with pyarrow 26.0.1, safetensors 0.8.0, Pillow 13.0.0, tfrecord 1.14.6, webdataset 1.0.2,
numpy 2.4.6, torch 2.14.1 and GNU tar 1.34.
"""

import gzip
import io
import json
import random
import struct
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import crc32c
import numpy
import pyarrow as pa
import pyarrow.parquet as pq
import safetensors.numpy
import tfrecord
import webdataset
from PIL import Image
from places import places

HERE = Path(__file__).parent
SOURCE = random.Random(6)


def noise(size):
    return SOURCE.randbytes(size)


def write():
    tars()
    records()
    tables()
    images()
    with zipfile.ZipFile(HERE / "plain.zip", "w", zipfile.ZIP_DEFLATED) as out:
        for number in range(4):
            out.writestr(f"{number}.txt", "words " * 50)
        out.comment = b"a comment"
    with zipfile.ZipFile(HERE / "large.zip", "w") as out, out.open(
        "big.bin", "w", force_zip64=True
    ) as stream:
        stream.write(noise(600))
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as out:
        out.writestr("inside.txt", "x" * 30)
    with zipfile.ZipFile(HERE / "nested.zip", "w") as out:  # stored: its end looks like an end
        out.writestr("inner.zip", inner.getvalue())
        out.writestr("more.bin", noise(300))
    if sys.argv[1:]:
        code = "import sys, torch; torch.save({'w': torch.arange(64.)}, sys.argv[1])"
        subprocess.run([sys.argv[1], "-c", code, str(HERE / "checkpoint.pt")], check=True)


def tars():
    with tarfile.open(HERE / "pax.tar", "w", format=tarfile.PAX_FORMAT) as out:
        for name in ("a.jpg", "b" * 120 + ".jpg", "ü.txt", "empty.txt"):
            one = tarfile.TarInfo(name)
            one.size = 0 if name.startswith("empty") else 700
            out.addfile(one, io.BytesIO(noise(one.size)))
        link = tarfile.TarInfo("link.jpg")
        link.type, link.linkname = tarfile.SYMTYPE, "a.jpg"
        out.addfile(link)
    work = HERE / "work"
    work.mkdir()
    (work / ("n" * 130)).write_bytes(noise(900))
    (work / "sparse").write_bytes(b"")
    with open(work / "sparse", "r+b") as stream:
        for at in range(1 << 16, 5 << 16, 1 << 16):
            stream.seek(at)
            stream.write(b"x" * 100)
    names = [str(one.relative_to(work)) for one in sorted(work.iterdir())]
    subprocess.run(["tar", "--format=gnu", "-S", "-b", "2", "-cf", str(HERE / "gnu.tar"), "-C",
                    str(work), *names], check=True)  # fmt: skip
    for one in work.iterdir():
        one.unlink()
    work.rmdir()
    with webdataset.TarWriter(str(HERE / "webdataset.tar")) as out:
        for number in range(4):
            out.write({"__key__": f"{number:06}", "cls": number, "bin": noise(300)})
    with tarfile.open(HERE / "packed.tar.gz", "w:gz") as out:
        for number in range(4):
            one = tarfile.TarInfo(f"{number}.bin")
            one.size = 500
            out.addfile(one, io.BytesIO(noise(500)))


def records():
    writer = tfrecord.TFRecordWriter(str(HERE / "plain.tfrecord"))
    for number in range(5):
        writer.write({"image": (noise(200), "byte"), "label": (number, "int")})
    writer.close()
    data = (HERE / "plain.tfrecord").read_bytes()
    (HERE / "packed.tfrecord.gz").write_bytes(gzip.compress(data, mtime=0))
    rows = [json.dumps({"text": "words — " * 5, "n": n}, ensure_ascii=False) for n in range(12)]
    (HERE / "plain.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    packed = gzip.compress("\n".join(rows).encode(), mtime=0)
    (HERE / "packed.jsonl.gz").write_bytes(packed)


def tables():
    table = pa.table({"id": list(range(300)), "text": [f"row {n % 7}" for n in range(300)],
                      "vector": [[float(n), 1.0] for n in range(300)]})  # fmt: skip
    pq.write_table(table, HERE / "groups.parquet", row_group_size=100)
    pq.write_table(table, HERE / "plain.parquet", compression="none", use_dictionary=False,
                   version="1.0", data_page_version="2.0")  # fmt: skip
    pq.write_table(table.slice(0, 0), HERE / "norows.parquet")
    weights = {"a": numpy.ones((3, 40), "f4"), "b": numpy.zeros(7, "i8")}
    safetensors.numpy.save_file(weights, HERE / "model.safetensors", metadata={"format": "np"})
    numpy.save(HERE / "array.npy", numpy.arange(300, dtype="f8").reshape(3, 100))
    numpy.save(HERE / "words.npy", numpy.array(["ab", "cde"] * 40))
    numpy.savez(HERE / "arrays.npz", a=numpy.arange(50), b=numpy.ones(20))


def images():
    picture = Image.frombytes("RGB", (48, 40), noise(48 * 40 * 3))
    for number in range(2):
        picture.save(HERE / f"baseline{number}.jpg", quality=75, exif=noise(50) if number else b"")
    picture.save(HERE / "progressive.jpg", progressive=True)
    picture.save(HERE / "plain.png")
    picture.save(HERE / "plain.webp", quality=60)
    frames = [Image.frombytes("RGB", (24, 20), noise(24 * 20 * 3)) for _ in range(3)]
    frames[0].save(HERE / "moving.gif", save_all=True, append_images=frames[1:])


# -- what the real readers say ----------------------------------------------------------------


def takes(name, data):
    """Whether the reader that people use for it reads all of this."""
    try:
        _read(name, data)
    except Exception:  # noqa: BLE001 - each library has its own
        return False
    return True


def _read(name, data):
    stream = io.BytesIO(data)
    if ".tar" in name:
        with tarfile.open(fileobj=stream, mode="r|*") as archive:
            for one in archive:
                if one.isreg() and len(archive.extractfile(one).read()) != one.size:
                    raise ValueError("short")
        if name.endswith("gz"):  # the stream's own end, which tarfile does not look for
            gzip.decompress(data)
    elif ".tfrecord" in name:
        _records(gzip.decompress(data) if name.endswith("gz") else data)
    elif ".jsonl" in name:
        text = (gzip.decompress(data) if name.endswith("gz") else data).decode()
        for line in text.splitlines():
            json.loads(line)
    elif name.endswith((".zip", ".npz", ".pt")):
        with zipfile.ZipFile(stream) as archive:
            assert archive.testzip() is None and (
                name != "nested.zip" or len(archive.namelist()) == 2
            )
    elif name.endswith(".parquet"):
        pq.read_table(stream)
    elif name.endswith(".safetensors"):
        safetensors.numpy.load(data)
    elif name.endswith(".npy"):
        numpy.load(stream)
    else:
        picture = Image.open(stream)
        for number in range(getattr(picture, "n_frames", 1)):
            picture.seek(number)
            picture.load()


def _records(data):
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        if length + 16 > len(data) or _masked(data[:8]) != data[8:12]:
            raise ValueError("cut off")
        if _masked(data[12 : 12 + length]) != data[12 + length : 16 + length]:
            raise ValueError("wrong sum")
        data = data[16 + length :]


def _masked(data):
    value = crc32c.crc32c(data)
    return struct.pack("<I", (((value >> 15) | (value << 17)) + 0xA282EAD8) & 0xFFFFFFFF)


def truth():
    """What the readers say of every sample at every place."""
    said = {}
    for path in sorted(HERE.iterdir()):
        if path.suffix in (".py", ".json", ".pyc") or not path.is_file():
            continue
        data = path.read_bytes()
        assert takes(path.name, data), path.name
        said[path.name] = [cut for cut in places(len(data)) if takes(path.name, data[:cut])]
    text = ",\n".join(f" {json.dumps(name)}: {json.dumps(cuts)}" for name, cuts in said.items())
    (HERE / "model.safetensors").chmod(0o644)
    (HERE / "truth.json").write_text("{\n" + text + "\n}\n")


if __name__ == "__main__":
    write()
    truth()
