"""The store of finished runs and the front door of the command line."""

import importlib
import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from evalgrad_lab import cli, errors, store


def test_a_run_is_found_by_its_description_and_by_no_other(tmp_path):
    runs = store.Store(tmp_path)
    runs.save({"task": "circles", "rate": 0.1}, [1.0, 2.5])
    assert store.Store(tmp_path).load({"rate": 0.1, "task": "circles"}) == [1.0, 2.5]
    assert runs.load({"task": "circles", "rate": 0.2}) is None


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "runs" / "file.json"
    store.write_atomically(path, b"old")

    def full(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(errors.UserError, match=r"file.json cannot be written \(disk full\)"):
        store.write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(path.parent) == ["file.json"]


def test_a_job_that_is_ended_leaves_no_half_file(tmp_path, monkeypatch, capsys):
    path = tmp_path / "file.json"
    store.write_atomically(path, b"old")

    def end(*_):
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL  # which would end this test
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(os, "fsync", end)
    assert cli.guarded("evalgrad train", lambda: store.write_atomically(path, b"new") or 0) == 143
    assert "the same command resumes" in capsys.readouterr().err
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file.json"]


def test_who_handles_the_end_of_a_job_goes_on_doing_so():
    handled = []
    before = signal.signal(signal.SIGTERM, lambda *_: handled.append(True))
    try:
        assert cli.guarded("evalgrad", lambda: signal.raise_signal(signal.SIGTERM) or 0) == 0
    finally:
        signal.signal(signal.SIGTERM, before)
    assert handled == [True]
    with ThreadPoolExecutor(1) as other:  # where no signal can be handled
        assert other.submit(cli.guarded, "evalgrad", lambda: 0).result() == 0
    assert cli.guarded("evalgrad", lambda: 0) == 0
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_file_is_as_readable_as_any_other(tmp_path):
    store.write_atomically(tmp_path / "report.html", b"")
    (tmp_path / "plain").touch()
    assert (tmp_path / "report.html").stat().st_mode == (tmp_path / "plain").stat().st_mode


def command_that(tmp_path, monkeypatch, body):
    """A command `trial` with one option, whose work is `body`."""
    (tmp_path / "trial_command.py").write_text(
        "from dataclasses import dataclass\n"
        "from evalgrad_lab.options import Options, option\n"
        "@dataclass(frozen=True, kw_only=True)\n"
        "class TrialOptions(Options):\n"
        "    data: str | None = option(None, help='data')\n"
        f"def main(options):\n    {body}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(cli.COMMANDS, "trial", "a command for this test")
    monkeypatch.setitem(sys.modules, "evalgrad_lab.commands.trial", None)
    real = importlib.import_module
    monkeypatch.setattr(
        importlib,
        "import_module",
        lambda name: real(name.replace("evalgrad_lab.commands.trial", "trial_command")),
    )
    monkeypatch.delitem(sys.modules, "trial_command", raising=False)


def test_a_user_error_is_one_sentence_and_exit_code_2(tmp_path, monkeypatch, capsys):
    command_that(
        tmp_path,
        monkeypatch,
        f"raise __import__('{errors.__name__}', fromlist=['x']).UserError('a.png: no mask beside"
        " it.')",
    )
    assert cli.main(["trial", "--data", "x"]) == 2
    assert capsys.readouterr().err == "evalgrad trial: a.png: no mask beside it.\n"


def test_ctrl_c_says_that_the_same_command_goes_on(tmp_path, monkeypatch, capsys):
    command_that(tmp_path, monkeypatch, "raise KeyboardInterrupt")
    assert cli.main(["trial"]) == 130
    assert "the same command resumes" in capsys.readouterr().err


def test_a_missing_dependency_names_the_extra(tmp_path, monkeypatch, capsys):
    command_that(tmp_path, monkeypatch, "return 0")
    (tmp_path / "trial_command.py").write_text("import a_package_nobody_has\n")
    assert cli.main(["trial"]) == 2
    assert "pip install '.[lab]'" in capsys.readouterr().err
