"""Going on with a new tokenizer: the embedding of its tokens from those of the old one."""

from __future__ import annotations

__all__ = ("transfer_embedding",)

import torch
from tokenizers import Tokenizer
from torch import Tensor


def transfer_embedding(embedding: Tensor, old: Tokenizer, new: Tokenizer) -> Tensor:
    """Return an embedding for `new`: rows of the same text, otherwise means of the text's pieces.

    Args:
        embedding: The trained embedding [vocab, hidden] for the tokens of `old`.
        old: The tokenizer of the trained model.
        new: The tokenizer to go on with.
    """
    old_ids = old.get_vocab(with_added_tokens=True)
    new_ids = new.get_vocab(with_added_tokens=True)
    rows = []
    for token, index in sorted(new_ids.items(), key=lambda item: item[1]):
        # A word that lost its space is the same word: "Ġ" is the space in byte-level tokens.
        known = old_ids.get(token, old_ids.get("Ġ" + token))
        pieces = [known] if known is not None else _pieces(old, new.decode([index]))
        rows.append(embedding[pieces].mean(0) if pieces else embedding.mean(0))
    return torch.stack(rows)


def _pieces(tokenizer: Tokenizer, text: str) -> list[int]:
    token_ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
    return token_ids
