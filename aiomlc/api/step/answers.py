"""What `SyncMLCEngine.generate` gathers, and what it gives."""

from __future__ import annotations

__all__ = ("Answer", "Answers")

from collections.abc import Sequence
from typing import Self, final

from aiomlc.api.protocol.generation_config import GenerationConfig
from aiomlc.api.step.data import SingleRequestStreamOutput
from aiomlc.errors import DeadlineExceededError, LogitsProcessorError, RequestFailedError

_Texts = list[list[str]]
_Logprobs = list[list[list[str]] | None]


@final
class Answer:
    """What one choice of a prompt has got so far."""

    def __init__(self, request_id: str, config: GenerationConfig) -> None:
        self.texts: list[str] = []
        self.logprobs: list[str] = []
        self.prompt_logprobs: list[str] = []
        self._request_id = request_id
        self._config = config
        self._last: SingleRequestStreamOutput | None = None
        self._cause: BaseException | None = None

    def add(self, output: SingleRequestStreamOutput, cause: BaseException | None) -> None:
        """Take what it gained; `cause` is what a logits processor raised."""
        self.texts.append(output.delta_text)
        self.logprobs += output.delta_logprob_json_strs or ()
        self.prompt_logprobs += output.prompt_logprob_json_strs or ()
        self._last = output
        self._cause = cause

    def is_finished(self) -> bool:
        """Whether its end is there.

        Raises:
            LogitsProcessorError: a logits processor ended it.
            DeadlineExceededError: a time limit did.
            RequestFailedError: the end is another failure.
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
class Answers(tuple[_Texts, _Logprobs]):
    """The texts of each prompt's choices, and their log-probabilities where they were asked for.

    Upstream's pair, and beside it what that has no place for.
    """

    #: For each prompt that asks for them one JSON text for each of its tokens but the first.
    prompt_logprobs: list[list[str] | None]

    def __new__(
        cls, answers: Sequence[Sequence[Answer]], configs: Sequence[GenerationConfig]
    ) -> Self:
        """Put together what the choices of each prompt got."""
        texts = [["".join(answer.texts) for answer in row] for row in answers]
        logprobs = [
            [answer.logprobs for answer in row] if config.logprobs else None
            for row, config in zip(answers, configs, strict=True)
        ]
        self = super().__new__(cls, (texts, logprobs))
        self.prompt_logprobs = [
            None if config.prompt_logprobs is None else row[0].prompt_logprobs
            for row, config in zip(answers, configs, strict=True)
        ]
        return self
