"""The interface of a device: it has the memory of a model and runs its kernels."""

from __future__ import annotations

__all__ = (
    "CompileTarget",
    "DeviceMemory",
    "DeviceReport",
    "HostDevice",
    "NativeDevice",
    "device_at",
)

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TypeVar, final

from aiomlc.devices import TargetAttributes
from aiomlc.errors import BadRequestError

if TYPE_CHECKING:
    from aiomlc.compiler.job import CompiledLibrary

_DLPACK_CPU: Final = 1
_Device = TypeVar("_Device")


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """The memory of a device that is not the system's."""

    free_bytes: int
    source: str  #: Description of what limits `free_bytes`.


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceReport:
    """A device's facts, as its driver tells them."""

    device: str  #: Such as `opencl:1`.
    kind: str  #: `gpu`, `cpu`, `accelerator` or `other`.
    name: str
    driver: str
    memory_bytes: int
    problem: str | None = None  #: Why engines refuse it, if the driver's facts show that.

    def __str__(self) -> str:
        return f"{self.device} ({self.name}, {self.driver})"


class CompileTarget(Protocol):
    """A device that libraries are compiled for; it need not be there."""

    @property
    def target(self) -> TargetAttributes:
        """The attributes that a library is compiled for."""
        ...

    def check(self, kv_dtype: str) -> None:
        """Require that kernels can use a KV cache of this dtype.

        Raises:
            BadRequestError: If they cannot.
        """
        ...


class NativeDevice(CompileTarget, Protocol):
    """Runs the functions of a compiled library."""

    @property
    def dlpack(self) -> tuple[int, int]:
        """DLPack's type and index."""
        ...

    @property
    def memory(self) -> DeviceMemory | None:
        """Its own memory; None if that is the system's."""
        ...

    @property
    def is_trusted(self) -> bool:
        """Whether its kernels are tested before they are shipped, so that no start tests them."""
        ...

    async def prepare(self, library: CompiledLibrary) -> Self:
        """Return the device with what it needs to load a library.

        Raises:
            ModelLoadError: If the driver cannot build the kernels.
        """
        ...

    def opening(self) -> AbstractContextManager[None]:
        """Return the context in which a library is loaded and a model opened.

        Raises:
            MemoryError: If the body fails because the device has too little memory.
        """
        ...

    def load_kernels(self, module: Any) -> None:  # noqa: ANN401 - an FFI module.
        """Load the kernels of a library's module.

        Raises:
            RuntimeError: If the driver refuses them.
        """
        ...


@final
class HostDevice:
    """The processor: machine code is part of the library, or of ours."""

    dlpack: tuple[int, int] = (_DLPACK_CPU, 0)
    target: Mapping[str, int | str] = {}
    memory: DeviceMemory | None = None
    is_trusted: bool = True

    def check(self, kv_dtype: str) -> None:
        """Accept every dtype."""

    async def prepare(self, library: CompiledLibrary) -> Self:
        """Return the device; there is nothing to prepare."""
        return self

    def opening(self) -> AbstractContextManager[None]:
        """Return a context that does nothing."""
        return nullcontext()

    def load_kernels(self, module: Any) -> None:  # noqa: ANN401 - an FFI module.
        """Do nothing: there are no kernels apart."""


def device_at(devices: Sequence[_Device], kind: str, index: int) -> _Device:
    """Return a device of this machine.

    Raises:
        BadRequestError: If there is none of this index; `param` is `device`.
    """
    if index < len(devices):
        return devices[index]

    found = ", ".join(map(str, devices))
    raise BadRequestError(
        f"Device is not found on your local environment: {kind}:{index}; this machine has {found}",
        param="device",
    )
