"""The ends of texts as text towers read them, whose last token stands for the text."""

from __future__ import annotations

__all__ = ("CutText", "PaddedText", "TextEnd", "read_text_end")

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, final

from aiomlc.gguf.directory import ConfigFiles
from aiomlc.models.config.encoder import TextHeadConfig
from aiomlc.models.config.fields import Fields
from aiomlc.runtime.embedding.token_heads import token_text


class TextEnd(Protocol):
    """The rule by which the tokens of a text become those that a tower reads."""

    def apply(self, ids: Sequence[int]) -> Sequence[int]:
        """Return the tokens that the tower reads for those of a text; at least one."""
        ...


@final
@dataclass(frozen=True, slots=True)
class CutText:
    """A text ends with its first end token (CLIP): no token sees those after it.

    A text without an end token ends with its last token.
    """

    end_token: int  #: -1 is the highest id of the text.

    def apply(self, ids: Sequence[int]) -> Sequence[int]:
        """Return the tokens up to the end token."""
        token = max(ids) if self.end_token < 0 else self.end_token
        return ids[: ids.index(token) + 1] if token in ids else ids


@final
@dataclass(frozen=True, slots=True)
class PaddedText:
    """A text is padded to one length, and its tokens see the padding (SigLIP)."""

    pad_token: int
    length: int
    is_left: bool = False  #: Whether the padding precedes the text.

    def apply(self, ids: Sequence[int]) -> Sequence[int]:
        """Return the tokens with padding."""
        padding = [self.pad_token] * (self.length - len(ids))
        return [*padding, *ids] if self.is_left else [*ids, *padding]


def read_text_end(
    files: ConfigFiles,
    head: TextHeadConfig,
    length: int,
    token_id: Callable[[str], int | None],
) -> TextEnd:
    """Return how the texts of a model end.

    Padding is that of `tokenizer_config.json`, as in transformers, or the `pad_token_id` of the
    model.

    Args:
        files: The files of the model.
        head: What its config says.
        length: The length to which texts are padded.
        token_id: Returns the id of a token; None if there is none.

    Raises:
        ModelLoadError: If a field is invalid.
    """
    if head.end_token is not None:
        return CutText(head.end_token)

    path = files.path("tokenizer_config.json")
    fields = Fields(files.object(path.name) or {}, path)
    kind = fields.string("tokenizer_class", "").removesuffix("Fast")
    default = "left" if kind == "Siglip2Tokenizer" else "right"
    side = fields.choice("padding_side", ("left", "right"), default)
    pad_token = head.pad_token
    if "pad_token" in fields:
        known = token_id(token_text(fields, "pad_token", ""))
        pad_token = pad_token if known is None else known
    return PaddedText(pad_token, length, side == "left")
