"""Which grammar a chat's answer has to follow."""

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
from aiomlc.runtime.output_formats.tool_grammar import tool_grammar
from aiomlc.runtime.output_formats.tool_syntax.syntax import ToolSchema

_ANY_OBJECT: Mapping[str, Any] = {"type": "object"}


class OutputGrammar(NamedTuple):
    """A grammar, and the field that asks for it."""

    grammar: Grammar | None  #: None: any text.
    param: str


def output_grammar(request: ChatCompletionRequest, model: LoadedModel) -> OutputGrammar:
    """What the answer to a chat must be.

    Raises:
        BadRequestError: two fields ask for different things, or for what the model cannot say.
    """
    wanted = response_grammar(request.response_format, model)
    if wanted is None:
        return OutputGrammar(_tool_grammar(request, model), "tools")

    if request.requires_tool_call:
        raise BadRequestError(
            "response_format and enforced tools exclude each other", param="response_format"
        )

    if request.callable_tools:
        wanted = _calls_or(wanted, request, model)

    return OutputGrammar(wanted, "response_format")


def allow_reasoning_before(answer: OutputGrammar, model: LoadedModel) -> OutputGrammar:
    """What an answer must be that begins within thoughts, which are any text."""
    marks = model.reasoning_format
    if answer.grammar is None or marks is None:
        return answer

    grammar = prepend_reasoning(answer.grammar, marks.end_marker, model.tokenizer.special_token_id)
    return answer._replace(grammar=grammar)


def response_grammar(response: ResponseFormat | None, model: LoadedModel) -> Grammar | None:
    """What `response_format` asks for; None is any text.

    Raises:
        BadRequestError: a structure has no trigger.
    """
    match response:
        case JsonObjectFormat():
            return json_grammar(response.schema_ or _ANY_OBJECT)
        case JsonSchemaFormat():
            return json_grammar(response.json_schema.schema_ or _ANY_OBJECT)
        case GrammarFormat():
            return Grammar(response.syntax, response.definition)
        case StructuralTagFormat():
            return _tagged(response, model)
        case TextFormat() | None:
            return None


def _tagged(response: StructuralTagFormat, model: LoadedModel) -> Grammar:
    for number, structure in enumerate(response.structures):
        if not any(structure.begin.startswith(trigger) for trigger in response.triggers):
            param = f"response_format.structures[{number}].begin"
            raise BadRequestError(f"{param}: no trigger begins it", param=param)

    return structural_tag_grammar(
        [(item.begin, item.schema_, item.end) for item in response.structures],
        response.triggers,
        model.tokenizer.special_token_id,
    )


def _tool_grammar(request: ChatCompletionRequest, model: LoadedModel) -> Grammar | None:
    functions = [tool.function for tool in request.callable_tools]
    must_call = request.requires_tool_call
    is_bound = (
        must_call
        or request.parallel_tool_calls is False
        or len(functions) < len(request.offered_tools)
        or any(function.strict for function in functions)
    )
    if not functions or not is_bound:
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

        asked = "parallel_tool_calls" if request.parallel_tool_calls is False else "tools"
        reason = str(error).removeprefix("tool_choice: ")
        raise BadRequestError(f"{asked}: {reason}", param=asked) from error


def _calls_or(answer: Grammar, request: ChatCompletionRequest, model: LoadedModel) -> Grammar:
    """Calls alone, or else the answer, so that either is all of what the model says."""
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
            alternative=answer,
        )
    except BadRequestError as error:
        raise BadRequestError(
            f"response_format: not with tools for this model: {error}", param="response_format"
        ) from error


def _check_triggers(request: ChatCompletionRequest, begin: str, model: LoadedModel) -> None:
    """Refuse structures that the mark of calls would begin, where it is text: no call could be."""
    form = request.response_format
    if (
        not isinstance(form, StructuralTagFormat)
        or model.tokenizer.special_token_id(begin) is not None
    ):
        return

    for number, trigger in enumerate(form.triggers):
        if trigger in begin:
            param = f"response_format.triggers[{number}]"
            raise BadRequestError(f"{param}: is part of {begin!r}, which begins calls", param=param)


def _schemas(functions: Sequence[FunctionDefinition], *, all_strict: bool) -> list[ToolSchema]:
    return [
        ToolSchema(
            function.name,
            (function.parameters or _ANY_OBJECT) if all_strict or function.strict else _ANY_OBJECT,
        )
        for function in functions
    ]
