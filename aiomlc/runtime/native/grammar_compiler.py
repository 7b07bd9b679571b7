"""Compilation of grammars by llguidance for the vocabulary of a model."""

from __future__ import annotations

__all__ = ("NativeGrammarCompiler",)

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, final

from aiomlc.runtime.grammar.trial import llguidance_library
from aiomlc.runtime.native.library import ffi_shape, native_function

if TYPE_CHECKING:
    from aiomlc.runtime.grammar.grammar import Grammar
    from aiomlc.runtime.tokenization.tokenizer import Tokenizer

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
        self._handle = native_function("aiomlc.grammar_compiler_create")(
            str(llguidance_library()),
            tokenizer.grammar_bytes(vocab_size),
            ffi_shape(stop_token_ids),
            _forced_text(tokenizer),
        )

    def compile(self, grammar: Grammar) -> object:
        """Compile a grammar for `SequenceOptions.grammar`. Blocks.

        Raises:
            GrammarError: If the grammar is invalid, or uses an unsupported feature.
        """
        return native_function("aiomlc.grammar_compile")(self._handle, grammar.kind, grammar.source)


def _forced_text(tokenizer: Tokenizer) -> Callable[[bytes], object] | None:
    """Return the function that tokenizes forced text; None if nothing can be forced."""
    if not tokenizer.encode_within(_SAMPLE):
        return None

    return lambda text: ffi_shape(tokenizer.encode_within(text.decode()))
