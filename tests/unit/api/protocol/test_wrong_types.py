"""Arguments of other types: whatever method they are given to, an error of ours names them."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any

import pytest
from anyio import fail_after

from aiomlc import (
    AsyncEmbeddingEngine,
    AsyncMLCEngine,
    BadRequestError,
    EngineConfig,
    GenerationConfig,
    JSONFFIEngine,
    MLCEngine,
    SyncMLCEngine,
    TextData,
    TextStreamer,
    TokenData,
    plan_memory,
    prometheus_text,
    register_conversation_template,
)
from aiomlc.api.json_ffi.functions import create_functions
from aiomlc.testing import FakeEncoder, fake_loader

pytestmark = pytest.mark.timeout(60)
ENGINES: tuple[Callable[..., Any], ...] = (AsyncMLCEngine, MLCEngine, SyncMLCEngine, JSONFFIEngine)
USER = {"role": "user", "content": "Hi"}


class _Odd:
    """What no argument may be."""

    def __repr__(self) -> str:
        return "_Odd()"


ODD = _Odd()
TEXTS = [5, 1.5, b"a", ["a"], {"a": 1}, ODD]
NUMBERS = ["1", [1], {"a": 1}, ODD, 1j]
FUNCTIONS = ["f", 5, [print], ODD]
LISTS = [5, "a b", b"ab", {"a": 1}, ODD]
FLAGS = ["yes", 1, [True], ODD]


def refused(ask: Callable[[], object]) -> BadRequestError:
    with pytest.raises(BadRequestError) as caught:
        ask()

    assert caught.value.param is None or caught.value.param.split("[")[0] in str(caught.value)
    return caught.value


CONSTRUCTOR: list[tuple[str, list[Any]]] = [
    ("model", [5, b"a", ["a"], ODD]),
    ("model_lib", [5, b"a", ["a"], ODD]),
    ("device", [5, None, ["cpu"], ODD]),
    ("mode", [5, ["local"], {"a": 1}, ODD, "quick"]),
    ("engine_config", [5, 0, {}, {"model": "a"}, "a", ODD]),
    ("on_progress", FUNCTIONS),
    ("loader", FUNCTIONS),
    ("max_batch_size", NUMBERS),
    ("max_total_sequence_length", NUMBERS),
    ("prefill_chunk_size", NUMBERS),
    ("max_history_size", NUMBERS),
    ("gpu_memory_utilization", NUMBERS),
    ("speculative_mode", [5, ["disable"], ODD]),
    ("spec_draft_length", NUMBERS),
    ("additional_models", [5, "a", {"a": "b"}, [5], ODD]),
    ("verbose", FLAGS),
]
CASES = [
    (engine, name, value) for engine in ENGINES for name, values in CONSTRUCTOR for value in values
]


@pytest.mark.parametrize(("engine", "name", "value"), CASES)
def test_a_constructor_names_the_argument(
    engine: Callable[..., Any], name: str, value: object
) -> None:
    arguments = {"loader": fake_loader(), name: value}

    assert refused(lambda: engine(**arguments)).param == name


@pytest.mark.parametrize("engine", ENGINES[:3])
@pytest.mark.parametrize("value", FLAGS)
def test_a_constructor_names_the_tracing(engine: Callable[..., Any], value: object) -> None:
    make = partial(engine, loader=fake_loader(), enable_tracing=value)
    assert refused(make).param == "enable_tracing"


CONFIGURATION: dict[str, list[Any]] = {
    "model": [5, ["a"], ODD],
    "mode": [5, ["local"], ODD],
    "quantization": [5, ["a"], ODD],
    "kv_cache_page_size": ["16", [16], ODD],
    "kv_cache_dtype": [None, *TEXTS],
    "max_num_sequence": NUMBERS,
    "max_total_sequence_length": NUMBERS,
    "max_single_sequence_length": NUMBERS,
    "prefill_chunk_size": NUMBERS,
    "step_token_budget": NUMBERS,
    "gpu_memory_utilization": NUMBERS,
    "num_threads": NUMBERS,
    "max_queue_size": NUMBERS,
    "max_unread_tokens": NUMBERS,
    "prefix_cache_mode": [None, *TEXTS],
    "prefix_cache_max_num_recycling_seqs": NUMBERS,
    "speculative_mode": [None, *TEXTS],
    "spec_draft_length": NUMBERS,
    "additional_models": [5, "a", {"a": "b"}, [5], ODD],
    "sliding_window_size": NUMBERS,
    "attention_sink_size": NUMBERS,
    "verbose": FLAGS,
    "enable_tracing": FLAGS,
    "model_lib": TEXTS,
    "tensor_parallel_shards": NUMBERS,
    "pipeline_parallel_stages": NUMBERS,
    "opt": TEXTS,
    "max_history_size": NUMBERS,
    "kv_state_kind": TEXTS,
    "spec_tree_width": NUMBERS,
    "prefill_mode": TEXTS,
}


def test_every_field_of_the_two_configurations_is_tried() -> None:
    assert inspect.signature(EngineConfig).parameters.keys() == CONFIGURATION.keys()
    assert inspect.signature(GenerationConfig).parameters.keys() == GENERATION.keys()


@pytest.mark.parametrize("name", CONFIGURATION)
def test_a_configuration_names_the_field(name: str) -> None:
    for value in CONFIGURATION[name]:
        assert refused(partial(EngineConfig, **{name: value})).param == name


GENERATION: dict[str, list[Any]] = {
    "n": [None, True, 1.5, *NUMBERS],
    "temperature": [True, float("nan"), float("inf"), *NUMBERS],
    "top_p": [True, float("nan"), *NUMBERS],
    "frequency_penalty": NUMBERS,
    "presence_penalty": NUMBERS,
    "repetition_penalty": [0, float("nan"), *NUMBERS],
    "logprobs": [None, *FLAGS],
    "top_logprobs": [1.5, *NUMBERS],
    "logit_bias": [5, "a", [1], {"a": 1}, {-1: 1}, {1: "a"}, {1: 101}, {True: 1}, ODD],
    "max_tokens": [None, True, 1.5, *NUMBERS],
    "seed": [True, 1.5, 2**63, 10**5000, *NUMBERS],
    "stop_strs": [5, b"a", [5], [b"a"], {"a": 1}, "", [""], ["\ud800"], ODD],
    "stop_token_ids": [5, "12", ["a"], [1.5], [True], [2**63], {1: 2}, ODD],
    "response_format": [5, "json", ["a"], {}, {"type": 5}, ODD],
    "debug_config": [5, {"a": 1}, ODD],
    "top_k": [1.5, *NUMBERS],
    "min_p": NUMBERS,
    "min_tokens": [-1, 1.5, *NUMBERS],
    "ignore_eos": [None, *FLAGS],
    "priority": [1.5, 2**63, *NUMBERS],
    "timeout": [0, -1, float("nan"), *NUMBERS],
    "first_token_timeout": [0, *NUMBERS],
    "inter_token_timeout": [0, *NUMBERS],
    "prompt_logprobs": [-1, 21, 1.5, True, *NUMBERS],
    "logits_processors": [5, print, "a", [5], {"a": print}, ODD],
}


@pytest.mark.parametrize("name", GENERATION)
def test_the_options_of_a_step_engines_request_name_the_field(name: str) -> None:
    for value in GENERATION[name]:
        error = refused(partial(GenerationConfig, **{name: value}))
        assert (error.param or "").split("[")[0].split(".")[0] == name


@pytest.fixture(scope="module")
def engine() -> Iterator[MLCEngine]:
    with MLCEngine(loader=fake_loader()) as engine:
        yield engine


@pytest.fixture
async def async_engine() -> AsyncIterator[AsyncMLCEngine]:
    async with AsyncMLCEngine(loader=fake_loader()) as engine:
        yield engine


# The method, its other arguments, the one that is wrong, and what it is.
METHODS: list[tuple[str, dict[str, Any], str, list[Any]]] = [
    ("generate", {}, "prompt", [None, 5, b"a", {"a": 1}, [1.5], ["a"], [-1], [2**31], [[1]], ODD]),
    ("generate", {"prompt": "a"}, "max_tokens", NUMBERS),
    ("pin_prefix", {}, "prompt", [5, b"a", {"a": 1}, [1.5], ["a"], [-1], [2**70], [], "", ODD]),
    ("pin_prefix", {}, "messages", [5, "a", b"a", {"a": 1}, ["a"], [5], [{"role": 5}], ODD]),
    ("pin_prefix", {"messages": [USER]}, "tools", [5, "a", ["a"], {"a": 1}, ODD]),
    ("pin_prefix", {"messages": [USER]}, "chat_template_kwargs", [5, "a", ["a"], {"a": ODD}]),
    ("abort", {}, "request_id", [None, *TEXTS]),
    ("drain", {}, "timeout", [-1, float("nan"), True, *NUMBERS]),
    ("reload", {}, "model", [5, b"a", ["a"], ODD]),
    ("chat.completions.create", {}, "messages", [None, 5, "a", {"a": 1}, [5], [[USER]], ODD]),
    ("chat.completions.create", {"messages": [USER]}, "stream", ["a", 1, [True], ODD]),
    ("chat.completions.create", {"messages": [USER]}, "tools", [5, "a", [5], ODD]),
    ("chat.completions.create", {"messages": [USER]}, "extra_body", [5, "a", [1], ODD]),
    ("chat.completions.parse", {"messages": [USER]}, "response_format", [5, "a", [1], ODD]),
    ("completions.create", {}, "prompt", [None, 5, b"a", {"a": 1}, [1.5], [[]], ODD]),
    ("completions.create", {"prompt": "a"}, "echo", FLAGS),
    ("responses.create", {}, "input", [None, 5, b"a", {"a": 1}, [5], ODD]),
    ("responses.create", {"input": "a"}, "instructions", [5, ["a"], ODD]),
]


def method_of(engine: object, path: str) -> Callable[..., Any]:
    for name in path.split("."):
        engine = getattr(engine, name)

    assert callable(engine)
    return engine


def is_named(error: BadRequestError, name: str) -> bool:
    return (error.param or "").split("[")[0].split(".")[0] == name


@pytest.mark.parametrize(("path", "others", "name", "values"), METHODS)
async def test_a_method_names_the_argument(
    async_engine: AsyncMLCEngine, path: str, others: dict[str, Any], name: str, values: list[Any]
) -> None:
    method = method_of(async_engine, path)
    for value in values:
        with pytest.raises(BadRequestError) as caught, fail_after(10):
            await method(**others, **{name: value})

        assert is_named(caught.value, name)

    answer = await async_engine.chat.completions.create(messages=[USER])
    assert answer.choices


@pytest.mark.parametrize(("path", "others", "name", "values"), METHODS)
def test_a_blocking_method_names_the_argument(
    engine: MLCEngine, path: str, others: dict[str, Any], name: str, values: list[Any]
) -> None:
    method = method_of(engine, path)
    for value in values:
        assert is_named(refused(partial(method, **others, **{name: value})), name)

    assert engine.chat.completions.create(messages=[USER]).choices


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        *(({"prompts": value}, "prompts") for value in (5, "a text", b"a", {"a": 1}, ODD)),
        *(({"prompts": [], "limit": value}, "limit") for value in (0, True, 1.5, *NUMBERS)),
        ({"prompts": ["a"], "stream": True}, "stream"),
        ({"prompts": ["a"], "extra_body": {"stream": True}}, "stream"),
        ({"prompts": ["a"], "request_id": "r"}, "request_id"),
    ],
)
async def test_many_prompts_name_the_argument(
    async_engine: AsyncMLCEngine, arguments: dict[str, Any], name: str
) -> None:
    with pytest.raises(BadRequestError) as caught:
        async with async_engine.generate_many(**arguments):
            pass

    assert caught.value.param == name


async def test_a_prompt_of_many_that_is_none_is_its_own_error(
    async_engine: AsyncMLCEngine,
) -> None:
    odd: list[Any] = [5, None, ODD, "fine"]
    async with async_engine.generate_many(odd) as outcomes:
        errors = {position: error async for position, _, error in outcomes}

    assert [isinstance(errors[n], BadRequestError) for n in range(4)] == [True, True, True, False]


STEPS: list[tuple[str, Callable[[SyncMLCEngine, Any], object], list[Any]]] = [
    ("prompts", lambda one, value: one.generate(value), [None, 5, {"a": 1}, ODD]),
    (
        "inputs",
        lambda one, value: one.generate([value]),
        [None, 5.5, {"a": 1}, [1, "a"], b"ab", ODD],
    ),
    ("prompt", lambda one, value: one.generate([value]), [[True], [-1], [2**31], [2**70], [256]]),
    (
        "generation_config",
        lambda one, value: one.generate("a", value),
        [5, "a", {"n": 1}, [5], ["a"], ODD],
    ),
    ("request_id", lambda one, value: one.create_request(value, TextData("a")), [None, *TEXTS]),
    (
        "inputs",
        lambda one, value: one.create_request("a", value),
        [None, 5, {"a": 1}, [5, "a"], ODD],
    ),
    (
        "generation_config",
        lambda one, value: one.create_request("a", TextData("a"), value),
        [5, 0, "a", {}, ODD],
    ),
    ("request", lambda one, value: one.add_request(value), [None, 5, "a", ("a", (), None), ODD]),
    ("request_id", lambda one, value: one.abort_request(value), [None, *TEXTS]),
]


@pytest.mark.parametrize(("name", "ask", "values"), STEPS)
def test_the_engine_of_steps_names_the_argument(
    name: str, ask: Callable[[SyncMLCEngine, Any], object], values: list[Any]
) -> None:
    with SyncMLCEngine(loader=fake_loader()) as engine:
        for value in values:
            assert refused(partial(ask, engine, value)).param == name

        assert engine.generate("a")[0] == [["Hello!"]]


def test_a_request_that_was_made_by_hand_is_checked() -> None:
    with SyncMLCEngine(loader=fake_loader()) as engine:
        request = engine.create_request("a", TextData("a"))
        odd: Any = ODD
        for name in ("request_id", "inputs", "generation_config"):
            wrong = request._replace(**{name: odd})
            assert refused(partial(engine.add_request, wrong)).param == name


def test_the_callback_of_steps_is_checked_whenever_it_is_set() -> None:
    for value in FUNCTIONS:
        odd: Any = value
        name = "request_stream_callback"
        make = SyncMLCEngine
        assert (
            refused(partial(make, loader=fake_loader(), request_stream_callback=odd)).param == name
        )
        with SyncMLCEngine(loader=fake_loader()) as engine:
            engine.request_stream_callback = odd
            assert refused(engine.step).param == name


@pytest.mark.parametrize("value", [None, 5, b"a", ["a"], ODD])
def test_the_data_of_a_prompt_are_text_or_token_ids(value: Any) -> None:  # noqa: ANN401
    assert refused(lambda: TextData(value)).param == "prompt"
    assert refused(lambda: TokenData(value)).param == "prompt"


def test_the_engine_of_json_tells_of_it_in_a_chunk() -> None:
    odd: Any
    with JSONFFIEngine(loader=fake_loader()) as engine:
        for odd in (None, 5, ["a"], ODD, "5", "[]"):
            told = "".join(engine.chat_completion(odd))
            assert '"finish_reason":"error"' in told

        for odd in (5, ["a"], ODD):
            told = "".join(engine.chat_completion('{"messages": []}', odd))
            assert "request_id" in told

        for odd in (None, *TEXTS):
            assert refused(partial(engine.abort, odd)).param == "request_id"


def test_the_table_of_functions_names_the_argument() -> None:
    table = create_functions()
    init, chat = table["init_background_engine"], table["chat_completion"]
    for value in (None, *FUNCTIONS):
        assert refused(partial(init, 1, 0, value)).param == "callback"

    for value in ("cpu", None, ODD):
        assert refused(partial(init, value, 0, print)).param == "device"

    init(1, 0, print)
    try:
        for value in (None, 5, ["a"], ODD):
            assert "engine_config" in str(refused(partial(table["reload"], value)))
            assert refused(partial(table["abort"], value)).param == "request_id"
            assert refused(partial(chat, "{}", value)).param == "request_id"
            assert chat(value, "a") is False
            assert "not JSON" in table["get_last_error"]()
    finally:
        table["exit_background_loop"]()
        table["run_background_loop"]()


def test_the_engine_of_embeddings_names_the_argument() -> None:
    odd: Any
    loader = fake_loader(FakeEncoder())
    for odd in (5, ["mean"], ODD, "sum"):
        error = refused(partial(AsyncEmbeddingEngine, loader=loader, pooling_strategy=odd))
        assert error.param == "pooling_strategy"

    engine = AsyncEmbeddingEngine(loader=loader)
    for odd in (None, *LISTS):
        assert refused(partial(engine.embed, odd)).param == "inputs"

    for odd in (5, None, b"a", ["a"], ODD, "\ud800"):
        assert refused(partial(engine.embed, ["a", odd])).param == "inputs[1]"

    engine.terminate()


def test_functions_name_the_argument() -> None:
    odd: Any
    for odd in (5, b"a", ["a"], ODD):
        assert refused(partial(plan_memory, odd)).param == "model"
        assert refused(partial(plan_memory, engine_config=odd)).param == "engine_config"
        assert refused(partial(prometheus_text, odd)).param == "statistics"
        conversation = refused(partial(register_conversation_template, odd))
        assert conversation.param == "conversation"
        assert refused(partial(TextStreamer, odd)).param == "tokenizer"


def test_statistics_and_tokenizers_name_the_argument(engine: MLCEngine) -> None:
    odd: Any
    statistics, tokenizer = engine.statistics(), engine.tokenizer
    for odd in (5, "a", ["a"], {"a": 1}, ODD):
        assert refused(partial(prometheus_text, statistics, odd)).param == "labels"

    for odd in (5, None, ["a"], ODD):
        assert refused(partial(prometheus_text, statistics, prefix=odd)).param == "prefix"
        assert refused(partial(tokenizer.encode, odd)).param == "prompt"

    for odd in (5, None, "ab", ["a"], [1.5], [-1], [2**70], [10**5000], ODD):
        assert refused(partial(tokenizer.decode, odd)).param == "token_ids"
        put = TextStreamer(tokenizer).put
        assert refused(partial(put, odd)).param == "token_ids"
