"""The special tokens of a GGUF file: those of its chat template, and those that end an answer."""

from __future__ import annotations

__all__ = ("SpecialTokens", "special_tokens")

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from aiomlc.gguf.model import GGUFModel
from aiomlc.gguf.vocabulary import TokenType, Vocabulary, token_id

_TEXTS = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
_END_TOKENS = ("eos", "eot", "eom")
_TOOL_RESULT = "<|tool_response>"  #: Of Gemma 4, which is not a control token in its files.
# Control tokens with these texts end an answer, whatever else a file says; as in llama.cpp.
_END_TEXTS = frozenset(
    {
        *("<|im_end|>", "<|endoftext|>", "<|end|>", "<|return|>", "<|eot_id|>", "<|eom_id|>"),
        *("<end_of_turn>", "<|end_of_text|>", "<EOT>", "_<EOT>", "<|END_OF_TURN_TOKEN|>"),
        *("<turn|>", _TOOL_RESULT),  # Gemma 4, which ends an answer before a result.
        *("<end_of_utterance>", "<｜end▁of▁sentence｜>"),  # noqa: RUF001 - DeepSeek
    }
)
# The tokens that end an answer of gpt-oss; `<|end|>` only ends one of its messages.
_HARMONY_ENDS = frozenset({"<|return|>", "<|call|>"})
_HARMONY_MESSAGE_END = "<|end|>"


@dataclass(frozen=True, slots=True)
class SpecialTokens:
    """The special tokens, under the names of `tokenizer_config.json`."""

    texts: Mapping[str, str]  #: By name, such as `bos_token`.
    end_ids: list[int]  #: Ids of the tokens that end an answer, ascending.


def special_tokens(model: GGUFModel, vocabulary: Vocabulary) -> SpecialTokens:
    """Return the special tokens of a model.

    Raises:
        ModelLoadError: If the id of one is invalid.
    """
    size = len(vocabulary.tokens)
    ids = {field: token_id(model, name, size) for field, name in _TEXTS.items()}
    texts = {field: vocabulary.tokens[index] for field, index in ids.items() if index is not None}
    return SpecialTokens(texts, sorted(set(_end_ids(model, vocabulary))))


def _end_ids(model: GGUFModel, vocabulary: Vocabulary) -> Iterator[int]:
    controls = {
        vocabulary.tokens[index]: index
        for index, kind in enumerate(vocabulary.types)
        if kind == TokenType.CONTROL or vocabulary.tokens[index] == _TOOL_RESULT
    }
    is_harmony = controls.keys() >= _HARMONY_ENDS
    not_ends = {_HARMONY_MESSAGE_END} if is_harmony else set[str]()
    ends = (_END_TEXTS | _HARMONY_ENDS if is_harmony else _END_TEXTS) - not_ends
    for name in _END_TOKENS:
        index = token_id(model, name, len(vocabulary.tokens))
        if index is not None and vocabulary.tokens[index] not in not_ends:
            yield index
    yield from (index for text, index in controls.items() if text in ends)
