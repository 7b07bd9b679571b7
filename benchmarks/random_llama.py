"""A Llama 3.2 1B with random weights, as a Hugging Face directory and as GGUF.

Speed does not depend on what the weights are; so nothing has to be downloaded.
"""

from __future__ import annotations

__all__ = ("make_gguf", "make_model")

import json
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

VOCABULARY = 32_000
_SPECIAL = ("<unk>", "<s>", "</s>", "<|user|>", "<|assistant|>")
_TEMPLATE = (
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}</s>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def make_model(folder: Path) -> None:
    """Write the model in bfloat16; needs the extra `train`. Done once."""
    if (folder / "model.safetensors").is_file():
        return

    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=2048,
        intermediate_size=8192,
        num_hidden_layers=16,
        num_attention_heads=32,
        num_key_value_heads=8,
        head_dim=64,
        max_position_embeddings=8192,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 500_000.0},
        bos_token_id=1,
        eos_token_id=2,
        dtype="bfloat16",
    )
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    _make_tokenizer(folder)


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


def _make_tokenizer(folder: Path) -> None:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(_SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_texts(), trainer)
    missing = VOCABULARY - tokenizer.get_vocab_size()
    tokenizer.add_tokens([AddedToken(f"<|spare {i}|>", normalized=False) for i in range(missing)])
    tokenizer.save(str(folder / "tokenizer.json"))

    settings: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "chat_template": _TEMPLATE,
        "bos_token": "<s>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")


def _texts() -> Iterator[str]:
    """Text that every Python has: its own standard library."""
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*/*.py")):
        yield path.read_text(encoding="utf-8", errors="replace")
