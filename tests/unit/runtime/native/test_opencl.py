"""OpenCL devices on machines without OpenCL: each error says what is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from ctypes.util import find_library
from pathlib import Path

import pytest

from aiomlc.runtime.native.opencl import OpenCLDevice

_LIST = """
from aiomlc.runtime.native.opencl import opencl_device
try:
    print(opencl_device(0))
except Exception as error:
    print(type(error).__name__, error.param, error)
"""
DEVICE = OpenCLDevice(
    index=1,
    name="a device",
    platform="a driver",
    driver_version="1.2",
    device_version="OpenCL 3.0",
    kind="gpu",
    has_float16=False,
    unified_memory=False,
    max_work_group_size=1024,
    local_memory_bytes=16384,
    max_allocation_bytes=1 << 30,
    memory_bytes=1 << 32,
    allocated_bytes=0,
)


def _open_first_device(**environment: str) -> str:
    """Return the output of a process of its own, because a loader that was opened stays open."""
    return subprocess.run(
        [sys.executable, "-c", _LIST],
        env={**os.environ, **environment},
        check=True,
        capture_output=True,
        text=True,
    ).stdout


def test_a_missing_loader_is_an_error_with_what_to_install() -> None:
    output = _open_first_device(AIOMLC_OPENCL_LOADER="/missing/libOpenCL.so.1")

    assert output.startswith("BadRequestError device device 'opencl': the OpenCL loader cannot")
    assert "/missing/libOpenCL.so.1" in output
    assert "install ocl-icd-libopencl1 and the driver" in output


def test_a_library_that_is_no_loader_is_refused() -> None:
    output = _open_first_device(AIOMLC_OPENCL_LOADER="libc.so.6")

    assert "the OpenCL loader has no function clGetPlatformIDs" in output


@pytest.mark.skipif(find_library("OpenCL") is None, reason="needs an OpenCL loader")
def test_a_loader_without_drivers_is_an_error(tmp_path: Path) -> None:
    output = _open_first_device(OCL_ICD_VENDORS=str(tmp_path), OCL_ICD_FILENAMES="")

    assert output.startswith("BadRequestError device device 'opencl': ")
    assert "finds no driver" in output
    assert "set OCL_ICD_VENDORS" in output


def test_a_target_has_what_the_device_and_the_schedules_allow() -> None:
    assert DEVICE.target == {
        "max_num_threads": 256,
        "max_threads_per_block": 256,
        "max_shared_memory_per_block": 16384,
        "thread_warp_size": 1,
    }
    assert str(DEVICE) == "opencl:1 (a device, a driver 1.2)"
