"""The benchmark suite: row selection, ratios, fractions of the limits, tables and peers."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from aiomlc.cache.files import write_sealed
from benchmarks.interleaved import Sample
from benchmarks.suite.machine import MachineLimits
from benchmarks.suite.measured_engine import UnavailableError
from benchmarks.suite.peers.peer_process import PeerProcess, has_package
from benchmarks.suite.plan import ROWS, Row, select
from benchmarks.suite.results import Result, as_json, as_markdown, speedup
from benchmarks.suite.utilization import ModelCosts, fraction_of_limit, read_costs

LIMITS = MachineLimits(20.0, 1000.0, 4000.0, 200.0)
COSTS = ModelCosts(weight_bytes=500_000_000, kv_bytes=1000, block_parameters=10**9, is_q4=True)
LOAD = Row("load", "Load", "s")
PREFILL = Row("prefill", "Prefill", "tokens/s", 512, True, True)


def _result(row: Row, fractions: Sequence[float] = (), **values: list[float]) -> Result:
    samples = {name: [Sample(value, 0.5) for value in series] for name, series in values.items()}
    return Result(row, samples, [LIMITS], fractions)


def test_row_names_are_unique() -> None:
    names = [row.name for row in ROWS]

    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("names", "selected"),
    [
        (["decode"], ["decode-0", "decode-1024", "decode-4096"]),
        (["batch-16", "load"], ["load", "batch-16"]),
        ([], [row.name for row in ROWS]),
    ],
)
def test_rows_are_selected_by_name_or_kind(names: list[str], selected: list[str]) -> None:
    assert [row.name for row in select(names)] == selected


def test_unknown_row_name_is_rejected() -> None:
    with pytest.raises(ValueError, match=r"unknown measurement 'decode-7'.*batch-16"):
        select(["load", "decode-7"])


@pytest.mark.parametrize(
    ("value", "peer", "more_is_better", "ratio"),
    [
        (30.0, 20.0, True, 1.5),
        (30.0, 20.0, False, 2 / 3),
        (0.0, 20.0, False, None),
        (None, 20.0, True, None),
        (30.0, None, True, None),
    ],
)
def test_speedup_above_one_means_better(
    value: float | None, peer: float | None, more_is_better: bool, ratio: float | None
) -> None:
    assert speedup(value, peer, more_is_better=more_is_better) == ratio


def test_table_shows_missing_values_as_dashes() -> None:
    results = [
        _result(PREFILL, [0.2, 0.3, 0.25], aiomlc=[1234.0, 1200.0, 1300.0], peer=[617.0] * 3),
        _result(LOAD, aiomlc=[0.5]),
    ]

    assert as_markdown(results, ["aiomlc", "peer"]).splitlines() == [
        "|  | unit | aiomlc | peer | ratio | fraction of limit |",
        "| --- | --- | --- | --- | --- | --- |",
        "| Prefill | tokens/s | 1,234 | 617 | 2.00 (1.94 to 2.11) | 25% (20% to 30%) |",
        "| Load | s | 0.5 | - | - | - |",
    ]


def test_record_keeps_every_sample_with_its_load() -> None:
    record = as_json([_result(LOAD, aiomlc=[2.0], peer=[3.0])], ["aiomlc", "peer"], {})

    row = json.loads(json.dumps(record))["rows"][0]
    assert row["samples"]["peer"] == [{"value": 3.0, "load": 0.5}]
    assert row["ratio"] == {"peer": 1.5}
    assert row["machine_limits"][0]["dram_read_gb_s"] == LIMITS.dram_read_gb_s


def test_decode_is_limited_by_memory() -> None:
    row = Row("decode", "", "tokens/s", 936, True, True)  # 1,000 tokens on average.

    assert fraction_of_limit(row, 20.0, COSTS, LIMITS) == pytest.approx(20 * 501e6 / 20e9)


def test_streams_of_a_batch_share_weights_but_not_the_kv_cache() -> None:
    row = Row("batch", "", "tokens/s", 10, True, True)  # 160 tokens on average.

    expected = 100 * (50e6 + 160e3) / 20e9
    assert fraction_of_limit(row, 100.0, COSTS, LIMITS) == pytest.approx(expected)


def test_prefill_is_limited_by_the_faster_int8_unit() -> None:
    without_amx = MachineLimits(20.0, 1000.0, None, 200.0)
    without_int8 = MachineLimits(20.0, None, None, 200.0)

    assert fraction_of_limit(PREFILL, 200.0, COSTS, LIMITS) == pytest.approx(0.1)
    assert fraction_of_limit(PREFILL, 200.0, COSTS, without_amx) == pytest.approx(0.4)
    assert fraction_of_limit(PREFILL, 200.0, COSTS, without_int8) is None


@pytest.mark.parametrize(("tied", "weight_bytes"), [(True, 700), (False, 900)])
def test_costs_are_computed_from_the_packed_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tied: bool, weight_bytes: int
) -> None:
    model = tmp_path / "model"
    _write_packed(tmp_path, model, tied=tied)
    monkeypatch.setenv("AIOMLC_HOME", str(tmp_path))

    costs = read_costs(model, "q4f16_1")

    assert costs == ModelCosts(weight_bytes, 2 * 2 * 2 * 8 * 2, 4 * 8, is_q4=True)
    assert read_costs(model, "q4f16_1", "int8").kv_bytes == 2 * 2 * 2 * (8 + 4)


def test_missing_packed_weights_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIOMLC_HOME", str(tmp_path))

    with pytest.raises(UnavailableError, match="no packed weights of some-model as q0f32"):
        read_costs(Path("some-model"), "q0f32")


def _write_packed(home: Path, model: Path, *, tied: bool) -> None:
    """Write packed weights of 700 bytes, or 1,100 with 200 for the embedding and 400 for a head."""
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
    info = {"model": str(model.resolve()), "quantization": "q4f16_1"}
    content = {"info": {**info, "params": params, "offsets": offsets}}
    write_sealed(entry / "manifest.json", content)
    model.mkdir()
    config = {
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "hidden_size": 32,
    }
    (model / "config.json").write_text(json.dumps(config))


def test_failure_of_a_peer_process_includes_its_stderr() -> None:
    with pytest.raises(RuntimeError, match=r"exited with status 1:\n.*unknown peer 'nobody'"):
        PeerProcess(Path(sys.executable), ["nobody", "model", "2"])


def test_has_package_finds_installed_packages_only() -> None:
    assert has_package(Path(sys.executable), "pytest")
    assert not has_package(Path(sys.executable), "no_such_package")
