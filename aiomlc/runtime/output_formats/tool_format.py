"""The tool-call formats of model families, as data for one parser and one grammar builder."""

# ruff: noqa: RUF001 - DeepSeek's markers contain characters that look like ASCII.

from __future__ import annotations

__all__ = ("TOOL_FORMATS", "ToolFormat", "find_tool_format", "has_signature")

from dataclasses import dataclass

from aiomlc.runtime.output_formats.tool_syntax.gemma4_calls import Gemma4Calls
from aiomlc.runtime.output_formats.tool_syntax.json_calls import JsonCalls
from aiomlc.runtime.output_formats.tool_syntax.named_json import NamedJsonCalls
from aiomlc.runtime.output_formats.tool_syntax.pythonic_calls import PythonicCalls
from aiomlc.runtime.output_formats.tool_syntax.syntax import ToolSyntax
from aiomlc.runtime.output_formats.tool_syntax.tagged_calls import TaggedCalls


@dataclass(frozen=True, slots=True)
class ToolFormat:
    """A tool-call syntax and the markers around it.

    A model uses the format in which its chat template writes a call. A template that writes none
    has the first format of `TOOL_FORMATS` whose `signature` strings all occur in it and none of
    whose `excludes` strings do.
    """

    name: str
    start_marker: str
    end_marker: str  #: Empty if the calls extend to the end of the completion.
    syntax: ToolSyntax
    signature: tuple[str, ...]
    excludes: tuple[str, ...] = ()
    #: Text between calls that each have their own markers; None if all calls share one pair.
    separator: str | None = None
    opening: str = ""  #: Text that may stand between the start marker and the first call.
    #: Whether a completion may also start with a call that lacks the start marker.
    marker_optional: bool = False
    id_prefix: str = "call_"
    id_length: int = 24  #: Number of characters after `id_prefix`.

    @property
    def markers(self) -> tuple[str, ...]:
        """Strings that detokenization must keep even if they are special tokens."""
        return tuple(
            marker
            for marker in (self.start_marker, self.end_marker, *self.syntax.markers)
            if marker
        )


# DeepSeek's markers of a single call.
_CALL_BEGIN = "<｜tool▁call▁begin｜>"
_CALL_END = "<｜tool▁call▁end｜>"
_SEPARATOR = "<｜tool▁sep｜>"

TOOL_FORMATS = (
    # Hermes, Qwen 2.5, Qwen 3 and the bundled model. Excluded are formats with XML between the
    # same markers.
    ToolFormat(
        name="hermes",
        start_marker="<tool_call>",
        end_marker="</tool_call>",
        syntax=JsonCalls(prefix="\n", suffix="\n"),
        signature=("<tool_call>",),
        excludes=("<function=", "<arg_key>"),
        separator="\n",
    ),
    ToolFormat(
        name="qwen3_coder",
        start_marker="<tool_call>",
        end_marker="</tool_call>",
        syntax=TaggedCalls(
            call_prefix="<function=",
            name_end=">",
            key_start="<parameter=",
            key_end=">",
            value_end="</parameter>",
            call_suffix="</function>",
            padding="\n",
            prefix="\n",
            suffix="\n",
        ),
        signature=("<tool_call>", "<function=", "<parameter="),
        separator="\n",
    ),
    ToolFormat(
        name="glm4",
        start_marker="<tool_call>",
        end_marker="</tool_call>",
        syntax=TaggedCalls(
            key_start="<arg_key>",
            key_end="</arg_key>",
            value_start="<arg_value>",
            value_end="</arg_value>",
            markers=("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
        ),
        signature=("<tool_call>", "<arg_key>"),
        separator="\n",
    ),
    ToolFormat(
        name="seed_oss",
        start_marker="<seed:tool_call>",
        end_marker="</seed:tool_call>",
        syntax=TaggedCalls(
            call_prefix="<function=",
            name_end=">",
            key_start="<parameter=",
            key_end=">",
            value_end="</parameter>",
            call_suffix="</function>",
            prefix="\n",
            suffix="\n",
        ),
        signature=("<seed:tool_call>", "<function="),
        separator="\n",
    ),
    ToolFormat(
        name="gemma4",
        start_marker="<|tool_call>",
        end_marker="<tool_call|>",
        syntax=Gemma4Calls(),
        signature=("<|tool_call>", "<tool_call|>"),
        separator="",
    ),
    # Granite 3, whose template describes the format but writes no calls.
    ToolFormat(
        name="granite",
        start_marker="<|tool_call|>",
        end_marker="",
        syntax=JsonCalls(delimiters="[,]", prefix="[", separator=", ", suffix="]"),
        signature=("<|tool_call|>", "JSON list"),
    ),
    # Command R and R+. A call to `directly-answer`, which the template offers, is no call.
    ToolFormat(
        name="command_r",
        start_marker="Action:",
        end_marker="",
        syntax=JsonCalls(
            delimiters="`[,]",
            prefix="\n```json\n[\n    ",
            separator=",\n    ",
            suffix="\n]```",
            name_key="tool_name",
            arguments_key="parameters",
            ignored=("directly-answer", "directly_answer"),
        ),
        signature=("followed by a json-formatted list of actions",),
        opening="json",
    ),
    # Mistral's first format, a JSON list. Its template rejects ids of any other length.
    ToolFormat(
        name="mistral",
        start_marker="[TOOL_CALLS]",
        end_marker="",
        syntax=JsonCalls(delimiters="[,]", prefix=" [", separator=", ", suffix="]"),
        signature=("[TOOL_CALLS]",),
        excludes=("[ARGS]", "[CALL_ID]"),
        id_prefix="",
        id_length=9,
    ),
    # Mistral's later formats, with the start marker before every call.
    ToolFormat(
        name="mistral_named",
        start_marker="[TOOL_CALLS]",
        end_marker="",
        syntax=NamedJsonCalls("[ARGS]", id_marker="[CALL_ID]", markers=("[ARGS]", "[CALL_ID]")),
        signature=("[TOOL_CALLS]", "[ARGS]"),
        separator="",
        id_prefix="",
        id_length=9,
    ),
    ToolFormat(
        name="llama3",
        start_marker="<|python_tag|>",
        end_marker="",
        syntax=JsonCalls(delimiters=";", separator="; ", arguments_key="parameters"),
        signature=('{"name": function name, "parameters":',),
        marker_optional=True,
    ),
    # The template of LFM 2 contains only the markers of the tool list, that of LFM 2.5 those of
    # the calls.
    *(
        ToolFormat(
            name=name,
            start_marker="<|tool_call_start|>",
            end_marker="<|tool_call_end|>",
            syntax=PythonicCalls(),
            signature=(marker,),
        )
        for name, marker in (("lfm2", "<|tool_list_start|>"), ("lfm2.5", "<|tool_call_start|>"))
    ),
    # Llama 3.2, Llama 4 and ToolACE, if the template asks for this format.
    ToolFormat(
        name="pythonic",
        start_marker="<|python_start|>",
        end_marker="<|python_end|>",
        syntax=PythonicCalls(),
        signature=("[func_name1(",),
        marker_optional=True,
    ),
    # Gorilla, whose prompts introduce the list of functions with the same marker.
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
            call_prefix=f"{_CALL_BEGIN}function{_SEPARATOR}",
            arguments_end="\n```",
            call_suffix=_CALL_END,
            separator="\n",
            allows_multiple=True,
            markers=(_CALL_BEGIN, _CALL_END, _SEPARATOR),
        ),
        signature=("<｜tool▁calls▁begin｜>", "```json"),
    ),
    ToolFormat(
        name="deepseek_v3.1",
        start_marker="<｜tool▁calls▁begin｜>",
        end_marker="<｜tool▁calls▁end｜>",
        syntax=NamedJsonCalls(
            _SEPARATOR,
            call_prefix=_CALL_BEGIN,
            call_suffix=_CALL_END,
            allows_multiple=True,
            markers=(_CALL_BEGIN, _CALL_END, _SEPARATOR),
        ),
        signature=("<｜tool▁calls▁begin｜>", _SEPARATOR),
        excludes=("```json",),
    ),
)


def find_tool_format(template_source: str) -> ToolFormat | None:
    """Return the first known format whose signature a chat template has, or None."""
    return next((each for each in TOOL_FORMATS if has_signature(each, template_source)), None)


def has_signature(tool_format: ToolFormat, template_source: str) -> bool:
    """Whether a chat template has the signature of a format."""
    return all(text in template_source for text in tool_format.signature) and not any(
        text in template_source for text in tool_format.excludes
    )
