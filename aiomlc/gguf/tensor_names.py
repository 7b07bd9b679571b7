"""The tensors of a GGUF file under the names of the graph's sources.

A tensor that GGUF fuses or stacks becomes one piece for each source that it consists of: pieces are
rows, which follow one another in the file.
"""

from __future__ import annotations

__all__ = ("TensorPiece", "expected_names", "tensor_pieces")

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiomlc.errors import ModelLoadError
from aiomlc.gguf.architectures import Architecture, find_architecture
from aiomlc.gguf.config import config_fields
from aiomlc.gguf.container import TensorInfo
from aiomlc.gguf.gemma3n import STACKED_NAMES
from aiomlc.gguf.gemma4 import MODEL_NAMES
from aiomlc.gguf.model import GGUFModel

_BLOCK = re.compile(r"blk\.(\d{1,6})\.(\w+)(?:\.(\d{1,6}))?\.(weight|bias)", re.ASCII)
_ANY_BLOCK = re.compile(r"blk\.(\d{1,6})\.([\w.]+)", re.ASCII)
_MODEL = {
    "token_embd": "model.embed_tokens",
    "output": "lm_head",
    **MODEL_NAMES,
}
_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "attn_sinks": "self_attn.sinks",
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "ffn_gate_inp": "mlp.gate",
    "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
    "ffn_gate_shexp": "mlp.shared_expert.gate_proj",
    "ffn_up_shexp": "mlp.shared_expert.up_proj",
    "ffn_down_shexp": "mlp.shared_expert.down_proj",
}
_SANDWICH = {"ffn_norm": "pre_feedforward_layernorm"}
_QKV = "attn_qkv"
_MAX_EXPERTS = 4096
_EXPERTS = {"ffn_gate": "gate_proj", "ffn_up": "up_proj", "ffn_down": "down_proj"}
_STACKED = {f"{name}_exps": (part,) for name, part in _EXPERTS.items()} | {
    "ffn_gate_up_exps": ("gate_proj", "up_proj")
}


@dataclass(frozen=True, slots=True)
class TensorPiece:
    """Consecutive rows of a tensor."""

    tensor: TensorInfo
    offset: int  #: In bytes, from the beginning of the file.
    shape: tuple[int, ...]

    @property
    def path(self) -> Path:
        """The file."""
        return self.tensor.path


def tensor_pieces(model: GGUFModel) -> dict[str, TensorPiece]:
    """Return the pieces of all tensors by the graph's name; of unknown tensors by their own.

    Raises:
        ModelLoadError: If the architecture is unknown, or a key is missing or invalid.
    """
    if find_architecture(model).is_encoder:
        return {name: _whole(tensor) for name, tensor in model.tensors.items()}

    splitter = _Splitter(model)
    pieces: dict[str, TensorPiece] = {}
    for tensor in model.tensors.values():
        for name, piece in splitter.pieces(tensor):
            if name in pieces:
                raise ModelLoadError(
                    f"{tensor.path}: {tensor.name}: the tensor takes the place of "
                    f"{pieces[name].tensor.name}, which is there, too",
                    path=tensor.path,
                    tensor=tensor.name,
                )

            pieces[name] = piece
    return pieces


def expected_names(
    model: GGUFModel, layer: int | None, expert: int | None
) -> Iterator[tuple[str, str]]:
    """Yield the graph's name and GGUF's name of the tensors of a layer, or outside of layers."""
    if find_architecture(model).is_encoder:
        return  # These are the same.

    for kind in ("weight", "bias"):
        if layer is None:
            names = _model_names(find_architecture(model))
            yield from ((f"{name}.{kind}", f"{own}.{kind}") for own, name in names.items())
            continue

        block, prefix = f"blk.{layer}", f"model.layers.{layer}"
        if expert is not None:
            fused = f"{block}.ffn_gate_up_exps.{kind}"
            for own, name in _EXPERTS.items():
                at = f"{prefix}.mlp.experts.{expert}"
                is_fused = own != "ffn_down" and fused in model.tensors
                yield f"{at}.{name}.{kind}", fused if is_fused else f"{block}.{own}_exps.{kind}"
            continue

        # The number may be that of a matrix in a stack outside of layers.
        yield from ((f"{n}.{layer}.{kind}", f"{own}.{kind}") for own, n in STACKED_NAMES.items())
        own_layer = find_architecture(model).layer_names
        yield from ((f"{prefix}.{name}", f"{block}.{own}") for own, name in own_layer.items())
        # Of the two names that a norm has, depending on the architecture, this is `ffn_norm`.
        own_names = {name: own for own, name in _layer_names(find_architecture(model)).items()}
        for name, own in own_names.items():
            yield f"{prefix}.{name}.{kind}", f"{block}.{own}.{kind}"


def _model_names(architecture: Architecture) -> dict[str, str]:
    """Return the graph's names of the tensors outside of layers by GGUF's."""
    return _MODEL | {architecture.last_norm: "model.norm"}


def _layer_names(architecture: Architecture) -> dict[str, str]:
    """Return the graph's names of a layer's tensors by GGUF's."""
    names = _LAYER | (_SANDWICH if architecture.is_sandwich else {})
    if architecture.has_fused_gate_up:
        names |= {"ffn_up": "mlp.gate_up_proj"}
    if architecture.has_fused_qkv:
        names |= {_QKV: "self_attn.qkv_proj"}
    return names


class _Splitter:
    """Splits the tensors of one model."""

    def __init__(self, model: GGUFModel) -> None:
        self._architecture: Architecture = find_architecture(model)
        self._fields: Mapping[str, Any] = config_fields(model).values
        self._names = _layer_names(self._architecture)
        self._model_names = _model_names(self._architecture)

    def pieces(self, tensor: TensorInfo) -> Iterator[tuple[str, TensorPiece]]:
        name, _, kind = tensor.name.rpartition(".")
        if name in self._model_names:
            yield f"{self._model_names[name]}.{kind}", _whole(tensor)
            return

        if name in STACKED_NAMES and len(tensor.shape) == 3 and tensor.shape[0] <= _MAX_EXPERTS:
            yield from _stacked_pieces(tensor, STACKED_NAMES[name], ("",), kind)
            return

        block = _ANY_BLOCK.fullmatch(tensor.name)
        own_names = self._architecture.layer_names
        if block is not None and (own := own_names.get(block[2])) is not None:
            yield f"model.layers.{int(block[1])}.{own}", _whole(tensor)
            return

        match = _BLOCK.fullmatch(tensor.name)
        if match is None:
            yield tensor.name, _whole(tensor)
            return

        layer, part, expert, kind = match.groups()
        yield from self._layer_pieces(tensor, int(layer), part, expert, kind)

    def _layer_pieces(
        self, tensor: TensorInfo, layer: int, part: str, expert: str | None, kind: str
    ) -> Iterator[tuple[str, TensorPiece]]:
        prefix = f"model.layers.{layer}"
        if expert is not None:  # Of older files, with one tensor per expert.
            name = _EXPERTS.get(part, part)
            yield f"{prefix}.mlp.experts.{int(expert)}.{name}.{kind}", _whole(tensor)
        elif part in _STACKED and _is_stack(tensor, kind):
            yield from _stacked_pieces(tensor, f"{prefix}.mlp.experts", _STACKED[part], kind)
        elif part == _QKV and part not in self._names:
            yield from self._qkv_pieces(tensor, layer, kind)
        elif part == "ffn_gate_inp_shexp" and len(tensor.shape) == 1:
            name = f"{prefix}.{self._names[part]}.{kind}"
            yield name, TensorPiece(tensor, tensor.offset, (1, *tensor.shape))
        else:
            yield f"{prefix}.{self._names.get(part, part)}.{kind}", _whole(tensor)

    def _qkv_pieces(
        self, tensor: TensorInfo, layer: int, kind: str
    ) -> Iterator[tuple[str, TensorPiece]]:
        prefix = f"model.layers.{layer}.self_attn"
        fields = {**self._fields, **self._fields.get("per_layer_config", {}).get(str(layer), {})}
        counts = (fields["num_attention_heads"], *(fields["num_key_value_heads"],) * 2)
        sizes = [count * fields["head_dim"] for count in counts]
        if tensor.shape[0] != sum(sizes):
            yield f"{prefix}.qkv_proj.{kind}", _whole(tensor)
            return

        start = 0
        for name, rows in zip("qkv", sizes, strict=True):
            yield f"{prefix}.{name}_proj.{kind}", _rows(tensor, start, rows)
            start += rows


def _is_stack(tensor: TensorInfo, kind: str) -> bool:
    """Return whether a tensor is `[experts, outputs, inputs]`, or `[experts, outputs]` a bias."""
    dimensions = 2 if kind == "bias" else 3
    return len(tensor.shape) == dimensions and tensor.shape[0] <= _MAX_EXPERTS


def _stacked_pieces(
    tensor: TensorInfo, prefix: str, parts: tuple[str, ...], kind: str
) -> Iterator[tuple[str, TensorPiece]]:
    """Yield the rows of each expert; `parts` follow one another within an expert."""
    experts, total, *columns = tensor.shape
    rows = total // len(parts)
    flat = TensorInfo(
        tensor.name, tensor.path, tensor.type, (experts * total, *columns), tensor.offset
    )
    for index in range(experts * len(parts)):
        expert, part = divmod(index, len(parts))
        name = ".".join(filter(None, (prefix, str(expert), parts[part], kind)))
        yield name, _rows(flat, index * rows, rows)


def _whole(tensor: TensorInfo) -> TensorPiece:
    return TensorPiece(tensor, tensor.offset, tensor.shape)


def _rows(tensor: TensorInfo, start: int, rows: int) -> TensorPiece:
    row_bytes = tensor.type.nbytes(math.prod(tensor.shape[1:]))
    return TensorPiece(tensor, tensor.offset + start * row_bytes, (rows, *tensor.shape[1:]))
