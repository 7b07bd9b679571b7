"""The devices that an engine runs on: the only place that knows their names."""

from __future__ import annotations

__all__ = (
    "AUTO",
    "Device",
    "DeviceName",
    "TargetAttributes",
    "device_index",
    "device_name",
    "device_of_type",
    "parse_device",
)

import re
from collections.abc import Mapping
from typing import Final, Literal, Protocol

from aiomlc.errors import BadRequestError
from aiomlc.validation.json_values import safe_repr

#: The device that is selected when a model is opened.
AUTO: Final = "auto"
#: The names of devices without an index; each has a back end.
DeviceName = Literal["cpu", "cpu:tvm", "cuda", "opencl"]
_NAMES: Final[dict[str, DeviceName]] = {
    "cpu": "cpu",
    "cpu:0": "cpu",
    "cpu:tvm": "cpu:tvm",  # For tests: see docs/design/compiler.md.
}
#: The names of devices with an index.
_INDEXED: Final[dict[str, DeviceName]] = {"cuda": "cuda", "opencl": "opencl"}
_OFFERED: Final = "use 'auto', 'cpu', 'cuda' or 'opencl'"
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
#: The attributes of a target that code depends on, as TVM names them.
TargetAttributes = Mapping[str, int | str]


def parse_device(device: Device) -> str:
    """Return the name and index of a device: `auto`, `cpu` or, for example, `cuda:1`.

    Whether there is a GPU of this index is known when it is opened.

    Raises:
        BadRequestError: If the device is unknown or not supported; `param` is `device`.
    """
    is_object = callable(getattr(device, "dlpack_device_type", None))
    if not is_object and not isinstance(device, str):
        raise _invalid(device)

    if str(device) == AUTO:
        return AUTO

    name = _NAMES.get(str(device))
    if name is not None:
        return name

    match = _NAME.fullmatch(str(device))
    if match is None:
        raise _invalid(str(device))

    if match[1] in _INDEXED:
        return f"{match[1]}:{device_index(str(device))}"

    raise BadRequestError(
        f"Device is not found on your local environment: {device}; {_OFFERED}", param="device"
    )


def device_name(device: str) -> DeviceName:
    """Return the name of a device without its index; not of `auto`, which names none.

    Raises:
        BadRequestError: As `parse_device`.
    """
    name = parse_device(device)
    assert name != AUTO, "it is selected before"
    return _NAMES.get(name) or _INDEXED[name.partition(":")[0]]


def device_index(device: str) -> int:
    """Return the index of a device among those of its name: 1 for `cuda:1`."""
    _, _, index = device.partition(":")
    return int(index) if index.isdecimal() else 0


def device_of_type(device_type: int, device_id: int) -> str:
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
