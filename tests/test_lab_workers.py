"""Workers end with the command that started them, however it ends."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

# A parent with one worker that would sleep on; it prints the worker's process id.
PARENT = """
import multiprocessing, time
from evalgrad_lab.workers import end_with_parent

def work(queue):
    {prepare}
    queue.put(multiprocessing.current_process().pid)
    time.sleep(60)

if __name__ == "__main__":
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    context.Process(target=work, args=(queue,)).start()
    print(queue.get(), flush=True)
    time.sleep(60)
"""


def _worker_outlives(prepare, ending, seconds):
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT.format(prepare=prepare)], stdout=subprocess.PIPE, text=True
    )
    worker = Path("/proc") / parent.stdout.readline().strip()
    assert worker.exists()
    parent.send_signal(ending)
    parent.wait()
    parent.stdout.close()
    for _ in range(10 * seconds):
        if not worker.exists() or ") Z " in (worker / "stat").read_text():
            return False
        time.sleep(0.1)
    subprocess.run(["kill", "-9", worker.name], check=True)
    return True


@pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux tells a process of its parent's death"
)
@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGKILL])
def test_a_worker_ends_with_its_parent(ending):
    assert _worker_outlives("pass", ending, seconds=1)  # without it, it lives on
    assert not _worker_outlives("end_with_parent()", ending, seconds=10)
