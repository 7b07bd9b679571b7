"""Pebble's chat template, and a fast renderer of the same text that marks the answers."""

from __future__ import annotations

__all__ = ("CHAT_TEMPLATE", "Segment", "assistant_text", "render")

import json
from collections.abc import Sequence
from typing import NamedTuple

from training.dialogues.records import JsonObject, Message

_OFFER = "You can call these functions:\n<tools>\n"
_RULE = (
    "</tools>\nTo call one, answer with its name and its arguments as JSON "
    "between <tool_call> and </tool_call>."
)

CHAT_TEMPLATE = """\
{%- set has_system = messages and messages[0].role == 'system' %}
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if has_system %}
        {{- messages[0].content + '\\n\\n' }}
    {%- endif %}
    {{- 'OFFER' }}
    {%- for tool in tools %}
        {{- tool | tojson + '\\n' }}
    {%- endfor %}
    {{- 'RULE<|im_end|>\\n' }}
{%- elif has_system %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'system' and loop.first %}
    {%- elif message.role == 'tool' %}
        {%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}
        {%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\\n' }}
        {%- if message.content %}
            {{- message.content }}
        {%- endif %}
        {%- if message.tool_calls %}
            {%- for tool_call in message.tool_calls %}
                {%- set call = tool_call.function if tool_call.function else tool_call %}
                {%- if message.content or not loop.first %}
                    {{- '\\n' }}
                {%- endif %}
                {{- '<tool_call>\\n{"name": ' + call.name | tojson + ', "arguments": ' }}
                {{- call.arguments if call.arguments is string else call.arguments | tojson }}
                {{- '}\\n</tool_call>' }}
            {%- endfor %}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
""".replace("OFFER", _OFFER.replace("\n", "\\n")).replace("RULE", _RULE.replace("\n", "\\n"))


class Segment(NamedTuple):
    """A segment of rendered text; an answer is text that the model must generate."""

    text: str
    is_answer: bool
    values: tuple[str, ...] = ()  #: If not empty, the parts of the answer that it must generate.


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def assistant_text(message: Message) -> str:
    """Return an assistant message as the model generates it, without the end token."""
    parts = [message["content"]] if message.get("content") else []
    for call in message.get("tool_calls", ()):
        function = call["function"]
        body = f'{{"name": {_json(function["name"])}, "arguments": {_json(function["arguments"])}}}'
        parts.append(f"<tool_call>\n{body}\n</tool_call>")
    return "\n".join(parts)


def render(messages: Sequence[Message], tools: Sequence[JsonObject] = ()) -> list[Segment]:
    """Return the text of the chat template in segments."""
    first = messages[0]["content"] if messages and messages[0]["role"] == "system" else ""
    system = first
    if tools:
        offered = "".join(_json(tool) + "\n" for tool in tools)
        system = (first + "\n\n" if first else "") + _OFFER + offered + _RULE
    text = f"<|im_start|>system\n{system}<|im_end|>\n" if system else ""
    segments: list[Segment] = []
    for index, message in enumerate(messages):
        role = message["role"]
        if role == "system" and index == 0:
            continue

        if role == "assistant":
            segments.append(Segment(text + "<|im_start|>assistant\n", is_answer=False))
            answer = assistant_text(message) + "<|im_end|>"
            segments.append(Segment(answer, is_answer=True, values=message.get("values", ())))
            text = "\n"
        elif role == "tool":
            text += "" if messages[index - 1]["role"] == "tool" else "<|im_start|>user"
            text += f"\n<tool_response>\n{message['content']}\n</tool_response>"
            last = index + 1 == len(messages) or messages[index + 1]["role"] != "tool"
            text += "<|im_end|>\n" if last else ""
        else:
            text += f"<|im_start|>{role}\n{message['content']}<|im_end|>\n"
    if text:
        segments.append(Segment(text, is_answer=False))
    return segments
