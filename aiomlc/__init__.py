"""Large language models inside a Python program, as async iterators on asyncio and trio."""

from __future__ import annotations

__all__ = (  # noqa: RUF022 - grouped by what they are for.
    # Engines
    "AsyncMLCEngine",
    "MLCEngine",
    "SyncMLCEngine",
    "JSONFFIEngine",
    "AsyncEmbeddingEngine",
    "EngineConfig",
    "EngineMetrics",
    "CoreStatistics",
    "Histogram",
    "prometheus_text",
    "LoadProgress",
    "MemoryPlan",
    "plan_memory",
    # Prompts
    "Conversation",
    "FunctionForm",
    "register_conversation_template",
    # Steps
    "GenerationConfig",
    "TextData",
    "TokenData",
    "TextStreamer",
    # Answers
    "TokenStream",
    "Delta",
    "TokenLogprob",
    "ChatCompletion",
    "ChatCompletionChunk",
    "ChatCompletionStream",
    "Completion",
    "CompletionStream",
    "ParsedChatCompletion",
    "EmbeddingResponse",
    "Response",
    "ResponseStream",
    "PinnedPrefix",
    # Errors
    "AiomlcError",
    "RequestError",
    "BadRequestError",
    "PromptTooLongError",
    "InputTooLongError",
    "DeadlineExceededError",
    "DuplicateRequestError",
    "GrammarError",
    "IncompleteAnswerError",
    "LogitsProcessorError",
    "RequestAbortedError",
    "EngineError",
    "EngineClosedError",
    "EngineDeadError",
    "EngineDrainingError",
    "EngineOverloadedError",
    "RequestFailedError",
    "ModelLoadError",
    "ModelNotFoundError",
    "InsufficientMemoryError",
    "CompileError",
)

import importlib
from typing import TYPE_CHECKING

from aiomlc.config import EngineConfig
from aiomlc.errors import (
    AiomlcError,
    BadRequestError,
    CompileError,
    DeadlineExceededError,
    DuplicateRequestError,
    EngineClosedError,
    EngineDeadError,
    EngineDrainingError,
    EngineError,
    EngineOverloadedError,
    GrammarError,
    IncompleteAnswerError,
    InputTooLongError,
    InsufficientMemoryError,
    LogitsProcessorError,
    ModelLoadError,
    ModelNotFoundError,
    PromptTooLongError,
    RequestAbortedError,
    RequestError,
    RequestFailedError,
)

if TYPE_CHECKING:
    from aiomlc.api.async_engine import AsyncMLCEngine
    from aiomlc.api.chat_stream import ChatCompletionStream
    from aiomlc.api.completion_stream import CompletionStream
    from aiomlc.api.embedding_engine import AsyncEmbeddingEngine
    from aiomlc.api.generation_config import GenerationConfig
    from aiomlc.api.json_ffi import JSONFFIEngine
    from aiomlc.api.metrics import EngineMetrics
    from aiomlc.api.parsed import ParsedChatCompletion
    from aiomlc.api.planning import plan_memory
    from aiomlc.api.prometheus import prometheus_text
    from aiomlc.api.protocol.chat import ChatCompletion, ChatCompletionChunk
    from aiomlc.api.protocol.completion import Completion
    from aiomlc.api.protocol.embedding import EmbeddingResponse
    from aiomlc.api.protocol.response import Response
    from aiomlc.api.responses import ResponseStream
    from aiomlc.api.step_data import TextData, TokenData
    from aiomlc.api.step_engine import SyncMLCEngine
    from aiomlc.api.sync_engine import MLCEngine
    from aiomlc.api.tokens import TokenStream
    from aiomlc.runtime.conversation import Conversation
    from aiomlc.runtime.conversation_registry import register_conversation_template
    from aiomlc.runtime.core_protocol import CoreStatistics, TokenLogprob
    from aiomlc.runtime.function_form import FunctionForm
    from aiomlc.runtime.loaded_model import LoadProgress
    from aiomlc.runtime.memory_plan import MemoryPlan
    from aiomlc.runtime.pinned_prefix import PinnedPrefix
    from aiomlc.runtime.statistics import Histogram
    from aiomlc.runtime.stream import Delta
    from aiomlc.runtime.text_streamer import TextStreamer

# Pydantic and tokenizers cost most of an import; a program that only catches errors pays nothing.
_LAZY = {
    "AsyncEmbeddingEngine": "aiomlc.api.embedding_engine",
    "AsyncMLCEngine": "aiomlc.api.async_engine",
    "ChatCompletion": "aiomlc.api.protocol.chat",
    "ChatCompletionChunk": "aiomlc.api.protocol.chat",
    "ChatCompletionStream": "aiomlc.api.chat_stream",
    "Completion": "aiomlc.api.protocol.completion",
    "CompletionStream": "aiomlc.api.completion_stream",
    "Conversation": "aiomlc.runtime.conversation",
    "EmbeddingResponse": "aiomlc.api.protocol.embedding",
    "CoreStatistics": "aiomlc.runtime.core_protocol",
    "Delta": "aiomlc.runtime.stream",
    "EngineMetrics": "aiomlc.api.metrics",
    "FunctionForm": "aiomlc.runtime.function_form",
    "Histogram": "aiomlc.runtime.statistics",
    "GenerationConfig": "aiomlc.api.generation_config",
    "JSONFFIEngine": "aiomlc.api.json_ffi",
    "LoadProgress": "aiomlc.runtime.loaded_model",
    "MLCEngine": "aiomlc.api.sync_engine",
    "MemoryPlan": "aiomlc.runtime.memory_plan",
    "ParsedChatCompletion": "aiomlc.api.parsed",
    "Response": "aiomlc.api.protocol.response",
    "ResponseStream": "aiomlc.api.responses",
    "SyncMLCEngine": "aiomlc.api.step_engine",
    "PinnedPrefix": "aiomlc.runtime.pinned_prefix",
    "TextData": "aiomlc.api.step_data",
    "TextStreamer": "aiomlc.runtime.text_streamer",
    "TokenData": "aiomlc.api.step_data",
    "TokenLogprob": "aiomlc.runtime.core_protocol",
    "TokenStream": "aiomlc.api.tokens",
    "plan_memory": "aiomlc.api.planning",
    "prometheus_text": "aiomlc.api.prometheus",
    "register_conversation_template": "aiomlc.runtime.conversation_registry",
}


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    value = getattr(importlib.import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
