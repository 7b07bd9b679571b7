"""A plan lays out every parameter, or reports the tensor that does not fit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiomlc.errors import ModelLoadError
from aiomlc.models.parameters.packed_parameter import PackedParameter
from aiomlc.models.parameters.parameter import RowOrder
from aiomlc.weights.formats.source import Source, SourceTensor
from aiomlc.weights.plan import make_plan

DIRECTORY = Path("model")
FILE = DIRECTORY / "weights"


def make_source(
    tensors: Mapping[str, tuple[str, tuple[int, ...]]], *, is_mlc: bool = False
) -> Source:
    source_tensors = {
        name: SourceTensor(name, FILE, 1000 * number, dtype, shape)
        for number, (name, (dtype, shape)) in enumerate(tensors.items())
    }
    return Source(DIRECTORY, DIRECTORY / "index", source_tensors, (FILE,), is_mlc)


def matrix(name: str, rows: int, cols: int, *sources: str) -> PackedParameter:
    return PackedParameter(name, "matrix", (("q4", rows),), (rows, cols), sources)


def test_parameters_are_read_from_metadata_with_defaults() -> None:
    records = [
        {
            "name": "x",
            "kind": "matrix",
            "layout": [["q4", 5], ["u4g32k8m", 3]],
            "shape": [8, 4],
            "sources": ["a", "b"],
        },
        {"name": "n", "kind": "vector", "layout": [], "shape": [4], "sources": ["n"]},
    ]

    parameters = [PackedParameter.from_json(record) for record in records]

    assert parameters == [
        PackedParameter("x", "matrix", (("q4", 5), ("u4g32k8m", 3)), (8, 4), ("a", "b")),
        PackedParameter("n", "vector", (), (4,), ("n",)),
    ]


def test_a_parameter_survives_the_json_round_trip() -> None:
    order = RowOrder(1, 4, (1, 1))
    parameter = PackedParameter(
        "x", "matrix", (("q4", 8),), (8, 4), ("a", "b"), 1.0, order, "fused", ("y", "z")
    )

    assert PackedParameter.from_json(json.loads(json.dumps(parameter.as_json()))) == parameter


@pytest.mark.parametrize(
    ("parameter", "nbytes"),
    [
        (PackedParameter("x", "matrix", (("q4", 17),), (17, 33), ()), 2 * 2 * 288),
        (PackedParameter("x", "matrix", (("bf16", 17),), (17, 33), ()), 32 * 64 * 2),
        (PackedParameter("x", "matrix", (("f16", 17),), (17, 33), ()), 32 * 33 * 2),
        (PackedParameter("x", "matrix", (("f32", 16),), (16, 33), ()), 16 * 33 * 4),
        (
            PackedParameter("x", "matrix", (("q4", 17), ("f32", 3)), (20, 33), ()),
            2 * 2 * 288 + 16 * 33 * 4,
        ),
        (PackedParameter("x", "vector", (), (33,), ()), 33 * 4),
    ],
)
def test_packed_sizes_include_padding(parameter: PackedParameter, nbytes: int) -> None:
    assert parameter.nbytes == nbytes


@given(rows=st.lists(st.integers(1, 200), min_size=1, max_size=8))
def test_parameters_are_aligned_and_do_not_overlap(rows: list[int]) -> None:
    parameters = [
        PackedParameter(f"p{i}", "vector", (), (n,), (f"p{i}",))
        if i % 2
        else PackedParameter(f"p{i}", "matrix", (("f32", n),), (n, 7), (f"p{i}",))
        for i, n in enumerate(rows)
    ]
    source = make_source({p.name: ("f32", p.shape) for p in parameters})

    plan = make_plan(parameters, source)

    end = 0
    for planned in plan.params:
        assert planned.offset >= end
        assert planned.offset % (4096 if planned.parameter.kind == "matrix" else 64) == 0
        end = planned.offset + planned.nbytes

    assert plan.nbytes == end


def test_sources_are_concatenated_in_their_order() -> None:
    source = make_source({"v": ("f16", (2, 8)), "q": ("bf16", (4, 8)), "k": ("f32", (2, 8))})

    (planned,) = make_plan([matrix("qkv", 8, 8, "q", "k", "v")], source).params

    assert [(m.tensor.offset, m.rows, m.type) for m in planned.matrices] == [
        (1000, 4, "bf16"),
        (2000, 2, "f32"),
        (0, 2, "f16"),
    ]


def test_a_missing_tensor_is_reported_with_the_index() -> None:
    with pytest.raises(ModelLoadError, match="b: tensor is missing") as caught:
        make_plan([matrix("x", 8, 8, "a", "b")], make_source({"a": ("f32", (4, 8))}))

    assert caught.value.path == DIRECTORY / "index"
    assert caught.value.tensor == "b"


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((8, 9), r"wrong shape: expected \[8, 8\], got \[8, 9\]"),
        ((9, 8), r"wrong shape: expected \[8, 8\], got \[9, 8\]"),
        ((64,), r"wrong shape: expected \[8, 8\], got \[64\]"),
        ((8, 8, 1), r"wrong shape: expected \[8, 8\], got \[8, 8, 1\]"),
    ],
)
def test_a_wrong_shape_is_reported_with_the_expected_one(
    shape: tuple[int, ...], message: str
) -> None:
    with pytest.raises(ModelLoadError, match=message) as caught:
        make_plan([matrix("x", 8, 8, "a")], make_source({"a": ("f32", shape)}))

    assert caught.value.path == FILE
    assert caught.value.tensor == "a"


def test_an_unsupported_dtype_is_rejected_only_if_the_tensor_is_used() -> None:
    source = make_source({"a": ("F64", (8, 8)), "b": ("f32", (8, 8))})

    make_plan([matrix("x", 8, 8, "b")], source)
    with pytest.raises(
        ModelLoadError, match="wrong dtype: expected f32, f16 or bf16, got F64"
    ) as caught:
        make_plan([matrix("x", 8, 8, "a")], source)

    assert caught.value.tensor == "a"


def test_a_wrong_sum_of_rows_is_reported_with_all_sources() -> None:
    source = make_source({"q": ("f32", (4, 8)), "k": ("f32", (3, 8))})

    with pytest.raises(
        ModelLoadError, match=r"expected 8 rows of x, got 7 from q \[4, 8\], k \[3, 8\]"
    ):
        make_plan([matrix("x", 8, 8, "q", "k")], source)


def test_quantized_tensors_are_found_by_the_mlc_name() -> None:
    source = make_source({"x.q_weight": ("u32", (4, 8)), "x.q_scale": ("f16", (4, 2))}, is_mlc=True)

    (planned,) = make_plan([matrix("x", 4, 40, "y.weight")], source).params

    (stored,) = planned.matrices
    assert stored.scales is not None
    fields = (stored.type, stored.rows, stored.tensor.offset, stored.scales.tensor.offset)
    assert fields == ("integers", 4, 0, 1000)
    assert stored.format == "u4g32f16z7"


@pytest.mark.parametrize(
    ("tensors", "message", "tensor"),
    [
        ({"x.q_weight": ("u32", (4, 8))}, "tensor is missing", "x.q_scale"),
        ({}, "tensor is missing", "x.weight"),
        (
            {"x.q_weight": ("u32", (4, 7)), "x.q_scale": ("f16", (4, 2))},
            r"wrong shape: expected \[4, 8\], got \[4, 7\]",
            "x.q_weight",
        ),
        (
            {"x.q_weight": ("u32", (4, 8)), "x.q_scale": ("f16", (2, 4))},
            r"wrong shape: expected \[4, 2\], got \[2, 4\]",
            "x.q_scale",
        ),
        (
            {"x.q_weight": ("u32", (4, 8)), "x.q_scale": ("u32", (4, 2))},
            "wrong dtype: expected f32, f16 or bf16, got u32",
            "x.q_scale",
        ),
        ({"x.weight": ("u32", (4, 40))}, "expected f32, f16 or bf16, got u32", "x.weight"),
    ],
)
def test_invalid_quantized_tensors_are_rejected(
    tensors: dict[str, tuple[str, tuple[int, ...]]], message: str, tensor: str
) -> None:
    with pytest.raises(ModelLoadError, match=message) as caught:
        make_plan([matrix("x", 4, 40)], make_source(tensors, is_mlc=True))

    assert caught.value.tensor == tensor


@pytest.mark.parametrize("matrix_format", ["f32", "f16", "bf16"])
def test_quantized_weights_may_be_converted_to_floats(matrix_format: str) -> None:
    source = make_source({"x.q_weight": ("u32", (4, 8)), "x.q_scale": ("f16", (4, 2))}, is_mlc=True)

    (planned,) = make_plan(
        [PackedParameter("x", "matrix", ((matrix_format, 4),), (4, 40), ())], source
    ).params

    assert [m.type for m in planned.matrices] == ["integers"]


def test_quantized_weights_are_rejected_for_another_quantization() -> None:
    source = make_source({"x.q_weight": ("u32", (4, 8)), "x.q_scale": ("f32", (4, 2))}, is_mlc=True)

    with pytest.raises(
        ModelLoadError, match="expected weights in the format q4, got u4g32f32z7"
    ) as caught:
        make_plan([matrix("x", 4, 40)], source)

    assert caught.value.tensor == "x.q_weight"


def experts(*sources: str) -> PackedParameter:
    return PackedParameter("x", "matrix", (("q4", 12),), (12, 40), sources, fused_source="all")


def test_a_fused_tensor_is_preferred_to_its_parts() -> None:
    parts = dict.fromkeys(("a", "b"), ("f32", (6, 40)))
    source = make_source({"all": ("bf16", (3, 4, 40)), **parts})

    (fused,) = make_plan([experts("a", "b")], source).params
    (separate,) = make_plan([experts("a", "b")], make_source(parts)).params

    assert [(m.tensor.offset, m.rows, m.type) for m in fused.matrices] == [(0, 12, "bf16")]
    assert [m.rows for m in separate.matrices] == [6, 6]


def test_rows_of_quantized_experts_may_span_several_axes() -> None:
    tensors = {"x.q_weight": ("u32", (3, 4, 8)), "x.q_scale": ("f16", (3, 4, 2))}

    (planned,) = make_plan([experts()], make_source(tensors, is_mlc=True)).params

    assert [(m.type, m.rows) for m in planned.matrices] == [("integers", 12)]


@pytest.mark.parametrize("shape", [(3, 40, 4), (2, 4, 40), (12, 1, 41)])
def test_several_axes_of_the_wrong_size_are_rejected(shape: tuple[int, ...]) -> None:
    with pytest.raises(ModelLoadError, match="wrong shape") as caught:
        make_plan([experts("a")], make_source({"all": ("f32", shape)}))

    assert caught.value.tensor == "all"
