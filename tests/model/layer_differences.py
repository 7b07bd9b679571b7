"""Comparison of plain Relax layers with the CPU kernels that replace them.

`python -m tests.model.layer_differences` prints the largest difference of every case as JSON. It
imports tvm, which must not be imported in the process of the tests.
"""

from __future__ import annotations

__all__ = ("CASES",)

import inspect
import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

HIDDEN, VOCAB, ROWS = 64, 96, 5
Q_HEADS, KV_HEADS, HEAD_DIM = 4, 2, 16


def _floats(*shape: int) -> Array:
    random = np.random.default_rng(len(shape) + sum(shape))
    return random.standard_normal(shape).astype(np.float32)


def _linear() -> tuple[Any, list[Array]]:
    from aiomlc.models.graph.layers import Linear

    return _calling(Linear(HIDDEN, VOCAB, bias=False, out_dtype="float32")), [_floats(ROWS, HIDDEN)]


def _linear_bias() -> tuple[Any, list[Array]]:
    from aiomlc.models.graph.layers import Linear

    return _calling(Linear(HIDDEN, 24, bias=True, out_dtype="float32")), [_floats(ROWS, HIDDEN)]


def _embedding() -> tuple[Any, list[Array]]:
    from aiomlc.models.graph.layers import Embedding

    return _calling(Embedding(VOCAB, HIDDEN)), [np.array([3, 0, 95, 3], np.int32)]


def _head() -> tuple[Any, list[Array]]:
    from aiomlc.models.graph.layers import Embedding

    return _calling(Embedding(VOCAB, HIDDEN), "project"), [_floats(ROWS, HIDDEN)]


def _rms_norm() -> tuple[Any, list[Array]]:
    from aiomlc.models.graph.layers import RMSNorm

    return _calling(RMSNorm(HIDDEN, 1e-5)), [_floats(ROWS, HIDDEN)]


def _add_rms_norm() -> tuple[Any, list[Array]]:
    from aiomlc.models.graph.layers import RMSNorm

    x = _floats(ROWS, HIDDEN)
    return _calling(RMSNorm(HIDDEN, 1e-5), "add"), [x, x[::-1].copy()]


def _qk_norm() -> tuple[Any, list[Array]]:
    from tvm.relax.frontend import nn

    from aiomlc.models.graph.layers import QKNorm, RMSNorm

    class Attention(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.q_norm = RMSNorm(HEAD_DIM, 1e-5)
            self.k_norm = RMSNorm(HEAD_DIM, 1e-5)
            self.qk_norm = QKNorm(Q_HEADS, KV_HEADS, eps=1e-5, out_dtype="float32")

        def forward(self, qkv: Any) -> Any:  # noqa: ANN401 - tvm is untyped.
            return self.qk_norm(qkv, self.q_norm.weight, self.k_norm.weight)

    return Attention(), [_floats(ROWS, Q_HEADS + 2 * KV_HEADS, HEAD_DIM)]


def _qk_norm_full_width() -> tuple[Any, list[Array]]:
    from aiomlc.models.graph.layers import RMSNorm

    attention, inputs = _qk_norm()
    attention.q_norm = RMSNorm(Q_HEADS * HEAD_DIM, 1e-5)
    attention.k_norm = RMSNorm(KV_HEADS * HEAD_DIM, 1e-5)
    return attention, inputs


def _silu_mul() -> tuple[Any, list[Array]]:
    from aiomlc.models.graph.layers import SiluMul

    return _calling(SiluMul()), [_floats(ROWS, HIDDEN)]


def _gelu_tanh_mul() -> tuple[Any, list[Array]]:
    from aiomlc.models.graph.layers import GeluTanhMul

    return _calling(GeluTanhMul()), [_floats(ROWS, HIDDEN)]


def _scale() -> tuple[Any, list[Array]]:
    from aiomlc.models.graph.layers import Scale

    return _calling(Scale(7.5)), [_floats(ROWS, HIDDEN)]


def _layer_norm() -> tuple[Any, list[Array]]:
    from aiomlc.models.graph.layers import LayerNorm

    return _calling(LayerNorm(HIDDEN, 1e-5)), [_floats(ROWS, HIDDEN)]


def _add_layer_norm() -> tuple[Any, list[Array]]:
    from aiomlc.models.graph.layers import LayerNorm

    x = _floats(ROWS, HIDDEN)
    return _calling(LayerNorm(HIDDEN, 1e-5), "add"), [x, x[::-1].copy()]


def _layer_norm_without_bias() -> tuple[Any, list[Array]]:
    from aiomlc.models.graph.layers import LayerNorm

    return _calling(LayerNorm(HIDDEN, 1e-5, bias=False)), [_floats(ROWS, HIDDEN)]


def _add_layer_norm_without_bias() -> tuple[Any, list[Array]]:
    from aiomlc.models.graph.layers import LayerNorm

    x = _floats(ROWS, HIDDEN)
    return _calling(LayerNorm(HIDDEN, 1e-5, bias=False), "add"), [x, x[::-1].copy()]


def _squared_relu() -> tuple[Any, list[Array]]:
    from aiomlc.models.graph.layers import SquaredReLU

    return _calling(SquaredReLU()), [_floats(ROWS, HIDDEN)]


def _gelu() -> tuple[Any, list[Array]]:
    from aiomlc.models.graph.layers import Gelu

    return _calling(Gelu("gelu")), [_floats(ROWS, HIDDEN)]


def _gelu_tanh() -> tuple[Any, list[Array]]:
    from aiomlc.models.graph.layers import Gelu

    return _calling(Gelu("gelu_tanh")), [_floats(ROWS, HIDDEN)]


def _add() -> tuple[Any, list[Array]]:
    from aiomlc.models.graph.layers import Add

    x = _floats(ROWS, HIDDEN)
    return _calling(Add()), [x, x[::-1].copy()]


def _experts() -> tuple[Any, list[Array]]:
    from aiomlc.models.config.layers import ExpertsConfig
    from aiomlc.models.graph.module import Module
    from aiomlc.models.graph.moe import SparseMlp

    class Layer(Module):
        def __init__(self) -> None:
            super().__init__()
            experts = ExpertsConfig(
                count=6, per_token=2, intermediate_size=32, normalize=True, shared_size=48
            )
            self.mlp = SparseMlp(experts, HIDDEN)

        def forward(self, x: Any) -> Any:  # noqa: ANN401 - tvm is untyped.
            return self.mlp.without_norm(x)

    # Small inputs, since the weights are large and the difference is absolute.
    return Layer(), [np.float32(0.05) * _floats(ROWS, HIDDEN)]


def _clamped_experts() -> tuple[Any, list[Array]]:
    from aiomlc.models.config.layers import ExpertsConfig
    from aiomlc.models.graph.module import Module
    from aiomlc.models.graph.moe import SparseMlp

    class Layer(Module):
        def __init__(self) -> None:
            super().__init__()
            experts = ExpertsConfig(
                count=6,
                per_token=2,
                intermediate_size=32,
                normalize=True,
                activation="clamped_swiglu",
                bias=True,
            )
            self.mlp = SparseMlp(experts, HIDDEN)

        def forward(self, x: Any) -> Any:  # noqa: ANN401 - tvm is untyped.
            return self.mlp.without_norm(x)

    return Layer(), [np.float32(0.05) * _floats(ROWS, HIDDEN)]


def _soft_cap() -> tuple[Any, list[Array]]:
    from aiomlc.models.graph.layers import SoftCap

    return _calling(SoftCap(1.5)), [_floats(ROWS, HIDDEN)]


def _gather_rows() -> tuple[Any, list[Array]]:
    from aiomlc.models.graph.layers import GatherRows

    rows = np.array([4, 0], np.int32)
    return _calling(GatherRows()), [_floats(ROWS, HIDDEN), rows]


CASES: dict[str, Callable[[], tuple[Any, list[Array]]]] = {
    "linear": _linear,
    "linear_bias": _linear_bias,
    "embedding": _embedding,
    "head": _head,
    "rms_norm": _rms_norm,
    "add_rms_norm": _add_rms_norm,
    "qk_norm": _qk_norm,
    "qk_norm_full_width": _qk_norm_full_width,
    "silu_mul": _silu_mul,
    "gelu_tanh_mul": _gelu_tanh_mul,
    "scale": _scale,
    "layer_norm": _layer_norm,
    "add_layer_norm": _add_layer_norm,
    "layer_norm_without_bias": _layer_norm_without_bias,
    "add_layer_norm_without_bias": _add_layer_norm_without_bias,
    "squared_relu": _squared_relu,
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "add": _add,
    "experts": _experts,
    "clamped_experts": _clamped_experts,
    "soft_cap": _soft_cap,
    "gather_rows": _gather_rows,
}


def _calling(layer: Any, method: str = "forward") -> Any:  # noqa: ANN401 - tvm is untyped.
    """Return a module whose `forward` calls `method` of its single layer, which can be lowered."""
    from tvm.relax.frontend import nn

    class Calling(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, *inputs: Any) -> Any:  # noqa: ANN401
            return getattr(self.layer, method)(*inputs)

    return Calling()


def _pack(weight: Array) -> Array:
    """Return the packed bytes of a float32 matrix: tiles of 16 rows, column by column."""
    padded = np.zeros((-(-weight.shape[0] // 16) * 16, weight.shape[1]), np.float32)
    padded[: weight.shape[0]] = weight
    tiles = padded.reshape(-1, 16, weight.shape[1]).transpose(0, 2, 1)
    return np.ascontiguousarray(tiles).reshape(-1).view(np.uint8)


def _run(module: Any, inputs: list[Array], params: list[Array]) -> list[Array]:  # noqa: ANN401
    """Build the module, with TVM's own code generation for plain layers, and return its outputs."""
    import tvm
    from tvm import relax
    from tvm.relax.frontend import nn

    def run(*values: Any) -> Any:  # noqa: ANN401
        return module.forward(*values)

    names = [f"x{i}" for i in range(len(inputs))]
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    signature = inspect.Signature([inspect.Parameter(name, kind) for name in names])
    run.__signature__ = signature  # type: ignore[attr-defined]
    module.run = run
    specs: dict[str, Any] = {
        name: nn.spec.Tensor(list(value.shape), str(value.dtype))
        for name, value in zip(names, inputs, strict=True)
    }
    specs["$"] = {"param_mode": "packed", "effect_mode": "none"}
    graph, _ = module.export_tvm({"run": specs})
    machine = relax.VirtualMachine(relax.build(graph, tvm.target.Target("llvm")), tvm.cpu())
    packed = [tvm.runtime.tensor(value) for value in params]
    result = machine["run"](*(tvm.runtime.tensor(value) for value in inputs), packed)
    outputs = [result] if hasattr(result, "numpy") else list(result)
    return [output.numpy() for output in outputs]


def _difference(name: str) -> float:
    from aiomlc.compiler.backends.cpu.lowering import lower_to_cpu
    from aiomlc.compiler.kv_cache import KVCache
    from aiomlc.compiler.quantization import QUANTIZATIONS

    quantization = QUANTIZATIONS["q0f32"]
    module, inputs = CASES[name]()
    shapes = [tuple(map(int, param.shape)) for _, param in module.named_parameters()]
    params = [_floats(*shape) for shape in shapes]
    packed = [_pack(value) if value.ndim == 2 else value for value in params]

    plain = _run(module, inputs, params)
    lowered = lower_to_cpu(module, quantization, KVCache("float32", "float32"))
    kernels = _run(lowered, inputs, packed)

    return max(float(np.abs(a - b).max()) for a, b in zip(plain, kernels, strict=True))


def main() -> None:
    """Print the largest difference of every case as JSON."""
    from aiomlc.runtime.native.library import load_native

    load_native()
    sys.stdout.write(json.dumps({name: _difference(name) for name in CASES}) + "\n")


if __name__ == "__main__":
    main()
