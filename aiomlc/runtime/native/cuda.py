"""The CUDA devices of this machine, and architectures to compile for where there is none."""

from __future__ import annotations

__all__ = (
    "CudaArchitecture",
    "CudaDevice",
    "cuda_device",
    "cuda_devices",
    "cuda_reports",
    "load_cuda",
)

import ctypes
import functools
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self, final

from aiomlc.compiler.backends.cuda.architecture import (
    architecture_of,
    check_architecture,
    target_of,
)
from aiomlc.compiler.backends.cuda.packages import packaged_file
from aiomlc.compiler.backends.cuda.program import decode_program
from aiomlc.devices import TargetAttributes
from aiomlc.errors import BadRequestError, ModelLoadError
from aiomlc.runtime.native.device import DeviceMemory, DeviceReport, device_at
from aiomlc.runtime.native.library import (
    load_native,
    native_function,
    replaced_global,
    tvm_library,
)

if TYPE_CHECKING:
    from aiomlc.compiler.job import CompiledLibrary

_DLPACK_TYPE: Final = 2
_DRIVER: Final = "libcuda.so.1"
_RUNTIME: Final = "libcudart.so.13"
# Of `DeviceAttrKind` in `tvm/runtime/device_api.h`.
_COMPUTE_VERSION, _DEVICE_NAME, _TOTAL_MEMORY, _FREE_MEMORY = 4, 5, 14, 15
_OUT_OF_MEMORY: Final = "cudaErrorMemoryAllocation"


@final
@dataclass(frozen=True, slots=True)
class CudaArchitecture:
    """The architecture of a GPU that need not be there, such as `sm_90a`."""

    name: str

    def __post_init__(self) -> None:
        """Require a known name.

        Raises:
            BadRequestError: If it is unknown; `param` is `arch`.
        """
        check_architecture(self.name)

    @property
    def target(self) -> TargetAttributes:
        """Attributes of TVM's target, which the kernels are compiled for."""
        return target_of(self.name)

    def check(self, kv_dtype: str) -> None:
        """Accept every dtype: all architectures compute with float16."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CudaDevice:
    """A GPU that CUDA offers; sizes are in bytes."""

    index: int  #: Of `cuda:1`.
    name: str
    architecture: CudaArchitecture
    memory_bytes: int
    free_bytes: int
    is_trusted: bool = False

    def __str__(self) -> str:
        return f"cuda:{self.index} ({self.name}, {self.architecture.name})"

    @property
    def dlpack(self) -> tuple[int, int]:
        """DLPack's type and index."""
        return _DLPACK_TYPE, self.index

    @property
    def target(self) -> TargetAttributes:
        """Attributes of TVM's target, which the kernels are compiled for."""
        return self.architecture.target

    @property
    def memory(self) -> DeviceMemory:
        """Its own memory, as far as no process has it."""
        return DeviceMemory(self.free_bytes, f"the free memory of {self.name}")

    def check(self, kv_dtype: str) -> None:
        """Accept every dtype: all architectures compute with float16."""

    async def prepare(self, library: CompiledLibrary) -> Self:
        """Return the device; libraries have machine code."""
        return self

    def opening(self) -> AbstractContextManager[None]:
        """Return the context in which a library is loaded and a model opened.

        Raises:
            MemoryError: If the body fails because the GPU has too little memory.
        """
        return _opening(self)

    def load_kernels(self, module: Any) -> None:  # noqa: ANN401 - an FFI module.
        """Do nothing: CUDA loads the kernels of a library at the first call."""


def cuda_devices() -> list[CudaDevice]:
    """Return the CUDA devices of this machine, in the order of the driver.

    Raises:
        BadRequestError: If there is no driver, runtime or GPU, or a GPU is too old; `param` is
            `device`.
        ModelLoadError: If TVM's library cannot be loaded.
    """
    devices = []
    for facts in _all_facts():
        architecture = architecture_of(facts.capability)
        if architecture is None:
            raise _unavailable(facts.problem)

        devices.append(
            CudaDevice(
                index=facts.index,
                name=facts.name,
                architecture=CudaArchitecture(architecture),
                memory_bytes=facts.memory_bytes,
                free_bytes=facts.free_bytes,
            )
        )
    return devices


def cuda_reports() -> list[DeviceReport]:
    """Return what the driver tells of the CUDA devices, also of those that are too old.

    Raises:
        BadRequestError: If there is no driver, runtime or GPU; `param` is `device`.
        ModelLoadError: If TVM's library cannot be loaded.
    """
    return [
        DeviceReport(
            device=f"cuda:{facts.index}",
            kind="gpu",
            name=facts.name,
            driver=_driver_version(),
            memory_bytes=facts.memory_bytes,
            problem=facts.problem if architecture_of(facts.capability) is None else None,
        )
        for facts in _all_facts()
    ]


def cuda_device(index: int) -> CudaDevice:
    """Return the CUDA device of an index.

    Raises:
        BadRequestError: As `cuda_devices`, and if there is no device of this index.
    """
    return device_at(cuda_devices(), "cuda", index)


@functools.cache
def load_cuda() -> None:
    """Load NVIDIA's driver and runtime, and TVM's runtime for CUDA, into the process.

    Raises:
        BadRequestError: If there is no driver or runtime; `param` is `device`.
        ModelLoadError: If TVM's library is missing or cannot be loaded.
    """
    load_native()
    packaged = packaged_file(_RUNTIME)
    try:
        ctypes.CDLL(_DRIVER, ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise _unavailable(
            f"NVIDIA's driver is missing: {error}: install the driver of the GPU, 580 or later"
        ) from None

    try:
        ctypes.CDLL(_RUNTIME if packaged is None else str(packaged), ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise _unavailable(
            f"the CUDA runtime is missing: {error}: pip install 'aiomlc[cuda]', or install "
            "NVIDIA's toolkit 13"
        ) from None

    try:
        ctypes.CDLL(str(tvm_library("libtvm_runtime_cuda.so")), ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise ModelLoadError(f"cannot load a native library: {error}") from error


@dataclass(frozen=True, slots=True)
class _Facts:
    """A GPU's facts, as TVM tells them."""

    index: int
    name: str
    capability: str
    memory_bytes: int
    free_bytes: int

    @property
    def problem(self) -> str:
        """Why a GPU without an architecture of ours is refused."""
        return (
            f"the compute capability of {self.name}, {self.capability}, is not supported: use "
            "'opencl', or another GPU by CUDA_VISIBLE_DEVICES"
        )


def _all_facts() -> list[_Facts]:
    load_cuda()
    try:
        count = int(native_function("runtime.GetCudaDeviceCount")())
        found = [_facts(index) for index in range(count)]
    except RuntimeError as error:
        lines = str(error).strip().splitlines()
        raise _unavailable(
            f"NVIDIA's driver fails: {lines[-1] if lines else error}: install a driver for CUDA 13 "
            "(580 or later), and see whether nvidia-smi lists the GPU"
        ) from None

    if not found:
        raise _unavailable("NVIDIA's driver finds no GPU: see CUDA_VISIBLE_DEVICES and nvidia-smi")

    return found


def _facts(index: int) -> _Facts:
    def attribute(kind: int) -> Any:  # noqa: ANN401 - an FFI function has no static signature.
        return native_function("runtime.GetDeviceAttr")(_DLPACK_TYPE, index, kind)

    return _Facts(
        index,
        str(attribute(_DEVICE_NAME)),
        str(attribute(_COMPUTE_VERSION)),
        int(attribute(_TOTAL_MEMORY)),
        int(attribute(_FREE_MEMORY)),
    )


def _driver_version() -> str:
    """Return the version of CUDA that the loaded driver is for; TVM does not tell it."""
    version = ctypes.c_int()
    if ctypes.CDLL(_DRIVER).cuDriverGetVersion(ctypes.byref(version)) != 0:
        return "a driver that does not tell its version"

    return f"a driver for CUDA {version.value // 1000}.{version.value % 1000 // 10}"


@contextmanager
def _opening(device: CudaDevice) -> Iterator[None]:
    """Give TVM the machine code of the library, and name a lack of memory."""
    try:
        # Only while the library is loaded: a program's own `import tvm` registers another one.
        with replaced_global("tvm_callback_cuda_compile", decode_program):
            yield
    except ModelLoadError as error:
        if _OUT_OF_MEMORY not in str(error):
            raise

        raise MemoryError(f"the model does not fit on {device}: {error}") from None


def _unavailable(problem: str) -> BadRequestError:
    return BadRequestError(f"device 'cuda': {problem}; or use device 'cpu'", param="device")
