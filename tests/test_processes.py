"""The kernels in other processes: workers of a DataLoader, forked or spawned, and a child forked
while other threads compute.
"""

import multiprocessing
import os
import signal
import threading
import time

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

import evalgrad as eg
from evalgrad import _native

pytestmark = [
    pytest.mark.skipif(_native.library is None, reason="torch's own operators use OpenMP"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]


def _loss_of(seed):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(2, 21, 64, 64, generator=generator)
    return eg.lovasz_softmax_loss(logits, torch.randint(21, (2, 64, 64), generator=generator))


class Losses(Dataset):
    """A loss for each index, as a worker of a DataLoader computes it."""

    def __len__(self):
        return 4

    def __getitem__(self, i):
        return _loss_of(i)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_of_a_data_loader_compute_the_same(method):
    torch.set_num_threads(2)
    expected = [_loss_of(i) for i in range(4)]
    context = multiprocessing.get_context(method)
    loader = DataLoader(
        Losses(), batch_size=None, num_workers=2, multiprocessing_context=context, timeout=120
    )
    # a worker has one thread: the same bits, by the law of the number of threads
    assert [value.item() for value in loader] == [value.item() for value in expected]


def test_a_child_forked_while_others_compute_computes_the_same():
    torch.set_num_threads(2)
    expected, stop = _loss_of(1), threading.Event()

    def work():
        while not stop.is_set():
            _loss_of(0)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        codes = [_code_of_a_fork(expected) for _ in range(10)]
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert codes == [0] * 10


def _code_of_a_fork(expected):
    """0 if a child forked now computes what is expected; None if it hangs."""
    child = os.fork()
    if not child:
        code = 3
        try:
            code = int(not torch.equal(_loss_of(1), expected))
        finally:
            os._exit(code)
    end = time.monotonic() + 60
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None
