"""Bad days: kills, full disks, damaged files, two runs in one folder. Each ends in a sentence with
the repair, and nothing is lost.
"""

import gzip
import io
import json
import os
import shutil
import struct
import subprocess
import sys
import uuid
import zipfile
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from layout_folders import nifti
from PIL import Image
from safetensors.torch import load_file
from training_data import table, write_segmentation, write_table

from evalgrad_lab import recipe, training
from evalgrad_lab.cli import guarded, main
from evalgrad_lab.data.batches import Loading, loaded
from evalgrad_lab.data.dataset import Column, Examples, Reading
from evalgrad_lab.data.files import memory
from evalgrad_lab.data.files.nifti import read_nifti
from evalgrad_lab.data.files.read import read, read_inputs
from evalgrad_lab.errors import UserError
from evalgrad_lab.lock import held
from evalgrad_lab.store import Store, sealed


def write_data(path, shift=0.0):
    x, target, _ = table(40)
    np.savez(path, inputs=x + shift, target=target)
    return path


def command(*more, out="run"):
    """To be run where the data are."""
    fixed = ["--task", "ranking", "--metric", "ap", "--data", "data.npz", "--out", out]
    fixed += ["--accelerator", "cpu", "--loss", "bce", "--batch-size", 8]
    return ["train", *map(str, [*fixed, *more])]


REPAIR = "remove its result.json and repeat the same `evalgrad train`, which writes the file again."


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    path = tmp_path_factory.mktemp("finished")
    write_data(path / "data.npz")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        assert main(command("--epochs", 4)) == 0
    return path


@pytest.fixture
def run(finished, tmp_path, monkeypatch):
    """The current folder: a copy of that of the finished run, to be damaged."""
    shutil.copytree(finished, tmp_path / "day")
    monkeypatch.chdir(tmp_path / "day")
    return tmp_path / "day"


def told(capsys, arguments):
    """The one sentence that a command ends in."""
    capsys.readouterr()
    assert main([str(argument) for argument in arguments]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1, said
    return said


def contents(folder):
    return {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}


class Killed(BaseException):
    """Ends a training as SIGKILL would: nobody catches it."""


def test_a_run_begun_again_and_killed_is_not_the_old_one(run):
    def kill(*_):
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "fit", kill)
        with pytest.raises(Killed):
            main(command("--epochs", 4, "--seed", 5, "--resume", "never"))
    assert main(command("--epochs", 4, "--seed", 5)) == 0
    assert main(command("--epochs", 4, "--seed", 5, out="fresh")) == 0
    again, fresh = (load_file(run / name / "best.safetensors") for name in ("run", "fresh"))
    assert all(torch.equal(again[name], fresh[name]) for name in fresh)


def test_half_a_file_of_a_killed_run_is_removed(run):
    half, other = run / "run" / f".last.ckpt.{uuid.uuid4().hex}", run / "run" / ".note.txt"
    half.write_bytes(b"half")
    other.write_bytes(b"the user's")
    assert main(command("--epochs", 4)) == 0
    assert not half.exists()
    assert other.exists()


def test_a_run_folder_that_was_moved_keeps_its_best_model(run):
    before = torch.load(run / "run" / "last.ckpt", weights_only=True)["hooks"][0]
    (run / "run").rename(run / "moved")
    # a network that has been ruined: the next epoch cannot be the best
    state = torch.load(run / "moved" / "last.ckpt", weights_only=True)
    state["network"] = {name: -100 * tensor for name, tensor in state["network"].items()}
    torch.save(state, run / "moved" / "last.ckpt")
    assert main(command("--epochs", 5, out="moved")) == 0
    left = load_file(run / "moved" / "best.safetensors")
    assert all(torch.equal(left[name], tensor) for name, tensor in before["weights"].items())


def test_data_that_changed_are_told_at_resume(run, capsys):
    write_data(run / "data.npz", shift=1.0)
    said = told(capsys, command("--epochs", 4))
    assert "holds a run with contents of --data" in said
    assert "--resume never to start over" in said


HOLDER = """
import sys, time
from pathlib import Path
sys.modules["torch"] = None  # not needed, and slow
from evalgrad_lab.lock import held
with held(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_folder_holds_one_training_at_a_time(run, capsys):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(run / "run")], stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout.readline() == "held\n"
        before = contents(run)
        said = told(capsys, command("--epochs", 4, "--resume", "never"))
        assert "another process is using run. Wait for it" in said
        assert contents(run) == before
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()
    with held(run / "run"):  # the system gave it free
        pass


def test_a_folder_holds_one_comparison_at_a_time(run, capsys):
    with held(run / "run"):
        before = contents(run)
        said = told(capsys, ["compare", "two-mode-f1", "--out", run / "run"])
        assert "another process is using" in said
        assert contents(run) == before


def test_ranks_of_one_training_do_not_lock_each_other_out(tmp_path, monkeypatch):
    with held(tmp_path):
        with pytest.raises(UserError, match="another process"), held(tmp_path):
            pass
        monkeypatch.setenv("LOCAL_RANK", "1")
        with held(tmp_path):
            pass


def test_an_out_that_cannot_be_a_folder(run, capsys):
    (run / "file").write_text("")
    said = told(capsys, command(out="file"))
    assert "--out file cannot be used (File exists). Choose a folder" in said
    assert (run / "file").read_text() == ""


@pytest.mark.parametrize("error", [28, 13, 30], ids=["full", "no access", "read-only"])
def test_a_disk_that_takes_nothing(run, capsys, error):
    before = contents(run)

    def refuse(*_):
        raise OSError(error, os.strerror(error))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", refuse)
        said = told(capsys, command("--epochs", 9))
    assert f"options.json cannot be written ({os.strerror(error)})." in said
    assert "run the same command again" in said
    after = contents(run)
    assert all(after[path] == data for path, data in before.items() if path in after)
    assert set(before) - set(after) <= {run / "run" / "result.json"}
    assert main(command("--epochs", 9)) == 0
    assert json.loads((run / "run" / "result.json").read_text())["epochs"] == 9


def flip(path, count=40):
    """Other bytes in the middle of a file, where the numbers are."""
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    for i in range(middle, middle + count):
        data[i] ^= 0x55
    path.write_bytes(data)


@pytest.mark.parametrize("damage", ["flipped", "cut", "empty", "text"])
def test_a_damaged_checkpoint(run, capsys, damage):
    path = Path("run/last.ckpt")
    if damage == "flipped":
        flip(path)
        torch.load(path, weights_only=True)  # torch would take it
    else:
        path.write_bytes({"cut": path.read_bytes()[:999], "empty": b"", "text": b"x" * 99}[damage])
    said = told(capsys, command("--epochs", 9))
    assert str(path) in said
    assert "is damaged (in" in said if damage == "flipped" else "cannot be read as a check" in said
    assert "--resume never to start over" in said


def test_a_checkpoint_of_another_kind_of_run(run, capsys):
    other = ["--resume", run / "run" / "last.ckpt", "--epochs", 4]
    for more in (["--optimiser", "sgd"], ["--loss", "auto"], ["--loss", "f_beta"]):
        said = told(capsys, command(*other, *more, out="other"))
        assert "the checkpoint is of another kind of run: " in said
        assert "Pass the options of that run, or --resume never to start over." in said
        assert not (run / "other").exists()


def test_a_damaged_second_branch(run, capsys, monkeypatch):
    monkeypatch.setattr(recipe, "LEAST", 2)  # examples of a validation that may choose
    assert main(command("--loss", "auto", "--epochs", 6, out="auto")) == 0
    (run / "auto" / "result.json").unlink()
    (run / "auto" / "branch0.ckpt").write_bytes(b"half")
    said = told(capsys, command("--loss", "auto", "--epochs", 6, out="auto"))
    assert "branch0.ckpt cannot be read as a checkpoint" in said
    assert "Remove it; the same command trains the branch again." in said


@pytest.mark.parametrize("name", ["options.json", "result.json"])
@pytest.mark.parametrize("content", ["", "{", "[1]", "\0\1"])
def test_garbage_in_the_files_of_a_run(run, capsys, name, content):
    (run / "run" / name).write_text(content)
    said = told(capsys, command("--epochs", 4))
    assert f"run/{name} " in said
    assert "--resume never" in said if name == "options.json" else "Remove it; the same" in said


def test_a_result_of_another_version(run, capsys):
    (run / "run" / "result.json").write_text('{"decision": null}')
    said = told(capsys, command("--epochs", 4))
    assert "result.json is not a result of this version" in said
    (run / "run" / "result.json").unlink()
    assert main(command("--epochs", 4)) == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"inputs": "3"}, "inputs must be an integer; got '3'."),
        ({"mean": {"a": 1}}, "mean must be a list of numbers; got {'a': 1}."),
        ({"mean": [0.0]}, "inputs, mean and std do not fit together."),
        ({"outputs": 10**12}, "outputs and classes do not fit together."),
        ({"kind": "poetry"}, "task and kind do not fit together."),
        ({"views": {"tiles": "five"}}, "views do not fit together."),
        ({"model_options": []}, "model_options must be a JSON object; got []."),
        ({"decision": {"rule": "rm", "numbers": []}}, "is not a decision."),
        ({"decision": {"rule": "threshold", "numbers": [0.0] * 9}}, "decision do not fit"),
        ({"decision": 3}, "Pass the --out folder of a finished"),
        ({"model_options": {"widths": [10**10]}}, "is a checkpoint of another model"),
        ({"model_options": {"widths": "wide"}}, "must take (inputs, outputs=...)"),
    ],
)
def test_a_model_description_that_is_none(run, capsys, change, message):
    path = run / "run" / "model.json"
    path.write_bytes(sealed({**json.loads(path.read_text()), **change}))
    assert message in told(capsys, ["evaluate", run / "run", "--data", run / "data.npz"])


def test_a_pipe_or_a_device_is_not_replaced_by_a_file(run, capsys):
    pipe = run / "pipe"
    os.mkfifo(pipe)
    said = told(capsys, ["export", run / "run", "--out", pipe])
    assert "pipe cannot be written (it is a device or a pipe)." in said
    assert pipe.is_fifo()


@pytest.mark.parametrize(("name", "field"), [("model.json", "mean"), ("parts.json", "train")])
def test_a_description_with_another_number_is_not_used(run, capsys, name, field):
    path = run / "run" / name
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, field: content[field][::-1]}))
    said = told(capsys, ["evaluate", run / "run", "--data", run / "data.npz"])
    assert f"run/{name} has a wrong checksum: it has been damaged or edited" in said


@pytest.mark.parametrize(
    "change",
    [{"train": None}, {"train": [["0"]]}, {"validation": [[0, "a"]]}, {"test": "a"}, {"data": []}],
)
def test_parts_that_are_none(run, capsys, change):
    path = run / "run" / "parts.json"
    path.write_bytes(sealed({**json.loads(path.read_text()), **change}))
    for more in ([], ["--data", run / "data.npz"]):
        said = told(capsys, ["evaluate", run / "run", *more])
        assert "parts.json does not say which examples are in which part" in said


def flipped(data, place):
    """With one bit of one byte changed."""
    changed = bytearray(data)
    changed[place] ^= 16
    return bytes(changed)


@pytest.mark.parametrize(
    "damage",
    [None, lambda data: data[:-9], partial(flipped, place=-1), partial(flipped, place=-150)],
    ids=["missing", "cut", "last byte", "some byte"],
)
def test_damaged_weights(run, capsys, damage):
    path = run / "run" / "best.safetensors"
    data = path.read_bytes()
    path.write_bytes(damage(data)) if damage else path.unlink()
    said = told(capsys, ["evaluate", run / "run", "--data", run / "data.npz"])
    assert "best.safetensors cannot be read" in said
    assert REPAIR in said
    (run / "run" / "result.json").unlink()
    assert main(command("--epochs", 4)) == 0
    assert path.read_bytes() == data


@pytest.mark.parametrize("name", ["model.json", "parts.json"])
def test_a_damaged_description_is_written_again(run, capsys, name):
    path = run / "run" / name
    path.write_bytes(path.read_bytes()[:60])
    evaluate = ["evaluate", str(run / "run")]
    assert REPAIR in told(capsys, evaluate)
    (run / "run" / "result.json").unlink()
    assert main(command("--epochs", 4)) == 0
    assert main(evaluate) == 0


def test_predictions_never_overwrite_the_data(capsys, tmp_path):
    data = write_segmentation(tmp_path / "data", count=4)
    before = contents(data)
    for source, out in (
        (data, data),
        (data, data / "images"),
        (data, data / "masks"),
        (data / "images", data / "masks"),
        (data, data / "new"),
    ):
        arguments = ["predict", tmp_path / "none", "--data", source, "--out", out]
        assert f"--out {out} lies in --data" in told(capsys, arguments)
    rows = write_table(tmp_path / "predictions.csv")
    arguments = ["predict", tmp_path / "none", "--data", rows, "--out", tmp_path]
    assert "lies in --data" in told(capsys, arguments)
    assert contents(data) == before


@pytest.mark.parametrize("part", ["images", "masks"])
def test_two_files_of_one_name(capsys, tmp_path, part):
    data = write_segmentation(tmp_path / "data", count=4)
    Image.open(data / part / "01.png").save(data / part / "01.bmp")
    fixed = ["--task", "segmentation", "--metric", "miou", "--accelerator", "cpu"]
    said = told(capsys, ["train", *fixed, "--data", data, "--out", tmp_path / "run"])
    assert f"{data / part / '01.bmp'} and 01.png differ only in their suffix" in said
    if part == "images":  # of which predict would write one mask
        with pytest.raises(UserError, match=r"01\.bmp and 01\.png differ only in their suffix"):
            read_inputs(data, [])


def broken(index):
    raise UserError(f"{index}.png cannot be read as an image. Replace or remove it.")


@pytest.mark.parametrize("workers", [0, 1])
def test_a_file_that_breaks_during_training_is_one_sentence(workers):
    examples = Examples(Column([0, 1], broken), torch.tensor([0, 1]), ["a", "b"])
    batches = loaded(examples, Loading(2, 0, workers=workers))
    with pytest.raises(UserError, match=r"^[01].png cannot be read as an image. Replace or r.*.$"):
        list(batches(0))


@pytest.mark.parametrize("workers", [0, 2])
def test_an_image_that_is_removed_in_the_middle_of_an_epoch(tmp_path, workers):
    folder = write_segmentation(tmp_path, count=40)
    examples = read(folder, Reading("segmentation")).train
    batches = iter(loaded(examples, Loading(1, 0, workers=workers))(0))
    next(batches)
    for image in (folder / "images").iterdir():
        image.unlink()
    with pytest.raises(UserError, match=r"^\S*images/\d\d.png cannot be read .*Replace or.*\.$"):
        list(batches)


def damaged(text):
    return text.replace("0.5", "4.24")


@pytest.mark.parametrize("change", [lambda text: text[:40], lambda text: "", damaged])
def test_a_damaged_record_of_the_store_is_done_again(tmp_path, capsys, change):
    store = Store(tmp_path)
    store.save({"task": "circles"}, {"iou": 0.5})
    path = store.path({"task": "circles"})
    path.write_text(change(path.read_text()))
    assert store.load({"task": "circles"}) is None
    assert f"{path} has been damaged or edited; its run is repeated." in capsys.readouterr().err
    store.save({"task": "circles"}, {"iou": 0.5})
    assert store.load({"task": "circles"}) == {"iou": 0.5}


RANKING = ["--task", "ranking", "--metric", "ap", "--accelerator", "cpu"]


def test_arrays_that_no_memory_holds(tmp_path, capsys, monkeypatch):
    np.savez_compressed(tmp_path / "bomb.npz", inputs=np.zeros((4, 10**6)), target=np.zeros(4, int))
    monkeypatch.setattr(memory, "free_memory", lambda: 1e6)
    fixed = ["train", *RANKING, "--out", tmp_path / "run"]
    said = told(capsys, [*fixed, "--data", tmp_path / "bomb.npz"])
    assert "bomb.npz needs 0.0 GB of memory, but only 0.0 GB are free. Split it" in said
    monkeypatch.undo()
    assert memory.free_memory() > 1e6
    # a header that declares 36 TB over a few bytes
    shape = b"{'descr': '<f8', 'fortran_order': False, 'shape': (4, 1125000000000), }"
    (tmp_path / "lie.npz").write_bytes(zipped(inputs=with_header(shape)))
    said = told(capsys, [*fixed, "--data", tmp_path / "lie.npz"])
    assert "lie.npz cannot be read as an .npz file of plain arrays" in said


def test_images_that_no_memory_holds_as_floats(tmp_path, capsys, monkeypatch):
    x, target = np.zeros((40, 50, 50), np.uint8), np.arange(40) % 2
    np.savez(tmp_path / "data.npz", inputs=x, target=target)
    monkeypatch.setattr(memory, "free_memory", lambda: 2e5)  # the file is of 0.1 MB
    said = told(
        capsys, ["train", *RANKING, "--data", tmp_path / "data.npz", "--out", tmp_path / "r"]
    )
    assert "data.npz needs 0.0 GB of memory" in said
    assert not (tmp_path / "r").exists()


def with_header(text):
    """An .npy of a few bytes whose header says `text`."""
    return (b"\x93NUMPY\x01\x00v\x00" + text).ljust(127) + b"\n" + bytes(64)


def zipped(**members):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name, content in members.items():
            file.writestr(f"{name}.npy", content)
    return buffer.getvalue()


def with_flag(data, flag, value):
    """The zip file with a field of each of its members changed, here and in the directory."""
    changed = bytearray(data)
    for mark, place in ((b"PK\x01\x02", 2), (b"PK\x03\x04", 0)):
        at = changed.find(mark)
        while at >= 0:
            changed[at + place + flag] = value
            at = changed.find(mark, at + 1)
    return bytes(changed)


GARBLED = {
    "encrypted": (with_flag(zipped(inputs=with_header(b"")), 6, 1), "is encrypted"),
    "compressed in another way": (
        with_flag(zipped(inputs=with_header(b"")), 8, 97),
        "compression method is not supported",
    ),
    "no .npy": (zipped(inputs=b"hello"), "'inputs' is not an array"),
    "open brackets": (zipped(inputs=with_header(b"(" * 100)), ""),
    "code": (zipped(inputs=with_header(b"{'shape': (4, print(1))}")), ""),
    "nothing": (b"", ""),
    "text": (b"a,b\n1,2\n", "not a zip file"),
}


@pytest.mark.parametrize("kind", GARBLED)
def test_a_garbled_npz(tmp_path, capsys, kind):
    content, why = GARBLED[kind]
    (tmp_path / "data.npz").write_bytes(content)
    said = told(
        capsys, ["train", *RANKING, "--data", tmp_path / "data.npz", "--out", tmp_path / "run"]
    )
    assert "data.npz cannot be read as an .npz file of plain arrays" in said
    assert why in said
    assert not (tmp_path / "run").exists()


def volume(sides=(2, 3, 4), offset=352.0, values=24):
    header = bytearray(nifti(np.zeros((2, 3, 4), np.uint8))[:352])
    header[40:56] = struct.pack("<8h", 3, *sides, 1, 1, 1, 1)
    header[108:112] = struct.pack("<f", offset)
    return bytes(header) + bytes(values)


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"\x5c\x01", volume()[:200], volume(values=20)),
        *(volume(sides=(-1, 1, 1)), volume(sides=(-2, -3, 4)), volume(sides=(0, 3, 4))),
        *(volume(offset=start) for start in (float("inf"), float("nan"), -10.0, 0.0, 1e30)),
    ],
)
@pytest.mark.parametrize("suffix", [".nii", ".nii.gz"])
def test_a_volume_that_is_none(tmp_path, suffix, content):
    path = tmp_path / f"v{suffix}"
    path.write_bytes(gzip.compress(content) if suffix == ".nii.gz" else content)
    with pytest.raises(UserError, match=r"v.nii\S* must be a NIfTI-1 volume of numbers"):
        read_nifti(path)


def test_a_damaged_volume_is_told_by_its_checksum(tmp_path):
    data = bytearray(gzip.compress(volume()))
    data[-8] ^= 1
    (tmp_path / "v.nii.gz").write_bytes(data)
    with pytest.raises(UserError, match=r"v.nii.gz must be .* \(CRC check failed"):
        read_nifti(tmp_path / "v.nii.gz")


def test_a_volume_that_no_memory_holds(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "free_memory", lambda: 1e9)
    declared = volume(sides=(32000, 32000, 4), values=0)  # 4 GB
    (tmp_path / "v.nii.gz").write_bytes(gzip.compress(declared))
    with pytest.raises(UserError, match=r"v.nii.gz needs 12.3 GB of memory, but only 1.0 GB are"):
        read_nifti(tmp_path / "v.nii.gz")
    # what follows the declared values is not unpacked
    (tmp_path / "v.nii.gz").write_bytes(gzip.compress(volume(values=10**7)))
    assert read_nifti(tmp_path / "v.nii.gz").shape == (2, 3, 4)


@pytest.mark.parametrize("name", ["a" * 300, "a/" * 3000])
def test_a_path_that_no_system_has(run, capsys, name):
    before = contents(run)
    assert "cannot be used (File name too long). Check the path" in told(capsys, command(out=name))
    told(capsys, ["train", *RANKING, "--data", f"{name}.npz", "--out", "new"])
    told(capsys, ["predict", "run", "--data", "data.npz", "--out", name])
    told(capsys, ["evaluate", name, "--data", "data.npz"])
    assert contents(run) == before


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (MemoryError(), "there is not enough memory. Use less data"),
        (MemoryError("kernel rows: 9 GB"), "not enough memory (kernel rows: 9 GB). Use"),
        (RuntimeError("can't allocate memory: 9 TB\nmore"), "can't allocate memory: 9 TB). Use"),
        (RuntimeError("CUDA out of memory. Tried"), "not enough memory (CUDA out of memory."),
        (OSError(5, "Input/output error", "x.png"), "x.png cannot be used (Input/output error)."),
        (OSError("odd"), "a file cannot be used (odd). Check"),
    ],
)
def test_what_the_system_refuses_is_one_sentence(capsys, error, message):
    def work():
        raise error

    assert guarded("evalgrad train", work) == 2
    said = capsys.readouterr().err
    assert said.startswith("evalgrad train: ")
    assert message in said
