"""Samples of perf become kinds of work, and those a table with what is not a kernel."""

from __future__ import annotations

import pytest

from benchmarks.perf_record import Sample, kind_of, read_samples, step_thread
from benchmarks.where_time_goes import Profile, as_table

OURS = "libaiomlc.so"
MACHINE = Sample(2, 1_000, "tvm::runtime::vm::VirtualMachineImpl::RunLoop()", "libtvm_runtime.so")


def test_lines_of_perf_become_samples() -> None:
    lines = [
        " 20168  500250  55afd60a1181 aiomlc::(anonymous namespace)::Q4(int) (/a b/libaiomlc.so)",
        "20168     500250  ffffffff816df5b6 __d_lookup_rcu ([kernel.kallsyms])",
        "# a comment",
    ]

    assert list(read_samples(lines)) == [
        Sample(20168, 500250, "aiomlc::(anonymous namespace)::Q4(int)", OURS),
        Sample(20168, 500250, "__d_lookup_rcu", "[kernel.kallsyms]"),
    ]


@pytest.mark.parametrize(
    ("function", "library", "kind"),
    [
        ("aiomlc::(anonymous namespace)::Q4(aiomlc::LinearBlock const&)", OURS, "linear layers"),
        (
            "aiomlc::(anonymous namespace)::QuantizeRows(aiomlc::QuantizeBlock)",
            OURS,
            "linear layers",
        ),
        ("aiomlc::AttendTileAvx512(aiomlc::AttentionTile const&)", OURS, "attention"),
        ("aiomlc::Rows<aiomlc::Avx2Lanes>::RmsNorm(float const*)", OURS, "other kernels"),
        ("aiomlc::AddRmsNorm(aiomlc::ThreadPool&, float const*)", OURS, "other kernels"),
        ("aiomlc::ThreadPool::State::CloseAndWait(int)", OURS, "waiting in the pool"),
        ("aiomlc::LayerAttention::AddPages(aiomlc::ThreadPool&)", OURS, "calls of kernels"),
        ("aiomlc::Sampler::Sample(float const*, long)", OURS, "sampling"),
        ("aiomlc::StreamingDetokenizer::Put[abi:cxx11](int)", OURS, "text and records"),
        ("aiomlc::Scheduler::Plan() const", OURS, "planning the step"),
        ("[unknown]", OURS, "without a symbol"),
        ("tvm::runtime::vm::Run()", "libtvm_runtime.so", "TVM's machine and KV cache"),
        ("__memmove_avx512_unaligned_erms", "libc.so.6", "C and C++ libraries"),
        ("futex_wait", "[kernel.kallsyms]", "operating system"),
        ("_PyEval_EvalFrameDefault", "python3.11", "Python"),
    ],
)
def test_a_function_belongs_to_a_kind(function: str, library: str, kind: str) -> None:
    assert kind_of(Sample(1, 1, function, library)) == kind


def test_the_thread_in_the_machine_steps() -> None:
    kernel = Sample(1, 9_000, "aiomlc::AttendTileAvx512()", OURS)

    assert step_thread([kernel, MACHINE]) == 2
    with pytest.raises(RuntimeError, match="measure longer"):
        step_thread([kernel])


def test_what_is_no_kernel_is_summed_by_thread() -> None:
    samples = [
        MACHINE,
        Sample(2, 7_000, "aiomlc::(anonymous namespace)::Q4()", OURS),
        Sample(2, 2_000, "aiomlc::ThreadPool::State::CloseAndWait(int)", OURS),
        Sample(3, 8_000, "aiomlc::(anonymous namespace)::Q4()", OURS),
        Sample(1, 500, "_PyEval_EvalFrameDefault", "python3.11"),
    ]

    lines = as_table(Profile(samples, units=2, seconds=12e-6), "step").splitlines()

    assert lines[2:4] == [
        "| linear layers | 3.5 | 70.0% | 4.0 |",
        "| waiting in the pool | 1.0 | 20.0% | 0.0 |",
    ]
    assert lines[-1] == (
        "A step took 6.0 us. What is no kernel: 0.5 us on its thread, 10.00% of that thread's "
        "time, and 0.2 us on others."
    )


def test_a_library_without_symbols_is_refused() -> None:
    with pytest.raises(RuntimeError, match="no symbols"):
        as_table(Profile([MACHINE, Sample(2, 9_000, "[unknown]", OURS)], 1, 1.0), "step")
