"""Layouts keep the numbers of a quantized source; what does not fit is an error of its tensor."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiomlc.errors import ModelLoadError
from aiomlc.models.config.quantization import StoredQuantization
from aiomlc.models.parameters.packed_parameter import PackedParameter
from aiomlc.models.parameters.parameter import Parameter
from aiomlc.weights.formats.source import Source, SourceTensor
from aiomlc.weights.plan import make_plan
from aiomlc.weights.storage.layouts import source_layouts

Tensors = dict[str, tuple[str, tuple[int, ...]]]

FILE = Path("model/weights")
AWQ = StoredQuantization("awq", "awq", 4, 128)
GPTQ = StoredQuantization("gptq", "gptq", 4, 128, zero_point_offset=1)
COMPRESSED = StoredQuantization("compressed-tensors", "compressed-tensors")
W8A8 = StoredQuantization("compressed-tensors", "compressed-tensors", has_int8_activations=True)
FP8 = StoredQuantization("fp8", "fp8", block=(128, 128))

AWQ_TENSORS: Tensors = {
    "x.qweight": ("i32", (256, 8)),
    "x.qzeros": ("i32", (2, 8)),
    "x.scales": ("f16", (2, 64)),
}
GPTQ_TENSORS: Tensors = {
    "x.qweight": ("i32", (32, 64)),
    "x.qzeros": ("i32", (2, 8)),
    "x.scales": ("f16", (2, 64)),
    "x.g_idx": ("i32", (256,)),
}
PACKED: Tensors = {
    "x.weight_packed": ("i32", (64, 32)),
    "x.weight_scale": ("bf16", (64, 2)),
}
INT8: Tensors = {"x.weight": ("i8", (64, 256)), "x.weight_scale": ("f32", (64, 1))}
BLOCKS: Tensors = {"x.weight": ("f8e4m3", (64, 256)), "x.weight_scale_inv": ("f32", (1, 2))}


def make_source(tensors: Tensors, quantization: StoredQuantization | None) -> Source:
    source_tensors = {
        name: SourceTensor(name, FILE, 1000 * i, dtype, shape)
        for i, (name, (dtype, shape)) in enumerate(tensors.items())
    }
    return Source(FILE.parent, FILE, source_tensors, (FILE,), False, quantization)


def layout(
    tensors: Tensors, quantization: StoredQuantization | None, float_format: str | None = None
) -> tuple[tuple[str, int], ...]:
    parameter = Parameter("x", "matrix", (64, 256), ("x.weight",))
    source = make_source(tensors, quantization)
    return source_layouts(source, [parameter], float_format).formats["x"]


@pytest.mark.parametrize(
    ("tensors", "quantization", "expected"),
    [
        (AWQ_TENSORS, AWQ, "u4g128f16zp"),
        (GPTQ_TENSORS, GPTQ, "u4g128f16zp"),
        (PACKED, COMPRESSED, "u4g128bf16z8"),
        (INT8, COMPRESSED, "u8g256f32z128"),
        (INT8, W8A8, "i8channel"),
        (INT8 | {"x.weight_scale": ("bf16", (64,))}, W8A8, "i8channel"),
        (INT8 | {"x.weight_scale": ("f32", ())}, W8A8, "i8channel"),
        (INT8 | {"x.weight_scale": ("f32", (1,))}, W8A8, "i8channel"),
        (INT8 | {"x.weight_scale": ("bf16", (1, 1))}, COMPRESSED, "u8g256bf16z128"),
        (INT8 | {"x.weight_scale": ("bf16", (64, 2))}, W8A8, "u8g128bf16z128"),
        (INT8 | {"x.weight_zero_point": ("i8", (64, 1))}, W8A8, "u8g256f32zp"),
        (PACKED, W8A8, "u4g128bf16z8"),
        (BLOCKS, FP8, "bf16"),
        ({"x.weight": ("bf16", (64, 256))}, AWQ, "bf16"),
        ({"x.weight": ("f16", (64, 256))}, AWQ, "f16"),
        ({"x.weight": ("Q6_K", (64, 256))}, None, "u6g16k8sz32"),
    ],
)
def test_the_layout_has_the_numbers_of_the_source(
    tensors: Tensors, quantization: StoredQuantization | None, expected: str
) -> None:
    assert layout(tensors, quantization) == ((expected, 64),)


def test_sums_that_might_overflow_have_groups() -> None:
    formats = []
    for columns in (65536, 65792):
        tensors: Tensors = {"x.weight": ("i8", (64, columns)), "x.weight_scale": ("f32", (64, 1))}
        parameter = Parameter("x", "matrix", (64, columns), ("x.weight",))
        layouts = source_layouts(make_source(tensors, W8A8), [parameter], None)
        formats.append(layouts.formats["x"][0][0])

    assert formats == ["i8channel", "u8g256f32z128"]


def test_floats_of_8_bits_may_be_quantized() -> None:
    assert layout(BLOCKS, FP8, "q4") == (("q4", 64),)


def test_parts_of_other_formats_are_segments() -> None:
    kinds = {"q": "Q4_K", "k": "Q4_K", "v": "Q6_K"}
    tensors: Tensors = {f"{part}.weight": (kind, (32, 256)) for part, kind in kinds.items()}
    parameter = Parameter("x", "matrix", (96, 256), tuple(tensors))

    layouts = source_layouts(make_source(tensors, None), [parameter], None)

    assert layouts.formats == {"x": (("u4g32k8m", 64), ("u6g16k8sz32", 32))}


def test_a_router_stays_float32() -> None:
    parameter = Parameter("x", "matrix", (64, 256), ("x.weight",), keep_float32=True)

    layouts = source_layouts(make_source(GPTQ_TENSORS, GPTQ), [parameter], None)

    assert layouts.formats == {"x": (("f32", 64),)}


@pytest.mark.parametrize(
    ("tensors", "quantization", "tensor", "message"),
    [
        (AWQ_TENSORS | {"x.qweight": ("i32", (255, 8))}, AWQ, "x.qweight", r"\[256, 8\], got"),
        (AWQ_TENSORS | {"x.qweight": ("f32", (256, 8))}, AWQ, "x.qweight", "u32 or i32, got f32"),
        (AWQ_TENSORS | {"x.qweight": ("i32", ())}, AWQ, "x.qweight", "wrong shape"),
        (AWQ_TENSORS | {"x.qzeros": ("i32", (2, 64))}, AWQ, "x.qzeros", r"\[2, 8\], got \[2, 64\]"),
        (AWQ_TENSORS | {"x.scales": ("i32", (2, 64))}, AWQ, "x.scales", "f32, f16 or bf16"),
        (AWQ_TENSORS | {"x.scales": ("f16", (1, 64))}, AWQ, "x.scales", r"\[2, 64\], got"),
        ({"x.qweight": ("i32", (256, 8))}, AWQ, "x.qzeros", "tensor is missing"),
        (GPTQ_TENSORS | {"x.qweight": ("i32", (256, 8))}, GPTQ, "x.qweight", r"\[32, 8\], got"),
        (GPTQ_TENSORS | {"x.qzeros": ("i32", (3, 8))}, GPTQ, "x.qzeros", r"\[2, 8\], got \[3, 8\]"),
        (PACKED | {"x.weight_packed": ("i32", (64, 31))}, COMPRESSED, "x.weight_packed", "shape"),
        (PACKED | {"x.weight_packed": ("i32", (64,))}, COMPRESSED, "x.weight_packed", "shape"),
        (PACKED | {"x.weight_scale": ("bf16", (64, 3))}, COMPRESSED, "x.weight_scale", "shape"),
        (PACKED | {"x.weight_scale": ("bf16", (64, 0))}, COMPRESSED, "x.weight_scale", "shape"),
        (PACKED | {"x.weight_scale": ("bf16", (64, 64))}, COMPRESSED, "x.weight_scale", "got 4"),
        (
            PACKED | {"x.weight_zero_point": ("i32", (64, 2))},
            COMPRESSED,
            "x.weight_zero_point",
            r"\[8, 2\], got \[64, 2\], and x.weight_scale has \[64, 2\]",
        ),
        ({"x.weight": ("i8", (64, 256))}, COMPRESSED, "x.weight_scale", "tensor is missing"),
        ({"x.weight": ("i8", (64, 256))}, AWQ, "x.weight", "f32, f16 or bf16, got i8"),
        (INT8 | {"x.weight": ("i8", (64, 255))}, COMPRESSED, "x.weight", r"\[64, 256\], got"),
        (BLOCKS | {"x.weight_scale_inv": ("f32", (2, 2))}, FP8, "x.weight_scale_inv", r"\[1, 2\]"),
        ({"x.weight": ("f8e4m3", (64, 256))}, FP8, "x.weight_scale_inv", "tensor is missing"),
        (
            {"x.weight": ("f8e4m3", (2, 32, 256)), "x.weight_scale_inv": ("f32", (2, 1, 2))},
            FP8,
            "x.weight",
            "the outputs of an expert must be a multiple of the 128 of a block, got 32",
        ),
        ({"x.weight": ("Q4_K", (64, 512))}, None, "x.weight", r"\[64, 256\], got \[64, 512\]"),
        ({"x.weight": ("IQ2_XXS", (64, 256))}, None, "x.weight", "got IQ2_XXS"),
    ],
)
def test_a_tensor_that_does_not_fit_is_reported(
    tensors: Tensors, quantization: StoredQuantization | None, tensor: str, message: str
) -> None:
    with pytest.raises(ModelLoadError, match=message) as caught:
        layout(tensors, quantization)

    assert caught.value.tensor == tensor


ORDERED = StoredQuantization("gptq", "gptq", 4, 128, 1, has_input_order=True)


def test_matrices_with_an_order_of_inputs_are_listed() -> None:
    parameter = Parameter("x", "matrix", (64, 256), ("x.weight",))

    for quantization, expected in ((ORDERED, {"x"}), (GPTQ, set())):
        layouts = source_layouts(make_source(GPTQ_TENSORS, quantization), [parameter], None)

        assert layouts.ordered == expected


def test_an_order_is_that_of_the_groups() -> None:
    order = PackedParameter("x.input_order", "order", (), (256,), ("x.weight",))

    (planned,) = make_plan([order], make_source(GPTQ_TENSORS, ORDERED)).params

    assert planned.nbytes == 4 * 256
    assert [matrix.groups and matrix.groups.name for matrix in planned.matrices] == ["x.g_idx"]


def test_a_tensor_without_an_order_is_reported() -> None:
    order = PackedParameter("x.input_order", "order", (), (256,), ("x.weight",))

    with pytest.raises(ModelLoadError, match="its inputs have no order"):
        make_plan([order], make_source(GPTQ_TENSORS, GPTQ))


def test_experts_with_an_order_of_inputs_are_refused() -> None:
    parameter = Parameter("x", "matrix", (64, 256), ("x.weight",), num_experts=4)

    with pytest.raises(ModelLoadError, match=r"desc_act.* are not supported in experts"):
        source_layouts(make_source(GPTQ_TENSORS, ORDERED), [parameter], None)
