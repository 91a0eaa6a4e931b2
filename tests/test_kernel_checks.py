"""`make sanitize`: its driver on a kernel with faults that only disturbed numbers reach; and the
times of `make wheel`: which library is timed, and what is left as it was.
"""

import ctypes
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
import torch

from evalgrad import _native
from kernel_checks import speed
from kernel_checks.__main__ import EXACT, ROOT, UNDEFINED

KERNEL = """
#include "common/kernel.h"
#include "common/memory.h"

namespace {
void copied(const float* x, float* y, int64_t n, int64_t fault, int64_t threads) {
    evalgrad::Scratch<float> large;
    large.reserve(100 * n)[0] = 0.0f;
    for (int64_t i = 0; i < n; ++i) y[i] = x[i];
    if (x[0] == x[0]) return;
    volatile float zero = 0.0f;
    if (fault == 1) y[0] = x[n];
    if (fault == 2) y[0] = 1.0f / zero;
    if (fault == 3) y[0] = static_cast<float>(threads);
    if (fault == 4) y[0] = large.reserve(n)[n];
    if (fault == 5) y[0] = static_cast<float>(static_cast<int32_t>(x[0]));
}
}  // namespace

extern "C" const evalgrad::Kernel* evalgrad_kernels() {
    static const evalgrad::Kernel kernels[] = {
        evalgrad::kernel<copied>("copied"), {nullptr, nullptr, nullptr}};
    return kernels;
}
"""
SIGNATURES = """
inline int dispatch(const std::string&, void (*function)(), const Value* values, int64_t threads) {
    using Function = int (*)(void*, void*, int64_t, int64_t, int64_t);
    return reinterpret_cast<Function>(function)(values[0].pointer, values[1].pointer,
                                                values[2].integer, values[3].integer, threads);
}
"""
FAULTS = {
    "right": (0, ""),
    "read": (1, "heap-buffer-overflow"),
    "division": (2, "division by zero"),
    "threads": (3, "first difference: copied"),
    "scratch": (4, "heap-buffer-overflow"),
    "cast": (5, "is outside the range of representable values"),
}


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    if shutil.which("g++") is None:
        pytest.skip("there is no g++")
    folder = tmp_path_factory.mktemp("replay")
    (folder / "kernel.cpp").write_text(KERNEL)
    (folder / "signatures.h").write_text(SIGNATURES)
    flags = ["-std=c++17", "-g", UNDEFINED, "-fno-sanitize-recover=all", *EXACT, "-pthread"]
    files = [folder / "kernel.cpp", ROOT / "kernel_checks" / "replay.cpp", "-ldl"]
    command = ["g++", *flags, f"-I{ROOT / 'csrc'}", f"-I{folder}", *files, "-o", folder / "replay"]
    subprocess.run(command, check=True)
    return folder / "replay"


def replayed(program, fault, seconds):
    """A call of eight numbers, recorded as `record.py` does, made again with 1 and 2 threads."""

    def text(word):
        return struct.pack("<q", len(word)) + word.encode()

    x = struct.pack("<8f", *range(1, 9))
    tensors = struct.pack("<q", len(x)) + 2 * x, struct.pack("<q", len(x)) + bytes(len(x)) + x
    call = [text("copied"), text("FFii"), *tensors, struct.pack("<2q", 8, fault)]
    calls = program.with_name(f"calls{fault}")
    calls.write_bytes(b"".join(call))
    command = [program, calls, str(seconds), "1", "2"]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.parametrize("name", FAULTS)
def test_disturbed_calls_find_what_recorded_ones_do_not(program, name):
    fault, said = FAULTS[name]
    assert replayed(program, fault, seconds=0).returncode == 0
    done = replayed(program, fault, seconds=2)
    assert (done.returncode == 0) == (name == "right"), done.stdout + done.stderr
    assert said in done.stdout + done.stderr


@pytest.fixture
def state(monkeypatch):
    """The kernels and the threads, of which `compared` must leave everything as it was."""
    if _native.library is None:
        pytest.skip("there are no kernels to time")
    monkeypatch.setattr(speed, "ROUNDS", 2)
    threads, kernels = torch.get_num_threads(), _native.kernels
    torch.set_num_threads(2)
    yield lambda: _native.kernels is kernels and torch.get_num_threads() == 2
    torch.set_num_threads(threads)
    _native.kernels = kernels


def test_all_losses_are_timed_with_three_libraries(state):
    found = speed.compared(Path(_native.library._name))
    assert len(found) == 10
    for times in found.values():
        assert len(times) == 3
        assert all(0 < seconds < float("inf") for seconds in times)
    assert state()


def test_the_libraries_take_turns_on_one_thread(monkeypatch, state):
    seen, installed = [], _native.kernels

    def loss():
        seen.append((_native.kernels, torch.get_num_threads()))

    monkeypatch.setattr(speed, "_losses", lambda: {"loss": loss})
    speed.compared(Path(_native.library._name))
    tables = {id(table): table for table, _ in seen}
    assert len(tables) == 3
    assert all(table.keys() == installed.keys() for table in tables.values())
    assert sorted(id(table) for table, _ in seen) == sorted(2 * [*tables])
    assert {threads for _, threads in seen} == {1}
    addresses = [_addresses(table) for table in tables.values()]
    # the library given is the installed one here: only its copy is loaded a second time
    assert sorted(addresses.count(found) for found in addresses) == [1, 2, 2]
    assert state()


def _addresses(table):
    return [ctypes.cast(kernel.function, ctypes.c_void_p).value for kernel in table.values()]


def test_a_loss_that_fails_leaves_the_kernels_and_the_threads(monkeypatch, state):
    def loss():
        if _native.kernels is not installed:
            raise RuntimeError

    installed = _native.kernels
    monkeypatch.setattr(speed, "_losses", lambda: {"loss": loss})
    with pytest.raises(RuntimeError):
        speed.compared(Path(_native.library._name))
    assert state()
