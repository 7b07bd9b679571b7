"""The byte-level BPE tokenizer: single digits, ChatML markers, 4,096 entries.

A word has the same tokens after a space, after a quote and at the start of a line, so that the
model can copy it: the space before it is a token of its own. Only words that no answer ever copies
take their space along.
"""

from __future__ import annotations

__all__ = (
    "END",
    "PAD",
    "encode_dialogue",
    "load_tokenizer",
    "pre_tokenizer",
    "token_id",
    "train_tokenizer",
)

import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split
from tokenizers.trainers import BpeTrainer

from training.dialogues.compose import conversation
from training.dialogues.lists import words_of
from training.dialogues.records import Dialogue
from training.dialogues.template import Segment, render

PAD = "<|endoftext|>"
END = "<|im_end|>"
_CONTROL_TOKENS = (PAD, "<|im_start|>", END)
_MARKERS = (
    *("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"),
    *("<tools>", "</tools>", "<think>", "</think>"),
)
_VOCAB_SIZE = 4096
_NUM_DIALOGUES = 30_000
# A rare token is seldom trained, so that it is copied wrong: rare words are spelled in pieces.
_MIN_FREQUENCY = 200
_MIN_PIECE_FREQUENCY = 33  # Of a token as a part of a word; a frequent word may contain a rare one.
# Frequent words that no answer copies as a value.
_FUNCTION_WORDS = words_of(
    "is the and a than of in smaller number or to these from numbers was with after are days as "
    "its larger greater bigger before not smallest that words me largest month comes less you "
    "called on can answer remember have it many will opposite between descending do functions "
    "arguments biggest alphabetically which for months has about assistant this there an by "
    "please up what at capitals tell went had way again said then did does ago your down "
    "they how every more best questions letters be come who my but came so plus minus times "
    "want old years lived looked still very would could into off out their them we he she her "
    "his were been one through until when where over under no all model make "
    "mistakes know little stories help capital sums ascending alphabetical"
)
# Alternatives in order: a digit; a word that takes its space along; any other word; punctuation
# with the space before it; white space.
_PIECES = (
    rf"\p{{N}}| (?:{'|'.join(_FUNCTION_WORDS)})(?!\p{{L}})|\p{{L}}+"
    r"| ?[^\s\p{L}\p{N}]+|\s+"
)


def _corpus(seed: int) -> Iterator[str]:
    rng = random.Random(seed)
    for _ in range(_NUM_DIALOGUES):
        dialogue = conversation(rng)
        text = "".join(segment.text for segment in render(dialogue.messages, dialogue.tools))
        for token in (*_CONTROL_TOKENS, *_MARKERS):
            text = text.replace(token, "\n")
        yield text


def pre_tokenizer() -> Sequence:
    """Return the pre-tokenizer, which splits text into the pieces that no token crosses."""
    return Sequence(
        [
            Split(Regex(_PIECES), "isolated"),
            ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def _drop_rare_pieces(tokenizer: Tokenizer, seed: int) -> Tokenizer:
    """Keep the merges that lead to frequent parts of words; whole words are looked up instead."""
    counts: Counter[str] = Counter()
    for text in _corpus(seed):
        encoding = tokenizer.encode(text, add_special_tokens=False)
        lengths = Counter(encoding.word_ids)
        words = zip(encoding.tokens, encoding.word_ids, strict=True)
        counts.update(token for token, word in words if lengths[word] > 1)

    state = json.loads(tokenizer.to_str())
    model = state["model"]
    parts = {"".join(merge): merge for merge in model["merges"]}
    needed: set[str] = set()
    waiting = [token for token in parts if counts[token] >= _MIN_PIECE_FREQUENCY]
    while waiting:
        token = waiting.pop()
        if token in parts and token not in needed:
            needed.add(token)
            waiting += parts[token]
    model["merges"] = [merge for merge in model["merges"] if "".join(merge) in needed]
    model["ignore_merges"] = True
    return Tokenizer.from_str(json.dumps(state))


def train_tokenizer(path: Path, seed: int) -> None:
    """Train the tokenizer on generated dialogues and write `tokenizer.json`."""
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = pre_tokenizer()
    tokenizer.decoder = ByteLevelDecoder()
    trainer = BpeTrainer(
        vocab_size=_VOCAB_SIZE - len(_MARKERS),
        min_frequency=_MIN_FREQUENCY,
        special_tokens=list(_CONTROL_TOKENS),
        initial_alphabet=ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_corpus(seed), trainer)
    tokenizer = _drop_rare_pieces(tokenizer, seed)
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
    """Return the token ids of a dialogue and, for each, whether the model must generate it."""
    token_ids: list[int] = []
    answers: list[bool] = []
    for segment in render(dialogue.messages, dialogue.tools):
        encoded = tokenizer.encode(segment.text, add_special_tokens=False)
        token_ids += encoded.ids
        learned = _learned_spans(segment)
        answers += [
            any(low <= start < high for low, high in learned) for start, _ in encoded.offsets
        ]
    return token_ids, answers


def _learned_spans(segment: Segment) -> list[tuple[int, int]]:
    """Return the parts of the text that the model must generate."""
    if not segment.is_answer:
        return []
    if not segment.values:
        return [(0, len(segment.text))]

    spans = []
    end = 0
    for value in segment.values:
        start = segment.text.index(value, segment.text.index('":', end))
        end = start + len(value)
        spans.append((start, end))
    return spans
