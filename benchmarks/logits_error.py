"""Error of the kernels' arithmetic: logits compared with those of float32 arithmetic.

    python -m benchmarks.logits_error --model MODEL

A Hugging Face model reads a prompt of random tokens, one token after the other, in `q4f16_1`
(activations in 8 bits, keys and values in float16), once per instruction set. The reference is
transformers in float32 with the same quantized weights. transformers also runs with the inputs of
its linear layers rounded to 8 bits, which shows the error that this rounding alone causes. The
relative error of a position is the L2 norm of the difference of both logits, divided by the L2 norm
of the reference. Needs `pip install 'aiomlc[train]'`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from aiomlc import EngineConfig
from aiomlc.runtime.loading.model_directory import find_model
from benchmarks.native_model import logits_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

_GROUP_SIZE = 32  # Inputs with a common scale.
_MAX_WEIGHT_LEVEL, _MAX_INPUT_LEVEL = 7, 127
_ROWS_AT_ONCE = 2048
_TIERS = {
    "amx": {"amx_tile", "amx_int8"},
    "avx512": {"avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512_vnni"},
    "avxvnni": {"avx2", "fma", "f16c", "avx_vnni"},
    "avx2": {"avx2", "fma", "f16c"},
    "portable": set[str](),
}


@dataclass(frozen=True, slots=True)
class LogitsError:
    """Relative error of logits over all positions."""

    median: float
    max: float
    agreement: float  #: Fraction of the positions where both have the same argmax.


def compare(logits: NDArray[np.float32], reference: NDArray[np.float32]) -> LogitsError:
    """Return the error of `logits`; both arrays are `[positions, vocabulary]`."""
    exact = reference.astype(np.float64)
    errors = np.linalg.norm(logits - exact, axis=1) / np.linalg.norm(exact, axis=1)
    agreement = np.mean(logits.argmax(1) == reference.argmax(1))
    return LogitsError(float(np.median(errors)), float(errors.max()), float(agreement))


def logits_in_float32(
    model: Path, prompt: list[int], *, round_inputs: bool = False
) -> NDArray[np.float32]:
    """Return transformers' logits after each prompt token, `[len(prompt), vocabulary]`."""
    import torch
    from transformers import AutoModelForCausalLM

    network = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    with torch.inference_mode():
        for parameter in network.parameters():
            if parameter.ndim == 2:
                _quantize_in_place(parameter)
        for layer in network.modules():
            if round_inputs and isinstance(layer, torch.nn.Linear):
                layer.register_forward_pre_hook(_round_inputs)
        logits: NDArray[np.float32] = network(torch.tensor([prompt])).logits[0].numpy()
    return logits


def _quantize_in_place(matrix: Any) -> None:  # noqa: ANN401 - torch is untyped here.
    """Replace every weight by the value that `q4f16_1` stores."""
    import torch

    for rows in matrix.split(_ROWS_AT_ONCE):
        groups = rows.view(rows.shape[0], -1, _GROUP_SIZE)
        scale = (groups.abs().amax(-1, keepdim=True) / _MAX_WEIGHT_LEVEL).to(torch.float16).float()
        scale[scale == 0] = 1
        # Ties round to the even level, with levels counted from 0, as in MLC's format.
        groups.div_(scale).add_(_MAX_WEIGHT_LEVEL).round_().clamp_(0, 2 * _MAX_WEIGHT_LEVEL)
        groups.sub_(_MAX_WEIGHT_LEVEL).mul_(scale)


def _round_inputs(_: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...]:  # noqa: ANN401
    """Round a linear layer's inputs to 8 bits, with a scale per group."""
    groups = inputs[0].view(*inputs[0].shape[:-1], -1, _GROUP_SIZE)
    scale = groups.abs().amax(-1, keepdim=True) / _MAX_INPUT_LEVEL
    scale[scale == 0] = 1
    return ((groups / scale).round().mul(scale).view_as(inputs[0]),)


def logits_of_kernels(model: Path, prompt: list[int], threads: int) -> NDArray[np.float32]:
    """Return aiomlc's logits with the instruction set that `AIOMLC_ISA` names."""
    config = EngineConfig(quantization="q4f16_1", num_threads=threads)
    return logits_of(model, prompt, config)


def main() -> None:
    arguments = _parse_arguments()
    config = find_model(arguments.model).path / "config.json"
    prompt = _random_prompt(config, arguments.tokens)
    if arguments.write is not None:
        np.save(arguments.write, _logits(arguments, prompt))
        return

    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "logits.npy"
        reference = _run_subprocess(file, "--reference", "float32")
        print(f"{len(prompt)} tokens\n")
        print("| | median relative error | max | same argmax |\n|---|---|---|---|")
        rounded = _run_subprocess(file, "--reference", "rounded")
        print(_row("float32, inputs in 8 bits", compare(rounded, reference)))
        for tier, required in _TIERS.items():
            if not required <= _processor_flags():
                print(f"| {tier} | not supported by this processor | | |")
                continue

            print(_row(tier, compare(_run_subprocess(file, tier=tier), reference)))


def _row(name: str, error: LogitsError) -> str:
    return f"| {name} | {error.median:.2%} | {error.max:.2%} | {error.agreement:.1%} |"


def _logits(arguments: argparse.Namespace, prompt: list[int]) -> NDArray[np.float32]:
    if arguments.reference is None:
        return logits_of_kernels(arguments.model, prompt, arguments.threads)

    round_inputs = arguments.reference == "rounded"
    return logits_in_float32(arguments.model, prompt, round_inputs=round_inputs)


def _run_subprocess(file: Path, *options: str, tier: str = "portable") -> NDArray[np.float32]:
    """Compute logits in a subprocess: it has one instruction set, and frees its model's memory."""
    command = [sys.executable, "-m", "benchmarks.logits_error", *sys.argv[1:]]
    environment = {**os.environ, "AIOMLC_ISA": tier}
    subprocess.run([*command, "--write", str(file), *options], env=environment, check=True)
    logits: NDArray[np.float32] = np.load(file)
    return logits


def _random_prompt(config: Path, tokens: int) -> list[int]:
    vocabulary = json.loads(config.read_bytes())["vocab_size"]
    return random.Random(0).choices(range(vocabulary), k=tokens)


def _processor_flags() -> set[str]:
    information = Path("/proc/cpuinfo")
    lines = information.read_text(encoding="utf-8").splitlines() if information.is_file() else []
    return {
        flag for line in lines if line.startswith("flags") for flag in line.split(":")[1].split()
    }


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", type=Path, required=True, help="a Hugging Face directory")
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--reference", choices=("float32", "rounded"), help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
