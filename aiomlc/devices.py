"""The devices that an engine runs on: the only place that knows their names."""

from __future__ import annotations

__all__ = ("Device", "DeviceName", "device_of_type", "parse_device")

import re
from typing import Final, Literal, Protocol

from aiomlc.errors import BadRequestError
from aiomlc.validation.json_values import safe_repr

DeviceName = Literal["cpu", "cpu:tvm"]
_NAMES: Final[dict[str, DeviceName]] = {
    "auto": "cpu",
    "cpu": "cpu",
    "cpu:0": "cpu",
    "cpu:tvm": "cpu:tvm",  # For tests: see docs/design/compiler.md.
}
_OFFERED: Final = "use 'auto' or 'cpu'"
#: The kinds of devices that TVM and MLC LLM name, by DLPack's type.
_KINDS: Final = {
    1: "cpu",
    2: "cuda",
    4: "opencl",
    7: "vulkan",
    8: "metal",
    10: "rocm",
    15: "webgpu",
    16: "hexagon",
}
_NAME: Final = re.compile(rf"({'|'.join(_KINDS.values())})(:\d+)?", re.ASCII)


class DeviceObject(Protocol):
    """A device object such as `tvm.cpu()`; its `str()` is the device's name."""

    def dlpack_device_type(self) -> int:
        """Return the DLPack device type."""
        ...


Device = str | DeviceObject


def parse_device(device: Device) -> DeviceName:
    """Return the name of a device; `auto` selects the best one that this machine has.

    Raises:
        BadRequestError: If the device is unknown or absent; `param` is `device`.
    """
    is_object = callable(getattr(device, "dlpack_device_type", None))
    if not is_object and not isinstance(device, str):
        raise _invalid(device)

    name = _NAMES.get(str(device))
    if name is not None:
        return name

    if not _NAME.fullmatch(str(device)):
        raise _invalid(str(device))

    raise BadRequestError(
        f"Device is not found on your local environment: {device}; {_OFFERED}", param="device"
    )


def device_of_type(device_type: int, device_id: int) -> DeviceName:
    """Return the name of the device with a DLPack type and an index.

    Raises:
        BadRequestError: If the device is unknown or absent; `param` is `device`.
    """
    numbers: tuple[object, object] = (device_type, device_id)
    if any(type(number) is not int for number in numbers):
        raise _invalid(numbers)

    return parse_device(f"{_KINDS.get(device_type, device_type)}:{device_id}")


def _invalid(device: object) -> BadRequestError:
    return BadRequestError(f"Invalid device name: {safe_repr(device)}; {_OFFERED}", param="device")
