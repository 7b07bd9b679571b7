"""Tests of `GrammarCache`."""

from __future__ import annotations

import pytest
from anyio import create_task_group, fail_after

from aiomlc.errors import GrammarError
from aiomlc.runtime.grammar.cache import GrammarCache
from aiomlc.runtime.grammar.grammar import Grammar
from tests.unit.runtime.grammar.counting_compiler import CountingCompiler

pytestmark = pytest.mark.timeout(20)


async def test_a_grammar_is_compiled_once() -> None:
    compiler = CountingCompiler()
    cache = GrammarCache(lambda: compiler)

    for source in ("a", "b", "a", "b"):
        assert await cache.compile(Grammar("regex", source)) == source

    assert [grammar.source for grammar in compiler.compiled] == ["a", "b"]


async def test_the_cache_keeps_recently_used_grammars() -> None:
    compiler = CountingCompiler()
    cache = GrammarCache(lambda: compiler)

    for number in range(200):
        await cache.compile(Grammar("regex", "often"))
        await cache.compile(Grammar("regex", f"{number}"))

    assert [grammar.source for grammar in compiler.compiled].count("often") == 1


async def test_the_compiler_is_created_once_and_failures_are_not_cached() -> None:
    created: list[CountingCompiler] = []

    def create_compiler() -> CountingCompiler:
        created.append(CountingCompiler())
        return created[-1]

    cache = GrammarCache(create_compiler)
    with fail_after(10):
        async with create_task_group() as tasks:
            for source in "abcdef":
                tasks.start_soon(cache.compile, Grammar("regex", source))

        with pytest.raises(GrammarError):
            await cache.compile(Grammar("regex", "("))

        with pytest.raises(GrammarError):
            await cache.compile(Grammar("regex", "("))

    assert len(created) == 1
