"""Compute what transformers computes with the tiny models of Qwen 3 ASR, in float32.

Run `python -m tests.model.make_asr_reference`; it rewrites `tests/model/reference/asr.npz`.
Requires torch and transformers, which the tests do not.
"""

from __future__ import annotations

__all__ = ("PARSED", "REFERENCE", "REQUESTS", "STEPS", "AsrRequest")

import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tests.model.tiny_asr import ASR_TEMPLATE, ROWS, asr_tokenizer, write_asr
from tests.model.tiny_speech import SAMPLE_RATE, speech_audio

REFERENCE = Path(__file__).parent / "reference" / "asr.npz"
STEPS = 12  #: Tokens that are generated.


class AsrRequest(NamedTuple):
    """A request for the text of a recording."""

    seconds: float
    language: str | None = None
    prompt: str | None = None


REQUESTS = (
    AsrRequest(0.3),
    AsrRequest(2.7, "de"),
    AsrRequest(5.5, None, "Names: Ada, Grace"),
    AsrRequest(1.0, "Chinese", "a"),
)
_REPEATED = ("ha" * 30, "no " * 25, "x" * 21, "y" * 20, " " * 24)
#: Outputs of models.
PARSED = (
    "language English<asr_text>Hello there.",
    "language Chinese\n<asr_text> 你好 ",
    "language None<asr_text>",
    "language None<asr_text>noise",
    "no mark at all",
    "",
    "  ",
    "language German",
    "English<asr_text>text",
    "\nlanguage french\nmore<asr_text>un <asr_text> deux",
    *(f"language English<asr_text>{text} and{text}{text} then {'word ' * 9}" for text in _REPEATED),
)


def _processor() -> Any:  # noqa: ANN401 - untyped.
    import transformers

    tokens = {"audio_token": "pad", "audio_bos_token": "start", "audio_eos_token": "end"}
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=asr_tokenizer(),
        eos_token="<|im_end|>",
        pad_token="<|im_end|>",
        extra_special_tokens={name: f"<|audio_{part}|>" for name, part in tokens.items()},
    )
    extractor = transformers.Qwen3ASRFeatureExtractor(feature_size=128)
    return transformers.Qwen3ASRProcessor(extractor, tokenizer, chat_template=ASR_TEMPLATE)


def _load() -> Any:  # noqa: ANN401 - untyped.
    import transformers

    with tempfile.TemporaryDirectory() as directory:
        write_asr(Path(directory))
        loaded: Any = transformers.Qwen3ASRForConditionalGeneration.from_pretrained(
            directory, attn_implementation="eager", dtype="float32", output_loading_info=True
        )
    model, problems = loaded
    others = {kind: names for kind, names in problems.items() if names}
    if others:
        raise ValueError(f"the weights are not those of the model: {others}")
    return model.eval()


def main() -> None:
    """Rewrite the reference file."""
    import torch

    model, processor = _load(), _processor()
    values: dict[str, Any] = {}
    with torch.inference_mode():
        for seconds in ROWS:
            inputs = processor.feature_extractor(
                speech_audio(seconds),
                sampling_rate=SAMPLE_RATE,
                padding=True,
                return_attention_mask=True,
            )
            features, mask = inputs["input_features"], inputs["attention_mask"]
            rows = model.get_audio_features(features, mask, return_dict=True).pooler_output
            values[f"features-{seconds}"] = features[0].numpy()[:, ::5]
            values[f"rows-{seconds}"] = rows.numpy()
        for index, request in enumerate(REQUESTS):
            inputs = processor.apply_transcription_request(
                audio=speech_audio(request.seconds),
                language=request.language,
                prompt=request.prompt,
            )
            output = model.generate(
                **inputs,
                do_sample=False,
                max_new_tokens=STEPS,
                output_logits=True,
                return_dict_in_generate=True,
            )
            prompt = inputs["input_ids"][0].numpy()
            values[f"prompt-{index}"] = prompt
            values[f"tokens-{index}"] = output.sequences[0].numpy()[len(prompt) :]
            values[f"logits-{index}"] = torch.cat(output.logits).numpy()
    parsed = processor.parse_output(list(PARSED))
    values["languages"] = np.array([one["language"] or "" for one in parsed])
    values["texts"] = np.array([one["transcription"] for one in parsed])
    np.savez_compressed(REFERENCE, **values)


if __name__ == "__main__":
    main()
