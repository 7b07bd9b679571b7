"""The device that `auto` names: of CUDA, a GPU of OpenCL, or the CPU.

Drivers are asked in processes of their own, because one that crashes or hangs must not take the
program with it.
"""

from __future__ import annotations

__all__ = (
    "DeviceChecks",
    "Listing",
    "ProcessChecks",
    "Selection",
    "SelectionMemo",
    "device_of_kind",
    "first_device",
    "has_gpu_files",
    "open_on_device",
    "select_device",
    "selected_device",
)

import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, Final, Protocol, TypeVar, final

from anyio import to_thread

from aiomlc.devices import AUTO
from aiomlc.errors import AiomlcError
from aiomlc.runtime.native.device import DeviceReport

_Result = TypeVar("_Result")
_ROOT: Final = Path("/")
_CPU: Final = "cpu"
#: In the order of preference.
_KINDS: Final = ("cuda", "opencl")
_MODULE: Final = "aiomlc.runtime.loading.device_check"
_LISTING_SECONDS: Final = 30.0
_TEST_SECONDS: Final = 240.0  # The first test on a machine compiles the bundled model.
_GRACE_SECONDS: Final = 2.0
#: Device files of GPUs: of NVIDIA (also on Tegra), WSL, Linux' DRM, AMD, Arm and Qualcomm.
_GPU_FILES: Final = (
    "nvidia[0-9]*",
    "nvhost-ctrl-gpu",
    "dxg",
    "dri/render*",
    "kfd",
    "mali[0-9]*",
    "kgsl-3d0",
)

_logger = logging.getLogger("aiomlc")


@dataclass(frozen=True, slots=True)
class Listing:
    """The devices of a kind."""

    devices: tuple[DeviceReport, ...]
    problem: str | None = None  #: Why there are none.


class DeviceChecks(Protocol):
    """Asks the drivers of this machine."""

    def devices(self, kind: str) -> Listing:
        """Return the devices of a kind: `cuda` or `opencl`."""
        ...

    def test(self, device: str) -> str | None:
        """Return what is wrong with the answers of the bundled model on a device, if anything."""
        ...


@final
class ProcessChecks:
    """Asks each driver in a process of its own, for a limited time."""

    def __init__(
        self,
        *,
        module: str = _MODULE,
        listing_seconds: float = _LISTING_SECONDS,
        test_seconds: float = _TEST_SECONDS,
    ) -> None:
        self._module = module
        self._listing_seconds = listing_seconds
        self._test_seconds = test_seconds

    def devices(self, kind: str) -> Listing:
        """Return the devices of a kind."""
        answer = self._ask(kind, self._listing_seconds)
        reports = (DeviceReport(**fields) for fields in answer.get("devices", ()))
        return Listing(tuple(reports), answer["problem"])

    def test(self, device: str) -> str | None:
        """Return what is wrong with a device."""
        problem: str | None = self._ask(device, self._test_seconds)["problem"]
        return problem

    def _ask(self, argument: str, seconds: float) -> dict[str, Any]:
        """Return the answer of the process, which has a problem if the process fails."""
        command = [sys.executable, "-P", "-m", self._module, str(os.getpid()), argument]
        paths = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": paths},
                text=True,
                errors="replace",
            )
        except OSError as error:
            return {"problem": f"no process can be started to check it: {error.strerror}"}

        try:
            output, errors = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            _end_process(process)
            return {"problem": f"its driver does not answer within {seconds:g} seconds"}

        # A driver may print lines of its own.
        answers = filter(None, map(_parse_answer, output.splitlines()))
        answer = next(answers, None)
        if process.returncode == 0 and answer is not None:
            return answer

        return {"problem": f"its driver fails: {_describe_end(process.returncode, errors)}"}


def _parse_answer(line: str) -> dict[str, Any] | None:
    """Return the answer of the process; None for any other line."""
    try:
        answer = json.loads(line)
    except ValueError:
        return None

    return answer if isinstance(answer, dict) and "problem" in answer else None


def _end_process(process: subprocess.Popen[str]) -> None:
    process.kill()
    for pipe in (process.stdout, process.stderr):
        assert pipe is not None
        pipe.close()
    with suppress(subprocess.TimeoutExpired):  # A process that waits for a device may stay.
        process.wait(_GRACE_SECONDS)


def _describe_end(status: int, errors: str) -> str:
    """Return how a process ended, with the last line that it wrote."""
    name = f"exit status {status}" if status >= 0 else signal.Signals(-status).name
    return ": ".join([name, *errors.strip().splitlines()[-1:]])


@dataclass(frozen=True, slots=True)
class Selection:
    """The device that `auto` names, and why the others are not it."""

    device: str
    reasons: tuple[str, ...]

    def __str__(self) -> str:
        return "; ".join([self.device, *self.reasons])


def has_gpu_files(root: Path = _ROOT) -> bool:
    """Whether the system has a device file of a GPU; without one, no driver finds a GPU."""
    return any(next((root / "dev").glob(pattern), None) for pattern in _GPU_FILES)


def select_device(checks: DeviceChecks, root: Path = _ROOT) -> Selection:
    """Return the first GPU that computes right: of CUDA, then of OpenCL; else the CPU."""
    if not has_gpu_files(root):
        return Selection(_CPU, ("the system has no device file of a GPU",))

    reasons: list[str] = []
    for kind in _KINDS:
        listing = checks.devices(kind)
        if listing.problem is not None:
            reasons.append(f"{kind}: {listing.problem}")
        for report in listing.devices:
            problem = _problem(report, checks)
            if problem is None:
                return Selection(report.device, tuple(reasons))

            reasons.append(f"{report}: {problem}")
    return Selection(_CPU, tuple(reasons))


def _problem(report: DeviceReport, checks: DeviceChecks) -> str | None:
    if report.kind != "gpu":
        return f"its type is {report.kind}"

    return report.problem or checks.test(report.device)


@final
class SelectionMemo:
    """The selection of this process, made once."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._selection: Selection | None = None

    def get(self) -> Selection:
        """Return the selection, which other threads wait for."""
        with self._lock:
            if self._selection is None:
                self._selection = select_device(ProcessChecks())
                _logger.info("device 'auto': %s", self._selection)
            return self._selection


_memo: Final = SelectionMemo()


def selected_device() -> Selection:
    """Return the device that `auto` names in this process; the first call checks the drivers."""
    return _memo.get()


async def open_on_device(device: str, open_on: Callable[[str], Awaitable[_Result]]) -> _Result:
    """Open a model on a device; for `auto` on the selected one, or the CPU if that fails.

    Raises:
        AiomlcError: As `open_on`.
    """
    *others, last = await to_thread.run_sync(_candidates, device, abandon_on_cancel=True)
    for name in others:
        try:
            return await open_on(name)
        except AiomlcError as error:
            _log_failure(name, error)
    return await open_on(last)


def first_device(device: str, use: Callable[[str], _Result]) -> _Result:
    """Do for a device what `use` does; for `auto` as `open_on_device`. Blocks.

    Raises:
        AiomlcError: As `use`.
    """
    *others, last = _candidates(device)
    for name in others:
        try:
            return use(name)
        except AiomlcError as error:
            _log_failure(name, error)
    return use(last)


def device_of_kind(device: str, kind: str) -> str:
    """Return the device for a kind of model: for `auto`, only decoders have others than the CPU."""
    return _CPU if device == AUTO and kind != "decoder" else device


def _candidates(device: str) -> Sequence[str]:
    if device != AUTO:
        return (device,)

    selected = selected_device().device
    return (selected,) if selected == _CPU else (selected, _CPU)


def _log_failure(device: str, error: AiomlcError) -> None:
    _logger.warning("device 'auto': %s is not used, the CPU is: %s", device, error)
