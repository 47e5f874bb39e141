"""Requirements files, held against pip's own parser: what it reads, and what it refuses."""

import logging
import time
from pathlib import Path
from typing import Any, List, Optional, Tuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet

from preflight.lockfiles import requirements
from preflight.lockfiles.model import BadLock, normalize

# Before 24.1 pip took versions that are none.
pytest.importorskip("pip", minversion="24.1")
req_file = pytest.importorskip("pip._internal.req.req_file")
constructors = pytest.importorskip("pip._internal.req.constructors")
PipSession = pytest.importorskip("pip._internal.network.session").PipSession
logging.getLogger("pip").setLevel(logging.CRITICAL)

Row = Tuple[str, str, str, Tuple[str, ...], str, Tuple[str, ...]]


def theirs(file: Path) -> Optional[List[Row]]:
    """(name, specifier, marker, extras, direct reference or not, hashes) of pip's, or refused."""
    found = []
    try:
        for one in req_file.parse_requirements(str(file), PipSession()):
            made = constructors.install_req_from_parsed_requirement(one)
            if made.editable or made.req is None:
                continue
            hashes = {
                f"{kind}:{digest.lower()}"
                for kind, digests in made.hashes(trust_internet=True)._allowed.items()
                for digest in digests
            }
            spec = SpecifierSet() if made.link else made.req.specifier
            found.append(
                (
                    normalize(made.req.name),
                    str(spec),
                    str(made.markers or ""),
                    tuple(sorted(made.extras)),
                    "direct" if made.link else "",
                    tuple(sorted(hashes)),
                )
            )
    except Exception:  # noqa: BLE001 - whatever pip raises, it refuses the file
        return None
    return found


def ours(given_: str) -> Optional[List[Row]]:
    from packaging.markers import Marker

    try:
        entries = requirements.parse(given_).entries
    except BadLock:
        return None
    return [
        (
            one.name,
            str(SpecifierSet("" if one.url else one.spec)),
            str(Marker(one.marker)) if one.marker else "",
            one.extras,
            "direct" if one.url else "",
            tuple(sorted(set(one.hashes))),
        )
        for one in entries
    ]


# `--global-option` and `--install-option`, which older pips took and wrote, are read.
SHA = "a" * 64
LINES = [
    "torch==2.6.0",
    "torch == 2.6.0 ",
    "torch==2.6.0+cu124",
    "torch==2.6.0+CU124",
    "Torch_Geometric[a,b_c]>=1,<2",
    "torch (==2.6.0)",
    "torch>=2.0 ; python_version < '3.12'",
    "torch>=2.0; python_version < '3.12' and sys_platform == \"linux\"",
    "torch;sys_platform=='linux'",
    "torch==2.6.0;sys_platform=='linux'",
    "torch==2.6.*",
    "torch===2.6.0-odd",
    "torch~=2.6",
    "torch==1!2.0.post1.dev3",
    "torch==2.6.0rc1",
    "torch==v2.6.0",
    "torch[]==2.6.0",
    "torch [x] == 2",
    "a.b-c__d==1",
    "torch @ https://e.org/torch-2.6.0-py3-none-any.whl",
    "torch@https://e.org/torch-2.6.0-py3-none-any.whl",
    "torch[x] @ https://e.org/t.zip ; sys_platform == 'linux'",
    "torch @ git+https://e.org/t@main",
    f"torch @ https://e.org/t.zip#sha256={SHA}",
    f"torch==2.6.0 --hash=sha256:{SHA}",
    f"torch==2.6.0 --hash sha256:{SHA} --hash=sha256:{SHA[:-1]}b",
    f"torch==2.6.0 ; python_version < '3.12' --hash=sha256:{SHA}",
    f"torch==2.6.0 --hash=sha512:{'b' * 128}",
    f"torch==2.6.0 --hash=md5:{'b' * 32}",
    "torch==2.6.0 --hash=nothing",
    "torch==2.6.0 --config-settings=a=b",
    "torch==2.6.0 --config-settings a=b",
    "torch==2.6.0 --nothing",
    "torch==2.6.0 --no-binary torch",
    "torch==2.6.0 -i https://e.org",
    "--index-url https://e.org/simple",
    "--index-url=https://e.org/simple",
    "-i https://e.org/simple",
    "-ihttps://e.org/simple",
    "--extra-index-url https://e.org/simple",
    "--find-links https://e.org/",
    "--no-index",
    "--pre",
    "--prefer-binary",
    "--require-hashes",
    "--no-binary :all:",
    "--only-binary=:all:",
    "--trusted-host e.org",
    "--use-feature=fast-deps",
    "--nothing",
    "--index-url",
    "--index https://e.org",
    "--extra-index https://e.org",
    "--find https://e.org",
    "--pre --no-index",
    "--index-url https://e.org --extra-index-url https://f.org",
    "# a comment",
    "torch==2.6.0 # a comment",
    "torch==2.6.0# none",
    "torch==2.6.0 #",
    "   ",
    "\ttorch==2.6.0",
    "torch==2.6.0 \\",
    "torch \\",
    ">=2 \\",
    "  # within",
    "torch 2.6.0",
    "torch=2.6.0",
    "torch==",
    "torch==2.6.0,",
    "==2.6.0",
    "torch>2.6.0,!=2.7,==2.*",
    "torch>=two",
    "torch; nothing == 'x'",
    "torch; python_version < 3",
    "-torch",
    "torch==2.6.0 ; extra == 'x'",
    "t\u00f6rch==1",
    "torch==${NOT_SET}",
    "torch_==1",
    "torch[a,]==1",
    "torch[a b]==1",
    "https://e.org/torch-2.6.0-py3-none-any.whl",
    "https://e.org/torch-2.6.0-py3-none-any.whl ; sys_platform == 'linux'",
    "https://e.org/torch-2.6.0%2Bcu124-cp311-cp311-linux_x86_64.whl",
    "git+https://e.org/t#egg=torch",
    "git+https://e.org/t@v1#egg=torch&subdirectory=x",
    "torch==2.6.0 'quoted",
    'torch==2.6.0 --hash="sha256:' + SHA + '"',
]
QUICK = settings(
    max_examples=80, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)


@pytest.fixture(scope="module")
def file(tmp_path_factory: Any) -> Path:
    return Path(str(tmp_path_factory.mktemp("requirements"))) / "requirements.txt"


def both(file: Path, given_: str) -> Tuple[Optional[List[Row]], Optional[List[Row]]]:
    file.write_text(given_, encoding="utf-8")
    return ours(given_), theirs(file)


@pytest.mark.parametrize("line", LINES, ids=range(len(LINES)))
def test_a_line_is_read_as_pip_reads_it(line: str, file: Path) -> None:
    mine, pips = both(file, line + "\n")
    assert mine == pips


@pytest.mark.parametrize(
    "line",
    ["x" + " " * 50000 + "y", "a[" + " " * 50000, "a @ x" + " \t" * 30000 + ";"],
    ids=["spaces", "extras", "tabs"],
)
def test_no_line_takes_long(line: str) -> None:
    before = time.process_time()
    ours(line)
    assert time.process_time() - before < 1


@QUICK
@given(st.lists(st.sampled_from(LINES), min_size=1, max_size=5))
def test_lines_after_another_are_read_as_pip_reads_them(file: Path, rows: List[str]) -> None:
    mine, pips = both(file, "\n".join(rows) + "\n")
    assert mine == pips
