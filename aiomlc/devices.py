"""The devices that an engine runs on."""

from __future__ import annotations

__all__ = ("Device", "DeviceName", "parse_device")

from typing import Literal, Protocol

from aiomlc.errors import BadRequestError

DeviceName = Literal["cpu"]
_NAMES: dict[str, DeviceName] = {"auto": "cpu", "cpu": "cpu", "cpu:0": "cpu"}


class DeviceObject(Protocol):
    """A device as `tvm.cpu()` makes it; its `str()` is its name."""

    def dlpack_device_type(self) -> int:
        """Return DLPack's number of the kind of device."""


Device = str | DeviceObject


def parse_device(device: Device) -> DeviceName:
    """Return the device that an argument names; `auto` is the best that is supported.

    Raises:
        BadRequestError: no such device, or one that is not supported.
    """
    is_object = callable(getattr(device, "dlpack_device_type", None))
    name = _NAMES.get(str(device)) if is_object or isinstance(device, str) else None
    if name is None:
        value = str(device) if is_object else device
        raise BadRequestError(
            f"device {value!r} is not supported yet: use 'auto' or 'cpu'", param="device"
        )

    return name
