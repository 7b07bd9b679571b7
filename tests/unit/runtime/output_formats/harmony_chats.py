"""Harmony for tests: a chat template that writes it, and messages as gpt-oss writes them."""

from __future__ import annotations

__all__ = ("TEMPLATE", "analysis", "call", "commentary", "final")

TEMPLATE = """
{%- if tools -%}
<|start|>developer<|message|>{% for tool in tools %}{{ tool.function | tojson }}
{% endfor %}<|end|>
{%- endif -%}
{%- for message in messages -%}
  {%- if message.role == "assistant" -%}
    {%- if message.thinking and message.tool_calls and message.content -%}
      {{- raise_exception("content and thinking beside a call") -}}
    {%- endif -%}
    {%- if message.thinking -%}
<|start|>assistant<|channel|>analysis<|message|>{{ message.thinking }}<|end|>
    {%- endif -%}
    {%- for call in message.tool_calls or [] -%}
<|start|>assistant to=functions.{{ call.function.name }}<|channel|>commentary json<|message|>
      {{- call.function.arguments | tojson }}<|call|>
    {%- endfor -%}
    {%- if message.content -%}
<|start|>assistant<|channel|>final<|message|>{{ message.content }}<|end|>
    {%- endif -%}
  {%- elif message.role == "tool" -%}
<|start|>functions to=assistant<|channel|>commentary<|message|>{{ message.content }}<|end|>
  {%- else -%}
<|start|>{{ message.role }}<|message|>{{ message.content }}<|end|>
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt %}<|start|>assistant{% endif -%}
"""


def analysis(text: str) -> str:
    return f"<|channel|>analysis<|message|>{text}"


def commentary(text: str) -> str:
    return f"<|channel|>commentary<|message|>{text}"


def final(text: str) -> str:
    return f"<|channel|>final<|message|>{text}"


def call(name: str, arguments: str) -> str:
    header = f"<|channel|>commentary to=functions.{name} <|constrain|>json"
    return f"{header}<|message|>{arguments}"
