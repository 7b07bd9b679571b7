"""Tests of the rounding that `benchmarks.four_bits` simulates."""

import pytest

torch = pytest.importorskip("torch")

from benchmarks.four_bits import Progressive, blur, hadamard, round_inputs, row_scales  # noqa: E402


@pytest.mark.parametrize("group", [32, 64, 128])
@pytest.mark.parametrize("search", [False, True])
def test_a_progressive_group_has_16_integers_with_equal_steps(group: int, search: bool) -> None:
    weights = torch.randn(8, 320, generator=torch.Generator().manual_seed(0))
    weights[1] *= 100
    weights[2, 7] = 1000.0
    weights[3] = 0.25

    scale = row_scales(weights, group)
    integers = Progressive(group).integers(weights / scale, search=search)

    assert torch.equal(integers, integers.round())
    assert -128 <= integers.min() <= integers.max() <= 127
    for row in integers:
        for part in row.split(group):
            levels = (part - part.min()).int().tolist()
            assert any(
                all(level % each == 0 and level // each <= 15 for level in levels)
                for each in range(1, 18)
            )


def test_searched_scales_have_no_greater_error() -> None:
    weights = torch.randn(16, 512, generator=torch.Generator().manual_seed(1))
    for group in (32, 128):
        errors = [
            (Progressive(group)(weights, search=search) - weights).norm()
            for search in (False, True)
        ]
        assert errors[1] < errors[0] < 0.12 * weights.norm()


def test_a_rotation_is_orthonormal_in_blocks() -> None:
    values = torch.randn(3, 96, generator=torch.Generator().manual_seed(2))
    unit = torch.zeros(1, 96)
    unit[0, 40] = 1.0

    assert torch.allclose(hadamard(hadamard(values, 256), 256), values, atol=1e-6)
    assert torch.allclose(hadamard(values, 32).norm(dim=1), values.norm(dim=1))
    assert hadamard(unit, 32)[0].nonzero().ravel().tolist() == list(range(32, 64))
    assert torch.equal(hadamard(values, 1), values)


def test_inputs_have_127_levels_of_either_sign_per_group_or_token() -> None:
    inputs = torch.tensor([[1.0, 0.004, 12.7, 0.06]])

    assert torch.allclose(round_inputs(inputs, 2)[0, :2], torch.tensor([1.0, 1 / 127]))
    assert torch.allclose(round_inputs(inputs, 0), torch.tensor([[1.0, 0.0, 12.7, 0.1]]))
    assert torch.equal(round_inputs(torch.zeros(1, 4), 0), torch.zeros(1, 4))


def test_only_quantized_weights_are_blurred() -> None:
    floats = torch.randn(2, 64, generator=torch.Generator().manual_seed(3))
    quantized = (floats * 2).round() / 2

    moved = (blur(quantized) - quantized).abs()

    assert torch.equal(blur(floats), floats)
    assert 0 < moved.max() <= 0.25
