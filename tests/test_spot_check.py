"""A spot check of the matrix: questions answered from the publishers' own pages, not from it.

Each row names the page its answer was read from. A row that fails is settled by going back to
that page; its answer is never adapted to the tables.
"""

from typing import Any, Callable, NamedTuple, Tuple

import pytest

from preflight import matrix

M = matrix.load()


class Source(NamedTuple):
    """Where an answer was read: `key` goes into the test id."""

    key: str
    title: str
    url: str


class Question(NamedTuple):
    """One question: `ask(*args)` has to give `answer`."""

    source: Source
    ask: Callable[..., Any]
    args: Tuple[Any, ...]
    answer: Any


NOTES = "https://docs.nvidia.com/cuda/archive/{}/cuda-toolkit-release-notes/index.html"
IMAGE = "https://gitlab.com/nvidia/container-images/cuda/-/tree/master/dist/{}"
TORCH = "https://github.com/pytorch/pytorch/"


def notes(release: str, table: str) -> Source:
    return Source(
        f"cuda-{release}-release-notes-{table}",
        f"NVIDIA CUDA Toolkit {release} Release Notes, {table}",
        NOTES.format(release),
    )


def image(release: str) -> Source:
    return Source(
        f"cuda-image-{release}",
        f"NVIDIA container image cuda:{release}, NVIDIA_REQUIRE_CUDA",
        IMAGE.format(release),
    )


def triton(release: str, page: str) -> Source:
    return Source(
        f"triton-{release}",
        f"Triton Inference Server Release {release}, Driver Requirements",
        f"https://docs.nvidia.com/deeplearning/{page}.html",
    )


DRIVERS = notes("13.1.0", "table-3")  # the toolkits' own driver versions, back to CUDA 7.0
FLOORS = notes("12.4.0", "table-2")  # the floors: 12.x, 11.1.x to 11.8.x, and 11.0 apart
DROPPED = notes("13.1.0", "deprecated-architectures")
MINOR = Source(
    "cuda-compatibility-minor",
    "CUDA Compatibility: Minor Version Compatibility, tables 1 and 2",
    "https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html",
)
FORWARD = Source(
    "cuda-compatibility-forward",
    "CUDA Compatibility: Forward Compatibility",
    "https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html",
)
TESLA = Source(
    "nvidia-cuda-and-drivers-support",
    "NVIDIA CUDA and Drivers Support (RN-08625, March 2021), table 1",
    "https://docs.nvidia.com/datacenter/tesla/pdf/NVIDIA_CUDA_Drivers_Support.pdf",
)
TRITON_2205 = triton("22.05", "sdk/inference-release-notes/rel_22-05")
TRITON_2210 = triton("22.10", "sdk/inference-release-notes/rel-22-10")
TRITON_2305 = triton("23.05", "sdk/inference-release-notes/rel-23-05")
TRITON_2410 = triton("24.10", "triton-inference-server/release-notes/rel-24-10")
PYTORCH_2302 = Source(
    "ngc-pytorch-23.02",
    "NVIDIA PyTorch container 23.02, Driver Requirements",
    "https://docs.nvidia.com/deeplearning/frameworks/pytorch-release-notes/rel-23-02.html",
)
SGLANG_2510 = Source(
    "ngc-sglang-25.10",
    "NVIDIA SGLang Release 25.10, Driver Requirements (its sentence on CUDA 12.8)",
    "https://docs.nvidia.com/deeplearning/frameworks/sglang-release-notes/rel-25-10.html",
)
HOOK = Source(
    "container-toolkit-cudacompat",
    "NVIDIA Container Toolkit: nvidia-cdi-hook cudacompat, ELF note of libcuda and its test data",
    "https://github.com/NVIDIA/nvidia-container-toolkit/tree/main/cmd/nvidia-cdi-hook/cudacompat",
)
PTX_TABLE = Source(
    "ptx-isa-release-history",
    "PTX ISA: release history (as mapped in NVIDIA cuda-python, _ptx_utils.py)",
    "https://docs.nvidia.com/cuda/parallel-thread-execution/#release-notes-ptx-release-history",
)
PTX_126 = Source(
    "openxla-xla-16431",
    "CUDA 12.6 uses PTX ISA version 8.5 not 8.6",
    "https://github.com/openxla/xla/issues/16431",
)
ADA = Source(
    "ada-compatibility-guide",
    "NVIDIA Ada GPU Architecture Compatibility Guide for CUDA Applications, 1.2 and 1.4.2",
    "https://docs.nvidia.com/cuda/ada-compatibility-guide",
)
HOPPER = Source(
    "hopper-compatibility-guide",
    "Hopper Compatibility Guide for CUDA Applications, 1.2",
    "https://docs.nvidia.com/cuda/hopper-compatibility-guide",
)
AMPERE = Source(
    "ampere-compatibility-guide",
    "NVIDIA Ampere GPU Architecture Compatibility Guide for CUDA Applications, 1.2",
    "https://docs.nvidia.com/cuda/ampere-compatibility-guide",
)
FAMILY = Source(
    "cuda-12.9-family-specific",
    "NVIDIA Blackwell and NVIDIA CUDA 12.9 Introduce Family-Specific Architecture Features",
    "https://developer.nvidia.com/blog/"
    "nvidia-blackwell-and-nvidia-cuda-12-9-introduce-family-specific-architecture-features",
)
TEGRA = Source(
    "cuda-guide-binary-compatibility",
    "CUDA C++ Programming Guide, 6.1.2 Binary Compatibility, note on Tegra",
    "https://docs.nvidia.com/cuda/cuda-c-programming-guide/#binary-compatibility",
)
CUFFT = Source(
    "cufft-deprecated-functionality",
    "cuFFT: Deprecated Functionality",
    "https://docs.nvidia.com/cuda/archive/12.6.3/cufft/deprecated-functionality.html",
)
TARGETS = Source(
    "llvm-nvptx-td",
    "LLVM NVPTX.td: the first PTX ISA, so the first toolkit, of each target",
    "https://github.com/llvm/llvm-project/pull/156857",
)
GPUS = Source("cuda-gpus", "CUDA GPU Compute Capability", "https://developer.nvidia.com/cuda-gpus")
OLD_GPUS = Source(
    "cuda-legacy-gpus",
    "Legacy CUDA GPU Compute Capability",
    "https://developer.nvidia.com/cuda-legacy-gpus",
)
R580 = Source(
    "unix-deprecation-schedule",
    "NVIDIA Unix graphics feature deprecation schedule: release 580 is the last for "
    "Maxwell, Pascal and Volta",
    "https://forums.developer.nvidia.com/t/unix-graphics-feature-deprecation-schedule/60588",
)
R470 = Source(
    "current-graphics-driver-releases",
    "Current graphics driver releases: legacy releases, 470 for Kepler",
    "https://forums.developer.nvidia.com/t/current-graphics-driver-releases/28500",
)
RELEASE_MD = Source(
    "pytorch-release-md",
    "Releasing PyTorch: Release Compatibility Matrix and PyTorch CUDA Support Matrix",
    TORCH + "blob/main/RELEASE.md",
)
WHEELS = Source(
    "torch-wheel-metadata",
    "Requires-Dist of the published torch wheels",
    "pip install --dry-run --no-deps --ignore-installed --report - torch==VERSION",
)
AARCH64_CPU = Source(
    "pytorch-160162",
    "aarch64 GPU wheel release for GH200/GB200 etc (until 2.8 the default is CPU only)",
    TORCH + "issues/160162",
)
BUILDER = Source(
    "pytorch-builder-build-cuda",
    "pytorch/builder manywheel/build_cuda.sh: TORCH_CUDA_ARCH_LIST of 11.6, 11.7 and 11.8",
    "https://github.com/pytorch/builder/blob/main/manywheel/build_cuda.sh",
)
CU118 = Source(
    "pytorch-95648",
    "torch needs to SHOW that it support sm_89 (arch list of the 2.0 cu118 build)",
    TORCH + "issues/95648",
)
TORCH_26 = Source(
    "colpali-267",
    "Support for torch>=2.7.0 (torch 2.6.0 prints the arch list of its default build)",
    "https://github.com/illuin-tech/colpali/issues/267",
)
BLACKWELL = Source(
    "pytorch-2.7-release",
    "PyTorch 2.7 Release: NVIDIA Blackwell support with the CUDA 12.8 wheels",
    "https://pytorch.org/blog/pytorch-2-7/",
)
CU128_ARM = Source(
    "uv-13195",
    "Disabling hash verification (quotes PyTorch's cu128 index: 2.7.0 wheels for aarch64)",
    "https://github.com/astral-sh/uv/issues/13195",
)
ARCH_LISTS = Source(
    "corridorkey-141",
    "Add compatibility with older GPUs (torch.cuda.get_arch_list() of 2.7.1 and 2.10 builds)",
    "https://github.com/nikopueringer/CorridorKey/pull/141",
)
CU128_VOLTA = Source(
    "pytorch-182250",
    "get_device_capability() provides wrong version recommendation (arch lists of 2.10 and 2.11)",
    TORCH + "issues/182250",
)
VOLTA_BACK = Source(
    "pytorch-158700",
    "Add warning about removed sm50 and sm60 arches (2.8: from sm_70 on)",
    TORCH + "pull/158700",
)
MATRIX_29 = Source(
    "pytorch-164471",
    "Add CUDA release architecture matrix (release 2.9)",
    TORCH + "pull/164471",
)
SBSA = Source(
    "pytorch-163764",
    "sm50-70 should not be added to the sbsa build arch list (2.9)",
    TORCH + "pull/163764",
)


# -- the ways of asking -----------------------------------------------------------------------


def way(cuda: str, driver: str) -> str:
    """In which way a driver's own libcuda runs a CUDA."""
    return M.way(cuda, driver=driver).kind


def compat_way(cuda: str, driver: str, compat: str) -> str:
    """In which way the libcuda of cuda-compat runs a CUDA on a kernel driver."""
    return M.way(cuda, driver=driver, ceiling=compat, compat=True).kind


def newest(driver: str) -> Any:
    return M.newest_cuda(driver)


def oldest(cuda: str) -> Any:
    return M.oldest_driver(cuda)


def oldest_branch(cuda: str) -> str:
    return str(M.oldest_driver(cuda)).split(".", 1)[0]


def compiles(ptx_of: str, driver_cuda: str) -> Any:
    return M.compiles_ptx(ptx_of, driver_cuda)


def base(cuda: str, driver: str) -> str:
    return M.compat_base(cuda, driver)[0]


def base_supported(cuda: str, driver: str) -> bool:
    """For bases that a list of the supported ones leaves out."""
    return M.compat_base(cuda, driver)[0] == "yes"


def eligible(name: str) -> str:
    return M.forward_eligible(name)


def serves(capability: str, *targets: str) -> str:
    return M.kernels(capability, targets).kind


def sass_serves(capability: str, *targets: str) -> bool:
    return M.kernels(capability, targets).kind == "sass"


def lowest(cuda: str) -> Any:
    row = M.toolkit(cuda)
    return row and str(row["min_capability"])


def highest(cuda: str) -> Any:
    row = M.toolkit(cuda)
    return row and str(row["max_capability"])


def libraries(cuda: str, capability: str) -> Any:
    return M.libraries_know(cuda, capability)


def capability_of(name: str) -> Any:
    return M.capability(name)


def last_branch(capability: str) -> Any:
    """0 where every newer driver supports the architecture."""
    row = M.architecture(capability)
    return row and int(row.get("last_branch", 0))


def default_cuda(version: str, platform: str) -> str:
    """The CUDA of what the default index gives; empty for a CPU build."""
    for row in M.torch_builds(version, platform):
        if version in row.get("default", []):
            return str(row.get("cuda", ""))
    return ""


def has_variants(version: str, platform: str, *variants: str) -> bool:
    return set(variants) <= {row["variant"] for row in M.torch_builds(version, platform)}


def any_variant(version: str, platform: str, *variants: str) -> bool:
    return bool(set(variants) & {row["variant"] for row in M.torch_builds(version, platform)})


def code(version: str, variant: str, platform: str) -> Any:
    """The machine code of a build, as compute capabilities."""
    row = M.torch_build(version, variant, platform)
    return row and sorted(str(one) for one in row.get("sm", []))


def torch_serves(capability: str, version: str, variant: str, platform: str) -> str:
    row = M.torch_build(version, variant, platform)
    return M.kernels(capability, matrix.targets(row)).kind if row else "no such build"


def torch_has(target: str, version: str, variant: str, platform: str) -> bool:
    row = M.torch_build(version, variant, platform)
    return bool(row) and target in matrix.targets(row)


def first_with(capability: str, platform: str) -> str:
    """The first release with a build that holds machine code of a compute capability."""
    releases = [
        version
        for row in M.torch_builds(platform=platform)
        if capability in [str(one) for one in row.get("sm", [])]
        for version in row["versions"]
    ]
    return min(releases, key=matrix.numbers, default="")


# -- the questions ----------------------------------------------------------------------------

X86, ARM = "x86_64", "aarch64"

MINOR_VERSION = [
    Question(FLOORS, oldest, ("12.4",), "525.60.13"),
    Question(FLOORS, oldest, ("11.8",), "450.80.02"),
    Question(FLOORS, oldest, ("11.1",), "450.80.02"),
    Question(FLOORS, oldest, ("11.0",), "450.36.06"),
    Question(DRIVERS, oldest, ("10.2",), "440.33"),
    Question(DRIVERS, oldest, ("10.1",), "418.39"),
    Question(MINOR, oldest_branch, ("13.1",), "580"),
    Question(FLOORS, way, ("12.4", "525.60.13"), "minor-version"),
    Question(FLOORS, way, ("12.4", "525.53"), "no"),
    Question(FLOORS, way, ("12.0", "520.61.05"), "no"),
    Question(FLOORS, way, ("11.8", "450.80.02"), "minor-version"),
    Question(FLOORS, way, ("11.8", "450.51.06"), "no"),
    Question(FLOORS, way, ("11.1", "450.36.06"), "no"),
    Question(FLOORS, way, ("11.0", "450.36.06"), "native"),
    Question(FLOORS, way, ("11.8", "470.57.02"), "minor-version"),
    Question(MINOR, way, ("12.1", "470.57.02"), "no"),
    Question(MINOR, way, ("13.0", "575.57.08"), "no"),
    Question(MINOR, way, ("13.2", "580.65.06"), "minor-version"),
    Question(MINOR, way, ("12.8", "580.65.06"), "native"),
    Question(MINOR, way, ("11.8", "595.58.03"), "native"),
    Question(MINOR, way, ("11.0", "440.33.01"), "no"),
    Question(MINOR, way, ("10.2", "418.87.00"), "no"),
    Question(MINOR, way, ("10.1", "440.33.01"), "native"),
    Question(MINOR, way, ("10.1", "410.48"), "no"),
    Question(DRIVERS, newest, ("470.57.02",), "11.4"),
    Question(DRIVERS, newest, ("535.104.05",), "12.2"),
    Question(DRIVERS, newest, ("550.54.15",), "12.4"),
    Question(DRIVERS, newest, ("575.57.08",), "12.9"),
    Question(DRIVERS, newest, ("590.44.01",), "13.1"),
    Question(notes("13.2.1", "table-3"), newest, ("595.58.03",), "13.2"),
    Question(PTX_TABLE, compiles, ("12.8", "12.2"), False),
    Question(PTX_TABLE, compiles, ("12.5", "12.4"), False),
    Question(PTX_TABLE, compiles, ("11.8", "11.7"), False),
    Question(PTX_TABLE, compiles, ("12.2", "12.8"), True),
    Question(PTX_126, compiles, ("12.6", "12.5"), True),
    Question(PTX_TABLE, compiles, ("13.1", "13.0"), False),
]

FORWARD_COMPATIBILITY = [
    Question(TESLA, base, ("11.0", "418.40.04"), "yes"),
    Question(TESLA, base, ("11.0", "440.33.01"), "yes"),
    Question(TRITON_2205, base, ("11.7", "470.57.02"), "yes"),
    Question(TRITON_2205, base, ("11.7", "460.32.03"), "no"),
    Question(TRITON_2210, base, ("11.8", "450.80.02"), "yes"),
    Question(TRITON_2210, base, ("11.8", "510.47.03"), "yes"),
    Question(TRITON_2210, base, ("11.8", "460.32.03"), "no"),
    Question(TRITON_2210, base, ("11.8", "418.40.04"), "no"),
    Question(PYTORCH_2302, base, ("12.0", "470.57.02"), "yes"),
    Question(PYTORCH_2302, base, ("12.0", "460.32.03"), "no"),
    Question(TRITON_2305, base, ("12.1", "515.65.01"), "yes"),
    Question(TRITON_2305, base, ("12.1", "440.33.01"), "no"),
    Question(image("12.2.2"), base, ("12.2", "525.85.12"), "yes"),
    Question(image("12.4.1"), base, ("12.4", "535.104.05"), "yes"),
    Question(image("12.4.1"), base_supported, ("12.4", "450.80.02"), False),
    Question(TRITON_2410, base, ("12.6", "470.57.02"), "yes"),
    Question(TRITON_2410, base, ("12.6", "510.47.03"), "no"),
    Question(TRITON_2410, base, ("12.6", "530.30.02"), "no"),
    Question(image("12.8.0"), base, ("12.8", "470.57.02"), "yes"),
    Question(image("12.8.0"), base, ("12.8", "550.54.15"), "yes"),
    Question(SGLANG_2510, base, ("12.8", "545.23.08"), "no"),
    Question(SGLANG_2510, base, ("12.8", "460.32.03"), "no"),
    Question(HOOK, base, ("12.9", "570.124.06"), "yes"),
    Question(HOOK, base_supported, ("12.9", "470.57.02"), False),
    Question(image("13.0.2"), base, ("13.0", "535.104.05"), "yes"),
    Question(image("13.0.2"), base, ("13.0", "575.57.08"), "yes"),
    Question(HOOK, base, ("13.1", "580.65.06"), "yes"),
    Question(HOOK, base_supported, ("13.1", "470.57.02"), False),
    Question(HOOK, base_supported, ("13.1", "560.35.05"), False),
    Question(HOOK, base_supported, ("12.4", "580.65.06"), False),
    Question(HOOK, base_supported, ("12.8", "595.58.03"), False),
    Question(FORWARD, compat_way, ("13.0", "535.104.05", "13.0"), "forward-compat"),
    Question(FORWARD, compat_way, ("12.8", "470.57.02", "12.8"), "forward-compat"),
    Question(FORWARD, compat_way, ("13.0", "535.104.05", "12.8"), "no"),
    Question(FORWARD, eligible, ("NVIDIA GeForce RTX 4090",), "no"),
    Question(FORWARD, eligible, ("NVIDIA GeForce GTX 1080 Ti",), "no"),
    Question(FORWARD, eligible, ("NVIDIA TITAN V",), "no"),
    Question(FORWARD, eligible, ("NVIDIA A100-SXM4-80GB",), "yes"),
    Question(FORWARD, eligible, ("Tesla V100-SXM2-32GB",), "yes"),
    Question(FORWARD, eligible, ("NVIDIA L40S",), "yes"),
    Question(FORWARD, eligible, ("NVIDIA RTX A6000",), "some"),
]

ARCHITECTURES = [
    Question(ADA, serves, ("8.9", "sm_86"), "sass"),
    Question(ADA, serves, ("8.6", "sm_89"), "none"),
    Question(ADA, serves, ("9.0", "sm_80", "sm_86", "sm_89"), "none"),
    Question(AMPERE, serves, ("7.5", "sm_70"), "sass"),
    Question(AMPERE, serves, ("7.0", "sm_75"), "none"),
    Question(HOPPER, serves, ("9.0", "sm_80", "compute_80"), "ptx"),
    Question(FAMILY, serves, ("12.0", "compute_100"), "ptx"),
    Question(FAMILY, serves, ("10.0", "compute_120"), "none"),
    Question(FAMILY, serves, ("9.0", "sm_90a"), "sass"),
    Question(FAMILY, serves, ("10.0", "sm_90a", "compute_90a"), "none"),
    Question(FAMILY, serves, ("10.3", "sm_100a", "compute_100a"), "none"),
    Question(FAMILY, serves, ("10.3", "sm_100f"), "sass"),
    Question(FAMILY, serves, ("10.0", "sm_103f"), "none"),
    Question(FAMILY, serves, ("12.0", "sm_100f", "compute_100f"), "none"),
    Question(FAMILY, serves, ("11.0", "compute_100f"), "none"),
    Question(FAMILY, serves, ("12.1", "sm_120f"), "sass"),
    Question(TEGRA, sass_serves, ("8.7", "sm_80"), False),
    Question(CUFFT, lowest, ("11.0",), "3.5"),
    Question(CUFFT, lowest, ("12.0",), "5.0"),
    Question(DROPPED, lowest, ("12.9",), "5.0"),
    Question(DROPPED, lowest, ("13.0",), "7.5"),
    Question(TARGETS, highest, ("11.0",), "8.0"),
    Question(TARGETS, highest, ("11.1",), "8.6"),
    Question(TARGETS, highest, ("11.8",), "9.0"),
    Question(TARGETS, highest, ("12.8",), "12.0"),
    Question(TARGETS, highest, ("12.9",), "12.1"),
    Question(CUFFT, libraries, ("11.8", "3.7"), True),
    Question(CUFFT, libraries, ("12.0", "3.7"), False),
    Question(DROPPED, libraries, ("12.9", "7.0"), True),
    Question(DROPPED, libraries, ("13.0", "7.0"), False),
    Question(ADA, libraries, ("11.7", "8.9"), True),
    Question(R470, last_branch, ("3.7",), 470),
    Question(R580, last_branch, ("5.2",), 580),
    Question(R580, last_branch, ("6.1",), 580),
    Question(R580, last_branch, ("7.0",), 580),
    Question(R580, last_branch, ("7.5",), 0),
    Question(GPUS, capability_of, ("NVIDIA B200",), "10.0"),
    Question(GPUS, capability_of, ("NVIDIA B300",), "10.3"),
    Question(GPUS, capability_of, ("NVIDIA GB10",), "12.1"),
    Question(GPUS, capability_of, ("NVIDIA RTX PRO 6000 Blackwell Server Edition",), "12.0"),
    Question(GPUS, capability_of, ("NVIDIA GeForce RTX 5090",), "12.0"),
    Question(GPUS, capability_of, ("NVIDIA GH200 480GB",), "9.0"),
    Question(GPUS, capability_of, ("NVIDIA L4",), "8.9"),
    Question(GPUS, capability_of, ("NVIDIA A10",), "8.6"),
    Question(GPUS, capability_of, ("Tesla T4",), "7.5"),
    Question(OLD_GPUS, capability_of, ("Tesla P40",), "6.1"),
    Question(OLD_GPUS, capability_of, ("Tesla P100-PCIE-16GB",), "6.0"),
    Question(OLD_GPUS, capability_of, ("Tesla M60",), "5.2"),
]

TORCH_BUILDS = [
    Question(WHEELS, default_cuda, ("1.13.1", X86), "11.7"),
    Question(WHEELS, default_cuda, ("2.0.1", X86), "11.7"),
    Question(WHEELS, default_cuda, ("2.1.2", X86), "12.1"),
    Question(WHEELS, default_cuda, ("2.4.1", X86), "12.1"),
    Question(WHEELS, default_cuda, ("2.5.1", X86), "12.4"),
    Question(WHEELS, default_cuda, ("2.6.0", X86), "12.4"),
    Question(WHEELS, default_cuda, ("2.7.1", X86), "12.6"),
    Question(WHEELS, default_cuda, ("2.8.0", X86), "12.8"),
    Question(WHEELS, default_cuda, ("2.10.0", X86), "12.8"),
    Question(WHEELS, default_cuda, ("2.11.0", X86), "13.0"),
    Question(WHEELS, default_cuda, ("2.14.0", X86), "13.0"),
    Question(AARCH64_CPU, default_cuda, ("2.8.0", ARM), ""),
    Question(WHEELS, default_cuda, ("2.10.0", ARM), ""),
    Question(WHEELS, default_cuda, ("2.11.0", ARM), "13.0"),
    Question(RELEASE_MD, has_variants, ("1.13.1", X86, "cu116", "cu117"), True),
    Question(RELEASE_MD, has_variants, ("2.0.1", X86, "cu117", "cu118"), True),
    Question(RELEASE_MD, has_variants, ("2.3.1", X86, "cu118", "cu121"), True),
    Question(RELEASE_MD, any_variant, ("2.3.1", X86, "cu117", "cu124"), False),
    Question(RELEASE_MD, has_variants, ("2.5.1", X86, "cu118", "cu121", "cu124"), True),
    Question(RELEASE_MD, has_variants, ("2.7.1", X86, "cu118", "cu126", "cu128"), True),
    Question(RELEASE_MD, has_variants, ("2.8.0", X86, "cu126", "cu128", "cu129"), True),
    Question(RELEASE_MD, any_variant, ("2.8.0", X86, "cu118", "cu121", "cu124"), False),
    Question(RELEASE_MD, has_variants, ("2.9.1", X86, "cu126", "cu128", "cu130"), True),
    Question(RELEASE_MD, has_variants, ("2.12.0", X86, "cu126", "cu130", "cu132"), True),
    Question(RELEASE_MD, any_variant, ("2.12.0", X86, "cu128"), False),
    Question(
        BUILDER,
        code,
        ("1.13.1", "cu117", X86),
        ["3.7", "5.0", "6.0", "7.0", "7.5", "8.0", "8.6"],
    ),
    Question(
        CU118,
        code,
        ("2.0.1", "cu118", X86),
        ["3.7", "5.0", "6.0", "7.0", "7.5", "8.0", "8.6", "9.0"],
    ),
    Question(BUILDER, torch_serves, ("9.0", "2.0.1", "cu117", X86), "none"),
    Question(
        TORCH_26,
        code,
        ("2.6.0", "cu124", X86),
        ["5.0", "6.0", "7.0", "7.5", "8.0", "8.6", "9.0"],
    ),
    Question(TORCH_26, torch_serves, ("12.0", "2.6.0", "cu124", X86), "none"),
    Question(TORCH_26, torch_serves, ("6.1", "2.6.0", "cu124", X86), "sass"),
    Question(BLACKWELL, first_with, ("12.0", X86), "2.7.0"),
    Question(CU128_ARM, has_variants, ("2.7.0", ARM, "cu128"), True),
    Question(
        ARCH_LISTS,
        code,
        ("2.7.1", "cu128", X86),
        ["10.0", "12.0", "7.5", "8.0", "8.6", "9.0"],
    ),
    Question(ARCH_LISTS, torch_has, ("compute_120", "2.7.1", "cu128", X86), True),
    Question(ARCH_LISTS, torch_serves, ("7.0", "2.7.1", "cu128", X86), "none"),
    Question(ARCH_LISTS, torch_serves, ("7.0", "2.7.1", "cu126", X86), "sass"),
    Question(VOLTA_BACK, torch_serves, ("7.0", "2.8.0", "cu128", X86), "sass"),
    Question(VOLTA_BACK, torch_serves, ("6.1", "2.8.0", "cu128", X86), "none"),
    Question(CU128_VOLTA, torch_has, ("sm_70", "2.10.0", "cu128", X86), True),
    Question(CU128_VOLTA, torch_has, ("sm_70", "2.11.0", "cu128", X86), False),
    Question(CU128_VOLTA, torch_has, ("compute_120", "2.11.0", "cu128", X86), False),
    Question(CU128_VOLTA, torch_has, ("sm_70", "2.11.0", "cu126", X86), True),
    Question(MATRIX_29, torch_has, ("compute_120", "2.9.1", "cu130", X86), True),
    Question(MATRIX_29, torch_serves, ("7.0", "2.9.1", "cu130", X86), "none"),
    Question(MATRIX_29, torch_serves, ("11.0", "2.9.1", "cu130", ARM), "sass"),
    Question(SBSA, code, ("2.9.1", "cu126", ARM), ["8.0", "9.0"]),
    Question(
        RELEASE_MD,
        code,
        ("2.12.0", "cu130", X86),
        ["10.0", "12.0", "7.5", "8.0", "8.6", "9.0"],
    ),
    Question(
        RELEASE_MD,
        code,
        ("2.12.0", "cu130", ARM),
        ["10.0", "11.0", "12.0", "8.0", "9.0"],
    ),
    Question(RELEASE_MD, torch_serves, ("12.1", "2.12.0", "cu130", ARM), "sass"),
]

QUESTIONS = MINOR_VERSION + FORWARD_COMPATIBILITY + ARCHITECTURES + TORCH_BUILDS


def label(question: Question) -> str:
    return f"{question.source.key}: {question.ask.__name__} {' '.join(question.args)}"


@pytest.mark.parametrize("question", QUESTIONS, ids=label)
def test_answer(question: Question) -> None:
    answer = question.ask(*question.args)
    assert answer == question.answer, f"{question.source.title}, {question.source.url}"
