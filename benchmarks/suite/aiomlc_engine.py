"""aiomlc as its callers see it: chat completions that are streamed, in this process."""

from __future__ import annotations

__all__ = ("AiomlcContestant",)

import time
from collections.abc import Mapping
from contextlib import ExitStack
from typing import final

import anyio
from anyio.from_thread import start_blocking_portal

from aiomlc import AsyncMLCEngine, EngineConfig
from benchmarks.suite.contestant import Meter, Setup
from benchmarks.suite.plan import BATCH_PROMPT, BATCH_TOKENS, DECODE_TOKENS, Kind
from benchmarks.suite.process import run_fresh
from benchmarks.suite.prompts import Prompts

_WARM_UP_TOKENS = 16
_STREAMED_TOKENS = 512
_DOUBLINGS = 4  # A small model can end an answer before the last one has begun.
_IDLE_AFTER, _IDLE_SECONDS = 0.05, 1.0


@final
class AiomlcContestant:
    """One engine that stays open; load time and memory are those of fresh processes."""

    def __init__(self, setup: Setup) -> None:
        self.name = f"aiomlc {setup.quantization}"
        self._setup = setup
        self._prompts = Prompts(setup.model)
        config = EngineConfig(
            quantization=setup.quantization,
            kv_cache_dtype=setup.kv_cache_dtype,
            num_threads=setup.threads,
        )
        self._engine = AsyncMLCEngine(setup.model, engine_config=config)
        with ExitStack() as stack:
            self._portal = stack.enter_context(start_blocking_portal())
            stack.enter_context(self._portal.wrap_async_context_manager(self._engine))
            self._portal.call(self._warm_up)
            self._stack = stack.pop_all()

    def meters(self) -> Mapping[Kind, Meter]:
        return {
            "load": lambda _: run_fresh(self._setup)[1],
            "first-token": lambda size: 1e3 * self._portal.call(self._first_token, size),
            "prefill": lambda size: size / self._portal.call(self._first_token, size),
            "decode": lambda size: self._portal.call(self._decode, 1, size, DECODE_TOKENS),
            "batch": lambda size: self._portal.call(self._decode, size, BATCH_PROMPT, BATCH_TOKENS),
            "stream-overhead": lambda _: 1e6 * anyio.run(_stream_overhead),
            "idle": lambda _: self._portal.call(self._idle),
            "memory": lambda _: run_fresh(self._setup, watch=True)[0].peak_bytes / 1e6,
        }

    def close(self) -> None:
        self._stack.close()

    async def _warm_up(self) -> None:
        marks = _Marks(self._engine, 1)
        self._prompts.calibrate(await _answer(marks, self._prompts.words(1), _WARM_UP_TOKENS), 1)
        await self._first_token(BATCH_PROMPT)

    async def _first_token(self, size: int) -> float:
        """Seconds from the request to its first chunk."""
        message = self._prompts.message(size)
        marks = _Marks(self._engine, 1)
        began = time.perf_counter()
        _check_prompt(await _answer(marks, message, 1), size)
        return marks.times[0] - began

    async def _decode(self, streams: int, context: int, tokens: int) -> float:
        """Tokens per second of all streams, while every one of them decodes."""
        context = max(context, self._prompts.fewest())
        for length in (tokens * 2**doubling for doubling in range(_DOUBLINGS)):
            marks = _Marks(self._engine, streams)
            messages = [self._prompts.message(context) for _ in range(streams)]
            async with anyio.create_task_group() as tasks:
                for message in messages:
                    tasks.start_soon(_answer_prompt, marks, message, context, length)

            if marks.decoded() >= streams * length / 4:
                return marks.decoded() / (marks.times[1] - marks.times[0])

        raise RuntimeError(f"{streams} streams of {length} tokens never ran all at once")

    async def _idle(self) -> float:
        """Percent of one processor over the second that begins 50 ms after the last token."""
        await _answer(_Marks(self._engine, 1), self._prompts.message(0), _WARM_UP_TOKENS)
        await anyio.sleep(_IDLE_AFTER)
        began, cpu = time.perf_counter(), time.process_time()
        await anyio.sleep(_IDLE_SECONDS)
        return 100 * (time.process_time() - cpu) / (time.perf_counter() - began)


@final
class _Marks:
    """The moments when the last stream has begun and when the first one ends."""

    def __init__(self, engine: AsyncMLCEngine, streams: int) -> None:
        self.engine = engine
        self.times: list[float] = []
        self._overlap = True
        self._tokens: list[int] = []
        self._waiting = streams

    def first_chunk(self) -> None:
        self._waiting -= 1
        if self._waiting == 0:
            self._mark()

    def last_chunk(self) -> None:
        if self._waiting > 0:
            self._overlap = False
        elif len(self.times) == 1:
            self._mark()

    def decoded(self) -> int:
        """Tokens that the core decoded between the two; 0 if the streams never ran all at once."""
        return self._tokens[1] - self._tokens[0] if self._overlap else 0

    def _mark(self) -> None:
        self.times.append(time.perf_counter())
        self._tokens.append(self.engine.statistics().decode_tokens)


async def _answer(marks: _Marks, content: str, tokens: int) -> int:
    """Read an answer of exactly `tokens` tokens; returns the tokens of its prompt."""
    usage = None
    stream = await marks.engine.chat.completions.create(
        messages=[{"role": "user", "content": content}],
        stream=True,
        stream_options={"include_usage": True},
        max_tokens=tokens,
        temperature=0,
    )
    begun = False
    async with stream:
        async for chunk in stream:
            if not begun:
                begun = True
                marks.first_chunk()
            usage = chunk.usage or usage
    marks.last_chunk()

    if usage is None or usage.completion_tokens != tokens:
        raise RuntimeError(f"the answer ended early, {tokens} tokens were asked for: {usage}")

    return usage.prompt_tokens


async def _answer_prompt(marks: _Marks, content: str, prompt_tokens: int, tokens: int) -> None:
    _check_prompt(await _answer(marks, content, tokens), prompt_tokens)


def _check_prompt(prompt_tokens: int, wanted: int) -> None:
    if prompt_tokens != wanted:
        raise RuntimeError(f"the prompt has {prompt_tokens} tokens, {wanted} were wanted")


async def _stream_overhead() -> float:
    """Seconds of CPU per token of the bundled model in the thread of the event loop.

    The core steps in a thread of its own, so this is all that Python does for a stream. It is not
    the process's CPU time less the steps' time: a step's time grows when others want the processor.
    """
    async with AsyncMLCEngine(engine_config=EngineConfig(num_threads=1)) as engine:
        await _story(engine, _WARM_UP_TOKENS)
        before, cpu = engine.statistics().completion_tokens, time.thread_time()
        tokens = 0
        while tokens < _STREAMED_TOKENS:
            await _story(engine, _STREAMED_TOKENS)
            tokens = engine.statistics().completion_tokens - before
        return (time.thread_time() - cpu) / tokens


async def _story(engine: AsyncMLCEngine, tokens: int) -> None:
    stream = await engine.chat.completions.create(
        messages=[{"role": "user", "content": "Tell me a story about a fox called Rosa."}],
        stream=True,
        max_tokens=tokens,
        seed=0,
    )
    async with stream:
        async for _ in stream:
            pass
