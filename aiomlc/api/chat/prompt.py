"""Rendering of a chat request's prompt with the model's chat template."""

from __future__ import annotations

__all__ = ("render_prompt", "with_template_stops")

from typing import Any

from aiomlc.api.protocol.chat_request import ChatCompletionRequest
from aiomlc.api.protocol.messages import JoinedText, Message
from aiomlc.errors import BadRequestError
from aiomlc.runtime.loading.loaded_model import LoadedModel
from aiomlc.runtime.templates.message_forms import Messages
from aiomlc.runtime.templates.prompt_check import check_user_text
from aiomlc.runtime.templates.prompt_template import PromptTemplate
from aiomlc.runtime.tokenization.prompt_encoder import PromptEncoder

# Template variables that are set from other fields of the request.
_RESERVED = frozenset(
    {"self", "messages", "tools", "add_generation_prompt", "continue_final_message"}
)


def render_prompt(request: ChatCompletionRequest, model: LoadedModel) -> str:
    """Render the prompt of a chat.

    Raises:
        BadRequestError: If the model has no chat template, the template rejects the messages or
            leaves out the last text of the user, or a template variable is unknown; `param` names
            the field.
        PromptTooLongError: If the messages and tools are longer than any prompt.
    """
    template = model.chat_template
    if template is None:
        raise BadRequestError(
            "the model has no chat template, as base models have none: use completions.create, or "
            "add chat_template.jinja to its directory",
            param="messages",
        )

    PromptEncoder(model.tokenizer, model.context_window).check_characters(_num_characters(request))
    tools = [tool.for_template() for tool in request.offered_tools]
    template = template.for_chat(has_tools=bool(tools))
    variables = _template_variables(request, template)

    def render(messages: Messages) -> str:
        return template.render(
            messages,
            tools=tools or None,
            add_generation_prompt=request.adds_generation_prompt,
            continue_final_message=bool(request.continue_final_message),
            **variables,
        )

    messages = [_template_message(message) for message in request.messages]
    prompt = render(messages)
    check_user_text(render, messages, prompt)
    return prompt


def _num_characters(request: ChatCompletionRequest) -> int:
    """Return the characters of the messages and of the tools' descriptions."""
    number = sum(len(tool.function.description or "") for tool in request.offered_tools)
    for message in request.messages:
        number += len(message.content or "")
        if message.role == "assistant":
            number += sum(len(call.function.arguments) for call in message.tool_calls or ())

    return number


def with_template_stops(
    request: ChatCompletionRequest, model: LoadedModel
) -> ChatCompletionRequest:
    """Return the request with the stop strings and stop tokens of the model's chat template."""
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


def _template_variables(request: ChatCompletionRequest, template: PromptTemplate) -> dict[str, Any]:
    variables = dict(request.chat_template_kwargs or {})
    for name in variables:
        if name in _RESERVED or not template.has_variable(name):
            raise BadRequestError(
                f"chat_template_kwargs: {name!r} is not a settable variable of the chat template",
                param="chat_template_kwargs",
            )

    return {**_reasoning_variables(request.reasoning_effort, template), **variables}


def _reasoning_variables(effort: str | None, template: PromptTemplate) -> dict[str, Any]:
    """Return the reasoning effort under the variable names that the template uses."""
    if effort is None:
        return {}

    variables = {"enable_thinking": effort != "none", "reasoning_effort": effort}
    supported = {name: value for name, value in variables.items() if template.has_variable(name)}
    if not supported:
        raise BadRequestError(
            "reasoning_effort: not supported by the model's chat template",
            param="reasoning_effort",
        )

    return supported


def _template_message(message: Message) -> dict[str, Any]:
    fields = message.model_dump(exclude_none=True)
    if isinstance(message.content, JoinedText):
        fields["content"] = [{"type": "text", "text": text} for text in message.content.parts]

    fields.setdefault("content", None)  # Templates distinguish null from missing content.
    return fields
