"""Every way that text without a template takes gets the special tokens that `tokenizers` adds."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import gguf
import httpx2
import numpy as np
import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import processors

from aiomlc import AsyncMLCEngine, GenerationConfig, SyncMLCEngine, TextData
from aiomlc.batch import run_batch
from aiomlc.runtime.loading.facts import ModelFacts
from aiomlc.runtime.loading.loaded_model import LoadedModel
from aiomlc.runtime.loading.model_directory import ModelDirectory
from aiomlc.runtime.loading.text_files import TextFiles
from aiomlc.serve import create_app
from aiomlc.testing import FakeCore, fake_model
from tests.model.gguf_files import write_gguf
from tests.model.gguf_tokenizers import add_byte_level
from tests.model.tiny_models import TINY_CONFIGS, tiny_tokenizer
from tests.unit.serve.asgi import http_client

pytestmark = pytest.mark.timeout(20)
_CONFIG = TINY_CONFIGS["llama"] | {"vocab_size": 323}
TEXTS = ("Hello fox", "<s>Hello", "é </s>")


def _backend(*template: str) -> Backend:
    """Return the tiny tokenizer; it adds the tokens of the template, if there is one."""
    backend = tiny_tokenizer()
    backend.add_special_tokens(["<fim_prefix>", "<fim_suffix>", "<fim_middle>"])
    if template:
        ids = [(token, backend.token_to_id(token)) for token in ("<s>", "</s>")]
        added = processors.TemplateProcessing(single=" ".join(template), special_tokens=ids)
        backend.post_processor = processors.Sequence([processors.ByteLevel(), added])
    return backend


def _hugging_face(backend: Backend, path: Path, **config: object) -> Path:
    path.mkdir()
    backend.save(str(path / "tokenizer.json"))
    described = {"bos_token": "<s>", "eos_token": "</s>", **config}
    (path / "tokenizer_config.json").write_text(json.dumps(described))
    (path / "config.json").write_text(json.dumps(_CONFIG))
    return path


def _mlc(backend: Backend, path: Path) -> Path:
    config = {"model_type": "llama", "quantization": "q0f32", "model_config": _CONFIG}
    _hugging_face(backend, path)
    (path / "mlc-chat-config.json").write_text(json.dumps(config))
    return path


def _gguf(pre: str, keys: Mapping[str, bool], original: Backend | None, path: Path) -> Path:
    def add_text(writer: gguf.GGUFWriter) -> None:
        add_byte_level(writer, _backend(), pre, bos="<s>", eos="</s>")
        for key, value in keys.items():
            writer.add_bool(f"tokenizer.ggml.{key}", value)
        if original is not None:
            writer.add_string("tokenizer.huggingface.json", original.to_str())

    embedding = np.zeros((_CONFIG["vocab_size"], _CONFIG["hidden_size"]), np.float32)
    weights = {"model.embed_tokens.weight": embedding}
    return write_gguf(path.with_suffix(".gguf"), _CONFIG, weights, add_text)


_BOS, _BOTH = ("<s>", "$A"), ("<s>", "$A", "</s>")
_WITH_BOS, _WITHOUT = {"add_bos_token": True}, {"add_bos_token": False}
#: The writer of each source, and the template of the tokenizer that `tokenizers` would use for it.
SOURCES: dict[str, tuple[Callable[[Path], Path], tuple[str, ...]]] = {
    "template": (partial(_hugging_face, _backend(*_BOS)), _BOS),
    "template with end": (partial(_hugging_face, _backend(*_BOTH)), _BOTH),
    "no template": (partial(_hugging_face, _backend()), ()),
    # As in transformers 5, a `tokenizer.json` decides whatever `add_bos_token` says.
    "only a flag": (partial(_hugging_face, _backend(), add_bos_token=True), ()),
    "template and flag": (partial(_hugging_face, _backend(*_BOS), add_bos_token=False), _BOS),
    "mlc": (partial(_mlc, _backend(*_BOS)), ()),
    "gguf bos": (partial(_gguf, "gpt-2", _WITH_BOS, None), _BOS),
    "gguf both": (partial(_gguf, "gpt-2", _WITH_BOS | {"add_eos_token": True}, None), _BOTH),
    "gguf false": (partial(_gguf, "llama-bpe", _WITHOUT, None), ()),
    "gguf silent": (partial(_gguf, "gpt-2", {}, None), ()),
    "gguf llama 3": (partial(_gguf, "llama-bpe", {}, None), _BOS),
    "gguf tekken": (partial(_gguf, "tekken", {}, None), _BOS),
    "gguf original": (partial(_gguf, "gpt-2", {}, _backend(*_BOTH)), _BOTH),
    "gguf over original": (partial(_gguf, "gpt-2", _WITHOUT, _backend(*_BOS)), ()),
}


def _loader(source: Path, core: FakeCore) -> Any:  # noqa: ANN401 - a loader takes any arguments.
    files = TextFiles.read(ModelFacts(ModelDirectory(source)))

    async def load(*_: object, **__: object) -> LoadedModel:
        return replace(
            fake_model(core),
            tokenizer=files.tokenizer,
            adds_special_tokens=files.adds_special_tokens,
            vocab_size=files.tokenizer.vocab_size,
        )

    return load


def _client(engine: AsyncMLCEngine) -> httpx2.AsyncClient:
    return http_client(create_app({"fake": engine}))


async def _complete(engine: AsyncMLCEngine, text: str, options: dict[str, Any], _: Path) -> None:
    await engine.completions.create(prompt=text, **options)


async def _complete_several(
    engine: AsyncMLCEngine, text: str, options: dict[str, Any], _: Path
) -> None:
    await engine.completions.create(prompt=[text], echo=True, logprobs=0, max_tokens=1, **options)


async def _generate(engine: AsyncMLCEngine, text: str, options: dict[str, Any], _: Path) -> None:
    async for _delta in engine.generate(text, **options):
        pass


async def _batch(engine: AsyncMLCEngine, text: str, options: dict[str, Any], at: Path) -> None:
    body = {"prompt": text, **options}
    request = {"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": body}
    (at / "in.jsonl").write_text(json.dumps(request) + "\n")
    (at / "out.jsonl").unlink(missing_ok=True)
    summary = await run_batch(engine, at / "in.jsonl", at / "out.jsonl")
    assert summary.failed == 0


async def _pin(engine: AsyncMLCEngine, text: str, options: dict[str, Any], _: Path) -> None:
    assert not options
    (await engine.pin_prefix(prompt=text)).release()


_Way = Callable[[AsyncMLCEngine, str, dict[str, Any], Path], Awaitable[None]]
WAYS: tuple[_Way, ...] = (_complete, _complete_several, _generate, _batch, _pin)


@pytest.mark.parametrize("source", SOURCES)
async def test_text_gets_the_special_tokens_of_its_tokenizer(source: str, tmp_path: Path) -> None:
    write, template = SOURCES[source]
    core, stepped = FakeCore(["."]), FakeCore(["."])
    path = write(tmp_path / "model")
    oracle = _backend(*template)
    expected = []

    async with AsyncMLCEngine(loader=_loader(path, core)) as engine, _client(engine) as client:
        for text in TEXTS:
            due = oracle.encode(text).ids
            for way in WAYS:
                await way(engine, text, {}, tmp_path)
                expected.append(due)

            answer = await client.post("/tokenize", json={"prompt": text})
            assert answer.json()["tokens"] == due

    assert core.prompts == expected
    with SyncMLCEngine(loader=_loader(path, stepped)) as steps:
        steps.generate(TEXTS[0], GenerationConfig(max_tokens=1))
        steps.generate([[TextData("a"), TextData("b")]], GenerationConfig(max_tokens=1))
    assert stepped.prompts == [oracle.encode(text).ids for text in (TEXTS[0], "ab")]


@pytest.mark.parametrize("adds", [False, True])
@pytest.mark.parametrize("source", ["template with end", "no template", "mlc", "gguf both"])
async def test_a_request_decides_for_itself(source: str, adds: bool, tmp_path: Path) -> None:
    write, _ = SOURCES[source]
    core = FakeCore(["."])
    path = write(tmp_path / "model")
    oracle = _backend(*(() if source == "no template" else _BOTH))
    if source == "mlc":
        oracle = _backend(*_BOS)

    async with AsyncMLCEngine(loader=_loader(path, core)) as engine, _client(engine) as client:
        due = oracle.encode("Hello fox", add_special_tokens=adds).ids
        for way in WAYS[:-1]:
            await way(engine, "Hello fox", {"add_special_tokens": adds}, tmp_path)

        body = {"prompt": "Hello fox", "add_special_tokens": adds}
        answer = await client.post("/tokenize", json=body)

    assert core.prompts == [due] * len(WAYS[:-1])
    assert answer.json()["tokens"] == due


@pytest.mark.parametrize("source", ["template with end", "mlc", "gguf both", "no template"])
async def test_a_rendered_chat_gets_none_unless_the_request_asks(
    source: str, tmp_path: Path
) -> None:
    write, _ = SOURCES[source]
    core = FakeCore(["."])
    chat: dict[str, Any] = {"messages": [{"role": "user", "content": "Hello"}]}
    async with AsyncMLCEngine(loader=_loader(write(tmp_path / "model"), core)) as engine:
        await engine.chat.completions.create(**chat)
        await engine.chat.completions.create(**chat, add_special_tokens=True)
        rendered, tokenizer = core.prompts[0], engine.tokenizer

    assert tokenizer.decode(rendered).startswith("<|im_start|>user\nHello")
    assert core.prompts[1] == tokenizer.add_special_tokens(rendered)


@pytest.mark.parametrize("source", ["template", "template with end", "mlc", "gguf both"])
async def test_special_tokens_are_around_the_fill_in_the_middle_prompt(
    source: str, tmp_path: Path
) -> None:
    write, template = SOURCES[source]
    core = FakeCore(["."])
    async with AsyncMLCEngine(loader=_loader(write(tmp_path / "model"), core)) as engine:
        await engine.completions.create(prompt="ab", suffix="c")
        await engine.completions.create(prompt="ab", suffix="c", add_special_tokens=False)
        await engine.completions.create(prompt=[1, 2], suffix="c")

    text = "<fim_prefix>ab<fim_suffix>c<fim_middle>"
    as_ids = [*_backend().encode("<fim_prefix>").ids, 1, 2]
    assert core.prompts == [
        _backend(*template).encode(text).ids,
        _backend().encode(text).ids,
        as_ids + _backend().encode("<fim_suffix>c<fim_middle>").ids,
    ]


async def test_token_ids_stay_as_they_are(tmp_path: Path) -> None:
    core = FakeCore(["."])
    load = _loader(SOURCES["template with end"][0](tmp_path / "model"), core)
    async with AsyncMLCEngine(loader=load) as engine:
        await engine.completions.create(prompt=[5, 6], add_special_tokens=True)
        async for _ in engine.generate([5, 6]):
            pass

    assert core.prompts == [[5, 6], [5, 6]]
