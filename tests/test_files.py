"""Files that the user names: whole, within limits, and never waited for without end."""

import os
import threading
import time

import pytest

from preflight.files import read_named


def test_a_file(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(b"x" * 100)
    assert read_named(str(path)) == b"x" * 100
    assert len(read_named(str(path), limit=10)) == 11, "so that the caller sees it is too much"


def test_what_a_writer_sends_is_read_to_its_end(tmp_path):
    """As of `<(...)` in a shell."""
    path = str(tmp_path / "pipe")
    os.mkfifo(path)

    def write():
        with open(path, "wb") as stream:
            stream.write(b"a" * 100_000)
            stream.flush()
            time.sleep(0.2)
            stream.write(b"b")

    writer = threading.Thread(target=write)
    writer.start()
    assert read_named(path) == b"a" * 100_000 + b"b"
    writer.join()


@pytest.mark.timed
def test_a_pipe_without_a_writer_is_given_up(tmp_path):
    path = str(tmp_path / "pipe")
    os.mkfifo(path)
    started = time.monotonic()
    with pytest.raises(OSError, match="nothing comes out of this pipe"):
        read_named(path, seconds=0.2)
    assert 0.2 <= time.monotonic() - started < 0.7


@pytest.mark.timed
def test_a_writer_that_falls_silent_is_given_up(tmp_path):
    path = str(tmp_path / "pipe")
    os.mkfifo(path)
    silent = os.open(path, os.O_RDWR)
    os.write(silent, b"begun")
    started = time.monotonic()
    with pytest.raises(OSError, match="nothing comes out of this pipe"):
        read_named(path, seconds=0.2)
    assert time.monotonic() - started < 0.7
    os.close(silent)


@pytest.mark.parametrize("path", ["nowhere", "."])
def test_what_cannot_be_read(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OSError):
        read_named(path)
