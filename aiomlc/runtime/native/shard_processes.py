"""The worker processes of a model's shards, on the side of the engine.

The first shard is in the engine's process. The others are children of it, which share memory
without a name. They end when they are closed, when the engine's process ends, and when no reference
to this object is left.
"""

from __future__ import annotations

__all__ = ("ShardJob", "ShardProcesses")

import json
import os
import pickle
import select
import signal
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, Self, final

from anyio import from_thread

from aiomlc.errors import ModelLoadError
from aiomlc.runtime.concurrency.process_lifecycle import invalidate_after_fork
from aiomlc.runtime.native.library import native_function

if TYPE_CHECKING:
    from aiomlc.compiler.job import CompiledLibrary
    from aiomlc.runtime.native.model import ModelShape
    from aiomlc.weights import PackedWeights
    from aiomlc.weights.plan import ParameterPlan

MODULE: Final = "aiomlc.runtime.native.shard_worker"
START_SECONDS: Final = 300.0  # The longest wait for a worker that opens its shard.
_KILL_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.1
_STDERR_LINES: Final = 20
_SPIN_MICROSECONDS: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardJob:
    """The work of one process, which it reads from its standard input."""

    rank: int
    size: int  #: Of the group.
    library: CompiledLibrary
    weights: Path
    weight_bytes: int
    params: Sequence[ParameterPlan]
    shape: ModelShape
    num_threads: int
    processors: tuple[int, ...]  #: Empty: all.
    memory: int  #: The descriptor of the shared memory.
    spin_microseconds: int  #: The time that a wait for other shards uses the processor.


@final
class ShardProcesses:
    """The processes of the shards of one model but the first."""

    def __init__(
        self,
        weights: Sequence[PackedWeights],
        library: CompiledLibrary,
        shape: ModelShape,
        num_threads: int,
        processors: Sequence[tuple[int, ...]],
    ) -> None:
        """Start a process for each packed file, whose rank is its index plus 1.

        Args:
            weights: The weights of these shards.
            library: The library of all shards.
            shape: The sizes of one shard.
            num_threads: Threads of each shard.
            processors: The processors of each shard, the first included.
        """
        self.size: int = 1 + len(weights)
        self.processors: tuple[int, ...] = processors[0]  #: Of the first shard.
        available = len(os.sched_getaffinity(0))
        can_spin = self.size * num_threads <= available
        self.spin_microseconds: int = _SPIN_MICROSECONDS if can_spin else 0
        self._processes: list[_ShardProcess] = []
        self._end = weakref.finalize(self, _end_all, self._processes)
        invalidate_after_fork(self)
        self._memory: int = os.memfd_create("aiomlc-shards")
        try:
            os.ftruncate(
                self._memory, int(native_function("aiomlc.shards_memory_bytes")(self.size))
            )
            for rank, packed in enumerate(weights, 1):
                self._processes.append(_ShardProcess(rank, self._memory))
                job = ShardJob(
                    rank=rank,
                    size=self.size,
                    library=library,
                    weights=packed.path,
                    weight_bytes=packed.nbytes,
                    params=packed.params,
                    shape=shape,
                    num_threads=num_threads,
                    processors=processors[rank],
                    memory=self._memory,
                    spin_microseconds=self.spin_microseconds,
                )
                self._processes[-1].send(job)
        except BaseException:
            self.close()
            raise

    def join(self, model: Any) -> None:  # noqa: ANN401 - an FFI object.
        """Wait until all shards are open, and let the first one, a native model, lead them.

        Raises:
            ModelLoadError: If a shard cannot be opened; the message has the reason.
            MemoryError: If the memory of a shard cannot be allocated.
        """
        from aiomlc.runtime.native.library import ffi_shape

        for process in self._processes:
            process.wait_ready()
        native_function("aiomlc.model_lead_shards")(
            model,
            self._memory,
            ffi_shape(process.pid for process in self._processes),
            ffi_shape(self.processors),
            self.spin_microseconds,
        )
        self._close_memory()

    def __enter__(self) -> Self:
        """Return the processes, which are closed if the body fails."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Close the processes if the body failed."""
        if kind is not None:
            self.close()

    def close(self) -> None:
        """Kill the processes, which have nothing to save, and wait for their end. Idempotent."""
        self._close_memory()
        self._end()

    def abandon(self) -> None:
        """Leave the processes alone, in a forked child process."""
        self._end.detach()
        self._close_memory()
        for process in self._processes:
            process.disown()
        self._processes.clear()

    def _close_memory(self) -> None:
        memory, self._memory = self._memory, -1
        if memory >= 0:
            os.close(memory)


@final
class _ShardProcess:
    """A worker process; its errors go to a file without a name."""

    def __init__(self, rank: int, memory: int) -> None:
        self.rank = rank
        self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `end`.
        paths = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
        try:
            self._process: subprocess.Popen[bytes] = subprocess.Popen(
                [sys.executable, "-P", "-m", MODULE, str(os.getpid())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                pass_fds=(memory,),
                env={**os.environ, "PYTHONPATH": paths},
            )
        except OSError as error:
            self._stderr.close()
            raise ModelLoadError(f"shard {rank} cannot be started: {error.strerror}") from None

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    def send(self, job: ShardJob) -> None:
        """Send the work; if the process has ended, `wait_ready` says so."""
        stdin = self._process.stdin
        assert stdin is not None
        with suppress(BrokenPipeError):
            stdin.write(pickle.dumps(job))
        with suppress(BrokenPipeError):
            stdin.close()

    def wait_ready(self) -> None:
        """Wait until the shard is open, in a worker thread of anyio, whose cancellation ends it.

        Raises:
            ModelLoadError: If it cannot be opened.
            MemoryError: If its memory cannot be allocated.
        """
        stdout = self._process.stdout
        assert stdout is not None
        poll = select.poll()
        poll.register(stdout, select.POLLIN | select.POLLHUP)
        end = time.monotonic() + START_SECONDS
        while not poll.poll(_POLL_SECONDS * 1000):
            from_thread.check_cancelled()
            if time.monotonic() > end:
                raise self._error(f"has not opened its model in {START_SECONDS:.0f} s")

        line = stdout.readline()
        stdout.close()
        if line:
            message = json.loads(line)
            if "error" not in message:
                return

            if message["error"] == "MemoryError":
                raise MemoryError(f"shard {self.rank}: {message['message']}")

            raise self._error(
                "cannot open its part of the model: {error}: {message}".format(**message)
            )

        raise self._error(_ending(self._process.wait(_KILL_SECONDS)))

    def end(self) -> None:
        """Kill the process and wait for its end."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        self._process.kill()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_KILL_SECONDS)
        self._stderr.close()

    def disown(self) -> None:
        """Forget the process, which is that of another parent."""
        self._process.returncode = 0
        self._stderr.close()

    def _error(self, problem: str) -> ModelLoadError:
        self._stderr.seek(0)
        lines = self._stderr.read().decode(errors="replace").splitlines()
        tail = "\n".join(lines[-_STDERR_LINES:])
        message = f"shard {self.rank} (process {self.pid}) {problem}\n{tail}".rstrip()
        return ModelLoadError(message, field="tensor_parallel_shards")


def _ending(status: int) -> str:
    if status >= 0:
        return f"ended with status {status} while it opened its model"

    return f"was killed by {signal.Signals(-status).name} while it opened its model"


def _end_all(processes: list[_ShardProcess]) -> None:
    while processes:
        processes.pop().end()
