"""Tiny random models of Qwen 3 ASR, as Hugging Face directories in both formats."""

from __future__ import annotations

__all__ = (
    "ASR_CONFIG",
    "ASR_TEMPLATE",
    "ASR_TOKENS",
    "ROWS",
    "asr_weights",
    "write_asr",
    "write_original_asr",
)

import json
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import AddedToken, Tokenizer

from aiomlc.models import audio_parameters, decoder_parameters
from aiomlc.models.config.fields import Fields
from aiomlc.models.families import qwen3_asr
from aiomlc.models.parameters.parameter import Parameter
from tests.model.tiny_models import VOCAB_SIZE, Weights, tiny_tokenizer, write_safetensors

_SPECIALS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|audio_start|>",
    "<|audio_end|>",
    "<|audio_pad|>",
)
_OTHERS = ("<asr_text>",)
ASR_TOKENS = {name: VOCAB_SIZE + index for index, name in enumerate((*_SPECIALS, *_OTHERS))}
ROWS = {0.3: 7, 1.0: 13, 2.7: 35, 5.5: 72}  #: By seconds of audio.

_TEXT: dict[str, Any] = {
    "model_type": "qwen3",
    "vocab_size": VOCAB_SIZE + 7,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 1024,
    "rms_norm_eps": 1e-6,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000.0},
    "tie_word_embeddings": False,
}
_AUDIO: dict[str, Any] = {
    "model_type": "qwen3_asr_encoder",
    "num_mel_bins": 128,
    "encoder_layers": 2,
    "encoder_attention_heads": 3,
    "encoder_ffn_dim": 80,
    "d_model": 48,
    "activation_function": "gelu",
    "n_window": 50,
    "n_window_infer": 200,  # Two chunks, so that 5.5 s have three windows.
    "output_dim": 64,
    "downsample_hidden_size": 12,
    "max_position_embeddings": 13,
}
ASR_CONFIG: dict[str, Any] = {
    "model_type": "qwen3_asr",
    "architectures": ["Qwen3ASRForConditionalGeneration"],
    "audio_token_id": ASR_TOKENS["<|audio_pad|>"],
    "eos_token_id": [ASR_TOKENS["<|endoftext|>"], ASR_TOKENS["<|im_end|>"]],
    "pad_token_id": ASR_TOKENS["<|im_end|>"],
    "tie_word_embeddings": False,
    "text_config": _TEXT,
    "audio_config": _AUDIO,
}
_EXTRACTOR = {
    "feature_extractor_type": "Qwen3ASRFeatureExtractor",
    "feature_size": 128,
    "sampling_rate": 16_000,
    "hop_length": 160,
    "n_fft": 400,
    "n_window": 50,
    "min_length": 8000,
}
#: Writes what the templates of the models write: the texts of system messages, all recordings, and
#: the messages of the assistant.
ASR_TEMPLATE = """\
{%- macro texts(content) -%}
{%- if content is string -%}{{ content }}
{%- else -%}{%- for p in content if p.type == 'text' -%}{{ p.text }}{%- endfor -%}
{%- endif -%}
{%- endmacro -%}
{{- '<|im_start|>system\n' -}}
{%- for m in messages if m.role == 'system' -%}{{- texts(m.content) -}}{%- endfor -%}
{{- '<|im_end|>\n<|im_start|>user\n' -}}
{%- for m in messages if m.content is not string -%}
{%- for p in m.content if p.type == 'audio' -%}
{{- '<|audio_start|><|audio_pad|><|audio_end|>' -}}
{%- endfor -%}
{%- endfor -%}
{{- '<|im_end|>\n' -}}
{%- for m in messages if m.role == 'assistant' -%}
{{- '<|im_start|>assistant\n' -}}
{% generation %}{{- texts(m.content) + '<|im_end|>\n' -}}{% endgeneration %}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}
"""


def asr_tokenizer() -> Tokenizer:
    """Return a byte-level tokenizer with the tokens of the models."""
    tokenizer = tiny_tokenizer()
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in _SPECIALS])
    tokenizer.add_tokens([AddedToken(text, special=False) for text in _OTHERS])
    return tokenizer


def asr_weights(seed: int = 5) -> Weights:
    """Return the weights by the names of transformers, identical on every machine."""
    fields = Fields(ASR_CONFIG, Path("config.json"))
    random = np.random.Generator(np.random.PCG64(seed))
    weights: Weights = {}
    decoder, tower = qwen3_asr.parse(fields), qwen3_asr.parse_audio(fields)
    for parameter in (*decoder_parameters(decoder), *audio_parameters(tower)):
        for name, rows in _sources(parameter):
            weights[_stored_name(name)] = _values(random, parameter, name, rows)
    return weights


def _sources(parameter: Parameter) -> list[tuple[str, int]]:
    count = len(parameter.sources)
    rows = [parameter.shape[0] // count] * count
    if parameter.name.startswith("model.") and count == 3:
        heads = [_TEXT["num_attention_heads"], *[_TEXT["num_key_value_heads"]] * 2]
        rows = [each * _TEXT["head_dim"] for each in heads]
    return list(zip(parameter.sources, rows, strict=True))


def _values(random: np.random.Generator, parameter: Parameter, name: str, rows: int) -> Any:  # noqa: ANN401
    values = random.standard_normal((rows, *parameter.shape[1:]))
    if name.endswith("weight") and parameter.kind == "vector":
        values = 1.0 + 0.1 * values
    elif parameter.kind == "vector":
        values = 0.2 * values
    elif "embed_tokens" not in name:
        values = values * (1.5 / np.sqrt(parameter.shape[-1]))
    if ".conv2d" in name and name.endswith("weight"):
        values = values.reshape(rows, -1, 3, 3)
    return np.ascontiguousarray(values, np.float32)


def _stored_name(name: str) -> str:
    if name.startswith("model."):
        return "model.language_model." + name.removeprefix("model.")

    return name if name.startswith("lm_head") else f"model.{name}"


def write_asr(directory: Path, weights: Weights | None = None) -> Path:
    """Write a model as transformers 5 does, and return its directory."""
    processor = {"processor_class": "Qwen3ASRProcessor", "feature_extractor": _EXTRACTOR}
    _write(directory, ASR_CONFIG, {"processor_config.json": processor})
    (directory / "chat_template.jinja").write_text(ASR_TEMPLATE)
    write_safetensors(directory / "model.safetensors", weights or asr_weights())
    return directory


def write_original_asr(directory: Path) -> Path:
    """Write a model in the format of its authors, and return its directory."""
    audio = {**_AUDIO, "model_type": "qwen3_asr_audio_encoder", "max_source_positions": 1500}
    text = {name: value for name, value in _TEXT.items() if name != "rope_parameters"}
    sections = {"mrope_section": [4, 2, 2], "rope_type": "default", "interleaved": True}
    thinker = {
        "audio_config": audio,
        "text_config": {**text, "rope_theta": 1_000_000.0, "rope_scaling": sections},
        "audio_token_id": ASR_CONFIG["audio_token_id"],
        "tie_word_embeddings": False,
    }
    config = {
        "model_type": "qwen3_asr",
        "thinker_config": thinker,
        "support_languages": ["English"],
    }
    template = ASR_TEMPLATE.replace("{% generation %}", "").replace("{% endgeneration %}", "")
    extractor = {
        **{name: value for name, value in _EXTRACTOR.items() if name != "n_window"},
        "feature_extractor_type": "WhisperFeatureExtractor",
        "chunk_length": 30,
        "dither": 0.0,
    }
    extractor.pop("min_length")
    files: dict[str, dict[str, Any]] = {
        "preprocessor_config.json": extractor,
        "chat_template.json": {"chat_template": template},
        "generation_config.json": {"eos_token_id": ASR_CONFIG["eos_token_id"]},
    }
    _write(directory, config, files)
    weights = {_original_name(name): value for name, value in asr_weights().items()}
    write_safetensors(directory / "model.safetensors", weights)
    return directory


def _original_name(name: str) -> str:
    for begin, original in (
        ("model.language_model.", "thinker.model."),
        ("model.multi_modal_projector.linear_", "thinker.audio_tower.proj"),
        ("model.audio_tower.", "thinker.audio_tower."),
    ):
        if name.startswith(begin):
            return original + name.removeprefix(begin)
    return f"thinker.{name}"


def _write(directory: Path, config: dict[str, Any], files: dict[str, dict[str, Any]]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for name, value in {"config.json": config, **files}.items():
        (directory / name).write_text(json.dumps(value))
    asr_tokenizer().save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|im_end|>"}))
