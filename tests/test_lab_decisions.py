"""After a training: thresholds, what was trained on, tables of classes, longer runs."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.metrics import confusion_matrix, f1_score, jaccard_score
from training_data import table, write_segmentation, write_table

from evalgrad_lab import EvaluateOptions, PredictOptions, TrainOptions, evaluate, predict, train
from evalgrad_lab.cli import main
from evalgrad_lab.decisions import Decision, one_score, plain, quantiles
from evalgrad_lab.errors import UserError
from evalgrad_lab.fit import Pace, Phase, Training
from evalgrad_lab.judging import choose, fitted
from evalgrad_lab.metrics import find
from evalgrad_lab.ready import prepare
from evalgrad_lab.validation import Validation


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def options(path, data, **more):
    given = {"task": "ranking", "metric": "f1", "epochs": 4, "group": None, **more}
    out = given.pop("out", path / "run")
    return TrainOptions(data=data, out=out, accelerator="cpu", **given)


def plain_table(path, count=200, shift=0.0, seed=0):
    """Without the column of words; some tests are only of numbers."""
    x, target, _ = table(count, seed)
    rows = [[*row, label] for row, label in zip((x + shift).tolist(), target.tolist())]
    lines = [",".join(map(repr, row)) for row in rows]
    path.write_text("\n".join(["a,b,c,target", *lines]) + "\n")
    return path


def rows_of(path):
    return list(csv.DictReader(path.read_text().splitlines()))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run on a table, with its data."""
    path = tmp_path_factory.mktemp("decided")
    data = plain_table(path / "data.csv")
    train(options(path, data, loss="bce", loss_options={"positive_weight": 20.0}))
    return path


def scores_of_parts(path, tmp_path):
    """Score and target of the examples of each part, as `predict` says them."""
    predict(PredictOptions(run=path / "run", data=path / "data.csv", out=tmp_path / "all"))
    rows, data = rows_of(tmp_path / "all" / "predictions.csv"), rows_of(path / "data.csv")
    parts = json.loads((path / "run" / "parts.json").read_text())
    found = {}
    for part in ("train", "validation", "test"):
        places = [int(name) for name, _ in parts[part]]
        scores = np.array([float(rows[i]["score"]) for i in places])
        found[part] = (scores, np.array([int(data[i]["target"]) for i in places]))
    return found


def test_argmax_takes_the_first_of_equal_scores_or_a_nan():
    torch.manual_seed(0)
    scores = torch.randint(3, (20, 5, 4, 4)).float()
    scores[0, 2, 0, 0] = torch.nan
    labels = Decision("argmax")(scores)
    assert torch.equal(labels, torch.from_numpy(scores.numpy().argmax(1)))  # numpy promises it


def test_the_threshold_is_the_best_on_validation_and_decides_on_test(run, tmp_path):
    """Against scikit-learn at every threshold there is."""
    result = json.loads((run / "run" / "result.json").read_text())
    parts = scores_of_parts(run, tmp_path)
    scores, target = parts["validation"]
    best = max(f1_score(target, scores > cut) for cut in [0.0, *sorted(scores)[:-1]])
    (threshold,) = result["decision"]["numbers"]
    assert threshold != 0  # positives weigh twenty times too much
    assert result["validation"] == pytest.approx(best)
    assert result["validation"] > f1_score(target, scores > 0)
    scores, target = parts["test"]
    assert result["test"] == pytest.approx(f1_score(target, scores > threshold))
    assert result["by_default"] == pytest.approx(f1_score(target, scores > 0))
    again = evaluate(EvaluateOptions(run=run / "run"))
    assert (again.value, again.part, again.examples) == (result["test"], "test", 40)
    other = evaluate(EvaluateOptions(run=run / "run", threshold=0.0))
    assert other.value == pytest.approx(f1_score(target, scores > 0))
    assert other.confusion == confusion_matrix(target, scores > 0).tolist()
    assert json.loads(other.path.read_text())["value"] == other.value


@pytest.mark.parametrize("metric", ["miou", "image-iou"])
def test_a_threshold_of_pixels_is_chosen_in_one_pass_as_one_after_the_other(metric):
    measure = find(metric, "segmentation").measure(2, 255)
    batches = [(torch.randn(3, 4, 5), torch.randint(2, (3, 4, 5)), None) for _ in range(2)]
    everything = torch.cat([scores for scores, _, _ in batches])
    decision, value = choose(measure, batches, [plain(True), *fitted([quantiles], batches, 255)])
    target = torch.cat([target for _, target, _ in batches])
    flat = everything.flatten().sort().values
    places = torch.linspace(0, len(flat) - 1, 22)[1:-1].long()
    cuts = [0.0, *flat[places].tolist()]
    values = {cut: measure(everything, target, Decision("threshold", [cut])) for cut in cuts}
    assert value == pytest.approx(max(values.values()))
    assert values[decision.numbers[0]] == pytest.approx(value)


def test_two_scores_are_decided_as_their_difference():
    scores = torch.randn(4, 2, 5)
    assert torch.equal(one_score(scores, 2) > 0, scores.argmax(1) == 1)
    three = torch.randn(4, 3, 5)
    assert one_score(three, 2) is three


def test_what_was_trained_on_is_left_out_and_said(run, tmp_path, capsys):
    path = run / "run"
    found = evaluate(EvaluateOptions(run=path, data=run / "data.csv"))
    assert (found.examples, found.trained, found.validated) == (80, 120, 40)
    scores = scores_of_parts(run, tmp_path)
    both = [np.concatenate(pair) for pair in zip(scores["validation"], scores["test"])]
    assert found.value == pytest.approx(f1_score(both[1], both[0] > found.decision.numbers[0]))
    # the same rows in another file and another order are still known
    lines = (run / "data.csv").read_text().splitlines()
    (tmp_path / "other.csv").write_text("\n".join([lines[0], *lines[:0:-1]]) + "\n")
    assert evaluate(EvaluateOptions(run=path, data=tmp_path / "other.csv")).trained == 120
    assert main(["evaluate", str(path), "--data", str(run / "data.csv")]) == 0
    said = capsys.readouterr().out
    assert "120 examples that the run was trained on are left out" in said
    assert "40 of the measured examples were the validation data that chose the model: the" in said
    fresh = plain_table(tmp_path / "fresh.csv", seed=5)
    found = evaluate(EvaluateOptions(run=path, data=fresh))
    assert (found.examples, found.trained, found.validated) == (200, 0, 0)
    everything = EvaluateOptions(run=path, data=run / "data.csv", include_trained=True)
    assert evaluate(everything).examples == 200
    with pytest.raises(UserError, match="--include-trained needs --data"):
        evaluate(EvaluateOptions(run=path, include_trained=True))


def test_only_trained_examples_or_changed_data_are_told(run, tmp_path, capsys):
    lines = (run / "data.csv").read_text().splitlines()
    parts = json.loads((run / "run" / "parts.json").read_text())
    some = [lines[int(name) + 1] for name, _ in parts["train"][:5]]
    (tmp_path / "some.csv").write_text("\n".join([lines[0], *some]) + "\n")
    assert main(["evaluate", str(run / "run"), "--data", str(tmp_path / "some.csv")]) == 2
    assert "was trained on all 5 examples" in capsys.readouterr().err
    data = plain_table(tmp_path / "data.csv")
    train(options(tmp_path, data, epochs=1))
    plain_table(tmp_path / "data.csv", shift=1.0)
    assert main(["evaluate", str(tmp_path / "run")]) == 2
    assert "has changed since" in capsys.readouterr().err
    with pytest.raises(UserError, match=r"holds a run with contents of --data .* Choose another"):
        train(options(tmp_path, data, epochs=1))
    plain_table(data)
    train(options(tmp_path, data, epochs=1, test=0.0, out=tmp_path / "no"))
    with pytest.raises(UserError, match="trained without a test part"):
        evaluate(EvaluateOptions(run=tmp_path / "no"))


def test_a_threshold_where_none_decides_is_told(tmp_path, capsys):
    data = plain_table(tmp_path / "data.csv")
    train(options(tmp_path, data, metric="ap", epochs=1))
    assert main(["evaluate", str(tmp_path / "run"), "--threshold", "0.5"]) == 2
    assert "--threshold is for scores with one threshold" in capsys.readouterr().err


@pytest.mark.parametrize("metric", ["f1", "recall@precision=0.5", "ap"])
def test_what_decides_is_said_and_what_it_changes(tmp_path, capsys, metric):
    data = plain_table(tmp_path / "data.csv")
    arguments = ["--task", "ranking", "--metric", metric, "--data", str(data), "--epochs", "2"]
    more = ["--loss", "bce", "--loss-options", '{"positive_weight": 20.0}']
    assert main(["train", *arguments, *more, "--out", str(tmp_path / "run")]) == 0
    said = capsys.readouterr().out
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    if metric == "ap":
        assert "decided by" not in said
        assert result["decision"] is None
        return
    (threshold,) = result["decision"]["numbers"]
    assert f"decided by threshold {threshold:.4g}, chosen on validation" in said
    changed = f"; a threshold of 0 has test {result['by_default']:.4f}"
    assert (changed in said) == (result["by_default"] != result["test"])
    assert metric == "f1" or result["by_default"] == result["test"]


def test_validation_and_test_data_in_files_of_their_own(tmp_path):
    files = [plain_table(tmp_path / f"{i}.csv", 40 + i, seed=i) for i in range(3)]
    more = {"validation_data": files[1], "test_data": files[2]}
    train(options(tmp_path, files[0], epochs=1, **more))
    parts = json.loads((tmp_path / "run" / "parts.json").read_text())
    assert [len(parts[name]) for name in ("train", "validation", "test")] == [40, 41, 42]
    assert evaluate(EvaluateOptions(run=tmp_path / "run")).examples == 42
    found = evaluate(EvaluateOptions(run=tmp_path / "run", data=files[2]))
    assert (found.examples, found.trained) == (42, 0)


def test_columns_of_words_are_categories(tmp_path):
    words = ["red", "blue", "green"]
    generator = np.random.default_rng(0)
    drawn = generator.integers(0, 3, 90)
    lines = [f"{words[k]},{i % 7},{int(k == 1)}" for i, k in enumerate(drawn)]
    data = tmp_path / "data.csv"
    data.write_text("\n".join(["colour,size,target", *lines]) + "\n")
    train(options(tmp_path, data, metric="ap", epochs=20, learning_rate=0.02))
    model = json.loads((tmp_path / "run" / "model.json").read_text())
    assert model["columns"] == ["colour=blue", "colour=green", "colour=red", "size"]
    assert evaluate(EvaluateOptions(run=tmp_path / "run")).value == 1.0
    # a word that the training data lack is none of them: as a colour that is not known
    (tmp_path / "new.csv").write_text("size,colour\n3,blue\n3,red\n3,pink\n")
    new = PredictOptions(run=tmp_path / "run", data=tmp_path / "new.csv", out=tmp_path / "out")
    scores = [float(row["score"]) for row in rows_of(predict(new).path)]
    assert scores[0] > max(scores[1:])
    names = [f"name{i},{i % 2}" for i in range(120)]
    (tmp_path / "names.csv").write_text("\n".join(["who,target", *names]) + "\n")
    with pytest.raises(UserError, match="the column who has 120 different words, but"):
        train(options(tmp_path, tmp_path / "names.csv", out=tmp_path / "names"))


def rare(path, positives):
    x, _, _ = table(320)
    rows = [
        ",".join(map(repr, [*values, int(i < positives)])) for i, values in enumerate(x.tolist())
    ]
    path.write_text("\n".join(["a,b,c,target", *rows]) + "\n")
    return path


def test_the_batch_size_is_raised_where_most_batches_would_hold_no_positive(tmp_path, capsys):
    data = rare(tmp_path / "rare.csv", positives=16)
    train(options(tmp_path, data, metric="ap", epochs=1))
    # 10 of 192 are positive: 0.948^16 = 0.42 of the batches have none; 0.948^64 = 0.03
    assert "--batch-size 64 is used: 42% of the batches of 16" in capsys.readouterr().err
    assert json.loads((tmp_path / "run" / "result.json").read_text())["steps"] == 192 // 64
    train(options(tmp_path, data, metric="ap", epochs=1, batch_size=8, out=tmp_path / "small"))
    warned = capsys.readouterr().err
    assert "65% of the batches of 8 would have no positive; a larger --batch-size helps" in warned
    train(options(tmp_path, write_table(tmp_path / "t.csv"), epochs=1, out=tmp_path / "usual"))
    assert "would have no positive" not in capsys.readouterr().err
    few = prepare(options(tmp_path, rare(tmp_path / "few.csv", positives=4), metric="ap"))
    # 2 of 192: 0.990^256 = 0.07 is more than 5 %, but there are no more items
    assert (int(few.data.train.labels().sum()), few.batch_size) == (2, 256)


@pytest.mark.parametrize(("length", "warned"), [(4, True), (40, False)])
def test_lists_without_a_positive_are_told(tmp_path, capsys, length, warned):
    x, _, _ = table(320)
    rows = [
        f"{a!r},{b!r},{int(i % 40 == 0)},q{i // length}" for i, (a, b, _) in enumerate(x.tolist())
    ]
    data = tmp_path / "lists.csv"
    data.write_text("\n".join(["a,b,target,query", *rows]) + "\n")
    train(options(tmp_path, data, metric="ap", group="query", epochs=1, loss="bce"))
    said = "of the training lists have no positive" in capsys.readouterr().err
    assert said == warned


def test_the_best_is_the_best_mean_of_three_looks():
    values = [0.9, 0.1, 0.2, 0.5, 0.6, 0.55, 0.1]
    training = Training(torch.nn.Linear(1, 1), [Phase(lambda *_: None, 9)], Pace(0.1))
    training.loss = torch.tensor(0.0)
    left = iter(values)
    hook = Validation(lambda: next(left), keep_best=True, smooth=3)
    kept = []
    for step in range(len(values)):
        training.network.weight.data.fill_(step)
        hook.after_epoch(training)
        kept.append(hook.weights["weight"].item() if hook.weights else None)
    means = [np.mean(values[i - 2 : i + 1]) for i in range(2, 7)]
    assert kept == [None, None, 2, 2, 4, 5, 5]
    assert hook.best == pytest.approx(max(means))


def test_the_last_network_is_kept_if_asked_for(tmp_path):
    data = plain_table(tmp_path / "data.csv")
    train(options(tmp_path, data, choose="last"))
    from safetensors.torch import load_file

    kept = load_file(tmp_path / "run" / "best.safetensors")
    last = torch.load(tmp_path / "run" / "last.ckpt", weights_only=True)["network"]
    assert all(torch.equal(kept[name], last[name]) for name in kept)


def test_more_epochs_go_on_with_a_finished_run_and_fewer_are_told(tmp_path, capsys):
    data = plain_table(tmp_path / "data.csv")
    first = train(options(tmp_path, data, epochs=2))
    longer = train(options(tmp_path, data, epochs=5))
    assert (first.epochs, longer.epochs) == (2, 5)
    log = rows_of(tmp_path / "run" / "log.csv")
    assert [int(row["epoch"]) for row in log] == [1, 2, 3, 4, 5]
    assert train(options(tmp_path, data, epochs=5)) == longer
    with pytest.raises(UserError, match="holds a run with --epochs 5; got 3"):
        train(options(tmp_path, data, epochs=3))


def test_lines_of_progress_without_a_terminal(tmp_path, capsys):
    train(options(tmp_path, plain_table(tmp_path / "data.csv"), epochs=3))
    lines = capsys.readouterr().err.splitlines()
    assert lines.pop().startswith("threshold chosen on 10 positives")  # said once, at the end
    assert lines[0].startswith("epoch 1, step 7 of 21: loss ")
    assert lines[-1].startswith("epoch 3, step 21 of 21: loss ")
    assert all("validation f1 0." in line or "validation f1 1." in line for line in lines)


@pytest.fixture(scope="module")
def masks(tmp_path_factory):
    path = tmp_path_factory.mktemp("masks")
    data = write_segmentation(path / "data")
    (data / "classes.txt").write_text("ground\nblock\nspot\n")
    more = {"task": "segmentation", "metric": "miou", "epochs": 8, "batch_size": 4}
    train(options(path, data, model_options={"width": 4}, **more))
    return path


def test_the_table_of_classes_and_the_confusion_are_scikit_learns(masks, capsys):
    run = masks / "run"
    options = PredictOptions(run=run, data=masks / "data", out=masks / "out", probabilities=True)
    predict(options)
    parts = json.loads((run / "parts.json").read_text())
    names = [name for name, _ in parts["test"]]
    true, predicted = (
        np.stack([np.array(Image.open(folder / f"{name}.png")) for name in names]).ravel()
        for folder in (masks / "data" / "masks", masks / "out")
    )
    assert main(["evaluate", str(run)]) == 0
    said = capsys.readouterr().out
    result = json.loads((run / "evaluation" / "result.json").read_text())
    assert result["confusion"] == confusion_matrix(true, predicted, labels=range(3)).tolist()
    ious = jaccard_score(true, predicted, average=None, labels=range(3))
    assert [row["class"] for row in result["classes"]] == ["ground", "block", "spot"]
    assert [row["iou"] for row in result["classes"]] == pytest.approx(ious.tolist())
    assert result["value"] == pytest.approx(ious.mean())
    assert all(f"{iou:.4f}" in said for iou in ious)
    assert all(name in said for name in ("ground", "block", "spot", "true \\ predicted"))
    assert json.loads((run / "result.json").read_text())["confusion"] == result["confusion"]


def test_probabilities_of_masks_are_those_that_decide(masks, tmp_path):
    out = PredictOptions(run=masks / "run", data=masks / "data", out=tmp_path, probabilities=True)
    predict(out)
    for name in ("00", "07"):
        chances = np.load(tmp_path / f"{name}.npy", allow_pickle=False)
        assert chances.shape == (3, 16, 16)
        np.testing.assert_allclose(chances.sum(0), 1, rtol=1e-5)
        mask = np.array(Image.open(tmp_path / f"{name}.png"))
        decision = json.loads((masks / "run" / "model.json").read_text())["decision"]
        offsets = np.array(decision["numbers"] or [0.0] * 3)[:, None, None]
        assert np.array_equal((np.log(chances) + offsets).argmax(0), mask)


def test_probabilities_and_scores_of_tables(tmp_path):
    data = write_table(tmp_path / "data.csv", target_name="answer", words=True)
    more = {"task": "classification", "metric": "top1", "target": "answer", "group": "query"}
    train(options(tmp_path, data, **more))
    out = PredictOptions(run=tmp_path / "run", data=data, out=tmp_path, probabilities=True)
    for row in rows_of(predict(out).path):
        chances = {name: float(row[f"probability_{name}"]) for name in ("no", "yes")}
        assert sum(chances.values()) == pytest.approx(1)
        assert row["prediction"] == max(chances, key=chances.get)
        assert float(row["score"]) == max(chances.values())


def test_the_metric_is_blamed_for_classes_that_it_does_not_take(tmp_path, capsys):
    data = write_segmentation(tmp_path / "data")
    arguments = ["--task", "segmentation", "--metric", "image-iou", "--data", str(data)]
    assert main(["train", *arguments, "--out", str(tmp_path / "run")]) == 2
    said = capsys.readouterr().err
    assert "--metric image-iou is for two classes; the data have 3. Use image-miou." in said


def test_evaluate_does_not_advise_options_that_it_lacks(masks, tmp_path, capsys):
    data = write_segmentation(tmp_path / "data", count=3, seed=9)
    mask = np.array(Image.open(data / "masks" / "01.png"))
    Image.fromarray(np.where(mask == 2, 7, mask).astype(np.uint8)).save(data / "masks" / "01.png")
    assert main(["evaluate", str(masks / "run"), "--data", str(data)]) == 2
    said = capsys.readouterr().err
    assert "got 7. Correct the mask: the model has 3 classes." in said
    assert "--num-classes" not in said


def test_options_as_a_command_line_and_back(tmp_path):
    from argparse import ArgumentParser

    from evalgrad_lab.options import parse

    given = options(tmp_path, tmp_path / "d.csv", loss_options={"epsilon": 0.1}, mix="sum:0.5")
    assert parse(TrainOptions, ArgumentParser(), given.arguments()) == given
    assert TrainOptions.of(given.plain()) == given


def test_commands_that_train_nothing_do_not_import_torch():
    """Their start-up is a third of a second with it left out, and several with it."""
    code = (
        "import sys\nfrom evalgrad_lab import cli\nfrom evalgrad_lab.commands import ("
        "compare, evaluate, export, losses, predict, search, train)\n"
        "assert cli.main(['losses']) == 0\n"
        "heavy = {'torch', 'numpy', 'lightning', 'scipy', 'sklearn'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    command = Path(sys.executable).parent / "evalgrad"
    shown = subprocess.run([command, "--version"], check=True, capture_output=True, text=True)
    assert shown.stdout.startswith("evalgrad ")
