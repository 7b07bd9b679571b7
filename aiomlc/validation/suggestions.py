"""Suggestions of a known name where an unknown one was given."""

from __future__ import annotations

__all__ = ("ENGINE_SYNONYMS", "REQUEST_SYNONYMS", "suggest")

from collections.abc import Collection, Mapping
from difflib import get_close_matches

#: Request parameters by their names in other programs.
REQUEST_SYNONYMS: Mapping[str, str] = {
    "functions": "tools",
    "guided_json": "response_format",
    "max_gen_len": "max_tokens",
    "max_length": "max_tokens",
    "max_new_tokens": "max_tokens",
    "n_predict": "max_tokens",
    "num_predict": "max_tokens",
    "repeat_penalty": "repetition_penalty",
    "stop_sequences": "stop",
    "temp": "temperature",
}
#: Fields of `EngineConfig` by their names in other programs.
ENGINE_SYNONYMS: Mapping[str, str] = {
    "ctx_size": "max_single_sequence_length",
    "max_batch_size": "max_num_sequence",
    "max_model_len": "max_single_sequence_length",
    "max_num_batched_tokens": "step_token_budget",
    "max_num_seqs": "max_num_sequence",
    "n_ctx": "max_single_sequence_length",
    "n_threads": "num_threads",
    "num_ctx": "max_single_sequence_length",
    "num_thread": "num_threads",
}
_MAX_COMPARED = 200  # Characters.


def suggest(
    name: str,
    known: Collection[str],
    *,
    synonyms: Mapping[str, str] = REQUEST_SYNONYMS,
    cutoff: float = 0.6,
) -> str:
    """Return a question for the end of a message; empty if no known name is similar.

    Args:
        name: The unknown name.
        known: The names that may have been meant.
        synonyms: Other names, and the known ones; those that are not known are ignored.
        cutoff: How similar a known name must be, from 0 to 1.
    """
    if len(name) > _MAX_COMPARED:  # The time of a comparison grows with the square of the length.
        return ""

    synonym = synonyms.get(name)
    similar = [synonym] if synonym in known else get_close_matches(name, known, 1, cutoff)
    return f"; did you mean {similar[0]}?" if similar else ""
