"""`MLCEngine`: the async engine for blocking code, through a portal to an event loop's thread."""

from __future__ import annotations

__all__ = ("ChatCompletionIterator", "CompletionIterator", "MLCEngine", "ResponseIterator")

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, Unpack, final, overload

from aiomlc.api.chat.events import ChatEventIterator
from aiomlc.api.chat.resource import MessageLike
from aiomlc.api.chat.stream import ChatCompletionStream
from aiomlc.api.chat.typed_output import ParsedChatCompletion, output_reader
from aiomlc.api.completions.resource import Prompt
from aiomlc.api.completions.stream import CompletionStream
from aiomlc.api.embeddings import EmbeddingInput, EmbeddingOptions
from aiomlc.api.engines.async_engine import AsyncMLCEngine
from aiomlc.api.generation.options import ChatOptions, CompletionOptions, ParseOptions, TokenOptions
from aiomlc.api.observability.metrics import EngineMetrics
from aiomlc.api.protocol.chat import ChatCompletion, ChatCompletionChunk
from aiomlc.api.protocol.chat_request import ChatCompletionRequest, parse_event_request
from aiomlc.api.protocol.completion import Completion
from aiomlc.api.protocol.embedding import EmbeddingResponse
from aiomlc.api.protocol.response import Response, ResponseEvent
from aiomlc.api.responses.resource import ResponseInput, ResponseOptions, ResponseStream
from aiomlc.api.session.legacy_options import LegacyOptions
from aiomlc.api.session.loader import Loader, Model
from aiomlc.api.streams.portal import BlockingStream, EnginePortal
from aiomlc.config import EngineConfig, Mode
from aiomlc.devices import Device
from aiomlc.runtime.engine.core_protocol import CoreStatistics
from aiomlc.runtime.engine.pinned_prefix import PinnedPrefix
from aiomlc.runtime.engine.stream import Delta
from aiomlc.runtime.loading.loaded_model import LoadProgress
from aiomlc.runtime.loading.memory_plan import MemoryPlan
from aiomlc.runtime.templates.conversation import Conversation
from aiomlc.runtime.tokenization.tokenizer import Tokenizer

ChatCompletionIterator = BlockingStream[ChatCompletionChunk]
CompletionIterator = BlockingStream[Completion]
ResponseIterator = BlockingStream[ResponseEvent]
TokenIterator = BlockingStream[Delta]
T = TypeVar("T")


@final
class MLCEngine:
    """Serve one model to threads; the requests of several are batched together.

    The constructor opens the model and blocks until it is ready. Use it as a context manager, or
    call `terminate`. `on_progress` is called in the engine's own thread.

    Raises:
        BadRequestError: an argument is invalid or not supported; `param` names it.
        ModelLoadError: the model cannot be opened.
    """

    def __init__(  # noqa: PLR0913 - upstream's signature.
        self,
        model: Model | None = None,
        device: Device = "auto",
        *,
        model_lib: Model | None = None,
        mode: Mode = "local",
        engine_config: EngineConfig | None = None,
        enable_tracing: bool = False,
        on_progress: Callable[[LoadProgress], None] | None = None,
        loader: Loader | None = None,
        **former: Unpack[LegacyOptions],
    ) -> None:
        self._portal: EnginePortal | None = None
        self._engine = AsyncMLCEngine(
            model,
            device,
            model_lib=model_lib,
            mode=mode,
            engine_config=engine_config,
            enable_tracing=enable_tracing,
            on_progress=on_progress,
            loader=loader,
            **former,
        )
        self._portal = EnginePortal(self._engine)
        self.chat: Chat = Chat(self._engine, self._portal)
        self.completions: TextCompletions = TextCompletions(self._engine, self._portal)
        self.embeddings: Embeddings = Embeddings(self._engine, self._portal)
        self.responses: Responses = Responses(self._engine, self._portal)

    def __repr__(self) -> str:
        return f"<MLCEngine {self.engine_config.model or 'bundled model'}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.terminate()

    def __del__(self) -> None:
        portal = getattr(self, "_portal", None)
        if portal is not None and not self._ends_from_inside(portal):
            portal.close_quietly()

    def generate(
        self, prompt: str | Sequence[int], **options: Unpack[TokenOptions]
    ) -> TokenIterator:
        """Go on with a text or with token ids, as `AsyncMLCEngine.generate`."""
        portal = self._open_portal()
        generate = partial(self._engine.generate, prompt, **options)
        return BlockingStream(portal.call(generate), portal)

    @property
    def engine_config(self) -> EngineConfig:
        """The configuration, as of `AsyncMLCEngine.engine_config`."""
        return self._engine.engine_config

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the open model."""
        return self._engine.tokenizer

    @property
    def model_config_dicts(self) -> list[dict[str, Any]]:
        """The configuration files of the model, and of the one that guesses for it."""
        return self._engine.model_config_dicts

    @property
    def max_input_sequence_length(self) -> int:
        """Tokens of one sequence, prompt and completion."""
        return self._engine.max_input_sequence_length

    @property
    def conv_template(self) -> Conversation | None:
        """The conversation template that makes the prompts; None where a Jinja template does."""
        return self._engine.conv_template

    def pin_prefix(
        self,
        messages: Iterable[MessageLike] | None = None,
        *,
        prompt: str | Sequence[int] | None = None,
        tools: Iterable[Mapping[str, Any]] | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
    ) -> PinnedPrefix:
        """Keep what prompts will begin with, as `AsyncMLCEngine.pin_prefix`, for a `with` block."""
        pin = partial(
            self._engine.pin_prefix,
            messages,
            prompt=prompt,
            tools=tools,
            chat_template_kwargs=chat_template_kwargs,
        )
        return self._open_portal().call(pin)

    @property
    def memory_plan(self) -> MemoryPlan | None:
        """What the open model takes, as of `AsyncMLCEngine.memory_plan`."""
        return self._engine.memory_plan

    def abort(self, request_id: str) -> None:
        """End a request; its reader gets `RequestAbortedError`. An unknown id does nothing."""
        self._open_portal().call(self._engine.abort, request_id)

    def metrics(self) -> EngineMetrics:
        """The engine's counters under upstream's names."""
        return self._open_portal().call(self._engine.metrics)

    def statistics(self) -> CoreStatistics:
        """A snapshot of the engine's counters."""
        return self._engine.statistics()

    def trace(self) -> dict[str, Any]:
        """What the engine did and when, as of `AsyncMLCEngine.trace`."""
        return self._engine.trace()

    def drain(self, timeout: float | None = None) -> bool:
        """Refuse new requests and wait for the live ones, as `AsyncMLCEngine.drain`."""
        return self._open_portal().call(partial(self._engine.drain, timeout))

    def resume(self) -> None:
        """Take requests again, after `drain`."""
        self._engine.resume()

    def reset(self) -> None:
        """End every request and forget what was counted, as `AsyncMLCEngine.reset`."""
        self._open_portal().call(self._engine.reset)

    def unload(self) -> None:
        """End every request and free the model, as `AsyncMLCEngine.unload`."""
        self._open_portal().call(self._engine.unload)

    def reload(self, model: Model | None = None) -> None:
        """Load the model again, or another one, as `AsyncMLCEngine.reload`."""
        self._open_portal().call(partial(self._engine.reload, model))

    def terminate(self) -> None:
        """End every request and the engine's thread, and free the model. Idempotent.

        In a logits processor it returns at once, and the thread ends with the next call or with
        the interpreter.

        Raises:
            EngineDeadError: the engine had failed before.
        """
        portal = self._open_portal()
        if not self._ends_from_inside(portal):
            portal.close()

    def _ends_from_inside(self, portal: EnginePortal) -> bool:
        # A logits processor runs in one of the engine's threads, and the last reference to the
        # engine may have been a processor's: such a thread cannot wait for itself.
        if not portal.runs_here() and not self._engine.is_stepping_here():
            return False

        self._engine.terminate()
        portal.close_at_exit()
        return True

    def _open_portal(self) -> EnginePortal:
        assert self._portal is not None, "set by the constructor"
        return self._portal


@final
class Chat:
    """`engine.chat`."""

    def __init__(self, engine: AsyncMLCEngine, portal: EnginePortal) -> None:
        self.completions: Completions = Completions(engine, portal)


@final
class Completions:
    """`engine.chat.completions`."""

    def __init__(self, engine: AsyncMLCEngine, portal: EnginePortal) -> None:
        self._engine = engine
        self._portal = portal

    @overload
    def create(
        self,
        *,
        messages: Iterable[MessageLike],
        stream: Literal[True],
        **options: Unpack[ChatOptions],
    ) -> ChatCompletionIterator: ...

    @overload
    def create(
        self,
        *,
        messages: Iterable[MessageLike],
        stream: Literal[False] | None = None,
        **options: Unpack[ChatOptions],
    ) -> ChatCompletion: ...

    @overload
    def create(
        self,
        *,
        messages: Iterable[MessageLike],
        stream: bool | None,
        **options: Unpack[ChatOptions],
    ) -> ChatCompletion | ChatCompletionIterator: ...

    def create(
        self,
        *,
        messages: Iterable[MessageLike],
        stream: bool | None = None,
        **options: Unpack[ChatOptions],
    ) -> ChatCompletion | ChatCompletionIterator:
        """Answer `messages`, as `AsyncCompletions.create` does and with its errors."""
        create = partial(
            self._engine.chat.completions.create, messages=messages, stream=stream, **options
        )
        answer = self._portal.call(create)
        if isinstance(answer, ChatCompletionStream):
            return ChatCompletionIterator(answer, self._portal)

        return answer

    def parse(
        self,
        *,
        messages: Iterable[MessageLike],
        response_format: type[T],
        **options: Unpack[ParseOptions],
    ) -> ParsedChatCompletion[T]:
        """Answer with a value of a type, as `AsyncCompletions.parse` does and with its errors."""
        parse = self._engine.chat.completions.parse
        return self._portal.call(
            partial(parse, messages=messages, response_format=response_format, **options)
        )

    @overload
    def stream(
        self,
        *,
        messages: Iterable[MessageLike],
        response_format: type[T],
        **options: Unpack[ParseOptions],
    ) -> ChatEventIterator[T, ParsedChatCompletion[T]]: ...

    @overload
    def stream(
        self, *, messages: Iterable[MessageLike], **options: Unpack[ChatOptions]
    ) -> ChatEventIterator[None, ChatCompletion]: ...

    def stream(
        self,
        *,
        messages: Iterable[MessageLike],
        response_format: type[Any] | Mapping[str, Any] | None = None,
        **options: Unpack[ParseOptions],
    ) -> ChatEventIterator[Any, Any]:
        """The answer as events, in a scope, as `AsyncCompletions.stream`."""
        reader = output_reader(response_format)
        fields = {**options, "messages": messages, "response_format": reader.response_format}

        def open_chunks() -> ChatCompletionIterator:
            return self.open(parse_event_request(fields))

        return ChatEventIterator(open_chunks, reader)

    def open(self, request: ChatCompletionRequest) -> ChatCompletionIterator:
        """The stream of a parsed request, as `AsyncCompletions.open`."""
        stream = self._portal.call(self._engine.chat.completions.open, request)
        return ChatCompletionIterator(stream, self._portal)


@final
class TextCompletions:
    """`engine.completions`."""

    def __init__(self, engine: AsyncMLCEngine, portal: EnginePortal) -> None:
        self._engine = engine
        self._portal = portal

    @overload
    def create(
        self, *, prompt: Prompt, stream: Literal[True], **options: Unpack[CompletionOptions]
    ) -> CompletionIterator: ...

    @overload
    def create(
        self,
        *,
        prompt: Prompt,
        stream: Literal[False] | None = None,
        **options: Unpack[CompletionOptions],
    ) -> Completion: ...

    @overload
    def create(
        self, *, prompt: Prompt, stream: bool | None, **options: Unpack[CompletionOptions]
    ) -> Completion | CompletionIterator: ...

    def create(
        self,
        *,
        prompt: Prompt,
        stream: bool | None = None,
        **options: Unpack[CompletionOptions],
    ) -> Completion | CompletionIterator:
        """Go on with texts, as `AsyncTextCompletions.create` does and with its errors."""
        create = partial(self._engine.completions.create, prompt=prompt, stream=stream, **options)
        answer = self._portal.call(create)
        if isinstance(answer, CompletionStream):
            return CompletionIterator(answer, self._portal)

        return answer


@final
class Embeddings:
    """`engine.embeddings`."""

    def __init__(self, engine: AsyncMLCEngine, portal: EnginePortal) -> None:
        self._engine = engine
        self._portal = portal

    def create(
        self,
        *,
        input: EmbeddingInput,  # noqa: A002 - OpenAI's name.
        **options: Unpack[EmbeddingOptions],
    ) -> EmbeddingResponse:
        """The vectors of texts, as `AsyncEmbeddings.create` and with its errors."""
        return self._portal.call(partial(self._engine.embeddings.create, input=input, **options))


@final
class Responses:
    """`engine.responses`."""

    def __init__(self, engine: AsyncMLCEngine, portal: EnginePortal) -> None:
        self._engine = engine
        self._portal = portal

    @overload
    def create(
        self, *, input: ResponseInput, stream: Literal[True], **options: Unpack[ResponseOptions]
    ) -> ResponseIterator: ...

    @overload
    def create(
        self,
        *,
        input: ResponseInput,
        stream: Literal[False] | None = None,
        **options: Unpack[ResponseOptions],
    ) -> Response: ...

    @overload
    def create(
        self, *, input: ResponseInput, stream: bool | None, **options: Unpack[ResponseOptions]
    ) -> Response | ResponseIterator: ...

    def create(
        self,
        *,
        input: ResponseInput,  # noqa: A002 - OpenAI's name.
        stream: bool | None = None,
        **options: Unpack[ResponseOptions],
    ) -> Response | ResponseIterator:
        """Answer a text or items, as `AsyncResponses.create` does and with its errors."""
        create = partial(self._engine.responses.create, input=input, stream=stream, **options)
        answer = self._portal.call(create)
        if isinstance(answer, ResponseStream):
            return ResponseIterator(answer, self._portal)

        return answer
