"""Intel's OpenCL driver for processors, as `make opencl` installs it from PyPI."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

from aiomlc.runtime.native.library import native_function
from aiomlc.runtime.native.opencl import OpenCLDevice, opencl_device

_DRIVER = "libintelocl.so"
_LOADER = "libOpenCL.so.1"
# The libraries that the loader needs and would not find; in this order.
_NEEDED = ("libintlc.so.5", "libirng.so", "libsvml.so", "libimf.so")


def _files() -> dict[str, Path]:
    """Return the paths of the driver and of the loader that is installed with it."""
    try:
        files = metadata.files("intel-opencl-rt") or ()
    except metadata.PackageNotFoundError:
        return {}

    return {
        file.name: Path(str(file.locate())).resolve()
        for file in files
        if file.name in (_DRIVER, _LOADER)
    }


def driver_folder() -> Path:
    """Return the folder of the driver and of the libraries that it needs."""
    return _files()[_DRIVER].parent


@pytest.fixture(scope="session")
def opencl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenCLDevice]:
    """Make Intel's driver the only one of this process; return its device."""
    files = _files()
    if not files:
        pytest.skip("needs intel-opencl-rt and intel-cmplr-lib-rt: make opencl")

    for name in _NEEDED:
        ctypes.CDLL(str(files[_LOADER].with_name(name)))
    drivers = tmp_path_factory.mktemp("drivers")
    (drivers / "intel.icd").write_text(f"{files[_DRIVER]}\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIOMLC_OPENCL_LOADER", str(files[_LOADER]))
        patch.setenv("OCL_ICD_VENDORS", str(drivers))
        patch.setenv("OCL_ICD_FILENAMES", str(files[_DRIVER]))
        yield opencl_device(0)


@pytest.fixture
def faulty_device(opencl: OpenCLDevice) -> Iterator[FaultyDevice]:
    """Return the device, whose faults end with the test."""
    yield FaultyDevice(opencl.index)
    FaultyDevice(opencl.index).inject()


class FaultyDevice:
    """Injects faults into an OpenCL device."""

    def __init__(self, index: int) -> None:
        self._index = index

    def inject(self, *, memory_bytes: int = 0, launches: int = 0) -> None:
        """Limit the memory of the device, and lose it after some kernels; 0 for neither."""
        native_function("aiomlc.opencl.inject_faults")(self._index, memory_bytes, launches)
