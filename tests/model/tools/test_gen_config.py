"""The configuration is that of MLC LLM, and describes the same model as its source."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from aiomlc.config import EngineConfig
from aiomlc.errors import BadRequestError, ModelLoadError
from aiomlc.models import read_description
from aiomlc.runtime.loading.facts import ModelFacts
from aiomlc.runtime.loading.model_directory import find_model
from aiomlc.runtime.loading.open_decoder import open_native
from aiomlc.runtime.loading.text_files import TextFiles
from aiomlc.runtime.templates.conversation import Conversation
from aiomlc.runtime.templates.registry import builtin_conversations, is_customized
from aiomlc.tools.convert import convert_weights
from aiomlc.tools.gen_config import gen_config
from aiomlc.tools.tokenizer_info import tokenizer_info
from tests.model import tiny_encoders
from tests.model.tiny_encoder import write_encoder
from tests.model.tiny_models import TINY_CONFIGS
from tests.model.tools.models import write_tiny

pytestmark = pytest.mark.anyio

# What MLC LLM's gen_config (79d603f0) writes for these models, without the conversation template.
_REFERENCE: Mapping[str, Mapping[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "reference" / "mlc_configs.json").read_text()
)
# MLC LLM drops the windows of these models.
_DIFFERENT = {
    "mixtral": {"sliding_window_size", "attention_sink_size"},
    "phi3": {"sliding_window_size", "attention_sink_size"},
    "starcoder2": {"sliding_window_size", "attention_sink_size"},
}
# The architectures whose MLC directories are not supported.
_GEMMA = ("gemma3n_text", "gemma4_moe", "gemma4_small", "gemma4_text")
_REFUSED = ("cohere", *_GEMMA, "gpt_oss", "nemotron")


async def generate(model: Path, output: Path, **options: Any) -> dict[str, Any]:  # noqa: ANN401 - any option.
    """Run gen_config and return what it has written."""
    path = await gen_config(
        model, output, **{"quantization": "q4f16_1", "conv_template": "chatml", **options}
    )
    document: dict[str, Any] = json.loads(path.read_text())
    return document


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("architecture", _REFERENCE)
async def test_the_fields_are_those_of_mlc_llm(tmp_path: Path, architecture: str) -> None:
    document = await generate(write_tiny(tmp_path / "model", architecture), tmp_path / "out")

    expected = _REFERENCE[architecture]
    different = _DIFFERENT.get(architecture, set())
    assert [*document] == [
        "version", "model_type", "quantization", "model_config", "vocab_size",
        "context_window_size", "sliding_window_size", "prefill_chunk_size", "attention_sink_size",
        "tensor_parallel_shards", "pipeline_parallel_stages", "active_vocab_size", "temperature",
        "presence_penalty", "frequency_penalty", "repetition_penalty", "top_p", "tokenizer_files",
        "tokenizer_info", "conv_template", "pad_token_id", "bos_token_id", "eos_token_id",
        "model_task", "embedding_metadata",
    ]  # fmt: skip
    assert {
        name: document[name] for name in expected if name not in different | {"model_config"}
    } == {name: expected[name] for name in expected if name not in different | {"model_config"}}
    # Defaults of MLC LLM need not be there; `dtype` is one, under the name of another field.
    defaults = (None, False, 1.0)
    model_config = {
        name: value
        for name, value in expected["model_config"].items()
        if name != "dtype" and name not in different
    }
    assert {
        name: document["model_config"].get(name, value if value in defaults else "missing")
        for name, value in model_config.items()
    } == model_config


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("architecture", [name for name in TINY_CONFIGS if name not in _REFUSED])
async def test_the_directory_describes_the_same_model(tmp_path: Path, architecture: str) -> None:
    model = write_tiny(tmp_path / "model", architecture)

    await generate(model, tmp_path / "out")

    description = read_description(tmp_path / "out")
    assert description.config == read_description(model).config
    assert description.quantization == "q4f16_1"


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("quantization", ["q4f16_1", "q0bf16"])
async def test_a_converted_directory_gives_the_same_logits(
    model_cache: Path, tmp_path: Path, quantization: str
) -> None:
    model = write_tiny(tmp_path / "model", "llama", exact_vectors=True)
    await convert_weights(model, tmp_path / "out", quantization=quantization)
    await generate(model, tmp_path / "out", quantization=quantization)

    assert TextFiles.read(ModelFacts(find_model(tmp_path / "out"))).template is not None
    converted = await logits(tmp_path / "out", None)
    if quantization == "q4f16_1":
        np.testing.assert_array_equal(converted, await logits(model, quantization))
    else:  # Its norms are bfloat16.
        np.testing.assert_allclose(converted, await logits(model, quantization), atol=0.05)


async def logits(model: Path, quantization: str | None) -> NDArray[np.float32]:
    """Return the logits after a prompt."""
    config = EngineConfig(quantization=quantization, num_threads=2)
    opened = await open_native(
        ModelFacts(find_model(model), config.quantization), "auto", "local", config, lambda _: None
    )
    opened.native.add_sequence(1)
    return opened.native.forward([(1, [3, 200, 17, 4, 250])])


async def test_options_replace_the_sizes_of_the_model(tmp_path: Path) -> None:
    model = write_tiny(tmp_path / "model", "mistral")

    document = await generate(
        model,
        tmp_path / "out",
        context_window_size=256,
        sliding_window_size=64,
        attention_sink_size=4,
        prefill_chunk_size=32,
        tensor_parallel_shards=2,
        max_batch_size=7,
    )

    assert {name: document[name] for name in document if name.endswith(("_size", "_shards"))} == {
        "vocab_size": 320,
        "context_window_size": 256,
        "sliding_window_size": 64,
        "prefill_chunk_size": 32,
        "attention_sink_size": 4,
        "tensor_parallel_shards": 2,
        "active_vocab_size": 320,
    }
    assert document["model_config"]["max_batch_size"] == 7
    config = read_description(tmp_path / "out").config
    assert getattr(config, "windows", None) == (64, 64)


async def test_generation_settings_come_from_the_first_file_that_has_them(tmp_path: Path) -> None:
    model = write_tiny(tmp_path / "model", "llama")
    settings = {"temperature": 0.3, "eos_token_id": [257, 9], "top_p": None}
    (model / "generation_config.json").write_text(json.dumps(settings))

    document = await generate(model, tmp_path / "out")

    assert document["temperature"] == 0.3
    assert document["top_p"] == 1.0
    assert document["eos_token_id"] == [257, 9]
    assert document["bos_token_id"] == 256
    assert document["pad_token_id"] == 0


async def test_the_files_of_the_tokenizer_and_the_template_are_copied(tmp_path: Path) -> None:
    model = write_tiny(tmp_path / "model", "llama")
    templates = ("chat_template.jinja", "additional_chat_templates/tool_use.jinja")
    (model / "additional_chat_templates").mkdir()
    for name in templates:
        (model / name).write_text("{{ messages[0].content }}")

    document = await generate(model, tmp_path / "out")

    assert document["tokenizer_files"] == ["tokenizer.json", "tokenizer_config.json"]
    for name in (*document["tokenizer_files"], *templates):
        assert (tmp_path / "out" / name).read_bytes() == (model / name).read_bytes()


async def test_an_encoder_is_pooled_as_mlc_llm_writes_unless_its_files_say_otherwise(
    tmp_path: Path,
) -> None:
    model = write_encoder(tmp_path / "model")
    for name in ("modules.json", "sentence_bert_config.json"):
        (model / name).unlink(missing_ok=True)

    document = await generate(model, tmp_path / "out")

    assert document["embedding_metadata"]["pooling_strategy"] == "cls"

    (model / "1_Pooling").mkdir(exist_ok=True)
    (model / "1_Pooling" / "config.json").write_text('{"pooling_mode": "mean"}')
    (model / "modules.json").write_text('[{"type": "sentence.Pooling", "path": "1_Pooling"}]')
    document = await generate(model, tmp_path / "other")
    assert document["embedding_metadata"]["pooling_strategy"] == "mean"


@pytest.mark.parametrize(("window", "sinks"), [(None, 4), (24, 0)])
async def test_mistral_has_attention_sinks_that_mlc_llm_accepts(
    tmp_path: Path, window: int | None, sinks: int
) -> None:
    model = write_tiny(tmp_path / "model", "mistral")
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "sliding_window": window}))

    document = await generate(model, tmp_path / "out")

    assert document["attention_sink_size"] == sinks
    assert document["model_config"]["attention_sink_size"] == sinks
    assert read_description(tmp_path / "out").config == read_description(model).config


async def test_existing_files_are_only_replaced_by_force(tmp_path: Path) -> None:
    model = write_tiny(tmp_path / "model", "llama")
    await generate(model, tmp_path / "out")

    with pytest.raises(BadRequestError, match=r"already contains .*--force"):
        await generate(model, tmp_path / "out", quantization="q0f16")
    document = await generate(model, tmp_path / "out", quantization="q0f16", force=True)

    assert document["quantization"] == "q0f16"
    assert (await generate(model, model))["quantization"] == "q4f16_1"  # Beside `config.json`.


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"conv_template": "chatm"}, ModelLoadError, "unknown conversation template 'chatm'"),
        ({"quantization": "q9"}, BadRequestError, "quantization must be one of"),
        ({"max_batch_size": 0}, BadRequestError, "max_batch_size must be an integer >= 1, got 0"),
        ({"context_window_size": 1.5}, BadRequestError, "context_window_size must be an integer"),
        ({"model_type": "gpt5"}, ModelLoadError, 'field "model_type" is "gpt5": not supported'),
    ],
)
async def test_invalid_options_are_refused(
    tmp_path: Path, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    model = write_tiny(tmp_path / "model", "llama")

    with pytest.raises(error, match=message):
        await generate(model, tmp_path / "out", **options)

    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["chatml", "qwen2", "llama-3_1", "phi-4"])
async def test_a_written_template_is_the_built_in_one(tmp_path: Path, name: str) -> None:
    model = write_tiny(tmp_path / "model", "llama")

    document = await generate(model, tmp_path / "out", conv_template=name)

    conversation = Conversation.model_validate(document["conv_template"])
    assert conversation == builtin_conversations()[name]
    assert not is_customized(conversation)


def test_the_tokenizer_is_described_as_by_mlc_llm() -> None:
    llama = {
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}]},
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "ByteFallback"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0},
            ],
        },
    }
    byte_level = {"decoder": {"type": "ByteLevel"}, "normalizer": None}

    assert tokenizer_info(llama) == {
        "token_postproc_method": "byte_fallback",
        "prepend_space_in_encode": True,
        "strip_space_in_decode": True,
    }
    assert tokenizer_info(byte_level) == {
        "token_postproc_method": "byte_level",
        "prepend_space_in_encode": False,
        "strip_space_in_decode": False,
    }


@pytest.mark.parametrize("name", ["bert_classifier", "modernbert", "xlm_roberta"])
async def test_an_encoder_that_mlc_does_not_have_is_refused(tmp_path: Path, name: str) -> None:
    directory = tiny_encoders.write_encoder(tmp_path / "model", name)

    with pytest.raises(BadRequestError, match="cannot be converted"):
        await generate(directory, tmp_path / "output")
