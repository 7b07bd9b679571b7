"""`perf record` on this process, and what its samples say of where the time went."""

from __future__ import annotations

__all__ = ("KERNELS", "Recorder", "Sample", "kind_of", "read_samples", "step_thread")

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import final

_SAMPLES_PER_SECOND = 1999
_SECONDS_TO_END = 60
_SAMPLE = re.compile(r"\s*(\d+)\s+(\d+)\s+[0-9a-f]+ (.+) \((.+)\)$")

LINEAR, ATTENTION, OTHER_KERNELS = "linear layers", "attention", "other kernels"
POOL, MACHINE, UNKNOWN = "waiting in the pool", "TVM's machine and KV cache", "without a symbol"
KERNELS = (LINEAR, ATTENTION, OTHER_KERNELS, POOL)

# By the name of a function in our library, the first that fits. One that fits none plans the step.
_KINDS = (
    (POOL, r"^aiomlc::ThreadPool::|aiomlc::ThreadPool::ThreadPool\("),
    ("calls of kernels", r"LayerAttention::(?!PageNewTokens)|Call[A-Z]\w+\(|TensorArguments"),
    (ATTENTION, r"Attention|Attend|KvPages|PageNewTokens|(To|From)Pages|Copy(Page|Slots)"),
    (LINEAR, r"Linear|Quantiz|Q4|Q8|Dense|FloatPanels|RunBlocks|Embed|Widen|Amx|Dot"),
    (OTHER_KERNELS, r"Rows<|Norm|Rota|Silu|Gelu|For(Parts|Ranges)|aiomlc::Add\(|GatherRows"),
    ("sampling", r"Sampler|LogitAdjuster|AreFinite|Logprobs|PromptScorer|Uniform"),
    ("text and records", r"Detokenizer|StopMatcher|Outbox|Record|FlushText|WakeFd|Drain"),
    (UNKNOWN, r"^\[unknown\]$"),
)
# By the name of another library.
_ELSEWHERE = (
    (MACHINE, r"^libtvm"),
    ("operating system", r"^\["),
    ("C and C++ libraries", r"^(libc|libm|libstdc\+\+|libgcc_s|libpthread|ld-linux)\b"),
)


@dataclass(frozen=True, slots=True)
class Sample:
    """A moment when a thread ran."""

    thread: int
    nanoseconds: int  #: Of the processor's time, that it stands for.
    function: str
    library: str  #: The file's name; in brackets for the operating system.


def kind_of(sample: Sample) -> str:
    """What the thread was doing."""
    if sample.library.startswith("libaiomlc"):
        # Every kernel has the pool among its arguments, which says nothing.
        function = sample.function.replace("aiomlc::ThreadPool&", "")
        return next(
            (kind for kind, form in _KINDS if re.search(form, function)), "planning the step"
        )

    return next((kind for kind, form in _ELSEWHERE if re.search(form, sample.library)), "Python")


def step_thread(samples: Iterable[Sample]) -> int:
    """The thread that steps the engine: the one that is in TVM's machine.

    Raises:
        RuntimeError: none is.
    """
    times: dict[int, int] = defaultdict(int)
    for sample in samples:
        if kind_of(sample) == MACHINE:
            times[sample.thread] += sample.nanoseconds
    if not times:
        raise RuntimeError("no sample is of TVM's machine: measure longer")

    return max(times, key=lambda thread: times[thread])


def read_samples(lines: Iterable[str]) -> Iterator[Sample]:
    """Samples as `perf script -F tid,period,ip,sym,dso` prints them."""
    for line in lines:
        if found := _SAMPLE.match(line):
            thread, period, function, path = found.groups()
            name = path if path.startswith("[") else Path(path).name
            yield Sample(int(thread), int(period), function, name)


@final
class Recorder:
    """Records every thread that this process has now, between each `start` and `pause`."""

    def __init__(self, folder: Path) -> None:
        """Raises `RuntimeError` where perf is missing, or may not record."""
        perf = shutil.which("perf")
        if perf is None:
            raise RuntimeError("perf is not installed; on Debian it is in linux-perf")

        self._perf = perf
        self._data = folder / "perf.data"
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `finish`.
        control, self._control = os.pipe()
        self._answers, answers = os.pipe()
        options = ("-e", "cpu-clock", "-F", str(_SAMPLES_PER_SECOND), "-p", str(os.getpid()))
        command: list[str | Path] = [perf, "record", *options]
        self._process = subprocess.Popen(
            [*command, "--delay=-1", f"--control=fd:{control},{answers}", "-o", self._data],
            pass_fds=(control, answers),
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
        )
        os.close(control)
        os.close(answers)

    def start(self) -> None:
        """Returns once it records."""
        self._tell("enable")

    def pause(self) -> None:
        """Returns once it records no more."""
        self._tell("disable")

    def finish(self) -> list[Sample]:
        """Everything that was recorded."""
        self._process.send_signal(signal.SIGINT)
        self._process.wait(_SECONDS_TO_END)
        os.close(self._control)
        os.close(self._answers)
        self._errors.close()
        fields = ("-F", "tid,period,ip,sym,dso")
        told = subprocess.run(
            [self._perf, "script", "-i", str(self._data), *fields],
            check=True,
            capture_output=True,
            text=True,
        )
        return list(read_samples(told.stdout.splitlines()))

    def _tell(self, command: str) -> None:
        with contextlib.suppress(BrokenPipeError):  # Then the answer is missing, too.
            os.write(self._control, f"{command}\n".encode())
        if not os.read(self._answers, 64):
            self._process.wait(_SECONDS_TO_END)
            self._errors.seek(0)
            raise RuntimeError(f"perf ended:\n{self._errors.read().decode(errors='replace')}")
