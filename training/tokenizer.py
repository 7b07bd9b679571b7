"""The byte-level BPE tokenizer: single digits, ChatML markers, 4,096 entries."""

from __future__ import annotations

__all__ = ("END", "PAD", "encode_dialogue", "load_tokenizer", "token_id", "train_tokenizer")

import random
from collections.abc import Iterator
from pathlib import Path

from tokenizers import AddedToken, Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence
from tokenizers.trainers import BpeTrainer

from training.dialogues.compose import conversation
from training.dialogues.records import Dialogue
from training.dialogues.template import render

PAD = "<|endoftext|>"
END = "<|im_end|>"
_CONTROL_TOKENS = (PAD, "<|im_start|>", END)
_MARKERS = (
    *("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"),
    *("<tools>", "</tools>", "<think>", "</think>"),
)
_VOCAB_SIZE = 4096
_NUM_DIALOGUES = 60_000


def _corpus(seed: int) -> Iterator[str]:
    rng = random.Random(seed)
    for _ in range(_NUM_DIALOGUES):
        dialogue = conversation(rng)
        text = "".join(segment.text for segment in render(dialogue.messages, dialogue.tools))
        for token in (*_CONTROL_TOKENS, *_MARKERS):
            text = text.replace(token, "\n")
        yield text


def train_tokenizer(path: Path, seed: int) -> None:
    """Train the tokenizer on generated dialogues and write `tokenizer.json`."""
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = Sequence(
        [Digits(individual_digits=True), ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = ByteLevelDecoder()
    trainer = BpeTrainer(
        vocab_size=_VOCAB_SIZE - len(_MARKERS),
        special_tokens=list(_CONTROL_TOKENS),
        initial_alphabet=ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_corpus(seed), trainer)
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in _MARKERS])
    spare = _VOCAB_SIZE - tokenizer.get_vocab_size()
    tokenizer.add_tokens(
        [AddedToken(f"<|spare_{index}|>", normalized=False) for index in range(spare)]
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(path))


def load_tokenizer(path: Path) -> Tokenizer:
    """Load a tokenizer that `train_tokenizer` wrote."""
    return Tokenizer.from_file(str(path))


def token_id(tokenizer: Tokenizer, token: str) -> int:
    """Return the id of a control token or marker."""
    token_id = tokenizer.token_to_id(token)
    assert token_id is not None, token
    return token_id


def encode_dialogue(tokenizer: Tokenizer, dialogue: Dialogue) -> tuple[list[int], list[bool]]:
    """Return the token ids of a dialogue and, for each, whether it is part of an answer."""
    token_ids: list[int] = []
    answers: list[bool] = []
    for segment in render(dialogue.messages, dialogue.tools):
        encoded = tokenizer.encode(segment.text, add_special_tokens=False).ids
        token_ids += encoded
        answers += [segment.is_answer] * len(encoded)
    return token_ids, answers
