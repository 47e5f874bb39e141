"""host/path-unusable: what is wrong with a declared path, what is not known, what is fine."""

import pytest

from preflight import snapshot as s
from preflight import verdict
from preflight.rules import storage
from preflight.rules.registry import Finding, NotApplicable, Passed, Undecided, rule
from tests.rules.build import M, word

NAME = "host/path-unusable"
DATA = {
    "path": "/mnt/data", "at": "/mnt/data", "role": "data", "place": "data[0]", "kind": "auto",
    "state": "directory", "blank": "no", "files": 120, "bytes": 40 * 10**9, "listed": "all",
    "weighed": "all", "sampled": 8, "read": 32 * 10**6, "throughput": 300 * 10**6,
    "mount": "/mnt/data", "mount_kind": "fuse.ossfs", "mount_words": "an OSS mount by ossfs",
}  # fmt: skip
OUTPUT = {"path": "/mnt/out", "at": "/mnt/out", "role": "output", "place": "output",
          "state": "directory", "writable": "yes", "free": 10**12, "space": 2 * 10**12}  # fmt: skip
SAVED = {"path": "/mnt/out/ck", "at": "/mnt/out/ck", "role": "checkpoint", "create": "yes",
         "place": "output.checkpoint", "state": "directory", "writable": "yes", "blank": "no",
         "newest": "step-20", "newest_at": "2026-11-29T10:00:00Z"}  # fmt: skip


def seen(*rows, damaged=(), origin="live"):
    """A snapshot of declared paths, as the probe leaves it."""
    notes = "; ".join(one["note"] for one in rows if one.get("note"))
    return s.Snapshot(
        origin=origin,
        storage=s.Storage(
            paths=s.known(tuple(s.StoragePath(**one) for one in rows), "policy"),
            damaged=s.known(tuple(s.StorageFile(**one) for one in damaged), "the files"),
            complete=s.unknown(notes) if notes else s.known(True, "policy"),
        ),
    )


def say(row, origin="live", damaged=(), **changed):
    """(words, outcomes) on one path."""
    snapshot = seen({**row, **changed}, damaged=damaged, origin=origin)
    found = list(rule(NAME).function(snapshot, M))
    return [word(NAME, one) for one in found], found


def one_finding(row, damaged=(), **changed):
    _words, found = say(row, damaged=damaged, **changed)
    (one,) = [outcome for outcome in found if isinstance(outcome, Finding)]
    return one


@pytest.mark.parametrize("row", [DATA, OUTPUT, SAVED], ids=["data", "output", "checkpoint"])
def test_what_is_fine_passes(row):
    words, (one,) = say(row)
    assert words == ["pass"] and isinstance(one, Passed) and one.subject == row["at"]


@pytest.mark.parametrize(
    ("row", "changed", "text"),
    [
        (DATA, {"state": "missing", "mount_words": "", "own_disk": "yes"},
         "/mnt/data is not there, and nothing is mounted there"),
        (DATA, {"state": "missing", "own_disk": ""}, "/mnt/data is not there"),
        (DATA, {"state": "", "unset": "DATA_DIR", "at": "", "path": "${DATA_DIR}/x"},
         "${DATA_DIR}/x: DATA_DIR is not set"),
        (DATA, {"state": "", "problem": "Permission denied"},
         "cannot be read: Permission denied (on an OSS mount by ossfs)"),
        (DATA, {"problem": "Transport endpoint is not connected"}, "is not connected"),
        (DATA, {"state": "other"}, "is not a directory or a file"),
        (DATA, {"blank": "yes", "files": 0, "bytes": 0}, "/mnt/data is empty"),
        (DATA, {"files": 0, "bytes": 0, "glob": "*.tar"}, "no file in /mnt/data matches *.tar"),
        (DATA, {"files": 0, "bytes": 0}, "/mnt/data has no files"),
        (DATA, {"files_min": 121}, "has 120 files, at least 121 files are asked for"),
        (DATA, {"files_max": 119}, "has 120 files, at most 119 files are asked for"),
        (DATA, {"files_max": 119, "listed": "at least"}, "at most 119"),
        (DATA, {"bytes_min": 41 * 10**9}, "has 40 GB, at least 41 GB are asked for"),
        (DATA, {"bytes_max": 39 * 10**9, "weighed": "at least"}, "at most 39 GB"),
        (DATA, {"state": "file", "files": 1, "bytes": 0}, "/mnt/data is empty"),
        (OUTPUT, {"state": "missing"}, "/mnt/out is not there"),
        (OUTPUT, {"state": "missing", "create": "yes", "writable": "no", "parent": "/mnt"},
         "/mnt/out is not there and cannot be made in /mnt"),
        (OUTPUT, {"state": "file", "writable": ""}, "/mnt/out is not a directory"),
        (OUTPUT, {"writable": "no", "problem": "Read-only file system"},
         "cannot be written: Read-only file system"),
        (OUTPUT, {"writable": "no", "problem": "No space left on device"}, "No space left"),
        (OUTPUT, {"free_min": 2 * 10**12}, "has 1 TB free, 2 TB are asked for"),
        (OUTPUT, {"free_min": 1, "free": 0}, "has 0 bytes free, 1 bytes are asked for"),
        (OUTPUT, {"inodes_min": 100, "inodes_all": 1000, "inodes": 99}, "has 99 inodes free"),
        (SAVED, {"state": "missing", "writable": "no"}, "cannot be made"),
    ],
)  # fmt: skip
def test_what_is_wrong_fails(row, changed, text):
    words, _found = say(row, **changed)
    assert words == ["fail"]
    one = one_finding(row, **changed)
    assert text in one.summary and all(one.fix) and one.evidence


@pytest.mark.parametrize(
    ("row", "changed"),
    [
        (DATA, {"files_min": 120, "files_max": 120, "bytes_min": 4 * 10**10}),
        (DATA, {"listed": "at least", "weighed": "at least", "files_min": 100, "note": "stopped"}),
        (DATA, {"listed": "the first rank lists it", "weighed": "the first rank lists it",
                "files": 0, "bytes": 0, "files_min": 10**6, "sampled": 0}),
        (DATA, {"blank": "yes", "files": 0, "bytes": 0, "may_be_empty": "yes"}),
        (DATA, {"files": 0, "bytes": 0, "may_be_empty": "yes"}),
        (DATA, {"throughput_min": 10**12, "throughput": 0, "read": 0}),
        (DATA, {"throughput_min": 10**8, "read": 100}),
        (OUTPUT, {"state": "missing", "create": "yes", "parent": "/mnt"}),
        (OUTPUT, {"free_min": 10**12}),
        (OUTPUT, {"inodes_min": 100, "inodes_all": 0}),  # without a limit
        (SAVED, {"state": "missing", "newest": ""}),
        (SAVED, {"blank": "yes", "newest": ""}),
    ],
)  # fmt: skip
def test_its_twin_passes(row, changed):
    assert say(row, **changed)[0] == ["pass"]


@pytest.mark.parametrize(
    ("row", "changed", "text"),
    [
        (DATA, {"hung": "yes", "state": "", "files": 0, "listed": "", "blank": "", "note": "no"},
         "can be used"),
        (DATA, {"hung": "yes", "note": "no answer"}, "can be used"),
        (DATA, {"listed": "at least", "files_min": 121, "note": "stopped"}, "how many files"),
        (DATA, {"weighed": "at least", "bytes_min": 10**12, "note": "stopped"}, "how large"),
        (DATA, {"listed": "at least", "files": 0, "note": "x"}, "there are files"),
        (DATA, {"throughput_min": 10**9, "read": 10**6, "throughput": 10**8}, "is too small"),
        (OUTPUT, {"writable": "", "note": "no answer"}, "can be written"),
        (OUTPUT, {"free_min": 10, "space": 0, "note": "it does not say"}, "how much is free"),
    ],
)  # fmt: skip
def test_what_is_not_known_is_not_decided(row, changed, text):
    words, found = say(row, **changed)
    assert words == ["unknown"]
    assert isinstance(found[0], Undecided) and text in found[0].note
    assert found[0].missing == ("storage.complete",)


def test_what_was_found_before_a_mount_hung_is_said_besides():
    bad = {"at": "/mnt/data", "name": "a.tar", "problem": "is cut off", "kind": "tar"}
    words, _found = say(DATA, damaged=[bad], hung="yes", note="no answer")
    assert words == ["fail", "unknown"]


def test_a_slow_sample_warns():
    one = one_finding(DATA, throughput_min=400 * 10**6)
    assert one.severity == "warn" and "300 MB/s, 400 MB/s are asked for" in one.summary
    # A few small files that took long are slow, too.
    assert one_finding(DATA, throughput_min=10**6, read=10**6, throughput=10**5).severity == "warn"


def test_a_file_that_is_not_whole():
    bad = {"at": "/mnt/data", "name": "x/b c.parquet", "bytes": 5_000, "kind": "parquet",
           "problem": "is cut off: it does not end with PAR1"}  # fmt: skip
    one = one_finding(DATA, damaged=[bad])
    assert one.summary == (
        "data is not whole: /mnt/data/x/b c.parquet is cut off: it does not end with PAR1"
    )
    assert "sha256sum '/mnt/data/x/b c.parquet'" in one.fix[0]
    assert one.sources == ("parquet-format",) and one.lasting
    assert "(and 1 more)" in one_finding(DATA, damaged=[bad, {**bad, "name": "y"}]).summary
    assert "(and 6 more)" in one_finding(DATA, damaged=[bad], empties=7).summary


def test_what_readers_pass_over_only_warns():
    bad = {"at": "/mnt/data", "name": "a.tar", "problem": "has no end-of-archive", "mild": "yes"}
    assert say(DATA, damaged=[bad])[0] == ["warn"]
    hard = {**bad, "name": "b.tar", "mild": ""}
    assert say(DATA, damaged=[bad, hard])[0] == ["fail", "warn"]


def test_a_newest_checkpoint_that_is_not_whole_warns():
    bad = {"at": "/mnt/out/ck", "name": "step-20/model.safetensors", "problem": "is cut off",
           "mild": "yes"}  # fmt: skip
    one = one_finding(SAVED, damaged=[bad])
    assert one.severity == "warn" and "step-20/model.safetensors" in one.summary


def test_other_files_are_other_paths():
    assert say(DATA, damaged=[{"at": "/elsewhere", "name": "x", "problem": "is cut off"}])[0] == [
        "pass"
    ]


@pytest.mark.parametrize(
    ("row", "changed"),
    [
        (DATA, {"state": "missing"}),
        (DATA, {"unset": "DATA", "state": ""}),
        (OUTPUT, {"writable": ""}),
        (OUTPUT, {"state": "missing", "writable": ""}),
        (SAVED, {"state": "missing", "writable": ""}),
    ],
)
def test_in_a_directory_a_mount_may_bring_it(row, changed):
    words, (one,) = say(row, origin="directory", **changed)
    assert words == ["n/a"] and isinstance(one, NotApplicable)
    assert say(DATA, origin="directory")[0] == ["pass"]
    assert say(DATA, origin="directory", problem="Input/output error")[0] == ["fail"]


def test_nothing_is_declared():
    (one,) = rule(NAME).function(s.Snapshot(), M)
    assert isinstance(one, NotApplicable)
    lost = s.Snapshot(storage=s.Storage(paths=s.unknown("the probe crashed")))
    (one,) = rule(NAME).function(lost, M)
    assert isinstance(one, Undecided)


# -- what comes of it -------------------------------------------------------------------------


def judged(*rows, damaged=()):
    return verdict.judge(seen(*rows, damaged=damaged), M)


def test_what_a_retry_may_cure_exits_with_75():
    assert verdict.exit_code(judged({**DATA, "state": "missing"})) == 75
    assert verdict.exit_code(judged({**OUTPUT, "writable": "no", "problem": "x"})) == 75
    cut = {"at": "/mnt/data", "name": "a.tar", "problem": "is cut off"}
    assert verdict.exit_code(judged(DATA, damaged=[cut])) == 78
    unread = {**cut, "problem": "cannot be read: Input/output error"}
    assert verdict.exit_code(judged(DATA, damaged=[unread])) == 75
    assert verdict.exit_code(judged({**DATA, "unset": "A", "state": ""})) == 78
    assert (
        verdict.exit_code(judged({**DATA, "state": "missing"}, {**OUTPUT, "state": "file"})) == 78
    )


def test_whole_data_alone_is_no_pass():
    """Whether the stack runs is the question; data says nothing of it."""
    assert judged(DATA).verdict == "unknown"


def test_a_mount_that_hangs_makes_the_verdict_unknown_with_its_reason():
    report = judged({**DATA, "hung": "yes", "note": "no answer from an OSS mount by ossfs"})
    (missing,) = [one for one in report.unknowns if one.rule == NAME]
    assert missing.reason == "no answer from an OSS mount by ossfs" and missing.looked
    assert report.verdict == "unknown" and "ls -l" in missing.how_to_know


@pytest.mark.parametrize(
    ("row", "changed", "words"),
    [
        (DATA, {}, "/mnt/data 120 files, 40 GB, read at 300 MB/s (an OSS mount by ossfs)"),
        (DATA, {"files": 1, "bytes": 12, "listed": "at least", "read": 5},
         "/mnt/data at least 1 file, 12 bytes (an OSS mount by ossfs)"),
        (DATA, {"state": "missing"}, "/mnt/data is not there"),
        (DATA, {"hung": "yes"}, "/mnt/data gives no answer (an OSS mount by ossfs)"),
        (OUTPUT, {}, "/mnt/out 1 TB free"),
        (OUTPUT, {"state": "missing", "create": "yes"}, "/mnt/out is not there yet"),
        (SAVED, {}, "/mnt/out/ck newest is step-20 of 2026-11-29T10:00:00Z"),
    ],
)  # fmt: skip
def test_a_path_in_a_line(row, changed, words):
    assert storage.seen(s.StoragePath(**{**row, **changed})) == words


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "0 bytes"), (999, "999 bytes"), (1000, "1 kB"), (1234, "1.23 kB"), (999_999, "999 kB"),
     (80_100_000_000, "80.1 GB"), (256 * 2**40, "281 TB"), (10**19, "10,000 PB")],
)  # fmt: skip
def test_sizes(count, words):
    assert storage.size(count) == words


def test_words_for_a_shell():
    import shlex

    for text in ("/a/b", "/a b", "/it's", "$(rm -rf /)", "/a\nb"):
        assert shlex.split(storage.quoted(text)) == [text]
