"""The live requests of `SyncMLCEngine`, and the outputs of its steps."""

from __future__ import annotations

__all__ = ("LiveRequests", "OutputListener")

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, final

from aiomlc.api.generation.logprobs import LogprobsWriter
from aiomlc.api.step.data import RequestStreamOutput, SingleRequestStreamOutput
from aiomlc.runtime.engine.core_protocol import Core, Record
from aiomlc.runtime.engine.logits_processors import LogitsProcessors
from aiomlc.runtime.engine.prompt import Prompt
from aiomlc.runtime.engine.submission import submit_choices
from aiomlc.runtime.tokenization.tokenizer import Tokenizer
from aiomlc.sampling_params import SequenceOptions

#: Receives each output of a choice; if a logits processor ended the choice, also its exception.
OutputListener = Callable[[SingleRequestStreamOutput, BaseException | None], None]

_NO_OUTPUT = SingleRequestStreamOutput([], "", None, None)


class _LiveChoice(NamedTuple):
    """One choice of a request, which is one sequence of the core."""

    request_id: str
    choice: int
    num_choices: int
    listener: OutputListener | None
    processors: LogitsProcessors | None
    stop_token_ids: frozenset[int]


@final
class LiveRequests:
    """The requests whose sequences are in the core.

    A request has one listener per choice, which receives the outputs, or no listeners. The outputs
    of a request without listeners go to the callback of the engine; it can be cancelled by its id.
    """

    def __init__(self, core: Core, tokenizer: Tokenizer) -> None:
        self._core = core
        self._logprobs = LogprobsWriter(tokenizer)
        self._choices: dict[int, _LiveChoice] = {}  # By sequence id.
        # The sequences without text so far, whose text is to start without a space.
        self._unstripped: set[int] = set()
        # The next two contain requests without listeners, by request id.
        self._sequence_ids: dict[str, tuple[int, ...]] = {}  # One per choice.
        self._last_records: dict[str, list[Record]] = {}  # Of finished choices.

    def __len__(self) -> int:
        return len(self._choices)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._sequence_ids

    @property
    def needs_callback(self) -> bool:
        """Whether any request has no listeners."""
        return bool(self._sequence_ids)

    def submit(
        self,
        request_id: str,
        prompt: Prompt,
        options: SequenceOptions,
        num_choices: int,
        listeners: Sequence[OutputListener] | None = None,
    ) -> tuple[int, ...]:
        """Submit a request and return the sequence ids of its choices.

        Raises:
            RequestError: If the request is rejected.
            EngineError: If the core is closed, dead or overloaded.
        """
        processors = options.logits_processors
        assert processors is None or isinstance(processors, LogitsProcessors), (
            "as `sequence_options` creates them"
        )
        stop_token_ids = frozenset(options.stop_token_ids)
        sequence_ids = submit_choices(self._core, prompt, options, num_choices)
        for choice, sequence_id in enumerate(sequence_ids):
            listener = None if listeners is None else listeners[choice]
            self._choices[sequence_id] = _LiveChoice(
                request_id, choice, num_choices, listener, processors, stop_token_ids
            )
            if options.strips_leading_space:
                self._unstripped.add(sequence_id)

        if listeners is None:
            self._sequence_ids[request_id] = sequence_ids

        return sequence_ids

    def cancel(self, request_id: str) -> None:
        """Cancel a request, whose last records follow; no effect on an unknown id."""
        for sequence_id in self._sequence_ids.get(request_id, ()):
            self._core.cancel(sequence_id)

    def cancel_all(self) -> None:
        """Cancel every request; their last records follow."""
        for sequence_id in self._choices:
            self._core.cancel(sequence_id)

    def discard(self, sequence_ids: Iterable[int]) -> None:
        """Cancel sequences and ignore their records; no effect on finished ones."""
        for sequence_id in sequence_ids:
            if sequence_id in self._choices:
                self._core.cancel(sequence_id)
                self._remove(sequence_id)

    def clear(self) -> None:
        """Remove every request without cancelling it."""
        self._choices.clear()
        self._unstripped.clear()
        self._sequence_ids.clear()
        self._last_records.clear()

    def deliver(self, records: Iterable[Record]) -> list[RequestStreamOutput]:
        """Pass the outputs of a step to their listeners, and return those for the callback."""
        outputs: dict[str, list[SingleRequestStreamOutput]] = {}
        usages: dict[str, SingleRequestStreamOutput] = {}
        for record in records:
            live = self._choices.get(record.sequence_id)
            if live is None:
                continue

            if record.text and record.sequence_id in self._unstripped:
                self._unstripped.discard(record.sequence_id)
                record = record._replace(text=record.text.removeprefix(" "))

            if record.finish_reason is not None:
                self._remove(record.sequence_id)

            output, cause = self._output(record, live)
            if live.listener is not None:
                live.listener(output, cause)
                continue

            request_id = live.request_id
            row = outputs.setdefault(request_id, [_NO_OUTPUT] * live.num_choices)
            row[live.choice] = output
            if record.finish_reason is not None:
                self._last_records.setdefault(request_id, []).append(record)
                if request_id not in self._sequence_ids:
                    last_records = self._last_records.pop(request_id)
                    usages[request_id] = SingleRequestStreamOutput.from_usage(last_records)

        return list(_with_usages(outputs, usages))

    def _output(
        self, record: Record, live: _LiveChoice
    ) -> tuple[SingleRequestStreamOutput, BaseException | None]:
        """Return the output of a record, and the exception of a logits processor that ended it."""
        cause = None
        if record.finish_reason == "error" and live.processors is not None:
            cause = live.processors.take_failure()

        if cause is not None:
            record = record._replace(error=f"a logits processor failed: {cause!r}")

        if record.finish_reason == "stop" and live.stop_token_ids.intersection(
            record.token_ids[-1:]
        ):
            record = _without_last_token(record)

        write = self._logprobs.write_json
        return (
            SingleRequestStreamOutput.from_record(
                record,
                write(record.logprobs) if record.logprobs else None,
                write(record.prompt_logprobs) if record.prompt_logprobs else None,
            ),
            cause,
        )

    def _remove(self, sequence_id: int) -> None:
        live = self._choices.pop(sequence_id)
        self._unstripped.discard(sequence_id)
        siblings = self._sequence_ids.get(live.request_id, ())
        if live.listener is None and not self._choices.keys() & siblings:
            del self._sequence_ids[live.request_id]


def _without_last_token(record: Record) -> Record:
    """Return a record without the stop token, which MLC LLM does not report."""
    return record._replace(token_ids=record.token_ids[:-1], logprobs=record.logprobs[:-1])


def _with_usages(
    outputs: Mapping[str, list[SingleRequestStreamOutput]],
    usages: Mapping[str, SingleRequestStreamOutput],
) -> Iterator[RequestStreamOutput]:
    """Yield the outputs of each request, followed by its usage if it has finished."""
    for request_id, row in outputs.items():
        yield RequestStreamOutput(request_id, row)
        if request_id in usages:
            yield RequestStreamOutput(request_id, [usages[request_id]])
