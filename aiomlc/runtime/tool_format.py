"""The forms in which models write calls of tools: data, by which one parser reads them all."""

from __future__ import annotations

__all__ = ("TOOL_FORMATS", "ToolFormat", "find_tool_format")

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ToolFormat:
    """Calls are JSON objects with `name` and `arguments` (or `parameters`), between two marks.

    The format of a model is the first whose `shown` are all in its chat template and whose
    `absent` are not.
    """

    name: str
    begin: str
    end: str  #: Empty: the calls last to the end of the answer.
    shown: tuple[str, ...]
    absent: tuple[str, ...] = ()
    between: str = ""  #: Characters, besides whitespace, that may stand around the objects.
    bare: bool = False  #: An answer may also begin with a call, without the mark.
    id_prefix: str = "call_"
    id_length: int = 24  #: Characters after the prefix.

    @property
    def marks(self) -> tuple[str, ...]:
        """The marks, which the text must show even where the vocabulary calls them special."""
        return tuple(mark for mark in (self.begin, self.end) if mark)


TOOL_FORMATS = (
    # Hermes, Qwen 2.5 and 3, and the bundled model. Others put XML between the same marks.
    ToolFormat(
        name="hermes",
        begin="<tool_call>",
        end="</tool_call>",
        shown=("<tool_call>",),
        absent=("<function=", "<arg_key>"),
    ),
    # Mistral's first form, a JSON list; its template refuses ids of another length.
    ToolFormat(
        name="mistral",
        begin="[TOOL_CALLS]",
        end="",
        shown=("[TOOL_CALLS]",),
        absent=("[ARGS]", "[CALL_ID]"),
        between="[,]",
        id_prefix="",
        id_length=9,
    ),
    ToolFormat(
        name="llama3",
        begin="<|python_tag|>",
        end="",
        shown=('{"name": function name, "parameters":',),
        between=";",
        bare=True,
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
