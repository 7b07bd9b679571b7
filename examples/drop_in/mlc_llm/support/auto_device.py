"""The devices: the CPU and those of OpenCL."""

from __future__ import annotations

from typing import Any

from aiomlc.devices import parse_device


def detect_device(device_hint: Any) -> str:
    """Return the name of a device.

    Raises:
        BadRequestError: If it is neither the CPU nor a device of OpenCL.
    """
    return parse_device(device_hint)


def device2str(device: Any) -> str:
    """Return the name of a device."""
    name = parse_device(device)
    return name if ":" in name else f"{name}:0"
