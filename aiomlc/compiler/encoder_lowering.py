"""The CPU's layers of an encoder: like a decoder's, each is a call of one of our kernels."""

from __future__ import annotations

__all__ = ("cpu_packed_attention", "lower_encoder_to_cpu")

from tvm.relax.frontend import nn

from aiomlc.compiler.lowering import CpuLowering, call_kernel
from aiomlc.compiler.quantization import Quantization
from aiomlc.models.encoder import Encoder, Gelu, LayerNorm


class _CpuLayerNorm(nn.Module):  # type: ignore[misc]
    def __init__(self, layer: LayerNorm) -> None:
        super().__init__()
        self.eps = layer.eps
        self.weight = layer.weight
        self.bias = layer.bias

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        inputs = [x, self.weight, self.bias, self.eps]
        return call_kernel("layer_norm", inputs, x.shape, "float32")

    def add(self, x: nn.Tensor, residual: nn.Tensor) -> nn.Tensor:
        inputs = [x, residual, self.weight, self.bias, self.eps]
        return call_kernel("add_layer_norm", inputs, x.shape, "float32")


class _CpuGelu(nn.Module):  # type: ignore[misc]
    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return call_kernel("gelu", [x], x.shape, "float32")


class _EncoderLowering(CpuLowering):
    def visit_module(self, name: str, node: nn.Module) -> nn.Module:
        match node:
            case LayerNorm():
                return _CpuLayerNorm(node)
            case Gelu():
                return _CpuGelu()
            case _:
                return super().visit_module(name, node)


def lower_encoder_to_cpu(encoder: Encoder, quantization: Quantization) -> Encoder:
    """Replace every layer by its kernel, and every matrix by its packed bytes."""
    lowered: Encoder = _EncoderLowering(quantization).visit("", encoder)
    return lowered


def cpu_packed_attention(qkv: nn.Tensor, lengths: nn.Tensor, num_heads: int) -> nn.Tensor:
    """Every token attends to all tokens of its text."""
    shape = (qkv.shape[0], int(qkv.shape[1]) // 3)
    return call_kernel("packed_attention", [qkv, lengths, num_heads], shape, "float32")
