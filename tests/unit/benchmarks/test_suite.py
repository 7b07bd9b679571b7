"""The benchmark suite's arithmetic: which rows are chosen, ratios, shares and the table."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.interleaved import Sample
from benchmarks.suite.contestant import UnavailableError
from benchmarks.suite.machine import MachineLimits, best_limits
from benchmarks.suite.plan import ROWS, Row, select
from benchmarks.suite.results import Result, as_json, as_markdown, better_by
from benchmarks.suite.rival_process import RivalProcess, has_package
from benchmarks.suite.shares import ModelCosts, read_costs, share_of_limit

LIMITS = MachineLimits(20.0, 1000.0, 4000.0, 200.0)
COSTS = ModelCosts(weight_bytes=500_000_000, kv_bytes=1000, block_parameters=10**9, is_q4=True)
LOAD = Row("load", "Load", "s")
PREFILL = Row("prefill", "Prefill", "tokens/s", 512, True, True)


def _result(row: Row, share: float | None = None, **medians: list[float]) -> Result:
    samples = {name: [Sample(value, 0.5) for value in row] for name, row in medians.items()}
    return Result(row, samples, share)


def test_row_names_are_unique() -> None:
    names = [row.name for row in ROWS]

    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        (["decode"], ["decode-0", "decode-1024", "decode-4096"]),
        (["batch-16", "load"], ["load", "batch-16"]),
        ([], [row.name for row in ROWS]),
    ],
)
def test_rows_are_selected_by_name_or_kind(names: list[str], chosen: list[str]) -> None:
    assert [row.name for row in select(names)] == chosen


def test_an_unknown_row_is_named() -> None:
    with pytest.raises(ValueError, match=r"no measure 'decode-7'.*batch-16"):
        select(["load", "decode-7"])


@pytest.mark.parametrize(
    ("ours", "theirs", "more_is_better", "ratio"),
    [
        (30.0, 20.0, True, 1.5),
        (30.0, 20.0, False, 2 / 3),
        (0.0, 20.0, False, None),
        (None, 20.0, True, None),
        (30.0, None, True, None),
    ],
)
def test_ratio_above_one_means_better(
    ours: float | None, theirs: float | None, more_is_better: bool, ratio: float | None
) -> None:
    assert better_by(ours, theirs, more_is_better=more_is_better) == ratio


def test_table_leaves_out_what_was_not_measured() -> None:
    results = [
        _result(PREFILL, 0.25, ours=[1234.0, 1200.0, 1300.0], theirs=[617.0]),
        _result(LOAD, ours=[0.5]),
    ]

    assert as_markdown(results, ["ours", "theirs"]).splitlines() == [
        "|  | unit | ours | theirs | ratio | share of limit |",
        "| --- | --- | --- | --- | --- | --- |",
        "| Prefill | tokens/s | 1,234 | 617 | 2.00 | 25% |",
        "| Load | s | 0.5 | - | - | - |",
    ]


def test_record_keeps_every_sample_with_its_load() -> None:
    record = as_json([_result(LOAD, ours=[2.0], theirs=[3.0])], ["ours", "theirs"], [LIMITS], {})

    row = json.loads(json.dumps(record))["rows"][0]
    assert row["samples"]["theirs"] == [{"value": 3.0, "load": 0.5}]
    assert row["ratio"] == {"theirs": 1.5}


def test_decoding_is_limited_by_memory() -> None:
    row = Row("decode", "", "tokens/s", 936, True, True)  # 1,000 tokens on average.

    assert share_of_limit(row, 20.0, COSTS, LIMITS) == pytest.approx(20 * 501e6 / 20e9)


def test_streams_share_the_weights_but_not_the_cache() -> None:
    row = Row("batch", "", "tokens/s", 10, True, True)  # 160 tokens on average.

    expected = 100 * (50e6 + 160e3) / 20e9
    assert share_of_limit(row, 100.0, COSTS, LIMITS) == pytest.approx(expected)


def test_prefill_is_limited_by_the_faster_int8_unit() -> None:
    vectors = MachineLimits(20.0, 1000.0, None, 200.0)
    neither = MachineLimits(20.0, None, None, 200.0)

    assert share_of_limit(PREFILL, 200.0, COSTS, LIMITS) == pytest.approx(0.1)
    assert share_of_limit(PREFILL, 200.0, COSTS, vectors) == pytest.approx(0.4)
    assert share_of_limit(PREFILL, 200.0, COSTS, neither) is None


def test_limits_are_the_best_that_was_seen() -> None:
    samples = [MachineLimits(rate, 10 * rate, None, 1.0) for rate in (3.0, 1.0, 2.0)]

    assert best_limits(samples) == MachineLimits(3.0, 30.0, None, 1.0)


@pytest.mark.parametrize(("tied", "weight_bytes"), [(True, 700), (False, 900)])
def test_costs_come_from_the_packed_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tied: bool, weight_bytes: int
) -> None:
    model = tmp_path / "model"
    _write_packed(tmp_path, model, tied=tied)
    monkeypatch.setenv("AIOMLC_HOME", str(tmp_path))

    costs = read_costs(model, "q4f16_1")

    assert costs == ModelCosts(weight_bytes, 2 * 2 * 2 * 8 * 2, 4 * 8, is_q4=True)
    assert read_costs(model, "q4f16_1", "int8").kv_bytes == 2 * 2 * 2 * (8 + 4)


def test_weights_that_were_not_packed_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIOMLC_HOME", str(tmp_path))

    with pytest.raises(UnavailableError, match="no packed weights of some-model as q0f32"):
        read_costs(Path("some-model"), "q0f32")


def _write_packed(home: Path, model: Path, *, tied: bool) -> None:
    """A packed file of 700 bytes; an embedding beside a head adds 300, of which 200 are its own."""
    params: list[dict[str, Any]] = [
        {"name": "model.embed_tokens", "kind": "matrix", "format": "q4", "shape": [16, 8]},
        {"name": "model.norm.weight", "kind": "vector", "format": "f32", "shape": [8]},
        {"name": "block.weight", "kind": "matrix", "format": "q4", "shape": [4, 8]},
    ]
    offsets = [[0, 100 if tied else 200], [300, 32], [400, 300]]
    if not tied:
        head = {"name": "lm_head", "kind": "matrix", "format": "q4", "shape": [16, 8]}
        params.append(head)
        offsets.append([700, 400])

    entry = home / "weights" / "key"
    entry.mkdir(parents=True)
    (entry / "params.bin").write_bytes(bytes(700 if tied else 1100))
    index = {"model": str(model.resolve()), "params": params, "offsets": offsets}
    (entry / "index.json").write_text(json.dumps(index))
    model.mkdir()
    config = {
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "hidden_size": 32,
    }
    (model / "config.json").write_text(json.dumps(config))


def test_a_rival_that_ends_says_why() -> None:
    with pytest.raises(RuntimeError, match=r"ended with 1:\n.*no rival 'nobody'"):
        RivalProcess(Path(sys.executable), ["nobody", "model", "2"])


def test_an_interpreter_without_the_package_takes_no_part() -> None:
    assert has_package(Path(sys.executable), "pytest")
    assert not has_package(Path(sys.executable), "no_such_package")
