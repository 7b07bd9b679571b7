"""Size and perplexity of the bundled model in each quantization.

    python -m benchmarks.quantized_perplexity [--quantizations NAME ...]

The weights of the bundled model, which are those of `q4f16_1`, are converted with the default
scales, with those of `--search`, and with a search that is calibrated on every second held-out
dialogue. The others are scored through the engine.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import numpy as np
from numpy.typing import NDArray

from aiomlc import AsyncMLCEngine
from aiomlc.config import BUNDLED_MODEL
from aiomlc.runtime.tokenization.tokenizer import Tokenizer
from aiomlc.tools.convert import convert_weights
from aiomlc.tools.gen_config import gen_config
from aiomlc.tools.mlc_format import MLC_FORMATS
from aiomlc.weights.formats.mlc import read_mlc
from benchmarks.perplexity import held_out_dialogues
from benchmarks.quantization_error import dequantized

Array = NDArray[np.float32]


def bundled_weights() -> dict[str, Array]:
    """Return the weights of the bundled model under the names of Hugging Face."""
    tensors = read_mlc(BUNDLED_MODEL).tensors
    config = json.loads((BUNDLED_MODEL / "mlc-chat-config.json").read_text())["model_config"]
    weights: dict[str, Array] = {}
    for name, tensor in tensors.items():
        if name.endswith(".q_scale"):
            continue

        if not name.endswith(".q_weight"):
            vector = np.memmap(tensor.path, np.float16, "r", tensor.offset, tensor.shape)
            weights[name] = vector.astype(np.float32)
            continue

        module = name.removesuffix(".q_weight")
        scales = tensors[f"{module}.q_scale"]
        matrix = dequantized(
            np.memmap(tensor.path, np.uint32, "r", tensor.offset, tensor.shape),
            np.memmap(scales.path, np.float16, "r", scales.offset, scales.shape).astype(np.float32),
            MLC_FORMATS["q4f16_1"],
        )
        weights |= _split(module, matrix, config)
    return weights


def _split(module: str, matrix: Array, config: dict[str, Any]) -> dict[str, Array]:
    """Return the matrices of Hugging Face that a matrix of an MLC directory consists of."""
    if module.endswith("qkv_proj"):
        heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
        size = len(matrix) // (heads + 2 * kv_heads)
        parts = np.split(matrix, [heads * size, (heads + kv_heads) * size])
        names: Sequence[str] = ("q_proj", "k_proj", "v_proj")
        base = module.removesuffix("qkv_proj")
    elif module.endswith("gate_up_proj"):
        parts, names = np.split(matrix, 2), ("gate_proj", "up_proj")
        base = module.removesuffix("gate_up_proj")
    else:
        parts, names, base = [matrix], (module,), ""
    return {f"{base}{name}.weight": part for name, part in zip(names, parts, strict=True)}


def write_hugging_face(directory: Path) -> None:
    """Write the bundled model as a Hugging Face directory in float32."""
    directory.mkdir()
    outer = json.loads((BUNDLED_MODEL / "mlc-chat-config.json").read_text())
    size = outer["context_window_size"]
    config = {
        "model_type": outer["model_type"],
        **outer["model_config"],
        "max_position_embeddings": size,
    }
    (directory / "config.json").write_text(json.dumps(config))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(BUNDLED_MODEL / name, directory)
    header: dict[str, Any] = {}
    end = 0
    weights = bundled_weights()
    for name, weight in weights.items():
        begin, end = end, end + weight.nbytes
        header[name] = {"dtype": "F32", "shape": weight.shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    data = b"".join(np.ascontiguousarray(weight).tobytes() for weight in weights.values())
    (directory / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)


async def perplexity(model: Path, prompts: list[list[int]]) -> float:
    """Return the perplexity of all tokens except the first of each prompt."""
    logprobs: list[float] = []
    async with AsyncMLCEngine(model) as engine:
        for prompt in prompts:
            completion = await engine.completions.create(
                prompt=prompt, prompt_logprobs=0, max_tokens=1
            )
            entries = completion.choices[0].prompt_logprobs or []
            logprobs += [entry.logprob for entry in entries if entry is not None]
    return math.exp(-sum(logprobs) / len(logprobs))


async def run(directory: Path, quantizations: Sequence[str], num_dialogues: int) -> None:
    """Print the table."""
    dialogues = held_out_dialogues(num_dialogues)
    tokenizer = Tokenizer(BUNDLED_MODEL / "tokenizer.json")
    scored = [tokenizer.encode(dialogue) for dialogue in dialogues[::2]]
    text = directory / "calibration.txt"
    text.write_text("\n".join(line.replace("\n", " ") for line in dialogues[1::2]), "utf-8")
    model = directory / "model"
    write_hugging_face(model)
    print(f"{sum(map(len, scored))} tokens\n\n| format | scales | MB | perplexity |")
    print("|---|---|---|---|")
    for name in quantizations:
        modes: dict[str, dict[str, Any]] = {"default": {}}
        if MLC_FORMATS[name].bits:
            modes["search"] = {"search": True}
            modes["calibrated"] = {"search": True, "calibration": text}
        for mode, options in modes.items():
            output = directory / f"{name}-{mode}"
            done = await convert_weights(model, output, quantization=name, **options)
            await gen_config(model, output, quantization=name, conv_template="chatml")
            score = await perplexity(output, scored)
            print(f"| `{name}` | {mode} | {done.nbytes / 1e6:.2f} | {score:.4f} |", flush=True)


def main() -> None:
    """Print the table of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    names = ("q0f32", "q0f16", "q0bf16", "q4f16_1", "q3f16_1")
    parser.add_argument("--quantizations", nargs="+", choices=MLC_FORMATS, default=names)
    parser.add_argument("--dialogues", type=int, default=300)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        anyio.run(run, Path(directory), arguments.quantizations, arguments.dialogues)


if __name__ == "__main__":
    main()
