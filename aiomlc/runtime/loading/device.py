"""The devices of an engine by their names."""

from __future__ import annotations

__all__ = ("find_device",)

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from aiomlc.devices import DeviceName, device_index, device_name
from aiomlc.runtime.native.device import HostDevice, NativeDevice
from aiomlc.runtime.native.opencl import opencl_device


def _host(_: int) -> NativeDevice:
    return HostDevice()


_OPENERS: dict[DeviceName, Callable[[int], NativeDevice]] = {
    "cpu": _host,
    "cpu:tvm": _host,
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
