"""The files of a decoder that concern text: tokenizer, chat template, stop tokens, defaults."""

from __future__ import annotations

__all__ = ("TextFiles", "read_tokenizer")

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Self

from aiomlc.runtime.loading.facts import ModelFacts
from aiomlc.runtime.loading.model_directory import ModelDirectory
from aiomlc.runtime.output_formats.response_template import OutputFormats, find_output_formats
from aiomlc.runtime.templates.call_format import find_call_format
from aiomlc.runtime.templates.prompt_template import (
    PromptTemplate,
    load_prompt_template,
    template_stop_ids,
)
from aiomlc.runtime.tokenization.tokenizer import Tokenizer
from aiomlc.sampling_params import SamplingParams
from aiomlc.validation.model_files import load_errors


@dataclass(frozen=True, slots=True)
class TextFiles:
    """The tokenizer, chat template, output formats, stop tokens and defaults of a decoder."""

    tokenizer: Tokenizer
    token_bytes: list[bytes]
    template: PromptTemplate | None
    formats: OutputFormats
    stop_token_ids: tuple[int, ...]
    chat_stop_token_ids: tuple[int, ...]  #: Additional ids, from the chat template.
    suppress_tokens: tuple[int, ...]  #: Token ids that are never generated.
    adds_special_tokens: bool  #: As in `LoadedModel`.
    default_options: SamplingParams

    @classmethod
    def read(cls, facts: ModelFacts) -> Self:
        """Read the files of a model.

        Raises:
            ModelLoadError: If a file is missing or invalid.
        """
        directory, vocab_size = facts.directory, facts.description.config.vocab_size
        with load_errors(directory.path):
            tokenizer = read_tokenizer(directory)
            stop_ids = _stop_ids(directory, tokenizer, vocab_size)
            template = load_prompt_template(directory.files, vocab_size)
            chat_stop_ids = template_stop_ids(template, tokenizer)
            formats = _output_formats(
                template, directory, {*stop_ids, *chat_stop_ids}, tokenizer.token_id
            )
            if (channels := formats.channel_format) is not None:
                ends = map(tokenizer.special_token_id, channels.stops)
                others = [each for each in ends if each is not None]
                chat_stop_ids = tuple(sorted({*chat_stop_ids, *others}))
            markers = [marker for form in formats if form is not None for marker in form.markers]
            return cls(
                tokenizer=tokenizer,
                token_bytes=_token_bytes(directory, tokenizer, vocab_size, markers),
                template=template,
                formats=formats,
                stop_token_ids=stop_ids,
                chat_stop_token_ids=chat_stop_ids,
                suppress_tokens=directory.suppress_tokens(vocab_size),
                adds_special_tokens=not directory.is_mlc,
                default_options=directory.sampling_defaults(),
            )

    @property
    def all_stop_ids(self) -> list[int]:
        """The tokens that end a completion or a chat completion."""
        return sorted({*self.stop_token_ids, *self.chat_stop_token_ids})


def read_tokenizer(directory: ModelDirectory) -> Tokenizer:
    """Read the tokenizer of a model directory.

    Raises:
        ModelLoadError: If the file is missing or invalid.
    """
    return Tokenizer(directory.path)


def _output_formats(
    template: PromptTemplate | None,
    directory: ModelDirectory,
    stop_ids: Collection[int],
    token_id: Callable[[str], int | None],
) -> OutputFormats:
    def is_end(text: str) -> bool:
        return token_id(text) in stop_ids

    declared = directory.response_template()
    if template is None:
        return find_output_formats(None, declared, is_end)

    calls = template.for_chat(has_tools=True)
    source = template.source if calls is template else f"{template.source}\n{calls.source}"
    return find_output_formats(
        source, declared, is_end, find_format=lambda _: find_call_format(calls)
    )


def _stop_ids(directory: ModelDirectory, tokenizer: Tokenizer, vocab_size: int) -> tuple[int, ...]:
    stop_ids = set(directory.eos_token_ids(vocab_size))
    eos = directory.eos_token()
    if eos is not None and (eos_id := tokenizer.token_id(eos)) is not None:
        stop_ids.add(eos_id)
    return tuple(sorted(stop_ids))


def _token_bytes(
    directory: ModelDirectory, tokenizer: Tokenizer, vocab_size: int, markers: list[str]
) -> list[bytes]:
    with load_errors(directory.files.path("tokenizer.json")):
        return tokenizer.token_bytes(vocab_size, visible=markers)
