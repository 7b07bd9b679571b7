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

    The format of a model is the first whose `shown` are all in its chat template and whose
    `absent` are not.
    """

    name: str
    begin: str
    end: str  #: Empty: the calls last to the end of the answer.
    syntax: ToolSyntax
    shown: tuple[str, ...]
    absent: tuple[str, ...] = ()
    joint: str | None = None  #: Between calls with marks of their own; None: there is one pair.
    bare: bool = False  #: An answer may also begin with a call, without the mark.
    id_prefix: str = "call_"
    id_length: int = 24  #: Characters after the prefix.

    @property
    def marks(self) -> tuple[str, ...]:
        """The marks, which the text must show even where the vocabulary calls them special."""
        return tuple(mark for mark in (self.begin, self.end, *self.syntax.marks) if mark)


# DeepSeek's.
_CALL_BEGIN = "<｜tool▁call▁begin｜>"
_CALL_END = "<｜tool▁call▁end｜>"
_SEPARATOR = "<｜tool▁sep｜>"

TOOL_FORMATS = (
    # Hermes, Qwen 2.5 and 3, and the bundled model. Others put XML between the same marks.
    ToolFormat(
        name="hermes",
        begin="<tool_call>",
        end="</tool_call>",
        syntax=JsonCalls(before="\n", after="\n"),
        shown=("<tool_call>",),
        absent=("<function=", "<arg_key>"),
        joint="\n",
    ),
    ToolFormat(
        name="qwen3_coder",
        begin="<tool_call>",
        end="</tool_call>",
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
        shown=("<tool_call>", "<function=", "<parameter="),
        joint="\n",
    ),
    ToolFormat(
        name="glm4",
        begin="<tool_call>",
        end="</tool_call>",
        syntax=TaggedCalls(
            key_begin="<arg_key>",
            key_end="</arg_key>",
            value_begin="<arg_value>",
            value_end="</arg_value>",
            marks=("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
        ),
        shown=("<tool_call>", "<arg_key>"),
        joint="\n",
    ),
    # Mistral's first form, a JSON list; its template refuses ids of another length.
    ToolFormat(
        name="mistral",
        begin="[TOOL_CALLS]",
        end="",
        syntax=JsonCalls(between="[,]", before=" [", separator=", ", after="]"),
        shown=("[TOOL_CALLS]",),
        absent=("[ARGS]", "[CALL_ID]"),
        id_prefix="",
        id_length=9,
    ),
    # Mistral's later forms, with the mark before every call.
    ToolFormat(
        name="mistral_named",
        begin="[TOOL_CALLS]",
        end="",
        syntax=NamedJsonCalls("[ARGS]", id_mark="[CALL_ID]", marks=("[ARGS]", "[CALL_ID]")),
        shown=("[TOOL_CALLS]", "[ARGS]"),
        joint="",
        id_prefix="",
        id_length=9,
    ),
    ToolFormat(
        name="llama3",
        begin="<|python_tag|>",
        end="",
        syntax=JsonCalls(between=";", separator="; ", arguments_key="parameters"),
        shown=('{"name": function name, "parameters":',),
        bare=True,
    ),
    # LFM 2, whose template shows the marks of tools only, and 2.5, which shows those of calls.
    *(
        ToolFormat(
            name=name,
            begin="<|tool_call_start|>",
            end="<|tool_call_end|>",
            syntax=PythonicCalls(),
            shown=(mark,),
        )
        for name, mark in (("lfm2", "<|tool_list_start|>"), ("lfm2.5", "<|tool_call_start|>"))
    ),
    # Llama 3.2 and 4 and ToolACE, where the template asks for it.
    ToolFormat(
        name="pythonic",
        begin="<|python_start|>",
        end="<|python_end|>",
        syntax=PythonicCalls(),
        shown=("[func_name1(",),
        bare=True,
    ),
    # Gorilla's, where the mark that tells of functions also begins each call.
    ToolFormat(
        name="gorilla",
        begin="<<function>>",
        end="",
        syntax=PythonicCalls(is_list=False),
        shown=("<<function>>{function_string}",),
        joint="",
    ),
    # DeepSeek V3 and R1.
    ToolFormat(
        name="deepseek_v3",
        begin="<｜tool▁calls▁begin｜>",
        end="<｜tool▁calls▁end｜>",
        syntax=NamedJsonCalls(
            "\n```json\n",
            opens=f"{_CALL_BEGIN}function{_SEPARATOR}",
            arguments_end="\n```",
            closes=_CALL_END,
            separator="\n",
            repeats=True,
            marks=(_CALL_BEGIN, _CALL_END, _SEPARATOR),
        ),
        shown=("<｜tool▁calls▁begin｜>", "```json"),
    ),
    ToolFormat(
        name="deepseek_v3.1",
        begin="<｜tool▁calls▁begin｜>",
        end="<｜tool▁calls▁end｜>",
        syntax=NamedJsonCalls(
            _SEPARATOR,
            opens=_CALL_BEGIN,
            closes=_CALL_END,
            repeats=True,
            marks=(_CALL_BEGIN, _CALL_END, _SEPARATOR),
        ),
        shown=("<｜tool▁calls▁begin｜>", _SEPARATOR),
        absent=("```json",),
    ),
)


def find_tool_format(template_source: str) -> ToolFormat | None:
    """The form that a chat template teaches; None if it is none of ours."""
    for tool_format in TOOL_FORMATS:
        if all(text in template_source for text in tool_format.shown) and not any(
            text in template_source for text in tool_format.absent
        ):
            return tool_format

    return None
