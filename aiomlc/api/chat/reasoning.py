"""Detection and parsing of the reasoning that precedes a model's answer."""

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
    """Return whether the prompt ends inside of reasoning, so that the completion continues it.

    Always False if reasoning is not separated from the content.
    """
    markers = model.reasoning_format
    if markers is None or request.separate_reasoning is False:
        return False

    if prompt.rstrip().endswith(markers.start_marker):
        return True

    if prompt.rfind(markers.start_marker) <= prompt.rfind(markers.end_marker):
        return False

    # The last marker is a start marker, but it may be quoted in a message.
    turn = _last_turn(request, model, prompt, markers.start_marker)
    return turn.rfind(markers.start_marker) > turn.rfind(markers.end_marker)


def _last_turn(
    request: ChatCompletionRequest, model: LoadedModel, prompt: str, start_marker: str
) -> str:
    """Return the part of the prompt that belongs to the assistant turn to be completed."""
    if request.continue_final_message:
        content = (request.messages[-1].content or "").lstrip()
        follows_marker = prompt.removesuffix(content).rstrip().endswith(start_marker)
        return start_marker + content if follows_marker else content

    if not request.adds_generation_prompt:
        return ""

    without_turn = request.model_copy(update={"add_generation_prompt": False})
    history = render_prompt(without_turn, model)
    return prompt.removeprefix(history) if prompt.startswith(history) else ""


@final
class ReasoningParser:
    """An incremental parser that splits the text of one choice into reasoning and content.

    Reasoning is the text between the markers at the start of a completion, with the surrounding
    whitespace removed. A second start marker before any reasoning is dropped, as models write one
    that the prompt already has. Later markers are content. Text that may be the beginning of a
    marker is held back until this is decided.
    """

    def __init__(self, reasoning_format: ReasoningFormat, *, starts_in_reasoning: bool) -> None:
        """Prepare to parse one choice.

        Args:
            starts_in_reasoning: Whether the prompt ended inside of reasoning, so that the
                completion has no start marker.
        """
        self._format = reasoning_format
        self._buffer = ""  # Text that is held back.
        # Whether the start marker has been read or was in the prompt.
        self._has_started = starts_in_reasoning
        self._skip_reasoning_space = True  # No reasoning text yet.
        self._skip_content_space = False  # The reasoning has ended; no content yet.
        #: Tokens of the reasoning and its markers; estimated for the delta that has the end marker.
        self.num_tokens: int = 0
        #: True until the reasoning has ended, or until the output proves to have none.
        self.in_reasoning: bool = True

    def put(self, text: str, num_tokens: int = 0) -> tuple[str, str]:
        """Add text; return the reasoning and the content that are now certain."""
        if not self.in_reasoning:
            return "", text if not self._skip_content_space else self._take_content(text)

        self._buffer += text
        self.num_tokens += num_tokens
        if not self._has_started:
            self._detect_start()

        if not self._has_started:
            return "", "" if self.in_reasoning else self._take_content()

        reasoning = self._take_reasoning()
        if self.in_reasoning:
            return reasoning, ""

        # The tokens of the text after the marker, estimated by its fraction of the characters.
        self.num_tokens -= round(num_tokens * len(self._buffer) / max(1, len(text)))
        return reasoning, self._take_content()

    def finish(self) -> tuple[str, str]:
        """Return the held-back reasoning and content at the end of the choice."""
        remaining, self._buffer = self._buffer, ""
        if self._has_started and self.in_reasoning:
            return self._strip_reasoning(remaining.rstrip()), ""

        if self.in_reasoning:
            self.num_tokens = 0

        return "", remaining

    def _detect_start(self) -> None:
        start = self._buffer.lstrip()
        marker = self._format.start_marker
        if start.startswith(marker):
            self._has_started = True
            self._buffer = start.removeprefix(marker)
        elif start and not marker.startswith(start):
            self.in_reasoning = False
            self.num_tokens = 0

    def _take_reasoning(self) -> str:
        is_undecided = self._skip_reasoning_space and not self._drop_start_markers()
        end = self._buffer.find(self._format.end_marker)
        if end >= 0:
            reasoning = self._strip_reasoning(self._buffer[:end].rstrip())
            self._buffer = self._buffer[end + len(self._format.end_marker) :]
            self.in_reasoning = False
            self._skip_content_space = True
            return reasoning

        if is_undecided:
            return ""

        length = self._decided_length()
        reasoning, self._buffer = self._buffer[:length], self._buffer[length:]
        return self._strip_reasoning(reasoning)

    def _drop_start_markers(self) -> bool:
        """Drop start markers before any reasoning; return whether its beginning is decided."""
        marker = self._format.start_marker
        start = self._buffer.lstrip()
        while start.startswith(marker):
            self._buffer = start = start.removeprefix(marker).lstrip()

        return not marker.startswith(start)

    def _strip_reasoning(self, text: str) -> str:
        if self._skip_reasoning_space:
            text = text.lstrip()
            self._skip_reasoning_space = text == ""

        return text

    def _take_content(self, text: str = "") -> str:
        text, self._buffer = self._buffer + text, ""
        if self._skip_content_space:
            text = text.lstrip()
            self._skip_content_space = text == ""

        return text

    def _decided_length(self) -> int:
        """Return the length of the buffered text before a possible end marker and whitespace."""
        text, marker = self._buffer, self._format.end_marker
        for length in range(min(len(marker) - 1, len(text)), 0, -1):
            if marker.startswith(text[-length:]):
                text = text[:-length]
                break

        return len(text.rstrip())
