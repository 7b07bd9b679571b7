"""Compute what transformers computes with the tiny models that transcribe speech, in float32.

Run `python -m tests.model.make_speech_reference`; it rewrites `tests/model/reference/speech.npz`.
Requires torch and transformers, which the tests do not.
"""

from __future__ import annotations

__all__ = (
    "DECODED",
    "FRAME_STEP",
    "GENERATED",
    "MELS",
    "OPTIONS",
    "REFERENCE",
    "SECONDS",
    "padded_audio",
    "rule_cases",
)

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.model.tiny_speech import (
    GENERATION_CONFIG,
    SAMPLE_RATE,
    SPEECH_CONFIG,
    WINDOW_SECONDS,
    speech_audio,
    write_speech,
)

REFERENCE = Path(__file__).parent / "reference" / "speech.npz"
SECONDS = (2.0, 1.3, 9.4)  #: Of the audio.
MELS = (80, 128)
FRAME_STEP = 5  #: From a frame whose features are stored to the next one.
_MAX_WINDOWS = 100
#: Tokens of a window.
DECODED = [GENERATION_CONFIG["decoder_start_token_id"], 122, 126, 130, 45, 3, 77, 60, 160, 161, 9]
#: Settings of `generate`, by name.
OPTIONS: dict[str, dict[str, Any]] = {
    "detected": {"task": "transcribe"},
    "german": {"language": "de", "task": "transcribe"},
    "translated": {"language": "fr", "task": "translate"},
    "conditioned": {"language": "en", "task": "transcribe", "condition_on_prev_tokens": True},
}
#: Seconds of audio, whether there are timestamps, and the settings. Without them, transformers
#: does not end if a random model repeats the time of the begin.
GENERATED = (
    (SECONDS[0], False, "detected"),
    (SECONDS[0], False, "german"),
    *((seconds, True, name) for seconds in (SECONDS[0], SECONDS[2]) for name in OPTIONS),
)


def _extractor(mels: int) -> Any:  # noqa: ANN401 - untyped.
    import transformers

    return transformers.WhisperFeatureExtractor(feature_size=mels, chunk_length=WINDOW_SECONDS)


def _features(seconds: float) -> NDArray[np.float32]:
    """Return the features of the models, which transformers computes in float32 if there is torch.

    The numbers of quiet bands are less exact than those of `_exact_features`.
    """
    long = {"truncation": False, "padding": "longest"} if seconds > WINDOW_SECONDS else {}
    result = _extractor(SPEECH_CONFIG["num_mel_bins"])(
        speech_audio(seconds), sampling_rate=SAMPLE_RATE, return_tensors="np", **long
    )
    features: NDArray[np.float32] = result["input_features"][0]
    return features


def _exact_features(mels: int, seconds: float) -> NDArray[np.float32]:
    """Return some frames of the features that transformers computes without torch."""
    samples = padded_audio(seconds)[np.newaxis]
    features: NDArray[np.float32] = _extractor(mels)._np_extract_fbank_features(samples, "cpu")[0]
    return features[:, ::FRAME_STEP].astype(np.float32)


def padded_audio(seconds: float) -> NDArray[np.float32]:
    """Return audio that lasts a window at least."""
    samples = speech_audio(seconds)
    return np.pad(samples, (0, max(0, WINDOW_SECONDS * SAMPLE_RATE - len(samples))))


def _load() -> Any:  # noqa: ANN401 - untyped.
    import transformers

    with tempfile.TemporaryDirectory() as directory:
        write_speech(Path(directory))
        model, problems = transformers.WhisperForConditionalGeneration.from_pretrained(
            directory, attn_implementation="eager", dtype="float32", output_loading_info=True
        )
    others = [problems[kind] for kind in ("unexpected_keys", "mismatched_keys")]
    missing = set(problems["missing_keys"]) - {"proj_out.weight"}
    if missing or any(others):
        raise ValueError(f"missing {missing}, unexpected or of another shape {others}")
    return model.eval()


def _generate(model: Any, features: NDArray[np.float32], **options: Any) -> NDArray[np.int64]:  # noqa: ANN401
    import torch

    windows: list[object] = []

    def count(progress: object) -> None:
        windows.append(progress)
        if len(windows) > _MAX_WINDOWS:
            raise ValueError(f"more than {_MAX_WINDOWS} windows")

    inputs = torch.from_numpy(features[np.newaxis])
    tokens = model.generate(inputs, monitor_progress=count, **options)[0].numpy()
    result: NDArray[np.int64] = tokens
    return result


def rule_cases() -> list[tuple[list[int], NDArray[np.float32]]]:
    """Return generated tokens and logits of the next one."""
    random = np.random.Generator(np.random.PCG64(3))
    first = GENERATION_CONFIG["no_timestamps_token_id"] + 1
    cases = []
    for text in ([], [0], [0, 5], [0, 5, 9], [0, 5, 9, 9], [0, 5, 9, 9, 6], [2, 5, 6, 4]):
        # Small numbers are text or times, in turns: the first, third and fourth are times.
        tokens = [
            first + each if index % 4 in (0, 2, 3) else each for index, each in enumerate(text)
        ]
        for strength in (0.5, 4.0):
            logits = strength * random.standard_normal(SPEECH_CONFIG["vocab_size"])
            cases.append((tokens, logits.astype(np.float32)))
    return cases


def _apply_rules(
    tokens: list[int], logits: NDArray[np.float32], *, timestamps: bool
) -> NDArray[np.float32]:
    """Return the logits after the processors that `generate` uses, in its order."""
    import torch
    from transformers import GenerationConfig
    from transformers.generation import logits_process

    config = GenerationConfig.from_dict(GENERATION_CONFIG)
    start = [config.decoder_start_token_id]
    processors = [
        logits_process.SuppressTokensAtBeginLogitsProcessor(config.begin_suppress_tokens, 1),
        logits_process.SuppressTokensLogitsProcessor(config.suppress_tokens),
    ]
    if timestamps:
        processors.append(logits_process.WhisperTimeStampLogitsProcessor(config, 1))
    scores = torch.from_numpy(logits[np.newaxis].copy())
    for processor in processors:
        scores = processor(torch.tensor([start + tokens]), scores)
    result: NDArray[np.float32] = scores[0].numpy()
    return result


def main() -> None:
    """Rewrite the reference file."""
    import torch

    model = _load()
    values: dict[str, Any] = {}
    with torch.inference_mode():
        for seconds in SECONDS:
            for mels in MELS:
                values[f"features-{seconds}-{mels}"] = _exact_features(mels, seconds)
        window = values["window"] = _features(SECONDS[0])
        output = model(
            input_features=torch.from_numpy(window[np.newaxis]),
            decoder_input_ids=torch.tensor([DECODED]),
        )
        values["states"] = output.encoder_last_hidden_state[0].numpy()
        values["logits"] = output.logits[0].numpy()
        for seconds, timestamps, name in GENERATED:
            tokens = _generate(
                model, _features(seconds), return_timestamps=timestamps, **OPTIONS[name]
            )
            values[f"tokens-{seconds}-{timestamps}-{name}"] = tokens
        for index, (generated, logits) in enumerate(rule_cases()):
            for timestamps in (False, True):
                name = f"rules-{index}-{timestamps}"
                values[name] = _apply_rules(generated, logits, timestamps=timestamps)
        windows = torch.from_numpy(_features(SECONDS[1])[np.newaxis])
        values["language"] = model.detect_language(windows).numpy()
    np.savez_compressed(REFERENCE, **values)


if __name__ == "__main__":
    main()
