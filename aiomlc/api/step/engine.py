"""`SyncMLCEngine`: an engine that moves only when it is told to, one step at a time."""

from __future__ import annotations

__all__ = ("StreamCallback", "SyncMLCEngine")

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, NamedTuple, Self, Unpack, final

from anyio.from_thread import start_blocking_portal

from aiomlc.api.generation.logprobs import LogprobsWriter
from aiomlc.api.generation.sampling import sequence_options
from aiomlc.api.generation.structured_output import response_grammar
from aiomlc.api.observability.metrics import EngineMetrics
from aiomlc.api.observability.tracing import check_tracing
from aiomlc.api.protocol.generation_config import GenerationConfig
from aiomlc.api.session.legacy_options import LegacyOptions, apply_legacy_options
from aiomlc.api.session.loader import Loader, Model, complete_config, model_configs, open_model
from aiomlc.api.step.answers import Answer, Answers
from aiomlc.api.step.data import (
    Data,
    Prompt,
    Request,
    RequestStreamOutput,
    SingleRequestStreamOutput,
    TextData,
    one_config_each,
    read_inputs,
    read_prompts,
)
from aiomlc.config import EngineConfig, Mode
from aiomlc.devices import Device, parse_device
from aiomlc.errors import (
    AiomlcError,
    BadRequestError,
    DuplicateRequestError,
    EngineClosedError,
    EngineDeadError,
    EngineError,
)
from aiomlc.runtime.engine.core_protocol import CoreStatistics, Record
from aiomlc.runtime.engine.logits_processors import LogitsProcessors
from aiomlc.runtime.engine.step_log import StepLog
from aiomlc.runtime.engine.trace import chrome_trace
from aiomlc.runtime.loading.loaded_model import LoadedEncoder, LoadProgress
from aiomlc.runtime.loading.memory_plan import MemoryPlan
from aiomlc.runtime.templates.conversation import Conversation
from aiomlc.runtime.tokenization.tokenizer import Tokenizer
from aiomlc.validation.arguments import check_callable, check_token_ids, check_type

StreamCallback = Callable[[list[RequestStreamOutput]], object]
# Of one choice: its gain, and what a logits processor raised.
_Tell = Callable[[SingleRequestStreamOutput, BaseException | None], None]

_NO_GAIN = SingleRequestStreamOutput([], "", None, None)


class _Live(NamedTuple):
    """A choice in the core, and who is told of it; None is the engine's callback."""

    request_id: str
    choice: int
    num_choices: int
    tell: _Tell | None
    processors: LogitsProcessors | None


@final
class SyncMLCEngine:
    """Serve one model step by step, in the thread that calls it and in no other.

    Every `step` runs the model once for all requests and tells `request_stream_callback` what
    each of them gained, and what a request took when it has ended. It belongs to one thread. Texts
    are taken as they are: there is no chat template here.

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
        request_stream_callback: StreamCallback | None = None,
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
            loaded.embedder.close()
            raise BadRequestError("the model is an encoder, which has no steps", param="model")

        self._model = loaded
        plan = loaded.memory_plan
        #: With the sizes of the memory plan in it.
        self.engine_config: EngineConfig = config if plan is None else plan.complete(config)
        self.tokenizer: Tokenizer = self._model.tokenizer
        #: Tokens of one sequence, prompt and completion.
        self.max_input_sequence_length: int = self._model.context_window
        template = self._model.chat_template
        self.conv_template: Conversation | None = (
            template if isinstance(template, Conversation) else None
        )
        self._core = self._model.core
        if self.engine_config.enable_tracing:
            self._core.enable_trace()

        self._step_log = StepLog(self._core)
        self._step_log.write()
        self._live: dict[int, _Live] = {}
        self._sequence_ids: dict[str, tuple[int, ...]] = {}  # One for each choice.
        self._ends: dict[str, list[Record]] = {}  # Last records of requests with live choices.
        self._logprobs = LogprobsWriter(self.tokenizer)
        self._closed = False

    @property
    def model_config_dicts(self) -> list[dict[str, Any]]:
        """The configuration files of the model, and of the one that guesses for it."""
        return model_configs(self.engine_config)

    def __repr__(self) -> str:
        return f"<SyncMLCEngine {self.engine_config.model or 'bundled model'}>"

    @property
    def memory_plan(self) -> MemoryPlan | None:
        """What the model takes; None for one without files."""
        return self._model.memory_plan

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.terminate()

    def generate(
        self,
        prompts: str | Sequence[int] | Sequence[Prompt],
        generation_config: GenerationConfig | Sequence[GenerationConfig] | None = None,
    ) -> Answers:
        """Complete prompts; requests that were added before go on beside them.

        Returns:
            For each prompt the texts of its choices, and for each that asks for them their
            log-probabilities, one JSON text for each token. The attribute `prompt_logprobs` of
            this pair has those of the prompts.

        Raises:
            RequestError: one of the prompts is refused; none of the others goes on.
            LogitsProcessorError: a logits processor of one of them raised an exception.
            DeadlineExceededError: a time limit of one of them passed.
            RequestFailedError: one of them failed.
        """
        inputs = read_prompts(prompts)
        configs = one_config_each(generation_config, len(inputs))
        if self._sequence_ids:
            self._check_callback()

        answers = [
            [Answer(str(index), config) for _ in range(config.n)]
            for index, config in enumerate(configs)
        ]
        sequence_ids: list[int] = []
        try:
            for index, (data, config) in enumerate(zip(inputs, configs, strict=True)):
                request = Request(str(index), data, config)
                sequence_ids += self._submit(request, [answer.add for answer in answers[index]])

            while [answer for row in answers for answer in row if not answer.is_finished()]:
                self._advance()
        finally:
            for sequence_id in sequence_ids:
                self._forget(sequence_id)

        return Answers(answers, configs)

    def create_request(
        self,
        request_id: str,
        inputs: Data | Sequence[Data],
        generation_config: GenerationConfig | None = None,
    ) -> Request:
        """A request for `add_request`.

        Raises:
            BadRequestError: there are no inputs, or an argument is of another type.
        """
        config = GenerationConfig() if generation_config is None else generation_config
        request = Request(request_id, read_inputs(inputs), config)
        request.check()
        return request

    def add_request(self, request: Request) -> None:
        """Queue a request; the next step begins it.

        Raises:
            DuplicateRequestError: its id belongs to a request that is still running.
            RequestError: it can never be served.
        """
        check_type("request", request, Request, "a Request")
        request.check()
        if request.request_id in self._sequence_ids:
            raise DuplicateRequestError(request.request_id)

        self._sequence_ids[request.request_id] = self._submit(request, None)

    def abort_request(self, request_id: str) -> None:
        """End a request at the next step, with the reason `abort`. An unknown id does nothing."""
        check_type("request_id", request_id, str, "a text")
        for sequence_id in self._sequence_ids.get(request_id, ()):
            self._core.cancel(sequence_id)

    def step(self) -> bool:
        """Run the model once for every request; false when there was nothing to do.

        Raises:
            EngineError: there is no callback to tell.
            EngineDeadError: the model failed, now or before.
        """
        self._check_open()
        self._check_callback()
        return bool(self._live) and self._advance()

    def reset(self) -> None:
        """End every request, with the reason `abort`, and forget all that was counted and kept."""
        self._check_open()
        for sequence_id in self._live:
            self._core.cancel(sequence_id)

        while self._live:
            self._advance()

        self._core.reset()
        self._core.step()

    def metrics(self) -> EngineMetrics:
        """The engine's counters under upstream's names."""
        return EngineMetrics(self.statistics())

    def statistics(self) -> CoreStatistics:
        """A snapshot of the engine's counters."""
        return self._core.statistics()

    def trace(self) -> dict[str, Any]:
        """What the engine did and when, as of `AsyncMLCEngine.trace`."""
        check_tracing(self.engine_config)
        return chrome_trace(self._core.read_trace(0)[1])

    def terminate(self) -> None:
        """End every request and free the model. A second call does nothing."""
        if not self._closed:
            self._closed = True
            self._live.clear()
            self._sequence_ids.clear()
            self._ends.clear()
            self._core.close()
            self._core.release()

    def _submit(
        self,
        request: Request,
        told: Sequence[_Tell] | None,
    ) -> tuple[int, ...]:
        self._check_open()
        prompt_ids: list[int] = []
        for data in request.inputs:
            if isinstance(data, TextData):
                prompt_ids += self.tokenizer.encode(data.text)
            else:
                check_token_ids("prompt", data.token_ids, self._model.vocab_size)
                prompt_ids += data.token_ids

        config = request.generation_config
        options = replace(sequence_options(config, self._model), grammar=self._grammar(config))
        processors = options.logits_processors
        assert processors is None or isinstance(processors, LogitsProcessors), "made there"
        sequence_ids: list[int] = []
        try:
            for choice in range(config.n):
                sequence_id = self._core.submit(prompt_ids, options.of_choice(choice))
                sequence_ids.append(sequence_id)
                tell = None if told is None else told[choice]
                self._live[sequence_id] = _Live(
                    request.request_id, choice, config.n, tell, processors
                )
        except AiomlcError:
            for sequence_id in sequence_ids:
                del self._live[sequence_id]
                self._core.cancel(sequence_id)
            raise

        return tuple(sequence_ids)

    def _grammar(self, config: GenerationConfig) -> object:
        wanted = config.format
        grammar = None if wanted is None else response_grammar(wanted, self._model)
        if grammar is None:
            return None

        if self._model.grammars is None:
            raise BadRequestError(
                "response_format: this model's answers cannot be constrained",
                param="response_format",
            )

        return self._model.grammars.compile_blocking(grammar)

    def _advance(self) -> bool:
        has_stepped = self._core.step()
        records = self._core.drain()
        self._step_log.write()
        if not has_stepped and not records:
            raise EngineError("the core has requests and nothing to do")

        gains: dict[str, list[SingleRequestStreamOutput]] = {}
        usages: dict[str, SingleRequestStreamOutput] = {}
        for record in records:
            live = self._live.get(record.sequence_id)
            if live is None:
                continue

            if record.finish_reason is not None:
                self._drop(record.sequence_id)

            output, cause = self._output(record, live)
            if live.tell is not None:
                live.tell(output, cause)
                continue

            row = gains.setdefault(live.request_id, [_NO_GAIN] * live.num_choices)
            row[live.choice] = output
            if record.finish_reason is not None:
                self._ends.setdefault(live.request_id, []).append(record)
                if live.request_id not in self._sequence_ids:
                    ends = self._ends.pop(live.request_id)
                    usages[live.request_id] = SingleRequestStreamOutput.of_usage(ends)

        self._tell(gains, usages)
        return True

    def _output(
        self, record: Record, live: _Live
    ) -> tuple[SingleRequestStreamOutput, BaseException | None]:
        """What a record says, and what a logits processor raised if that is its end."""
        cause = None
        if record.finish_reason == "error" and live.processors is not None:
            cause = live.processors.take_failure()

        if cause is not None:
            record = record._replace(error=f"a logits processor failed: {cause!r}")

        write = self._logprobs.write_json
        return (
            SingleRequestStreamOutput.of(
                record,
                write(record.logprobs) if record.logprobs else None,
                write(record.prompt_logprobs) if record.prompt_logprobs else None,
            ),
            cause,
        )

    def _tell(
        self,
        gains: Mapping[str, list[SingleRequestStreamOutput]],
        usages: Mapping[str, SingleRequestStreamOutput],
    ) -> None:
        if not gains or self.request_stream_callback is None:
            return

        outputs: list[RequestStreamOutput] = []
        for request_id, row in gains.items():
            outputs.append(RequestStreamOutput(request_id, row))
            if request_id in usages:
                outputs.append(RequestStreamOutput(request_id, [usages[request_id]]))

        self.request_stream_callback(outputs)

    def _forget(self, sequence_id: int) -> None:
        if sequence_id in self._live:
            self._core.cancel(sequence_id)
            self._drop(sequence_id)

    def _drop(self, sequence_id: int) -> None:
        live = self._live.pop(sequence_id)
        siblings = self._sequence_ids.get(live.request_id, ())
        if live.tell is None and not self._live.keys() & siblings:
            del self._sequence_ids[live.request_id]

    def _check_open(self) -> None:
        if self._closed:
            raise EngineClosedError("the engine was terminated")

        if reason := self._core.failure():
            raise EngineDeadError(reason)

    def _check_callback(self) -> None:
        if self.request_stream_callback is None:
            raise EngineError("The request stream callback is not set. Engine cannot execute.")

        check_callable("request_stream_callback", self.request_stream_callback)
