"""The peers of the benchmarks: what they print, what they lack, and the servers under load."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import pytest

from benchmarks import random_llama
from benchmarks.first_token_under_load import StreamClock
from benchmarks.peer_servers import ServerSizes, servers
from benchmarks.suite.measured_engine import Setup, UnavailableError
from benchmarks.suite.peers import onnxruntime_genai
from benchmarks.suite.peers.ik_llamacpp import IkLlamaCppPeer, batch_rate
from benchmarks.suite.peers.peer_process import has_package
from benchmarks.suite.plan import DECODE_TOKENS, LONG_ROWS, ROWS, select

TABLE = """
main: n_kv_max = 2048, n_batch = 2048
|    PP |     TG |    B |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |      T s |    S t/s |
|-------|--------|------|--------|----------|----------|----------|----------|----------|----------|
|   128 |     64 |    1 |    192 |    0.108 |  1186.64 |    3.079 |    41.57 |    3.187 |    80.32 |
|   128 |     64 |    8 |   1536 |    0.751 |  1363.27 |    7.344 |   139.43 |    8.095 |   252.99 |
"""


def test_long_rows_are_measured_only_if_they_are_named() -> None:
    assert not set(LONG_ROWS) & set(select([]))
    assert not set(LONG_ROWS) & set(select(["decode", "prefill"]))
    assert [row.name for row in select(["prefill-16000", "decode-0"])] == [
        "decode-0",
        "prefill-16000",
    ]


def test_a_sequence_of_the_longest_rows_fits_into_a_context_of_16384() -> None:
    longest = max(row.size for row in (*ROWS, *LONG_ROWS))

    assert longest + 2 * DECODE_TOKENS <= 16_384


def test_the_rate_of_a_batch_is_that_of_its_row() -> None:
    assert batch_rate(TABLE, 8) == 139.43
    assert batch_rate(TABLE, 1) == 41.57
    with pytest.raises(RuntimeError, match="printed no row of 16 sequences"):
        batch_rate(TABLE, 16)


def _write_program(path: Path, output: str) -> None:
    path.write_text(f"#!/bin/sh\necho \"$@\" >&2\ncat <<'END'\n{output}\nEND\n")
    path.chmod(0o755)


def test_notes_before_the_results_of_ik_llama_are_skipped(tmp_path: Path) -> None:
    notes = '======== something about the device\n[\n  {"avg_ts": 41.5, "avg_ns": 1000000}\n]'
    _write_program(tmp_path / "llama-bench", notes)
    _write_program(tmp_path / "llama-batched-bench", TABLE)
    setup = Setup(tmp_path, 2, "q4f16_1")
    peer = IkLlamaCppPeer(setup, tmp_path, tmp_path / "model.gguf", "q4_0")

    meters = peer.meters()

    assert peer.name == "ik_llama.cpp q4_0"
    assert meters["decode"](0) == meters["decode"](512) == meters["prefill"](128) == 41.5
    assert meters["first-token"](16) == 1.0
    assert meters["batch"](8) == 139.43


def test_a_program_without_results_is_an_error(tmp_path: Path) -> None:
    _write_program(tmp_path / "llama-bench", "no device")
    _write_program(tmp_path / "llama-batched-bench", "")
    setup = Setup(tmp_path, 2, "q4f16_1")
    peer = IkLlamaCppPeer(setup, tmp_path, tmp_path / "model.gguf", "q4_0")

    with pytest.raises(RuntimeError, match="llama-bench printed no result: no device"):
        peer.meters()["prefill"](128)


def test_a_missing_program_names_its_target(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="llama-bench is missing"):
        IkLlamaCppPeer(Setup(tmp_path, 2, "q4f16_1"), tmp_path, tmp_path / "m.gguf", "q4_0")


def test_onnx_runtime_without_its_package_is_unavailable(tmp_path: Path) -> None:
    python = Path(sys.executable)
    assert onnxruntime_genai.is_installed(python) == has_package(python, "onnxruntime_genai")

    with pytest.raises(UnavailableError, match="does not have the package onnxruntime-genai"):
        onnxruntime_genai.make_peer(Setup(tmp_path, 2, "q4f16_1"), python)


def test_onnx_runtime_has_no_bfloat16_on_processors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnxruntime_genai, "is_installed", lambda _: True)

    with pytest.raises(UnavailableError, match="no type on CPUs similar to 'q0bf16'"):
        onnxruntime_genai.make_peer(Setup(tmp_path, 2, "q0bf16"), Path(sys.executable))


def test_the_builder_gets_an_end_token_and_its_model_is_built_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text('{"eos_token_id": null, "hidden_size": 64}')
    (model / "model.safetensors").write_text("weights")
    python = tmp_path / "python"
    # The builder's options: -m MODULE -i SOURCE -o TARGET ...
    python.write_text(
        "#!/bin/sh\n"
        f'echo "$@" >> {tmp_path}/calls\n'
        'mkdir "$6" && cp "$4/config.json" "$4/model.safetensors" "$6"\n'
        'touch "$6/genai_config.json"\n'
    )
    python.chmod(0o755)
    monkeypatch.setattr(onnxruntime_genai, "is_installed", lambda _: True)
    monkeypatch.setattr(onnxruntime_genai, "OfflinePeer", lambda name, program: program)
    setup = Setup(model, 2, "q4f16_1")

    programs = [onnxruntime_genai.make_peer(setup, python) for _ in range(2)]

    built = tmp_path / "model-onnxruntime-int4"
    assert [getattr(program, "model") for program in programs] == [built, built]  # noqa: B009
    assert json.loads((built / "config.json").read_bytes()) == {
        "eos_token_id": 2,
        "hidden_size": 64,
    }
    assert (built / "model.safetensors").read_text() == "weights"
    (call,) = (tmp_path / "calls").read_text().splitlines()
    assert "-e cpu -p int4" in call
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "calls",
        "model",
        "model-onnxruntime-int4",
        "python",
    ]


def test_a_kept_gguf_file_of_floats_is_quantized_and_not_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def convert(model: Path, source: Path, target: Path, kind: str, pre_tokenizer: str) -> None:
        target.write_text(kind)

    monkeypatch.setattr(random_llama, "convert", convert)
    quantize = tmp_path / "llama-quantize"
    quantize.write_text('#!/bin/sh\ncp "$1" "$2"\n')
    quantize.chmod(0o755)
    model = tmp_path / "model"

    random_llama.make_gguf(model, tmp_path, tmp_path, "q4_0")
    assert not (tmp_path / "model-bf16.gguf").exists()
    random_llama.make_gguf(model, tmp_path, tmp_path, "bf16")
    random_llama.make_gguf(model, tmp_path, tmp_path, "q8_0")

    assert (tmp_path / "model-bf16.gguf").exists()
    assert (tmp_path / "model-q8_0.gguf").read_text() == "bf16"


def test_a_clock_gives_the_rate_and_the_longest_pause_of_an_interval() -> None:
    clock = StreamClock(start=0.0)
    for stream, moment in ((0, 1.0), (1, 1.5), (0, 2.0), (1, 4.0), (0, 4.0)):
        clock.add(stream, moment)

    assert clock.take(5.0) == (1.0, 2.5)


def test_a_pause_that_lasts_to_the_end_of_an_interval_counts() -> None:
    clock = StreamClock(start=0.0)
    clock.add(0, 1.0)
    clock.add(1, 9.0)
    assert clock.take(10.0) == (0.2, 9.0)

    clock.add(0, 11.0)
    # The pause began in the interval before.
    assert clock.take(12.0) == (0.5, 10.0)


def test_the_servers_get_the_same_sizes(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").touch()
    (tmp_path / "llama-server").touch()
    arguments = argparse.Namespace(
        model=tmp_path,
        quantization="q4f16_1",
        threads=2,
        llama_cpp=tmp_path,
        llama_cpp_source=None,
        gguf=tmp_path / "model.gguf",
        vllm_python=None,
    )

    ours, llama = servers(arguments, ServerSizes(context=8192, sequences=9))

    assert "max_num_sequence=9;max_single_sequence_length=8192;num_threads=2" in ours.command
    assert llama.command[llama.command.index("-c") + 1] == str(9 * 8192)
    assert llama.command[llama.command.index("-np") + 1] == "9"
