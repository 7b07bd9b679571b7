"""The result of `SyncMLCEngine.generate`, and the outputs of its choices."""

from __future__ import annotations

__all__ = ("ChoiceOutput", "GenerateResult")

from collections.abc import Sequence
from typing import Self, final

from aiomlc.api.protocol.generation_config import GenerationConfig
from aiomlc.api.step.data import SingleRequestStreamOutput
from aiomlc.errors import DeadlineExceededError, LogitsProcessorError, RequestFailedError

_Texts = list[list[str]]
_Logprobs = list[list[list[str]] | None]


@final
class ChoiceOutput:
    """The output of one choice of a prompt so far."""

    def __init__(self, request_id: str, config: GenerationConfig) -> None:
        self.texts: list[str] = []
        self.logprobs: list[str] = []
        self.prompt_logprobs: list[str] = []
        self._request_id = request_id
        self._config = config
        self._last: SingleRequestStreamOutput | None = None
        self._cause: BaseException | None = None

    def add(self, output: SingleRequestStreamOutput, cause: BaseException | None) -> None:
        """Append the output of one step; `cause` is the exception of a logits processor."""
        self.texts.append(output.delta_text)
        self.logprobs += output.delta_logprob_json_strs or ()
        self.prompt_logprobs += output.prompt_logprob_json_strs or ()
        self._last = output
        self._cause = cause

    def is_finished(self) -> bool:
        """Return whether the choice has finished normally.

        Raises:
            LogitsProcessorError: If a logits processor raised an exception.
            DeadlineExceededError: If a time limit has passed.
            RequestFailedError: If the choice failed for another reason.
        """
        if self._last is None or self._last.finish_reason is None:
            return False

        if self._cause is not None:
            raise LogitsProcessorError(self._request_id) from self._cause

        if self._last.finish_reason == "timeout":
            limit = self._last.error or "timeout"
            seconds = getattr(self._config, limit)
            raise DeadlineExceededError(self._request_id, limit=limit, seconds=seconds)

        if self._last.finish_reason == "error":
            raise RequestFailedError(self._last.error or "the request failed")

        return True


@final
class GenerateResult(tuple[_Texts, _Logprobs]):
    """The text and the log-probabilities of each prompt's choices.

    The result is MLC LLM's pair of lists, with `prompt_logprobs` as an additional attribute.
    """

    #: For each prompt, a JSON entry per token but the first; None if not requested.
    prompt_logprobs: list[list[str] | None]

    def __new__(
        cls, outputs: Sequence[Sequence[ChoiceOutput]], configs: Sequence[GenerationConfig]
    ) -> Self:
        """Combine the outputs of each prompt's choices."""
        texts = [["".join(output.texts) for output in row] for row in outputs]
        logprobs = [
            [output.logprobs for output in row] if config.logprobs else None
            for row, config in zip(outputs, configs, strict=True)
        ]
        self = super().__new__(cls, (texts, logprobs))
        self.prompt_logprobs = [
            None if config.prompt_logprobs is None else row[0].prompt_logprobs
            for row, config in zip(outputs, configs, strict=True)
        ]
        return self
