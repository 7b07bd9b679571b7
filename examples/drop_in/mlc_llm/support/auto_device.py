"""The devices: the CPU."""

from __future__ import annotations

from typing import Any

from aiomlc.devices import parse_device


def detect_device(device_hint: Any) -> str:
    """Return the name of a device.

    Raises:
        BadRequestError: If it is not the CPU.
    """
    return parse_device(device_hint)


def device2str(device: Any) -> str:
    """Return the name of a device."""
    return f"{parse_device(device)}:0"
