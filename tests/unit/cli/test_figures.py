"""The figures of responses and of the engine."""

from __future__ import annotations

import pytest

from aiomlc.cli.terminal.figures import ResponseFigures


@pytest.mark.parametrize(
    ("figures", "expected"),
    [
        (
            ResponseFigures(11, 0.05, 10, 2.0, 5, "stop"),
            "11 tokens, first after 50 ms, 5.0 tokens/s",
        ),
        (
            ResponseFigures(1, 0.05, 0, 0.0, 5, "length"),
            "1 token, first after 50 ms, cut off: the limit of max_tokens",
        ),
        (
            ResponseFigures(1, 0.05, 0, 0.0, 5, "length", fills_context=True),
            "1 token, first after 50 ms, cut off: the context is full",
        ),
        (ResponseFigures(1, 0.0, 0, 0.0, 5, "stop"), "1 token, the answer is empty"),
        (ResponseFigures(first_token_seconds=0.05), "stopped"),
    ],
)
def test_response_figures_are_formatted(figures: ResponseFigures, expected: str) -> None:
    assert str(figures) == expected
