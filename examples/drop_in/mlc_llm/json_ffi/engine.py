"""`JSONFFIEngine` with MLC LLM's private members."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

import aiomlc
from aiomlc.api.json_ffi import functions as functions  # Registers them with TVM.
from aiomlc.api.json_ffi.engine import JSONFFIChat as Chat
from aiomlc.api.json_ffi.engine import JSONFFICompletions as Completions
from mlc_llm._not_supported import FunctionTable
from mlc_llm.serve.config import EngineConfig as EngineConfig
from mlc_llm.serve.config import freeze, thawed
from mlc_llm.serve.engine_base import EngineMetrics as EngineMetrics

__all__ = (
    "BackgroundLoops",
    "Chat",
    "Completions",
    "EngineConfig",
    "EngineMetrics",
    "EngineState",
    "JSONFFIEngine",
)


class EngineState:
    """The queue of the chunks of requests that were made by `_ffi["chat_completion"]`."""

    def __init__(self) -> None:
        self.sync_queue: queue.Queue[str] = queue.Queue()

    def get_request_stream_callback(self) -> Callable[[str], None]:
        """Return a function that puts a JSON list of chunks into the queue."""
        return self.sync_queue.put


class BackgroundLoops:
    """The threads of an engine, which belong to the engine."""

    def __init__(self, ffi: FunctionTable) -> None:
        self._ffi = ffi

    def terminate(self) -> None:
        """End the engine."""
        self._ffi["exit_background_loop"]()


class JSONFFIEngine(aiomlc.JSONFFIEngine):  # type: ignore[misc]
    """aiomlc's engine whose requests and chunks are JSON."""

    def __init__(self, model: Any = None, device: Any = "auto", **settings: Any) -> None:
        freeze(settings)
        super().__init__(model, device, **settings)
        self._state = EngineState()
        self._last_error = ""
        self._ffi = FunctionTable(
            abort=self.abort,
            chat_completion=self._submit,
            exit_background_loop=self.terminate,
            get_last_error=lambda: self._last_error,
            reload=lambda _: self._test_reload(),
            reset=self._test_reset,
            unload=self._test_unload,
        )
        self._background_loops = BackgroundLoops(self._ffi)

    @property
    def engine_config(self) -> Any:
        """The configuration, with the sizes from the memory plan."""
        return thawed(super().engine_config)

    def metrics(self) -> EngineMetrics:
        """Return the engine's counters."""
        return EngineMetrics(super().metrics().metrics)

    def _submit(self, request_json: str, request_id: str) -> bool:
        """Put the chunks of a request, or of its error, into the queue."""
        put = self._state.get_request_stream_callback()
        stream = self.chat_completion(request_json, request_id)
        first = next(stream)
        put(first)
        threading.Thread(target=lambda: [put(text) for text in stream], daemon=True).start()
        if '"finish_reason":"error"' in first:
            self._last_error = first
            return False

        return True
