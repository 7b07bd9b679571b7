"""Run the native conversion in a worker thread, and map what it wrote.

The native library must be loaded: its functions are looked up when they are used.
"""

from __future__ import annotations

__all__ = ("Progress", "convert_weights", "map_weights", "open_conversion")

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Protocol, cast

from anyio import CapacityLimiter, create_task_group, lowlevel, sleep, to_thread

from aiomlc.errors import ModelLoadError
from aiomlc.weights.formats.source import load_error
from aiomlc.weights.plan import ConversionPlan, ParamPlan

PROGRESS_INTERVAL: Final = 0.05  # seconds


@dataclass(frozen=True, slots=True)
class Progress:
    """Bytes of the source files that were converted, of all that will be."""

    done_bytes: int
    total_bytes: int


class Conversion(Protocol):
    """The native handle. `run` blocks without the GIL; the others never block."""

    def run(self, path: str, num_threads: int) -> str: ...
    def cancel(self) -> None: ...
    def read_bytes(self) -> int: ...
    def total_bytes(self) -> int: ...
    def error(self) -> Sequence[Any]: ...


def open_conversion(plan: ConversionPlan) -> Conversion:
    """Hand the plan to the native side. Nothing is read yet."""
    records = [_native_record(param) for param in plan.params]
    files = [str(path) for path in plan.files]
    return cast("Conversion", _native("open_conversion")(files, records, plan.nbytes))


async def convert_weights(
    plan: ConversionPlan,
    destination: Path,
    *,
    num_threads: int,
    on_progress: Callable[[Progress], object] | None = None,
) -> None:
    """Write the packed file. A run that is cancelled or fails removes it again.

    `on_progress` is called in the event loop about 20 times a second, and once at the end.

    Raises:
        ModelLoadError: a source cannot be read or the destination cannot be written.
    """
    conversion = open_conversion(plan)
    report = on_progress or _ignore_progress
    outcome = await _run_watched(conversion, destination, num_threads, report)
    if outcome == "failed":
        raise _conversion_error(plan, conversion)

    # Raises if the native side stopped because we were cancelled.
    await lowlevel.checkpoint()
    report(_progress(conversion))


def map_weights(path: Path, nbytes: int, params: Iterable[ParamPlan]) -> Sequence[Any]:
    """Map a packed file and return its parameters as `tvm_ffi` tensors, in order.

    A matrix is uint8[bytes], a vector float32. The mapping lives until the last tensor is gone.

    Raises:
        ModelLoadError: the file is missing or too short.
    """
    records = [
        {
            "is_matrix": plan.param.kind == "matrix",
            "shape": _shape((plan.nbytes,) if plan.param.kind == "matrix" else plan.param.shape),
            "offset": plan.offset,
        }
        for plan in params
    ]
    try:
        return cast("Sequence[Any]", _native("map")(str(path), nbytes, records))
    except RuntimeError as error:
        raise load_error(f"cannot map: {error}", path=path) from error


async def _run_watched(
    conversion: Conversion,
    destination: Path,
    num_threads: int,
    report: Callable[[Progress], object],
) -> str:
    try:
        async with create_task_group() as tg:
            tg.start_soon(_watch, conversion, report)
            # Not abandoned when cancelled: the watcher makes the native side return instead.
            outcome = await to_thread.run_sync(
                conversion.run, str(destination), num_threads, limiter=CapacityLimiter(1)
            )
            tg.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        if len(group.exceptions) > 1:
            raise

        raise group.exceptions[0] from None

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


def _conversion_error(plan: ConversionPlan, conversion: Conversion) -> ModelLoadError:
    message, path, index = conversion.error()
    tensor = plan.params[index].param.name if index >= 0 else None
    return load_error(str(message), path=Path(str(path)), tensor=tensor)


def _native_record(plan: ParamPlan) -> dict[str, object]:
    rows, *rest = plan.param.shape
    return {
        "is_matrix": plan.param.kind == "matrix",
        "format": plan.param.format,
        "rows": rows,
        "cols": rest[0] if rest else 1,
        "added": plan.added,
        "destination": plan.offset,
        "bytes": plan.nbytes,
        "sources": [asdict(piece) for piece in plan.slices],
    }


def _native(name: str) -> Callable[..., Any]:
    import tvm_ffi  # 0.1 s, so only when a model is opened.

    function: Callable[..., Any] = tvm_ffi.get_global_func(f"aiomlc.weights.{name}")
    return function


def _shape(shape: tuple[int, ...]) -> object:
    import tvm_ffi

    return tvm_ffi.Shape(shape)
