"""The package `mlc_llm` of the examples: what programs and tests written for MLC LLM use of it."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx2
import pytest
from anyio.lowlevel import checkpoint

import aiomlc
from aiomlc import AiomlcError, AsyncMLCEngine, BadRequestError
from aiomlc.config import BUNDLED_MODEL
from aiomlc.serve import ServerOptions, create_app
from aiomlc.testing import FakeCore, FakeEncoder, fake_loader
from tests.unit.runtime.images.pictures import encoded, gradient
from tests.unit.serve.asgi import CHAT, events_of

DROP_IN = Path(__file__).parents[3] / "examples" / "drop_in"
pytestmark = pytest.mark.timeout(30)
# Names that MLC LLM's own tests, documents and examples import.
NAMES = {
    "": "MLCEngine AsyncMLCEngine protocol serve __version__",
    "serve": "AsyncMLCEngine MLCEngine EngineConfig data Data TextData TokenData Request "
    "RequestStreamOutput AsyncEmbeddingEngine PopenServer PagedRadixTree engine_utils",
    "serve.config": "EngineConfig",
    "serve.data": "TextData TokenData ImageData RequestStreamOutput SingleRequestStreamOutput",
    "serve.embedding_engine": "AsyncEmbeddingEngine",
    "serve.engine": "MLCEngine AsyncMLCEngine EngineConfig Chat AsyncChat",
    "serve.engine_base": "EngineConfig EngineMetrics CallbackStreamOutput EngineState "
    "MLCEngineBase detect_device _check_engine_config _parse_models _process_model_args "
    "_query_engine_metrics",
    "serve.engine_utils": "random_uuid convert_prompts_to_data",
    "serve.event_trace_recorder": "EventTraceRecorder",
    "serve.radix_tree": "PagedRadixTree",
    "serve.request": "Request",
    "serve.server": "PopenServer ServerContext",
    "serve.entrypoints": "openai_entrypoints metrics_entrypoints debug_entrypoints",
    "serve.sync_engine": "EngineConfig SyncMLCEngine _create_tvm_module",
    "json_ffi": "JSONFFIEngine",
    "json_ffi.engine": "JSONFFIEngine EngineState BackgroundLoops Completions Chat",
    "protocol.conversation_protocol": "Conversation MessagePlaceholders",
    "protocol.debug_protocol": "DebugConfig",
    "protocol.error_protocol": "BadRequestError ErrorResponse create_error_response",
    "protocol.generation_config": "GenerationConfig",
    "protocol.microserving_protocol": "PrepRecvRequest RemoteSendRequest StartGenerateRequest",
    "protocol.openai_api_protocol": "ChatCompletionRequest ChatCompletionResponse StreamOptions "
    "CompletionRequest CompletionResponse EmbeddingRequest CHAT_COMPLETION_MAX_TOP_LOGPROBS "
    "COMPLETION_MAX_TOP_LOGPROBS ListResponse ModelResponse",
    "router": "Router",
    "testing": "require_test_model require_test_tokenizers",
    "tokenizers": "Tokenizer TextStreamer StopStrHandler",
    "conversation_template": "ConvTemplateRegistry",
    "support.auto_device": "detect_device",
    "support.constants": "MLC_TEMP_DIR MLC_TEST_MODEL_PATH",
    "support.logging": "enable_logging getLogger",
    "cli.serve": "main",
    "cli.convert_weight": "main",
    "interface.serve": "serve",
}


@pytest.fixture(autouse=True)
def drop_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Put the package on the path, and take it off again."""
    monkeypatch.syspath_prepend(DROP_IN)
    finders = list(sys.meta_path)
    yield
    sys.meta_path[:] = finders
    for name in [name for name in sys.modules if name.partition(".")[0] == "mlc_llm"]:
        del sys.modules[name]


def module(name: str) -> Any:  # noqa: ANN401 - modules without types.
    return import_module(f"mlc_llm.{name}".removesuffix("."))


@pytest.mark.parametrize("name", NAMES)
def test_the_names_of_mlc_llm_are_in_its_modules(name: str) -> None:
    for attribute in NAMES[name].split():
        assert hasattr(module(name), attribute)


@pytest.mark.parametrize(
    "name",
    ["model", "quantization", "bench.dataset", "cli.package", "interface.jit", "op", "support.x"],
)
def test_a_module_that_does_not_exist_here_says_so(name: str) -> None:
    module("")
    with pytest.raises(
        ImportError, match=f"mlc_llm.{name.split('.')[0]}.* is not supported"
    ) as caught:
        module(name)

    assert isinstance(caught.value, AiomlcError)


@pytest.mark.parametrize(
    ("name", "attribute"),
    [("serve.engine_base", "AsyncRequestStream")],
)
def test_a_class_that_does_not_exist_here_says_so(name: str, attribute: str) -> None:
    with pytest.raises(AiomlcError, match="is not supported by aiomlc"):
        getattr(module(name), attribute)
    with pytest.raises(ImportError, match="is not supported by aiomlc"):
        exec(f"from mlc_llm.{name} import {attribute}")
    assert not hasattr(module(name), attribute)
    with pytest.raises(AttributeError):
        _ = module(name).no_such_name
    with pytest.raises(ModuleNotFoundError):
        module("no_such_module")


def test_images_have_the_class_of_mlc_llm() -> None:
    image_data = module("serve.data").ImageData
    config = {
        "model_type": "llava",
        "model_config": {"vision_config": {"image_size": 336, "patch_size": 14}},
    }
    url = f"data:image/png;base64,{base64.b64encode(encoded(gradient(5, 3), 'PNG')).decode()}"

    image = image_data.from_url(url, config)

    assert issubclass(image_data, aiomlc.ImageData)
    assert image.image.shape == (1, 3, 5, 3)
    assert image == image_data(image.image, 7)
    assert (len(image), len(image_data(image.image, 7))) == (576, 7)
    assert len(image_data.from_url(url, {**config, "model_type": "phi3_v"})) == 1921
    assert image_data.get_embed_size(config) == 576
    assert image_data.get_input_size(config) == 336
    with pytest.raises(ValueError, match="Unsupported image URL format"):
        image_data.from_url("ftp://a", config)


def test_configurations_can_be_changed_and_are_checked() -> None:
    config = module("serve").EngineConfig(max_num_sequence=2)
    config.max_num_sequence = 3
    config.additional_models.append("draft:lib.so")
    config.speculative_mode = "small_draft"
    parameters = module("protocol.generation_config").GenerationConfig(n=2)
    parameters.temperature = 0.5

    assert config.frozen().max_num_sequence == 3
    assert config.frozen().draft_model == ("draft", "lib.so")
    assert json.loads(config.asjson())["max_num_sequence"] == 3
    assert module("serve").EngineConfig.from_json(config.asjson()) == config
    assert json.loads(parameters.model_dump_json())["n"] == 2
    assert parameters.frozen().temperature == 0.5
    with pytest.raises(BadRequestError):
        module("serve").EngineConfig(max_num_sequence=0)
    with pytest.raises(ValueError, match="temperature"):
        module("protocol.generation_config").GenerationConfig(temperature=-1)
    config.max_num_sequence = 0
    with pytest.raises(BadRequestError, match="max_num_sequence"):
        module("serve").MLCEngine(engine_config=config, loader=fake_loader(FakeCore()))


def test_conversation_templates_can_be_changed_and_registered() -> None:
    registry = module("conversation_template").ConvTemplateRegistry
    template = registry.get_conv_template("chatml")
    template.system_message = "Be brief."
    template.messages.append(("user", "Hello"))
    template.messages.append(("assistant", None))
    other = registry.get_conv_template("chatml")
    other.name = "drop-in test"
    registry.register_conv_template(other)

    (prompt,) = template.as_prompt()
    assert prompt == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    assert other.messages == []
    assert registry.get_conv_template("drop-in test") == other
    with pytest.raises(ValueError, match="already"):
        registry.register_conv_template(other)


def test_the_functions_of_mlc_llms_engines_read_models() -> None:
    base = module("serve.engine_base")
    models = base._parse_models(str(BUNDLED_MODEL), None, ["draft:lib.so"])
    arguments, files, template = base._process_model_args(models[:1], "auto", base.EngineConfig())

    assert [(info.model, info.model_lib) for info in models[1:]] == [("draft", "lib.so")]
    assert arguments == [(str(BUNDLED_MODEL), "")]
    assert files == [str(BUNDLED_MODEL / "mlc-chat-config.json")]
    assert template is None or template.roles


@pytest.mark.parametrize("name", ["MLCEngine", "AsyncMLCEngine"])
def test_every_documented_argument_of_the_engines_is_accepted_at_its_default(name: str) -> None:
    engine = getattr(module(""), name)(
        model=str(BUNDLED_MODEL / "mlc-chat-config.json"),
        device="auto",
        model_lib=None,
        mode="local",
        additional_models=None,
        max_batch_size=None,
        max_total_sequence_length=None,
        prefill_chunk_size=None,
        max_history_size=None,
        gpu_memory_utilization=None,
        speculative_mode="disable",
        spec_draft_length=4,
        enable_tracing=False,
        verbose=True,
        loader=fake_loader(FakeCore()),
    )

    assert engine.engine_config.spec_draft_length == 4
    assert engine.model_config_dicts
    engine.terminate()


@pytest.mark.parametrize(
    ("settings", "rows", "budget"),
    [
        ({}, 4, 2048),
        ({"mode": "interactive"}, None, 2048),
        ({"mode": "server"}, None, 2048),
        ({"max_batch_size": 2, "prefill_chunk_size": 256}, 2, 256),
    ],
)
def test_the_sizes_of_an_engine_are_those_of_mlc_llm(
    settings: dict[str, Any], rows: int | None, budget: int
) -> None:
    engine = module("").MLCEngine(loader=fake_loader(FakeCore()), **settings)

    config = engine.engine_config
    assert (config.max_num_sequence, config.step_token_budget) == (rows, budget)
    engine.terminate()


def row_of(outputs: list[Any]) -> tuple[list[str], Any]:
    """Return the texts of a request's choices, and its usage."""
    texts = [""] * len(outputs[0])
    for row in outputs[:-1]:
        assert len(row) == len(texts)
        texts = [text + output.delta_text for text, output in zip(texts, row, strict=True)]

    return texts, json.loads(outputs[-1][0].request_final_usage_json_str)


def test_blocking_engine_generates_and_has_a_role_in_every_chunk() -> None:
    parameters = module("protocol.generation_config").GenerationConfig(n=2, max_tokens=50)
    core = FakeCore(["Hello you", "Hi!", "Hello you"])
    engine = module("serve.engine").MLCEngine(loader=fake_loader(core), enable_tracing=True)
    with engine:
        texts, usage = row_of(list(engine._generate("Hello", parameters, request_id="1")))
        with engine.chat.completions.create(**CHAT, stream=True) as chunks:
            roles = {choice.delta.role for chunk in chunks for choice in chunk.choices}
        engine.state.record_event("1", "own event")
        trace = json.loads(engine.state.trace_recorder.dump_json())
        metrics = engine.metrics()

    assert texts == ["Hello you", "Hi!"]
    assert usage["completion_tokens"] > 2
    assert roles == {"assistant"}
    assert len(trace) > 1
    assert metrics["sum_num_draft_tokens"] == 0
    assert repr(type(engine)) == "<class 'mlc_llm.serve.engine.MLCEngine'>"
    with pytest.raises(AiomlcError, match="_ffi"):
        engine._ffi["no_such_function"]


async def test_async_engine_generates_and_has_a_role_in_every_chunk() -> None:
    parameters = module("protocol.generation_config").GenerationConfig(max_tokens=50)
    core = FakeCore(["Hello you", "Hello you", "Hello"])
    async with module("serve.engine").AsyncMLCEngine(loader=fake_loader(core)) as engine:
        outputs = [row async for row in engine._generate("Hello", parameters, request_id="1")]
        chunks = await engine.chat.completions.create(**CHAT, stream=True)
        roles = [choice.delta.role async for chunk in chunks for choice in chunk.choices]
        whole = await engine.chat.completions.create(**CHAT)

    assert row_of(outputs)[0] == ["Hello you"]
    assert set(roles) == {"assistant"}
    assert whole.choices[0].message.content == "Hello"


def test_step_engine_has_the_functions_of_mlc_llm() -> None:
    data = module("serve").data
    outputs: list[Any] = []
    engine = module("serve.sync_engine").SyncMLCEngine(
        loader=fake_loader(FakeCore(["Hi", "Hi"])), enable_tracing=True
    )
    with engine:
        engine._ffi["set_request_stream_callback"](outputs.extend)
        request = module("serve.request").Request("1", data.TextData("Hello"))
        engine._ffi["add_request"](request)
        engine._ffi["add_request"](
            engine._ffi["create_request"]("2", data.TextData("Hello"), '{"max_tokens": 5}')
        )
        while engine.step():
            pass

        assert json.loads(engine._ffi["json_metrics"]())["prompt_tokens_sum"] > 0
        assert json.loads(engine.trace_recorder.dump_json())

    assert {output.unpack()[0] for output in outputs} == {"1", "2"}


def test_json_engine_has_the_functions_of_mlc_llm() -> None:
    engine = module("json_ffi").JSONFFIEngine(loader=fake_loader(FakeCore(["Hi"])))
    assert engine._ffi["chat_completion"](json.dumps(CHAT), "1") is True
    texts = [engine._state.sync_queue.get(timeout=20)]
    while '"usage":{' not in texts[-1]:
        texts.append(engine._state.sync_queue.get(timeout=20))

    assert engine._ffi["chat_completion"]("{", "2") is False
    assert "JSON" in engine._ffi["get_last_error"]()
    engine._background_loops.terminate()
    assert '"role":"assistant"' in texts[0]


def test_embedding_engine_says_its_special_tokens_and_its_limit() -> None:
    engine = module("serve.embedding_engine").AsyncEmbeddingEngine(
        loader=fake_loader(FakeEncoder())
    )

    assert engine._metadata["prefill_chunk_size"] == engine.tokenizer.max_tokens
    assert {"_cls_token_id", "_sep_token_id"} <= vars(engine).keys()
    engine.terminate()


def chunks_of(answer: httpx2.Response) -> list[Any]:
    *chunks, last = events_of(answer.text)
    assert last == "[DONE]"
    return chunks


async def test_server_answers_as_mlc_llms() -> None:
    core = FakeCore(["Hello you", "Hello you", "world", "world"])
    engine = module("serve.engine").AsyncMLCEngine(loader=fake_loader(core))
    async with engine:
        app = module("serve.server.answers").MLCAnswers(
            create_app({"m": engine}, ServerOptions()), "path/m", enable_debug=False
        )
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://app") as client:
            chat = await client.post(
                "/v1/chat/completions", json={**CHAT, "stream": True, "debug_config": {"x": 1}}
            )
            whole = await client.post("/v1/chat/completions", json=CHAT)
            fields: dict[str, Any] = {"prompt": "Hello", "suffix": "!"}
            texts = [
                await client.post("/v1/completions", json={**fields, "stream": stream})
                for stream in (False, True)
            ]
            models = await client.get("/v1/models")
            errors = [
                await client.post("/v1/completions", json={"prompt": "a", **wrong})
                for wrong in ({"best_of": 2}, {"n": 0}, {"prompt": [1] * 100_000})
            ]

    deltas = [choice["delta"] for event in chunks_of(chat) for choice in event["choices"]]
    assert {delta["role"] for delta in deltas} == {"assistant"}
    assert "".join(delta["content"] for delta in deltas) == "Hello you"
    assert whole.json()["choices"][0]["message"]["tool_calls"] is None
    assert texts[0].json()["choices"][0]["text"] == "world!"
    events = chunks_of(texts[1])
    assert "".join(event["choices"][0]["text"] for event in events) == "world!"
    assert all(event["usage"] is None for event in events)
    assert (
        models.json()["data"][0] | {"id": "path/m", "owned_by": "MLC-LLM"}
        == (models.json()["data"][0])
    )
    messages = [json.loads(answer.json())["message"] for answer in errors]
    assert {answer.status_code for answer in errors} == {400}
    assert messages[0] == 'Request fields "best_of" are not supported right now.'
    assert messages[2].startswith("Request prompt has 100000 tokens in total, larger than the")


async def test_server_does_not_read_more_than_the_limit() -> None:
    parts = [{"type": "http.request", "body": b" " * 2**20, "more_body": True}] * 40
    left, sent = list(parts), []

    async def receive() -> dict[str, Any]:
        await checkpoint()
        return left.pop()

    async def send(message: dict[str, Any]) -> None:
        await checkpoint()
        sent.append(message)

    async with AsyncMLCEngine(loader=fake_loader(FakeCore())) as engine:
        app = module("serve.server.answers").MLCAnswers(
            create_app({"m": engine}, ServerOptions()), "path/m", enable_debug=False
        )
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/v1/completions",
            "headers": [(b"content-type", b"application/json")],
        }
        await app(scope, receive, send)

    assert sent[0]["status"] == 413
    assert b"8388608 bytes" in sent[1]["body"]
    assert len(left) > 1


def test_the_tests_of_programs_get_the_paths_of_models(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "mlc-chat-config.json").touch()
    monkeypatch.setenv("MLC_LLM_TEST_MODEL_PATH", str(tmp_path))
    require: Any = module("testing").require_test_model
    got: list[str] = []

    def needs_model(model: str) -> None:
        got.append(model)

    require("m")(needs_model)()
    missing = require("other")(needs_model)

    assert got == [str(tmp_path / "m")]
    assert [mark.name for mark in vars(missing)["pytestmark"]] == ["skipif"]
