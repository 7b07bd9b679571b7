"""A Llama, or a mixture of experts, with random weights, as a Hugging Face directory and as GGUF.

Speed does not depend on what the weights are; so nothing has to be downloaded.
"""

from __future__ import annotations

__all__ = ("LLAMA_1B", "MIXTURE", "TINY", "Shape", "make_gguf", "make_model")

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
    """What decides how much there is to compute; heads are 64 wide."""

    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    vocabulary: int
    experts: int = 0  #: In each layer; `intermediate` is then that of each. 0 is a Llama.
    active: int = 0  #: Experts of a token.


LLAMA_1B = Shape(2048, 8192, 16, 32, 8, 32_000)  # Llama 3.2 1B's, but for the vocabulary.
MIXTURE = Shape(1024, 512, 16, 16, 4, 32_000, 64, 8)  # As Qwen 3's, of 1.7 B parameters.
TINY = Shape(256, 512, 2, 4, 2, 2_048)  # To try a benchmark itself.


def make_model(folder: Path, shape: Shape = LLAMA_1B) -> None:
    """Write the model in bfloat16; needs the extra `train`. Done once."""
    if (folder / "model.safetensors").is_file() and (folder / "tokenizer_config.json").is_file():
        return

    try:
        import torch
        from transformers import AutoModelForCausalLM
    except ImportError as error:
        raise SystemExit(
            f"{folder} has no model, and {error.name} is missing to make one: "
            "pip install 'aiomlc[train]'"
        ) from error

    torch.manual_seed(0)
    network = AutoModelForCausalLM.from_config(_config(shape), dtype=torch.bfloat16)
    network.save_pretrained(folder)
    _make_tokenizer(folder, shape.vocabulary)


def _config(shape: Shape) -> Any:  # noqa: ANN401 - transformers is untyped.
    from transformers import LlamaConfig, Qwen3MoeConfig

    common = {
        "vocab_size": shape.vocabulary,
        "hidden_size": shape.hidden,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": 64,
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 500_000.0},
        "bos_token_id": 1,
        "eos_token_id": None,  # Every answer is as long as it was asked to be.
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
    """Convert with llama.cpp's own tools. Done once."""
    wide, small = (
        model.parent / f"{model.name}-bf16.gguf",
        model.parent / f"{model.name}-{kind}.gguf",
    )
    if small.is_file():
        return small

    # The converter knows tokenizers by a hash; ours is new, and splits text as GPT-2's does.
    script = (
        f"import runpy, sys; sys.path.insert(0, {str(source)!r}); import conversion.base as base\n"
        "base.TextModel.get_vocab_base_pre = lambda *_: 'gpt-2'\n"
        f"sys.argv = ['convert', {str(model)!r}, '--outtype', 'bf16', '--outfile', {str(wide)!r}]\n"
        f"runpy.run_path({str(source / 'convert_hf_to_gguf.py')!r}, run_name='__main__')\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, stdout=sys.stderr)
    quantize: list[str | Path] = [binaries / "llama-quantize", wide, small, kind.upper()]
    subprocess.run(quantize, check=True, stdout=sys.stderr)
    wide.unlink()
    return small


def _make_tokenizer(folder: Path, vocabulary: int) -> None:
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
    tokenizer.train_from_iterator(_texts(), trainer)
    missing = vocabulary - tokenizer.get_vocab_size()
    tokenizer.add_tokens([AddedToken(f"<|spare {i}|>", normalized=False) for i in range(missing)])
    tokenizer.save(str(folder / "tokenizer.json"))

    settings: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "chat_template": _TEMPLATE,
        "bos_token": "<s>",
        "unk_token": "<unk>",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")


def _texts() -> Iterator[str]:
    """Text that every Python has: its own standard library."""
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*/*.py")):
        yield path.read_text(encoding="utf-8", errors="replace")
