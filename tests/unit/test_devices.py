"""Tests of the devices of an engine: names and device objects."""

from __future__ import annotations

import pytest
import tvm_ffi

from aiomlc import (
    AsyncMLCEngine,
    BadRequestError,
    JSONFFIEngine,
    MLCEngine,
    SyncMLCEngine,
)
from aiomlc.devices import Device, parse_device
from aiomlc.testing import fake_loader

ENGINES = (AsyncMLCEngine, MLCEngine, SyncMLCEngine, JSONFFIEngine)
CPU = tvm_ffi.device("cpu", 0)


@pytest.mark.parametrize(
    ("device", "name"), [("auto", "cpu"), ("cpu", "cpu"), ("cpu:0", "cpu"), (CPU, "cpu")]
)
def test_device_names_and_objects_are_parsed(device: Device, name: str) -> None:
    assert parse_device(device) == name


@pytest.mark.parametrize(
    ("device", "printed"),
    [
        ("cpu:1", "'cpu:1'"),
        (tvm_ffi.device("cuda", 0), "'cuda:0'"),
        (tvm_ffi.device("cpu", 1), "'cpu:1'"),
        (None, "None"),
        (1, "1"),
    ],
)
def test_an_unsupported_device_is_rejected(device: Device, printed: str) -> None:
    with pytest.raises(BadRequestError, match=f"device {printed} is not supported") as caught:
        parse_device(device)

    assert caught.value.param == "device"


@pytest.mark.parametrize("engine_class", ENGINES)
@pytest.mark.parametrize("device", ["cpu:0", CPU])
def test_every_engine_accepts_device_names_and_objects(
    engine_class: type[MLCEngine], device: Device
) -> None:
    engine_class(device=device, loader=fake_loader()).terminate()
