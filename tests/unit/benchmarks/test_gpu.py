"""The benchmarks of GPUs: what `ptxas` tells of kernels, and a machine without a GPU."""

from __future__ import annotations

import json
from pathlib import Path
from unittest import mock

import pytest

from aiomlc import BadRequestError
from aiomlc.models import read_description
from benchmarks import gpu
from benchmarks.cuda_kernels import Kernel, parse_log
from benchmarks.gpu import Parity
from benchmarks.model_shapes import SHAPES

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
    ("error", "is_wrong"), [(None, False), (1e-5, False), (0.1, True), (float("nan"), True)]
)
def test_logits_that_differ_are_wrong(error: float | None, is_wrong: bool) -> None:
    assert Parity("llama", "q0f32", error).is_wrong == is_wrong
