"""The configuration of an engine: a frozen record with MLC LLM's field names."""

from __future__ import annotations

__all__ = (
    "BUNDLED_FOLDER",
    "BUNDLED_MODEL",
    "BUNDLED_NAME",
    "ECHO",
    "PAGE_SIZE",
    "QUANTIZATION_NAMES",
    "EngineConfig",
    "KVCacheType",
    "Mode",
    "PrefillMode",
    "PrefixCacheMode",
    "SpeculativeMode",
)

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Self, get_args

from aiomlc.errors import BadRequestError
from aiomlc.validation.parameter import Choice, Flag, Integer, Number
from aiomlc.validation.records import names_similar_fields, validate_fields
from aiomlc.validation.suggestions import ENGINE_SYNONYMS

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

Mode = Literal["local", "interactive", "server"]
PrefillMode = Literal["hybrid", "chunked"]
PrefixCacheMode = Literal["radix", "disable"]
SpeculativeMode = Literal["disable", "prompt_lookup", "small_draft", "eagle", "medusa"]
VisionQuantization = Literal["q8_0", "q0bf16", "q0f32"]
KVCacheType = Literal["auto", "float16", "bfloat16", "float32", "int8", "int4"]
PAGE_SIZE = 16  #: Tokens of a page of the KV cache.
#: The model that echoes its prompt. MLC LLM uses the same name for the library of its mock engine.
ECHO = "mock://echo"
#: The folder of the models in the wheel: the bundled model and its draft model.
BUNDLED_FOLDER = Path(__file__).with_name("bundled")
BUNDLED_MODEL = BUNDLED_FOLDER / "pebble"
BUNDLED_NAME = "pebble"  #: The name of the model that is opened if none is named.

#: Values of `quantization`: one for float weights, or the name of the quantization that the files
#: already have.
QUANTIZATION_NAMES = (
    *("q4f16_1", "w4a8", "w8a8", "q8_0", "q0f32", "q0f16", "q0bf16"),
    *("q3f16_0", "q3f16_1", "q4f16_0", "q4f16_2", "q4bf16_0", "q4bf16_1", "q4f32_1"),
    "q4f16_autoawq",
    *("e4m3_e4m3_f16", "e4m3_e4m3_f16_max_calibrate", "e5m2_e5m2_f16"),
    *("fp8_e4m3fn_bf16_block_scale", "fp8_e4m3fn_bf16_block_scale_static_activation"),
    *("gguf", "awq", "gptq", "compressed-tensors", "fp8", "mxfp4"),
)

# The values that mean "not used" in MLC LLM's configuration; any other is rejected by name.
_UNUSED: dict[str, tuple[object, ...]] = {
    "pipeline_parallel_stages": (None, 1),
    "opt": (None,),
    "kv_state_kind": (None, "kv_cache", "hybrid"),
    "spec_tree_width": (1,),
}

_ALTERNATIVES = {"pipeline_parallel_stages": ": use tensor_parallel_shards"}

_LEGACY_DRAFT_LENGTH = 4  # The default of MLC LLM's earlier constructors, also without speculation.
_LIBRARY_SUFFIXES = (".so", ".dylib", ".dll", ".tar", ".wasm")

_Count = Annotated[int | None, Integer(ge=1)]
_CountOrUnlimited = Annotated[int | None, Integer(ge=-1)]


@names_similar_fields(ENGINE_SYNONYMS)
@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """The settings of an engine, which are fixed while it is open.

    The fields are MLC LLM's. Those from `model_lib` on exist so that MLC LLM's configurations can
    be read. A value that requires an unsupported feature is rejected, never ignored, except for a
    `model_lib` of MLC LLM: the engine compiles the library itself, and logs that it does.

    With `prefill_mode="hybrid"` (chunked prefill) a step decodes every running sequence and spends
    the rest of its token budget on prompts. With `"chunked"` a step that prefills does not
    decode: prompts finish sooner, but running sequences stall. The output is the same.

    With the `radix` prefix cache, the KV cache entries of a sequence are kept when it ends, and a
    prompt with the same first tokens starts from there. Kept entries are evicted when their pages
    are needed. The output is the same with and without it.

    With a `speculative_mode` (speculative decoding), draft tokens are proposed and several of them
    are verified in one step. The output is the same with and without it, also when sampling.
    `prompt_lookup` proposes the tokens that followed an earlier occurrence of the last few tokens,
    which suits output that copies from the prompt. `small_draft` proposes with the draft model in
    `additional_models`, which must have the same vocabulary; the bundled model has a default.

    Raises:
        BadRequestError: If a field is out of range or not supported; `param` names it.
    """

    model: str | None = None  #: Set by the engine.
    mode: Mode | None = None  #: Set by the engine.
    #: The quantization of a Hugging Face directory; None means the loader's default.
    quantization: Annotated[
        str | None,
        Choice(
            QUANTIZATION_NAMES,
            "'q4f16_1', 'w4a8', 'w8a8', 'q8_0', 'q0f32', 'q0f16', 'q0bf16', else the format that "
            "the files have",
        ),
    ] = None
    #: The quantization of the tower that reads images; None means `quantization` if that is
    #: `q8_0` or `q0bf16`, else `q0f32`, or the format that the files have.
    vision_quantization: VisionQuantization | None = None
    kv_cache_page_size: int = PAGE_SIZE
    #: The dtype of the KV cache; "auto" is float16, but bfloat16 for `q0bf16`, `w4a8`, `w8a8`
    #: and int8 weights with a scale per output, and float32 for `q0f32`.
    kv_cache_dtype: KVCacheType = "auto"
    max_num_sequence: _Count = None  #: Maximum running sequences; others wait.
    max_total_sequence_length: _Count = None  #: Maximum tokens in the KV cache.
    max_single_sequence_length: _Count = None  #: Maximum tokens of a sequence, prompt included.
    prefill_chunk_size: _Count = None  #: Tokens that a forward pass can hold.
    #: Tokens scheduled per step, at most `prefill_chunk_size` (vLLM: `max_num_batched_tokens`).
    #: None means 128, or 256 if one sequence runs and none waits.
    step_token_budget: _Count = None
    #: The fraction of the free memory to plan with; None means 0.85.
    gpu_memory_utilization: Annotated[float | None, Number(gt=0, le=1)] = None
    #: Threads of the kernels; None: the physical cores that this process may use.
    num_threads: Annotated[int | None, Integer(ge=1, le=1024)] = None
    #: The processes that compute the model together (tensor parallelism), each with a part of its
    #: weights, of its KV cache and of `num_threads`; None: as an MLC directory says, or 1.
    tensor_parallel_shards: Annotated[int | None, Integer(ge=1, le=64)] = None
    #: Maximum number of waiting and paused sequences; None means no limit.
    max_queue_size: Annotated[int | None, Integer(ge=0)] = 4096
    #: Unread tokens at which a choice is paused until its reader has caught up.
    max_unread_tokens: Annotated[int, Integer(ge=1)] = 1024
    prefill_mode: PrefillMode = "hybrid"
    prefix_cache_mode: PrefixCacheMode = "radix"
    #: Maximum ended sequences to keep; None means `max_num_sequence`, -1 no limit, 0 no cache.
    prefix_cache_max_num_recycling_seqs: _CountOrUnlimited = None
    speculative_mode: Annotated[
        SpeculativeMode,
        Choice(get_args(SpeculativeMode), "'disable', 'prompt_lookup', 'small_draft'"),
    ] = "disable"
    #: Draft tokens per proposal; 0 adapts the number to each sequence.
    spec_draft_length: Annotated[int, Integer(ge=0)] = 0
    #: The draft model: a directory or repository. The library of `path:library` or of a pair
    #: (MLC LLM's forms) is ignored with a warning.
    additional_models: tuple[str | tuple[str, str], ...] = ()
    #: Overrides the model's sliding window, in tokens; -1 disables it.
    sliding_window_size: _CountOrUnlimited = None
    #: Overrides the model's number of attention sinks; -1 disables them.
    attention_sink_size: _CountOrUnlimited = None
    #: Hosts that images of requests may be fetched from: names, addresses or networks; `*` is any
    #: with public addresses. Empty: images must be in the request.
    allowed_media_domains: tuple[str, ...] = ()
    #: The directory whose files requests may name as images (`file:` URLs); None allows none.
    allowed_local_media_path: str | None = None
    max_images_per_prompt: Annotated[int, Integer(ge=1)] = 16  #: Maximum images of a request.
    #: Maximum pixels of an image. Decoding takes up to 14 bytes for each.
    max_image_pixels: Annotated[int, Integer(ge=1)] = 2**25
    #: Maximum seconds of audio of a request. A second takes up to 350 kB of memory.
    max_audio_seconds: Annotated[int, Integer(ge=1)] = 3600
    #: Whether names of special tokens in texts are plain text, unless a request says otherwise.
    split_special_tokens: Annotated[bool, Flag()] = False
    verbose: Annotated[bool, Flag()] = False  #: Log the memory plan at level INFO, not DEBUG.
    enable_tracing: Annotated[bool, Flag()] = False  #: Record events, for `engine.trace()`.
    model_lib: str | None = None
    pipeline_parallel_stages: object = None
    opt: object = None
    #: For recurrent models only, which need no number: checkpoints and drafts have a budget.
    max_history_size: Annotated[int | None, Integer(ge=0)] = None
    kv_state_kind: object = None
    spec_tree_width: object = 1

    def __post_init__(self) -> None:
        if self.kv_cache_page_size != PAGE_SIZE:
            raise BadRequestError(
                'KV cache only supports page size 16, while the "kv_cache_page_size" field in '
                f'argument "engine_config" is "{self.kv_cache_page_size}". '
                'Please set "engine_config.kv_cache_page_size" to 16.',
                param="kv_cache_page_size",
            )

        validate_fields(self, _describe)
        for name, unused in _UNUSED.items():
            value = getattr(self, name)
            if value not in unused:
                raise _unsupported(name, value, _ALTERNATIVES.get(name, ""))

        self._check_speculation()

    def _check_speculation(self) -> None:
        mode, models = self.speculative_mode, self.additional_models
        if mode in ("eagle", "medusa"):
            raise _unsupported("speculative_mode", mode, ": use prompt_lookup or small_draft")

        if mode == "disable" and self.spec_draft_length not in (0, _LEGACY_DRAFT_LENGTH):
            raise BadRequestError(
                "engine_config.spec_draft_length needs a speculative_mode, "
                f"got {self.spec_draft_length} without one",
                param="spec_draft_length",
            )

        name = "additional_models"
        if mode != "small_draft" and models:
            raise BadRequestError(
                f"engine_config.{name} = {models!r} is not supported without speculative_mode "
                '"small_draft"',
                param=name,
            )

        if len(models) > 1:
            raise BadRequestError(
                f"engine_config.{name} must have one model for small_draft, got {len(models)}",
                param=name,
            )

    @property
    def draft_model(self) -> tuple[str, str | None] | None:
        """The draft model of `additional_models` and the library given for it, if any."""
        for model in self.additional_models:
            if not isinstance(model, str):
                return model

            path, _, library = model.rpartition(":")
            is_pair = path and library.lower().endswith(_LIBRARY_SUFFIXES)
            return (path, library) if is_pair else (model, None)

        return None

    def asjson(self) -> str:
        """Return the configuration as a JSON object, as `from_json` reads it."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, json_str: str) -> Self:
        """Read a JSON object with the fields of a configuration.

        Raises:
            BadRequestError: If it is not a JSON object, or has an unknown or invalid field.
        """
        try:
            values = json.loads(json_str)
        except (ValueError, TypeError, RecursionError) as error:
            raise BadRequestError(f"engine_config is not JSON: {error}") from None

        if not isinstance(values, dict):
            raise BadRequestError("engine_config is not a JSON object")

        known = {field.name for field in fields(cls)}
        for name in values:
            if name not in known:
                raise BadRequestError(f"engine_config has no field {name!r}", param=name)

        return cls(**values)


def _unsupported(name: str, value: object, hint: str = "") -> BadRequestError:
    message = f"engine_config.{name} = {value!r} is not supported yet{hint}"
    return BadRequestError(message, param=name)


def _describe(name: str, error: ErrorDetails) -> str:
    from aiomlc.validation.error_messages import describe_requirement

    return f"engine_config.{name} must be {describe_requirement(error)}"
