"""Errors of constructors, of loading a model, and of closed engines."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from aiomlc import AsyncMLCEngine, EngineConfig, JSONFFIEngine, MLCEngine, SyncMLCEngine
from aiomlc.errors import (
    AiomlcError,
    CompileError,
    EngineClosedError,
    ModelLoadError,
    ModelNotFoundError,
)
from aiomlc.runtime.loading.capacity import serving_limits
from aiomlc.runtime.tokenization.tokenizer import Tokenizer
from aiomlc.testing import fake_loader
from tests.unit.api.protocol.error_cases import (
    USER,
    Context,
    ErrorCase,
    check_error,
    make_engine,
    rejected,
)

pytestmark = pytest.mark.timeout(20)


def construct_engine(context: Context, /, **arguments: Any) -> None:  # noqa: ANN401
    make_engine(**arguments)


def construct_config(context: Context, /, **fields: Any) -> None:  # noqa: ANN401
    EngineConfig(**fields)


def load_a_missing_directory(context: Context) -> None:
    MLCEngine(context.directory / "none")


def load_an_empty_directory(context: Context) -> None:
    MLCEngine(context.directory)


def load_a_url(context: Context) -> None:
    MLCEngine("https://example.com/a-model")


def read_a_missing_tokenizer(context: Context) -> None:
    Tokenizer(context.directory / "tokenizer.json")


def fail_to_compile(context: Context) -> None:
    context.patch.setenv("AIOMLC_HOME", str(context.directory))
    compiler = context.directory / "compiler"
    compiler.write_text("#!/bin/sh\necho out of luck >&2\nexit 3\n")
    compiler.chmod(0o755)
    context.patch.setattr(sys, "executable", str(compiler))
    MLCEngine()


def plan_for_too_little_memory(context: Context) -> None:
    serving_limits(
        EngineConfig(),
        mode="local",
        context_window=1024,
        kv_bytes_per_token=1 << 20,
        memory_bytes=1 << 20,
    )


def chat_after_terminate(context: Context) -> None:
    engine = make_engine()
    engine.terminate()
    engine.chat.completions.create(messages=[USER])


def step_after_terminate(context: Context) -> None:
    engine = SyncMLCEngine(loader=fake_loader())
    engine.terminate()
    engine.step()


ERRORS = [
    # The constructor.
    rejected(
        "conflicting model",
        partial(construct_engine, model="a", engine_config=EngineConfig(model="b")),
        "model",
        'The argument "model" of engine constructor is "a", while the "model" field in argument '
        '"engine_config" is "b". Please set the "engine_config.model" to None or set it to the '
        'same as the argument "model".',
    ),
    rejected(
        "conflicting mode",
        partial(construct_engine, mode="local", engine_config=EngineConfig(mode="server")),
        "mode",
        'The argument "mode" of engine constructor is "local", while the "mode" field',
    ),
    rejected(
        "kv_cache_page_size",
        partial(construct_config, kv_cache_page_size=8),
        "kv_cache_page_size",
        'KV cache only supports page size 16, while the "kv_cache_page_size" field in argument '
        '"engine_config" is "8". Please set "engine_config.kv_cache_page_size" to 16.',
    ),
    ErrorCase(
        "missing model_lib",
        partial(construct_engine, model_lib="no/model.so"),
        FileNotFoundError,
        ModelNotFoundError,
        "model_lib",
        "the model_lib you passed in is not a file: no/model.so",
    ),
    ErrorCase(
        "model_lib with a long name",
        partial(construct_engine, model_lib="x" * 300),
        FileNotFoundError,
        ModelNotFoundError,
        "model_lib",
        "the model_lib you passed in is not a file: xxx",
    ),
    rejected(
        "unknown device",
        partial(construct_engine, device="abacus"),
        "device",
        "Invalid device name: 'abacus'; use 'auto', 'cpu', 'cuda' or 'opencl'",
    ),
    rejected(
        "unavailable device",
        partial(construct_engine, device="metal:3"),
        "device",
        "Device is not found on your local environment: metal:3; "
        "use 'auto', 'cpu', 'cuda' or 'opencl'",
    ),
    rejected(
        "max_history_size",
        partial(construct_config, max_history_size=-1),
        "max_history_size",
        "max_history_size must be",
    ),
    rejected(
        "eagle",
        partial(construct_config, speculative_mode="eagle", spec_draft_length=0),
        "speculative_mode",
        "engine_config.speculative_mode = 'eagle' is not supported",
    ),
    rejected(
        "speculative_mode",
        partial(construct_config, speculative_mode="lookahead"),
        "speculative_mode",
        "speculative_mode must be one of 'disable', 'prompt_lookup', 'small_draft'",
    ),
    rejected(
        "prefix_cache_mode",
        partial(construct_config, prefix_cache_mode="tree"),
        "prefix_cache_mode",
        "prefix_cache_mode must be one of 'radix', 'disable', got 'tree'",
    ),
    # Loading.
    ErrorCase(
        "missing model directory",
        load_a_missing_directory,
        FileNotFoundError,
        ModelNotFoundError,
        "model",
        "cannot find model",
    ),
    ErrorCase(
        "model directory without a config",
        load_an_empty_directory,
        FileNotFoundError,
        ModelNotFoundError,
        None,
        "has neither mlc-chat-config.json nor config.json: a model's directory has one of them",
    ),
    rejected(
        "model URL",
        load_a_url,
        "model",
        "model 'https://example.com/a-model' is a URL",
    ),
    ErrorCase(
        "missing tokenizer",
        read_a_missing_tokenizer,
        RuntimeError,
        ModelNotFoundError,
        None,
        "cannot find the tokenizer",
    ),
    ErrorCase(
        "failing compiler",
        fail_to_compile,
        RuntimeError,
        CompileError,
        None,
        "the model cannot be compiled: exit status 3\nout of luck",
    ),
    ErrorCase(
        "insufficient memory",
        plan_for_too_little_memory,
        RuntimeError,
        ModelLoadError,
        "max_total_sequence_length",
        "the memory holds 1: lower max_total_sequence_length, max_num_sequence or "
        "max_single_sequence_length",
    ),
    # Closed engines.
    ErrorCase(
        "request after terminate",
        chat_after_terminate,
        ValueError,
        EngineClosedError,
        None,
        "terminated",
    ),
    ErrorCase(
        "step after terminate",
        step_after_terminate,
        ValueError,
        EngineClosedError,
        None,
        "terminated",
    ),
]


@pytest.mark.parametrize("case", ERRORS, ids=[case.name for case in ERRORS])
def test_an_engine_error_has_mlc_llms_class_and_message(
    case: ErrorCase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_error(case, Context(tmp_path, monkeypatch))


@pytest.mark.parametrize("engine_class", [AsyncMLCEngine, MLCEngine, SyncMLCEngine, JSONFFIEngine])
@pytest.mark.parametrize(
    ("arguments", "builtin"),
    [
        ({"model": "a", "engine_config": EngineConfig(model="b")}, ValueError),
        ({"engine_config": EngineConfig(mode="server")}, ValueError),
        ({"device": "abacus"}, ValueError),
        ({"model_lib": "no/model.so"}, FileNotFoundError),
    ],
)
def test_every_constructor_checks_its_arguments(
    engine_class: Callable[..., object], arguments: dict[str, Any], builtin: type[Exception]
) -> None:
    with pytest.raises(builtin) as caught:
        engine_class(loader=fake_loader(), **arguments)

    assert isinstance(caught.value, AiomlcError)


async def test_a_terminated_async_engine_rejects_requests() -> None:
    engine = AsyncMLCEngine(loader=fake_loader())
    engine.terminate()

    with pytest.raises(ValueError, match="terminated") as caught:
        await engine.chat.completions.create(messages=[USER])

    assert isinstance(caught.value, EngineClosedError)


def test_a_missing_directory_sets_errno_and_path(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        MLCEngine(tmp_path / "none")

    assert caught.value.errno == 2
    assert isinstance(caught.value, ModelLoadError)
    assert caught.value.path == tmp_path / "none"
