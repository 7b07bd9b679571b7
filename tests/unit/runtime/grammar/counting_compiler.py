"""A grammar compiler for tests."""

from __future__ import annotations

from aiomlc.errors import GrammarError
from aiomlc.runtime.grammar.grammar import Grammar


class CountingCompiler:
    """A compiler that returns the source and records the compiled grammars."""

    def __init__(self) -> None:
        self.compiled: list[Grammar] = []

    def compile(self, grammar: Grammar) -> object:
        if grammar.source == "(":
            raise GrammarError("unclosed parenthesis")

        self.compiled.append(grammar)
        return grammar.source
