"""What MLC LLM's engines share."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import aiomlc
from aiomlc.api.generation.logprobs import LogprobsWriter
from aiomlc.api.observability.metrics import usage_extra
from aiomlc.api.session.loader import complete_config
from aiomlc.api.session.model_files import ModelFiles
from aiomlc.runtime.loading.model_directory import find_model
from mlc_llm._not_supported import FunctionTable, lacks
from mlc_llm.protocol import generation_config as parameters
from mlc_llm.serve.config import EngineConfig as EngineConfig
from mlc_llm.serve.config import freeze
from mlc_llm.serve.event_trace_recorder import EngineTraceRecorder
from mlc_llm.support.auto_device import detect_device as detect_device
from mlc_llm.tokenizers import TextStreamer as TextStreamer
from mlc_llm.tokenizers import Tokenizer as Tokenizer


class EngineMetrics(aiomlc.EngineMetrics):  # type: ignore[misc]
    """A snapshot of an engine's metrics, also under earlier names."""

    def __init__(self, metrics: Any) -> None:
        super().__init__(metrics)
        for name in ("draft", "accepted"):
            count = self.metrics.get(f"{name}_tokens_sum", 0)
            self.metrics.setdefault(f"sum_num_{name}_tokens", count)


@dataclass
class CallbackStreamOutput:
    """The output of a choice in `_generate`; the last one has the usage and nothing else."""

    delta_text: str
    delta_logprob_json_strs: list[str] | None
    finish_reason: str | None
    request_final_usage_json_str: str | None


@dataclass
class ModelInfo:
    """A model, and its library if one is given."""

    model: str
    model_lib: str | None = None


class EngineState:
    """The recorder of an engine's events, if it traces."""

    def __init__(self, trace_recorder: EngineTraceRecorder | None = None) -> None:
        self.trace_recorder = trace_recorder

    def record_event(self, request_id: str, event: str) -> None:
        """Record an event of a request."""
        if self.trace_recorder is not None:
            self.trace_recorder.add_event(request_id, event)


class MLCEngineBase:
    """Gives an engine the private members that MLC LLM's programs use."""

    def _add_private_members(self) -> None:
        engine: Any = self
        traces = engine.engine_config.enable_tracing
        self.state = EngineState(EngineTraceRecorder(engine.trace) if traces else None)
        self._ffi = FunctionTable(
            abort_request=engine.abort,
            exit_background_loop=engine.terminate,
            get_complete_engine_config=lambda: engine.engine_config.asjson(),
            reload=lambda _: engine.reload(),
            reset=engine.reset,
            unload=engine.unload,
        )


class Outputs:
    """The outputs of a request for `_generate`, from the deltas of a token stream."""

    def __init__(self, tokenizer: Any, num_choices: int) -> None:
        self._write = LogprobsWriter(tokenizer).write_json
        self._num_choices = num_choices
        self._last: dict[int, Any] = {}

    def put(self, delta: Any) -> Iterator[list[CallbackStreamOutput]]:
        """Yield the outputs of all choices for one delta, and the usage after the last."""
        logprobs = self._write(delta.logprobs) if delta.logprobs else None
        row = [CallbackStreamOutput("", None, None, None) for _ in range(self._num_choices)]
        row[delta.choice] = CallbackStreamOutput(delta.text, logprobs, delta.finish_reason, None)
        yield row
        if delta.finish_reason is not None:
            self._last[delta.choice] = delta
            if len(self._last) == self._num_choices:
                usage = json.dumps(self._usage())
                yield [CallbackStreamOutput("", None, None, usage) for _ in row]

    def _usage(self) -> Mapping[str, Any]:
        first = self._last[0]
        completion_tokens = sum(delta.completion_tokens for delta in self._last.values())
        timings = [delta.timing for delta in self._last.values() if delta.timing is not None]
        return {
            "prompt_tokens": first.prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": first.prompt_tokens + completion_tokens,
            "extra": usage_extra(
                first.prompt_tokens, completion_tokens, first.cached_tokens, timings
            ),
        }


def token_options(config: Any, request_id: str) -> dict[str, Any]:
    """Return the options of `generate` for a `GenerationConfig`."""
    checked = parameters.frozen(config)
    names = aiomlc.sampling_params.SamplingKwargs.__annotations__
    options = {name: getattr(checked, name) for name in names}
    return {
        **options,
        "ignore_eos": not checked.uses_model_stops,
        "logit_bias": checked.logit_bias,
        "logits_processors": checked.logits_processors,
        "logprobs": checked.num_logprobs,
        "max_tokens": checked.max_new_tokens,
        "n": checked.n,
        "request_id": request_id,
        "response_format": checked.response_format,
        "stop": list(checked.stop),
        "stop_token_ids": list(checked.stop_token_ids or ()),
        "debug_config": _debug_fields(checked.debug_config),
    }


def _debug_fields(config: Any) -> Any:
    return config.model_dump() if hasattr(config, "model_dump") else config


def _check_engine_config(
    model: str, model_lib: str | None, mode: Any, engine_config: EngineConfig
) -> None:
    settings = {"engine_config": engine_config, "mode": mode}
    freeze(settings)
    complete_config(settings["engine_config"], model=model, model_lib=model_lib, mode=mode)


def _parse_models(
    model: str, model_lib: str | None, additional_models: list[str | tuple[str, str]]
) -> list[ModelInfo]:
    config = EngineConfig(speculative_mode="small_draft", additional_models=additional_models)
    draft = config.frozen().draft_model
    return [ModelInfo(model, model_lib), *([] if draft is None else [ModelInfo(*draft)])]


def _process_model_args(
    models: list[ModelInfo], device: Any, engine_config: EngineConfig
) -> tuple[list[tuple[str, str]], list[str], aiomlc.Conversation | None]:
    """Return the directories and libraries, the configuration files, and the template."""
    detect_device(device)
    directories = [find_model(info.model).path for info in models]
    template = ModelFiles(aiomlc.EngineConfig(model=str(directories[0]))).chat_template
    return (
        [(str(path), info.model_lib or "") for path, info in zip(directories, models, strict=True)],
        [str(path / "mlc-chat-config.json") for path in directories],
        template if isinstance(template, aiomlc.Conversation) else None,
    )


def _query_engine_metrics(engine: Any) -> EngineMetrics:
    return EngineMetrics(engine.metrics().metrics)


__getattr__ = lacks(
    __name__,
    "it is part of how MLC LLM's engines work inside",
    [
        "AsyncRequestStream",
        "convert_function_str_to_json",
        "create_completion_suffix_response",
        "get_logprobs_from_delta",
        "process_chat_completion_request",
        "process_chat_completion_stream_output",
        "process_completion_request",
        "process_completion_stream_output",
        "process_function_call_output",
        "wrap_chat_completion_response",
        "wrap_completion_response",
    ],
)
