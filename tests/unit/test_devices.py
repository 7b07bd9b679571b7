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
    ("device", "name"),
    [
        ("auto", "auto"),
        ("cpu", "cpu"),
        ("cpu:0", "cpu"),
        (CPU, "cpu"),
        ("cpu:tvm", "cpu:tvm"),
        ("opencl", "opencl:0"),
        ("opencl:1", "opencl:1"),
        (tvm_ffi.device("opencl", 2), "opencl:2"),
        ("cuda", "cuda:0"),
        ("cuda:1", "cuda:1"),
        (tvm_ffi.device("cuda", 3), "cuda:3"),
    ],
)
def test_device_names_and_objects_are_parsed(device: Device, name: str) -> None:
    assert parse_device(device) == name


@pytest.mark.parametrize(
    ("device", "problem"),
    [
        ("cpu:1", "Device is not found on your local environment: cpu:1"),
        ("metal:1", "Device is not found on your local environment: metal:1"),
        ("vulkan", "Device is not found on your local environment: vulkan"),
        ("opencl:-1", "Invalid device name: 'opencl:-1'"),
        (tvm_ffi.device("metal", 0), "Device is not found on your local environment: metal:0"),
        (tvm_ffi.device("cpu", 1), "Device is not found on your local environment: cpu:1"),
        ("gpu", "Invalid device name: 'gpu'"),
        ("cuda:x", "Invalid device name: 'cuda:x'"),
        (None, "Invalid device name: None"),
        (1, "Invalid device name: 1"),
    ],
)
def test_an_absent_or_unknown_device_is_rejected(device: Device, problem: str) -> None:
    message = f"{problem}; use 'auto', 'cpu', 'cuda' or 'opencl'"
    with pytest.raises(BadRequestError, match=message) as caught:
        parse_device(device)

    assert caught.value.param == "device"


@pytest.mark.parametrize("engine_class", ENGINES)
@pytest.mark.parametrize("device", ["cpu:0", CPU])
def test_every_engine_accepts_device_names_and_objects(
    engine_class: type[MLCEngine], device: Device
) -> None:
    engine_class(device=device, loader=fake_loader()).terminate()
