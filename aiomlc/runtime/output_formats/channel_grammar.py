"""Construction of the grammar that constrains messages in channels."""

from __future__ import annotations

__all__ = ("channel_grammar",)

from collections.abc import Callable, Sequence

from aiomlc.runtime.grammar.composition import embed_grammar
from aiomlc.runtime.grammar.grammar import Grammar, lark_json, lark_literal
from aiomlc.runtime.output_formats.harmony import ChannelFormat
from aiomlc.runtime.output_formats.tool_syntax.syntax import ToolSchema


def channel_grammar(
    channels: ChannelFormat,
    special_token_id: Callable[[str], int | None],
    tools: Sequence[ToolSchema],
    *,
    must_call: bool,
    answer: Grammar | None = None,
) -> Grammar:
    """Return the grammar of completions that end with a call of a tool, or with an answer.

    Messages of analysis may precede either, and commentary a call or an answer of any text.

    Args:
        channels: The markers.
        special_token_id: Returns the id of a special token by its text, or None.
        tools: The functions that may be called.
        must_call: Whether the completion ends with a call.
        answer: The grammar of the answer; None means any text.
    """

    def marker(text: str) -> str:
        return lark_literal(text, special_token_id(text))

    def head(header: str) -> str:
        return f"{marker(channels.channel)} {lark_literal(header)}"

    message = marker(channels.message)
    end = marker(channels.end)
    rules = []
    ends = []
    if tools:
        ends.append("call")
        names = " | ".join(f"function_{number}" for number in range(len(tools)))
        rules.append(f"call: {head('commentary to=functions.')} ({names})")
    for number, tool in enumerate(tools):
        header = (
            f"{lark_literal(f'{tool.name} ')} {marker(channels.constrain)} {lark_literal('json')}"
        )
        rules.append(f"function_{number}: {header} {message} arguments_{number}")
        rules.append(f"arguments_{number}: {lark_json(tool.parameters)}")
    if not must_call:
        ends.append("answer")
        body = "TEXT" if answer is None else "@structure"
        rules.append(f"answer: {head('final')} {message} {body}")

    kinds = [head("analysis")] if answer is not None else [head("analysis"), head("commentary")]
    # The text of a marker that is a special token may be written with other tokens, too.
    text = f"text: TEXT {end}" if special_token_id(channels.end) is not None else ""
    rules += [
        f'lead: ({" | ".join(kinds)}) {message} text {marker(channels.start)} "assistant"',
        text or f"text[lazy]: TEXT {end}",
        r"TEXT: /(.|\n)*/",
    ]
    rules.insert(0, f"start: lead* ({' | '.join(ends)})")
    if answer is None:
        return Grammar("lark", "\n".join(rules))

    return embed_grammar(rules, "structure", answer)
