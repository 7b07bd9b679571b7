"""Qwen 3 ASR: an audio tower whose rows are embeddings of a Qwen 3 decoder."""

from __future__ import annotations

__all__ = ("parse", "parse_audio")

from typing import Final

from aiomlc.models.config.audio import AudioConfig, halved
from aiomlc.models.config.decoder import DecoderConfig
from aiomlc.models.config.fields import Fields, quote
from aiomlc.models.config.tower import ActivationStep, LinearStep, TowerNames
from aiomlc.models.families import qwen3
from aiomlc.models.families.vision_towers import text_fields

_NAMES: Final = TowerNames(
    patch="audio_tower",
    layers="audio_tower.layers",
    post_norm="audio_tower.ln_post",
    attention_norm="self_attn_layer_norm",
    mlp_norm="final_layer_norm",
    up=("fc1",),
    down="fc2",
)
#: The names of transformers' directories, and of the original ones.
_PREFIXES: Final = (
    ("model.language_model.", "model."),
    ("model.audio_tower.", "audio_tower."),
    ("model.multi_modal_projector.", "multi_modal_projector."),
    ("thinker.audio_tower.proj1.", "multi_modal_projector.linear_1."),
    ("thinker.audio_tower.proj2.", "multi_modal_projector.linear_2."),
    ("thinker.", ""),
)
_CHUNK_ROWS: Final = 13  # What transformers counts for a chunk, whatever its size.
_EPS: Final = 1e-5
_LAYERS: Final = 24
_TEXT: Final = {
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "max_position_embeddings": 65_536,
    "tie_word_embeddings": True,
}


def parse(fields: Fields) -> DecoderConfig:
    """Read the decoder of a config of model type `qwen3_asr`.

    Raises:
        ModelLoadError: If a field is missing or has a value that is not supported.
    """
    _refuse_aligner(fields)
    return qwen3.parse(_text(fields))


def parse_audio(fields: Fields) -> AudioConfig:
    """Read the tower of a config of model type `qwen3_asr`.

    Raises:
        ModelLoadError: If a field is missing or has a value that is not supported.
    """
    audio = _audio(fields)
    audio.choice("activation_function", ("gelu",), "gelu")
    hidden, heads = audio.integer("d_model", 1024), _heads(audio)
    outputs = audio.integer("output_dim", 3584)
    if outputs != (size := _text(fields).integer("hidden_size")):
        problem = f"must be the hidden_size of the decoder, {size}, got {outputs}"
        raise audio.error("output_dim", problem)

    chunk = _chunk_frames(audio)
    return AudioConfig(
        model_type="qwen3_asr",
        num_mels=audio.integer("num_mel_bins", 128),
        chunk_frames=chunk,
        window_chunks=_window_chunks(audio, chunk),
        conv_channels=audio.integer("downsample_hidden_size", 480),
        hidden_size=hidden,
        intermediate_size=audio.integer("encoder_ffn_dim", 4096),
        num_hidden_layers=audio.integer("encoder_layers", _LAYERS),
        num_heads=heads,
        head_dim=hidden // heads,
        activation="gelu",
        norm_eps=_EPS,
        post_norm=True,
        projector=(
            _linear("1", hidden, hidden),
            ActivationStep(activation="gelu"),
            _linear("2", hidden, outputs),
        ),
        embedded_size=outputs,
        names=_NAMES,
        prefixes=_PREFIXES,
    )


def _refuse_aligner(fields: Fields) -> None:
    """Raise for the forced aligner, which has the same model type and labels in place of text."""
    name = "architectures"
    kinds = fields.strings(name) if name in fields else []
    if "classify_num" in _outer(fields) or any("TokenClass" in kind for kind in kinds):
        problem = f"is {quote(kinds)}: the forced aligner is not supported; open Qwen3-ASR"
        raise fields.error(name, problem)


def _outer(fields: Fields) -> Fields:
    """Return the fields of transformers' format, which the original one has in `thinker_config`."""
    return fields.flattened("thinker_config") if "thinker_config" in fields else fields


def _text(fields: Fields) -> Fields:
    text = text_fields(_outer(fields), "qwen3")
    if text.string("model_type") != "qwen3":
        text = text.replaced(model_type="qwen3")  # The original format has another name for it.
    return text.with_defaults(**_TEXT)


def _audio(fields: Fields) -> Fields:
    """Return the fields of the tower by Whisper's names, or those that transformers writes."""
    return (
        _outer(fields)
        .nested("audio_config")
        .renamed(
            {
                "hidden_size": "d_model",
                "intermediate_size": "encoder_ffn_dim",
                "num_attention_heads": "encoder_attention_heads",
                "num_hidden_layers": "encoder_layers",
            }
        )
    )


def _heads(audio: Fields) -> int:
    hidden = audio.integer("d_model", 1024)
    if hidden % 2:
        raise audio.error("d_model", f"must be even, got {hidden}")

    heads = audio.integer("encoder_attention_heads", 16)
    if hidden % heads:
        problem = f"must divide d_model ({hidden}), got {heads}"
        raise audio.error("encoder_attention_heads", problem)

    return heads


def _chunk_frames(audio: Fields) -> int:
    name = "n_window"
    frames = 2 * audio.integer(name, 50)
    rows = halved(halved(halved(frames)))
    if rows != _CHUNK_ROWS:
        raise audio.error(
            name, f"must give a chunk {_CHUNK_ROWS} rows, as 50 does, got {frames // 2}: {rows}"
        )

    return frames


def _window_chunks(audio: Fields, chunk: int) -> int:
    name = "n_window_infer"
    frames = audio.integer(name, 800)
    if frames % chunk:
        raise audio.error(name, f"must be a multiple of a chunk, {chunk}, got {frames}")

    return frames // chunk


def _linear(index: str, inputs: int, outputs: int) -> LinearStep:
    source = f"multi_modal_projector.linear_{index}"
    return LinearStep(source=source, inputs=inputs, outputs=outputs, bias=True)
