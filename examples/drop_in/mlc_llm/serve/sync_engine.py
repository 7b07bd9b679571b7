"""`SyncMLCEngine` with MLC LLM's private members."""

from __future__ import annotations

import json
from typing import Any

import aiomlc
from mlc_llm._not_supported import FunctionTable
from mlc_llm.protocol.generation_config import GenerationConfig
from mlc_llm.protocol.generation_config import frozen as frozen_parameters
from mlc_llm.serve.config import EngineConfig as EngineConfig
from mlc_llm.serve.config import freeze
from mlc_llm.serve.engine_base import EngineMetrics
from mlc_llm.serve.event_trace_recorder import EngineTraceRecorder
from mlc_llm.serve.request import Request as Request


def _create_tvm_module(
    creator: str, ffi_funcs: list[str], creator_args: list[Any] | None = None
) -> dict[str, Any]:
    """Return functions of the table that a global function of the FFI creates."""
    import tvm_ffi

    import mlc_llm.json_ffi  # noqa: F401 - whose functions may be asked for.

    table = tvm_ffi.get_global_func(creator)(*(creator_args or ()))
    return {name: table[name] for name in ffi_funcs}


class SyncMLCEngine(aiomlc.SyncMLCEngine):  # type: ignore[misc]
    """aiomlc's engine that the caller advances step by step."""

    def __init__(self, model: Any = None, device: Any = "auto", **settings: Any) -> None:
        freeze(settings)
        super().__init__(model, device, **settings)
        traces = self.engine_config.enable_tracing
        self.trace_recorder = EngineTraceRecorder(self.trace) if traces else None
        self._ffi = FunctionTable(
            init=lambda *_: None,
            add_request=self.add_request,
            abort_request=self.abort_request,
            step=self.step,
            reset=self.reset,
            json_metrics=lambda: json.dumps(self.metrics().metrics),
            get_request_stream_callback=lambda: self.request_stream_callback,
            set_request_stream_callback=self._set_callback,
            create_request=self._create_request,
        )

    def generate(self, prompts: Any, generation_config: Any = None) -> Any:
        """Complete prompts."""
        return super().generate(prompts, frozen_parameters(generation_config))

    def create_request(self, request_id: str, inputs: Any, generation_config: Any = None) -> Any:
        """Return a request for `add_request`."""
        return super().create_request(request_id, inputs, frozen_parameters(generation_config))

    def metrics(self) -> EngineMetrics:
        """Return the engine's counters."""
        return EngineMetrics(super().metrics().metrics)

    def _set_callback(self, callback: Any) -> None:
        self.request_stream_callback = callback

    def _create_request(self, request_id: str, inputs: Any, config_json: str) -> Any:
        config = GenerationConfig.model_validate_json(config_json)
        return self.create_request(request_id, inputs, config)
