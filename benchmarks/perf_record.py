"""`perf record` on this process, and a classification of its samples by kind of work."""

from __future__ import annotations

__all__ = ("KERNELS", "UNKNOWN", "Recorder", "Sample", "kind_of", "parse_samples", "step_thread")

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
_EXIT_TIMEOUT_SECONDS = 60
_SAMPLE = re.compile(r"\s*(\d+)\s+(\d+)\s+[0-9a-f]+ (.+) \((.+)\)$")

LINEAR, ATTENTION, OTHER_KERNELS = "linear layers", "attention", "other kernels"
POOL, VIRTUAL_MACHINE, UNKNOWN = (
    "waiting in the thread pool",
    "TVM's virtual machine and KV cache",
    "without a symbol",
)
KERNELS = (LINEAR, ATTENTION, OTHER_KERNELS, POOL)

# Kinds of libaiomlc's functions: the first match wins; the rest is step planning.
_FUNCTION_KINDS = (
    (POOL, r"^aiomlc::ThreadPool::|aiomlc::ThreadPool::ThreadPool\("),
    ("kernel calls", r"LayerAttention::(?!PageNewTokens)|Call[A-Z]\w+\(|TensorArguments"),
    (ATTENTION, r"Attention|Attend|KvPages|PageNewTokens|(To|From)Pages|Copy(Page|Slots)"),
    (LINEAR, r"Linear|BF16|Quantiz|Q4|Q8|Dense|FloatPanels|RunBlocks|Embed|Widen|Amx|Dot|Experts"),
    (
        OTHER_KERNELS,
        r"Rows<|Norm|Rota|Silu|Gelu|For(Parts|Ranges)|aiomlc::(Add|Scale)\(|GatherRows",
    ),
    ("sampling", r"Sampler|LogitAdjuster|AreFinite|Logprobs|PromptScorer|Uniform"),
    ("text and records", r"Detokenizer|StopMatcher|Outbox|Record|FlushText|WakeFd|Drain"),
    (UNKNOWN, r"^\[unknown\]$"),
)
# Kinds of the other libraries, by file name.
_LIBRARY_KINDS = (
    (VIRTUAL_MACHINE, r"^libtvm"),
    ("operating system", r"^\["),
    ("C and C++ libraries", r"^(libc|libm|libstdc\+\+|libgcc_s|libpthread|ld-linux)\b"),
)


@dataclass(frozen=True, slots=True)
class Sample:
    """A stack sample of a running thread."""

    thread: int
    nanoseconds: int  #: The CPU time that the sample represents.
    function: str
    library: str  #: File name; in brackets for the operating system.


def kind_of(sample: Sample) -> str:
    """Return the kind of work that the thread was doing."""
    if sample.library.startswith("libaiomlc"):
        # Every kernel takes the pool as an argument, so its name does not identify a kind.
        function = sample.function.replace("aiomlc::ThreadPool&", "")
        kinds = (kind for kind, pattern in _FUNCTION_KINDS if re.search(pattern, function))
        return next(kinds, "planning the step")

    kinds = (kind for kind, pattern in _LIBRARY_KINDS if re.search(pattern, sample.library))
    return next(kinds, "Python")


def step_thread(samples: Iterable[Sample]) -> int:
    """Return the thread that steps the engine: the one that runs TVM's virtual machine most.

    Raises:
        RuntimeError: If no sample is in TVM's virtual machine.
    """
    times: dict[int, int] = defaultdict(int)
    for sample in samples:
        if kind_of(sample) == VIRTUAL_MACHINE:
            times[sample.thread] += sample.nanoseconds
    if not times:
        raise RuntimeError("no sample is in TVM's virtual machine: measure longer")

    return max(times, key=lambda thread: times[thread])


def parse_samples(lines: Iterable[str]) -> Iterator[Sample]:
    """Yield the samples of the output of `perf script -F tid,period,ip,sym,dso`."""
    for line in lines:
        if match := _SAMPLE.match(line):
            thread, period, function, path = match.groups()
            name = path if path.startswith("[") else Path(path).name
            yield Sample(int(thread), int(period), function, name)


@final
class Recorder:
    """Recorder of this process's current threads, between each `start` and `pause`."""

    def __init__(self, directory: Path) -> None:
        """Start `perf record`, paused, with its data file in `directory`.

        Raises:
            RuntimeError: If perf is missing.
        """
        perf = shutil.which("perf")
        if perf is None:
            raise RuntimeError("perf is not installed; on Debian it is in linux-perf")

        self._perf = perf
        self._data = directory / "perf.data"
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `finish`.
        control, self._control = os.pipe()
        self._acks, acks = os.pipe()
        options = ("-e", "cpu-clock", "-F", str(_SAMPLES_PER_SECOND), "-p", str(os.getpid()))
        command: list[str | Path] = [perf, "record", *options]
        self._process = subprocess.Popen(
            [*command, "--delay=-1", f"--control=fd:{control},{acks}", "-o", self._data],
            pass_fds=(control, acks),
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
        )
        os.close(control)
        os.close(acks)

    def start(self) -> None:
        """Start recording; return once perf acknowledges it.

        Raises:
            RuntimeError: If perf exited, for example because it may not record.
        """
        self._send("enable")

    def pause(self) -> None:
        """Pause recording; return once perf acknowledges it.

        Raises:
            RuntimeError: If perf exited.
        """
        self._send("disable")

    def finish(self) -> list[Sample]:
        """End perf and return all samples."""
        self._process.send_signal(signal.SIGINT)
        self._process.wait(_EXIT_TIMEOUT_SECONDS)
        os.close(self._control)
        os.close(self._acks)
        self._errors.close()
        fields = ("-F", "tid,period,ip,sym,dso")
        script = subprocess.run(
            [self._perf, "script", "-i", str(self._data), *fields],
            check=True,
            capture_output=True,
            text=True,
        )
        return list(parse_samples(script.stdout.splitlines()))

    def _send(self, command: str) -> None:
        with contextlib.suppress(BrokenPipeError):  # The missing acknowledgment reports it.
            os.write(self._control, f"{command}\n".encode())
        if not os.read(self._acks, 64):
            self._process.wait(_EXIT_TIMEOUT_SECONDS)
            self._errors.seek(0)
            raise RuntimeError(f"perf exited:\n{self._errors.read().decode(errors='replace')}")
