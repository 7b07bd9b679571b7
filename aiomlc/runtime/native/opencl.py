"""The OpenCL devices of this machine, and the kernels of a library on one of them."""

from __future__ import annotations

__all__ = ("Kernels", "OpenCLDevice", "opencl_device", "opencl_devices", "opencl_reports")

import hashlib
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Self, final

from anyio import from_thread, to_thread

from aiomlc.cache import PROGRAMS, Entry, cache_error, find, publish, staged_entry
from aiomlc.devices import TargetAttributes
from aiomlc.errors import BadRequestError
from aiomlc.runtime.native.device import DeviceMemory, DeviceReport, device_at
from aiomlc.runtime.native.library import load_opencl, native_function, open_library

if TYPE_CHECKING:
    from aiomlc.compiler.job import CompiledLibrary

_DLPACK_TYPE: Final = 4
# The work groups and local memory that TVM's schedules use at most. More helps some devices only.
_MAX_THREADS: Final = 256
_MAX_LOCAL_BYTES: Final = 32 << 10
_FLOAT16: Final = "float16"


@dataclass(frozen=True, slots=True)
class Kernels:
    """Machine code of a library's kernels."""

    binary: bytes  #: Empty if the driver does not give it; then they are built from source.


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class OpenCLDevice:
    """A device that OpenCL offers; sizes are in bytes."""

    index: int  #: Of `opencl:1`.
    name: str
    platform: str  #: The name of the driver.
    driver_version: str
    device_version: str
    kind: str  #: `gpu`, `cpu`, `accelerator` or `other`.
    has_float16: bool  #: Whether kernels can compute with float16.
    unified_memory: bool  #: Whether its memory is that of the system.
    max_work_group_size: int
    local_memory_bytes: int
    max_allocation_bytes: int
    memory_bytes: int
    allocated_bytes: int  #: By this process.
    kernels: Kernels = Kernels(b"")  #: Of the library that is opened next.
    is_trusted: bool = False

    def __str__(self) -> str:
        return f"opencl:{self.index} ({self.name}, {self.platform} {self.driver_version})"

    @property
    def dlpack(self) -> tuple[int, int]:
        """DLPack's type and index."""
        return _DLPACK_TYPE, self.index

    @property
    def target(self) -> TargetAttributes:
        """Attributes of TVM's target, which the kernels are compiled for."""
        threads = min(self.max_work_group_size, _MAX_THREADS)
        return {
            "max_num_threads": threads,
            "max_threads_per_block": threads,
            "max_shared_memory_per_block": min(self.local_memory_bytes, _MAX_LOCAL_BYTES),
            "thread_warp_size": 1,  # Reductions go through local memory, not through subgroups.
        }

    @property
    def memory(self) -> DeviceMemory | None:
        """Its own memory; None if that is the system's."""
        if self.unified_memory:
            return None

        return DeviceMemory(self.memory_bytes - self.allocated_bytes, f"the memory of {self.name}")

    def check(self, kv_dtype: str) -> None:
        """Require that kernels can use a KV cache of this dtype.

        Raises:
            BadRequestError: If they cannot.
        """
        if kv_dtype == _FLOAT16 and not self.has_float16:
            raise BadRequestError(
                f"device {self}: kv_cache_dtype must be float32, because its kernels cannot "
                "compute with float16",
                param="kv_cache_dtype",
            )

    async def prepare(self, library: CompiledLibrary) -> Self:
        """Return the device with a library's kernels, which are built unless they are cached.

        Raises:
            ModelLoadError: If the driver cannot build them, or the cache cannot be written.
        """
        key = self._program_key(library)
        entry = await to_thread.run_sync(find, PROGRAMS, key, from_thread.check_cancelled)
        if entry is not None:
            return await to_thread.run_sync(self._cached, entry)

        binary = await to_thread.run_sync(self._build, library)
        if not binary:
            return self

        info = {"model": f"kernels on {self.name}", "quantization": self.platform}
        async with staged_entry(PROGRAMS, len(binary)) as staged:
            path = staged.path / PROGRAMS.files[0]

            def write() -> None:
                try:
                    path.write_bytes(binary)
                except OSError as error:
                    raise cache_error(path, error) from None
                publish(staged, key, info, from_thread.check_cancelled)

            await to_thread.run_sync(write)
        return replace(self, kernels=Kernels(binary))

    def opening(self) -> AbstractContextManager[None]:
        """Return a context that does nothing."""
        return nullcontext()

    def load_kernels(self, module: Any) -> None:  # noqa: ANN401 - an FFI module.
        """Load the kernels of a library's module on the device.

        Raises:
            RuntimeError: If the driver refuses them; the message names the call and the code.
        """
        native_function("aiomlc.opencl.build")(module, self.index, self.kernels.binary)

    def _program_key(self, library: CompiledLibrary) -> str:
        """Return the key of a program: the device, its driver and what the library is made of."""
        parts = (self.platform, self.name, self.driver_version, self.device_version, library.key)
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def _cached(self, entry: Entry) -> Self:
        path = entry.path / PROGRAMS.files[0]
        try:
            return replace(self, kernels=Kernels(path.read_bytes()))
        except OSError as error:
            raise cache_error(path, error) from None

    def _build(self, library: CompiledLibrary) -> bytes:
        with open_library(library) as module:
            return bytes(native_function("aiomlc.opencl.build")(module, self.index, b""))


def opencl_devices() -> list[OpenCLDevice]:
    """Return the OpenCL devices of this machine, GPUs first.

    Raises:
        BadRequestError: If there is no loader, driver or device; `param` is `device`.
        ModelLoadError: If the native library cannot be loaded.
    """
    load_opencl()
    try:
        listed = native_function("aiomlc.opencl.devices")()
    except BadRequestError as error:
        raise BadRequestError(str(error), param="device") from None

    return [OpenCLDevice(index=i, **dict(values)) for i, values in enumerate(listed)]


def opencl_device(index: int) -> OpenCLDevice:
    """Return the OpenCL device of an index.

    Raises:
        BadRequestError: As `opencl_devices`, and if there is no device of this index.
    """
    return device_at(opencl_devices(), "opencl", index)


def opencl_reports() -> list[DeviceReport]:
    """Return what the drivers tell of the OpenCL devices.

    Raises:
        BadRequestError: As `opencl_devices`.
    """
    return [
        DeviceReport(
            device=f"opencl:{device.index}",
            kind=device.kind,
            name=device.name,
            driver=f"{device.platform} {device.driver_version}",
            memory_bytes=device.memory_bytes,
        )
        for device in opencl_devices()
    ]
