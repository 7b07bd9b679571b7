"""The devices that an engine runs on."""

from __future__ import annotations

__all__ = ("Device", "DeviceName", "parse_device")

from typing import Literal, Protocol

from aiomlc.errors import BadRequestError

DeviceName = Literal["cpu"]
_NAMES: dict[str, DeviceName] = {"auto": "cpu", "cpu": "cpu", "cpu:0": "cpu"}


class DeviceObject(Protocol):
    """A device object such as `tvm.cpu()`; its `str()` is the device's name."""

    def dlpack_device_type(self) -> int:
        """Return the DLPack device type."""
        ...


Device = str | DeviceObject


def parse_device(device: Device) -> DeviceName:
    """Return the name of a device; `auto` selects the best supported one.

    Raises:
        BadRequestError: If the device is unknown or not supported; `param` is `device`.
    """
    is_object = callable(getattr(device, "dlpack_device_type", None))
    name = _NAMES.get(str(device)) if is_object or isinstance(device, str) else None
    if name is None:
        value = str(device) if is_object else device
        raise BadRequestError(
            f"device {value!r} is not supported: use 'auto' or 'cpu'", param="device"
        )

    return name
