"""Compute the reference logits of a tiny W8A8 checkpoint with transformers in float32.

The weights are dequantized, and the inputs of each quantized layer are rounded to 8 bits with one
scale per token. Run `python -m tests.model.make_int8_reference` to rewrite
`tests/model/reference/llama_w8a8.npz`. Requires torch and transformers, which the tests do not.
"""

from __future__ import annotations

__all__ = ("REFERENCE", "STEPS", "int8_reference_logits")

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.model.make_reference import PROMPT
from tests.model.quantized_files import QUANTIZERS
from tests.model.quantized_models import CONFIG, write_quantized

REFERENCE = Path(__file__).parent / "reference" / "llama_w8a8.npz"
STEPS = 24


def int8_reference_logits(
    weights: dict[str, NDArray[np.float32]],
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Return the greedy continuation of the prompt and the logits of each of its tokens.

    Args:
        weights: The dequantized weights, by their names in the checkpoint.
    """
    import torch
    import transformers

    config = transformers.AutoConfig.for_model(**CONFIG)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    model.load_state_dict({name: torch.from_numpy(value) for name, value in weights.items()})
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and name != "lm_head":
            module.register_forward_pre_hook(lambda _, inputs: (_rounded(inputs[0]),))
    ids = list(PROMPT)
    rows = []
    with torch.inference_mode():
        for _ in range(STEPS):
            rows.append(model(torch.tensor([ids])).logits[0, -1].numpy())
            ids.append(int(rows[-1].argmax()))
    return np.array(ids[len(PROMPT) :], np.int32), np.stack(rows)


def _rounded(x: Any) -> Any:  # noqa: ANN401 - torch is not installed for the type checkers.
    scale = x.abs().amax(-1, keepdim=True) / 127
    return (x / scale).round() * scale


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        weights = write_quantized(Path(directory) / "model", QUANTIZERS["w8a8"])
    tokens, logits = int8_reference_logits(weights)
    np.savez_compressed(REFERENCE, tokens=tokens, logits=logits)


if __name__ == "__main__":
    main()
