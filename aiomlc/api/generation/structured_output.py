"""The grammar of a completion, from the response format and the tools of its request."""

from __future__ import annotations

__all__ = ("OutputGrammar", "allow_reasoning_before", "output_grammar", "response_grammar")

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from aiomlc.api.protocol.chat_request import ChatCompletionRequest
from aiomlc.api.protocol.response_format import (
    GrammarFormat,
    JsonObjectFormat,
    JsonSchemaFormat,
    ResponseFormat,
    StructuralTagFormat,
    TextFormat,
)
from aiomlc.api.protocol.tools import FunctionDefinition
from aiomlc.errors import BadRequestError
from aiomlc.runtime.grammar.composition import prepend_reasoning
from aiomlc.runtime.grammar.grammar import Grammar, json_grammar, structural_tag_grammar
from aiomlc.runtime.loading.loaded_model import LoadedModel
from aiomlc.runtime.output_formats.channel_grammar import channel_grammar
from aiomlc.runtime.output_formats.harmony import ChannelFormat
from aiomlc.runtime.output_formats.tool_grammar import tool_grammar
from aiomlc.runtime.output_formats.tool_syntax.syntax import ToolSchema

_ANY_OBJECT: Mapping[str, Any] = {"type": "object"}


class OutputGrammar(NamedTuple):
    """The grammar of a completion, and the field of the request that requires it."""

    grammar: Grammar | None  #: None means any text.
    param: str


def output_grammar(request: ChatCompletionRequest, model: LoadedModel) -> OutputGrammar:
    """Return the grammar of the completion of a chat.

    Raises:
        BadRequestError: If the response format and the tools cannot be combined, or the tool-call
            format of the model does not support what the request requires.
    """
    grammar = response_grammar(request.response_format, model)
    if grammar is not None and request.requires_tool_call:
        raise BadRequestError(
            "response_format: not supported together with a required tool call",
            param="response_format",
        )

    if model.channel_format is not None:
        return _in_channels(grammar, request, model, model.channel_format)

    if grammar is None:
        return OutputGrammar(_tool_grammar(request, model), "tools")

    if request.callable_tools:
        grammar = _calls_or_response(grammar, request, model)

    return OutputGrammar(grammar, "response_format")


def allow_reasoning_before(output: OutputGrammar, model: LoadedModel) -> OutputGrammar:
    """Return the grammar of a completion that starts in reasoning, which may be any text."""
    markers = model.reasoning_format
    if output.grammar is None or markers is None:
        return output

    grammar = prepend_reasoning(
        output.grammar, markers.end_marker, model.tokenizer.special_token_id
    )
    return output._replace(grammar=grammar)


def response_grammar(response: ResponseFormat | None, model: LoadedModel) -> Grammar | None:
    """Return the grammar of a `response_format`; None means any text.

    Raises:
        BadRequestError: If no trigger is a prefix of the start tag of a structure.
    """
    match response:
        case JsonObjectFormat():
            return json_grammar(response.schema_ or _ANY_OBJECT)
        case JsonSchemaFormat():
            schema = response.json_schema.schema_
            return json_grammar(_ANY_OBJECT if schema is None else schema)
        case GrammarFormat():
            return Grammar(response.syntax, response.definition)
        case StructuralTagFormat():
            return _structural_tag_grammar(response, model)
        case TextFormat() | None:
            return None


def _structural_tag_grammar(response: StructuralTagFormat, model: LoadedModel) -> Grammar:
    for index, structure in enumerate(response.structures):
        if not any(structure.begin.startswith(trigger) for trigger in response.triggers):
            param = f"response_format.structures[{index}].begin"
            raise BadRequestError(f"{param}: must start with one of the triggers", param=param)

    return structural_tag_grammar(
        [(item.begin, item.schema_, item.end) for item in response.structures],
        response.triggers,
        model.tokenizer.special_token_id,
    )


def _tool_grammar(request: ChatCompletionRequest, model: LoadedModel) -> Grammar | None:
    """Return the grammar that the tools and their options require; None means any text."""
    functions = [tool.function for tool in request.callable_tools]
    must_call = request.requires_tool_call
    if not _constrains_calls(request):
        return None

    assert model.tool_format is not None, "the chat offers no tools otherwise"
    try:
        return tool_grammar(
            _schemas(functions, all_strict=must_call),
            model.tool_format,
            model.tokenizer.special_token_id,
            must_call=must_call,
            allow_parallel=request.parallel_tool_calls is not False,
        )
    except BadRequestError as error:
        if error.param != "tool_choice" or request.tool_choice not in (None, "auto"):
            raise

        # Not `tool_choice` but another field requires the grammar.
        field = "parallel_tool_calls" if request.parallel_tool_calls is False else "tools"
        reason = str(error).removeprefix("tool_choice: ")
        raise BadRequestError(f"{field}: {reason}", param=field) from None


def _constrains_calls(request: ChatCompletionRequest) -> bool:
    """Return whether a request constrains the calls of its tools."""
    functions = [tool.function for tool in request.callable_tools]
    return bool(functions) and (
        request.requires_tool_call
        or request.parallel_tool_calls is False
        or len(functions) < len(request.offered_tools)
        or any(function.strict for function in functions)
    )


def _in_channels(
    answer: Grammar | None,
    request: ChatCompletionRequest,
    model: LoadedModel,
    channels: ChannelFormat,
) -> OutputGrammar:
    """Return the grammar of messages in channels; one that continues the answer is the answer's."""
    param = "tools" if answer is None else "response_format"
    if request.continue_final_message or (answer is None and not _constrains_calls(request)):
        return OutputGrammar(answer, param)

    grammar = channel_grammar(
        channels,
        model.tokenizer.special_token_id,
        _schemas(
            [tool.function for tool in request.callable_tools],
            all_strict=request.requires_tool_call,
        ),
        must_call=request.requires_tool_call,
        answer=answer,
    )
    return OutputGrammar(grammar, param)


def _calls_or_response(
    response: Grammar, request: ChatCompletionRequest, model: LoadedModel
) -> Grammar:
    """Return the grammar of a completion that is either tool calls or a formatted response."""
    assert model.tool_format is not None, "the chat offers no tools otherwise"
    _check_triggers(request, model.tool_format.start_marker, model)
    functions = [tool.function for tool in request.callable_tools]
    try:
        return tool_grammar(
            _schemas(functions, all_strict=False),
            model.tool_format,
            model.tokenizer.special_token_id,
            must_call=True,
            allow_parallel=request.parallel_tool_calls is not False,
            alternative=response,
        )
    except BadRequestError as error:
        raise BadRequestError(
            f"response_format: not supported together with tools for this model: {error}",
            param="response_format",
        ) from None


def _check_triggers(request: ChatCompletionRequest, start_marker: str, model: LoadedModel) -> None:
    """Reject triggers that are a part of the start marker of tool calls.

    Such a trigger would start a structure within the marker, so no tool could be called. A marker
    that is a special token cannot contain a trigger.
    """
    response = request.response_format
    if (
        not isinstance(response, StructuralTagFormat)
        or model.tokenizer.special_token_id(start_marker) is not None
    ):
        return

    for index, trigger in enumerate(response.triggers):
        if trigger in start_marker:
            param = f"response_format.triggers[{index}]"
            raise BadRequestError(
                f"{param}: must not be a part of {start_marker!r}, which starts tool calls",
                param=param,
            )


def _schemas(functions: Sequence[FunctionDefinition], *, all_strict: bool) -> list[ToolSchema]:
    return [
        ToolSchema(
            function.name,
            (function.parameters or _ANY_OBJECT) if all_strict or function.strict else _ANY_OBJECT,
        )
        for function in functions
    ]
