"""Encoders in GGUF files compute the same as the directories that they were made from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from aiomlc import AsyncMLCEngine
from aiomlc.errors import ModelLoadError
from aiomlc.gguf.model import read_gguf
from aiomlc.gguf.text_files import read_tokenizer_json
from aiomlc.models import read_description
from tests.model.tiny_encoder import wordpiece_tokenizer
from tests.model.tiny_encoders import CONFIGS, encoder_weights, write_encoder

AddText = Callable[[gguf.GGUFWriter], object]
_BERT_TENSORS = {
    "embeddings.word_embeddings": "token_embd",
    "embeddings.position_embeddings": "position_embd",
    "embeddings.token_type_embeddings": "token_types",
    "embeddings.LayerNorm": "token_embd_norm",
    "classifier.dense": "cls",
    "classifier.out_proj": "cls.output",
    "attention.self.query": "attn_q",
    "attention.self.key": "attn_k",
    "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down",
    "output.LayerNorm": "layer_output_norm",
}
_NOMIC_TENSORS = {
    "embeddings.word_embeddings": "token_embd",
    "embeddings.token_type_embeddings": "token_types",
    "emb_ln": "token_embd_norm",
    "attn.Wqkv": "attn_qkv",
    "attn.out_proj": "attn_output",
    "norm1": "attn_output_norm",
    "mlp.fc11": "ffn_up",
    "mlp.fc12": "ffn_gate",
    "mlp.fc2": "ffn_down",
    "norm2": "layer_output_norm",
}
_JINA_TENSORS = _BERT_TENSORS | {
    "mlp.gated_layers": "ffn_up",
    "mlp.wo": "ffn_down",
    "mlp.layernorm": "layer_output_norm",
}
#: The architecture and the names of tensors, by tiny encoder.
_FORMATS = {
    "nomic_bert": ("nomic-bert", _NOMIC_TENSORS),
    "jina_bert": ("jina-bert-v2", _JINA_TENSORS),
}
_TEXTS = ["the cat sleeps", "Cats NAP, a lot", "é x"]


def add_word_pieces(writer: gguf.GGUFWriter) -> None:
    """Add the tokenizer of letters as llama.cpp's converter does."""
    vocabulary = sorted(wordpiece_tokenizer().get_vocab().items(), key=lambda item: item[1])
    special = {"[PAD]", "[UNK]", "[CLS]", "[SEP]"}
    kinds = [
        gguf.TokenType.CONTROL if t in special else gguf.TokenType.NORMAL for t, _ in vocabulary
    ]
    tokens = [
        token if token in special else token[2:] if token.startswith("##") else f"▁{token}"
        for token, _ in vocabulary
    ]
    writer.add_tokenizer_model("bert")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_bos_token_id(2)
    writer.add_eos_token_id(3)
    writer.add_sep_token_id(3)
    writer.add_unk_token_id(1)


def write_encoder_gguf(
    path: Path, name: str, pooling: gguf.PoolingType | None, add_text: AddText = add_word_pieces
) -> Path:
    """Write a tiny encoder with the keys and tensors of llama.cpp's converter."""
    config = CONFIGS[name]
    architecture, names = _FORMATS.get(name, ("bert", _BERT_TENSORS))
    writer = gguf.GGUFWriter(path, architecture)
    # The rows of positions before the first one are left out.
    offset = config["pad_token_id"] + 1 if "roberta" in config["model_type"] else 0
    writer.add_context_length(config["max_position_embeddings"] - offset)
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_layer_norm_eps(config.get("layer_norm_eps", 1e-12))
    writer.add_causal_attention(False)
    writer.add_token_type_count(config["type_vocab_size"])
    if "rope_parameters" in config:
        writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    if pooling is not None:
        writer.add_pooling_type(pooling)
    add_text(writer)
    for source, value in encoder_weights(name).items():
        rows = value[offset:] if "position_embeddings" in source else value
        own = source.removeprefix("roberta.").removeprefix("bert.")
        writer.add_tensor(gguf_name(own, names), rows)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def gguf_name(source: str, names: Mapping[str, str]) -> str:
    name, _, kind = source.rpartition(".")
    if not name.startswith("encoder."):
        return f"{names[name]}.{kind}"

    _, _, layer, *parts = name.split(".")
    return f"blk.{layer}.{names['.'.join(parts)]}.{kind}"


async def embeddings(model: Path, **options: Any) -> np.ndarray[Any, Any]:  # noqa: ANN401
    async with AsyncMLCEngine(model) as engine:
        response = await engine.embeddings.create(input=_TEXTS, **options)
        return np.array([item.embedding for item in response.data])


@pytest.mark.parametrize(
    ("name", "pooling", "option"),
    [
        ("roberta", gguf.PoolingType.CLS, "cls"),
        ("nomic_bert", gguf.PoolingType.MEAN, "mean"),
        ("nomic_bert", None, "mean"),
        ("jina_bert", gguf.PoolingType.MEAN, "mean"),
    ],
)
async def test_an_encoder_embeds_like_its_directory(
    model_cache: Path, tmp_path: Path, name: str, pooling: gguf.PoolingType | None, option: str
) -> None:
    file = write_encoder_gguf(tmp_path / "model.gguf", name, pooling)
    directory = write_encoder(tmp_path / "model", name)

    np.testing.assert_allclose(
        await embeddings(file), await embeddings(directory, pooling=option), atol=1e-6
    )


def test_jina_bert_of_another_kind_is_refused(tmp_path: Path) -> None:
    def add_text(writer: gguf.GGUFWriter) -> None:
        add_word_pieces(writer)
        writer.add_tensor("blk.0.attn_q_norm.weight", np.ones(48, np.float32))

    file = write_encoder_gguf(tmp_path / "model.gguf", "jina_bert", None, add_text)
    with pytest.raises(ModelLoadError, match=r"with blk\.0\.attn_q_norm\.weight, which is not"):
        read_description(file)


async def test_a_reranker_scores_like_its_directory(model_cache: Path, tmp_path: Path) -> None:
    name = "xlm_roberta_reranker"
    file = write_encoder_gguf(tmp_path / "model.gguf", name, gguf.PoolingType.RANK)
    directory = write_encoder(tmp_path / "model", name)
    scores = []
    for model in (file, directory):
        async with AsyncMLCEngine(model) as engine:
            response = await engine.score([("how", "a cat sleeps"), ("is it", "it is")])
            scores.append([item.score for item in response.data])

    assert scores[0] == pytest.approx(scores[1], abs=1e-6)


def test_word_pieces_are_those_of_the_original_tokenizer(tmp_path: Path) -> None:
    file = write_encoder_gguf(tmp_path / "model.gguf", "roberta", None)
    original = wordpiece_tokenizer()
    original.no_padding()
    original.no_truncation()
    built = Tokenizer.from_str(read_tokenizer_json(read_gguf(file)))

    for text in (*_TEXTS, "", "word 7", "東京 ab"):
        assert built.encode(text).ids == original.encode(text).ids
    pair = built.encode("a b", "c d")
    expected = original.encode("a b", "c d")
    assert (pair.ids, pair.type_ids) == (expected.ids, expected.type_ids)


def test_unigrams_are_those_of_the_original_tokenizer(tmp_path: Path) -> None:
    scores = {"<s>": 0.0, "<pad>": 0.0, "</s>": 0.0, "<unk>": 0.0}
    scores |= {"▁": -2.0, "▁the": -3.0, "▁cat": -4.0, "s": -5.0, "t": -6.0, "h": -6.5, "e": -6.0}
    scores |= {"▁c": -5.5, "at": -5.0, "a": -6.0}

    def add_unigrams(writer: gguf.GGUFWriter) -> None:
        kinds = [gguf.TokenType.CONTROL] * 3 + [gguf.TokenType.UNKNOWN]
        writer.add_tokenizer_model("t5")
        writer.add_token_list(list(scores))
        writer.add_token_scores(list(scores.values()))
        writer.add_token_types(kinds + [gguf.TokenType.NORMAL] * (len(scores) - 4))
        writer.add_add_space_prefix(True)
        writer.add_remove_extra_whitespaces(True)
        writer.add_bos_token_id(0)
        writer.add_eos_token_id(2)
        writer.add_unk_token_id(3)

    file = write_encoder_gguf(tmp_path / "model.gguf", "roberta", None, add_unigrams)
    original = Tokenizer(models.Unigram(list(scores.items()), unk_id=3))
    original.pre_tokenizer = pre_tokenizers.Metaspace()
    built = Tokenizer.from_str(read_tokenizer_json(read_gguf(file)))

    for text in ("the cats", "that  hat", "x the"):
        inner = original.encode(" ".join(text.split())).ids
        assert built.encode(text).ids == [0, *inner, 2]
    assert built.encode("the", "cat").ids == [0, 5, 2, 2, 6, 2]


def test_a_tokenizer_without_an_unknown_token_is_refused(tmp_path: Path) -> None:
    def add_text(writer: gguf.GGUFWriter) -> None:
        writer.add_tokenizer_model("bert")
        writer.add_token_list(["▁a", "b"])

    file = write_encoder_gguf(tmp_path / "model.gguf", "roberta", None, add_text)
    with pytest.raises(ModelLoadError, match=r"tokenizer.ggml.unknown_token_id is missing"):
        read_tokenizer_json(read_gguf(file))
