"""A plan lays out every parameter, or says which tensor does not fit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiomlc.errors import ModelLoadError
from aiomlc.weights.formats.source import Source, SourceTensor
from aiomlc.weights.plan import Param, make_plan, packed_bytes, parse_params

DIRECTORY = Path("model")
FILE = DIRECTORY / "weights"


def make_source(
    tensors: Mapping[str, tuple[str, tuple[int, ...]]], *, is_mlc: bool = False
) -> Source:
    found = {
        name: SourceTensor(name, FILE, 1000 * number, dtype, shape)
        for number, (name, (dtype, shape)) in enumerate(tensors.items())
    }
    return Source(DIRECTORY, DIRECTORY / "index", found, (FILE,), is_mlc)


def matrix(name: str, rows: int, cols: int, *sources: str) -> Param:
    return Param(name, "matrix", "q4", (rows, cols), sources)


def test_metadata_becomes_parameters_in_order() -> None:
    records = [
        {"name": "x", "kind": "matrix", "format": "q4", "shape": [8, 4], "sources": ["a", "b"]},
        {"name": "n", "kind": "vector", "format": "f32", "shape": [4], "sources": ["n"]},
    ]

    params = parse_params(records)

    assert params == (
        Param("x", "matrix", "q4", (8, 4), ("a", "b")),
        Param("n", "vector", "f32", (4,), ("n",)),
    )


@pytest.mark.parametrize(
    ("param", "nbytes"),
    [
        (Param("x", "matrix", "q4", (17, 33), ()), 2 * 2 * 288),
        (Param("x", "matrix", "bf16", (17, 33), ()), 32 * 33 * 2),
        (Param("x", "matrix", "f32", (16, 33), ()), 16 * 33 * 4),
        (Param("x", "vector", "f32", (33,), ()), 33 * 4),
    ],
)
def test_packed_sizes_include_the_padding(param: Param, nbytes: int) -> None:
    assert packed_bytes(param) == nbytes


@given(rows=st.lists(st.integers(1, 200), min_size=1, max_size=8))
def test_parameters_are_aligned_and_do_not_overlap(rows: list[int]) -> None:
    params = [
        Param(
            f"p{i}", "vector" if i % 2 else "matrix", "f32", (n,) if i % 2 else (n, 7), (f"p{i}",)
        )
        for i, n in enumerate(rows)
    ]
    source = make_source({param.name: ("f32", param.shape) for param in params})

    plan = make_plan(params, source)

    end = 0
    for planned in plan.params:
        assert planned.offset >= end
        assert planned.offset % (4096 if planned.param.kind == "matrix" else 64) == 0
        end = planned.offset + planned.nbytes

    assert plan.nbytes == end


def test_sources_are_concatenated_in_their_order() -> None:
    source = make_source({"v": ("f16", (2, 8)), "q": ("bf16", (4, 8)), "k": ("f32", (2, 8))})

    (planned,) = make_plan([matrix("qkv", 8, 8, "q", "k", "v")], source).params

    assert [(piece.offset, piece.rows, piece.type) for piece in planned.slices] == [
        (1000, 4, "bf16"),
        (2000, 2, "f32"),
        (0, 2, "f16"),
    ]


def test_a_missing_tensor_is_named_with_the_index() -> None:
    with pytest.raises(ModelLoadError, match="b: tensor is missing") as caught:
        make_plan([matrix("x", 8, 8, "a", "b")], make_source({"a": ("f32", (4, 8))}))

    assert caught.value.path == DIRECTORY / "index"
    assert caught.value.tensor == "b"


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((8, 9), r"wrong shape: \[8, 9\], expected \[8, 8\]"),
        ((9, 8), r"wrong shape: \[9, 8\], expected \[8, 8\]"),
        ((64,), r"wrong shape: \[64\], expected \[8, 8\]"),
        ((8, 8, 1), r"wrong shape: \[8, 8, 1\], expected \[8, 8\]"),
    ],
)
def test_a_wrong_shape_says_what_was_found_and_what_is_expected(
    shape: tuple[int, ...], message: str
) -> None:
    with pytest.raises(ModelLoadError, match=message) as caught:
        make_plan([matrix("x", 8, 8, "a")], make_source({"a": ("f32", shape)}))

    assert caught.value.path == FILE
    assert caught.value.tensor == "a"


def test_a_tensor_of_a_foreign_type_is_refused_only_when_it_is_needed() -> None:
    source = make_source({"a": ("F8_E4M3", (8, 8)), "b": ("f32", (8, 8))})

    make_plan([matrix("x", 8, 8, "b")], source)
    with pytest.raises(
        ModelLoadError, match="type is F8_E4M3, expected f32, f16 or bf16"
    ) as caught:
        make_plan([matrix("x", 8, 8, "a")], source)

    assert caught.value.tensor == "a"


def test_parts_that_do_not_add_up_are_all_named() -> None:
    source = make_source({"q": ("f32", (4, 8)), "k": ("f32", (3, 8))})

    with pytest.raises(
        ModelLoadError, match=r"q \[4, 8\], k \[3, 8\] make 7 rows of x, expected 8"
    ):
        make_plan([matrix("x", 8, 8, "q", "k")], source)


def test_quantised_tensors_are_found_by_the_name_of_the_parameter() -> None:
    source = make_source({"x.q_weight": ("u32", (4, 8)), "x.q_scale": ("f16", (4, 2))}, is_mlc=True)

    (planned,) = make_plan([matrix("x", 4, 40, "y.weight")], source).params

    (piece,) = planned.slices
    assert (piece.type, piece.rows, piece.offset, piece.scale_offset) == ("q4", 4, 0, 1000)


@pytest.mark.parametrize(
    ("tensors", "message", "tensor"),
    [
        ({"x.q_weight": ("u32", (4, 8))}, "tensor is missing", "x.q_scale"),
        ({}, "tensor is missing", "x.weight"),
        (
            {"x.q_weight": ("u32", (4, 7)), "x.q_scale": ("f16", (4, 2))},
            r"wrong shape: \[4, 7\], expected \[4, 8\]",
            "x.q_weight",
        ),
        (
            {"x.q_weight": ("u32", (4, 8)), "x.q_scale": ("f16", (2, 4))},
            r"wrong shape: \[2, 4\], expected \[4, 2\]",
            "x.q_scale",
        ),
        (
            {"x.q_weight": ("u32", (4, 8)), "x.q_scale": ("f32", (4, 2))},
            "type is f32, expected f16",
            "x.q_scale",
        ),
        ({"x.weight": ("u32", (4, 40))}, "type is u32, expected f32, f16 or bf16", "x.weight"),
    ],
)
def test_wrong_quantised_tensors_are_refused(
    tensors: dict[str, tuple[str, tuple[int, ...]]], message: str, tensor: str
) -> None:
    with pytest.raises(ModelLoadError, match=message) as caught:
        make_plan([matrix("x", 4, 40)], make_source(tensors, is_mlc=True))

    assert caught.value.tensor == tensor


def test_quantised_weights_cannot_serve_an_unquantised_library() -> None:
    source = make_source({"x.q_weight": ("u32", (4, 8)), "x.q_scale": ("f16", (4, 2))}, is_mlc=True)

    with pytest.raises(ModelLoadError, match="quantised to 4 bits, expected bf16"):
        make_plan([Param("x", "matrix", "bf16", (4, 40), ())], source)


def experts(*sources: str) -> Param:
    return Param("x", "matrix", "q4", (12, 40), sources, whole="all")


def test_one_tensor_for_all_parts_takes_their_place() -> None:
    parts = dict.fromkeys(("a", "b"), ("f32", (6, 40)))
    source = make_source({"all": ("bf16", (3, 4, 40)), **parts})

    (whole,) = make_plan([experts("a", "b")], source).params
    (apart,) = make_plan([experts("a", "b")], make_source(parts)).params

    assert [(piece.offset, piece.rows, piece.type) for piece in whole.slices] == [(0, 12, "bf16")]
    assert [piece.rows for piece in apart.slices] == [6, 6]


def test_quantised_rows_may_be_several_axes() -> None:
    tensors = {"x.q_weight": ("u32", (3, 4, 8)), "x.q_scale": ("f16", (3, 4, 2))}

    (planned,) = make_plan([experts()], make_source(tensors, is_mlc=True)).params

    assert [(piece.type, piece.rows) for piece in planned.slices] == [("q4", 12)]


@pytest.mark.parametrize("shape", [(3, 40, 4), (2, 4, 40), (12, 1, 41)])
def test_several_axes_of_another_size_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ModelLoadError, match="wrong shape") as caught:
        make_plan([experts("a")], make_source({"all": ("f32", shape)}))

    assert caught.value.tensor == "all"
