"""Writes a BERT model as ONNX: `python -m benchmarks.embedding_export MODEL.onnx [fused]`.

The model is that of the file's directory. `fused` gives ONNX Runtime's optimizer the file
`f32.onnx` beside it, and needs the package `onnxruntime`; otherwise torch and transformers export
the model.
"""

from __future__ import annotations

__all__ = ("main",)

import importlib
import json
import sys
from pathlib import Path


def main() -> None:
    """Write the file of the command line."""
    target = Path(sys.argv[1])
    (_fuse if sys.argv[2:] == ["fused"] else _export)(target)


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


if __name__ == "__main__":
    main()
