"""The back end of each device."""

from __future__ import annotations

__all__ = ("backend_of",)

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from aiomlc.compiler.backends.cpu.backend import CpuBackend
from aiomlc.compiler.backends.cuda.backend import CudaBackend
from aiomlc.compiler.backends.tvm.backend import TvmBackend
from aiomlc.compiler.backends.tvm.opencl_backend import OpenCLBackend
from aiomlc.compiler.interface import Backend
from aiomlc.devices import DeviceName, device_name

_ALL: Final[tuple[Backend, ...]] = (CpuBackend(), TvmBackend(), CudaBackend(), OpenCLBackend())
_BACKENDS: Mapping[DeviceName, Backend] = MappingProxyType(
    {backend.name: backend for backend in _ALL}
)


def backend_of(device: str) -> Backend:
    """Return the back end of a device.

    Raises:
        BadRequestError: If the device is unknown or not supported; `param` is `device`.
    """
    return _BACKENDS[device_name(device)]
