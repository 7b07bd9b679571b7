"""How a constructor is told its device: by name, or by an object of TVM's."""

from __future__ import annotations

__all__ = ("Device", "device_name")

from typing import Protocol

from aiomlc.errors import BadRequestError

_NAMES = {"auto": "auto", "cpu": "cpu", "cpu:0": "cpu"}


class DeviceObject(Protocol):
    """A device as `tvm.cpu()` makes it; its text is its name."""

    def dlpack_device_type(self) -> int:
        """DLPack's number of its kind."""


Device = str | DeviceObject


def device_name(device: Device) -> str:
    """The name that a loader is given, `auto` or `cpu`.

    Raises:
        BadRequestError: it is another device, or none at all.
    """
    is_object = callable(getattr(device, "dlpack_device_type", None))
    name = _NAMES.get(str(device)) if is_object or isinstance(device, str) else None
    if name is None:
        shown = str(device) if is_object else device
        raise BadRequestError(
            f"device {shown!r} is not supported yet: use 'auto' or 'cpu'", param="device"
        )

    return name
