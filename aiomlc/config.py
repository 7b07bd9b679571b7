"""How an engine is set up and what a sequence asks for: frozen records, upstream's field names."""

from __future__ import annotations

__all__ = (
    "ECHO",
    "EngineConfig",
    "KVCacheType",
    "Mode",
    "PrefillMode",
    "PrefixCacheMode",
    "SpeculativeMode",
)

import json
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, Self, get_args

from aiomlc.errors import BadRequestError

Mode = Literal["local", "interactive", "server"]
PrefillMode = Literal["hybrid", "chunked"]
PrefixCacheMode = Literal["radix", "disable"]
SpeculativeMode = Literal["disable", "prompt_lookup", "small_draft", "eagle", "medusa"]
KVCacheType = Literal["auto", "float16", "float32", "int8"]
PAGE_SIZE = 16
ECHO = "mock://echo"  #: The model without files, also under upstream's name for its library.


# The values that say "not used" in upstream's configuration; any other is refused by name.
_NEUTRAL: dict[str, tuple[object, ...]] = {
    "model_lib": (None, ECHO),
    "tensor_parallel_shards": (None, 1),
    "pipeline_parallel_stages": (None, 1),
    "opt": (None,),
    "max_history_size": (None, 0),
    "kv_state_kind": (None, "kv_cache"),
    "spec_tree_width": (1,),
}
_POSITIVE = (
    "max_num_sequence",
    "max_total_sequence_length",
    "max_single_sequence_length",
    "prefill_chunk_size",
    "num_threads",
    "step_token_budget",
    "max_unread_tokens",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """Everything about an engine that is fixed while it is open.

    The fields are upstream's. Those from `model_lib` on exist so that a configuration
    of upstream's can be read; a value that asks for something this engine does not do yet is
    refused, never ignored.

    In `prefill_mode` `hybrid` a step decodes every running sequence and computes pieces of prompts
    with what is left of its tokens. With `chunked`, a step that computes prompts does nothing else:
    prompts are done sooner, and running answers stand still meanwhile. Answers are the same.

    With the `radix` prefix cache, what is computed of a sequence stays in the KV cache when it
    ends, and a prompt that begins with the same tokens continues from there. Answers are the
    same with it and without. A kept sequence gives way as soon as its room is needed.

    With a `speculative_mode`, tokens are guessed and several are verified in one step. Answers are
    the same with it and without, sampled ones too. `prompt_lookup` guesses that a sequence goes on
    as it did where its last tokens occurred before: good for answers that copy from their prompt.
    `small_draft` guesses with the smaller model of the same vocabulary in `additional_models`; the
    bundled model has one beside it that is taken if none is named.

    Raises:
        BadRequestError: a field is out of range or not supported; `param` names it.
    """

    model: str | None = None  #: Filled in by the engine.
    mode: Mode | None = None  #: Filled in by the engine.
    quantization: str | None = None  #: For a Hugging Face directory; None is the loader's choice.
    kv_cache_page_size: int = PAGE_SIZE
    #: What keys and values are kept as; "auto" is float16, with `q0f32` float32.
    kv_cache_dtype: KVCacheType = "auto"
    max_num_sequence: int | None = None  #: Concurrent sequences; the others wait.
    max_total_sequence_length: int | None = None  #: Tokens the KV cache holds.
    max_single_sequence_length: int | None = None  #: Prompt and completion of one sequence.
    prefill_chunk_size: int | None = None  #: Tokens one forward pass can take.
    step_token_budget: int | None = None  #: Tokens one step is given: decodes first.
    gpu_memory_utilization: float | None = None  #: Share of the free memory to plan with; 0.85.
    num_threads: int | None = None  #: None: the physical cores this process may use.
    max_queue_size: int | None = 4096  #: Sequences that may wait or are paused; None: no limit.
    #: Unread tokens of an answer at which it pauses until its reader has caught up.
    max_unread_tokens: int = 1024
    prefill_mode: PrefillMode = "hybrid"
    prefix_cache_mode: PrefixCacheMode = "radix"
    #: Ended sequences to keep: None is `max_num_sequence`, -1 is no limit, 0 turns the cache off.
    prefix_cache_max_num_recycling_seqs: int | None = None
    speculative_mode: SpeculativeMode = "disable"
    spec_draft_length: int = 0  #: Tokens of every guess; 0 adapts it to each sequence.
    additional_models: tuple[str | tuple[str, str], ...] = ()  #: One directory, to guess with.
    #: Last positions that attention sees, in place of the model's own; -1 is all.
    sliding_window_size: int | None = None
    #: First positions that it sees besides, in place of the model's own; -1 is none.
    attention_sink_size: int | None = None
    verbose: bool = False  #: Log the memory plan at level INFO instead of DEBUG.
    enable_tracing: bool = False  #: Record events, for `engine.trace()`.
    model_lib: str | None = None
    tensor_parallel_shards: int | None = None
    pipeline_parallel_stages: int | None = None
    opt: str | None = None
    max_history_size: int | None = None
    kv_state_kind: str | None = None
    spec_tree_width: int = 1

    def __post_init__(self) -> None:
        if self.kv_cache_page_size != PAGE_SIZE:
            raise BadRequestError(
                'KV cache only supports page size 16, while the "kv_cache_page_size" field in '
                f'argument "engine_config" is "{self.kv_cache_page_size}". '
                'Please set "engine_config.kv_cache_page_size" to 16.',
                param="kv_cache_page_size",
            )

        if self.mode is not None:
            _check_choice("mode", self.mode, get_args(Mode))

        self._check_types()
        _check_choice("prefill_mode", self.prefill_mode, get_args(PrefillMode))
        _check_choice("kv_cache_dtype", self.kv_cache_dtype, get_args(KVCacheType))
        _check_choice("prefix_cache_mode", self.prefix_cache_mode, get_args(PrefixCacheMode))
        for name in _POSITIVE:
            _check_integer(name, getattr(self, name), at_least=1, rule="a positive integer")

        _check_integer("max_queue_size", self.max_queue_size, at_least=0, rule="an integer from 0")
        _check_integer(
            "prefix_cache_max_num_recycling_seqs",
            self.prefix_cache_max_num_recycling_seqs,
            at_least=-1,
            rule="an integer from -1",
        )

        for name in ("sliding_window_size", "attention_sink_size"):
            _check_integer(name, getattr(self, name), at_least=-1, rule="an integer from -1")

        _check_share("gpu_memory_utilization", self.gpu_memory_utilization)
        self._check_speculation()
        for name, neutral in _NEUTRAL.items():
            value = getattr(self, name)
            if value not in neutral:
                raise BadRequestError(
                    f"engine_config.{name} = {value!r} is not supported yet", param=name
                )

    def _check_types(self) -> None:
        for name in ("model", "quantization"):
            _check_type(name, getattr(self, name), (str, type(None)), "a text")

        for name in ("verbose", "enable_tracing"):
            _check_type(name, getattr(self, name), bool, "True or False")

    def _check_speculation(self) -> None:
        mode = self.speculative_mode
        _check_choice("speculative_mode", mode, get_args(SpeculativeMode))
        if mode in ("eagle", "medusa"):
            raise BadRequestError(
                f"engine_config.speculative_mode = {mode!r} is not supported yet",
                param="speculative_mode",
            )

        name = "spec_draft_length"
        _check_integer(name, self.spec_draft_length, at_least=0, rule="an integer from 0")
        if mode == "disable" and self.spec_draft_length > 0:
            raise BadRequestError(
                f"engine_config.{name} is {self.spec_draft_length}, but no speculative_mode is set",
                param=name,
            )

        self._check_additional_models()

    def _check_additional_models(self) -> None:
        name, models = "additional_models", self.additional_models
        if not isinstance(models, (list, tuple)):  # A text is a sequence of texts, too.
            raise BadRequestError(
                f"engine_config.{name} = {models!r} is not a list of models", param=name
            )

        if self.speculative_mode != "small_draft" and models:
            raise BadRequestError(
                f"engine_config.{name} = {models!r} is not supported without speculative_mode "
                '"small_draft"',
                param=name,
            )

        if len(models) > 1:
            raise BadRequestError(
                f"engine_config.{name} has {len(models)} models, small_draft takes one", param=name
            )

        if not all(isinstance(model, str) for model in models):
            raise BadRequestError(
                f"engine_config.{name} names a compiled library, which is not supported yet",
                param=name,
            )

    def asjson(self) -> str:
        """The configuration as a JSON object, as `from_json` reads it."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read a JSON object of this configuration's fields.

        Raises:
            BadRequestError: no JSON object, an unknown field, or a value that is refused.
        """
        try:
            values = json.loads(text)
        except (ValueError, TypeError, RecursionError) as error:
            raise BadRequestError(f"engine_config is not JSON: {error}") from error

        if not isinstance(values, dict):
            raise BadRequestError("engine_config is not a JSON object")

        return cls(**_known_fields(cls, values))


def _check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise BadRequestError(f"{name} is {value!r}, not one of {', '.join(choices)}", param=name)


def _check_type(name: str, value: object, types: type | tuple[type, ...], rule: str) -> None:
    if not isinstance(value, types):
        raise BadRequestError(f"engine_config.{name} is {value!r}, not {rule}", param=name)


def _check_share(name: str, value: object) -> None:
    if value is None:
        return

    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise BadRequestError(
            f"engine_config.{name} is {value!r}, not above 0 and up to 1", param=name
        )


def _check_integer(name: str, value: object, *, at_least: int, rule: str) -> None:
    if value is None:
        return

    if isinstance(value, bool) or not isinstance(value, int) or value < at_least:
        raise BadRequestError(f"engine_config.{name} is {value!r}, not {rule}", param=name)


def _known_fields(cls: type[EngineConfig], values: dict[str, Any]) -> dict[str, Any]:
    known = {field.name for field in fields(cls)}
    for name in values:
        if name not in known:
            raise BadRequestError(f"engine_config has no field {name!r}", param=name)

    if isinstance(models := values.get("additional_models"), list):
        values = values | {"additional_models": tuple(models)}
    return values
