"""Compilation of grammars by llguidance for the vocabulary of a model."""

from __future__ import annotations

__all__ = ("NativeGrammarCompiler",)

import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING, final

from aiomlc.runtime.concurrency.process_lifecycle import NativeCalls
from aiomlc.runtime.grammar.trial import llguidance_library
from aiomlc.runtime.native.library import ffi_shape, native_function
from aiomlc.runtime.tokenization.longest_match import LongestMatch

if TYPE_CHECKING:
    from aiomlc.runtime.grammar.grammar import Grammar
    from aiomlc.runtime.tokenization.tokenizer import Tokenizer

_calls = NativeCalls()
_SAMPLE = '{"Name": "'  # Of forced text.


@final
class NativeGrammarCompiler:
    """Compiler of grammars for the vocabulary of one model. Thread-safe."""

    def __init__(
        self, tokenizer: Tokenizer, vocab_size: int, stop_token_ids: Iterable[int]
    ) -> None:
        """Build the token trie. Blocks for up to a second.

        Raises:
            GrammarError: If llguidance is missing, has an incompatible version, or rejects the
                vocabulary.
        """
        # Nothing is forced if the model has never seen such text in tokens of its own.
        can_force = bool(tokenizer.encode_within(_SAMPLE))
        self._handle = native_function("aiomlc.grammar_compiler_create")(
            str(llguidance_library()),
            tokenizer.grammar_bytes(vocab_size),
            ffi_shape(stop_token_ids),
            _ForcedText(tokenizer, vocab_size) if can_force else None,
        )

    def compile(self, grammar: Grammar) -> object:
        """Compile a grammar for `SequenceOptions.grammar`. Blocks.

        Raises:
            GrammarError: If the grammar is invalid, or uses an unsupported feature.
            EngineClosedError: If the interpreter exits.
        """
        with _calls:
            compile_grammar = native_function("aiomlc.grammar_compile")
            return compile_grammar(self._handle, grammar.kind, grammar.source)


@final
class _ForcedText:
    """Tokenizes text that a grammar forces. Called in native threads."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int) -> None:
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size

    def __call__(self, text: bytes) -> object:
        """Return the tokens of a text in UTF-8, whose bytes are that text."""
        ids = self._tokenizer.encode_within(text.decode()) or self._longest_match.encode(text)
        return ffi_shape(ids)

    @functools.cached_property
    def _longest_match(self) -> LongestMatch:
        return LongestMatch(self._tokenizer.grammar_bytes(self._vocab_size))
