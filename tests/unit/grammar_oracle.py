"""What llguidance itself says of a text under a grammar."""

from __future__ import annotations

__all__ = ("SPECIAL", "allows")

from llguidance import LLMatcher, LLTokenizer

from aiomlc.runtime.grammar.grammar import Grammar

SPECIAL = 0xFF  #: A token that no text has.


def allows(grammar: Grammar, text: str | bytes) -> bool:
    """Whether `text` is a whole answer; bytes are its tokens."""
    answer = text.encode() if isinstance(text, str) else text
    matcher = LLMatcher(LLTokenizer("byte"), _source(grammar))
    assert not matcher.get_error(), matcher.get_error()
    consumed: int = matcher.try_consume_tokens(list(answer))
    return consumed == len(answer) and bool(matcher.is_accepting())


def _source(grammar: Grammar) -> str:
    match grammar.kind:
        case "json_schema":
            return str(LLMatcher.grammar_from_json_schema(grammar.source))
        case "regex":
            return str(LLMatcher.grammar_from_regex(grammar.source))
        case "lark":
            return str(LLMatcher.grammar_from_lark(grammar.source))
        case "llguidance":
            return grammar.source
