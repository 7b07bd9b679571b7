"""The checks of `aiomlc doctor` on machines that are spoiled."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from aiomlc.cli.jobs.doctor_checks import (
    check_cores,
    check_huge_pages,
    check_processor,
    check_versions,
)
from aiomlc.cli.jobs.doctor_speed import measure_speed
from aiomlc.runtime.native.platform import active_isa
from tests.files import write_files

THP = "sys/kernel/mm/transparent_hugepage/enabled"


@pytest.mark.parametrize(
    ("files", "advice"),
    [
        ({THP: "always madvise [never]\n"}, f"echo madvise > /{THP}"),
        ({}, "CONFIG_TRANSPARENT_HUGEPAGE"),
    ],
)
def test_missing_huge_pages_are_named_with_the_remedy(
    tmp_path: Path, files: dict[str, str], advice: str
) -> None:
    finding = check_huge_pages(write_files(tmp_path, files))

    assert finding.topic == "huge pages"
    assert finding.remedy is not None
    assert advice in finding.remedy


@pytest.mark.parametrize("setting", ["[always] madvise never", "always [madvise] never"])
def test_huge_pages_on_request_are_enough(tmp_path: Path, setting: str) -> None:
    assert check_huge_pages(write_files(tmp_path, {THP: setting})).remedy is None


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two processors")
def test_a_control_group_of_one_core_is_named_with_the_remedy(tmp_path: Path) -> None:
    files = {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "100000 100000\n"}
    finding = check_cores(write_files(tmp_path, files))

    assert finding.topic == "threads"
    assert finding.remedy is not None
    assert finding.remedy.startswith("the control group allows 1 of ")
    assert "docker --cpus=" in finding.remedy


def test_the_flags_that_the_next_tier_needs_are_named(tmp_path: Path) -> None:
    files = {"proc/cpuinfo": "processor : 0\nflags : fpu avx2 fma f16c avx512f\n"}
    finding = check_processor(write_files(tmp_path, files))

    assert finding.text.startswith(active_isa())
    if active_isa() == "avx2":
        assert "avx512 needs avx512bw, avx512vl, avx512dq, avx512_vnni" in finding.text
    if active_isa() == "avx512":
        assert finding.text.endswith("amx needs avx512_vnni, amx_tile, amx_int8")


def test_the_packages_that_compute_are_listed() -> None:
    assert {"apache-tvm ", "llguidance "} <= {
        text[: text.index(" ") + 1] for text in check_versions().text.split(", ")
    }


def test_a_home_that_cannot_be_written_is_named_with_the_remedy() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "aiomlc", "doctor", "--json", "--no-benchmark"],
        env={**os.environ, "AIOMLC_HOME": "/proc/home"},  # Where no user may write.
        capture_output=True,
        text=True,
        check=True,
    )
    (cache,) = (item for item in json.loads(result.stdout)["findings"] if item["topic"] == "cache")

    assert cache["text"].startswith("/proc/home cannot be written")
    assert cache["remedy"] == "set AIOMLC_HOME to a directory that can be written"


@pytest.mark.thorough
def test_the_benchmark_measures_rates_of_all_threads() -> None:
    speed = measure_speed(2)

    assert speed.threads == 2
    assert 0 < speed.decode_gb_s <= speed.memory_gb_s
    assert 0 < speed.prefill_gop_s <= speed.int8_gop_s


def test_a_lower_tier_than_the_processors_is_named_with_the_remedy() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "aiomlc", "doctor", "--no-benchmark"],
        env={**os.environ, "AIOMLC_ISA": "portable"},
        capture_output=True,
        text=True,
        check=True,
    )

    if active_isa() != "portable":
        assert f"processor: unset AIOMLC_ISA: the processor has {active_isa()}" in result.stdout
