"""A Llama or a mixture of experts with random weights, as Hugging Face directory and as GGUF.

Speed does not depend on the values of the weights, so no download is needed.
"""

from __future__ import annotations

__all__ = (
    "LLAMA_1B",
    "MIXTURE",
    "TINY",
    "Shape",
    "convert",
    "make_gguf",
    "make_model",
    "make_tokenizer",
)

import json
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_SPECIAL = ("<unk>", "<s>", "</s>", "<|user|>", "<|assistant|>")
_TEMPLATE = (
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}</s>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


@dataclass(frozen=True, slots=True)
class Shape:
    """Dimensions of a model; heads have 64 dimensions."""

    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    vocabulary: int
    experts: int = 0  #: Per layer, each with the size `intermediate`; 0 for a Llama.
    active: int = 0  #: Experts per token.


LLAMA_1B = Shape(2048, 8192, 16, 32, 8, 32_000)  # Llama 3.2 1B, with a smaller vocabulary.
MIXTURE = Shape(1024, 512, 16, 16, 4, 32_000, 64, 8)  # Like Qwen 3 MoE, with 1.7 B parameters.
TINY = Shape(256, 512, 2, 4, 2, 2_048)  # To try out a benchmark.


def make_model(directory: Path, shape: Shape = LLAMA_1B) -> None:
    """Write the model in bfloat16 unless it exists; needs the extra `train`."""
    files = ("model.safetensors", "tokenizer_config.json")
    if all((directory / file).is_file() for file in files):
        return

    try:
        import torch
        from transformers import AutoModelForCausalLM
    except ImportError as error:
        raise SystemExit(
            f"{directory} contains no model, and {error.name} is missing to make one: "
            "pip install 'aiomlc[train]'"
        ) from error

    torch.manual_seed(0)
    network = AutoModelForCausalLM.from_config(_config(shape), dtype=torch.bfloat16)
    network.save_pretrained(directory)
    make_tokenizer(directory, shape.vocabulary)


def _config(shape: Shape) -> Any:  # noqa: ANN401 - transformers is untyped.
    from transformers import LlamaConfig, Qwen3MoeConfig

    common = {
        "vocab_size": shape.vocabulary,
        "hidden_size": shape.hidden,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": 64,
        "max_position_embeddings": 16_384,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 500_000.0},
        "bos_token_id": 1,
        "eos_token_id": None,  # Completions always have the requested length.
        "dtype": "bfloat16",
    }
    if not shape.experts:
        return LlamaConfig(intermediate_size=shape.intermediate, **common)

    return Qwen3MoeConfig(
        moe_intermediate_size=shape.intermediate,
        num_experts=shape.experts,
        num_experts_per_tok=shape.active,
        norm_topk_prob=True,
        **common,
    )


def make_gguf(model: Path, source: Path, binaries: Path, kind: str) -> Path:
    """Convert the model with llama.cpp's tools unless the result exists, and return its path."""
    unquantized = model.parent / f"{model.name}-bf16.gguf"
    quantized = model.parent / f"{model.name}-{kind}.gguf"
    if quantized.is_file():
        return quantized

    is_kept = unquantized.is_file() or quantized == unquantized
    if not unquantized.is_file():
        convert(model, source, unquantized, "bf16", "gpt-2")
    if quantized == unquantized:
        return quantized

    quantize: list[str | Path] = [binaries / "llama-quantize", unquantized, quantized, kind.upper()]
    subprocess.run(quantize, check=True, stdout=sys.stderr)
    if not is_kept:
        unquantized.unlink()
    return quantized


def convert(model: Path, source: Path, target: Path, kind: str, pre_tokenizer: str) -> None:
    """Write a model directory as GGUF, with the converter in llama.cpp's source.

    Args:
        kind: The type of the matrices.
        pre_tokenizer: What the converter cannot find out: it identifies pre-tokenizers by a hash,
            and that of these tokenizers is unknown.
    """
    script = (
        f"import runpy, sys; sys.path.insert(0, {str(source)!r}); import conversion.base as base\n"
        f"base.TextModel.get_vocab_base_pre = lambda *_: {pre_tokenizer!r}\n"
        f"sys.argv = ['convert', {str(model)!r}, '--outtype', {kind!r}]\n"
        f"sys.argv += ['--outfile', {str(target)!r}]\n"
        f"runpy.run_path({str(source / 'convert_hf_to_gguf.py')!r}, run_name='__main__')\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, stdout=sys.stderr)


def make_tokenizer(directory: Path, vocabulary: int) -> None:
    """Write `tokenizer.json` and `tokenizer_config.json`, trained on Python's own sources."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(_SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_training_texts(), trainer)
    missing = vocabulary - tokenizer.get_vocab_size()
    tokenizer.add_tokens([AddedToken(f"<|spare {i}|>", normalized=False) for i in range(missing)])
    tokenizer.save(str(directory / "tokenizer.json"))

    settings: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "chat_template": _TEMPLATE,
        "bos_token": "<s>",
        "unk_token": "<unk>",
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")


def _training_texts() -> Iterator[str]:
    """Yield the sources of the standard library, a text that every Python has."""
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*/*.py")):
        yield path.read_text(encoding="utf-8", errors="replace")
