"""Tests of `GrammarCache`."""

from __future__ import annotations

import threading
from typing import final

import anyio
import pytest
from anyio import CancelScope, create_task_group, fail_after, wait_all_tasks_blocked

from aiomlc.errors import GrammarError
from aiomlc.runtime.grammar.cache import GrammarCache
from aiomlc.runtime.grammar.grammar import Grammar, json_grammar
from aiomlc.runtime.grammar.trial import Trial
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


@final
class BlockedCompiler:
    """A compiler that blocks until its gate is open."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.num_running = 0
        self.max_running = 0
        self.compiled: list[str] = []
        self._lock = threading.Lock()

    def compile(self, grammar: Grammar) -> object:
        with self._lock:
            self.num_running += 1
            self.max_running = max(self.max_running, self.num_running)
        self.gate.wait()
        with self._lock:
            self.num_running -= 1
            self.compiled.append(grammar.source)
        return grammar.source


async def test_a_cancelled_wait_ends_at_once_and_few_threads_compile() -> None:
    compiler = BlockedCompiler()
    cache = GrammarCache(lambda: compiler)
    try:
        with fail_after(10):
            for number in range(20):
                with CancelScope() as scope:
                    async with create_task_group() as tasks:
                        tasks.start_soon(cache.compile, Grammar("regex", f"{number}"))
                        await wait_all_tasks_blocked()
                        scope.cancel()

                assert scope.cancelled_caught
    finally:
        compiler.gate.set()

    assert await cache.compile(Grammar("regex", "last")) == "last"
    assert compiler.max_running <= 2
    assert len(compiler.compiled) <= 3, "only what had a thread is compiled"


async def test_tasks_wait_for_one_compilation_and_one_may_leave() -> None:
    compiler = BlockedCompiler()
    cache = GrammarCache(lambda: compiler)
    results: list[object] = []

    async def compile_same() -> None:
        results.append(await cache.compile(Grammar("regex", "a")))

    with fail_after(10):
        async with create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(compile_same)
            await wait_all_tasks_blocked()
            with CancelScope() as scope:
                async with create_task_group() as leaving:
                    leaving.start_soon(compile_same)
                    await wait_all_tasks_blocked()
                    scope.cancel()
            compiler.gate.set()

    assert results == ["a"] * 5
    assert compiler.compiled == ["a"]


async def test_an_outcome_that_nobody_waited_for_is_kept() -> None:
    compiler = BlockedCompiler()
    cache = GrammarCache(lambda: compiler)
    with fail_after(10):
        with CancelScope() as scope:
            async with create_task_group() as tasks:
                tasks.start_soon(cache.compile, Grammar("regex", "a"))
                while not compiler.num_running:
                    await wait_all_tasks_blocked()
                scope.cancel()

        compiler.gate.set()
        while not compiler.compiled or compiler.num_running:
            await wait_all_tasks_blocked()
        await wait_all_tasks_blocked()
        assert await cache.compile(Grammar("regex", "a")) == "a"


async def test_an_untyped_failure_reaches_the_waiting_task() -> None:
    class Broken:
        def compile(self, grammar: Grammar) -> object:
            raise LookupError(grammar.source)

    with pytest.raises(LookupError):
        await GrammarCache(Broken).compile(Grammar("regex", "a"))


async def test_a_costly_grammar_is_tried_and_refused_once(monkeypatch: pytest.MonkeyPatch) -> None:
    trials: list[Grammar] = []

    def refuse(trial: Trial) -> int:
        trials.append(trial._grammar)
        raise GrammarError("too complex")

    monkeypatch.setattr(Trial, "run", refuse)
    cache = GrammarCache(CountingCompiler)
    costly = json_grammar({"multipleOf": 3})

    for _ in range(3):
        with pytest.raises(GrammarError, match="too complex"):
            await cache.compile(costly)
        with pytest.raises(GrammarError, match="too complex"):
            cache.compile_blocking(costly)

    assert trials == [costly]


async def test_large_grammars_leave_the_cache_first(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = CountingCompiler()
    cache = GrammarCache(lambda: compiler)
    monkeypatch.setattr(Trial, "run", lambda trial: 60 << 20 if trial.is_needed else 1 << 20)

    for divisor in (2, 3, 4, 5, 6, 2):
        await cache.compile(json_grammar({"multipleOf": divisor}))

    assert len(compiler.compiled) == 6, "four of 60 MB are kept"


async def test_a_large_grammar_is_refused_for_many_choices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cache = GrammarCache(CountingCompiler)
    monkeypatch.setattr(Trial, "run", lambda _: 60 << 20)
    large = json_grammar({"multipleOf": 3})

    assert await cache.compile(large, 4)
    with pytest.raises(GrammarError, match="too complex for 5 choices: each takes about 60 MB"):
        await cache.compile(large, 5)
    with pytest.raises(GrammarError, match="too complex for 128 choices"):
        cache.compile_blocking(large, 128)


def test_a_cache_serves_one_event_loop_after_another() -> None:
    cache = GrammarCache(CountingCompiler)
    for number in range(2):
        for backend in ("asyncio", "trio"):
            grammar = Grammar("regex", f"{backend} {number}")
            assert anyio.run(cache.compile, grammar, backend=backend) == grammar.source
