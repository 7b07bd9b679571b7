"""From a chat's messages to the text its model is given."""

from __future__ import annotations

__all__ = ("render_prompt", "with_template_stops")

from typing import Any

from aiomlc.api.protocol.chat_request import ChatCompletionRequest
from aiomlc.api.protocol.messages import Message
from aiomlc.errors import BadRequestError
from aiomlc.runtime.loading.loaded_model import LoadedModel
from aiomlc.runtime.templates.prompt_template import PromptTemplate

# What a request says in other fields.
_RESERVED = frozenset(
    {"self", "messages", "tools", "add_generation_prompt", "continue_final_message"}
)


def render_prompt(request: ChatCompletionRequest, model: LoadedModel) -> str:
    """The prompt of a chat.

    Raises:
        BadRequestError: the model has no template, or its template refuses the chat.
    """
    template = model.chat_template
    if template is None:
        raise BadRequestError("the model has no chat template", param="messages")

    tools = [tool.for_template() for tool in request.offered_tools]
    return template.render(
        [_for_template(message) for message in request.messages],
        tools=tools or None,
        add_generation_prompt=request.begins_an_answer,
        continue_final_message=bool(request.continue_final_message),
        **_variables(request, template),
    )


def with_template_stops(
    request: ChatCompletionRequest, model: LoadedModel
) -> ChatCompletionRequest:
    """The request, which also ends where the model's template says that an answer ends."""
    template = model.chat_template
    if template is None or request.ignore_eos:
        return request

    stop, stop_token_ids = template.stop_str, model.chat_stop_token_ids
    if not stop and not stop_token_ids:
        return request

    return request.model_copy(
        update={
            "stop": (*request.stop, *stop),
            "stop_token_ids": (*request.stop_token_ids, *stop_token_ids),
        }
    )


def _variables(request: ChatCompletionRequest, template: PromptTemplate) -> dict[str, Any]:
    variables = dict(request.chat_template_kwargs or {})
    for name in variables:
        if name in _RESERVED or not template.takes(name):
            raise BadRequestError(
                f"chat_template_kwargs: the model's chat template takes no {name!r} there",
                param="chat_template_kwargs",
            )

    return {**_effort(request.reasoning_effort, template), **variables}


def _effort(effort: str | None, template: PromptTemplate) -> dict[str, Any]:
    """What the template is told of how much to think, by the names it knows."""
    if effort is None:
        return {}

    told = {"enable_thinking": effort != "none", "reasoning_effort": effort}
    known = {name: value for name, value in told.items() if template.takes(name)}
    if not known:
        raise BadRequestError(
            "reasoning_effort: the model's chat template knows nothing of it",
            param="reasoning_effort",
        )

    return known


def _for_template(message: Message) -> dict[str, Any]:
    fields = message.model_dump(exclude_none=True)
    if message.role == "assistant":
        reasoning = fields.pop("reasoning", None)
        if reasoning is not None:
            fields.setdefault("reasoning_content", reasoning)

        fields.setdefault("content", None)  # Templates tell a null content from none at all.

    return fields
