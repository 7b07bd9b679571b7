"""Rendering of a chat request's prompt with the model's chat template."""

from __future__ import annotations

__all__ = ("render_prompt", "with_template_stops")

from collections.abc import Callable
from typing import Any

from aiomlc.api.protocol.chat_request import ChatCompletionRequest
from aiomlc.api.protocol.messages import JoinedText, Message, Part
from aiomlc.api.protocol.request import reject_field
from aiomlc.errors import BadRequestError, UnsupportedFieldError
from aiomlc.runtime.images.reference import ImageReference
from aiomlc.runtime.loading.loaded_model import LoadedModel
from aiomlc.runtime.templates.message_forms import Messages, content_texts
from aiomlc.runtime.templates.prompt_check import check_user_text
from aiomlc.runtime.templates.prompt_template import PromptTemplate
from aiomlc.runtime.tokenization.prompt_encoder import PromptEncoder

# Template variables that are set from other fields of the request.
_RESERVED = frozenset(
    {"self", "messages", "tools", "add_generation_prompt", "continue_final_message"}
)

_THINKING = frozenset({"enable_thinking", "thinking"})  # Their usual names of the same.


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
    reasons = model.reasoning_format is not None or model.channel_format is not None
    variables = _template_variables(request, template, reasons=reasons)
    messages = [_template_message(message) for message in request.messages]
    if model.channel_format is not None:
        messages = list(map(_without_reasoning, messages))
    if model.splits(request.split_special_tokens):
        mark = model.tokenizer.mark_special_tokens
        messages, tools = _map_texts(mark, messages), _map_texts(mark, tools)

    placeholder = model.require_vision("messages").placeholder if request.images else ""

    def render(messages: Messages) -> str:
        return template.render(
            messages,
            tools=tools or None,
            add_generation_prompt=request.adds_generation_prompt,
            continue_final_message=bool(request.continue_final_message),
            image_placeholder=placeholder,
            **variables,
        )

    for reserved in (placeholder, _audio_placeholder(request, model)):
        if reserved:
            _check_placeholders(messages, reserved)

    prompt = render(messages)
    check_user_text(render, messages, prompt)
    return prompt


def _audio_placeholder(request: ChatCompletionRequest, model: LoadedModel) -> str:
    """Return what the template writes for audio; empty if the chat has none."""
    return model.require_audio("messages").placeholder if request.audios else ""


def _map_texts(function: Callable[[str], str], value: Any) -> Any:  # noqa: ANN401 - JSON.
    """Return a JSON value with changed strings; the names of fields stay."""
    if isinstance(value, str):
        return function(value)

    if isinstance(value, dict):
        return {name: _map_texts(function, member) for name, member in value.items()}

    if isinstance(value, list | tuple):
        return [_map_texts(function, member) for member in value]

    return value


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


def _template_variables(
    request: ChatCompletionRequest, template: PromptTemplate, *, reasons: bool
) -> dict[str, Any]:
    """Return the variables that a request sets.

    Args:
        reasons: Whether the model reasons; if it does not, a wish that it should not is met.
    """
    variables: dict[str, Any] = {}
    for name, value in (request.chat_template_kwargs or {}).items():
        if name in _RESERVED:
            raise _not_settable(name)

        if template.has_variable(name):
            variables[name] = value
        elif name not in _THINKING or value is not False or reasons:
            if request.ignored_fields is None:
                raise _not_settable(name)

            request.ignored_fields.add(f"chat_template_kwargs.{name}")

    return {**_reasoning_variables(request, template, reasons=reasons), **variables}


def _not_settable(name: str) -> UnsupportedFieldError:
    return UnsupportedFieldError(
        f"chat_template_kwargs: {name!r} is not a settable variable of the chat template",
        param="chat_template_kwargs",
    )


def _reasoning_variables(
    request: ChatCompletionRequest, template: PromptTemplate, *, reasons: bool
) -> dict[str, Any]:
    """Return the reasoning effort under the variable names that the template uses."""
    effort = request.reasoning_effort
    if effort is None:
        return {}

    variables = {"enable_thinking": effort != "none", "reasoning_effort": effort}
    supported = {name: value for name, value in variables.items() if template.has_variable(name)}
    if not supported and (effort != "none" or reasons):
        name = "reasoning_effort"
        message = f"{name}: not supported by the model's chat template"
        reject_field(name, message, request.ignored_fields)

    return supported


def _without_reasoning(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message, without its reasoning if it has a content beside tool calls.

    Templates of gpt-oss reject both.
    """
    if not message.get("tool_calls") or not message.get("content"):
        return message

    return {name: value for name, value in message.items() if "reasoning" not in name}


def _check_placeholders(messages: Messages, placeholder: str) -> None:
    """Require that no text has the placeholder of the images or the audio of a chat."""
    for index, message in enumerate(messages):
        for text in content_texts(message.get("content")):
            if placeholder in text:
                param = f"messages[{index}].content"
                raise BadRequestError(
                    f"{param}: the text contains {placeholder!r}, which stands for an image or "
                    "audio in the prompts of this model; remove it, or set split_special_tokens",
                    param=param,
                )


def _template_part(part: Part) -> dict[str, str]:
    if isinstance(part, str):
        return {"type": "text", "text": part}

    return {"type": "image" if isinstance(part, ImageReference) else "audio"}


def _template_message(message: Message) -> dict[str, Any]:
    fields = message.model_dump(exclude_none=True)
    if isinstance(message.content, JoinedText):
        fields["content"] = list(map(_template_part, message.content.parts))

    fields.setdefault("content", None)  # Templates distinguish null from missing content.
    return fields
