"""Sentences of MLC LLM's documents about its engines, which hold on the drop-in.

`tests/unit/examples/test_drop_in.py` has those about imports, private members and events.
"""

from __future__ import annotations

import gc
import json
import sys
import threading
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import tvm

from aiomlc import BadRequestError, ModelNotFoundError, RequestAbortedError
from aiomlc.config import BUNDLED_FOLDER
from tests.e2e.programs import ROOT

pytestmark = pytest.mark.timeout(120)
DRAFT = str(BUNDLED_FOLDER / "pebble-draft")
CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "Who are you?"}], "max_tokens": 4}
ENDLESS: dict[str, Any] = {
    **CHAT,
    "max_tokens": 1500,
    "extra_body": {"debug_config": {"ignore_eos": True}},
}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
ALL_FIELDS: dict[str, Any] = {
    **CHAT,
    "model": "m",
    "frequency_penalty": 0.1,
    "presence_penalty": 0.1,
    "logprobs": True,
    "top_logprobs": 2,
    "logit_bias": {5: -1.0},
    "n": 1,
    "seed": 1,
    "stop": ["zzz"],
    "stream": True,
    "stream_options": {"include_usage": True},
    "temperature": 0.5,
    "top_p": 0.9,
    "tools": TOOLS,
    "tool_choice": "auto",
    "user": "u",
    "response_format": {"type": "text"},
    "request_id": "own",
    "extra_body": {"debug_config": {"ignore_eos": False}},
}


@pytest.fixture(scope="module")
def mlc_llm() -> Iterator[Callable[[str], Any]]:
    """Return a function that imports a module of the drop-in, which is on the path."""
    finders = list(sys.meta_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "examples" / "drop_in")
        yield lambda name: import_module(f"mlc_llm.{name}" if name else "mlc_llm")
    sys.meta_path[:] = finders
    for name in [name for name in sys.modules if name.partition(".")[0] == "mlc_llm"]:
        del sys.modules[name]


@pytest.fixture(scope="module")
def json_engine(mlc_llm: Callable[[str], Any], bundled_model: Path) -> Iterator[Any]:
    engine = mlc_llm("json_ffi").JSONFFIEngine(str(bundled_model), tvm.cpu(), mode="local")
    yield engine
    engine.terminate()
    engine.terminate()


def test_json_engine_takes_all_fields_by_keyword(json_engine: Any) -> None:  # noqa: ANN401
    create = json_engine.chat.completions.create
    chunks = list(create(**ALL_FIELDS))

    assert {chunk.id for chunk in chunks} == {"own"}
    assert chunks[-1].usage.completion_tokens == 4
    assert all(isinstance(chunk.system_fingerprint, str) for chunk in chunks)
    roles = [choice.delta.role for chunk in chunks for choice in chunk.choices]
    assert set(roles) == {"assistant"}
    with pytest.raises(TypeError):
        create(CHAT["messages"])


def test_json_engine_only_streams_and_reports_errors_in_chunks(json_engine: Any) -> None:  # noqa: ANN401
    create = json_engine.chat.completions.create
    with pytest.raises(ValueError, match="JSONFFIEngine only support stream=True"):
        list(create(**CHAT, stream=False))

    chunks = list(create(**CHAT))
    wrong = list(create(messages=[{"role": "nobody", "content": "x"}]))
    raw = list(
        json_engine._raw_chat_completion(json.dumps(CHAT), include_usage=False, request_id="1")
    )

    assert chunks[0].id.startswith("chatcmpl-")
    assert all(chunk.usage is None for chunk in chunks + raw)
    assert wrong[-1].choices[0].finish_reason == "error"


def test_json_engine_is_unloaded_reloaded_and_reset(json_engine: Any) -> None:  # noqa: ANN401
    create = json_engine.chat.completions.create
    json_engine._test_unload()
    assert list(create(**CHAT))[-1].choices[0].finish_reason == "error"

    json_engine._test_reload()
    json_engine._test_reset()
    assert list(create(**CHAT))[-1].choices[0].finish_reason == "length"
    assert json.loads(json_engine.engine_config.asjson())["max_num_sequence"] == 4
    assert json_engine.metrics()["prompt_tokens_sum"] > 0


def test_json_engine_that_is_dropped_ends_its_threads(
    mlc_llm: Callable[[str], Any], bundled_model: Path
) -> None:
    before = set(threading.enumerate())
    engine = mlc_llm("json_ffi").JSONFFIEngine(str(bundled_model))
    list(engine.chat.completions.create(**CHAT))
    started = set(threading.enumerate()) - before
    del engine
    gc.collect()

    for thread in started:
        thread.join(20)
        assert not thread.is_alive()


@pytest.mark.parametrize(
    "settings",
    [
        {"max_batch_size": 2, "max_total_sequence_length": 1024, "prefill_chunk_size": 256},
        {"speculative_mode": "small_draft", "additional_models": [DRAFT]},
        {"speculative_mode": "small_draft", "additional_models": [f"{DRAFT}:lib.so"]},
        {"speculative_mode": "small_draft", "additional_models": [(DRAFT, "lib.so")]},
        {"speculative_mode": "disable", "spec_draft_length": 4},
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_an_engine_takes_its_settings_as_arguments(
    mlc_llm: Callable[[str], Any], bundled_model: Path, settings: dict[str, Any]
) -> None:
    config = str(bundled_model / "mlc-chat-config.json")
    engine = mlc_llm("").MLCEngine(config, gpu_memory_utilization=0.5, **settings)

    assert engine.chat.completions.create(**CHAT).object == "chat.completion"
    found = engine.engine_config
    engine.terminate()
    assert found.gpu_memory_utilization == 0.5
    assert found.max_num_sequence == settings.get("max_batch_size", 4)
    assert found.max_total_sequence_length == settings.get("max_total_sequence_length", 8192)


@pytest.mark.parametrize(("mode", "rows"), [("local", 4), ("interactive", 1), ("server", 128)])
def test_the_mode_decides_the_batch_size(
    mlc_llm: Callable[[str], Any], bundled_model: Path, mode: str, rows: int
) -> None:
    engine = mlc_llm("").MLCEngine(str(bundled_model), mode=mode)

    assert engine.engine_config.max_num_sequence == rows
    engine.terminate()


def test_what_does_not_exist_is_refused_by_name(
    mlc_llm: Callable[[str], Any], bundled_model: Path
) -> None:
    model, create = str(bundled_model), mlc_llm("").MLCEngine
    with pytest.raises(BadRequestError, match="cuda"):
        create(model, "cuda:0")
    with pytest.raises(ModelNotFoundError, match=r"models/phi-2/lib\.so"):
        create(model, model_lib="models/phi-2/lib.so")


def test_a_request_is_aborted_by_its_id(mlc_llm: Callable[[str], Any], bundled_model: Path) -> None:
    engine = mlc_llm("").MLCEngine(str(bundled_model))
    with engine.chat.completions.create(**ENDLESS, stream=True, request_id="own") as chunks:
        next(chunks)
        engine.abort("own")
        with pytest.raises(RequestAbortedError):
            list(chunks)

    engine.terminate()


@pytest.mark.parametrize(
    ("prompts", "count"),
    [
        ("Hello", 1),
        (["Hello", "Good day"], 2),
        ([5, 6, 7], 1),
        ([[5, 6], [7, 8]], 2),
        ("data", 1),
    ],
)
def test_step_engine_generates_from_each_form_of_prompts(
    mlc_llm: Callable[[str], Any],
    bundled_model: Path,
    prompts: list[Any] | str,
    count: int,
) -> None:
    data, parameters = mlc_llm("serve.data"), mlc_llm("protocol.generation_config")
    if prompts == "data":
        prompts = [[data.TextData("Hello"), data.TokenData([5])]]
    config = parameters.GenerationConfig(max_tokens=3, n=2, logprobs=True, top_logprobs=2)
    engine = mlc_llm("serve.sync_engine").SyncMLCEngine(str(bundled_model))
    with engine:
        engine.request_stream_callback = print
        texts, logprobs = engine.generate(prompts, config)
        each, _ = engine.generate(["a", "b"], [config, parameters.GenerationConfig(max_tokens=2)])

        assert engine.request_stream_callback is print

    assert [len(choices) for choices in texts] == [2] * count
    assert [len(choices) for choices in each] == [2, 1]
    assert len(json.loads(logprobs[0][0][0])["top_logprobs"]) == 2
