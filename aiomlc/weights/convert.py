"""The native conversion of weights in a worker thread, and the mapping of its result.

The native library must be loaded before a function of this module is called.
"""

from __future__ import annotations

__all__ = ("Progress", "convert_weights", "map_weights", "open_conversion")

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, cast

from anyio import CapacityLimiter, create_task_group, lowlevel, sleep, to_thread

from aiomlc.cache import cache_error
from aiomlc.errors import ModelLoadError
from aiomlc.validation.tracebacks import first_leaf
from aiomlc.weights.formats.source import SourceTensor, load_error
from aiomlc.weights.native_records import native_records
from aiomlc.weights.plan import ConversionPlan, ParameterPlan
from aiomlc.weights.storage.stored_matrix import StoredMatrix

PROGRESS_INTERVAL: Final = 0.05  # seconds

_OF_A_VALUE: Final = "a value "


@dataclass(frozen=True, slots=True)
class Progress:
    """The converted bytes of the source files, and their total."""

    done_bytes: int
    total_bytes: int


class Conversion(Protocol):
    """The native conversion. `run` blocks without the GIL; the other methods never block."""

    def run(self, path: str, num_threads: int) -> str: ...
    def cancel(self) -> None: ...
    def read_bytes(self) -> int: ...
    def total_bytes(self) -> int: ...
    def error(self) -> Sequence[Any]: ...


def open_conversion(plan: ConversionPlan) -> Conversion:
    """Create the native conversion of a plan, without reading anything yet."""
    records = native_records(plan)
    files = [str(path) for path in plan.files]
    return cast("Conversion", _native("open_conversion")(files, records, plan.nbytes))


async def convert_weights(
    plan: ConversionPlan,
    destination: Path,
    *,
    num_threads: int,
    on_progress: Callable[[Progress], object] | None = None,
) -> None:
    """Write the packed file; it is removed again if the conversion is cancelled or fails.

    Args:
        plan: The parameters and their sources.
        destination: The packed file.
        num_threads: Threads of the conversion.
        on_progress: Called in the event loop about 20 times a second, and once at the end.

    Raises:
        ModelLoadError: If a source cannot be read or the destination cannot be written.
    """
    conversion = open_conversion(plan)
    report = on_progress or _ignore_progress
    outcome = await _run_watched(conversion, destination, num_threads, report)
    if outcome == "failed":
        raise _conversion_error(plan, conversion, destination)

    # Raises the cancellation if it made the native conversion stop.
    await lowlevel.checkpoint()
    report(_progress(conversion))


def map_weights(path: Path, nbytes: int, params: Iterable[ParameterPlan]) -> Sequence[Any]:
    """Map a packed file and return its parameters as `tvm_ffi` tensors, in order.

    Their shapes are those of `PackedParameter.tensor_shape`. Tiles and 4-bit rows are uint8,
    float32 rows and vectors float32, an order of inputs int32. The file stays mapped until the last
    tensor is deleted.

    Raises:
        ModelLoadError: If the file is missing or too short.
    """
    records = [
        {
            "kind": planned.parameter.storage,
            "shape": _tensor_shape(planned),
            "offset": planned.offset,
        }
        for planned in params
    ]
    try:
        return cast("Sequence[Any]", _native("map")(str(path), nbytes, records))
    except RuntimeError as error:
        raise load_error(f"cannot map: {error}", path=path) from None


async def _run_watched(
    conversion: Conversion,
    destination: Path,
    num_threads: int,
    report: Callable[[Progress], object],
) -> str:
    outcome: str | None = None
    try:
        async with create_task_group() as tg:
            tg.start_soon(_watch, conversion, report)
            # The thread is not abandoned on cancellation: `_watch` makes `run` return instead.
            outcome = await to_thread.run_sync(
                conversion.run, str(destination), num_threads, limiter=CapacityLimiter(1)
            )
            tg.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise first_leaf(group, ModelLoadError) from None

    assert outcome is not None, "set unless an exception was raised"
    return outcome


async def _watch(conversion: Conversion, report: Callable[[Progress], object]) -> None:
    try:
        while True:
            report(_progress(conversion))
            await sleep(PROGRESS_INTERVAL)
    finally:
        conversion.cancel()


def _progress(conversion: Conversion) -> Progress:
    return Progress(conversion.read_bytes(), conversion.total_bytes())


def _ignore_progress(progress: Progress) -> None:
    pass


def _conversion_error(
    plan: ConversionPlan, conversion: Conversion, destination: Path
) -> ModelLoadError:
    message, path, index, offset = conversion.error()
    if str(path) == str(destination):
        return cache_error(destination, str(message).removeprefix("cannot write: "))

    source = Path(str(path))
    place = (source, offset)
    for matrix in plan.converted[index].matrices if index >= 0 else ():
        for tensor in matrix.tensors():
            if (tensor.path, tensor.offset) == place:
                problem = _with_scales(str(message), matrix, tensor)
                return load_error(problem, path=source, tensor=tensor.name)

    return load_error(str(message), path=source)


def _with_scales(message: str, matrix: StoredMatrix, tensor: SourceTensor) -> str:
    """Return what is wrong with a value, also with the scales that it was multiplied by."""
    if matrix.scales is None or tensor != matrix.tensor or not message.startswith(_OF_A_VALUE):
        return message

    problem, *advice = message.split("; ")
    return "; ".join((f"{problem}, scaled by {matrix.scales.tensor.name}", *advice))


def _native(name: str) -> Callable[..., Any]:
    import tvm_ffi  # Takes 0.1 s, so it is only imported when a model is loaded.

    function: Callable[..., Any] = tvm_ffi.get_global_func(f"aiomlc.weights.{name}")
    return function


def _tensor_shape(planned: ParameterPlan) -> object:
    import tvm_ffi

    return tvm_ffi.Shape(planned.parameter.tensor_shape)
