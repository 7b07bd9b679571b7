"""Classification of perf samples by kind of work, and the table of a profile."""

from __future__ import annotations

import pytest

from benchmarks.perf_record import Sample, kind_of, parse_samples, step_thread
from benchmarks.profile_steps import Profile, as_table

LIBRARY = "libaiomlc.so"
VIRTUAL_MACHINE = Sample(
    2, 1_000, "tvm::runtime::vm::VirtualMachineImpl::RunLoop()", "libtvm_runtime.so"
)


def test_perf_output_is_parsed_into_samples() -> None:
    lines = [
        " 20168  500250  55afd60a1181 aiomlc::(anonymous namespace)::Q4(int) (/a b/libaiomlc.so)",
        "20168     500250  ffffffff816df5b6 __d_lookup_rcu ([kernel.kallsyms])",
        "# a comment",
    ]

    assert list(parse_samples(lines)) == [
        Sample(20168, 500250, "aiomlc::(anonymous namespace)::Q4(int)", LIBRARY),
        Sample(20168, 500250, "__d_lookup_rcu", "[kernel.kallsyms]"),
    ]


@pytest.mark.parametrize(
    ("function", "library", "kind"),
    [
        ("aiomlc::(anonymous namespace)::Q4(aiomlc::LinearBlock const&)", LIBRARY, "linear layers"),
        (
            "aiomlc::(anonymous namespace)::QuantizeRows(aiomlc::QuantizeBlock)",
            LIBRARY,
            "linear layers",
        ),
        ("aiomlc::AttendTileAvx512(aiomlc::AttentionTile const&)", LIBRARY, "attention"),
        ("aiomlc::Rows<aiomlc::Avx2Lanes>::RmsNorm(float const*)", LIBRARY, "other kernels"),
        ("aiomlc::AddRmsNorm(aiomlc::ThreadPool&, float const*)", LIBRARY, "other kernels"),
        ("aiomlc::ThreadPool::State::CloseAndWait(int)", LIBRARY, "waiting in the thread pool"),
        ("aiomlc::LayerAttention::AddPages(aiomlc::ThreadPool&)", LIBRARY, "kernel calls"),
        ("aiomlc::Sampler::Sample(float const*, long)", LIBRARY, "sampling"),
        ("aiomlc::StreamingDetokenizer::Put[abi:cxx11](int)", LIBRARY, "text and records"),
        ("aiomlc::Scheduler::Plan() const", LIBRARY, "planning the step"),
        ("[unknown]", LIBRARY, "without a symbol"),
        ("tvm::runtime::vm::Run()", "libtvm_runtime.so", "TVM's virtual machine and KV cache"),
        ("__memmove_avx512_unaligned_erms", "libc.so.6", "C and C++ libraries"),
        ("futex_wait", "[kernel.kallsyms]", "operating system"),
        ("_PyEval_EvalFrameDefault", "python3.11", "Python"),
    ],
)
def test_kind_of_a_sample(function: str, library: str, kind: str) -> None:
    assert kind_of(Sample(1, 1, function, library)) == kind


def test_step_thread_is_the_one_in_the_virtual_machine() -> None:
    kernel = Sample(1, 9_000, "aiomlc::AttendTileAvx512()", LIBRARY)

    assert step_thread([kernel, VIRTUAL_MACHINE]) == 2
    with pytest.raises(RuntimeError, match="measure longer"):
        step_thread([kernel])


def test_table_sums_time_outside_kernels_by_thread() -> None:
    samples = [
        VIRTUAL_MACHINE,
        Sample(2, 7_000, "aiomlc::(anonymous namespace)::Q4()", LIBRARY),
        Sample(2, 2_000, "aiomlc::ThreadPool::State::CloseAndWait(int)", LIBRARY),
        Sample(3, 8_000, "aiomlc::(anonymous namespace)::Q4()", LIBRARY),
        Sample(1, 500, "_PyEval_EvalFrameDefault", "python3.11"),
    ]

    lines = as_table(Profile(samples, units=2, seconds=12e-6), "step").splitlines()

    assert lines[2:4] == [
        "| linear layers | 3.5 | 70.0% | 4.0 |",
        "| waiting in the thread pool | 1.0 | 20.0% | 0.0 |",
    ]
    assert lines[-1] == (
        "A step took 6.0 us. Outside kernels: 0.5 us on the step thread (10.00% of its time) and "
        "0.2 us on others."
    )


def test_library_without_symbols_is_rejected() -> None:
    with pytest.raises(RuntimeError, match="no symbols"):
        as_table(Profile([VIRTUAL_MACHINE, Sample(2, 9_000, "[unknown]", LIBRARY)], 1, 1.0), "step")
