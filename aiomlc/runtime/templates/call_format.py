"""Detection of a model's tool-call format by what its chat template writes for a call."""

from __future__ import annotations

__all__ = ("find_call_format",)

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from aiomlc.errors import BadRequestError
from aiomlc.runtime.output_formats.tool_format import (
    TOOL_FORMATS,
    ToolFormat,
    find_tool_format,
    has_signature,
)
from aiomlc.runtime.output_formats.tool_syntax.syntax import (
    CallContext,
    CompleteCalls,
    FinalizableParser,
    ParseStep,
    PartialCall,
)
from aiomlc.runtime.templates.prompt_template import PromptTemplate
from aiomlc.runtime.templates.render_budget import RenderBudget

_NAME = "probe_function"
_ARGUMENTS = {"text": "a probe value", "number": 7}
_PARAMETERS: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "text": {"type": "string", "description": "A text."},
        "number": {"type": "integer", "description": "A number."},
    },
    "required": ["text", "number"],
}
_TOOL: Mapping[str, Any] = {
    "type": "function",
    "function": {"name": _NAME, "description": "A function.", "parameters": _PARAMETERS},
}
# Some templates require ids of this length.
_CALL_ID = "probecall"
_QUESTION: Mapping[str, Any] = {"role": "user", "content": "A question."}
_CALL: Mapping[str, Any] = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {
            "id": _CALL_ID,
            "type": "function",
            "function": {"name": _NAME, "arguments": json.dumps(_ARGUMENTS)},
        }
    ],
}
_RESULT: Mapping[str, Any] = {
    "role": "tool",
    "name": _NAME,
    "tool_call_id": _CALL_ID,
    "content": "A result.",
}


def find_call_format(template: PromptTemplate) -> ToolFormat | None:
    """Return the format of a template's calls, or None if it is not known.

    It is the one in which the template writes the call of an earlier message. A template that
    writes none, as some only describe the format, is searched for the signature of a format.

    Args:
        template: The template of chats that offer tools.
    """
    with RenderBudget().active():
        turns = list(_written_calls(template))

    if not turns:
        return find_tool_format(template.source)

    by_signature = sorted(TOOL_FORMATS, key=lambda each: not has_signature(each, template.source))
    return next((each for each in by_signature if any(_reads(each, *turn) for turn in turns)), None)


def _written_calls(template: PromptTemplate) -> Iterator[tuple[str, bool]]:
    """Yield the texts with a call, each with whether it begins where a completion does."""
    for messages in ((_QUESTION, _CALL), (_QUESTION, _CALL, _RESULT)):
        prompt = _render(template, messages, add_generation_prompt=False)
        if str(_ARGUMENTS["text"]) not in prompt:
            continue

        yield prompt, False
        start = _render(template, [_QUESTION], add_generation_prompt=True)
        if start and prompt.startswith(start):
            yield prompt.removeprefix(start), True

        return


def _render(
    template: PromptTemplate, messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool
) -> str:
    """Return a prompt; empty if the template rejects the messages."""
    with suppress(BadRequestError):
        return template.render(messages, tools=[_TOOL], add_generation_prompt=add_generation_prompt)

    return ""


def _reads(tool_format: ToolFormat, text: str, is_completion: bool) -> bool:
    """Whether the parser of a format reads the call in a text."""
    marker = tool_format.start_marker
    position = text.find(marker)
    while position >= 0:
        if _reads_at(tool_format, text[position + len(marker) :], has_start_marker=True):
            return True

        position = text.find(marker, position + 1)

    may_lack_marker = is_completion and tool_format.marker_optional
    return may_lack_marker and _reads_at(tool_format, text, has_start_marker=False)


def _reads_at(tool_format: ToolFormat, text: str, *, has_start_marker: bool) -> bool:
    syntax = tool_format.syntax
    delimiters = syntax.delimiters + " \t\r\n"
    text = text.lstrip(delimiters).removeprefix(tool_format.opening).lstrip(delimiters)
    if not text.startswith(syntax.call_prefix):
        return False

    context = CallContext(tool_format.end_marker, has_start_marker, {_NAME: _PARAMETERS})
    parser = syntax.create_parser(0, context)
    step = parser.parse(f"{text}\n")  # A parser may wait for what follows a call.
    if step is None and isinstance(parser, FinalizableParser):
        step = parser.finalize(text)

    return _is_call(step, text)


def _is_call(step: ParseStep | None, text: str) -> bool:
    match step:
        case PartialCall(name=name, end=end):
            with suppress(ValueError):
                return (name, json.JSONDecoder().raw_decode(text, end)[0]) == (_NAME, _ARGUMENTS)
        case CompleteCalls(calls=calls):
            with suppress(ValueError):
                return [(name, json.loads(text)) for name, text in calls] == [(_NAME, _ARGUMENTS)]
        case _:
            pass

    return False
