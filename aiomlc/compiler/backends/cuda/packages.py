"""Files of NVIDIA's packages of PyPI, which share the folder `nvidia/cu13`."""

from __future__ import annotations

__all__ = ("packaged_file",)

from importlib import metadata
from pathlib import Path
from typing import Final

_PACKAGES: Final = {
    "nvcc": "nvidia-cuda-nvcc",
    "cicc": "nvidia-nvvm",
    "cuda_fp16.h": "nvidia-cuda-runtime",
    "libcudart.so.13": "nvidia-cuda-runtime",
    "libnvrtc.so.13": "nvidia-cuda-nvrtc",
}


def packaged_file(name: str) -> Path | None:
    """Return the path of an installed file; None if its package is not installed."""
    try:
        files = metadata.files(_PACKAGES[name]) or ()
    except metadata.PackageNotFoundError:
        return None

    paths = (Path(str(file.locate())) for file in files if file.name == name)
    return next((path.resolve() for path in paths if path.is_file()), None)
