"""Suggestions of a known name where an unknown one was given."""

from __future__ import annotations

__all__ = ("ENGINE_SYNONYMS", "REQUEST_SYNONYMS", "suggest", "suggest_repository")

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
# Repositories of the hub by ollama's names of models; the first size is that of the name alone.
_OLLAMA: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "deepseek-r1": ("deepseek-ai/DeepSeek-R1-Distill-Qwen-{}", ("7B", "1.5B", "14B", "32B")),
    "gemma3": ("google/gemma-3-{}-it", ("4b", "1b", "12b", "27b")),
    "llama3.1": ("meta-llama/Llama-3.1-{}-Instruct", ("8B", "70B")),
    "llama3.2": ("meta-llama/Llama-3.2-{}-Instruct", ("3B", "1B")),
    "mistral": ("mistralai/Mistral-{}-Instruct-v0.3", ("7B",)),
    "qwen2.5": ("Qwen/Qwen2.5-{}-Instruct", ("7B", "0.5B", "1.5B", "3B", "14B", "32B", "72B")),
    "qwen3": ("Qwen/Qwen3-{}", ("8B", "0.6B", "1.7B", "4B", "14B", "32B")),
    "smollm2": ("HuggingFaceTB/SmolLM2-{}-Instruct", ("1.7B", "135M", "360M")),
}
_HUB_OF_OLLAMA = ("hf.co/", "huggingface.co/")
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
        synonyms: Other names, and the known ones; those that are not known are ignored.
        cutoff: How similar a known name must be, from 0 to 1.
    """
    if len(name) > _MAX_COMPARED:  # The time of a comparison grows with the square of the length.
        return ""

    synonym = synonyms.get(name)
    similar = [synonym] if synonym in known else get_close_matches(name, known, 1, cutoff)
    return f"; did you mean {similar[0]}?" if similar else ""


def suggest_repository(name: str) -> str:
    """Return what to pass instead of a name of ollama's; empty if the name is none."""
    for hub in _HUB_OF_OLLAMA:
        if name.startswith(hub):
            repository = name.removeprefix(hub).partition(":")[0]
            return f"did you mean HF://{repository}, or hf://{repository}:file.gguf?"

    family, _, tag = name.partition(":")
    form, sizes = _OLLAMA.get(family, ("", ()))
    wanted = tag.lower().split("-")[0]
    size = next((size for size in sizes if wanted in ("", "latest", size.lower())), None)
    if size is None and (not tag or "/" in name or len(family) < 2):
        return ""

    hint = "look for it on huggingface.co" if size is None else f"use HF://{form.format(size)}"
    return f"names of ollama do not work here: {hint}"
