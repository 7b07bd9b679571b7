"""What loading a model yields: everything the layers above need to serve it."""

from __future__ import annotations

__all__ = ("LoadProgress", "LoadedEncoder", "LoadedModel", "SamplingDefaults")

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from aiomlc.runtime.core_protocol import Core
from aiomlc.runtime.grammar import GrammarCache
from aiomlc.runtime.prompt_template import PromptTemplate
from aiomlc.runtime.reasoning_format import ReasoningFormat
from aiomlc.runtime.tokenizer import Tokenizer
from aiomlc.runtime.tool_format import ToolFormat

if TYPE_CHECKING:
    from aiomlc.runtime.embedder import Embedder
    from aiomlc.runtime.memory_plan import MemoryPlan


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """One step of opening a model, for whoever shows it."""

    stage: Literal["download", "compile", "convert", "load"]
    fraction: float | None  #: Of this stage, 0 to 1; None when it cannot be known.
    message: str


@dataclass(frozen=True, slots=True)
class SamplingDefaults:
    """The model's own choice where a request makes none."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0  #: 0 is off.
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model that is ready to serve. Whoever takes it owns the core."""

    core: Core
    tokenizer: Tokenizer
    chat_template: PromptTemplate | None
    model_name: str
    context_window: int  #: Tokens of one sequence, prompt and completion.
    vocab_size: int
    default_options: SamplingDefaults = SamplingDefaults()
    stop_token_ids: tuple[int, ...] = ()
    chat_stop_token_ids: tuple[int, ...] = ()  #: Those of the chat template, besides.
    tool_format: ToolFormat | None = None
    reasoning_format: ReasoningFormat | None = None  #: None: it does not think aloud.
    grammars: GrammarCache | None = None  #: None: its answers cannot be constrained.
    memory_plan: MemoryPlan | None = None  #: None: it takes none worth a plan.


@dataclass(frozen=True, slots=True)
class LoadedEncoder:
    """An encoder that is ready to serve. Whoever takes it owns the core."""

    core: Core
    embedder: Embedder
