"""Injected faults in a real engine: the errors of its readers, and the resources after them."""

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
from aiomlc.runtime.engine.prompt import Prompt
from aiomlc.runtime.loading.facts import ModelFacts
from aiomlc.runtime.loading.model_directory import find_model
from aiomlc.runtime.loading.open_decoder import open_native
from aiomlc.runtime.native.core import EngineOptions, NativeCore
from aiomlc.sampling_params import SequenceOptions
from aiomlc.testing import DEAD_END, Faults, faulty_loader
from tests.model.engine.native_threads import has_native_threads, native_threads

Directory = Callable[[str], Path]
MakeEngine = Callable[..., AsyncMLCEngine]
NUM_READERS = 8


@pytest.fixture
def make_engine(model_cache: Path, tiny_directory: Directory) -> MakeEngine:
    """Return a function that makes engines of a tiny model; it takes the faults of each load."""
    directory = tiny_directory("llama")

    def make(*faults: Faults | None, **fields: Any) -> AsyncMLCEngine:  # noqa: ANN401
        config = EngineConfig(quantization="q4f16_1", num_threads=2, **fields)
        return AsyncMLCEngine(directory, engine_config=config, loader=faulty_loader(*faults))

    return make


async def complete(engine: AsyncMLCEngine, seed: int) -> str | AiomlcError:
    """Return the text of a completion, or the error of the request."""
    try:
        completion = await engine.chat.completions.create(
            messages=[{"role": "user", "content": f"Number {seed}, say something."}],
            max_tokens=20,
            ignore_eos=True,
            seed=seed,
        )
    except AiomlcError as error:
        return error

    return completion.choices[0].message.content or ""


async def complete_all(engine: AsyncMLCEngine) -> list[str | AiomlcError]:
    """Return the results of `NUM_READERS` concurrent requests."""
    outcomes: dict[int, str | AiomlcError] = {}

    async def read(seed: int) -> None:
        outcomes[seed] = await complete(engine, seed)

    with fail_after(60):
        async with create_task_group() as tasks:
            for seed in range(NUM_READERS):
                tasks.start_soon(read, seed)

    return [outcomes[seed] for seed in range(NUM_READERS)]


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the messages of the logged warnings."""
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


@pytest.mark.parametrize(
    ("faults", "cause"),
    [
        (Faults(fail_at_pass=1), "injected fault at pass 1"),
        (Faults(fail_at_pass=9), "injected fault at pass 9"),
        (Faults(allocation_fails_at_pass=5), "bad_alloc"),
    ],
)
async def test_model_failure_is_raised_to_every_reader_and_reload_recovers(
    make_engine: MakeEngine, faults: Faults, cause: str
) -> None:
    before = native_threads()
    engine = make_engine(faults)

    outcomes = await complete_all(engine)
    dead = engine.statistics()
    afterwards = await complete(engine, 1)
    with fail_after(60):
        await engine.reload()
    healthy = await complete_all(engine)
    await engine.unload()

    for outcome in [*outcomes, afterwards]:
        assert isinstance(outcome, EngineDeadError)
        assert cause in str(outcome)
    assert dead.free_pages == dead.total_pages
    assert (dead.num_running, dead.num_waiting) == (0, 0)
    assert all(isinstance(outcome, str) for outcome in healthy)
    assert has_native_threads(before)


async def test_model_failure_is_raised_from_the_scope(make_engine: MakeEngine) -> None:
    before = native_threads()

    async def serve() -> None:
        async with make_engine(Faults(fail_at_pass=3)) as engine:
            assert isinstance(await complete(engine, 1), EngineDeadError)

    with pytest.raises(EngineDeadError, match="injected fault"):
        await serve()

    assert has_native_threads(before)


@pytest.mark.parametrize("mode", ["disable", "prompt_lookup"])
@pytest.mark.parametrize("pass_number", [1, 2, 7, 15])
async def test_nan_fails_only_the_request_of_its_row(
    make_engine: MakeEngine, pass_number: int, mode: str
) -> None:
    async with make_engine(speculative_mode=mode) as engine:
        expected = await complete_all(engine)

    async with make_engine(Faults(nan_at_pass=pass_number), speculative_mode=mode) as engine:
        outcomes = await complete_all(engine)
        statistics = engine.statistics()
        again = await complete_all(engine)

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
    """Return config fields for two draft tokens in every step, whatever the batch size."""
    return {
        "speculative_mode": "small_draft",
        "additional_models": (str(tiny_directory("llama")),),
        "spec_draft_length": 2,
    }


@pytest.mark.parametrize(
    ("faults", "cause"),
    [
        (Faults(fail_at_pass=1), "injected fault at pass 1"),
        (Faults(fail_at_pass=8), "injected fault at pass 8"),
        (Faults(allocation_fails_at_pass=5), "bad_alloc"),
    ],
)
async def test_draft_model_failure_disables_speculation_and_fails_no_request(
    make_engine: MakeEngine,
    small_draft: dict[str, Any],
    caplog: pytest.LogCaptureFixture,
    faults: Faults,
    cause: str,
) -> None:
    async with make_engine() as engine:
        expected = await complete_all(engine)

    engine = make_engine(Faults(draft=faults), enable_tracing=True, **small_draft)
    async with engine:
        outcomes = await complete_all(engine)
        again = await complete_all(engine)
        statistics, metrics, trace = engine.statistics(), await engine.metrics(), engine.trace()
        await engine.reload()
        healthy = await complete_all(engine)
        reloaded = engine.statistics()

    assert outcomes == again == healthy == expected
    assert cause in (statistics.speculation_failure or "")
    assert statistics.draft_failures == metrics["draft_failures_sum"] == 1
    assert statistics.free_pages == statistics.total_pages
    failures = [event for event in trace["traceEvents"] if event["name"] == "draft failed"]
    assert [event["tid"] for event in failures] == [0]
    (warning,) = warnings_in(caplog)
    assert "speculative decoding is disabled" in warning
    assert cause in warning
    assert reloaded.speculation_failure is None
    assert reloaded.verified_drafts > 0


async def test_nan_of_the_draft_model_stops_drafting_for_one_sequence(
    make_engine: MakeEngine, small_draft: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    async with make_engine() as engine:
        expected = await complete_all(engine)

    async with make_engine(Faults(draft=Faults(nan_at_pass=3)), **small_draft) as engine:
        outcomes_once = await complete_all(engine)
        once = engine.statistics()

    async with make_engine(Faults(draft=Faults(nan_every=1)), **small_draft) as engine:
        outcomes_often = await complete_all(engine)
        often = engine.statistics()

    assert outcomes_once == outcomes_often == expected
    assert (once.draft_failures, once.speculation_failure) == (1, None)
    assert once.verified_drafts > often.verified_drafts
    assert 0 < often.draft_failures <= NUM_READERS
    assert len(warnings_in(caplog)) == 2, "one per engine"


@pytest.mark.parametrize("faults", [Faults(fail_at_pass=4), Faults(nan_every=1)])
def test_failed_draft_model_frees_its_pages(
    model_cache: Path, tiny_directory: Directory, small_draft: dict[str, Any], faults: Faults
) -> None:
    config = EngineConfig(quantization="q4f16_1", num_threads=2, **small_draft)
    opened = anyio.run(
        open_native,
        ModelFacts(find_model(tiny_directory("llama")), config.quantization),
        "auto",
        "local",
        config,
        lambda progress: None,
        Faults(draft=faults),
    )
    assert opened.draft is not None
    before = opened.draft.free_pages()
    options = EngineOptions(
        step_token_budget=64, max_queue_size=8, speculative_mode="small_draft", draft_length=2
    )
    core = NativeCore(opened.native, [b"."] * opened.vocab_size, options, draft=opened.draft)
    for first in range(3):
        core.submit(Prompt([first] * 20), SequenceOptions(max_tokens=20))
    while core.statistics().draft_failures == 0:
        assert core.step(), "the draft model never failed"
    while core.step():
        pass
    free_pages = opened.draft.free_pages()
    core.close()
    core.release()

    assert free_pages == before


async def test_unread_failed_requests_leak_nothing(make_engine: MakeEngine) -> None:
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


async def test_grammar_without_a_continuation_fails_only_its_request(
    make_engine: MakeEngine,
) -> None:
    async with make_engine() as engine:
        expected = await complete_all(engine)
        outcomes: list[str | AiomlcError] = []

        async def complete_others() -> None:
            outcomes.extend(await complete_all(engine))

        async with create_task_group() as tasks:
            tasks.start_soon(complete_others)
            with pytest.raises(RequestFailedError, match="the grammar cannot continue"):
                await engine.chat.completions.create(
                    messages=[{"role": "user", "content": "Hello"}],
                    response_format=DEAD_END,
                )

    assert outcomes == expected


async def test_kv_cache_allocation_failure_is_raised_while_loading(make_engine: MakeEngine) -> None:
    before = native_threads()
    engine = make_engine(Faults(allocation_fails_at_load=True))

    with pytest.raises(InsufficientMemoryError, match="cannot be allocated") as caught:
        await engine.chat.completions.create(messages=[{"role": "user", "content": "Hello"}])

    assert isinstance(caught.value, ModelLoadError)
    assert str(caught.value.plan) in str(caught.value)
    assert has_native_threads(before)
    assert isinstance(await complete(engine, 1), str)  # The next load succeeds.
    await engine.unload()


def test_faults_apply_to_the_sync_engine(model_cache: Path, tiny_directory: Directory) -> None:
    loader: Loader = faulty_loader(None, Faults(fail_at_pass=2))
    request: dict[str, Any] = {"messages": [{"role": "user", "content": "Hello"}], "min_tokens": 3}
    with MLCEngine(tiny_directory("llama"), loader=loader) as engine:
        engine.chat.completions.create(**request, max_tokens=3)
        engine.reload()

        with pytest.raises(EngineDeadError, match="injected fault"):
            engine.chat.completions.create(**request)


async def test_draft_model_allocation_failure_is_raised_while_loading(
    make_engine: MakeEngine, small_draft: dict[str, Any]
) -> None:
    before = native_threads()
    engine = make_engine(Faults(draft=Faults(allocation_fails_at_load=True)), **small_draft)

    with pytest.raises(InsufficientMemoryError, match="cannot be allocated"):
        await engine.chat.completions.create(messages=[{"role": "user", "content": "Hello"}])

    assert has_native_threads(before)


# Opens a model with a KV cache that exceeds the address space of the process.
_LIMITED_PROGRAM = """
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


def test_allocation_failure_despite_a_fitting_plan_is_the_same_error(
    tiny_directory: Directory,
) -> None:
    result = subprocess.run(
        [sys.executable, "-c", _LIMITED_PROGRAM, tiny_directory("qwen3"), str(2**22)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )

    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("a KV cache of 4194304 tokens cannot be allocated: ")
    assert "qwen3 (q4f16_1), mode local" in result.stdout
