"""The differences between the tensors of a checkpoint and the graph's parameters."""

from __future__ import annotations

__all__ = ("CheckpointLayout", "HFExpertsLayout", "HFQKVLayout")

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal, Self

#: Row order of the QKV matrix in a Hugging Face directory. `concatenated`: all queries, then keys,
#: then values, as in the graph. `per_head`: query, key and value of the first head, then of the
#: next. `interleaved_rope`: concatenated, but the two dimensions of a rotary pair are neighbors.
HFQKVLayout = Literal["concatenated", "per_head", "interleaved_rope"]

#: The tensor with a matrix of all experts, where a Hugging Face directory has one. `outputs`:
#: `[experts, outputs, inputs]`, the rows of the gate before those of the up projection. `inputs`:
#: `[experts, inputs, outputs]`, in which the outputs of the gate and the up projection alternate;
#: MXFP4 alternates them, too, but stores each output as a row. `stacked_inputs`: the same, but the
#: outputs of the gate come before those of the up projection.
HFExpertsLayout = Literal["outputs", "inputs", "stacked_inputs"]

#: The layouts of GGUF files: Llama's two dimensions of a rotary pair are made neighbors, as they
#: already are in Command R, and the queries, keys and values of GPT-NeoX are separated.
_GGUF_QKV_LAYOUTS: Mapping[str, HFQKVLayout] = MappingProxyType(
    {
        "gpt_neox": "concatenated",
        **dict.fromkeys(("granite", "llama", "mixtral", "smollm3"), "interleaved_rope"),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointLayout:
    """The layout of the tensors of a decoder."""

    qkv_name: str = "qkv_proj"  #: MLC's name of the fused QKV matrix, which the graph has, too.
    hf_fused: tuple[str, ...] = ()  #: Matrices that are also fused in a Hugging Face directory.
    hf_qkv_layout: HFQKVLayout = "concatenated"
    hf_experts_layout: HFExpertsLayout = "outputs"
    #: Added to the norm weights of a Hugging Face directory, which stores them minus this offset.
    hf_norm_offset: float = 0.0

    def in_gguf(self, model_type: str) -> Self:
        """Return the layout of a GGUF file that was made from such a checkpoint.

        Norms that Hugging Face stores minus an offset include it there, and the inputs of a gated
        delta net are two tensors.
        """
        fused = tuple(name for name in self.hf_fused if name != "in_proj_qkvz")
        qkv_layout = _GGUF_QKV_LAYOUTS.get(model_type, self.hf_qkv_layout)
        return replace(self, hf_fused=fused, hf_qkv_layout=qkv_layout, hf_norm_offset=0.0)
