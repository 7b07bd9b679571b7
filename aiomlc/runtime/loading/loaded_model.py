"""The results of loading a model: all that the API needs to serve it."""

from __future__ import annotations

__all__ = ("LoadedEncoder", "LoadedModel")

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aiomlc.errors import BadRequestError
from aiomlc.runtime.engine.core_protocol import Core
from aiomlc.runtime.engine.prefix_transfer import PrefixTransfers
from aiomlc.runtime.grammar.cache import GrammarCache
from aiomlc.runtime.images.image_data import ImageData
from aiomlc.runtime.output_formats.harmony import ChannelFormat
from aiomlc.runtime.output_formats.reasoning_format import ReasoningFormat
from aiomlc.runtime.output_formats.tool_format import ToolFormat
from aiomlc.runtime.templates.prompt_template import PromptTemplate
from aiomlc.runtime.tokenization.tokenizer import Tokenizer
from aiomlc.runtime.towers.piece_model import PieceModel
from aiomlc.sampling_params import SamplingParams

if TYPE_CHECKING:
    from aiomlc.runtime.audio.recording import Recording
    from aiomlc.runtime.embedding.embedder import Classifier, Embedder
    from aiomlc.runtime.loading.memory_plan import MemoryPlan
    from aiomlc.runtime.speech.transcriber import Transcriber


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A decoder that is ready to serve; the caller owns the core."""

    core: Core
    tokenizer: Tokenizer
    chat_template: PromptTemplate | None
    model_name: str
    context_window: int  #: Maximum tokens of one sequence: prompt and completion.
    vocab_size: int
    #: Whether text without a chat template gets the tokenizer's special tokens by default.
    adds_special_tokens: bool = True
    splits_special_tokens: bool = False  #: The default of `split_special_tokens`.
    default_options: SamplingParams = field(default_factory=SamplingParams)
    stop_token_ids: tuple[int, ...] = ()
    chat_stop_token_ids: tuple[int, ...] = ()  #: Additional ids, from the chat template.
    suppress_tokens: tuple[int, ...] = ()  #: Token ids that no request generates.
    tool_format: ToolFormat | None = None
    reasoning_format: ReasoningFormat | None = None  #: None if no markers enclose its reasoning.
    #: Of a model that writes messages in channels, in place of the two formats above.
    channel_format: ChannelFormat | None = None
    grammars: GrammarCache | None = None  #: None if output cannot be constrained.
    vision: PieceModel[ImageData] | None = None  #: None if it does not read images.
    audio: PieceModel[Recording] | None = None  #: None if it does not read audio.
    audio_rows_per_second: float = 0.0  #: Positions of a prompt that a second of audio takes.
    memory_plan: MemoryPlan | None = None  #: None for the mock model.
    prefix_transfers: PrefixTransfers | None = None  #: None for the mock model.
    #: Whether this is `mock://echo`, which repeats its prompt whatever the request asks for. The
    #: parameters of a chat are reported in `usage.extra`, as MLC LLM does.
    is_echo: bool = False

    def as_text(self, token_ids: list[int], add_special_tokens: bool | None = None) -> list[int]:
        """Return the tokens of text, with the tokenizer's special tokens if they are due.

        Args:
            add_special_tokens: What the request says; None means `adds_special_tokens`.
        """
        adds = self.adds_special_tokens if add_special_tokens is None else add_special_tokens
        return self.tokenizer.add_special_tokens(token_ids) if adds else token_ids

    def require_vision(self, param: str) -> PieceModel[ImageData]:
        """Return the part that reads images.

        Args:
            param: The field of the request that has images.

        Raises:
            BadRequestError: If there is none.
        """
        if self.vision is None:
            raise BadRequestError(
                f"{param}: the model {self.model_name} does not read images; open one that does, "
                "or send text only",
                param=param,
            )

        return self.vision

    def require_audio(self, param: str) -> PieceModel[Recording]:
        """Return the part that reads audio.

        Args:
            param: The field of the request that has audio.

        Raises:
            BadRequestError: If there is none.
        """
        if self.audio is None:
            raise BadRequestError(
                f"{param}: the model {self.model_name} does not read audio; open one that does, "
                "or send text only",
                param=param,
            )

        return self.audio

    def splits(self, split_special_tokens: bool | None) -> bool:
        """Return whether special tokens in texts are plain text, if a request says this of it."""
        default = self.splits_special_tokens
        return default if split_special_tokens is None else split_special_tokens


@dataclass(frozen=True, slots=True)
class LoadedEncoder:
    """An encoder, or a speech model, that is ready to serve."""

    model: Embedder | Classifier | Transcriber
