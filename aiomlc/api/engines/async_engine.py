"""`AsyncMLCEngine`, the engine for asyncio and trio."""

from __future__ import annotations

__all__ = ("AsyncMLCEngine",)

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Self, Unpack, final

from anyio.from_thread import BlockingPortal
from anyio.lowlevel import checkpoint

from aiomlc.api.chat.resource import AsyncChat
from aiomlc.api.completions.resource import AsyncTextCompletions
from aiomlc.api.completions.token_stream import TokenStream, open_token_stream
from aiomlc.api.embeddings import AsyncEmbeddings
from aiomlc.api.engines.batch import BatchResult, complete_many
from aiomlc.api.engines.openai_client import ASYNC_HINTS, AsyncOpenAIClientMixin
from aiomlc.api.engines.prefixes import AsyncPrefixMixin
from aiomlc.api.engines.ranking import AsyncRankingMixin
from aiomlc.api.engines.transcription import AsyncTranscriptionMixin
from aiomlc.api.generation.options import ChatOptions, TokenOptions, documents_options
from aiomlc.api.models import AsyncModels
from aiomlc.api.observability.metrics import EngineMetrics
from aiomlc.api.observability.tracing import check_tracing
from aiomlc.api.protocol.message_params import MessageLike
from aiomlc.api.responses.resource import AsyncResponses
from aiomlc.api.session.legacy_options import LegacyOptions, apply_legacy_options
from aiomlc.api.session.lifecycle import EngineLifecycle
from aiomlc.api.session.loader import Loader, ModelPath, complete_config, model_configs
from aiomlc.api.streams.chunk_stream import AlreadyDone
from aiomlc.api.streams.pending_stream import PendingStream
from aiomlc.api.streams.portal import STEPPING_MESSAGE, open_portal
from aiomlc.api.streams.visible_names import hides
from aiomlc.config import EngineConfig, Mode
from aiomlc.devices import Device, parse_device
from aiomlc.errors import EngineClosedError, EngineError
from aiomlc.runtime.concurrency.event_loop import check_threads
from aiomlc.runtime.concurrency.interrupts import UninterruptibleScope
from aiomlc.runtime.concurrency.misuse import Uncopyable, explains
from aiomlc.runtime.engine.core_protocol import CoreStatistics
from aiomlc.runtime.engine.events import EngineEventStream
from aiomlc.runtime.engine.stream import Delta
from aiomlc.runtime.engine.trace import chrome_trace
from aiomlc.runtime.loading.memory_plan import MemoryPlan
from aiomlc.runtime.loading.progress import LoadProgress
from aiomlc.runtime.templates.conversation import Conversation
from aiomlc.runtime.tokenization.tokenizer import Tokenizer
from aiomlc.validation.arguments import check_callable, check_path, check_seconds, plain_str


@explains(**ASYNC_HINTS)
@hides("is_stepping_here", "open_transcription", "rank")
@final
class AsyncMLCEngine(
    UninterruptibleScope,
    Uncopyable,
    AsyncPrefixMixin,
    AsyncRankingMixin,
    AsyncTranscriptionMixin,
    AsyncOpenAIClientMixin,
):
    """An engine that serves one model to concurrent requests, on asyncio or trio.

        async with AsyncMLCEngine() as engine:
            response = await engine.chat.completions.create(messages=[...])

    Leaving the scope ends every request and frees the model. Without a scope, the first request
    opens the model and `terminate` frees it.

    Args:
        model: A directory, or a repository of the hub: `user/name`; None is the bundled model.
        device: The device to run on: `auto`, `cpu`, `cuda` or `opencl`.
        model_lib: A library that `compile_model` has written for this model and these settings, or
            `mock://echo`. A library of MLC LLM is ignored with a warning: the engine compiles.
        mode: The preset of default sizes: `local`, `interactive` or `server`.
        engine_config: Further settings. A field must not contradict an argument.
        enable_tracing: Whether to record events for `trace`.
        on_progress: Called with the progress while the model is loaded.
        loader: Opens the model, in place of the default loader.
        legacy_options: Keyword arguments of earlier MLC LLM releases, now in `engine_config`.

    Raises:
        BadRequestError: If an argument is invalid or not supported; `param` names it.
        ModelNotFoundError: If `model` is not a directory, or `model_lib` not a file.
        EngineError: If gevent has replaced Python's threads.
    """

    def __init__(  # noqa: PLR0913 - MLC LLM's signature.
        self,
        model: ModelPath | None = None,
        device: Device = "auto",
        *,
        model_lib: ModelPath | None = None,
        mode: Mode = "local",
        engine_config: EngineConfig | None = None,
        enable_tracing: bool = False,
        on_progress: Callable[[LoadProgress], None] | None = None,
        loader: Loader | None = None,
        **legacy_options: Unpack[LegacyOptions],
    ) -> None:
        config = complete_config(
            apply_legacy_options(engine_config, legacy_options),
            model=model,
            model_lib=model_lib,
            mode=mode,
            enable_tracing=enable_tracing,
        )
        check_callable("on_progress", on_progress)
        check_callable("loader", loader)
        check_threads()
        self._lifecycle = EngineLifecycle(parse_device(device), config, on_progress, loader)
        self._portal: BlockingPortal | None = None
        self.chat: AsyncChat = AsyncChat(self._lifecycle)
        self.completions: AsyncTextCompletions = AsyncTextCompletions(self._lifecycle)
        self.embeddings: AsyncEmbeddings = AsyncEmbeddings(self._lifecycle)
        self.models: AsyncModels = AsyncModels(self._lifecycle)
        self.responses: AsyncResponses = AsyncResponses(self._lifecycle)

    def __repr__(self) -> str:
        return f"<AsyncMLCEngine {self.engine_config.model or 'bundled model'}>"

    @property
    def engine_config(self) -> EngineConfig:
        """The configuration; while the engine is open, with the sizes from the memory plan."""
        return self._lifecycle.completed_config

    @property
    def memory_plan(self) -> MemoryPlan | None:
        """The memory plan of the open model; None for an encoder and for `mock://echo`.

        Raises:
            EngineClosedError: If the engine is not open.
        """
        return self._lifecycle.memory_plan

    @asynccontextmanager
    async def __asynccontextmanager__(self) -> AsyncIterator[Self]:
        async with self._lifecycle.scope(), open_portal() as self._portal:
            try:
                yield self
            finally:
                self._portal = None

    @property
    def portal(self) -> BlockingPortal:
        """The portal through which other threads call the engine's event loop:

            reply = engine.portal.call(ask, "What is 3 plus 5?")  # `ask` is a coroutine function.

        A call blocks its thread, so another event loop should make it in a worker thread.
        Leaving the engine's scope cancels unfinished calls.

        Raises:
            EngineClosedError: If the engine was not opened by `async with`.
            EngineError: If called in a logits processor, for which the event loop may have to wait.
        """
        if self.is_stepping_here():
            raise EngineError(STEPPING_MESSAGE)

        if self._portal is None:
            raise EngineClosedError("the engine has a portal only inside `async with`")

        return self._portal

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the model.

        It is read from the model's files if the model is not open yet.

        Raises:
            EngineClosedError: If the engine was terminated, or the model unloaded.
            ModelLoadError: If a file of the model is missing or invalid.
            BadRequestError: If the model is an encoder.
        """
        return self._lifecycle.model.tokenizer

    @property
    def model_config_dicts(self) -> list[dict[str, Any]]:
        """The contents of the model's `mlc-chat-config.json` or `config.json`.

        With `speculative_mode="small_draft"`, that of the draft model follows.

        Raises:
            ModelLoadError: If a file is missing or is not JSON.
        """
        return model_configs(self.engine_config)

    @property
    def max_input_sequence_length(self) -> int:
        """The maximum number of tokens of a sequence: prompt and completion.

        It is planned from the model's files if the model is not open yet.

        Raises:
            EngineClosedError: If the engine was terminated, or the model unloaded.
            ModelLoadError: If a file of the model is missing or invalid.
            BadRequestError: If the model is an encoder.
        """
        return self._lifecycle.model.context_window

    @property
    def conv_template(self) -> Conversation | None:
        """The conversation template of the model; None if the model has a Jinja template.

        It is read from the model's files if the model is not open yet.

        Raises:
            EngineClosedError: If the engine was terminated, or the model unloaded.
            ModelLoadError: If a file of the model is missing or invalid.
        """
        return self._lifecycle.conv_template

    @documents_options(TokenOptions)
    def generate(
        self, prompt: str | Sequence[int], **options: Unpack[TokenOptions]
    ) -> PendingStream[TokenStream, Delta]:
        """Continue a prompt, and return the stream of its tokens:

            async for delta in engine.generate("Once", max_tokens=20, logprobs=0):
                print(delta.token_ids, delta.text, delta.logprobs)

        The chat template is not applied. `await` and `async with` give the stream as well.

        Args:
            prompt: A string, or token ids.
            options: The optional fields. `logprobs` is the number of alternatives per token.

        Raises:
            AiomlcError: On the first use, as `chat.completions.create`.
        """
        return PendingStream(open_token_stream, self._lifecycle, prompt, options)

    def generate_many(
        self,
        prompts: Iterable[str | Iterable[MessageLike]],
        *,
        limit: int = 32,
        **options: Unpack[ChatOptions],
    ) -> AbstractAsyncContextManager[AsyncIterable[BatchResult]]:
        """Complete many chats, and yield the results in the order in which they finish:

            async with engine.generate_many(prompts, limit=8) as results:
                async for position, completion, error in results:
                    ...

        If a request fails, its result contains the error; the other requests continue. Requests
        for which the engine's queue (`max_queue_size`) has no room wait.

        Args:
            prompts: Conversations. A string is a conversation of one user message.
            limit: The maximum number of concurrent requests.
            options: The optional fields of every request.

        Raises:
            BadRequestError: If `stream` or `request_id` is set, or `prompts` or `limit` is invalid.
            EngineError: While iterating, if the engine is closed or dead.
        """
        return complete_many(self.chat.completions.create, self._is_idle, prompts, limit, options)

    def _is_idle(self) -> bool:
        statistics = self.statistics()
        return statistics.num_running + statistics.num_waiting == 0

    async def abort(self, request_id: str) -> None:
        """End a request; its reader gets `RequestAbortedError`. An unknown id is ignored.

        The id of a request with several prompts ends all of them, `{request_id}-{i}` one of them.

        Raises:
            BadRequestError: If `request_id` is not a string.
        """
        request_id = plain_str("request_id", request_id)
        await checkpoint()
        if self._lifecycle.is_open:
            self._lifecycle.engine.abort(request_id)

    async def metrics(self) -> EngineMetrics:
        """Return the engine's counters, with MLC LLM's names; the first call opens the model.

        Raises:
            EngineClosedError: If the engine was terminated, or the model unloaded.
        """
        await self._lifecycle.open_first()
        return EngineMetrics(self.statistics())

    def statistics(self) -> CoreStatistics:
        """Return a snapshot of the engine's counters.

        Raises:
            EngineClosedError: If the engine is not open.
        """
        return self._lifecycle.engine.statistics()

    def trace(self) -> dict[str, Any]:
        """Return the recorded events as a JSON object in the Trace Event Format.

        Written to a file with `json.dump`, it can be opened in Perfetto or chrome://tracing. The
        last 65,536 events are kept. A step adds one event, and one more for each of its sequences.

        Raises:
            EngineError: If the engine was opened without `enable_tracing`, or is not open.
        """
        check_tracing(self.engine_config)
        return chrome_trace(self._lifecycle.engine.trace())

    def events(self, *, buffer_size: int = 256) -> EngineEventStream:
        """Return a stream of the engine's events from now on; see `EngineEvent` for the types.

        If there are `buffer_size` unread events, the oldest are dropped.
        """
        return self._lifecycle.events.subscribe(buffer_size)

    async def drain(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109 - it ends requests.
        """Reject new requests until `resume`, and wait until the running ones have finished.

        New requests get `EngineDrainingError`. If this call is cancelled, no request is aborted
        and new requests are still rejected; call it again to continue waiting.

        Args:
            timeout: The number of seconds after which the remaining requests are aborted and get
                `RequestAbortedError`; None for no limit.

        Returns:
            Whether all requests finished before `timeout`.

        Raises:
            BadRequestError: If `timeout` is not a non-negative number.
            EngineError: If the engine is not open, or ended before its requests had finished.
        """
        check_seconds("timeout", timeout)
        return await self._lifecycle.engine.drain(timeout)

    def resume(self) -> None:
        """Accept requests again, after `drain`.

        Raises:
            EngineClosedError: If the engine is not open.
        """
        self._lifecycle.engine.resume()

    def reset(self) -> AlreadyDone:
        """Abort every request, empty the prefix cache and set the counters to 0.

        Readers get `RequestAbortedError`; the engine continues to serve. Pinned prefixes are
        removed as well. Does not block: the cache is empty before the next step. Awaiting the
        returned value is optional. If no request has opened the model yet, nothing is done.

        Raises:
            EngineClosedError: If the engine was terminated or unloaded, or is used in another loop.
        """
        self._lifecycle.reset()
        return AlreadyDone()

    async def unload(self) -> None:
        """End every request and free the model.

        Readers get `EngineClosedError`, and so do new requests until `reload`.
        """
        await self._lifecycle.unload()

    async def reload(self, model: ModelPath | None = None) -> None:
        """Unload the model, and load it again or another one.

        If loading fails, the engine stays unloaded (memory may not hold two models); try it again.

        Args:
            model: The model directory; None means the current model.

        Raises:
            BadRequestError, ModelNotFoundError: If there is no such model; nothing is unloaded.
            ModelLoadError: If the model cannot be opened.
        """
        check_path("model", model)
        await self._lifecycle.reload(model)

    def terminate(self) -> AlreadyDone:
        """End every request and free the model. Waiting readers get `EngineClosedError`.

        Thread-safe and idempotent. Blocks at most until the current step has finished. Awaiting
        the result is optional.
        """
        self._lifecycle.terminate()
        return AlreadyDone()

    def is_stepping_here(self) -> bool:
        """Return whether this thread steps the model, and so must not wait for the engine."""
        return self._lifecycle.is_stepping_here()
