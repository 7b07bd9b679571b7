"""Compute the log-probabilities of the prompts of `tiny_pieces.py` with transformers in float32.

Run `python -m tests.model.make_piece_reference` after changing them; it rewrites
`tests/model/reference/pieces_*.npz`. Requires torch and transformers, which the tests do not.
"""

from __future__ import annotations

__all__ = ("STEPS",)

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.model.tiny_pieces import IMAGE_TOKEN, MODELS, PROMPTS, PieceModel, PiecePrompt, rows_of

STEPS = 8


def _live_model(name: str, piece_model: PieceModel) -> Any:  # noqa: ANN401 - untyped.
    import torch
    import transformers

    values = piece_model.config(name)
    config = transformers.AutoConfig.for_model(**values)
    model = transformers.AutoModelForImageTextToText.from_config(config, dtype=torch.float32).eval()
    decoder = model.model.language_model
    state = {
        key.removeprefix(piece_model.prefix): torch.from_numpy(_as_loaded(key, value))
        for key, value in piece_model.weights().items()
    }
    head = state.pop("lm_head.weight", None)
    missing, unexpected = decoder.load_state_dict(state, strict=False)
    assert not missing
    assert not unexpected, unexpected
    if head is None:
        model.tie_weights()
    else:
        model.lm_head.weight.data = head
    return model


def _as_loaded(name: str, value: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return a tensor of a directory as transformers has it in memory."""
    return (value.transpose(0, 2, 1) if ".experts." in name else value).copy()


def _inputs(model: Any, piece_model: PieceModel, prompt: PiecePrompt, ids: list[int]) -> Any:  # noqa: ANN401
    import torch

    tokens = torch.tensor([ids])
    is_image = tokens == IMAGE_TOKEN
    embedded = model.get_input_embeddings()(torch.where(is_image, 0, tokens))
    inputs: dict[str, Any] = {}
    if prompt.images:
        rows = np.concatenate([rows_of(piece_model, image) for _, image, _ in prompt.images])
        parts = [torch.from_numpy(part.copy()) for part in np.split(rows, piece_model.num_parts, 1)]
        embedded = embedded.masked_scatter(is_image.unsqueeze(-1), parts[0])
        if len(parts) > 1:
            inputs |= {"visual_pos_masks": is_image, "deepstack_visual_embeds": parts[1:]}
    inputs["inputs_embeds"] = embedded
    if piece_model.model_type:  # Its layers have embeddings of tokens, those of padding in images.
        per_layer = model.model.language_model.get_per_layer_inputs
        return inputs | {"per_layer_inputs": per_layer(torch.where(is_image, 0, tokens), embedded)}

    if not piece_model.has_grids:
        return inputs | {piece_model.types_field: is_image.long()}

    if prompt.images:
        # The merge of 2 x 2 patches belongs to the tower.
        grids = torch.tensor([[t, 2 * h, 2 * w] for _, _, (t, h, w) in prompt.images])
        model.model.rope_deltas = None
        inputs["position_ids"], _ = model.model.get_rope_index(
            tokens, mm_token_type_ids=is_image.int(), image_grid_thw=grids
        )
    return inputs


def _logprobs(
    model: Any,  # noqa: ANN401 - untyped.
    piece_model: PieceModel,
    prompt: PiecePrompt,
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    import torch

    ids = list(prompt.token_ids)
    rows = []
    is_marked = not piece_model.has_grids and piece_model.types_field
    decoder = model.model if is_marked else model.model.language_model
    with torch.inference_mode():
        for _ in range(STEPS):
            hidden = decoder(**_inputs(model, piece_model, prompt, ids), use_cache=False)[0]
            logits = model.lm_head(hidden[0, -1]).double()
            if cap := getattr(model.config.text_config, "final_logit_softcapping", None):
                logits = cap * torch.tanh(logits / cap)
            rows.append(torch.log_softmax(logits, -1).float().numpy())
            ids.append(int(rows[-1].argmax()))
            assert ids[-1] != IMAGE_TOKEN
    return np.array(ids[-STEPS:], np.int32), np.stack(rows)


def main() -> None:
    """Rewrite the reference files."""
    directory = Path(__file__).parent / "reference"
    for name, piece_model in MODELS.items():
        model = _live_model(name, piece_model)
        results = [_logprobs(model, piece_model, prompt) for prompt in PROMPTS]
        np.savez_compressed(
            directory / f"pieces_{name}.npz",
            tokens=np.stack([tokens for tokens, _ in results]),
            logprobs=np.stack([logprobs for _, logprobs in results]),
        )


if __name__ == "__main__":
    main()
