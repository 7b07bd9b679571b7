"""The models that MLC LLM's tests are given, in MLC's format, under the names that they ask for.

The vocabularies are real, since some tests know the tokens of Llama 2. The weights are made: the
layers add nothing, so the logits depend on the last token only, and each model is a table that says
which token follows which. Such a model ends its chats, does not end a raw text, closes its JSON and
calls its function, as the tests expect of trained ones.
"""

from __future__ import annotations

__all__ = (
    "convert",
    "decoder_config",
    "read_vocabulary",
    "table_weights",
    "words",
    "write_models",
)

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import anyio
import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from aiomlc import compile_model, convert_weights, gen_config
from aiomlc.gguf.model import read_gguf
from aiomlc.gguf.text_files import read_tokenizer_json
from aiomlc.models.config.fields import Fields
from aiomlc.models.families.bert import parse
from aiomlc.models.parameters.encoder import encoder_parameters
from tests.model.tiny_models import Weights, write_safetensors

_HIDDEN = 256
_INTERMEDIATE = 2048
_CERTAIN = 2.0  #: The score of a successor: 22 nats above a token without one.
_WORDS = (
    "the of and to in that was for with his from have this but not are they which one had you all "
    "were her she there would their we him been has when who will no more if out up into time them"
)
#: A stop token of the conversation template `gorilla-openfunctions-v2`.
_GORILLA_END = 100015
_CALL = '<<function>>get_current_weather(location="Pittsburgh, PA")'


@dataclass(frozen=True)
class Table:
    """Which token follows which, and how likely tokens are after all others."""

    chains: Sequence[Sequence[int]]  #: Each token is followed by the next one of its chain.
    otherwise: int | None = None  #: What follows a token of no chain.
    likely: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True)
class _Model:
    name: str
    vocabulary: str
    quantization: str
    conv_template: str
    make_table: str
    has_library: bool = False
    num_layers: int = 2


_MODELS = (
    *(
        _Model(f"Llama-2-{name}-MLC", "llama-spm", name.rpartition("-")[2], "llama-2", "words")
        for name in ("7b-chat-hf-q0f16", "7b-chat-hf-q4f16_1", "13b-chat-hf-q4f16_1")
    ),
    _Model("Hermes-2-Pro-Mistral-7B-q4f16_1-MLC", "llama-spm", "q4f16_1", "chatml", "words"),
    _Model("Meta-Llama-3-8B-Instruct-q4f16_1-MLC", "llama-bpe", "q4f16_1", "llama-3", "json"),
    # As slow as a larger model: a test cancels 2,048 tokens after a second.
    _Model("served", "llama-spm", "q4f16_1", "llama-2", "words", has_library=True, num_layers=24),
    _Model("gorilla", "llama-bpe", "q4f16_1", "gorilla-openfunctions-v2", "call", has_library=True),
)


async def write_models(directory: Path, vocabularies: Path) -> None:
    """Write all models that are not there yet.

    Args:
        directory: Has a folder for each model then.
        vocabularies: The folder `models` of llama.cpp, with its `ggml-vocab-*.gguf`.
    """
    for model in _MODELS:
        if not (directory / model.name).is_dir():
            await _write(directory, model, vocabularies)

    if not (copy := directory / "Llama-3-8B-Instruct-q4f16_1-MLC").exists():
        copy.symlink_to(directory / "Meta-Llama-3-8B-Instruct-q4f16_1-MLC")
    if not (directory / "encoder").is_dir():
        await _write_encoder(directory)


def read_vocabulary(vocabularies: Path, name: str) -> Tokenizer:
    """Return the tokenizer of one of llama.cpp's vocabularies."""
    gguf = read_gguf(vocabularies / f"ggml-vocab-{name}.gguf")
    return Tokenizer.from_str(read_tokenizer_json(gguf))


def decoder_config(size: int, num_layers: int) -> dict[str, Any]:
    """Return the config of a decoder with a vocabulary of `size` tokens."""
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": size,
        "hidden_size": _HIDDEN,
        "intermediate_size": _INTERMEDIATE,
        "num_hidden_layers": num_layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
    }


async def _write(directory: Path, model: _Model, vocabularies: Path) -> None:
    tokenizer = read_vocabulary(vocabularies, model.vocabulary)
    source = directory / "sources" / model.name
    source.mkdir(parents=True, exist_ok=True)
    size = tokenizer.get_vocab_size()
    (source / "config.json").write_text(json.dumps(decoder_config(size, model.num_layers)))
    tokenizer.save(str(source / "tokenizer.json"))
    (source / "tokenizer_config.json").write_text("{}")
    table = {"words": words, "json": _json, "call": _call}[model.make_table](tokenizer)
    write_safetensors(source / "model.safetensors", table_weights(table, size, model.num_layers))
    await convert(directory, model.name, model.quantization, model.conv_template)
    if model.has_library:
        await compile_model(directory / model.name, directory / model.name / "lib.so")


async def convert(directory: Path, name: str, quantization: str, conv_template: str) -> None:
    """Write a model whose source has been written in MLC's format."""
    source = directory / "sources" / name
    await gen_config(
        source, directory / name, quantization=quantization, conv_template=conv_template
    )
    await convert_weights(source, directory / name, quantization=quantization)


def table_weights(table: Table, size: int, num_layers: int) -> Weights:
    """Return weights whose logits are `table`'s: a token is a state, and states are orthogonal."""
    successors = list(itertools.chain.from_iterable(map(itertools.pairwise, table.chains)))
    states = {token: state for state, (token, _) in enumerate(successors, 2)}
    embedding = np.zeros((size, _HIDDEN), np.float32)
    head = np.zeros((size, _HIDDEN), np.float32)
    embedding[:, 0] = 1.0
    embedding[:, 1] = 1.0
    for token, state in states.items():
        embedding[token, 1] = 0.0
        embedding[token, state] = 1.0
    if table.otherwise is not None:
        head[table.otherwise, 1] = _CERTAIN
    for token, successor in successors:
        head[successor, states[token]] = _CERTAIN
    for token, score in table.likely.items():
        head[token, 0] = score

    weights: Weights = {"model.embed_tokens.weight": embedding, "lm_head.weight": head}
    return weights | _silent_layers(num_layers)


def _silent_layers(num_layers: int) -> Weights:
    """Return layers that add nothing, and the last norm."""
    weights: Weights = {"model.norm.weight": np.ones(_HIDDEN, np.float32)}
    random = np.random.default_rng(1)
    for layer in range(num_layers):
        for name, shape in _LAYER.items():
            key = f"model.layers.{layer}.{name}.weight"
            weights[key] = _layer_weight(name, shape, random)
    return weights


_LAYER = {
    "self_attn.q_proj": (_HIDDEN, _HIDDEN),
    "self_attn.k_proj": (_HIDDEN // 2, _HIDDEN),
    "self_attn.v_proj": (_HIDDEN // 2, _HIDDEN),
    "self_attn.o_proj": (_HIDDEN, _HIDDEN),
    "mlp.gate_proj": (_INTERMEDIATE, _HIDDEN),
    "mlp.up_proj": (_INTERMEDIATE, _HIDDEN),
    "mlp.down_proj": (_HIDDEN, _INTERMEDIATE),
    "input_layernorm": (_HIDDEN,),
    "post_attention_layernorm": (_HIDDEN,),
}


def _layer_weight(
    name: str, shape: tuple[int, ...], random: np.random.Generator
) -> NDArray[np.float32]:
    if name.endswith(("o_proj", "down_proj")):
        return np.zeros(shape, np.float32)

    value = np.ones(shape) if len(shape) == 1 else random.normal(0, 0.05, shape)
    return value.astype(np.float32)


def words(tokenizer: Tokenizer) -> Table:
    """A raw text goes on with words in a circle; a chat is other words and ends."""
    tokens = [_id_of(tokenizer, f"▁{word}") for word in _WORDS.split()]
    circle, chat = tokens[:12], tokens[12:]
    end = _id_of(tokenizer, "</s>")
    begins = [_id_of(tokenizer, text) for text in ("]", ":", "<0x0A>")]
    return Table(
        chains=[[*circle, circle[0]], [*chat, end], *([begin, chat[0]] for begin in begins)],
        otherwise=circle[0],
    )


def _json(tokenizer: Tokenizer) -> Table:
    """Strings, lists and objects end soon, and so do texts."""
    likely = {'"': 1.4, "}": 1.3, "]": 1.3, "<|eot_id|>": 1.4}
    return Table(
        chains=[], likely={_id_of(tokenizer, text): score for text, score in likely.items()}
    )


def _call(tokenizer: Tokenizer) -> Table:
    """Every answer calls the function, and ends."""
    last = tokenizer.encode("### Response: ", add_special_tokens=False).ids[-1]
    call = tokenizer.encode(_CALL, add_special_tokens=False).ids
    return Table(chains=[[last, *call, _GORILLA_END]])


_ENCODER = {
    "model_type": "bert",
    "architectures": ["BertModel"],
    "hidden_size": 384,
    "intermediate_size": 384,
    "num_hidden_layers": 1,
    "num_attention_heads": 6,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-12,
    "pad_token_id": 0,
}
_ENGLISH = (
    "a algorithms all alpha an and beta brew coffee data deep deterministic different dinner "
    "ending enables explain fascinating field for from gamma great hello how i is it learn "
    "learning love machine networks neural of order pepperoni pizza study subset systems test to "
    "totally uses want what word world"
)


def _id_of(tokenizer: Tokenizer, text: str) -> int:
    token = tokenizer.token_to_id(text)
    assert token is not None, text
    return token


_SILENT = "[PAD] [CLS] [SEP] . ? a an and for from i is of to"


async def _write_encoder(directory: Path) -> None:
    """Write an encoder whose vector is the sum of the vectors of a text's words."""
    source = directory / "sources" / "encoder"
    source.mkdir(parents=True, exist_ok=True)
    tokenizer = _word_piece()
    config = {**_ENCODER, "vocab_size": tokenizer.get_vocab_size()}
    (source / "config.json").write_text(json.dumps(config))
    (source / "tokenizer_config.json").write_text("{}")
    tokenizer.save(str(source / "tokenizer.json"))
    random = np.random.default_rng(2)
    weights: Weights = {}
    encoder = replace(parse(Fields(config, source / "config.json")), hf_prefix="")
    for parameter in encoder_parameters(encoder):
        rows = parameter.shape[0] // len(parameter.sources)
        for name in parameter.sources:
            weights[name] = _encoder_weight(name, (rows, *parameter.shape[1:]), random)
    silent = [_id_of(tokenizer, word) for word in _SILENT.split()]
    weights["embeddings.word_embeddings.weight"][silent] = 0.0
    write_safetensors(source / "model.safetensors", weights)
    await convert(directory, "encoder", "q0f32", "LM")
    await compile_model(directory / "encoder", directory / "encoder" / "lib.so")


def _encoder_weight(
    name: str, shape: tuple[int, ...], random: np.random.Generator
) -> NDArray[np.float32]:
    if "LayerNorm.weight" in name:
        value = np.ones(shape)
    elif "word_embeddings" in name:
        value = random.normal(0, 1, shape)
    elif re.search(r"attention\.(self\.value|output\.dense)\.weight", name):
        value = 3 * np.eye(shape[0])
    else:  # All positions are attended to alike.
        value = np.zeros(shape)
    return value.astype(np.float32)


def _word_piece() -> Tokenizer:
    letters = "abcdefghijklmnopqrstuvwxyz0123456789?.,!"
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *letters, *(f"##{letter}" for letter in letters)]
    tokens += [word for word in _ENGLISH.split() if word not in tokens]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return tokenizer


if __name__ == "__main__":
    import sys

    anyio.run(write_models, Path(sys.argv[1]), Path(sys.argv[2]))
