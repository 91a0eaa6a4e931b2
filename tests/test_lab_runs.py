"""The pool, the store's addresses, the digest and the search."""

import importlib
import json
import multiprocessing.connection
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from evalgrad_lab import runs
from evalgrad_lab.errors import UserError
from evalgrad_lab.runs import Runs
from evalgrad_lab.store import Store
from evalgrad_lab.tune import Case, product, tune
from reproductions import claims


def process_of(*, call, divisor=1):
    assert call / divisor is not None
    return os.getpid()


def killed(*, call):
    if call:
        os.kill(os.getpid(), signal.SIGKILL)


def half_sent(*, marker, call):
    """A run that is ended when it has sent only a part of its result."""

    def send(connection, data):
        os.write(connection.fileno(), len(data).to_bytes(4, "big") + bytes(data[:1]))
        Path(marker).touch()
        time.sleep(600)

    multiprocessing.connection.Connection._send_bytes = send
    return call


def test_a_run_is_stored_with_its_description_and_counts_once(tmp_path):
    bench = Runs(Store(tmp_path))
    for _ in range(2):
        assert bench.run(claims.spread, [{"values": [1.0, 3.0]}] * 2) == ["2.0 ± 1.4"] * 2
    (stored,) = [json.loads(path.read_text()) for path in tmp_path.glob("*.json")]
    assert stored["description"]["function"] == "reproductions.claims.spread"
    assert stored["description"]["settings"] == {"values": [1.0, 3.0]}
    assert bench.seconds == stored["result"]["seconds"] >= 0
    assert bench.reused == 1


def test_workers_are_kept_from_run_to_run_and_given_up_after_a_failure(tmp_path):
    with Runs(Store(tmp_path), jobs=2) as bench:
        workers = {
            process
            for calls in ((0, 1), (2, 3))
            for process in bench.run(process_of, [{"call": call} for call in calls])
        }
        assert len(workers) <= 2
        assert bench.run(process_of, [{"call": 4}], alone=True) == [os.getpid()]
        assert os.getpid() not in workers
        with pytest.raises(ZeroDivisionError):
            bench.run(process_of, [{"call": 5}, {"call": 6, "divisor": 0}])
        assert workers.isdisjoint(bench.run(process_of, [{"call": 7}, {"call": 8}]))


INTERRUPTED_WHILE_SENDING = """
import os, signal, sys, threading, time
from pathlib import Path
from test_lab_runs import half_sent
from evalgrad_lab.runs import Runs
from evalgrad_lab.store import Store

def interrupt():
    while not Path(marker).exists():
        time.sleep(0.02)
    os.kill(os.getpid(), signal.SIGINT)

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    folder, marker = sys.argv[1], sys.argv[1] + "/marker"
    threading.Thread(target=interrupt, daemon=True).start()
    settings = [{"marker": marker, "call": call} for call in range(2)]
    try:
        with Runs(Store(Path(folder)), jobs=2) as several:
            several.run(half_sent, settings)
    except KeyboardInterrupt:
        print("interrupted")
"""


def test_ctrl_c_while_a_worker_sends_its_result_ends_the_command(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(INTERRUPTED_WHILE_SENDING)
    command = [sys.executable, str(script), str(tmp_path)]
    here = Path(__file__).parent
    environment = {**os.environ, "PYTHONPATH": f"{here}{os.pathsep}{here.parent}"}
    done = subprocess.run(command, env=environment, timeout=120, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "interrupted\n"), done.stderr


def test_a_killed_worker_is_told_and_not_waited_for(tmp_path):
    with (
        Runs(Store(tmp_path), jobs=2) as bench,
        pytest.raises(UserError, match="a process was killed, perhaps because memory ran out"),
    ):
        bench.run(killed, [{"call": 1}, {"call": 2}])


SCRIPT = """
from pathlib import Path
from evalgrad_lab import CompareOptions, compare

what = {{"tasks": ["two-mode-f1"], "losses": ["bce", "f_beta"], "at": ["3 iterations"]}}
{guard}compare(CompareOptions(**what, seeds=1, jobs=2, out=Path("runs")))
"""


@pytest.mark.parametrize("guard", ["", 'if __name__ == "__main__": '])
def test_a_script_without_the_guard_is_told_of_it(tmp_path, guard):
    (tmp_path / "script.py").write_text(SCRIPT.format(guard=guard))
    command = [sys.executable, "script.py"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ended.returncode == 0) == bool(guard), ended.stderr
    if not guard:
        assert 'call it under `if __name__ == "__main__":`' in ended.stderr.splitlines()[-1]
        assert "_inheriting" not in ended.stderr
        assert ended.stderr.count("script.py") == 1  # the traceback of the parent alone


def test_without_a_terminal_there_are_lines_of_progress(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(runs._Shown, "EVERY", 0.0)
    Runs(Store(tmp_path)).run(process_of, [{"call": 1}, {"call": 2}], title="here")
    assert capsys.readouterr().err == "here: 1 of 2 runs\nhere: 2 of 2 runs\n"


def test_the_digest_reaches_through_imports_and_into_the_kernels(monkeypatch):
    module = importlib.import_module("evalgrad_lab.trials")
    names = {found.__name__ for found in runs.modules_behind(module)}
    assert {"evalgrad_lab.fit", "evalgrad_lab.models.unet", "evalgrad.smooth_topk.loss"} <= names
    assert "evalgrad_lab.report.page" not in names
    before = runs.digest.__wrapped__(module)
    assert before == runs.digest.__wrapped__(module)
    monkeypatch.setattr(runs, "kernels", lambda: [b"other kernels"])
    assert runs.digest.__wrapped__(module) != before
    monkeypatch.setattr(runs, "modules_behind", lambda module: [module])
    monkeypatch.setattr(runs, "kernels", list)
    assert runs.digest.__wrapped__(module) != before


def test_comments_and_docstrings_decide_no_result():
    source = 'def f(x: int) -> int:\n    """Say."""\n    return x + 1\n'
    code = runs.code_of(source)
    assert code == runs.code_of(source.replace("Say.", "Say it\n\n    at length."))
    assert code == runs.code_of("# why\n" + source.replace("\n    return", "\n\n    return"))
    assert code == runs.code_of("def f(x: int) -> int:\n    return x + 1\n")
    assert code != runs.code_of(source.replace("+ 1", "+ 2"))
    assert code != runs.code_of(source.replace("return x", 'return "x"; x'))
    assert runs.code_of('a = "text"') != runs.code_of('a = "other"')


def test_kernels_are_found_where_they_were_built():
    from evalgrad import _native

    assert bool(runs.kernels()) == (_native.library is not None)


class Recorded:
    """Runs in place and remembers."""

    def __init__(self):
        self.asked = []

    def run(self, function, settings, title=""):
        self.asked.append(list(settings))
        return [function(**setting) for setting in settings]


def closeness(*, want, rate, seed):
    return {"validation": -abs(rate - want) + 0.01 * seed, "test": rate, "seed": seed}


def test_the_search_chooses_on_its_seeds_and_reports_the_others_with_the_winner():
    bench, grid = Recorded(), product({"rate": [1, 2, 3]})
    cases = [Case({"want": want}, grid) for want in (2, 9)]
    found = tune(bench, closeness, cases, search=[4], seeds=[4, 5, 6])
    assert [case.point for case in found] == [{"rate": 2}, {"rate": 3}]
    assert [[result["seed"] for result in case.results] for case in found] == [[4, 5, 6]] * 2
    assert all(result["test"] == case.point["rate"] for case in found for result in case.results)
    assert [len(stage) for stage in bench.asked] == [6, 6]
    assert found[0].scores == [[-1 + 0.04], [0.04], [-1 + 0.04]]


def test_the_rule_of_a_search_is_an_argument_and_ties_go_to_the_first():
    flat = [Case({"want": 2}, product({"rate": [1, 3]}))]
    assert tune(Recorded(), closeness, flat, search=[0, 1], seeds=[])[0].point == {"rate": 1}
    last = tune(Recorded(), closeness, flat, search=[0], seeds=[], rule=lambda s: len(s) - 1)
    assert last[0].point == {"rate": 3}


# A parent with one worker that would sleep on; it prints the worker's process id.
PARENT = """
import multiprocessing, time
from evalgrad_lab.runs import prepare_worker

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
    assert not _worker_outlives("prepare_worker()", ending, seconds=10)
