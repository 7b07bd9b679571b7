"""A real engine in which something goes wrong: who is told what, and what is left."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import create_task_group, fail_after, lowlevel

from aiomlc import (
    AiomlcError,
    AsyncMLCEngine,
    EngineConfig,
    EngineDeadError,
    InsufficientMemoryError,
    MLCEngine,
    ModelLoadError,
    RequestFailedError,
)
from aiomlc.api.session.loader import Loader
from aiomlc.runtime.loading.model_directory import find_model
from aiomlc.runtime.loading.open_decoder import open_native
from aiomlc.runtime.native.core import NativeCore
from aiomlc.sampling_params import SequenceOptions
from aiomlc.testing import DEAD_END, Faults, faulty_loader
from tests.model.engine.test_serving import has_native_threads, native_threads

Directory = Callable[[str], Path]
MakeEngine = Callable[..., AsyncMLCEngine]
NUM_READERS = 8


@pytest.fixture
def make_engine(model_cache: Path, tiny_directory: Directory) -> MakeEngine:
    """Engines of a tiny model, with the faults of each opening."""
    directory = tiny_directory("llama")

    def make(*faults: Faults | None, **fields: Any) -> AsyncMLCEngine:  # noqa: ANN401
        config = EngineConfig(quantization="q4f16_1", num_threads=2, **fields)
        return AsyncMLCEngine(directory, engine_config=config, loader=faulty_loader(*faults))

    return make


async def ask(engine: AsyncMLCEngine, seed: int) -> str | AiomlcError:
    try:
        answer = await engine.chat.completions.create(
            messages=[{"role": "user", "content": f"Number {seed}, say something."}],
            max_tokens=20,
            ignore_eos=True,
            seed=seed,
        )
    except AiomlcError as error:
        return error

    return answer.choices[0].message.content or ""


async def ask_all(engine: AsyncMLCEngine) -> list[str | AiomlcError]:
    """What each of some readers at once was told."""
    outcomes: dict[int, str | AiomlcError] = {}

    async def read(seed: int) -> None:
        outcomes[seed] = await ask(engine, seed)

    with fail_after(60):
        async with create_task_group() as tasks:
            for seed in range(NUM_READERS):
                tasks.start_soon(read, seed)

    return [outcomes[seed] for seed in range(NUM_READERS)]


@pytest.mark.parametrize(
    ("faults", "cause"),
    [
        (Faults(fail_at_step=1), "injected fault at step 1"),
        (Faults(fail_at_step=9), "injected fault at step 9"),
        (Faults(allocation_fails_at_step=5), "bad_alloc"),
    ],
)
async def test_a_model_that_fails_tells_every_reader_and_serves_when_reloaded(
    make_engine: MakeEngine, faults: Faults, cause: str
) -> None:
    before = native_threads()
    engine = make_engine(faults)

    outcomes = await ask_all(engine)
    dead = engine.statistics()
    afterwards = await ask(engine, 1)
    with fail_after(60):
        await engine.reload()
    healthy = await ask_all(engine)
    await engine.unload()

    for outcome in [*outcomes, afterwards]:
        assert isinstance(outcome, EngineDeadError)
        assert cause in str(outcome)
    assert dead.free_pages == dead.total_pages
    assert (dead.num_running, dead.num_waiting) == (0, 0)
    assert all(isinstance(outcome, str) for outcome in healthy)
    assert has_native_threads(before)


async def test_a_model_that_fails_ends_the_scope_with_its_error(make_engine: MakeEngine) -> None:
    before = native_threads()

    async def serve() -> None:
        async with make_engine(Faults(fail_at_step=3)) as engine:
            assert isinstance(await ask(engine, 1), EngineDeadError)

    with pytest.raises(EngineDeadError, match="injected fault"):
        await serve()

    assert has_native_threads(before)


@pytest.mark.parametrize("mode", ["disable", "prompt_lookup"])
@pytest.mark.parametrize("step", [1, 2, 7, 15])
async def test_nan_ends_the_request_whose_row_it_is_and_changes_no_other(
    make_engine: MakeEngine, step: int, mode: str
) -> None:
    async with make_engine(speculative_mode=mode) as engine:
        expected = await ask_all(engine)

    async with make_engine(Faults(nan_at_step=step), speculative_mode=mode) as engine:
        outcomes = await ask_all(engine)
        statistics = engine.statistics()
        again = await ask_all(engine)

    failed = [i for i, outcome in enumerate(outcomes) if isinstance(outcome, AiomlcError)]
    assert len(failed) == 1
    error = outcomes[failed[0]]
    assert isinstance(error, RequestFailedError)
    assert "not finite" in str(error)
    assert [outcomes[i] for i in range(NUM_READERS) if i not in failed] == [
        expected[i] for i in range(NUM_READERS) if i not in failed
    ]
    assert statistics.free_pages == statistics.total_pages
    assert again == expected


@pytest.fixture
def small_draft(tiny_directory: Directory) -> dict[str, Any]:
    """Two tokens of a guess in every step, however many sequences there are."""
    return {
        "speculative_mode": "small_draft",
        "additional_models": (str(tiny_directory("llama")),),
        "spec_draft_length": 2,
    }


@pytest.mark.parametrize(
    ("faults", "cause"),
    [
        (Faults(fail_at_step=1), "injected fault at step 1"),
        (Faults(fail_at_step=8), "injected fault at step 8"),
        (Faults(allocation_fails_at_step=5), "bad_alloc"),
    ],
)
async def test_a_draft_that_fails_ends_the_guessing_and_no_request(
    make_engine: MakeEngine,
    small_draft: dict[str, Any],
    caplog: pytest.LogCaptureFixture,
    faults: Faults,
    cause: str,
) -> None:
    async with make_engine() as engine:
        expected = await ask_all(engine)

    engine = make_engine(Faults(draft=faults), enable_tracing=True, **small_draft)
    async with engine:
        outcomes = await ask_all(engine)
        again = await ask_all(engine)
        statistics, metrics, trace = engine.statistics(), await engine.metrics(), engine.trace()
        await engine.reload()
        healthy = await ask_all(engine)
        reloaded = engine.statistics()

    assert outcomes == again == healthy == expected
    assert cause in (statistics.speculation_failure or "")
    assert statistics.draft_failures == metrics["draft_failures_sum"] == 1
    assert statistics.free_pages == statistics.total_pages
    failures = [event for event in trace["traceEvents"] if event["name"] == "draft failed"]
    assert [event["tid"] for event in failures] == [0]
    (warning,) = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
    assert "speculative decoding is disabled" in warning
    assert cause in warning
    assert reloaded.speculation_failure is None
    assert reloaded.verified_drafts > 0


async def test_a_draft_that_is_nan_ends_the_guesses_of_one_sequence(
    make_engine: MakeEngine, small_draft: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    async with make_engine() as engine:
        expected = await ask_all(engine)

    async with make_engine(Faults(draft=Faults(nan_at_step=3)), **small_draft) as engine:
        outcomes = await ask_all(engine)
        once = engine.statistics()

    async with make_engine(Faults(draft=Faults(nan_every=1)), **small_draft) as engine:
        outcomes_too = await ask_all(engine)
        often = engine.statistics()

    assert outcomes == outcomes_too == expected
    assert (once.draft_failures, once.speculation_failure) == (1, None)
    assert once.verified_drafts > often.verified_drafts
    assert 0 < often.draft_failures <= NUM_READERS
    warnings = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
    assert len(warnings) == 2, "one of each engine"


@pytest.mark.parametrize("faults", [Faults(fail_at_step=4), Faults(nan_every=1)])
def test_a_draft_that_fails_gives_its_pages_back(
    model_cache: Path, tiny_directory: Directory, small_draft: dict[str, Any], faults: Faults
) -> None:
    config = EngineConfig(quantization="q4f16_1", num_threads=2, **small_draft)
    opened = anyio.run(
        open_native,
        find_model(tiny_directory("llama")),
        "auto",
        "local",
        config,
        lambda progress: None,
        Faults(draft=faults),
    )
    assert opened.draft is not None
    before = opened.draft.free_pages()
    options = {
        "step_token_budget": 64,
        "max_recycling_sequences": 0,
        "max_queue_size": 8,
        "separate_prefill": 0,
        "speculative_mode": 2,  # small_draft.
        "draft_length": 2,
    }
    core = NativeCore(opened.native, [b"."] * opened.vocab_size, options, draft=opened.draft)
    for first in range(3):
        core.submit([first] * 20, SequenceOptions(max_tokens=20))
    while core.statistics().draft_failures == 0:
        assert core.step(), "nothing failed"
    while core.step():
        pass
    free_pages = opened.draft.free_pages()
    core.close()
    core.release()

    assert free_pages == before


async def test_readers_that_fail_and_never_read_leave_nothing(make_engine: MakeEngine) -> None:
    async with make_engine(Faults(nan_every=2), max_unread_tokens=4) as engine:
        streams = [
            await engine.chat.completions.create(
                messages=[{"role": "user", "content": f"Say {seed}."}],
                ignore_eos=True,
                stream=True,
                max_tokens=100,
            )
            for seed in range(NUM_READERS)
        ]
        with fail_after(60):
            while engine.statistics().num_running + engine.statistics().num_waiting > 0:
                await lowlevel.checkpoint()
        for stream in streams:
            stream.close()

        with fail_after(60):
            while engine.statistics().free_pages < engine.statistics().total_pages:
                await lowlevel.checkpoint()

        statistics = engine.statistics()

    assert statistics.num_paused == 0
    assert statistics.finished["error"] > 0


async def test_a_grammar_that_cannot_continue_fails_alone(make_engine: MakeEngine) -> None:
    async with make_engine() as engine:
        expected = await ask_all(engine)
        outcomes: list[str | AiomlcError] = []

        async def ask_beside() -> None:
            outcomes.extend(await ask_all(engine))

        async with create_task_group() as tasks:
            tasks.start_soon(ask_beside)
            with pytest.raises(RequestFailedError, match="the grammar cannot continue"):
                await engine.chat.completions.create(
                    messages=[{"role": "user", "content": "Hello"}],
                    response_format=DEAD_END,
                )

    assert outcomes == expected


async def test_a_cache_that_cannot_be_had_is_said_while_opening(make_engine: MakeEngine) -> None:
    before = native_threads()
    engine = make_engine(Faults(allocation_fails_at_load=True))

    with pytest.raises(InsufficientMemoryError, match="cannot be allocated") as caught:
        await engine.chat.completions.create(messages=[{"role": "user", "content": "Hello"}])

    assert isinstance(caught.value, ModelLoadError)
    assert str(caught.value.plan) in str(caught.value)
    assert has_native_threads(before)
    assert isinstance(await ask(engine, 1), str)  # The next try finds room.
    await engine.unload()


def test_the_blocking_engine_has_the_same_faults(
    model_cache: Path, tiny_directory: Directory
) -> None:
    loader: Loader = faulty_loader(None, Faults(fail_at_step=2))
    question: dict[str, Any] = {"messages": [{"role": "user", "content": "Hello"}]}
    engine = MLCEngine(tiny_directory("llama"), loader=loader)
    engine.chat.completions.create(**question, max_tokens=3)
    engine.reload()

    with pytest.raises(EngineDeadError, match="injected fault"):
        engine.chat.completions.create(**question)

    engine.terminate()


async def test_a_draft_without_room_is_said_while_opening(
    make_engine: MakeEngine, small_draft: dict[str, Any]
) -> None:
    before = native_threads()
    engine = make_engine(Faults(draft=Faults(allocation_fails_at_load=True)), **small_draft)

    with pytest.raises(InsufficientMemoryError, match="cannot be allocated"):
        await engine.chat.completions.create(messages=[{"role": "user", "content": "Hello"}])

    assert has_native_threads(before)


# Opens a model with more tokens than the process may have address space for.
_LIMITED = """
import resource, sys
from pathlib import Path
from aiomlc import EngineConfig, InsufficientMemoryError, MLCEngine

directory, tokens = sys.argv[1], int(sys.argv[2])
MLCEngine(directory, engine_config=EngineConfig(max_total_sequence_length=16)).terminate()
used = int(Path("/proc/self/statm").read_text().split()[0]) * 4096
resource.setrlimit(resource.RLIMIT_AS, (used + (900 << 20),) * 2)
config = EngineConfig(max_total_sequence_length=tokens)
try:
    MLCEngine(directory, engine_config=config)
except InsufficientMemoryError as error:
    assert error.plan.fits
    print(error)
MLCEngine(directory, engine_config=EngineConfig(max_total_sequence_length=16)).terminate()
"""


def test_memory_that_is_promised_and_then_refused_is_the_same_error(
    tiny_directory: Directory,
) -> None:
    result = subprocess.run(
        [sys.executable, "-c", _LIMITED, tiny_directory("qwen3"), str(2**22)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )

    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("a KV cache of 4194304 tokens cannot be allocated: ")
    assert "qwen3 (q4f16_1), mode local" in result.stdout
