"""CPU time of one token in Python, from the native core's bytes to the reader's chunk.

    python -m benchmarks.delivery [--whole]

The time covers `drain`, delivery and `async for` over chat completion chunks. A core without a
model returns prepared bytes in the native format. Each step has one token per stream, and becomes
ready once all readers have the previous one, so every reader is waiting when its token arrives.
With `--whole`, completions are not streamed, and each step is ready once the previous one was
drained.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import statistics
import struct
import sys
import threading
import time
from functools import partial

import anyio

from aiomlc import AsyncMLCEngine
from aiomlc.runtime.engine.core_protocol import CoreStatistics, Record
from aiomlc.runtime.engine.prompt import Prompt
from aiomlc.runtime.engine.trace import TraceEvent
from aiomlc.runtime.native.record_codec import unpack_records
from aiomlc.sampling_params import SequenceOptions
from aiomlc.testing import FakeCore, fake_loader

_HEADER = struct.Struct("<qqqqIIIIII")
_TEXT = b" word"
_FINISH_LENGTH = 2  # Code of the finish reason "length".


class PackedCore:
    """Core double that replays steps of prepared records."""

    def __init__(self, num_streams: int, num_steps: int, *, waits_for_readers: bool) -> None:
        self._waits_for_readers = waits_for_readers
        self._steps = [_pack_step(num_streams, step, num_steps) for step in range(1, num_steps + 1)]
        self._next_step = 0
        self._num_received = 0
        self._num_submitted = 0
        self._stopped = threading.Event()
        self.wake_fd, self._writer = os.pipe()

    def submit(self, prompt: Prompt, options: SequenceOptions) -> int:
        self._num_submitted += 1
        return self._num_submitted

    def begin(self) -> None:
        """Make the first step ready."""
        os.write(self._writer, b"!")

    def on_token_received(self) -> None:
        """Make the next step ready once all readers have their token of this one."""
        self._num_received += 1
        if self._num_received % self._num_submitted == 0:
            os.write(self._writer, b"!")

    def drain(self) -> list[Record]:
        if self._next_step == len(self._steps):
            return []

        os.read(self.wake_fd, 1)
        packed = self._steps[self._next_step]
        self._next_step += 1
        if not self._waits_for_readers and self._next_step < len(self._steps):
            self.begin()

        return unpack_records(packed)

    def run(self) -> None:
        self._stopped.wait()

    def stop(self) -> None:
        self._stopped.set()

    def pause(self, sequence_id: int) -> None:
        """Do nothing."""

    def reset(self) -> None:
        """Do nothing."""

    def resume(self, sequence_id: int) -> None:
        """Do nothing."""

    def cancel(self, sequence_id: int) -> None:
        """Do nothing."""

    def unpin(self, sequence_id: int) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""

    def release(self) -> None:
        os.close(self.wake_fd)
        os.close(self._writer)

    def step(self) -> bool:
        return False

    def failure(self) -> str:
        return ""

    def statistics(self) -> CoreStatistics:
        return FakeCore().statistics()

    def enable_trace(self) -> None:
        """Do nothing."""

    def read_trace(self, start: int) -> tuple[int, list[TraceEvent]]:
        return 0, []


def _pack_step(num_streams: int, step: int, num_steps: int) -> bytes:
    reason = _FINISH_LENGTH if step == num_steps else 0
    tail = struct.pack("<i", 7) + _TEXT + (struct.pack("<dddq", 0, 0, 0, 0) if reason else b"")
    headers = (
        _HEADER.pack(stream, 9, step, 0, 1, 0, 0, len(_TEXT), 0, reason)
        for stream in range(1, num_streams + 1)
    )
    return b"".join(header + tail for header in headers)


async def measure(
    num_streams: int, num_steps: int, profile: cProfile.Profile | None, *, whole: bool
) -> float:
    """Return the CPU seconds per token."""
    core = PackedCore(num_streams, num_steps, waits_for_readers=not whole)
    num_tokens = 0

    async def read_whole() -> None:
        nonlocal num_tokens
        completion = await engine.chat.completions.create(messages=_MESSAGES)
        assert completion.usage is not None
        num_tokens += completion.usage.completion_tokens

    async def read() -> None:
        nonlocal num_tokens
        stream = await engine.chat.completions.create(messages=_MESSAGES, stream=True)
        async for chunk in stream:
            if chunk.choices[0].delta.content:
                num_tokens += 1
                core.on_token_received()

    async with AsyncMLCEngine(loader=fake_loader(core)) as engine:
        async with anyio.create_task_group() as tasks:
            for _ in range(num_streams):
                tasks.start_soon(read_whole if whole else read)

            await anyio.wait_all_tasks_blocked()
            if profile is not None:
                profile.enable()

            start = time.process_time()
            core.begin()

        seconds = time.process_time() - start
        if profile is not None:
            profile.disable()

    assert num_tokens == num_streams * num_steps, "chunks were merged, which costs less"
    return seconds / num_tokens


_MESSAGES = [{"role": "user", "content": "Hello"}]


def main() -> None:
    """Print the medians for both backends."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=300, help="per stream")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--whole", action="store_true", help="without streams")
    parser.add_argument("--profile", action="store_true")
    arguments = parser.parse_args()
    for backend in ("asyncio", "trio"):
        profile = cProfile.Profile() if arguments.profile else None
        run_once = partial(
            measure, arguments.streams, arguments.tokens, profile, whole=arguments.whole
        )
        rounds = [anyio.run(run_once, backend=backend) for _ in range(arguments.rounds)]
        micros = statistics.median(rounds) * 1e6
        sys.stdout.write(f"{backend:8s} {micros:6.2f} us of CPU per token\n")
        if profile is not None:
            pstats.Stats(profile, stream=sys.stdout).sort_stats("tottime").print_stats(25)


if __name__ == "__main__":
    main()
