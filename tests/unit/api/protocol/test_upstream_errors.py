"""Every error that a caller of upstream's Python engines can meet, and what it is here.

A row is a way to provoke one, the built-in class that upstream's is of, our class, the field at
fault and a part of the text. What upstream's native code refuses, as a failed check without a
class of its own, is a ValueError here where the caller can mend it.

Not here, by design: errors of the REST server, the router, microserving, several GPUs, images,
downloads and compiler policies; of what works here (several tools with a `tool_choice`,
`tool_calls` sent back, parts of text, system messages where the template has a place for them, a
second `unpack`); of `StopStrHandler` and of upstream's threads.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pydantic import ValidationError

from aiomlc import (
    AsyncMLCEngine,
    EngineConfig,
    GenerationConfig,
    JSONFFIEngine,
    MLCEngine,
    SyncMLCEngine,
    TextStreamer,
)
from aiomlc.errors import (
    AiomlcError,
    BadRequestError,
    CompileError,
    DuplicateRequestError,
    EngineClosedError,
    EngineError,
    ModelLoadError,
    ModelNotFoundError,
    PromptTooLongError,
)
from aiomlc.runtime.loading.capacity import serving_limits
from aiomlc.runtime.loading.loaded_model import LoadedModel
from aiomlc.runtime.templates.conversation import Conversation
from aiomlc.runtime.templates.jinja_template import ChatTemplate
from aiomlc.runtime.tokenization.tokenizer import Tokenizer
from aiomlc.testing import FakeCore, fake_loader, fake_model

pytestmark = pytest.mark.timeout(20)
USER = {"role": "user", "content": "Hello"}
TOOL = {"type": "function", "function": {"name": "f"}}


@dataclass(frozen=True)
class Scene:
    """What a row may use."""

    folder: Path
    patch: pytest.MonkeyPatch


class Row(NamedTuple):
    name: str
    provoke: Callable[[Scene], object]
    builtin: type[Exception]
    ours: type[Exception]
    field: str | None
    text: str


def refused(name: str, provoke: Callable[[Scene], object], field: str | None, text: str) -> Row:
    """A row of upstream's most frequent class."""
    return Row(name, provoke, ValueError, BadRequestError, field, text)


class Request(NamedTuple):
    """A chat that is refused, and the words of it, on every way in."""

    fields: dict[str, Any]
    param: str
    text: str


REQUESTS = {
    "best_of": Request({"best_of": 2}, "best_of", "best_of is not supported"),
    "tool_call_id of a user": Request(
        {"messages": [{**USER, "tool_call_id": "x"}]}, "messages[0].tool_call_id", "tool_call_id"
    ),
    "tool_calls of a user": Request(
        {"messages": [{**USER, "tool_calls": []}]}, "messages[0].tool_calls", "tool_calls"
    ),
    "a role": Request(
        {"messages": [USER, {"role": "poet", "content": "O"}]},
        "messages[1]",
        "role is 'poet', not one of",
    ),
    "a content part": Request(
        {"messages": [{"role": "user", "content": [{"type": "video", "url": "u"}]}]},
        "messages[0].content",
        "content part of type 'video' is not supported",
    ),
    "an image": Request(
        {
            "messages": [
                {"role": "user", "content": [{"type": "image_url", "image_url": "ftp://a"}]}
            ]
        },
        "messages[0].content",
        "content part of type 'image_url' is not supported",
    ),
    "a kind of tool choice": Request(
        {"tools": [TOOL], "tool_choice": {"type": "custom", "custom": {"name": "f"}}},
        "tool_choice",
        "type 'custom' is not supported",
    ),
    "a value of tool choice": Request(
        {"tools": [TOOL], "tool_choice": "always"}, "tool_choice", "'none', 'auto' or 'required'"
    ),
    "a tool choice among no such": Request(
        {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "g"}}},
        "tool_choice",
        "there is no tool 'g' among the tools",
    ),
    "a kind of tool": Request(
        {"tools": [{"type": "custom", "function": {"name": "f"}}]}, "tools[0].type", "'function'"
    ),
    "frequency_penalty": Request(
        {"frequency_penalty": 2.5}, "frequency_penalty", "should be in range [-2, 2]"
    ),
    "presence_penalty": Request(
        {"presence_penalty": -2.5}, "presence_penalty", "should be in range [-2, 2]"
    ),
    "logit_bias": Request(
        {"logit_bias": {"7": 101}}, "logit_bias.7", "should be in range [-100, 100], not 101"
    ),
    "top_logprobs": Request(
        {"logprobs": True, "top_logprobs": 21}, "top_logprobs", "in range [0, 20]"
    ),
    "top_logprobs alone": Request(
        {"top_logprobs": 2}, "top_logprobs", '"logprobs" must be True to support "top_logprobs"'
    ),
    "debug_config": Request(
        {"debug_config": {"special_request": "query_engine_metrics"}},
        "debug_config",
        "debug_config is not supported",
    ),
    "n": Request({"n": 0}, "n", "should be at least 1"),
    "temperature": Request({"temperature": -1}, "temperature", "should be non-negative"),
    "top_p": Request({"top_p": 1.5}, "top_p", "in range [0, 1]"),
    "repetition_penalty": Request(
        {"repetition_penalty": 0}, "repetition_penalty", "should be positive"
    ),
    "stop": Request({"stop": ""}, "stop[0]", "cannot be empty"),
    "a kind of response_format": Request(
        {"response_format": {"type": "xml"}}, "response_format", "type is 'xml', not one of"
    ),
    "a schema that is no JSON": Request(
        {"response_format": {"type": "json_object", "schema": "{"}},
        "response_format.schema",
        "is not JSON",
    ),
}


def make(**arguments: Any) -> MLCEngine:  # noqa: ANN401
    return MLCEngine(**{"loader": fake_loader(), **arguments})


def chat(scene: Scene, /, **fields: Any) -> None:  # noqa: ANN401
    with make() as engine:
        engine.chat.completions.create(**{"messages": [USER], **fields})


def complete(scene: Scene, /, **fields: Any) -> None:  # noqa: ANN401
    with make() as engine:
        engine.completions.create(**{"prompt": "Hello", **fields})


def construct(scene: Scene, /, **arguments: Any) -> None:  # noqa: ANN401
    make(**arguments)


def configure(scene: Scene, /, **fields: Any) -> None:  # noqa: ANN401
    EngineConfig(**fields)


def generation(scene: Scene, /, **fields: Any) -> None:  # noqa: ANN401
    GenerationConfig(**fields)


def construct_with_a_library(scene: Scene) -> None:
    library = scene.folder / "model.so"
    library.write_bytes(b"")
    make(model_lib=library)


def load_nothing(scene: Scene) -> None:
    MLCEngine(scene.folder / "none")


def load_an_empty_directory(scene: Scene) -> None:
    MLCEngine(scene.folder)


def load_a_url(scene: Scene) -> None:
    MLCEngine("HF://mlc-ai/a-model")


def read_no_tokenizer(scene: Scene) -> None:
    Tokenizer.from_file(scene.folder / "tokenizer.json")


def fail_to_compile(scene: Scene) -> None:
    scene.patch.setenv("AIOMLC_HOME", str(scene.folder))
    compiler = scene.folder / "compiler"
    compiler.write_text("#!/bin/sh\necho out of luck >&2\nexit 3\n")
    compiler.chmod(0o755)
    scene.patch.setattr(sys, "executable", str(compiler))
    MLCEngine()


def plan_for_too_little_memory(scene: Scene) -> None:
    serving_limits(
        EngineConfig(),
        mode="local",
        context_window=1024,
        kv_bytes_per_token=1 << 20,
        memory_bytes=1 << 20,
    )


def ask_after_the_end(scene: Scene) -> None:
    engine = make()
    engine.terminate()
    engine.chat.completions.create(messages=[USER])


def step_after_the_end(scene: Scene) -> None:
    engine = SyncMLCEngine(loader=fake_loader())
    engine.terminate()
    engine.step()


def reuse_a_live_id(scene: Scene) -> None:
    core = FakeCore(["Hi"], hand_stepped=True)
    with make(loader=fake_loader(core)) as engine:
        create = partial(engine.chat.completions.create, messages=[USER], request_id="one")
        with create(stream=True):
            create()


def say_too_much(scene: Scene) -> None:
    chat(scene, messages=[{"role": "user", "content": "a" * 2000}])


def set_a_system_message_where_the_template_takes_none(scene: Scene) -> None:
    template = ChatTemplate(
        "{% for message in messages %}{% if message.role == 'system' and not loop.first %}"
        "{{ raise_exception('the system message comes first') }}{% endif %}{% endfor %}"
    )
    with make(loader=loader_of(replace(fake_model(FakeCore()), chat_template=template))) as engine:
        engine.chat.completions.create(messages=[USER, {"role": "system", "content": "Be kind."}])


def chat_in_a_template(scene: Scene, late: dict[str, Any]) -> None:
    template = Conversation(roles={"user": "U", "assistant": "A"}, seps=("\n",))
    with make(loader=loader_of(replace(fake_model(FakeCore()), chat_template=template))) as engine:
        engine.chat.completions.create(messages=[USER, late])


def make_a_template_with_three_separators(scene: Scene) -> None:
    Conversation(roles={"user": "U", "assistant": "A"}, seps=("1", "2", "3"))


def loader_of(model: LoadedModel) -> Any:  # noqa: ANN401
    async def load(*arguments: object, **options: object) -> LoadedModel:
        return model

    return load


def step_without_a_callback(scene: Scene) -> None:
    with SyncMLCEngine(loader=fake_loader()) as engine:
        engine.step()


def request_nothing(scene: Scene) -> None:
    with SyncMLCEngine(loader=fake_loader()) as engine:
        engine.create_request("one", [])


def generate_with_fewer_configs(scene: Scene) -> None:
    with SyncMLCEngine(loader=fake_loader()) as engine:
        engine.generate(["a", "b"], [GenerationConfig()])


def put_after_finish(scene: Scene) -> None:
    streamer = TextStreamer(fake_model(FakeCore()).tokenizer)
    streamer.finish()
    streamer.put([65])


def ask_json_for_a_whole_answer(scene: Scene) -> None:
    with JSONFFIEngine(loader=fake_loader()) as engine:
        engine.chat.completions.create(messages=[USER], stream=False)


ERRORS = [
    # The constructor.
    refused(
        "model twice",
        partial(construct, model="a", engine_config=EngineConfig(model="b")),
        "model",
        'The argument "model" of engine constructor is "a", while the "model" field in argument '
        '"engine_config" is "b". Please set the "engine_config.model" to None or set it to the '
        'same as the argument "model".',
    ),
    refused(
        "mode twice",
        partial(construct, mode="local", engine_config=EngineConfig(mode="server")),
        "mode",
        'The argument "mode" of engine constructor is "local", while the "mode" field',
    ),
    refused(
        "model_lib in the configuration",
        partial(configure, model_lib="model.so"),
        "model_lib",
        "engine_config.model_lib = 'model.so' is not supported",
    ),
    refused(
        "kv_cache_page_size",
        partial(configure, kv_cache_page_size=8),
        "kv_cache_page_size",
        'KV cache only supports page size 16, while the "kv_cache_page_size" field in argument '
        '"engine_config" is "8". Please set "engine_config.kv_cache_page_size" to 16.',
    ),
    Row(
        "model_lib that is no file",
        partial(construct, model_lib="no/model.so"),
        FileNotFoundError,
        ModelNotFoundError,
        "model_lib",
        "the model_lib you passed in is not a file: no/model.so",
    ),
    refused(
        "model_lib that is one",
        construct_with_a_library,
        "model_lib",
        "model_lib is not supported",
    ),
    refused(
        "a device without a meaning",
        partial(construct, device="abacus"),
        "device",
        "device 'abacus' is not supported",
    ),
    refused(
        "a device that is not here",
        partial(construct, device="cuda:3"),
        "device",
        "device 'cuda:3' is not supported",
    ),
    refused(
        "max_history_size of a transformer",
        partial(configure, max_history_size=4),
        "max_history_size",
        "engine_config.max_history_size = 4 is not supported",
    ),
    refused(
        "eagle",
        partial(configure, speculative_mode="eagle", spec_draft_length=0),
        "speculative_mode",
        "engine_config.speculative_mode = 'eagle' is not supported",
    ),
    refused(
        "speculative_mode",
        partial(configure, speculative_mode="guess"),
        "speculative_mode",
        "speculative_mode is 'guess', not one of",
    ),
    refused(
        "prefix_cache_mode",
        partial(configure, prefix_cache_mode="tree"),
        "prefix_cache_mode",
        "prefix_cache_mode is 'tree', not one of",
    ),
    # Loading.
    Row(
        "no directory",
        load_nothing,
        FileNotFoundError,
        ModelNotFoundError,
        "model",
        "cannot find model",
    ),
    Row(
        "no configuration",
        load_an_empty_directory,
        FileNotFoundError,
        ModelNotFoundError,
        None,
        "has neither mlc-chat-config.json nor config.json",
    ),
    refused(
        "a URL",
        load_a_url,
        "model",
        "model 'HF://mlc-ai/a-model' is a URL",
    ),
    Row(
        "no tokenizer",
        read_no_tokenizer,
        RuntimeError,
        ModelNotFoundError,
        None,
        "cannot find the tokenizer",
    ),
    Row(
        "a compiler that fails",
        fail_to_compile,
        RuntimeError,
        CompileError,
        None,
        "the model cannot be compiled: exit status 3\nout of luck",
    ),
    Row(
        "too little memory",
        plan_for_too_little_memory,
        RuntimeError,
        ModelLoadError,
        "max_total_sequence_length",
        "the memory holds 1: lower max_total_sequence_length, max_num_sequence or "
        "max_single_sequence_length",
    ),
    # Serving.
    Row("the end", ask_after_the_end, ValueError, EngineClosedError, None, "terminated"),
    Row("the end of steps", step_after_the_end, ValueError, EngineClosedError, None, "terminated"),
    Row(
        "an id that lives",
        reuse_a_live_id,
        RuntimeError,
        DuplicateRequestError,
        None,
        "request_id 'one' belongs to a request that is still running",
    ),
    Row(
        "a long prompt",
        say_too_much,
        ValueError,
        PromptTooLongError,
        None,
        "tokens, context window is 1024",
    ),
    refused(
        "a late system message",
        set_a_system_message_where_the_template_takes_none,
        "messages",
        "refuses the messages: the system message comes first",
    ),
    refused(
        "a late system message of a conversation template",
        partial(chat_in_a_template, late={"role": "system", "content": "Be kind."}),
        "messages",
        "has no role 'system' after the beginning",
    ),
    refused(
        "a role of no conversation template",
        partial(chat_in_a_template, late={"role": "tool", "content": "4", "tool_call_id": "x"}),
        "messages",
        "has no role 'tool'",
    ),
    Row(
        "separators of a conversation template",
        make_a_template_with_three_separators,
        ValueError,
        ValidationError,
        None,
        "seps should have size 1 or 2.",
    ),
    *(
        refused(name, partial(chat, **fields), param, text)
        for name, (fields, param, text) in REQUESTS.items()
    ),
    refused(
        "stream_options without a stream",
        partial(chat, stream_options={"include_usage": True}),
        "stream_options",
        "stream must be set to True when stream_options is present",
    ),
    refused(
        "a prompt of another kind",
        partial(complete, prompt=5),
        "prompt",
        "is not text, token ids",
    ),
    refused(
        "logprobs of a completion",
        partial(complete, logprobs=21),
        "logprobs",
        "in range [0, 20]",
    ),
    refused(
        "best_of below n",
        partial(complete, n=2, best_of=1),
        "best_of",
        "best_of is 1, below n 2",
    ),
    # `GenerationConfig`.
    refused(
        "n of a config",
        partial(generation, n=0),
        "n",
        '"n" should be at least 1',
    ),
    refused(
        "temperature of a config",
        partial(generation, temperature=-0.5),
        "temperature",
        '"temperature" should be non-negative',
    ),
    refused(
        "top_p of a config",
        partial(generation, top_p=1.5),
        "top_p",
        '"top_p" should be in range [0, 1]',
    ),
    *(
        refused(
            f"{name} of a config",
            partial(generation, **{name: 2.5}),
            name,
            f'"{name}" should be in range [-2, 2]',
        )
        for name in ("frequency_penalty", "presence_penalty")
    ),
    refused(
        "repetition_penalty of a config",
        partial(generation, repetition_penalty=0),
        "repetition_penalty",
        '"repetition_penalty" should be positive',
    ),
    refused(
        "top_logprobs of a config",
        partial(generation, logprobs=True, top_logprobs=21),
        "top_logprobs",
        '"top_logprobs" should be in range [0, 20]',
    ),
    refused(
        "top_logprobs alone of a config",
        partial(generation, top_logprobs=2),
        "logprobs",
        '"logprobs" must be True to support "top_logprobs"',
    ),
    refused(
        "logit_bias of a config",
        partial(generation, logit_bias={7: 101}),
        "logit_bias",
        '"logit_bias" should be in range [-100, 100], not 101 for token 7',
    ),
    refused(
        "an empty stop string of a config",
        partial(generation, stop_strs=["a", ""]),
        "stop_strs",
        "stop string cannot be empty",
    ),
    *(
        refused(
            f"{name} of a config that is text",
            partial(generation, **{name: "2"}),
            name,
            f'"{name}" should be a number',
        )
        for name in ("n", "temperature", "top_p", "max_tokens", "frequency_penalty")
    ),
    refused(
        "debug_config of a config",
        partial(generation, debug_config={"special_request": "query_engine_metrics"}),
        "debug_config",
        "debug_config is not supported",
    ),
    # `SyncMLCEngine`, `TextStreamer` and `JSONFFIEngine`.
    Row(
        "no callback",
        step_without_a_callback,
        RuntimeError,
        EngineError,
        None,
        "The request stream callback is not set. Engine cannot execute.",
    ),
    refused(
        "no input",
        request_nothing,
        "inputs",
        "No input data is given.",
    ),
    refused(
        "fewer configs than prompts",
        generate_with_fewer_configs,
        "generation_config",
        "there are 2 prompts and 1 generation configs",
    ),
    refused(
        "text after its end",
        put_after_finish,
        None,
        "`put` is not expected to be invoked after finish.",
    ),
    refused(
        "JSON without a stream",
        ask_json_for_a_whole_answer,
        "stream",
        "JSONFFIEngine only support stream=True",
    ),
]


@pytest.mark.parametrize("row", ERRORS, ids=[row.name for row in ERRORS])
def test_an_error_of_upstreams_is_caught_by_its_class_and_says_as_much(
    row: Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(row.builtin) as caught:
        row.provoke(Scene(tmp_path, monkeypatch))

    error = caught.value
    assert type(error) is row.ours
    assert (getattr(error, "param", None) or getattr(error, "field", None)) == row.field
    assert row.text in str(error)


@pytest.fixture(scope="module")
def json_engine() -> Iterator[JSONFFIEngine]:
    with JSONFFIEngine(loader=fake_loader()) as engine:
        yield engine


@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS)
def test_json_is_told_of_it_in_a_chunk_and_a_usage_ends_the_answer(
    json_engine: JSONFFIEngine, request_: Request
) -> None:
    chunks = list(
        json_engine.chat.completions.create(
            **{
                "messages": [USER],
                "stream_options": {"include_usage": True},
                **request_.fields,
            }
        )
    )

    assert len(chunks) == 2
    assert chunks[0].choices[0].finish_reason == "error"
    assert request_.text in (chunks[0].choices[0].delta.content or "")
    assert chunks[1].usage is not None


@pytest.mark.parametrize(("text", "reason"), [("{", "is not JSON"), ("[]", "not a JSON object")])
def test_json_that_is_no_request_is_told_of_in_a_chunk(
    json_engine: JSONFFIEngine, text: str, reason: str
) -> None:
    told = "".join(json_engine.chat_completion(text))

    assert reason in told
    assert '"finish_reason":"error"' in told


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


async def test_an_ended_engine_refuses_tasks_as_it_refuses_threads() -> None:
    engine = AsyncMLCEngine(loader=fake_loader())
    engine.terminate()

    with pytest.raises(ValueError, match="terminated") as caught:
        await engine.chat.completions.create(messages=[USER])

    assert isinstance(caught.value, EngineClosedError)


def test_a_file_that_is_not_there_has_the_number_that_says_so(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        MLCEngine(tmp_path / "none")

    assert caught.value.errno == 2
    assert isinstance(caught.value, ModelLoadError)
    assert caught.value.path == tmp_path / "none"
