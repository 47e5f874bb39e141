"""Installed files against RECORD: what is told, what is rightly not, and that nothing escapes."""

import base64
import hashlib
import os
import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preflight import matrix
from preflight.probes import record
from preflight.probes.installed import first_of_each
from preflight.roots import Root
from tests.probes.fake_root import Image

SITE = "/env/lib/python3.11/site-packages"


@pytest.fixture
def image(tmp_path):
    return Image(tmp_path).folders(SITE)


def hashed(text, name="sha256"):
    digest = hashlib.new(name, text.encode()).digest()
    return f"{name}={base64.urlsafe_b64encode(digest).decode().rstrip('=')}"


def line(file, text, name="sha256"):
    return f"{file},{hashed(text, name)},{len(text)}"


def install(image, name, version, files, *more, site=SITE, by="pip"):
    """A distribution with these files, as recorded; `more` lines of RECORD that have no file."""
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    files = {**files, f"{info}/METADATA": f"Name: {name}\nVersion: {version}\n"}
    for file, text in files.items():
        image.write(os.path.normpath(f"{site}/{file}"), text)
    image.write(f"{site}/{info}/INSTALLER", by + "\n")
    lines = [line(file, text) for file, text in files.items()]
    lines += [f"{info}/RECORD,,", f"{info}/INSTALLER,{hashed('other')},5", *more]
    return image.write(f"{site}/{info}/RECORD", "\n".join(lines) + "\n")


def rows(image, thorough=False, site=SITE, progress=None):
    dists = first_of_each(image.root, [site])
    found = record.altered(image.root, dists, thorough, progress)
    return [(one.package, one.file, one.problem) for one in found]


TORCH = {
    "torch/lib/libtorch_cuda.so": "machine code",
    "torch/lib/libcudart-80664282.so.10.2": "more",
    "torch/version.py": "__version__ = '2'",
    "../../../bin/torchrun": "#!/env/bin/python",
}


@pytest.mark.skipif(not shutil.which("strip"), reason="strip is not here")
def test_a_library_that_was_stripped_is_whole_and_one_that_was_cut_is_not(image):
    install(image, "torch", "2", {"torch/lib/libc10.so": "machine code"})
    file = image.folder / f"{SITE[1:]}/torch/lib/libc10.so"
    made = build_library(file)
    ((_owner, _file, problem),) = rows(image)
    assert problem.endswith("and is whole: stripped, patched or another build")
    subprocess.run(["strip", "--strip-unneeded", str(file)], check=True)
    stripped = file.read_bytes()
    assert len(stripped) < made
    ((_owner, _file, problem),) = rows(image)
    assert problem.startswith(f"has {len(stripped)} bytes, recorded are 12, and is whole")
    for cut in (40, 64, len(stripped) // 2, len(stripped) - 1):
        file.write_bytes(stripped[:cut])
        assert rows(image)[0][2] == f"has {cut} bytes, recorded are 12"


def build_library(file):
    """Compiles a library with symbols that strip removes; its size."""
    source = "static int a(void) { return 1; } int b(void) { return a(); }"
    command = ["cc", "-g", "-shared", "-fPIC", "-x", "c", "-", "-o", str(file)]
    subprocess.run(command, input=source.encode(), check=True)
    return file.stat().st_size


def test_an_environment_as_it_was_installed(image):
    install(image, "torch", "2.6.0", TORCH)
    install(image, "other", "1", {"other/__init__.py": "x"})
    assert rows(image) == [] and rows(image, thorough=True) == []


def test_a_library_that_is_gone_or_of_another_size(image):
    install(image, "torch", "2.6.0", TORCH)
    (image.folder / f".{SITE}/torch/lib/libcudart-80664282.so.10.2").unlink()
    image.write(f"{SITE}/torch/lib/libtorch_cuda.so", "stripped")
    assert sorted(rows(image)) == [
        ("torch", "torch/lib/libcudart-80664282.so.10.2", "is missing"),
        ("torch", "torch/lib/libtorch_cuda.so", "has 8 bytes, recorded are 12"),
    ]


def test_by_default_only_libraries_of_what_matters(image):
    install(image, "torch", "2.6.0", TORCH)
    install(image, "other", "1", {"other/_c.so": "x"})
    image.write(f"{SITE}/torch/version.py", "edited, and longer than before")
    (image.folder / f".{SITE}/other/_c.so").unlink()
    image.write(f"{SITE}/torch/lib/libtorch_cuda.so", "MACHINE CODE")  # as long as before
    assert rows(image) == []
    assert sorted(rows(image, thorough=True)) == [
        ("other", "other/_c.so", "is missing"),
        ("torch", "torch/lib/libtorch_cuda.so", "has another sha256"),
        ("torch", "torch/version.py", "has 30 bytes, recorded are 17"),
    ]


def test_edited_metadata_is_told_by_name(image):
    install(image, "torch", "2.6.0", TORCH)
    image.write(f"{SITE}/torch-2.6.0.dist-info/METADATA", "Name: torch\nVersion: 9.9.9\n")
    (one,) = rows(image, thorough=True)
    assert one == ("torch", "torch-2.6.0.dist-info/METADATA", "has another sha256")


def test_what_is_rightly_not_as_recorded(image):
    pyc = "torch/__pycache__/a.cpython-311.pyc"
    more = [f"{pyc},,", f"{pyc},{hashed('x')},1", line("torch-2.dist-info/REQUESTED", "x")]
    install(image, "torch", "2", TORCH, *more)
    image.write(f"{SITE}/torch-2.dist-info/direct_url.json", "{}")
    assert rows(image, thorough=True) == []


@pytest.mark.parametrize("by", ["conda", "debian"])
def test_installers_that_change_files_afterwards_are_not_held_to_it(image, by):
    install(image, "torch", "2", TORCH, line("torch/gone.so", "x"), by=by)
    assert rows(image) == [] and rows(image, thorough=True) == []


@pytest.mark.parametrize("name", ["sha256", "sha384", "sha512"])
def test_hashes_that_are_trusted(image, name):
    install(image, "x", "1", {}, line("a.txt", "right", name), line("b.txt", "right", name) + "\r")
    image.write(f"{SITE}/a.txt", "right").write(f"{SITE}/b.txt", "wrong")
    assert rows(image, thorough=True) == [("x", "b.txt", f"has another {name}")]


@pytest.mark.parametrize(
    "value", ["md5=CY9rzUYh03PK3k6DJie09g", "sha1=x", "sha256=short", "sha256"]
)
def test_hashes_that_are_not(image, value):
    install(image, "x", "1", {}, f"a.txt,{value},4")
    image.write(f"{SITE}/a.txt", "test")
    assert rows(image, thorough=True) == []
    image.write(f"{SITE}/a.txt", "other")
    assert rows(image, thorough=True) == [("x", "a.txt", "has 5 bytes, recorded are 4")]


def test_names_in_quotes(image):
    odd = 'a, "b".so'
    install(image, "torch", "2", {}, f'"a, ""b"".so",{hashed("x")},1', '"broken')
    assert rows(image) == [("torch", odd, "is missing")]
    image.write(f"{SITE}/{odd}", "y")
    assert rows(image) == []
    assert rows(image, thorough=True) == [("torch", odd, "has another sha256")]


def test_lines_that_lead_out_are_not_followed(tmp_path):
    outside = tmp_path / "secret.so"
    outside.write_text("secret")
    image = Image(tmp_path / "root").folders(SITE)
    wrong = hashed("not the secret")
    files = [
        "/etc/x.so",
        f"{outside}",
        "../../../../x.so",
        "../" * 30 + "x.so",
        "a\0b.so",
        "x" * 9000,
    ]
    files += [f"torch/{'../' * 40}{outside}", ".", "..", "../../..", "~/x.so"]
    install(image, "torch", "2", {}, *[f"{one},{wrong},14" for one in files])
    image.link(f"{SITE}/link.so", str(outside))
    image.write("/x.so", "of the root, and not of this environment")
    image.write("/etc/x.so", "too")
    found = rows(image) + rows(image, thorough=True)
    assert {one[1] for one in found} == {"~/x.so", ".", ".."}  # the last two are directories
    live = record.altered(Root(), first_of_each(Root(), [f"{tmp_path}/root{SITE}"]), True)
    assert {one.file for one in live} == {"~/x.so", ".", ".."}


def test_a_target_directory_holds_only_what_lies_in_it(image):
    away = [line("../../bin/tool", "x"), line("torch/a.so", "x")]
    install(image, "torch", "2", {}, *away, site="/target")
    assert rows(image, site="/target") == [("torch", "torch/a.so", "is missing")]


def test_what_is_no_file_is_not_opened(image):
    install(image, "torch", "2", {}, line("a.so", "x"), line("b.so", "x"), line("c.so", "x"))
    os.mkfifo(str(image.folder / f".{SITE}/a.so"))
    image.folders(f"{SITE}/b.so").link(f"{SITE}/c.so", "c.so")
    kinds = {"a.so": "is no regular file", "b.so": "is no regular file", "c.so": "is missing"}
    assert {one[1]: one[2] for one in rows(image)} == kinds
    assert {one[1]: one[2] for one in rows(image, thorough=True)} == kinds


def test_no_record_says_nothing(image):
    image.dist(SITE, "torch", "2").write(
        f"{SITE}/triton.egg-info/PKG-INFO", "Name: a\nVersion: 1\n"
    )
    image.folders(f"{SITE}/jax-1.dist-info/RECORD").dist(SITE, "jax", "1")
    assert rows(image, thorough=True) == []


def test_a_record_that_is_too_large_is_told(image, monkeypatch):
    monkeypatch.setattr(record, "RECORD_LIMIT", 100)
    install(image, "torch", "2", TORCH)
    assert rows(image) == [("torch", "RECORD", "is larger than 100 bytes, and not read")]


def test_a_record_with_too_many_lines_is_told(image, monkeypatch):
    monkeypatch.setattr(record, "LINES", 2)
    install(image, "torch", "2", {"a.so": "x", "b.so": "x"}, line("c.so", "x"))
    ((_package, file, problem),) = rows(image)
    assert file == "RECORD" and problem.startswith("has more than 2 lines")


def nccls(image, there):
    """Two packages that own one file: whichever was unpacked last is there."""
    file = "nvidia/nccl/lib/libnccl.so.2"
    install(image, "nvidia-nccl-cu12", "2.27.3", {file: "of cu12"})
    install(image, "nvidia-nccl-cu13", "2.30.7", {file: "of cuda 13"})
    return image.write(f"{SITE}/{file}", there)


@pytest.mark.parametrize(
    "there, package, end",
    [
        ("of cu12", "nvidia-nccl-cu13", "the one there is that of nvidia_nccl_cu12 2.27.3"),
        ("of cuda 13", "nvidia-nccl-cu12", "the one there is that of nvidia_nccl_cu13 2.30.7"),
        ("neither", "nvidia-nccl-cu13", ""),
        ("of none of them", "nvidia-nccl-cu12", "and is as neither recorded it"),
    ],
)
def test_a_file_of_two_packages_is_told_once_with_both(image, there, package, end):
    nccls(image, there)
    for thorough in (False, True):
        (one,) = rows(image, thorough)
        if there == "neither":  # as long as that of cu12: only its hash tells
            assert one[2].endswith("neither recorded it" if thorough else "nccl_cu12 2.27.3")
            continue
        assert one[0] == package and one[1] == "nvidia/nccl/lib/libnccl.so.2"
        both = "belongs to nvidia_nccl_cu12 2.27.3 and nvidia_nccl_cu13 2.30.7, with other content"
        assert one[2] == f"{both}; {end}"


def test_a_file_of_two_packages_that_is_gone(image):
    nccls(image, "")
    (image.folder / f".{SITE}/nvidia/nccl/lib/libnccl.so.2").unlink()
    ((_package, _file, problem),) = rows(image)
    assert problem.startswith("is missing (nvidia_nccl_cu12 2.27.3 and nvidia_nccl_cu13")


def test_one_content_in_two_packages_is_none(image):
    install(image, "nvidia-a", "1", {"nvidia/x.so": "same", "nvidia/__init__.py": ""})
    install(image, "nvidia-b", "1", {"nvidia/x.so": "same", "nvidia/__init__.py": ""})
    assert rows(image) == [] and rows(image, thorough=True) == []


def test_many_files_of_one_package_are_counted(image):
    install(image, "torch", "2", {}, *[line(f"lib{one}.so", "x") for one in range(100)])
    found = rows(image)
    assert len(found) == record.NAMED + 1
    assert found[-1] == ("torch", "", "80 more files are not as recorded")


def test_progress_counts_to_the_end(image):
    files = {f"x/{one}.bin": "y" * one * 1000 for one in range(30)}
    install(image, "x", "1", files)
    told = []
    assert rows(image, thorough=True, progress=lambda *one: told.append(one)) == []
    assert told[-1][0] == told[-1][1] and told == sorted(told)


def test_every_extension_of_the_table_matters():
    table = matrix.load()._tables["extensions"]["extension_package"]
    names = {one for row in table for one in [row["package"], *row.get("also", [])]} - {"*"}
    assert [one for one in sorted(names) if not record.matters(one)] == []


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=400) | st.text(alphabet='a.so,=/"\n\r\0-1', max_size=200).map(str.encode))
def test_no_record_breaks_it(tmp_path_factory, data):
    image = Image(tmp_path_factory.mktemp("fuzz"))
    install(image, "torch", "2", {})
    (image.folder / f".{SITE}/torch-2.dist-info/RECORD").write_bytes(data)
    for thorough in (False, True):
        for package, file, problem in rows(image, thorough):
            assert package == "torch" and problem and not file.startswith("/")
    list(record.records(data))
