"""Whether a prompt leaves its model thinking."""

from __future__ import annotations

__all__ = (
    "ReasoningParser",
    "starts_in_reasoning",
)

from typing import final

from aiomlc.api.chat.prompt import render_prompt
from aiomlc.api.protocol.chat_request import ChatCompletionRequest
from aiomlc.runtime.loading.loaded_model import LoadedModel
from aiomlc.runtime.output_formats.reasoning_format import ReasoningFormat


def starts_in_reasoning(request: ChatCompletionRequest, model: LoadedModel, prompt: str) -> bool:
    """Whether the answer begins within thoughts that the end of its prompt opened.

    False where thoughts are not told apart: then all is the answer.
    """
    marks = model.reasoning_format
    if marks is None or request.separate_reasoning is False:
        return False

    if prompt.rstrip().endswith(marks.begin):
        return True

    if prompt.rfind(marks.begin) <= prompt.rfind(marks.end):
        return False

    # The last mark opens thoughts, but it may be somebody's text.
    turn = _last_turn(request, model, prompt, marks.begin)
    return turn.rfind(marks.begin) > turn.rfind(marks.end)


def _last_turn(request: ChatCompletionRequest, model: LoadedModel, prompt: str, begin: str) -> str:
    """What the prompt has of the turn that the answer is, or goes on with."""
    if request.continue_final_message:
        content = (request.messages[-1].content or "").lstrip()
        is_open = prompt.removesuffix(content).rstrip().endswith(begin)
        return begin + content if is_open else content

    if not request.begins_an_answer:
        return ""

    asked = request.model_copy(update={"add_generation_prompt": False})
    before = render_prompt(asked, model)
    return prompt.removeprefix(before) if prompt.startswith(before) else ""


@final
class ReasoningParser:
    """Split one answer. Nothing that may turn out to be a mark is passed on.

    Thoughts are what stands between the marks at the beginning of an answer; whitespace around
    them is dropped. Marks further on are text.
    """

    def __init__(self, reasoning_format: ReasoningFormat, *, begins_inside: bool) -> None:
        """`begins_inside`: the prompt ended with the first mark."""
        self._format = reasoning_format
        self._waiting = ""  # What is undecided.
        self._has_begun = begins_inside
        self._has_thought = False  # Any text yet: whitespace before it is dropped.
        self.num_tokens: int = 0  #: Of the thoughts and their marks; estimated where they end.
        self.in_reasoning: bool = True  #: The thoughts have not ended, or nothing was said yet.

    def put(self, text: str, num_tokens: int = 0) -> tuple[str, str]:
        """The thoughts and the text that these words decide; either may be empty.

        `num_tokens` are what the words were made of.
        """
        if not self.in_reasoning:
            return "", text if not self._has_begun else self._take_text(text)

        self._waiting += text
        self.num_tokens += num_tokens
        if not self._has_begun:
            self._begin()

        if not self._has_begun:
            return "", "" if self.in_reasoning else self._take_text()

        thought = self._think()
        if self.in_reasoning:
            return thought, ""

        # Those of the words behind the mark, by their share of the characters.
        self.num_tokens -= round(num_tokens * len(self._waiting) / max(1, len(text)))
        return thought, self._take_text()

    def finish(self) -> tuple[str, str]:
        """What is undecided at the end of the answer."""
        waiting, self._waiting = self._waiting, ""
        if self._has_begun and self.in_reasoning:
            return self._thought(waiting.rstrip()), ""

        if self.in_reasoning:
            self.num_tokens = 0

        return "", waiting

    def _begin(self) -> None:
        start = self._waiting.lstrip()
        begin = self._format.begin
        if start.startswith(begin):
            self._has_begun = True
            self._waiting = start.removeprefix(begin)
        elif start and not begin.startswith(start):
            self.in_reasoning = False
            self.num_tokens = 0

    def _think(self) -> str:
        end = self._waiting.find(self._format.end)
        if end >= 0:
            thought = self._thought(self._waiting[:end].rstrip())
            self._waiting = self._waiting[end + len(self._format.end) :]
            self.in_reasoning = False
            return thought

        length = self._decided()
        thought, self._waiting = self._waiting[:length], self._waiting[length:]
        return self._thought(thought)

    def _thought(self, text: str) -> str:
        if not self._has_thought:
            text = text.lstrip()
            self._has_thought = text != ""

        return text

    def _take_text(self, more: str = "") -> str:
        text, self._waiting = self._waiting + more, ""
        if self._has_begun:  # Between the thoughts and the answer.
            text = text.lstrip()
            self._has_begun = text == ""

        return text

    def _decided(self) -> int:
        """How much of what waits cannot be the beginning of the second mark, or before it."""
        text, end = self._waiting, self._format.end
        for length in range(min(len(end) - 1, len(text)), 0, -1):
            if end.startswith(text[-length:]):
                text = text[:-length]
                break

        return len(text.rstrip())
