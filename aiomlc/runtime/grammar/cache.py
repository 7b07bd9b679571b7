"""A cache of compiled grammars, which compiles in worker threads."""

from __future__ import annotations

__all__ = ("GrammarCache", "GrammarCompiler")

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Protocol, final

from anyio import CancelScope, CapacityLimiter, Event, to_thread

from aiomlc.errors import GrammarError
from aiomlc.runtime.concurrency.event_loop import running_loop, spawn_system_task
from aiomlc.runtime.grammar.grammar import Grammar
from aiomlc.runtime.grammar.schema_check import check_schemas
from aiomlc.runtime.grammar.trial import Trial
from aiomlc.validation.shortages import shortage_errors

# The maximum number of compiled grammars, and of the bytes that they take.
_CACHE_SIZE = 64
_CACHE_BYTES = 256 << 20
# The maximum number of bytes of the copies that the choices of a request have.
_REQUEST_BYTES = 256 << 20
# The maximum number of threads that compile; costly grammars do not delay the others.
_NUM_THREADS = 2
_NUM_COSTLY_THREADS = 2


class GrammarCompiler(Protocol):
    """A compiler of grammars for one vocabulary."""

    def compile(self, grammar: Grammar) -> object:
        """Return the compiled grammar, for `SequenceOptions.grammar`. Blocks.

        Raises:
            GrammarError: If the grammar is invalid or uses an unsupported feature.
        """
        ...


@final
class GrammarCache:
    """A least-recently-used cache of one model's compiled grammars, shared by event loops.

    Args:
        create_compiler: Returns the compiler; called for the first grammar, in the thread that
            compiles it.
    """

    def __init__(self, create_compiler: Callable[[], GrammarCompiler]) -> None:
        self._create_compiler = create_compiler
        self._compiler: GrammarCompiler | None = None
        self._compiler_lock = Lock()
        self._outcomes: OrderedDict[Grammar, _Outcome] = OrderedDict()
        self._workers: _Workers | None = None

    async def compile(self, grammar: Grammar, num_choices: int = 1) -> object:
        """Return the compiled grammar, for `SequenceOptions.grammar`; compile in a worker thread.

        Tasks that need the same grammar wait for one compilation. A cancelled wait ends at once; a
        compilation that nobody waits for any more is cancelled, or ends within its limits.

        Args:
            num_choices: The number of sequences that will have a copy of it.

        Raises:
            GrammarError: If the grammar is invalid, uses an unsupported feature, or is too complex,
                alone or for this number of choices.
            RequestFailedError: If the compilation cannot be started.
        """
        outcome = self._outcomes.get(grammar)
        if outcome is None:
            outcome = await self._workers_here().compile(grammar)

        return self._use(grammar, outcome, num_choices)

    def compile_blocking(self, grammar: Grammar, num_choices: int = 1) -> object:
        """Return the compiled grammar like `compile`, but compile in the calling thread.

        Raises:
            GrammarError: As `compile`.
            RequestFailedError: As `compile`.
        """
        outcome = self._outcomes.get(grammar)
        if outcome is None:
            outcome = self._compile(grammar, Trial(grammar))

        return self._use(grammar, outcome, num_choices)

    def _use(self, grammar: Grammar, outcome: _Outcome, num_choices: int) -> object:
        self._keep(grammar, outcome)
        if outcome.refusal is not None:
            raise GrammarError(outcome.refusal)
        if outcome.num_bytes * num_choices > _REQUEST_BYTES:
            raise GrammarError(
                f"the grammar is too complex for {num_choices} choices: each takes about "
                f"{outcome.num_bytes >> 20} MB, and together they may take {_REQUEST_BYTES >> 20}"
            )

        return outcome.compiled

    def _keep(self, grammar: Grammar, outcome: _Outcome) -> None:
        self._outcomes[grammar] = outcome
        self._outcomes.move_to_end(grammar)
        num_bytes = sum(kept.num_bytes for kept in self._outcomes.values())
        while len(self._outcomes) > _CACHE_SIZE or num_bytes > _CACHE_BYTES:
            num_bytes -= self._outcomes.popitem(last=False)[1].num_bytes

    def _compile(self, grammar: Grammar, trial: Trial) -> _Outcome:
        check_schemas(grammar)
        try:
            num_bytes = trial.run()
            return _Outcome(self._create_compiler_once().compile(grammar), num_bytes)
        except GrammarError as error:
            if not trial.is_needed:
                raise

            return _Outcome(refusal=str(error))

    def _create_compiler_once(self) -> GrammarCompiler:
        with self._compiler_lock:
            if self._compiler is None:
                self._compiler = self._create_compiler()

        return self._compiler

    def _workers_here(self) -> _Workers:
        if self._workers is None or self._workers.event_loop is not running_loop():
            self._workers = _Workers(self._compile, self._keep)

        return self._workers


@dataclass(frozen=True, slots=True)
class _Outcome:
    """The outcome of a compilation. A grammar that may be costly is not refused anew each time."""

    compiled: object = None
    num_bytes: int = 0
    refusal: str | None = None


@final
class _Workers:
    """The compilations in one event loop.

    Args:
        keep: Called with each outcome, also if nobody waits for it any more.
    """

    def __init__(
        self,
        compile_grammar: Callable[[Grammar, Trial], _Outcome],
        keep: Callable[[Grammar, _Outcome], None],
    ) -> None:
        self._compile_grammar = compile_grammar
        self._keep = keep
        self.event_loop = running_loop()
        self._limiter = CapacityLimiter(_NUM_THREADS)
        self._costly_limiter = CapacityLimiter(_NUM_COSTLY_THREADS)
        self._running: dict[Grammar, _Compilation] = {}

    async def compile(self, grammar: Grammar) -> _Outcome:
        """Wait for the outcome of a grammar's compilation, which is started unless it runs."""
        compilation = self._running.get(grammar)
        if compilation is None or compilation.is_cancelled:
            compilation = self._running[grammar] = self._start(grammar)

        try:
            return await compilation.wait()
        finally:
            if compilation.is_over and self._running.get(grammar) is compilation:
                del self._running[grammar]

    def _start(self, grammar: Grammar) -> _Compilation:
        trial = Trial(grammar)
        return _Compilation(
            partial(self._compile_grammar, grammar, trial),
            partial(self._keep, grammar),
            trial,
            self._costly_limiter if trial.is_needed else self._limiter,
        )


@final
class _Compilation:
    """A compilation in a worker thread, for any number of tasks.

    It runs in a system task: the tasks that wait for it can be cancelled, and its thread cannot.
    """

    def __init__(
        self,
        compile_here: Callable[[], _Outcome],
        keep: Callable[[_Outcome], None],
        trial: Trial,
        limiter: CapacityLimiter,
    ) -> None:
        self._compile_here = compile_here
        self._keep = keep
        self._trial = trial
        self._limiter = limiter
        self._scope = CancelScope()
        self._has_ended = Event()
        self._num_waiting = 0
        self._outcome: _Outcome | None = None
        self._error: Exception | None = None
        self._task = spawn_system_task(self._run, name="aiomlc grammar")

    @property
    def is_cancelled(self) -> bool:
        """Whether the compilation was cancelled, so that it may have no outcome."""
        return self._scope.cancel_called

    @property
    def is_over(self) -> bool:
        """Whether no task needs to find this compilation any more."""
        return self.is_cancelled or self._has_ended.is_set()

    async def wait(self) -> _Outcome:
        """Return the outcome, or raise its error."""
        self._num_waiting += 1
        try:
            await self._has_ended.wait()
        finally:
            self._num_waiting -= 1
            if self._num_waiting == 0:
                self._cancel()

        if self._error is not None:
            raise self._error

        assert self._outcome is not None, "a compilation without a waiter is the only cancelled one"
        return self._outcome

    def _cancel(self) -> None:
        self._scope.cancel()
        self._trial.cancel()

    async def _run(self) -> None:
        try:
            with self._scope:
                with shortage_errors():
                    self._outcome = await to_thread.run_sync(
                        self._compile_here, limiter=self._limiter
                    )
                self._keep(self._outcome)
        except Exception as error:  # noqa: BLE001 - raised to the tasks that wait.
            self._error = error
        finally:
            self._trial.cancel()  # The event loop may end before the thread.
            self._has_ended.set()
