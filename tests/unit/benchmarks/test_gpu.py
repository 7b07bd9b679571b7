"""The benchmarks of GPUs: what `ptxas` tells of kernels, and a machine without a GPU."""

from __future__ import annotations

import json
from pathlib import Path
from unittest import mock

import pytest

from aiomlc import BadRequestError
from aiomlc.models import read_description
from benchmarks import gpu, gpu_parity
from benchmarks.cuda_kernels import Kernel, parse_log
from benchmarks.gpu_parity import CASES, Parity, check_parity
from benchmarks.gpu_peers import PeerSpeed, measure_peer
from benchmarks.model_shapes import SHAPES
from tests.model.tiny_models import TINY_CONFIGS

_LOG = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'batch_prefill_paged_kv_kernel' for 'sm_90a'
ptxas info    : Function properties for batch_prefill_paged_kv_kernel
    48 bytes stack frame, 32 bytes spill stores, 64 bytes spill loads
ptxas info    : Used 96 registers, used 1 barriers, 12672 bytes smem
ptxas info    : Compiling entry function 'batch_tree_attn_kernel' for 'sm_90a'
ptxas info    : Function properties for batch_tree_attn_kernel
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers, used 0 barriers
"""


def test_the_resources_of_each_kernel_are_read() -> None:
    prefill, tree = parse_log(_LOG)

    assert prefill == Kernel("batch_prefill_paged_kv_kernel", 96, 48, 96)
    assert tree == Kernel("batch_tree_attn_kernel", 8, 0, 0)
    assert prefill.is_hot
    assert not tree.is_hot


@pytest.mark.parametrize("name", SHAPES)
def test_every_shape_is_a_model(name: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(SHAPES[name]))

    assert read_description(tmp_path).config.num_hidden_layers > 0


def test_without_a_gpu_the_benchmark_says_so_and_ends_with_3(
    capsys: pytest.CaptureFixture[str],
) -> None:
    missing = BadRequestError("device 'cuda': NVIDIA's driver is missing", param="device")
    with mock.patch.object(gpu, "find_device", side_effect=missing):
        assert gpu.main([]) == 3

    assert "NVIDIA's driver is missing" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "is_wrong"), [(None, True), (1e-5, False), (0.1, True), (float("nan"), True)]
)
def test_logits_that_differ_or_are_missing_are_wrong(error: float | None, is_wrong: bool) -> None:
    assert Parity("llama", "q0f32", error).is_wrong == is_wrong


def test_every_tiny_model_is_compared_with_transformers() -> None:
    assert {model for model, quantization in CASES if quantization == "q0f32"} == set(TINY_CONFIGS)


@pytest.mark.parametrize(
    ("results", "status", "summary"),
    [
        ([Parity("llama", "q0f32", 1e-5), Parity("gemma", "q0f32", 2e-5)], 0, "2 of 2 are right"),
        ([Parity("llama", "q0f32", 0.5), Parity("gemma", "q0f32", 2e-5)], 1, "1 of 2 are right"),
        ([Parity("llama", "q0f32", None, "exit status -11: ")], 1, "0 of 1 are right"),
    ],
)
def test_a_model_that_is_wrong_or_has_no_logits_ends_the_benchmark_with_1(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    results: list[Parity],
    status: int,
    summary: str,
) -> None:
    monkeypatch.setattr(gpu, "CASES", [(each.model, each.quantization) for each in results])
    monkeypatch.setattr(gpu, "check_parity", lambda device: iter(results))
    output = tmp_path / "gpu.json"

    assert gpu.main(["--device", "cpu", "--no-speed", "--json", str(output)]) == status

    table = capsys.readouterr().out
    assert summary in table
    assert table.count("**wrong**") == sum(result.is_wrong for result in results)
    stored = [Parity(**fields) for fields in json.loads(output.read_text())["parity"]]
    assert stored == results


def test_a_model_whose_process_ends_has_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lost_device.py").write_text("raise RuntimeError('the device is lost')")
    monkeypatch.setattr(gpu_parity, "_ROOT", tmp_path)
    monkeypatch.setattr(gpu_parity, "__name__", "lost_device")

    (parity,) = check_parity("opencl", [("llama", "q0f32")])

    assert parity.is_wrong
    assert parity.problem == "exit status 1: RuntimeError: the device is lost"


def test_a_device_that_is_absent_is_the_problem_of_the_model() -> None:
    (parity,) = check_parity("opencl:99", [("llama", "q0f32")])

    assert parity.error is None
    assert parity.problem.startswith(("device 'opencl'", "Device is not found"))


def test_speeds_of_peers_stand_beside_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    speeds = {"prompt of 8": 50.0, "1 streams": 20.0}
    peers = {
        "transformers": PeerSpeed("transformers", speeds),
        "vllm": PeerSpeed("vllm", {}, "is not installed"),
    }
    ours = [gpu.Speed("prompt of 8", 90.0, None, 0.5), gpu.Speed("1 streams", 40.0, 0.25)]
    monkeypatch.setattr(gpu, "write_random_model", lambda directory, config: None)
    monkeypatch.setattr(gpu, "measure_peer", lambda name, *_: peers[name])
    monkeypatch.setattr(gpu, "measure_speed", lambda *_: iter(ours))

    assert gpu.main(["--device", "cpu", "--no-parity", "--json", str(tmp_path / "gpu.json")]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert "vllm: is not installed" in lines
    assert "| prompt of 8 | 90.0 | - | 50% | 50.0 |" in lines
    assert "| 1 streams | 40.0 | 25% | - | 20.0 |" in lines


def test_a_peer_that_is_not_installed_or_fails_has_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert measure_peer("vllm", tmp_path, "cuda", [1], 8).problem == "is not installed"

    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    problem = measure_peer("vllm", tmp_path, "cpu", [1], 8).problem
    assert problem == "exit status 1: vLLM is measured on CUDA only"


@pytest.mark.timeout(120)
def test_transformers_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    monkeypatch.setenv("TORCHDYNAMO_DISABLE", "1")  # Without the compiler, which takes a minute.
    config = transformers.LlamaConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2
    )
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path)

    speed = measure_peer("transformers", tmp_path, "cpu", [1, 2], 16)

    assert speed.problem == ""
    assert [*speed.tokens_per_second] == ["prompt of 16", "1 streams", "2 streams"]


def test_the_benchmark_measures_a_named_device(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        gpu.main(["--device", "auto"])

    assert "--device must name the device" in capsys.readouterr().err
