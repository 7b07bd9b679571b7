"""Whether a prompt leaves its model thinking."""

from __future__ import annotations

__all__ = ("opens_thoughts",)

from aiomlc.api.prompt import render_prompt
from aiomlc.api.protocol.chat_request import ChatCompletionRequest
from aiomlc.runtime.loaded_model import LoadedModel


def opens_thoughts(request: ChatCompletionRequest, model: LoadedModel, prompt: str) -> bool:
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
