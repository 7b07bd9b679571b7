"""`MLCEngine`, the engine for blocking code: an async engine in a thread with an event loop."""

from __future__ import annotations

__all__ = ("MLCEngine", "TokenIterator", "parts_of")

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Self, Unpack, final

from aiomlc.api.engines.async_engine import AsyncMLCEngine
from aiomlc.api.engines.blocking_prefixes import PrefixMixin
from aiomlc.api.engines.blocking_ranking import RankingMixin
from aiomlc.api.engines.blocking_transcription import TranscriptionMixin
from aiomlc.api.engines.openai_client import HINTS, OpenAIClientMixin
from aiomlc.api.engines.sync_resources import (
    Chat,
    Embeddings,
    Models,
    Responses,
    TextCompletions,
)
from aiomlc.api.generation.options import TokenOptions, documents_options
from aiomlc.api.observability.metrics import EngineMetrics
from aiomlc.api.session.legacy_options import LegacyOptions
from aiomlc.api.session.loader import Loader, ModelPath
from aiomlc.api.streams.portal import BlockingStream, EnginePortal
from aiomlc.config import EngineConfig, Mode
from aiomlc.devices import Device
from aiomlc.runtime.concurrency.event_loop import runs_event_loop
from aiomlc.runtime.concurrency.misuse import ScopeOnly, Uncopyable, explains
from aiomlc.runtime.engine.core_protocol import CoreStatistics
from aiomlc.runtime.engine.stream import Delta
from aiomlc.runtime.loading.memory_plan import MemoryPlan
from aiomlc.runtime.loading.progress import LoadProgress
from aiomlc.runtime.templates.conversation import Conversation
from aiomlc.runtime.tokenization.tokenizer import Tokenizer

TokenIterator = BlockingStream[Delta]

_LOG = logging.getLogger("aiomlc")


@explains(**HINTS)
@final
class MLCEngine(
    ScopeOnly, Uncopyable, PrefixMixin, RankingMixin, TranscriptionMixin, OpenAIClientMixin
):
    """An engine that serves one model to blocking code, in one thread or several.

    The constructor opens the model and blocks until it is ready. Concurrent requests of several
    threads share batches. Use the engine as a context manager, or call `terminate`; an engine that
    nothing refers to any more, not even a stream of it, ends by itself.

    The methods behave like those of `AsyncMLCEngine`, which has their full documentation, and raise
    the same errors.

    Args:
        model: A directory, or a repository of the hub: `user/name`; None is the bundled model.
        device: The device to run on: `auto`, `cpu`, `cuda` or `opencl`.
        model_lib: A library that `compile_model` has written for this model and these settings, or
            `mock://echo`. A library of MLC LLM is ignored with a warning: the engine compiles.
        mode: The preset of default sizes: `local`, `interactive` or `server`.
        engine_config: Further settings. A field must not contradict an argument.
        enable_tracing: Whether to record events for `trace`.
        on_progress: Called with the progress while the model is loaded, in the engine's thread.
        loader: Opens the model, in place of the default loader.
        legacy_options: Keyword arguments of earlier MLC LLM releases, now in `engine_config`.

    Raises:
        BadRequestError: If an argument is invalid or not supported; `param` names it.
        ModelLoadError: If the model cannot be opened.
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
        self._engine = AsyncMLCEngine(
            model,
            device,
            model_lib=model_lib,
            mode=mode,
            engine_config=engine_config,
            enable_tracing=enable_tracing,
            on_progress=on_progress,
            loader=loader,
            **legacy_options,
        )
        if runs_event_loop():
            _LOG.warning(
                "MLCEngine blocks the event loop that runs in this thread; use AsyncMLCEngine, or "
                "another thread"
            )

        self._portal: EnginePortal = EnginePortal(self._engine, self._engine.is_stepping_here)
        self.chat: Chat = Chat(self._engine, self._portal)
        self.completions: TextCompletions = TextCompletions(self._engine, self._portal)
        self.embeddings: Embeddings = Embeddings(self._engine, self._portal)
        self.models: Models = Models(self._engine, self._portal)
        self.responses: Responses = Responses(self._engine, self._portal)

    def __repr__(self) -> str:
        return f"<MLCEngine {self.engine_config.model or 'bundled model'}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.terminate()

    @documents_options(TokenOptions)
    def generate(
        self, prompt: str | Sequence[int], **options: Unpack[TokenOptions]
    ) -> TokenIterator:
        """Continue a prompt, and return the stream of its tokens."""
        generate = partial(self._engine.generate, prompt, **options)
        return BlockingStream(self._portal.call(generate), self._portal)

    @property
    def engine_config(self) -> EngineConfig:
        """The configuration, with the sizes from the memory plan."""
        return self._engine.engine_config

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the model."""
        return self._engine.tokenizer

    @property
    def model_config_dicts(self) -> list[dict[str, Any]]:
        """The parsed configuration files of the model, then its draft model's."""
        return self._engine.model_config_dicts

    @property
    def max_input_sequence_length(self) -> int:
        """The maximum number of tokens of a sequence: prompt and completion."""
        return self._engine.max_input_sequence_length

    @property
    def conv_template(self) -> Conversation | None:
        """The conversation template of the model; None if the model has a Jinja template."""
        return self._engine.conv_template

    @property
    def memory_plan(self) -> MemoryPlan | None:
        """The memory plan of the model; None for an encoder and for `mock://echo`."""
        return self._engine.memory_plan

    def abort(self, request_id: str) -> None:
        """End a request; its reader gets `RequestAbortedError`. An unknown id is ignored."""
        self._portal.call(self._engine.abort, request_id)

    def metrics(self) -> EngineMetrics:
        """Return the engine's counters, with MLC LLM's names."""
        return self._portal.call(self._engine.metrics)

    def statistics(self) -> CoreStatistics:
        """Return a snapshot of the engine's counters."""
        return self._engine.statistics()

    def trace(self) -> dict[str, Any]:
        """Return the recorded events as a JSON object in the Trace Event Format."""
        return self._engine.trace()

    def drain(self, timeout: float | None = None) -> bool:
        """Reject new requests until `resume`, and wait until the running ones have finished.

        Return whether all of them finished; the others are aborted after `timeout` seconds.
        """
        return self._portal.call(partial(self._engine.drain, timeout))

    def resume(self) -> None:
        """Accept requests again, after `drain`."""
        self._engine.resume()

    def reset(self) -> None:
        """Abort every request, empty the prefix cache and set the counters to 0."""
        self._portal.call(self._engine.reset)

    def unload(self) -> None:
        """End every request and free the model; `reload` loads it again."""
        self._portal.call(self._engine.unload)

    def reload(self, model: ModelPath | None = None) -> None:
        """Unload the model, and load it again or another one."""
        self._portal.call(partial(self._engine.reload, model))

    def terminate(self) -> None:
        """End every request and the engine's thread, and free the model. Idempotent.

        A call from a logits processor cannot wait for the thread: it returns at once, and the
        thread ends with the next call or when the interpreter exits.

        Raises:
            EngineDeadError: If the engine had failed.
        """
        if self._portal.must_not_wait():
            self._engine.terminate()
            self._portal.close_at_exit()
        else:
            self._portal.close()


def parts_of(engine: MLCEngine) -> tuple[AsyncMLCEngine, EnginePortal]:
    """Return the async engine of an engine, and the portal to its thread."""
    return engine._engine, engine._portal  # pyright: ignore[reportPrivateUsage] - of this module.
