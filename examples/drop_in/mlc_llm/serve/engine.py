"""`MLCEngine` and `AsyncMLCEngine` with what MLC LLM's programs expect beside OpenAI's API."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import aiomlc
from aiomlc.api.json_ffi.chunks import with_required_fields
from mlc_llm.serve.config import EngineConfig as EngineConfig
from mlc_llm.serve.config import freeze, thawed
from mlc_llm.serve.engine_base import (
    CallbackStreamOutput,
    EngineMetrics,
    MLCEngineBase,
    Outputs,
    token_options,
)


class _Chunks:
    """A stream whose deltas all have the role."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class ChatChunks(_Chunks):
    """The chunks of a chat, for `for`."""

    def __iter__(self) -> ChatChunks:
        return self

    def __next__(self) -> Any:
        return with_required_fields(next(self._stream))

    def __enter__(self) -> ChatChunks:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stream.close()


class AsyncChatChunks(_Chunks):
    """The chunks of a chat, for `async for`."""

    def __aiter__(self) -> AsyncChatChunks:
        return self

    async def __anext__(self) -> Any:
        return with_required_fields(await self._stream.__anext__())

    async def __aenter__(self) -> AsyncChatChunks:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._stream.aclose()


class ChatCompletion:
    """`engine.chat.completions`."""

    def __init__(self, completions: Any) -> None:
        self._completions = completions

    def __getattr__(self, name: str) -> Any:
        return getattr(self._completions, name)

    def create(self, **fields: Any) -> Any:
        """Complete a chat."""
        answer = self._completions.create(**fields)
        return ChatChunks(answer) if fields.get("stream") else answer


class AsyncChatCompletion:
    """`engine.chat.completions`."""

    def __init__(self, completions: Any) -> None:
        self._completions = completions

    def __getattr__(self, name: str) -> Any:
        return getattr(self._completions, name)

    async def create(self, **fields: Any) -> Any:
        """Complete a chat."""
        answer = await self._completions.create(**fields)
        return AsyncChatChunks(answer) if fields.get("stream") else answer


class Chat:
    """`engine.chat`."""

    def __init__(self, chat: Any) -> None:
        self.completions = ChatCompletion(chat.completions)


class AsyncChat:
    """`engine.chat`."""

    def __init__(self, chat: Any) -> None:
        self.completions = AsyncChatCompletion(chat.completions)


class AsyncOutputs:
    """The outputs of `_generate`, for `async for`."""

    def __init__(self, pending: Any, make_outputs: Callable[[], Outputs]) -> None:
        self._pending = pending
        self._make_outputs = make_outputs
        self._deltas: Any = None
        self._outputs: Outputs | None = None
        self._ready: deque[list[CallbackStreamOutput]] = deque()

    def __aiter__(self) -> AsyncOutputs:
        return self

    async def __anext__(self) -> list[CallbackStreamOutput]:
        if self._outputs is None:
            self._deltas = await self._pending
            self._outputs = self._make_outputs()

        while not self._ready:
            self._ready.extend(self._outputs.put(await self._deltas.__anext__()))

        return self._ready.popleft()

    async def aclose(self) -> None:
        """Cancel the request unless it has finished."""
        if self._deltas is not None:
            await self._deltas.aclose()


class MLCEngine(aiomlc.MLCEngine, MLCEngineBase):  # type: ignore[misc]
    """aiomlc's engine for blocking code."""

    def __init__(self, model: Any = None, device: Any = "auto", **settings: Any) -> None:
        freeze(settings)
        super().__init__(model, device, **settings)
        self.chat = Chat(self.chat)
        self._add_private_members()

    @property
    def engine_config(self) -> Any:
        """The configuration, with the sizes from the memory plan."""
        return thawed(super().engine_config)

    def metrics(self) -> EngineMetrics:
        """Return the engine's counters."""
        return EngineMetrics(super().metrics().metrics)

    def _generate(
        self, prompt: Any, generation_config: Any, request_id: str
    ) -> Iterator[list[CallbackStreamOutput]]:
        outputs = Outputs(self.tokenizer, generation_config.n)
        with self.generate(prompt, **token_options(generation_config, request_id)) as deltas:
            for delta in deltas:
                yield from outputs.put(delta)


class AsyncMLCEngine(aiomlc.AsyncMLCEngine, MLCEngineBase):  # type: ignore[misc]
    """aiomlc's engine for asyncio and trio."""

    def __init__(self, model: Any = None, device: Any = "auto", **settings: Any) -> None:
        freeze(settings)
        super().__init__(model, device, **settings)
        self.chat = AsyncChat(self.chat)
        self._add_private_members()

    @property
    def engine_config(self) -> Any:
        """The configuration; while the engine is open, with the sizes from the memory plan."""
        return thawed(super().engine_config)

    async def metrics(self) -> EngineMetrics:
        """Return the engine's counters; the first call opens the model."""
        return EngineMetrics((await super().metrics()).metrics)

    def _generate(self, prompt: Any, generation_config: Any, request_id: str) -> AsyncOutputs:
        deltas = self.generate(prompt, **token_options(generation_config, request_id))
        return AsyncOutputs(deltas, lambda: Outputs(self.tokenizer, generation_config.n))
