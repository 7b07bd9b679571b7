"""Compute the reference logits of the tiny models with transformers in float32.

Run `python -m tests.model.make_reference [NAME...]` after changing `tiny_models.py`; it rewrites
`tests/model/reference/*.npz` of the named models or of all. Requires torch and transformers, which
the tests do not.
"""

from __future__ import annotations

__all__ = ("PROMPT", "live_model", "reference_logits", "reference_model")

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.model.tiny_experts import fused_experts
from tests.model.tiny_models import TINY_CONFIGS, Weights, dequantized, tiny_weights

PROMPT = [int(i) for i in np.random.Generator(np.random.PCG64(7)).integers(0, 256, 40)]
STEPS = 64


def reference_model(architecture: str, weights: Weights) -> Any:  # noqa: ANN401 - untyped.
    """Return the model of transformers of a tiny model, with these weights."""
    return live_model(TINY_CONFIGS[architecture], weights)


def live_model(values: Mapping[str, Any], weights: Weights) -> Any:  # noqa: ANN401 - untyped.
    """Return the model of transformers with a config and weights."""
    import torch
    import transformers

    config = transformers.AutoConfig.for_model(**values)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    # Transformers' name of the head differs from the one in GPT-NeoX directories.
    state = {
        name.replace("embed_out", "lm_head"): torch.from_numpy(value.copy())
        for name, value in fused_experts(weights).items()
    }
    missing, unexpected = model.load_state_dict(state, strict=False)
    if unexpected or set(missing) - {"lm_head.weight"}:
        raise ValueError(f"{values['model_type']}: missing {missing}, unexpected {unexpected}")
    model.tie_weights()
    return model


def reference_logits(
    architecture: str, *, quantized: bool
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Return the greedy continuation of the prompt and the logits of each of its tokens.

    The tokens are int32 `[STEPS]`, the logits float32 `[STEPS, vocab]`.
    """
    import torch

    weights = tiny_weights(architecture)
    model = reference_model(architecture, dequantized(weights) if quantized else weights)
    ids = list(PROMPT)
    rows = []
    with torch.inference_mode():
        for _ in range(STEPS):
            row = model(torch.tensor([ids])).logits[0, -1].float().numpy()
            rows.append(row)
            ids.append(int(row.argmax()))
    return np.array(ids[len(PROMPT) :], np.int32), np.stack(rows)


def main(names: Sequence[str]) -> None:
    """Rewrite the reference files of the named tiny models, or of all."""
    directory = Path(__file__).parent / "reference"
    directory.mkdir(exist_ok=True)
    for architecture in names or TINY_CONFIGS:
        for quantized in (False, True):
            tokens, logits = reference_logits(architecture, quantized=quantized)
            name = f"{architecture}_{'q4f16_1' if quantized else 'q0f32'}.npz"
            np.savez_compressed(directory / name, tokens=tokens, logits=logits)


if __name__ == "__main__":
    main(sys.argv[1:])
