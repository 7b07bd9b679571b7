"""aiomlc as a caller uses it: streamed chat completions, in this process."""

from __future__ import annotations

__all__ = ("AiomlcEngine",)

import time
from collections.abc import Mapping
from contextlib import ExitStack
from typing import final

import anyio
from anyio.from_thread import start_blocking_portal

from aiomlc import AsyncMLCEngine, EngineConfig
from benchmarks.suite.measured_engine import Meter, Setup
from benchmarks.suite.plan import BATCH_PROMPT, BATCH_TOKENS, DECODE_TOKENS, Kind
from benchmarks.suite.process import run_fresh
from benchmarks.suite.prompts import Prompts

_WARM_UP_TOKENS = 16
_STREAMED_TOKENS = 512
_MAX_DOUBLINGS = 4  # With a small model, the first stream can end before the last one starts.
_IDLE_AFTER, _IDLE_SECONDS = 0.05, 1.0


@final
class AiomlcEngine:
    """One engine that stays open; load time and memory are measured in fresh processes."""

    def __init__(self, setup: Setup) -> None:
        self.name = f"aiomlc {setup.path_quantization or setup.path.stem}"
        self._setup = setup
        self._prompts = Prompts(setup.model)
        config = EngineConfig(
            quantization=setup.path_quantization,
            kv_cache_dtype=setup.kv_cache_dtype,
            num_threads=setup.threads,
        )
        self._engine = AsyncMLCEngine(setup.path, engine_config=config)
        with ExitStack() as stack:
            self._portal = stack.enter_context(start_blocking_portal())
            stack.enter_context(self._portal.wrap_async_context_manager(self._engine))
            self._portal.call(self._warm_up)
            self._stack = stack.pop_all()

    def meters(self) -> Mapping[Kind, Meter]:
        call = self._portal.call
        return {
            "load": lambda _: run_fresh(self._setup)[1],
            "first-token": lambda size: 1e3 * call(self._first_token_seconds, size),
            "prefill": lambda size: size / call(self._first_token_seconds, size),
            "decode": lambda size: call(self._decode_rate, 1, size, DECODE_TOKENS),
            "batch": lambda size: call(self._decode_rate, size, BATCH_PROMPT, BATCH_TOKENS),
            "stream-overhead": lambda _: 1e6 * anyio.run(_stream_overhead),
            "idle": lambda _: call(self._idle_percent),
            "memory": lambda _: run_fresh(self._setup, track_memory=True)[0].peak_bytes / 1e6,
        }

    def close(self) -> None:
        self._stack.close()

    async def _warm_up(self) -> None:
        overlap = _Overlap(self._engine, 1)
        prompt_tokens = await _complete(overlap, self._prompts.words(1), _WARM_UP_TOKENS)
        self._prompts.calibrate(prompt_tokens, 1)
        await self._first_token_seconds(BATCH_PROMPT)

    async def _first_token_seconds(self, size: int) -> float:
        """Return the seconds from the request to its first chunk."""
        message = self._prompts.message(size)
        overlap = _Overlap(self._engine, 1)
        start = time.perf_counter()
        _check_prompt_length(await _complete(overlap, message, 1), size)
        return overlap.times[0] - start

    async def _decode_rate(self, streams: int, context: int, tokens: int) -> float:
        """Return the tokens per second of all streams while all of them decode."""
        context = max(context, self._prompts.fewest())
        for length in (tokens * 2**doubling for doubling in range(_MAX_DOUBLINGS)):
            overlap = _Overlap(self._engine, streams)
            messages = [self._prompts.message(context) for _ in range(streams)]
            async with anyio.create_task_group() as tasks:
                for message in messages:
                    tasks.start_soon(_complete_and_check, overlap, message, context, length)

            if overlap.decoded_tokens() >= streams * length / 4:
                return overlap.decoded_tokens() / (overlap.times[1] - overlap.times[0])

        raise RuntimeError(f"{streams} streams of {length} tokens never ran at the same time")

    async def _idle_percent(self) -> float:
        """Return the CPU use in percent of one processor, starting 50 ms after the last token."""
        await _complete(_Overlap(self._engine, 1), self._prompts.message(0), _WARM_UP_TOKENS)
        await anyio.sleep(_IDLE_AFTER)
        start, cpu_start = time.perf_counter(), time.process_time()
        await anyio.sleep(_IDLE_SECONDS)
        return 100 * (time.process_time() - cpu_start) / (time.perf_counter() - start)


@final
class _Overlap:
    """The interval from the last stream's first chunk to the first stream's last chunk."""

    def __init__(self, engine: AsyncMLCEngine, streams: int) -> None:
        self.engine = engine
        self.times: list[float] = []
        self._all_overlapped = True
        self._decode_tokens: list[int] = []
        self._num_not_started = streams

    def on_first_chunk(self) -> None:
        self._num_not_started -= 1
        if self._num_not_started == 0:
            self._record()

    def on_last_chunk(self) -> None:
        if self._num_not_started > 0:
            self._all_overlapped = False
        elif len(self.times) == 1:
            self._record()

    def decoded_tokens(self) -> int:
        """Return the core's decoded tokens in the interval; 0 if the streams did not overlap."""
        return self._decode_tokens[1] - self._decode_tokens[0] if self._all_overlapped else 0

    def _record(self) -> None:
        self.times.append(time.perf_counter())
        self._decode_tokens.append(self.engine.statistics().decode_tokens)


async def _complete(overlap: _Overlap, content: str, tokens: int) -> int:
    """Read a completion of exactly `tokens` tokens, and return the tokens of its prompt."""
    usage = None
    stream = await overlap.engine.chat.completions.create(
        messages=[{"role": "user", "content": content}],
        stream=True,
        stream_options={"include_usage": True},
        max_tokens=tokens,
        temperature=0,
        ignore_eos=True,
    )
    started = False
    async with stream:
        async for chunk in stream:
            if not started:
                started = True
                overlap.on_first_chunk()
            usage = chunk.usage or usage
    overlap.on_last_chunk()

    if usage is None or usage.completion_tokens != tokens:
        raise RuntimeError(f"expected {tokens} completion tokens, got usage {usage}")

    return usage.prompt_tokens


async def _complete_and_check(
    overlap: _Overlap, content: str, prompt_tokens: int, tokens: int
) -> None:
    _check_prompt_length(await _complete(overlap, content, tokens), prompt_tokens)


def _check_prompt_length(prompt_tokens: int, expected: int) -> None:
    if prompt_tokens != expected:
        raise RuntimeError(f"expected a prompt of {expected} tokens, got {prompt_tokens}")


async def _stream_overhead() -> float:
    """Return the CPU seconds per token of the event loop's thread, with the bundled model.

    The core steps in a separate thread, so this covers all that Python does for a stream. The CPU
    time of the process minus the time of the steps would be wrong, because a step takes longer
    while other threads compete for the processor.
    """
    async with AsyncMLCEngine(engine_config=EngineConfig(num_threads=1)) as engine:
        await _read_story(engine, _WARM_UP_TOKENS)
        before, cpu_start = engine.statistics().completion_tokens, time.thread_time()
        tokens = 0
        while tokens < _STREAMED_TOKENS:
            await _read_story(engine, _STREAMED_TOKENS)
            tokens = engine.statistics().completion_tokens - before
        return (time.thread_time() - cpu_start) / tokens


async def _read_story(engine: AsyncMLCEngine, tokens: int) -> None:
    stream = await engine.chat.completions.create(
        messages=[{"role": "user", "content": "Tell me a story about a fox called Rosa."}],
        stream=True,
        max_tokens=tokens,
        seed=0,
    )
    async with stream:
        async for _ in stream:
            pass
