"""The architectures of NVIDIA's GPUs that kernels are compiled for."""

from __future__ import annotations

__all__ = ("ARCHITECTURES", "architecture_of", "check_architecture", "target_of")

from collections.abc import Mapping
from typing import Final

from aiomlc.devices import TargetAttributes
from aiomlc.errors import BadRequestError
from aiomlc.validation.json_values import safe_repr

# By compute capability, those of CUDA 13 and later. Code for a name with `a` may use all that the
# architecture has, and runs on no other.
_OF_CAPABILITY: Final[Mapping[str, tuple[str, ...]]] = {
    "7.5": ("sm_75",),
    "8.0": ("sm_80",),
    "8.6": ("sm_86",),
    "8.7": ("sm_87",),
    "8.8": ("sm_88",),
    "8.9": ("sm_89",),
    "9.0": ("sm_90", "sm_90a"),
    "10.0": ("sm_100", "sm_100a"),
    "10.3": ("sm_103", "sm_103a"),
    "11.0": ("sm_110", "sm_110a"),
    "12.0": ("sm_120", "sm_120a"),
    "12.1": ("sm_121", "sm_121a"),
}
#: The names that `nvcc -arch` and NVRTC know.
ARCHITECTURES: Final = tuple(name for names in _OF_CAPABILITY.values() for name in names)
# Every one of them has these. Kernels that use more shared memory must ask the driver for it.
_WARP_SIZE: Final = 32
_MAX_THREADS: Final = 1024
_MAX_SHARED_BYTES: Final = 48 << 10


def architecture_of(capability: str) -> str | None:
    """Return the architecture of a compute capability such as "9.0"; None if it is unknown."""
    names = _OF_CAPABILITY.get(capability)
    return None if names is None else names[-1]


def check_architecture(name: str) -> str:
    """Return the name of an architecture.

    Raises:
        BadRequestError: If it is unknown; `param` is `arch`.
    """
    if name not in ARCHITECTURES:
        raise BadRequestError(
            f"arch must be one of {', '.join(ARCHITECTURES)}, got {safe_repr(name)}", param="arch"
        )

    return name


def target_of(name: str) -> TargetAttributes:
    """Return the attributes of TVM's target for an architecture."""
    return {
        "arch": name,
        "max_num_threads": _MAX_THREADS,
        "max_threads_per_block": _MAX_THREADS,
        "max_shared_memory_per_block": _MAX_SHARED_BYTES,
        "thread_warp_size": _WARP_SIZE,
    }
