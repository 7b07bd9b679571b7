"""Convert a model to 8-bit weights in the compressed-tensors format, which vLLM loads.

    python benchmarks/suite/peers/w8a8.py MODEL DIRECTORY

Each row of a linear layer's weights has its own scale and is rounded to the nearest level.
Activations are quantized dynamically, with one scale per token. Needs torch.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

_LEVELS = {"num_bits": 8, "type": "int", "symmetric": True}
_QUANTIZATION = {
    "quant_method": "compressed-tensors",
    "format": "int-quantized",
    "quantization_status": "compressed",
    "ignore": ["lm_head"],
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {**_LEVELS, "strategy": "channel", "dynamic": False},
            "input_activations": {**_LEVELS, "strategy": "token", "dynamic": True},
        }
    },
}


def main() -> None:
    source, directory = map(Path, sys.argv[1:])
    directory.mkdir(parents=True, exist_ok=True)
    for path in source.glob("*.json"):
        shutil.copy(path, directory)
    config: dict[str, Any] = json.loads((source / "config.json").read_bytes())
    config["quantization_config"] = _QUANTIZATION
    (directory / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
    _write_tensors(source / "model.safetensors", directory / "model.safetensors")


def _write_tensors(source: Path, target: Path) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    tensors: dict[str, Any] = {}
    for name, value in load_file(source).items():
        if not name.endswith("_proj.weight"):
            tensors[name] = value
            continue

        weights = value.float()
        scale = weights.abs().amax(1, keepdim=True).clamp_min(1e-8) / 127
        tensors[name] = (weights / scale).round().to(torch.int8)
        tensors[f"{name}_scale"] = scale
    # Renamed once complete, so that an interrupted run leaves no truncated file of this name.
    temporary = target.with_suffix(".part")
    save_file(tensors, temporary, metadata={"format": "pt"})
    temporary.rename(target)


if __name__ == "__main__":
    main()
