"""Writes a BERT model for other programs: `python -m benchmarks.embedding_export FILE [KIND]`.

The model is that of the file's directory. Without a KIND, torch and transformers export it to ONNX.
The others read the file `f32.onnx` beside it:

- `fused`: what ONNX Runtime's optimizer makes of it; needs the package `onnxruntime`.
- `dynamic`: int8 weights, and activations quantized by ONNX Runtime while it runs.
- `static`: int8 weights and activations for OpenVINO, with the ranges of the measured passages, in
  `tokens.npy` above the directory; needs the packages `openvino` and `nncf`.
"""

from __future__ import annotations

__all__ = ("main",)

import importlib
import json
import sys
from pathlib import Path

import numpy as np

_CALIBRATED = 300  # Passages; as many as NNCF takes by default.


def main() -> None:
    """Write the file of the command line."""
    kinds = {"": _export, "fused": _fuse, "dynamic": _quantize, "static": _quantize_statically}
    kinds[sys.argv[2] if len(sys.argv) > 2 else ""](Path(sys.argv[1]))


def _export(target: Path) -> None:
    import torch
    import transformers

    model = transformers.BertModel.from_pretrained(
        target.parent, add_pooling_layer=False, attn_implementation="eager"
    ).eval()

    class LastStates(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, ids: object, mask: object, types: object) -> object:
            return self.model(ids, mask, types).last_hidden_state

    ids = torch.ones((2, 16), dtype=torch.int64)
    names = ["input_ids", "attention_mask", "token_type_ids"]
    torch.onnx.export(
        LastStates(),
        (ids, ids, ids * 0),
        target,
        dynamo=False,
        input_names=names,
        output_names=["states"],
        dynamic_axes={name: {0: "batch", 1: "tokens"} for name in (*names, "states")},
        opset_version=17,
    )


def _fuse(target: Path) -> None:
    optimizer = importlib.import_module("onnxruntime.transformers.optimizer")
    config = json.loads((target.parent / "config.json").read_text(encoding="utf-8"))
    model = optimizer.optimize_model(
        str(target.with_name("f32.onnx")),
        model_type="bert",
        num_heads=config["num_attention_heads"],
        hidden_size=config["hidden_size"],
    )
    model.save_model_to_file(str(target))


def _quantize(target: Path) -> None:
    quantization = importlib.import_module("onnxruntime.quantization")
    quantization.quantize_dynamic(
        target.with_name("f32.onnx"),
        target,
        weight_type=quantization.QuantType.QInt8,
        per_channel=True,
        extra_options={"MatMulConstBOnly": True},
    )


def _quantize_statically(target: Path) -> None:
    nncf, openvino = map(importlib.import_module, ("nncf", "openvino"))
    passages = np.load(target.parent.with_name("tokens.npy"))
    rows = passages[:: max(1, len(passages) // _CALIBRATED), np.newaxis]
    inputs = [
        {"input_ids": row, "attention_mask": row * 0 + 1, "token_type_ids": row * 0} for row in rows
    ]
    model = nncf.quantize(
        openvino.Core().read_model(target.with_name("f32.onnx")),
        nncf.Dataset(inputs),
        model_type=nncf.ModelType.TRANSFORMER,
        preset=nncf.QuantizationPreset.MIXED,
        subset_size=len(inputs),
    )
    openvino.save_model(model, target, compress_to_fp16=False)


if __name__ == "__main__":
    main()
