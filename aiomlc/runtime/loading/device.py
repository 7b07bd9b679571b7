"""The devices of an engine by their names."""

from __future__ import annotations

__all__ = ("find_device", "find_target")

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from aiomlc.devices import AUTO, DeviceName, device_index, device_name
from aiomlc.errors import BadRequestError
from aiomlc.runtime.native.cuda import CudaArchitecture, cuda_device
from aiomlc.runtime.native.device import CompileTarget, HostDevice, NativeDevice
from aiomlc.runtime.native.opencl import opencl_device


def _host(_: int) -> NativeDevice:
    return HostDevice()


_OPENERS: dict[DeviceName, Callable[[int], NativeDevice]] = {
    "cpu": _host,
    "cpu:tvm": _host,
    "cuda": cuda_device,
    "opencl": opencl_device,
}
_DEVICES: Final[Mapping[DeviceName, Callable[[int], NativeDevice]]] = MappingProxyType(_OPENERS)


def find_device(device: str) -> NativeDevice:
    """Return a device of this machine.

    Raises:
        BadRequestError: If there is no such device; `param` is `device`.
        ModelLoadError: If its native library cannot be loaded.
    """
    return _DEVICES[device_name(device)](device_index(device))


def find_target(device: str, arch: str | None) -> CompileTarget:
    """Return what to compile for: a device of this machine, or an architecture of absent ones.

    Raises:
        BadRequestError: If there is no such device, the architecture is unknown, or the device has
            none; `param` is `device` or `arch`.
        ModelLoadError: If the native library of the device cannot be loaded.
    """
    if arch is not None:
        if device == AUTO or device_name(device) != "cuda":
            raise BadRequestError(
                f"arch is for device 'cuda', and the device is {device!r}", param="arch"
            )

        return CudaArchitecture(arch)

    try:
        return find_device(device)
    except BadRequestError as error:
        if device_name(device) != "cuda":
            raise

        raise BadRequestError(
            f"{error}. To compile for a GPU that is absent, pass its arch (--arch sm_90a)",
            param="device",
        ) from None
