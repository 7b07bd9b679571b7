"""The prompt and the grammar of a chat, which are made in a worker thread if that takes long."""

from __future__ import annotations

__all__ = ("PreparedChat", "prepare_chat", "render_chat")

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeVar

from aiomlc.api.chat.prompt import render_prompt
from aiomlc.api.chat.reasoning import starts_in_reasoning
from aiomlc.api.generation.structured_output import (
    OutputGrammar,
    allow_reasoning_before,
    output_grammar,
)
from aiomlc.api.protocol.chat_request import ChatCompletionRequest
from aiomlc.runtime.concurrency.turns import preparation_turns
from aiomlc.runtime.concurrency.worker_thread import run_in_worker
from aiomlc.runtime.loading.loaded_model import LoadedModel
from aiomlc.runtime.templates.render_budget import QUICK, RenderBudget, TemplateLimitError

T = TypeVar("T")

_MAX_INLINE_MESSAGES = 200
_MAX_INLINE_TOOLS = 50


class PreparedChat(NamedTuple):
    """The parts of a request that depend on the model."""

    prompt: str
    output: OutputGrammar
    in_reasoning: bool  #: Whether the completion continues reasoning of the prompt.


async def prepare_chat(request: ChatCompletionRequest, model: LoadedModel) -> PreparedChat:
    """Return the prompt and the grammar of a chat.

    Raises:
        BadRequestError: As for `render_prompt` and `output_grammar`.
    """
    return await _run(partial(_prepare, request, model), request)


async def render_chat(request: ChatCompletionRequest, model: LoadedModel) -> str:
    """Return the prompt of a chat.

    Raises:
        BadRequestError: As for `render_prompt`.
    """
    return await _run(partial(render_prompt, request, model), request)


def _prepare(request: ChatCompletionRequest, model: LoadedModel) -> PreparedChat:
    output = output_grammar(request, model)
    prompt = render_prompt(request, model)
    in_reasoning = starts_in_reasoning(request, model, prompt)
    if in_reasoning:
        output = allow_reasoning_before(output, model)

    return PreparedChat(prompt, output, in_reasoning)


async def _run(render: Callable[[], T], request: ChatCompletionRequest) -> T:
    """Render in this thread if that is quick, else again in a worker thread."""
    if _is_small(request):
        await preparation_turns().proceed()
        try:
            with RenderBudget(QUICK).active():
                return render()
        except TemplateLimitError:
            pass

    return await run_in_worker(partial(_render_fully, render))


def _render_fully(render: Callable[[], T], is_cancelled: Callable[[], bool]) -> T:
    with RenderBudget(is_cancelled=is_cancelled).active():
        return render()


def _is_small(request: ChatCompletionRequest) -> bool:
    return (
        len(request.messages) <= _MAX_INLINE_MESSAGES
        and len(request.tools) <= _MAX_INLINE_TOOLS
        and sum(len(message.content or "") for message in request.messages) <= QUICK.text
    )
