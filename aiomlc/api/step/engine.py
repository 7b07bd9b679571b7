"""`SyncMLCEngine`, an engine that the caller advances step by step."""

from __future__ import annotations

__all__ = ("StreamCallback", "SyncMLCEngine")

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Self, Unpack, final

from anyio.from_thread import start_blocking_portal

from aiomlc.api.generation.sampling import sequence_options
from aiomlc.api.generation.structured_output import response_grammar
from aiomlc.api.observability.metrics import EngineMetrics
from aiomlc.api.observability.tracing import check_tracing
from aiomlc.api.protocol.generation_config import GenerationConfig
from aiomlc.api.session.legacy_options import LegacyOptions, apply_legacy_options
from aiomlc.api.session.loader import Loader, ModelPath, complete_config, model_configs, open_model
from aiomlc.api.session.model_files import ENCODER_MESSAGE
from aiomlc.api.step.data import (
    Data,
    PromptInput,
    Request,
    RequestStreamOutput,
    configs_per_prompt,
    parse_inputs,
    parse_prompts,
)
from aiomlc.api.step.inputs import InputEncoder
from aiomlc.api.step.live_requests import LiveRequests, OutputListener
from aiomlc.api.step.results import ChoiceOutput, GenerateResult
from aiomlc.config import EngineConfig, Mode
from aiomlc.devices import Device, parse_device
from aiomlc.errors import (
    BadRequestError,
    DuplicateRequestError,
    EngineClosedError,
    EngineDeadError,
    EngineError,
)
from aiomlc.runtime.concurrency.misuse import Uncopyable, explains
from aiomlc.runtime.engine.core_protocol import CoreStatistics
from aiomlc.runtime.engine.step_log import StepLog
from aiomlc.runtime.engine.trace import chrome_trace
from aiomlc.runtime.loading.loaded_model import LoadedEncoder
from aiomlc.runtime.loading.memory_plan import MemoryPlan
from aiomlc.runtime.loading.progress import LoadProgress
from aiomlc.runtime.templates.conversation import Conversation
from aiomlc.runtime.tokenization.tokenizer import Tokenizer
from aiomlc.validation.arguments import check_callable, check_type

StreamCallback = Callable[[list[RequestStreamOutput]], object]


@explains(close="write `terminate()`, or use `with`")
@final
class SyncMLCEngine(Uncopyable):
    """An engine that serves one model step by step, in the calling thread.

    Every `step` runs the model once for all requests, and passes their outputs and the usage of
    finished requests to `request_stream_callback`. Use the engine from one thread only. The
    chat template is not applied.

    Args:
        model: A directory, or a repository of the hub: `user/name`; None is the bundled model.
        device: The device to run on: `auto`, `cpu`, `cuda` or `opencl`.
        model_lib: A library that `compile_model` has written for this model and these settings, or
            `mock://echo`. A library of MLC LLM is ignored with a warning: the engine compiles.
        mode: The preset of default sizes: `local`, `interactive` or `server`.
        engine_config: Further settings. A field must not contradict an argument.
        enable_tracing: Whether to record events for `trace`.
        request_stream_callback: Called in `step` with the outputs of requests.
        on_progress: Called with the progress while the model is loaded.
        loader: Opens the model, in place of the default loader.
        legacy_options: Keyword arguments of earlier MLC LLM releases, now in `engine_config`.

    Raises:
        BadRequestError: If an argument is invalid or not supported, or the model is an encoder.
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
        request_stream_callback: StreamCallback | None = None,
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
        for name, function in (
            ("request_stream_callback", request_stream_callback),
            ("on_progress", on_progress),
            ("loader", loader),
        ):
            check_callable(name, function)

        self.request_stream_callback = request_stream_callback
        load = partial(
            loader or open_model,
            config.model,
            device=parse_device(device),
            mode=mode,
            engine_config=config,
            on_progress=on_progress,
        )
        with start_blocking_portal(name="aiomlc loading") as portal:
            loaded = portal.call(load)

        if isinstance(loaded, LoadedEncoder):
            loaded.model.batcher.close()
            raise BadRequestError(ENCODER_MESSAGE, param="model")

        self._model = loaded
        plan = loaded.memory_plan
        #: The configuration, with the sizes from the memory plan.
        self.engine_config: EngineConfig = config if plan is None else plan.complete(config)
        self.tokenizer: Tokenizer = self._model.tokenizer
        self._inputs = InputEncoder(self._model, splits=self.engine_config.split_special_tokens)
        #: The maximum number of tokens of a sequence: prompt and completion.
        self.max_input_sequence_length: int = self._model.context_window
        template = self._model.chat_template
        self.conv_template: Conversation | None = (
            template if isinstance(template, Conversation) else None
        )
        self._core = self._model.core
        self._is_stepping = False
        if self.engine_config.enable_tracing:
            self._core.enable_trace()

        self._step_log = StepLog(self._core)
        self._step_log.write()
        self._requests = LiveRequests(self._core, self.tokenizer)
        self._closed = False

    @property
    def model_config_dicts(self) -> list[dict[str, Any]]:
        """The parsed configuration files of the model, then its draft model's."""
        return model_configs(self.engine_config)

    def __repr__(self) -> str:
        return f"<SyncMLCEngine {self.engine_config.model or 'bundled model'}>"

    @property
    def memory_plan(self) -> MemoryPlan | None:
        """The memory plan of the model; None for `mock://echo`."""
        return self._model.memory_plan

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.terminate()

    def generate(
        self,
        prompts: str | Sequence[int] | Sequence[PromptInput],
        generation_config: GenerationConfig | Sequence[GenerationConfig] | None = None,
    ) -> GenerateResult:
        """Complete prompts. Requests added earlier keep running.

        If one of the prompts fails, the others are cancelled.

        Args:
            prompts: One prompt or several: strings, token ids, or lists of `TextData`, `TokenData`
                and `ImageData`.
            generation_config: The parameters of all prompts, or one config per prompt.

        Returns:
            A pair of lists with one element per prompt: the strings of its choices, and, if
            requested, the log-probabilities of its choices with a JSON entry per token, else None.
            The attribute `prompt_logprobs` of the pair has the log-probabilities of the prompts.

        Raises:
            RequestError: If a prompt is rejected.
            LogitsProcessorError: If a logits processor raised an exception.
            DeadlineExceededError: If a time limit has passed.
            RequestFailedError: If a request failed for another reason.
        """
        inputs = parse_prompts(prompts)
        configs = configs_per_prompt(generation_config, len(inputs))
        if self._requests.needs_callback:
            self._check_callback()

        outputs = [
            [ChoiceOutput(str(index), config) for _ in range(config.n)]
            for index, config in enumerate(configs)
        ]
        sequence_ids: list[int] = []
        try:
            for index, (data, config) in enumerate(zip(inputs, configs, strict=True)):
                request = Request(str(index), data, config)
                sequence_ids += self._submit(request, [output.add for output in outputs[index]])

            # A list, so that the failure of any choice is raised at once.
            while [output for row in outputs for output in row if not output.is_finished()]:
                self._advance()
        finally:
            self._requests.discard(sequence_ids)

        return GenerateResult(outputs, configs)

    def create_request(
        self,
        request_id: str,
        inputs: Data | Sequence[Data],
        generation_config: GenerationConfig | None = None,
    ) -> Request:
        """Return a request for `add_request`.

        Raises:
            BadRequestError: If there are no inputs, or an argument is invalid; `param` names it.
        """
        config = GenerationConfig() if generation_config is None else generation_config
        request = Request(request_id, parse_inputs(inputs), config)
        request.check()
        return request

    def add_request(self, request: Request) -> None:
        """Queue a request, which the next step starts.

        Raises:
            DuplicateRequestError: If its id belongs to a request that is still running.
            RequestError: If the request is rejected.
        """
        check_type("request", request, Request, "a Request")
        request.check()
        if request.request_id in self._requests:
            raise DuplicateRequestError(request.request_id)

        self._submit(request)

    def abort_request(self, request_id: str) -> None:
        """End a request at the next step, with the finish reason "abort".

        An unknown id is ignored.

        Raises:
            BadRequestError: If `request_id` is not a string.
        """
        check_type("request_id", request_id, str, "a string")
        self._requests.cancel(request_id)

    def step(self) -> bool:
        """Run the model once for every request; return False if there are no requests.

        Raises:
            EngineError: If no callback is set, or if called in a logits processor.
            EngineDeadError: If the model failed, now or before.
        """
        self._check_not_stepping()
        self._check_open()
        self._check_callback()
        if not self._requests:
            return False

        self._advance()
        return True

    def reset(self) -> None:
        """End every request with the finish reason "abort", and reset the cache and the counters.

        Raises:
            EngineClosedError: If the engine was terminated.
            EngineDeadError: If the model failed, now or before.
            EngineError: If called in a logits processor.
        """
        self._check_not_stepping()
        self._check_open()
        self._requests.cancel_all()
        while self._requests:
            self._advance()

        self._core.reset()
        self._step_core()

    def metrics(self) -> EngineMetrics:
        """Return the engine's counters, with MLC LLM's names."""
        return EngineMetrics(self.statistics())

    def statistics(self) -> CoreStatistics:
        """Return a snapshot of the engine's counters."""
        return self._core.statistics()

    def trace(self) -> dict[str, Any]:
        """Return the recorded events as a JSON object in the Trace Event Format.

        Raises:
            EngineError: If the engine was opened without `enable_tracing`.
        """
        check_tracing(self.engine_config)
        return chrome_trace(self._core.read_trace(0)[1])

    def terminate(self) -> None:
        """End every request and free the model. Idempotent.

        Raises:
            EngineError: If called in a logits processor.
        """
        self._check_not_stepping()
        if not self._closed:
            self._closed = True
            self._requests.clear()
            self._core.close()
            self._core.release()

    def _submit(
        self, request: Request, listeners: Sequence[OutputListener] | None = None
    ) -> tuple[int, ...]:
        self._check_open()
        prompt = self._inputs.encode(request.inputs)
        config = request.generation_config
        options = replace(sequence_options(config, self._model), grammar=self._grammar(config))
        return self._requests.submit(request.request_id, prompt, options, config.n, listeners)

    def _grammar(self, config: GenerationConfig) -> object:
        grammar = response_grammar(config.format, self._model)
        if grammar is None or self._model.is_echo:
            return None

        if self._model.grammars is None:
            raise BadRequestError(
                "response_format: this model does not support structured output",
                param="response_format",
            )

        return self._model.grammars.compile_blocking(grammar, config.n)

    def _advance(self) -> None:
        has_stepped = self._step_core()
        records = self._core.drain()
        self._step_log.write()
        if not has_stepped and not records:
            raise EngineError("the core did not step, although there are requests")

        outputs = self._requests.deliver(records)
        if outputs and self.request_stream_callback is not None:
            self.request_stream_callback(outputs)

    def _step_core(self) -> bool:
        self._check_not_stepping()
        self._is_stepping = True
        try:
            return self._core.step()
        finally:
            self._is_stepping = False

    def _check_not_stepping(self) -> None:
        if self._is_stepping:
            raise EngineError(
                "the engine is in a step: a logits processor cannot wait for its engine, and "
                "another thread has to wait for the step"
            )

    def _check_open(self) -> None:
        if self._closed:
            raise EngineClosedError

        if reason := self._core.failure():
            raise EngineDeadError(reason)

    def _check_callback(self) -> None:
        if self.request_stream_callback is None:
            raise EngineError("The request stream callback is not set. Engine cannot execute.")

        check_callable("request_stream_callback", self.request_stream_callback)
