"""`AsyncMLCEngine`: a model that answers many requests at once, on asyncio or trio."""

from __future__ import annotations

__all__ = ("AsyncMLCEngine",)

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, Self, Unpack, final

from anyio import AsyncContextManagerMixin
from anyio.from_thread import BlockingPortal
from anyio.lowlevel import checkpoint

from aiomlc.api.chat.resource import AsyncChat, MessageLike
from aiomlc.api.completions.resource import AsyncTextCompletions
from aiomlc.api.completions.token_stream import TokenStream, open_token_stream
from aiomlc.api.embeddings import AsyncEmbeddings
from aiomlc.api.engines.batch import BatchResult, run_batch
from aiomlc.api.engines.prefix_pinning import pin_prefix
from aiomlc.api.generation.options import ChatOptions, TokenOptions
from aiomlc.api.observability.metrics import EngineMetrics
from aiomlc.api.observability.tracing import check_tracing
from aiomlc.api.protocol.chat import ChatCompletion
from aiomlc.api.protocol.request import with_extra_body
from aiomlc.api.responses.resource import AsyncResponses
from aiomlc.api.session.legacy_options import LegacyOptions, apply_legacy_options
from aiomlc.api.session.lifecycle import EngineLifecycle
from aiomlc.api.session.loader import Loader, Model, complete_config, model_configs
from aiomlc.api.streams.chunk_stream import AlreadyDone
from aiomlc.api.streams.portal import open_portal
from aiomlc.config import EngineConfig, Mode
from aiomlc.devices import Device, parse_device
from aiomlc.errors import BadRequestError, EngineClosedError
from aiomlc.runtime.engine.core_protocol import CoreStatistics
from aiomlc.runtime.engine.pinned_prefix import PinnedPrefix
from aiomlc.runtime.engine.trace import chrome_trace
from aiomlc.runtime.loading.loaded_model import LoadProgress
from aiomlc.runtime.templates.conversation import Conversation
from aiomlc.runtime.tokenization.tokenizer import Tokenizer
from aiomlc.validation.arguments import check_callable, check_path, check_seconds, check_type

if TYPE_CHECKING:
    from aiomlc.runtime.loading.memory_plan import MemoryPlan


@final
class AsyncMLCEngine(AsyncContextManagerMixin):
    """Serve one model to concurrent requests.

        async with AsyncMLCEngine() as engine:
            answer = await engine.chat.completions.create(messages=[...])

    Leaving the scope ends every request and frees everything. Without a scope, the first request
    opens the model and `terminate` ends it. `model` is a directory; None is the bundled model.
    `former` are keywords of upstream's earlier releases, now fields of `engine_config`.

    Raises:
        BadRequestError: an argument is invalid or not supported; `param` names it.
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
        config = complete_config(
            apply_legacy_options(engine_config, former),
            model=model,
            model_lib=model_lib,
            mode=mode,
            enable_tracing=enable_tracing,
        )
        check_callable("on_progress", on_progress)
        check_callable("loader", loader)
        self._service = EngineLifecycle(parse_device(device), config, on_progress, loader)
        self._portal: BlockingPortal | None = None
        self.chat: AsyncChat = AsyncChat(self._service)
        self.completions: AsyncTextCompletions = AsyncTextCompletions(self._service)
        self.embeddings: AsyncEmbeddings = AsyncEmbeddings(self._service)
        self.responses: AsyncResponses = AsyncResponses(self._service)

    def __repr__(self) -> str:
        return f"<AsyncMLCEngine {self.engine_config.model or 'bundled model'}>"

    @property
    def engine_config(self) -> EngineConfig:
        """What the engine was given; while it is open with the sizes of its memory plan in it."""
        return self._service.completed_config

    @property
    def memory_plan(self) -> MemoryPlan | None:
        """What the open model takes; None for an encoder, and for one without files.

        Raises:
            EngineClosedError: the engine is not open.
        """
        return self._service.memory_plan

    @asynccontextmanager
    async def __asynccontextmanager__(self) -> AsyncIterator[Self]:
        async with self._service.scope(), open_portal() as self._portal:
            try:
                yield self
            finally:
                self._portal = None

    @property
    def portal(self) -> BlockingPortal:
        """The way for other threads to the engine's event loop, open as long as its scope:

            answer = engine.portal.call(ask, "What is 3 plus 5?")  # `ask` is a coroutine function.

        Another event loop runs that in a thread of its own. Calls that are not done when the scope
        is left are cancelled.

        Raises:
            EngineClosedError: the engine is not open by `async with`.
        """
        if self._portal is None:
            raise EngineClosedError("the engine has a portal inside of `async with` only")

        return self._portal

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the model: `encode`, `decode` and the bytes of each token.

        Before the model is open its files are read, as they are for the two properties below.

        Raises:
            EngineClosedError: the engine was terminated, or its model unloaded.
            ModelLoadError: a file of the model is missing or at fault.
            BadRequestError: its model is an encoder.
        """
        return self._service.model.tokenizer

    @property
    def model_config_dicts(self) -> list[dict[str, Any]]:
        """The configuration files of the model, and of the one that guesses for it.

        Raises:
            ModelLoadError: a file is missing or is not JSON.
        """
        return model_configs(self.engine_config)

    @property
    def max_input_sequence_length(self) -> int:
        """Tokens of one sequence, prompt and completion.

        Raises:
            EngineClosedError: the engine was terminated, or its model unloaded.
            ModelLoadError: a file of the model is missing or at fault.
            BadRequestError: its model is an encoder.
        """
        return self._service.model.context_window

    @property
    def conv_template(self) -> Conversation | None:
        """The conversation template that makes the prompts; None where a Jinja template does.

        Raises:
            EngineClosedError: the engine was terminated, or its model unloaded.
            ModelLoadError: a file of the model is missing or at fault.
        """
        return self._service.conv_template

    async def generate(
        self, prompt: str | Sequence[int], **options: Unpack[TokenOptions]
    ) -> TokenStream:
        """Go on with a text or with token ids, told as the core tells it:

            async with await engine.generate("Once", max_tokens=20, logprobs=0) as stream:
                async for delta in stream:
                    print(delta.token_ids, delta.text, delta.logprobs)

        No chat template, no chunks of OpenAI's. `logprobs` is the number of alternatives.

        Raises:
            BadRequestError: a field is invalid, unknown or not supported; `param` names it.
            PromptTooLongError: the prompt leaves no room for a completion.
            DuplicateRequestError: `request_id` belongs to a request that is still running.
            EngineError: the engine is closed, dead, or failed on this request.
            ModelLoadError: this was the first request, and the model could not be opened.
        """
        return await open_token_stream(self._service, prompt, options)

    def generate_many(
        self,
        prompts: Iterable[str | Iterable[MessageLike]],
        *,
        limit: int = 32,
        **options: Unpack[ChatOptions],
    ) -> AbstractAsyncContextManager[AsyncIterable[BatchResult]]:
        """Answer texts or conversations, at most `limit` at a time, told as they finish:

            async with engine.generate_many(prompts, limit=8) as outcomes:
                async for position, completion, error in outcomes:
                    ...

        An error of one prompt is its outcome and disturbs no other.

        Raises:
            BadRequestError: `stream` or `request_id` is set, or `prompts` or `limit` are of other
                types.
        """
        fields = with_extra_body(options)
        if fields.get("stream"):
            raise BadRequestError("stream: outcomes are whole answers", param="stream")

        if fields.get("request_id") is not None:
            raise BadRequestError("request_id: belongs to one request", param="request_id")

        async def ask(prompt: str | Iterable[MessageLike]) -> ChatCompletion:
            if isinstance(prompt, str):
                prompt = [{"role": "user", "content": prompt}]

            return await self.chat.completions.create(messages=prompt, **options)

        return run_batch(ask, prompts, limit)

    async def pin_prefix(
        self,
        messages: Iterable[MessageLike] | None = None,
        *,
        prompt: str | Sequence[int] | None = None,
        tools: Iterable[Mapping[str, Any]] | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
    ) -> PinnedPrefix:
        """Compute what prompts will begin with, and keep it in the KV cache:

            with await engine.pin_prefix([{"role": "system", "content": ...}]):
                ...

        It is computed when this returns, and is not evicted until it is released, or `reset`, or
        until a request has no room anywhere else, or the model's logits were not finite, of which
        what is cached may be the cause. `prompt` (a text or token ids) is for what
        `completions` are to begin with. `tools` and `chat_template_kwargs` are to be the chats'.

        Raises:
            BadRequestError: a field is invalid, or the prefix cache is off.
            PromptTooLongError: it leaves no room for a completion.
            EngineError: the engine is closed, dead, or failed on this prefix.
        """
        options = {"tools": tools, "chat_template_kwargs": chat_template_kwargs}
        return await pin_prefix(await self._service.session(), messages, prompt, options)

    async def abort(self, request_id: str) -> None:
        """End a request; its reader gets `RequestAbortedError`. An unknown id does nothing."""
        check_type("request_id", request_id, str, "a text")
        await checkpoint()
        if self._service.is_open:
            self._service.engine.abort(request_id)

    async def metrics(self) -> EngineMetrics:
        """The engine's counters under upstream's names.

        Raises:
            EngineClosedError: the engine is not open.
        """
        await checkpoint()
        return EngineMetrics(self.statistics())

    def statistics(self) -> CoreStatistics:
        """A snapshot of the engine's counters.

        Raises:
            EngineClosedError: the engine is not open.
        """
        return self._service.engine.statistics()

    def trace(self) -> dict[str, Any]:
        """What the engine did and when, as JSON in the Trace Event Format.

        Write it to a file with `json.dump`, and open that in Perfetto or chrome://tracing. The
        last 65,536 events are kept: a request has one per step, and each step one more.

        Raises:
            EngineError: the engine was opened without `enable_tracing`, or is not open.
        """
        check_tracing(self.engine_config)
        return chrome_trace(self._service.engine.trace())

    async def drain(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109 - it ends requests.
        """Refuse new requests until `resume`, and wait for the live ones to end.

        Returns whether all of them did; after `timeout` seconds the rest gets
        `RequestAbortedError`. New requests get `EngineDrainingError`, also when this call is
        cancelled, which ends no request; another call goes on waiting.

        Raises:
            BadRequestError: `timeout` is no number of seconds.
            EngineError: the engine is not open, or has ended before its requests did.
        """
        check_seconds("timeout", timeout)
        return await self._service.engine.drain(timeout)

    def resume(self) -> None:
        """Take requests again, after `drain`.

        Raises:
            EngineClosedError: the engine is not open.
        """
        self._service.engine.resume()

    def reset(self) -> AlreadyDone:
        """End every request, empty the prefix cache, pins too, and set the counters to 0.

        Readers get `RequestAbortedError`; the engine goes on. The call does it and does not wait:
        the cache is empty before the next step. What it returns may be awaited. Before the first
        request there is nothing to do.

        Raises:
            EngineClosedError: the engine was terminated or unloaded, or serves another event loop.
        """
        self._service.reset()
        return AlreadyDone()

    async def unload(self) -> None:
        """End every request and free the model; the engine can be loaded again.

        Readers get `EngineClosedError`, as new requests do until `reload`.
        """
        await self._service.unload()

    async def reload(self, model: Model | None = None) -> None:
        """Unload, and load the same model again or another one.

        If that fails the engine stays unloaded, and can be loaded again.

        Raises:
            BadRequestError: `model` is no path; nothing is unloaded.
            ModelLoadError: the model cannot be opened.
        """
        check_path("model", model)
        await self._service.reload(model)

    def terminate(self) -> None:
        """End every request and free the model. Waiting readers get `EngineClosedError`.

        From any thread; blocks for at most the step that is running. A second call does nothing.
        """
        self._service.terminate()

    def is_stepping_here(self) -> bool:
        """Whether the calling thread steps the model, as it does in a logits processor: then it
        must not wait for this engine."""
        return self._service.is_stepping_here()
