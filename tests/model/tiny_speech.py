"""Tiny random models that transcribe speech, as Hugging Face directories."""

from __future__ import annotations

__all__ = (
    "GENERATION_CONFIG",
    "LANGUAGES",
    "SAMPLE_RATE",
    "SPEECH_CONFIG",
    "WINDOW_SECONDS",
    "speech_audio",
    "speech_weights",
    "write_speech",
)

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from aiomlc.models.config.fields import Fields
from aiomlc.models.families.whisper import parse
from aiomlc.models.parameters.speech import speech_parameters
from tests.model.tiny_models import Weights, write_safetensors

SAMPLE_RATE = 16_000
WINDOW_SECONDS = 2
LANGUAGES = ("en", "de", "fr")
_TEXT_TOKENS = 120
_END = _TEXT_TOKENS
_SPECIAL = (
    "<|endoftext|>",
    "<|startoftranscript|>",
    *(f"<|{language}|>" for language in LANGUAGES),
    "<|translate|>",
    "<|transcribe|>",
    "<|startoflm|>",
    "<|startofprev|>",
    "<|nospeech|>",
    "<|notimestamps|>",
)
_IDS = {token: _END + index for index, token in enumerate(_SPECIAL)}
_FIRST_TIMESTAMP = _END + len(_SPECIAL)
_POSITIONS = 50 * WINDOW_SECONDS

SPEECH_CONFIG: dict[str, Any] = {
    "model_type": "whisper",
    "architectures": ["WhisperForConditionalGeneration"],
    "vocab_size": _FIRST_TIMESTAMP + _POSITIONS + 1,
    "num_mel_bins": 80,
    "d_model": 48,
    "encoder_layers": 2,
    "encoder_attention_heads": 3,
    "encoder_ffn_dim": 96,
    "decoder_layers": 3,
    "decoder_attention_heads": 3,
    "decoder_ffn_dim": 80,
    "max_source_positions": _POSITIONS,
    "max_target_positions": 64,
    "activation_function": "gelu",
    "bos_token_id": _END,
    "eos_token_id": _END,
    "pad_token_id": _END,
    "decoder_start_token_id": _IDS["<|startoftranscript|>"],
}
GENERATION_CONFIG: dict[str, Any] = {
    "bos_token_id": _END,
    "eos_token_id": _END,
    "pad_token_id": _END,
    "decoder_start_token_id": _IDS["<|startoftranscript|>"],
    "is_multilingual": True,
    "lang_to_id": {f"<|{language}|>": _IDS[f"<|{language}|>"] for language in LANGUAGES},
    "task_to_id": {"transcribe": _IDS["<|transcribe|>"], "translate": _IDS["<|translate|>"]},
    "no_timestamps_token_id": _IDS["<|notimestamps|>"],
    "prev_sot_token_id": _IDS["<|startofprev|>"],
    "max_initial_timestamp_index": 25,
    "max_length": 64,
    "suppress_tokens": [7, 9, 11, *range(_END + 1, _IDS["<|notimestamps|>"])],
    "begin_suppress_tokens": [32, _END],
    "return_timestamps": False,
}


def preprocessor_config() -> dict[str, Any]:
    """Return the settings of the features."""
    return {
        "feature_extractor_type": "WhisperFeatureExtractor",
        "feature_size": SPEECH_CONFIG["num_mel_bins"],
        "sampling_rate": SAMPLE_RATE,
        "hop_length": 160,
        "n_fft": 400,
        "chunk_length": WINDOW_SECONDS,
    }


def speech_weights(seed: int = 0) -> Weights:
    """Return the float32 weights, identical on every machine."""
    random = np.random.Generator(np.random.PCG64(seed))
    weights: Weights = {}
    for parameter in speech_parameters(parse(Fields(SPEECH_CONFIG, Path("config.json")))):
        (name,) = parameter.sources
        values = random.standard_normal(parameter.shape)
        if name.endswith("layer_norm.weight"):
            values = 1.0 + 0.1 * values
        elif name.endswith("bias"):
            values = 0.2 * values
        elif "embed_positions" in name:
            values = 0.5 * values
        elif "embed_tokens" not in name:
            values = values * (1.5 / np.sqrt(parameter.shape[-1]))
        if ".conv" in name and name.endswith("weight"):
            values = values.reshape(values.shape[0], -1, 3)
        weights[name] = np.ascontiguousarray(values, np.float32)
    return weights


def speech_audio(seconds: float, seed: int = 1) -> NDArray[np.float32]:
    """Return tones that change, with noise, identical on every machine: float32 mono."""
    random = np.random.Generator(np.random.PCG64(seed))
    count = int(seconds * SAMPLE_RATE)
    samples = np.zeros(count)
    for begin in range(0, count, 4000):
        time = np.arange(min(4000, count - begin)) / SAMPLE_RATE
        pitch, loudness = random.uniform(100, 3000), random.uniform(0.0, 0.3)
        samples[begin : begin + 4000] = loudness * np.sin(2 * np.pi * pitch * time)
    return (samples + 0.01 * random.standard_normal(count)).astype(np.float32)


def write_speech(directory: Path, *, weights: Weights | None = None, **generation: Any) -> Path:  # noqa: ANN401
    """Write a model and return the directory.

    Args:
        weights: Other ones than `speech_weights`.
        generation: Other values of fields of `generation_config.json`.
    """
    directory.mkdir(parents=True, exist_ok=True)
    files = {
        "config.json": SPEECH_CONFIG,
        "generation_config.json": {**GENERATION_CONFIG, **generation},
        "preprocessor_config.json": preprocessor_config(),
        "tokenizer_config.json": {"tokenizer_class": "WhisperTokenizer"},
    }
    for name, value in files.items():
        (directory / name).write_text(json.dumps(value))
    speech_tokenizer().save(str(directory / "tokenizer.json"))
    write_safetensors(directory / "model.safetensors", weights or speech_weights())
    return directory


def speech_tokenizer() -> Tokenizer:
    """Return a tokenizer of bytes with Whisper's special tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())[:_TEXT_TOKENS]
    tokenizer = Tokenizer(models.BPE({letter: i for i, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    timestamps = [f"<|{index / 50:.2f}|>" for index in range(_POSITIONS + 1)]
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in _SPECIAL])
    tokenizer.add_tokens([AddedToken(token, special=False) for token in timestamps])
    return tokenizer
