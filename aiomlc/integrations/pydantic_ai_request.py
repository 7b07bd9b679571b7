"""The fields of an engine's request from the messages and settings of pydantic-ai."""

from __future__ import annotations

__all__ = ("request_fields",)

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from aiomlc.errors import BadRequestError
from aiomlc.integrations.frameworks import framework

with framework("pydantic_ai", "pydantic-ai"):
    from pydantic_ai.messages import (
        BinaryContent,
        CachePoint,
        CompactionPart,
        FilePart,
        ImageUrl,
        ModelMessage,
        ModelRequest,
        ModelResponse,
        NativeToolCallPart,
        NativeToolReturnPart,
        SystemPromptPart,
        TextContent,
        TextPart,
        ThinkingPart,
        ToolCallPart,
        ToolReturnPart,
        UserContent,
        UserPromptPart,
    )
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.settings import ModelSettings, ToolOrOutput
    from pydantic_ai.tools import ToolDefinition

# The settings that have the names of fields, and those that do not.
_SAME_NAMES: Final = (
    "frequency_penalty",
    "logit_bias",
    "max_tokens",
    "parallel_tool_calls",
    "presence_penalty",
    "seed",
    "temperature",
    "timeout",
    "top_k",
    "top_p",
)
_OTHER_NAMES: Final = {"stop_sequences": "stop", "extra_body": "extra_body"}
# What other providers have added to a history, which says nothing to other models.
_OF_PROVIDERS: Final = (CompactionPart, FilePart, NativeToolCallPart, NativeToolReturnPart)
_PREPARE: Final = "call model.prepare_messages(messages) before, as agents do"


def request_fields(
    messages: Sequence[ModelMessage],
    instructions: Sequence[str],
    settings: ModelSettings,
    parameters: ModelRequestParameters,
) -> dict[str, Any]:
    """Return the fields of a chat request.

    Args:
        messages: The history; `Model.prepare_messages` must have been applied, as agents do.
        parameters: The tools and the output, from `Model.prepare_request`.

    Raises:
        BadRequestError: If a message has a part that is not supported, such as a sound.
    """
    given: dict[str, Any] = {**settings}
    names = {**{name: name for name in _SAME_NAMES}, **_OTHER_NAMES}
    fields = {field: given[name] for name, field in names.items() if given.get(name) is not None}
    fields["messages"] = list(_with_system(_to_messages(messages), instructions))
    fields |= _tool_fields(settings, parameters)
    if (response_format := _response_format(parameters)) is not None:
        fields["response_format"] = response_format

    return fields


def _tool_fields(settings: ModelSettings, parameters: ModelRequestParameters) -> dict[str, Any]:
    tools = [_to_tool(tool) for tool in parameters.declared_tool_defs.values()]
    if not tools:
        return {}

    return {"tools": tools, "tool_choice": _tool_choice(settings, parameters)}


def _to_tool(tool: ToolDefinition) -> dict[str, Any]:
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters_json_schema,
        "strict": tool.strict is not False,
    }
    return {"type": "function", "function": function}


def _tool_choice(
    settings: ModelSettings, parameters: ModelRequestParameters
) -> str | dict[str, Any]:
    mode = "auto" if parameters.allow_text_output else "required"
    outputs = [tool.name for tool in parameters.output_tools]
    choice = settings.get("tool_choice")
    if choice is None or choice == "auto":
        return mode

    if choice == "required":
        return "required"

    if isinstance(choice, ToolOrOutput):
        names = [*choice.function_tools, *outputs]
    elif choice == "none" or not choice:
        names = outputs
    else:
        mode, names = "required", list(choice)

    if not names:
        return "none"

    tools = [{"type": "function", "function": {"name": name}} for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


def _response_format(parameters: ModelRequestParameters) -> dict[str, Any] | None:
    if parameters.output_mode == "prompted":
        return {"type": "json_object"}

    output = parameters.output_object
    if parameters.output_mode != "native" or output is None:
        return None

    named = {"name": output.name or "answer", "schema": output.json_schema}
    if output.description:
        named["description"] = output.description

    return {"type": "json_schema", "json_schema": named}


def _with_system(
    messages: Iterable[dict[str, Any]], instructions: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """Yield messages with one system message at most, the first, as chat templates expect."""
    texts: list[str] = []
    rest: list[dict[str, Any]] = []
    for message in messages:
        if message["role"] == "system" and not rest:
            texts.append(message["content"])
        else:
            rest.append(message)

    texts += instructions
    if texts:
        yield {"role": "system", "content": "\n\n".join(texts)}

    yield from rest


def _to_messages(messages: Iterable[ModelMessage]) -> Iterator[dict[str, Any]]:
    for message in messages:
        if isinstance(message, ModelResponse):
            if fields := _assistant_message(message):
                yield fields
        else:
            yield from _request_messages(message)


def _request_messages(message: ModelRequest) -> Iterator[dict[str, Any]]:
    for part in message.parts:
        if isinstance(part, SystemPromptPart):
            yield {"role": "system", "content": part.content}
        elif isinstance(part, UserPromptPart):
            yield {"role": "user", "content": _content(part.content)}
        elif isinstance(part, ToolReturnPart):
            text, files = part.model_response_str_and_user_content()
            yield {
                "role": "tool",
                "tool_call_id": part.tool_call_id,
                "content": _content([text, *files]) if files else text,
            }
        else:
            raise _unsupported(part, _PREPARE)


def _assistant_message(message: ModelResponse) -> dict[str, Any]:
    """Return the fields of a message of the model; none if it has nothing for another model."""
    for part in message.parts:
        if not isinstance(part, (TextPart, ThinkingPart, ToolCallPart, *_OF_PROVIDERS)):
            raise _unsupported(part, _PREPARE)

    texts = [part.content for part in message.parts if isinstance(part, TextPart)]
    reasoning = [part.content for part in message.parts if isinstance(part, ThinkingPart)]
    calls = [_to_call(part) for part in message.parts if isinstance(part, ToolCallPart)]
    if not texts and not calls:
        return {}

    fields: dict[str, Any] = {"role": "assistant", "content": "\n\n".join(texts) or None}
    if reasoning:
        fields["reasoning_content"] = "\n\n".join(reasoning)

    if calls:
        fields["tool_calls"] = calls

    return fields


def _to_call(part: ToolCallPart) -> dict[str, Any]:
    function = {"name": part.tool_name, "arguments": part.args_as_json_str()}
    return {"type": "function", "id": part.tool_call_id, "function": function}


def _content(content: str | Sequence[UserContent]) -> str | list[dict[str, Any]]:
    """Return a text, or the parts of a message with images."""
    if isinstance(content, str):
        return content

    # The prefix cache needs no marks.
    parts = [_to_part(item) for item in content if not isinstance(item, CachePoint)]
    if all(part["type"] == "text" for part in parts):
        return "\n\n".join(part["text"] for part in parts)

    return parts


def _to_part(item: UserContent) -> dict[str, Any]:
    match item:
        case str():
            return {"type": "text", "text": item}
        case TextContent():
            return {"type": "text", "text": item.content}
        case ImageUrl():
            return {"type": "image_url", "image_url": {"url": item.url}}
        case BinaryContent(is_image=True):
            return {"type": "image_url", "image_url": {"url": item.data}}
        case _:
            raise _unsupported(item, "only texts and images are supported")


def _unsupported(part: object, advice: str) -> BadRequestError:
    return BadRequestError(
        f"messages: a {type(part).__name__} is not supported; {advice}", param="messages"
    )
