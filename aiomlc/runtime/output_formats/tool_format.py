"""The forms in which models write calls of tools: data, by which one parser reads them all."""

# ruff: noqa: RUF001 - DeepSeek's marks look like ASCII.

from __future__ import annotations

__all__ = ("TOOL_FORMATS", "ToolFormat", "find_tool_format")

from dataclasses import dataclass

from aiomlc.runtime.output_formats.tool_syntax.json_calls import JsonCalls
from aiomlc.runtime.output_formats.tool_syntax.named_json import NamedJsonCalls
from aiomlc.runtime.output_formats.tool_syntax.pythonic_calls import PythonicCalls
from aiomlc.runtime.output_formats.tool_syntax.syntax import ToolSyntax
from aiomlc.runtime.output_formats.tool_syntax.tagged_calls import TaggedCalls


@dataclass(frozen=True, slots=True)
class ToolFormat:
    """Calls in a syntax, between two marks.

    The format of a model is the first whose `signature` are all in its chat template and whose
    `excludes` are not.
    """

    name: str
    start_marker: str
    end_marker: str  #: Empty: the calls last to the end of the answer.
    syntax: ToolSyntax
    signature: tuple[str, ...]
    excludes: tuple[str, ...] = ()
    separator: str | None = None  #: Between calls with marks of their own; None: there is one pair.
    marker_optional: bool = False  #: An answer may also begin with a call, without the mark.
    id_prefix: str = "call_"
    id_length: int = 24  #: Characters after the prefix.

    @property
    def marks(self) -> tuple[str, ...]:
        """The marks, which the text must show even where the vocabulary calls them special."""
        return tuple(
            mark for mark in (self.start_marker, self.end_marker, *self.syntax.marks) if mark
        )


# DeepSeek's.
_CALL_BEGIN = "<｜tool▁call▁begin｜>"
_CALL_END = "<｜tool▁call▁end｜>"
_SEPARATOR = "<｜tool▁sep｜>"

TOOL_FORMATS = (
    # Hermes, Qwen 2.5 and 3, and the bundled model. Others put XML between the same marks.
    ToolFormat(
        name="hermes",
        start_marker="<tool_call>",
        end_marker="</tool_call>",
        syntax=JsonCalls(before="\n", after="\n"),
        signature=("<tool_call>",),
        excludes=("<function=", "<arg_key>"),
        separator="\n",
    ),
    ToolFormat(
        name="qwen3_coder",
        start_marker="<tool_call>",
        end_marker="</tool_call>",
        syntax=TaggedCalls(
            opens="<function=",
            name_end=">",
            key_begin="<parameter=",
            key_end=">",
            value_end="</parameter>",
            closes="</function>",
            padding="\n",
            before="\n",
            after="\n",
        ),
        signature=("<tool_call>", "<function=", "<parameter="),
        separator="\n",
    ),
    ToolFormat(
        name="glm4",
        start_marker="<tool_call>",
        end_marker="</tool_call>",
        syntax=TaggedCalls(
            key_begin="<arg_key>",
            key_end="</arg_key>",
            value_begin="<arg_value>",
            value_end="</arg_value>",
            marks=("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
        ),
        signature=("<tool_call>", "<arg_key>"),
        separator="\n",
    ),
    # Mistral's first form, a JSON list; its template refuses ids of another length.
    ToolFormat(
        name="mistral",
        start_marker="[TOOL_CALLS]",
        end_marker="",
        syntax=JsonCalls(between="[,]", before=" [", separator=", ", after="]"),
        signature=("[TOOL_CALLS]",),
        excludes=("[ARGS]", "[CALL_ID]"),
        id_prefix="",
        id_length=9,
    ),
    # Mistral's later forms, with the mark before every call.
    ToolFormat(
        name="mistral_named",
        start_marker="[TOOL_CALLS]",
        end_marker="",
        syntax=NamedJsonCalls("[ARGS]", id_mark="[CALL_ID]", marks=("[ARGS]", "[CALL_ID]")),
        signature=("[TOOL_CALLS]", "[ARGS]"),
        separator="",
        id_prefix="",
        id_length=9,
    ),
    ToolFormat(
        name="llama3",
        start_marker="<|python_tag|>",
        end_marker="",
        syntax=JsonCalls(between=";", separator="; ", arguments_key="parameters"),
        signature=('{"name": function name, "parameters":',),
        marker_optional=True,
    ),
    # LFM 2, whose template shows the marks of tools only, and 2.5, which shows those of calls.
    *(
        ToolFormat(
            name=name,
            start_marker="<|tool_call_start|>",
            end_marker="<|tool_call_end|>",
            syntax=PythonicCalls(),
            signature=(mark,),
        )
        for name, mark in (("lfm2", "<|tool_list_start|>"), ("lfm2.5", "<|tool_call_start|>"))
    ),
    # Llama 3.2 and 4 and ToolACE, where the template asks for it.
    ToolFormat(
        name="pythonic",
        start_marker="<|python_start|>",
        end_marker="<|python_end|>",
        syntax=PythonicCalls(),
        signature=("[func_name1(",),
        marker_optional=True,
    ),
    # Gorilla's, where the mark that tells of functions also begins each call.
    ToolFormat(
        name="gorilla",
        start_marker="<<function>>",
        end_marker="",
        syntax=PythonicCalls(is_list=False),
        signature=("<<function>>{function_string}",),
        separator="",
    ),
    # DeepSeek V3 and R1.
    ToolFormat(
        name="deepseek_v3",
        start_marker="<｜tool▁calls▁begin｜>",
        end_marker="<｜tool▁calls▁end｜>",
        syntax=NamedJsonCalls(
            "\n```json\n",
            opens=f"{_CALL_BEGIN}function{_SEPARATOR}",
            arguments_end="\n```",
            closes=_CALL_END,
            separator="\n",
            repeats=True,
            marks=(_CALL_BEGIN, _CALL_END, _SEPARATOR),
        ),
        signature=("<｜tool▁calls▁begin｜>", "```json"),
    ),
    ToolFormat(
        name="deepseek_v3.1",
        start_marker="<｜tool▁calls▁begin｜>",
        end_marker="<｜tool▁calls▁end｜>",
        syntax=NamedJsonCalls(
            _SEPARATOR,
            opens=_CALL_BEGIN,
            closes=_CALL_END,
            repeats=True,
            marks=(_CALL_BEGIN, _CALL_END, _SEPARATOR),
        ),
        signature=("<｜tool▁calls▁begin｜>", _SEPARATOR),
        excludes=("```json",),
    ),
)


def find_tool_format(template_source: str) -> ToolFormat | None:
    """The form that a chat template teaches; None if it is none of ours."""
    for tool_format in TOOL_FORMATS:
        if all(text in template_source for text in tool_format.signature) and not any(
            text in template_source for text in tool_format.excludes
        ):
            return tool_format

    return None
