"""What an answer must be: grammars, compiled beside the event loop and each only once."""

from __future__ import annotations

__all__ = (
    "Grammar",
    "GrammarCache",
    "GrammarCompiler",
    "json_grammar",
    "lark_json",
    "lark_text",
    "tagged_grammar",
)

import json
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, Literal, Protocol, final

from anyio import to_thread

# Of compiled grammars; one takes from some kilobytes to a few megabytes.
_CACHE_SIZE = 64
# How JSON is laid out. With one layout only, most of what is not a value is forced.
_LAYOUT = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


@dataclass(frozen=True, slots=True)
class Grammar:
    """The texts that are allowed, in a language of llguidance's."""

    kind: Literal["json_schema", "regex", "lark", "llguidance"]
    source: str


class GrammarCompiler(Protocol):
    """Compile for one vocabulary; blocks."""

    def compile(self, grammar: Grammar) -> object:
        """What `SequenceOptions.grammar` takes.

        Raises:
            GrammarError: it is no grammar, or uses what is not supported.
        """


@final
class GrammarCache:
    """The compiled grammars of one model. May be shared by event loops."""

    def __init__(self, open_compiler: Callable[[], GrammarCompiler]) -> None:
        """`open_compiler` is called with the first grammar, in a worker thread."""
        self._open_compiler = open_compiler
        self._compiler: GrammarCompiler | None = None
        self._opening = Lock()
        self._compiled: OrderedDict[Grammar, object] = OrderedDict()

    async def compile(self, grammar: Grammar) -> object:
        """The compiled form, for `SequenceOptions.grammar`.

        Raises:
            GrammarError: it is no grammar, or uses what is not supported.
        """
        compiled = self._compiled.get(grammar)
        if compiled is None:
            compiled = await to_thread.run_sync(self._compile, grammar, abandon_on_cancel=True)

        return self._keep(grammar, compiled)

    def compile_now(self, grammar: Grammar) -> object:
        """As `compile`, in the calling thread, for callers without an event loop."""
        compiled = self._compiled.get(grammar)
        return self._keep(grammar, self._compile(grammar) if compiled is None else compiled)

    def _keep(self, grammar: Grammar, compiled: object) -> object:
        self._compiled[grammar] = compiled
        self._compiled.move_to_end(grammar)
        while len(self._compiled) > _CACHE_SIZE:
            self._compiled.popitem(last=False)

        return compiled

    def _compile(self, grammar: Grammar) -> object:
        with self._opening:
            if self._compiler is None:
                self._compiler = self._open_compiler()

        return self._compiler.compile(grammar)


def json_grammar(schema: Mapping[str, Any]) -> Grammar:
    """JSON that a schema describes, on one line, in the order of the schema's properties."""
    return Grammar("json_schema", json.dumps(_with_layout(schema)))


def lark_json(schema: Mapping[str, Any]) -> str:
    """JSON that a schema describes, as a part of a rule."""
    return "%json " + json.dumps(_with_layout(schema))


def lark_text(text: str, token_id: int | None = None) -> str:
    """A fixed text as a part of a rule; by its token where that is a special one."""
    if token_id is not None:
        return f"<[{token_id}]>"

    return json.dumps(text, ensure_ascii=False) if text else ""


def tagged_grammar(
    structures: Sequence[tuple[str, Mapping[str, Any], str]],
    triggers: Sequence[str],
    special_id: Callable[[str], int | None],
) -> Grammar:
    """Any text, in which a trigger begins one of the structures.

    Args:
        structures: What begins each, the schema of its JSON, and what ends it.
        triggers: Beginnings of what begins the structures; every one of those has one.
        special_id: The id of a special token by its text; such a token is matched as a whole.
    """
    rules = ["start: (" + " | ".join(f"tag_{i}" for i in range(len(triggers))) + ")* rest"]
    rules += ["rest: TEXT", r"TEXT: /(.|\n)*/"]
    for number, trigger in enumerate(triggers):
        bodies = " | ".join(
            " ".join((lark_text(begin.removeprefix(trigger)), lark_json(schema), lark_text(end)))
            for begin, schema, end in structures
            if begin.startswith(trigger)
        )
        token_id = special_id(trigger)
        if token_id is None:
            rules.append(f"head_{number}[lazy]: TEXT {lark_text(trigger)}")
            head = f"head_{number}"
        else:
            head = f"TEXT {lark_text(trigger, token_id)}"

        rules.append(f"tag_{number}: {head} ({bodies})")

    return Grammar("lark", "\n".join(rules))


def _with_layout(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"x-guidance": _LAYOUT, **schema}
