"""A served model: what every kind of request needs once the engine is open."""

from __future__ import annotations

__all__ = ("EncoderSession", "ModelSession", "SessionProvider")

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, final

from anyio import to_thread
from anyio.lowlevel import checkpoint

from aiomlc.api.generation.sampling import SamplingRequest, sequence_options
from aiomlc.api.observability.telemetry import Operation, start_span
from aiomlc.errors import AiomlcError, BadRequestError, GrammarError, PromptTooLongError
from aiomlc.runtime.engine.engine import Engine
from aiomlc.runtime.engine.engine_task import EngineTask
from aiomlc.runtime.engine.stream import DeltaStream
from aiomlc.runtime.grammar.grammar import Grammar
from aiomlc.runtime.loading.loaded_model import LoadedModel

if TYPE_CHECKING:
    from aiomlc.runtime.embedding.embedder import Embedder
    from aiomlc.runtime.embedding.encoder_engine import EncoderEngine

# Above this a prompt takes over 10 ms to encode, which is too long for an event loop.
_LONG_PROMPT = 20_000


@final
class ModelSession:
    """An open engine and its model."""

    def __init__(self, engine: Engine, model: LoadedModel) -> None:
        self.engine = engine
        self.model = model

    @property
    def task(self) -> EngineTask:
        """The task that serves."""
        return self.engine.task

    async def encode(self, prompt: str) -> list[int]:
        """The token ids of a prompt, computed beside the event loop if it is long."""
        encode = self.model.tokenizer.encode
        if len(prompt) > _LONG_PROMPT:
            return await to_thread.run_sync(encode, prompt)

        await checkpoint()
        return encode(prompt)

    async def prompt_ids(self, prompt: str | Sequence[int]) -> list[int]:
        """The token ids of a text, or those that are given.

        Raises:
            BadRequestError: the model has no such token.
        """
        if isinstance(prompt, str):
            return await self.encode(prompt)

        if prompt and not 0 <= min(prompt) <= max(prompt) < self.model.vocab_size:
            raise BadRequestError(
                f"prompt: a token id is not in [0, {self.model.vocab_size})", param="prompt"
            )

        await checkpoint()
        return list(prompt)

    async def encode_chat(self, prompt: str) -> list[int]:
        """As `encode`, after the tokens with which the chat template begins."""
        template = self.model.chat_template
        prefix = template.system_prefix_token_ids if template is not None else None
        return [*(prefix or ()), *await self.encode(prompt)]

    async def compile(self, grammar: Grammar | None, param: str) -> object:
        """The compiled form of what the answer must be; None for None.

        Raises:
            GrammarError: it is no grammar, or uses what is not supported.
        """
        if grammar is None:
            return None

        if self.model.grammars is None:
            raise BadRequestError(
                f"{param}: this model's answers cannot be constrained", param=param
            )

        try:
            return await self.model.grammars.compile(grammar)
        except GrammarError as error:
            raise GrammarError(f"{param}: {error}", param=param) from error

    def open_stream(
        self,
        prompt_ids: Sequence[int],
        request: SamplingRequest,
        request_id: str,
        num_choices: int = 1,
        grammar: object = None,
        operation: Operation = "chat",
    ) -> DeltaStream:
        """Submit a prompt. Does not block: a caller that is cancelled leaves nothing behind.

        Raises:
            RequestError: the length or the core refuses it.
            EngineError: the engine is closed or dead.
        """
        span = start_span(operation, self.model.model_name, request, request_id, num_choices)
        try:
            self.check_length(prompt_ids)
            options = replace(sequence_options(request, self.model), grammar=grammar)
            return self.engine.open_stream(prompt_ids, options, request_id, num_choices, span)
        except AiomlcError as error:
            if span is not None:
                span.on_end(error)
            raise

    def check_prompt(self, prompt_ids: Sequence[int]) -> None:
        """Refuse a prompt that nothing can follow.

        Raises:
            BadRequestError: it has no tokens.
            PromptTooLongError: it is as long as the context window.
        """
        if not prompt_ids:
            raise BadRequestError("prompt: has no tokens", param="prompt")

        self.check_length(prompt_ids)

    def check_length(self, prompt_ids: Sequence[int]) -> None:
        """Refuse a prompt that leaves no room for a completion.

        Raises:
            PromptTooLongError: it is as long as the context window.
        """
        window = self.model.context_window
        if len(prompt_ids) >= window:
            raise PromptTooLongError(prompt_tokens=len(prompt_ids), context_window=window)


@final
class EncoderSession:
    """An open engine and its encoder."""

    def __init__(self, engine: EncoderEngine) -> None:
        self.engine = engine

    @property
    def task(self) -> EngineTask:
        """The task that serves."""
        return self.engine.task

    @property
    def embedder(self) -> Embedder:
        """The batches of the encoder."""
        return self.engine.embedder


class SessionProvider(Protocol):
    """Whoever can open the engine, at the first request if need be."""

    async def session(self) -> ModelSession:
        """The session of the open engine.

        Raises:
            BadRequestError: its model is an encoder.
        """

    async def embedder(self) -> Embedder:
        """The encoder of the open engine.

        Raises:
            BadRequestError: its model is none.
        """
