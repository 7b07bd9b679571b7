"""Matching of text against a grammar with llguidance, as a reference."""

from __future__ import annotations

__all__ = ("SPECIAL", "allows")

from llguidance import LLMatcher, LLTokenizer

from aiomlc.runtime.grammar.grammar import Grammar

SPECIAL = 0xFF  #: A token that does not occur in text.


def allows(grammar: Grammar, text: str | bytes) -> bool:
    """Return whether a grammar accepts a complete output, of which each byte is a token."""
    tokens = text.encode() if isinstance(text, str) else text
    matcher = LLMatcher(LLTokenizer("byte"), _source(grammar))
    assert not matcher.get_error(), matcher.get_error()
    consumed: int = matcher.try_consume_tokens(list(tokens))
    return consumed == len(tokens) and bool(matcher.is_accepting())


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
