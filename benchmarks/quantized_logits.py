"""Error of the logits of random models in each quantization, beside float32.

    python -m benchmarks.quantized_logits [--quantizations NAME ...]

Random Llamas of several shapes, with normal and with heavy-tailed weights, are converted with the
default scales, with those of `--search`, and with a search that is calibrated on a text. They read
the same random tokens as the unquantized model. The relative error of a position is the L2 norm of
the difference of both logits, divided by the L2 norm of the reference; the table has medians. Needs
`pip install 'aiomlc[train]'`.
"""

from __future__ import annotations

__all__ = ("main", "make_heavy_tailed")

import argparse
import random
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import numpy as np

from aiomlc import EngineConfig
from aiomlc.tools.convert import convert_weights
from aiomlc.tools.gen_config import gen_config
from aiomlc.tools.mlc_format import MLC_FORMATS
from benchmarks.logits_error import compare
from benchmarks.native_model import logits_of
from benchmarks.random_llama import Shape, make_model

_SHAPES = (
    Shape(hidden=256, intermediate=768, layers=4, heads=4, kv_heads=2, vocabulary=4_096),
    Shape(hidden=512, intermediate=1_536, layers=8, heads=8, kv_heads=2, vocabulary=4_096),
    Shape(hidden=1_024, intermediate=2_816, layers=4, heads=16, kv_heads=4, vocabulary=4_096),
)
_MODES: dict[str, dict[str, Any]] = {
    "default": {},
    "search": {"search": True},
    "calibrated": {"search": True, "calibration": Path(__file__).parent.parent / "README.md"},
}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    names = ("q4f16_1", "q3f16_1")
    parser.add_argument("--quantizations", nargs="+", choices=MLC_FORMATS, default=names)
    parser.add_argument("--tokens", type=int, default=128)
    arguments = parser.parse_args()
    print("| model | weights | format | " + " | ".join(_MODES) + " |")
    print("|---|---|---|" + "---|" * len(_MODES))
    for shape in _SHAPES:
        for weights in ("normal", "heavy-tailed"):
            with tempfile.TemporaryDirectory() as directory:
                model = Path(directory) / "model"
                make_model(model, shape)
                if weights == "heavy-tailed":
                    make_heavy_tailed(model)
                _compare(model, shape, weights, arguments.quantizations, arguments.tokens)


def make_heavy_tailed(model: Path) -> None:
    """Replace the weights by those of Student's t-distribution, with columns of several sizes."""
    import torch
    from safetensors.torch import load_file, save_file

    path = model / "model.safetensors"
    generator = np.random.default_rng(0)
    tensors = load_file(path)
    for name, tensor in tensors.items():
        if tensor.ndim == 2:
            values = generator.standard_t(4, tensor.shape) * 0.02 / np.sqrt(2)
            values *= generator.lognormal(0, 0.5, tensor.shape[1])
            tensors[name] = torch.from_numpy(values).to(tensor.dtype)
    save_file(tensors, path, metadata={"format": "pt"})


def _compare(
    model: Path, shape: Shape, weights: str, quantizations: Sequence[str], tokens: int
) -> None:
    prompt = random.Random(0).choices(range(shape.vocabulary), k=tokens)
    reference = logits_of(model, prompt, EngineConfig(quantization="q0f32"))
    for name in quantizations:
        row = f"| {shape.layers} layers of {shape.hidden} | {weights} | `{name}` "
        for mode, options in _MODES.items():
            if options and not MLC_FORMATS[name].bits:  # No other scales to search for.
                row += "| "
                continue

            output = model.parent / f"{name}-{mode}"
            anyio.run(_convert, model, output, name, options)
            error = compare(logits_of(output, prompt, EngineConfig()), reference)
            row += f"| {error.median:.2%} "
        print(f"{row}|", flush=True)


async def _convert(model: Path, output: Path, name: str, options: dict[str, Any]) -> None:
    await convert_weights(model, output, quantization=name, **options)
    await gen_config(model, output, quantization=name, conv_template="chatml")


if __name__ == "__main__":
    main()
