"""The devices a library can be compiled for."""

from __future__ import annotations

__all__ = ("check_device",)

from aiomlc.errors import ModelLoadError


def check_device(device: str) -> str:
    """The device to compile for; `auto` is the best that is supported.

    Raises:
        ModelLoadError: the device is not supported.
    """
    if device in ("auto", "cpu"):
        return "cpu"

    raise ModelLoadError(f"device is {device!r}: only the CPU is supported so far", field="device")
