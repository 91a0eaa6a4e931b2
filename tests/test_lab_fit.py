"""The loop: schedules, phases, hooks, checkpoints; and `evalgrad train` that stops, resumes and
runs on several ranks.
"""

import json
import math
import signal
import subprocess
import sys

import pytest
import torch
from torch import nn
from training_data import write_segmentation, write_table

import evalgrad as eg
from evalgrad import metrics
from evalgrad_lab import TrainOptions, checkpoints, train
from evalgrad_lab.cli import main
from evalgrad_lab.data.batches import Batch, in_memory
from evalgrad_lab.data.dataset import Column, Examples, Part
from evalgrad_lab.errors import UserError
from evalgrad_lab.fit import (
    Every,
    Hook,
    Pace,
    Phase,
    Training,
    fit,
    scores_of,
)
from evalgrad_lab.given import Given
from evalgrad_lab.phases import parse_mix, plan
from evalgrad_lab.schedules import SCHEDULES, schedule_of
from evalgrad_lab.validation import Validation, looks


def phases_of(*lengths):
    return [Phase(lambda output, batch: output.sum(), length) for length in lengths]


def test_schedules_equal_their_formulas():
    for k in range(0, 101, 10):
        poly, cosine, constant = (
            Pace(0.1, schedule=name).factor(k, phases_of(100))
            for name in ("poly", "cosine", "constant")
        )
        assert poly == pytest.approx((1 - k / 100) ** 0.9)
        assert cosine == pytest.approx(math.cos(math.pi * k / 200) ** 2)
        assert constant == 1


@pytest.mark.parametrize("schedule", [*SCHEDULES, "drops:0.5,0.8", "exponential:0.01"])
def test_each_phase_runs_the_whole_schedule_and_the_end_stays_put(schedule):
    pace = Pace(0.1, schedule=schedule)
    both = [pace.factor(k, phases_of(3, 5)) for k in range(8)]
    assert both == [pace.factor(k, phases_of(3)) for k in range(3)] + [
        pace.factor(k, phases_of(5)) for k in range(5)
    ]
    assert pace.factor(9, phases_of(3, 5)) == schedule_of(schedule)(1.0)


@pytest.mark.parametrize(
    "name", ["zigzag", "drops:", "drops:x", "drops:0.5/0", "exponential:", "exponential:2"]
)
def test_a_wrong_schedule_is_told(name):
    with pytest.raises(
        UserError, match="--schedule must be cosine, poly, constant, exponential:LAST or"
    ):
        schedule_of(name)


@pytest.mark.parametrize("text", ["then", "then:2", "sum:x", "first:0.5", "sum:nan"])
def test_a_wrong_mix_is_told(text):
    with pytest.raises(UserError, match="--mix must be none, then:SHARE or sum:SHARE"):
        parse_mix(text)


def squares(output, batch):
    return (output[:, 0] - batch.target).square().mean()


PART = Part(torch.randn(20, 3), torch.randn(20))


def network():
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 1))


def training(steps=30, **pace):
    return Training(network(), [Phase(squares, steps)], Pace(0.05, **pace))


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("sgd", lambda p: torch.optim.SGD(p, 0.05, momentum=0.9, weight_decay=0.1)),
        ("adam", lambda p: torch.optim.Adam(p, 0.05, weight_decay=0.1)),
        ("adamw", lambda p: torch.optim.AdamW(p, 0.05, weight_decay=0.1)),
    ],
)
def test_the_loop_is_the_plain_one(name, make):
    """Against a loop in torch alone, on full batches and without dropout."""
    model = network().eval()
    optimiser = make(model.parameters())
    for step in range(10):
        optimiser.param_groups[0]["lr"] = 0.05 * (1 - step / 10) ** 0.9
        optimiser.zero_grad()
        loss = (model(PART.inputs)[:, 0] - PART.target).square().mean()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimiser.step()
    pace = {"optimiser": name, "momentum": 0.9, "weight_decay": 0.1, "schedule": "poly"}
    ours = training(10, clip=0.5, **pace)
    ours.network[1] = nn.Identity()
    fit(ours, in_memory(PART, None, 0))
    torch.testing.assert_close(ours.loss, loss.detach())
    torch.testing.assert_close(ours.network[2].weight, model[2].weight)


class Stop(Hook):
    """Ends the training after some epochs, as a kill would."""

    def __init__(self, epochs):
        self.epochs = epochs

    def after_epoch(self, training):
        training.stopped = training.epoch >= self.epochs


def test_a_checkpoint_goes_on_to_the_same_end(tmp_path):
    batches = in_memory(PART, 6, seed=1)  # three steps an epoch

    def hooks(ours):
        everything = Batch(PART.inputs, PART.target, torch.arange(20))

        def measure():
            return -float(squares(scores_of(ours.network, PART.inputs), everything))

        return [Validation(measure, keep_best=True)]

    whole, first, second = training(), training(), training()
    watched = hooks(whole)
    fit(whole, batches, watched)
    fit(first, batches, [*hooks(first), Stop(4)], checkpoint=tmp_path / "last.ckpt")
    assert first.step == 12
    state = torch.load(tmp_path / "last.ckpt", weights_only=True)
    again = [*hooks(second), Stop(99)]
    checkpoints.resume(second, again, state)
    assert second.stopped
    second.stopped = False  # as if it had been killed, not stopped
    fit(second, batches, again)
    assert (second.step, second.epoch) == (30, 10)
    for name, tensor in whole.network.state_dict().items():
        assert torch.equal(tensor, second.network.state_dict()[name])
    kept = [{k: v for k, v in point.items() if k != "seconds"} for point in again[0].curve]
    assert kept == [
        {k: v for k, v in point.items() if k != "seconds"} for point in watched[0].curve
    ]
    assert again[0].best == watched[0].best == max(point["metric"] for point in watched[0].curve)


def test_steps_end_in_the_middle_of_an_epoch_and_hooks_see_all_of_them():
    seen = []
    ours = fit(training(7), in_memory(PART, 6, seed=1), [Every(3, seen.append)])
    assert (ours.step, ours.epoch) == (7, 3)
    assert seen == [3, 6, 7]
    assert ours.seconds > 0


def test_an_epoch_without_a_batch_is_told_and_does_not_hang():
    training = Training(nn.Linear(1, 1), [Phase(lambda output, batch: output.sum(), 3)], Pace(0.1))
    with pytest.raises(ValueError, match=r"fit: epoch 0 has no batch\. Make"):
        fit(training, lambda epoch: [])


def test_validation_keeps_the_best_and_stops_after_its_patience():
    values = iter([0.1, 0.9, 0.5, 0.4, 0.8])
    ours, states = training(), []
    hook = Validation(lambda: next(values), keep_best=True, patience=2)
    fit(
        ours,
        in_memory(PART, 6, seed=1),
        [hook, Every(3, lambda _: states.append(ours.network[2].weight.clone()))],
    )
    assert ours.epoch == 4  # the best, and two without a better one
    hook.restore_best(ours)
    assert torch.equal(ours.network[2].weight, states[1])
    assert looks(20, 4) == {5, 10, 15, 20}
    assert looks(3, 10) == {1, 2, 3}


def rows(count):
    target = Column([torch.tensor(i % 2) for i in range(count)])
    return Examples(Column(list(torch.randn(count, 3))), target)


def planned(loss, mix, steps=10, kind="ranking", **options):
    return plan(loss, options, kind, parse_mix(mix), steps, Given(rows(20), 2, 255))


def batch_of(target, lists=None):
    return Batch(torch.zeros(len(target), 3), target, torch.arange(len(target)), lists)


SCORES, TARGET = torch.randn(8), torch.tensor([0, 1] * 4)


def test_phases_train_the_baseline_first_and_then_the_loss():
    first, second = planned("direct_average_precision", "then:0.4")
    assert (first.steps, second.steps) == (4, 6)
    expected = nn.functional.binary_cross_entropy_with_logits(SCORES, TARGET.float())
    torch.testing.assert_close(first.loss(SCORES[:, None], batch_of(TARGET)), expected)
    torch.testing.assert_close(
        1 - second.loss(SCORES[:, None], batch_of(TARGET)),
        metrics.average_precision(SCORES, TARGET).float(),
    )
    ours = Training(nn.Linear(3, 1), [first, second], Pace(0.5))
    rates = []
    for _ in range(5):
        rates.append(ours.optimiser.param_groups[0]["lr"])
        ours.take(Batch(torch.randn(8, 3), TARGET, torch.arange(8)))
    assert rates[0] == rates[4] == 0.5 > rates[3]


def test_a_sum_has_the_share_of_the_loss():
    (phase,) = planned("direct_average_precision", "sum:0.25", epsilon=0.2)
    baseline = nn.functional.binary_cross_entropy_with_logits(SCORES, TARGET.float())
    torch.testing.assert_close(
        phase.loss(SCORES, batch_of(TARGET)),
        0.75 * baseline + 0.25 * (1 - metrics.average_precision(SCORES, TARGET)).float(),
    )


def test_lists_are_rankings_of_their_own():
    (phase,) = planned("direct_average_precision", "none")
    lists = torch.tensor([0, 0, 0, 0, 1, 1, 1, 1])
    expected = metrics.average_precision(SCORES.view(2, 4), TARGET.view(2, 4))
    found = 1 - phase.loss(SCORES, batch_of(TARGET, lists))
    torch.testing.assert_close(found, expected.float())


def test_s_measures_get_the_labels_of_the_training_data_and_the_index():
    (phase,) = planned("f_beta", "sum:0.5")
    phase.loss(torch.randn(20), batch_of(torch.arange(20) % 2))
    assert "100 %" in phase.loss.loss.losses[1].diagnostics()["source"]
    assert phase.loss.state_dict()


def test_class_weights_come_from_the_training_data_and_only_when_asked_for():
    target = torch.tensor([int(i < 15) for i in range(20)])
    given = Given(Part(torch.randn(20, 3), target), 2, 255)
    (phase,) = plan("weighted_cross_entropy", {}, "classification", None, 5, given)
    scores, weights = torch.randn(20, 2), torch.tensor([20 / (2 * 5), 20 / (2 * 15)])
    expected = nn.functional.cross_entropy(scores, target, weight=weights)
    torch.testing.assert_close(phase.loss(scores, batch_of(target)), expected)


def ranking_arguments(tmp_path, *more):
    data = write_table(tmp_path / "data.csv")
    options = [
        "--data",
        str(data),
        "--out",
        str(tmp_path / "run"),
        "--accelerator",
        "cpu",
        "--group",
        "query",
        "--test",
        "0",
    ]
    return ["train", "--task", "ranking", "--metric", "f1", *options, "--batch-size", "3", *more]


def test_training_stops_early_and_a_finished_run_is_not_trained_again(tmp_path, capsys):
    arguments = ranking_arguments(
        tmp_path, "--epochs", "40", "--patience", "2", "--learning-rate", "1e-9"
    )
    assert main(arguments) == 0
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["epochs"] == 5  # three that are one look, and two without a better metric
    weights = (tmp_path / "run" / "best.safetensors").read_bytes()
    assert main(arguments) == 0
    assert "holds this run, finished" in capsys.readouterr().out
    assert json.loads((tmp_path / "run" / "result.json").read_text()) == result
    assert (tmp_path / "run" / "best.safetensors").read_bytes() == weights


def test_iterations_are_steps_and_never_resume_begins_again(tmp_path, capsys):
    # 5 lists to train on: one step of 3 lists in each epoch
    arguments = ranking_arguments(tmp_path, "--iterations", "3")
    assert main(arguments) == 0
    assert json.loads((tmp_path / "run" / "result.json").read_text())["steps"] == 3
    assert main([*arguments, "--seed", "1", "--resume", "never"]) == 0
    assert "going on" not in capsys.readouterr().out
    assert torch.load(tmp_path / "run" / "last.ckpt", weights_only=True)["step"] == 3


INTERRUPTED_NET = """
import pathlib, torch

class Net(torch.nn.Linear):
    def __init__(self, inputs, outputs):
        super().__init__(inputs, outputs)

    def forward(self, x):
        if pathlib.Path("stop").exists() and self.training:
            raise KeyboardInterrupt
        return super().forward(x)
"""


def test_ctrl_c_leaves_no_result_and_the_same_command_goes_on(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "interrupted_net.py").write_text(INTERRUPTED_NET)
    (tmp_path / "stop").touch()
    handler = signal.getsignal(signal.SIGINT)
    arguments = ranking_arguments(tmp_path, "--epochs", "2", "--model", "interrupted_net:Net")
    assert main(arguments) == 130
    assert (
        "interrupted; finished work is kept, and the same command resumes."
        in capsys.readouterr().err
    )
    assert signal.getsignal(signal.SIGINT) is handler
    assert not (tmp_path / "run" / "result.json").exists()
    (tmp_path / "stop").unlink()
    assert main(arguments) == 0
    assert json.loads((tmp_path / "run" / "result.json").read_text())["epochs"] == 2


def test_a_loss_that_overflows_is_told(tmp_path, capsys):
    arguments = ranking_arguments(
        tmp_path,
        "--epochs",
        "9",
        "--learning-rate",
        "1e25",
        "--loss",
        "bce",
        "--schedule",
        "constant",
    )
    assert main(arguments) == 2
    assert "the loss was not finite in epoch" in capsys.readouterr().err


def test_two_processes_train_and_measure_what_one_measures(tmp_path, capsys):
    data = write_segmentation(tmp_path / "data" / "train", count=6)
    write_segmentation(tmp_path / "data" / "val", count=3, seed=1)
    arguments = [
        "train",
        "--task",
        "segmentation",
        "--metric",
        "image-miou",
        "--data",
        str(data.parent),
        "--out",
        str(tmp_path / "run"),
    ]
    arguments += [
        "--epochs",
        "2",
        "--batch-size",
        "2",
        "--model-options",
        '{"width": 4}',
        "--accelerator",
        "cpu",
        "--test",
        "0",
    ]
    # lightning starts the other process by running the script again
    script = tmp_path / "command.py"
    script.write_text(
        "import sys, torch\nfrom evalgrad_lab.cli import"
        " main\ntorch.set_num_threads(1)\nsys.exit(main())\n"
    )
    command = [sys.executable, str(script), *arguments, "--devices", "2", "--strategy", "ddp"]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["steps"] == 2  # three images on each of the two ranks are one batch
    assert main(["evaluate", str(tmp_path / "run"), "--data", str(data.parent)]) == 0
    assert float(capsys.readouterr().out.split()[1]) == pytest.approx(
        result["validation"], abs=1e-6
    )


def on_ranks(folder, count, each, ways, *options):
    """The folders of runs with the same steps: (ranks, parts of the batch of each) of `ways`."""
    rows = torch.randn(count, 2, generator=torch.Generator().manual_seed(0))
    lines = [f"{a:.4f},{b:.4f},{int(a + b > 0.1)}" for a, b in rows.tolist()]
    (folder / "data.csv").write_text("\n".join(["a,b,target", *lines]) + "\n")
    # lightning starts the other process by running the script again
    script = folder / "command.py"
    script.write_text(
        "import sys, torch\nfrom evalgrad_lab.cli import"
        " main\ntorch.set_num_threads(1)\nsys.exit(main())\n"
    )
    command = [sys.executable, script, "train", "--task", "ranking", "--metric", "f1"]
    command += ["--data", folder / "data.csv", "--test", "0", "--accelerator", "cpu", *options]
    found = []
    for ranks, parts in ways:
        out = folder / f"run{ranks}{parts}"
        size = 2 * each // ranks // parts
        more = ["--out", out, "--devices", ranks, "--batch-size", size, "--accumulate", parts]
        more += ["--strategy", "ddp" if ranks > 1 else "auto"]
        run = [*map(str, [*command, *more])]
        subprocess.run(run, check=True, capture_output=True, timeout=300)
        found.append(out)
    return found


def same_weights(runs, checkpoint):
    one, *others = (torch.load(run / checkpoint, weights_only=True)["network"] for run in runs)
    for other in others:
        for name, weight in one.items():
            torch.testing.assert_close(other[name], weight, atol=1e-6, rtol=0)


def test_two_processes_train_as_one_on_the_union_of_their_batches(tmp_path):
    """F1 counts over the whole batch: without the exchange the two runs would drift apart."""
    # 20 of 25 rows to train on: two steps an epoch
    ways = ((1, 1), (2, 1), (2, 5))
    same_weights(on_ranks(tmp_path, 25, 5, ways, "--loss", "f_beta", "--epochs", "3"), "last.ckpt")


def test_two_processes_choose_the_branch_that_one_chooses(tmp_path):
    """The second branch of `--loss auto` on the union of their batches."""
    runs = on_ranks(tmp_path, 250, 50, ((1, 1), (2, 1)), "--epochs", "4")
    same_weights(runs, "last.ckpt")
    same_weights(runs, "branch0.ckpt")
    one, two = (json.loads((run / "result.json").read_text())["recipe"] for run in runs)
    assert "standard_error" in one  # there was a second branch to choose
    for name in ("difference", "standard_error"):
        assert two.pop(name) == pytest.approx(one.pop(name), abs=1e-6)
    assert two == one


class Seen(Hook):
    """Keeps the loss of every step."""

    def __init__(self):
        self.losses = []

    def after_step(self, training):
        self.losses.append(float(training.loss))


def ranked(output, batch):
    """Not a mean over items: the loss of a batch is not the mean of those of its parts."""
    return eg.average_precision_hinge_loss(output[:, 0], (batch.target > 0).long())


@pytest.mark.parametrize("parts", [2, 3])
def test_a_batch_in_parts_trains_as_the_whole(parts):
    ends = []
    for accumulate in (1, parts):
        model = network()
        model[1] = nn.Tanh()
        ours = Training(model, [Phase(ranked, 6)], Pace(0.05, clip=1.0, accumulate=accumulate))
        fit(ours, in_memory(PART, 10, 0), [seen := Seen()])
        ends.append((seen.losses, ours.network[2].weight.detach(), ours.output.shape))
    assert ends[0][0] == pytest.approx(ends[1][0], abs=1e-6)
    torch.testing.assert_close(ends[0][1], ends[1][1])
    assert ends[0][2] == ends[1][2] == (10, 1)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's compiler uses torch.jit
def test_a_compiled_network_trains_the_given_one():
    ends = []
    for compiled in (False, True):
        model = network()
        model[1] = nn.Tanh()
        ours = Training(model, [Phase(squares, 4)], Pace(0.05), compiled=compiled)
        fit(ours, in_memory(PART, 10, 0))
        ends.append(model[2].weight.detach())
    torch.testing.assert_close(*ends)


def test_what_a_loss_learns_is_trained_too_without_weight_decay():
    labels = (PART.target > 0).long()
    given = Given(Part(PART.inputs, labels), 2)
    (phase,) = plan("roc_auc", {}, "ranking", None, 20, given)
    (thresholds,) = phase.parameters
    ours = Training(nn.Linear(3, 1), [phase], Pace(0.05, weight_decay=0.5))
    fit(ours, in_memory(Part(PART.inputs, labels), None, 0))
    assert thresholds.detach().unique().numel() == 10
    assert [g["weight_decay"] for g in ours.optimiser.param_groups] == [0.5, 0.0]


def test_train_in_parts_equals_the_large_batch_and_other_precision_nearly(tmp_path):
    """`--batch-size 2 --accumulate 2` against 4 lists, and bfloat16 against float32."""
    data = write_table(tmp_path / "data.csv")
    common = {"task": "ranking", "metric": "ap", "data": data, "group": "query", "test": 0.0}
    common |= {"accelerator": "cpu", "epochs": 4, "loss": "bce", "clip": 1.0}
    common |= {"optimiser": "sgd", "learning_rate": 0.5}
    sizes = [{"batch_size": 4}, {"batch_size": 2, "accumulate": 2}]
    sizes += [{**one, "precision": "bf16-mixed"} for one in sizes]
    found = []
    for number, more in enumerate(sizes):
        out = tmp_path / str(number)
        result = train(TrainOptions(out=out, **common, **more))
        state = torch.load(out / "last.ckpt", weights_only=True)["network"]
        found.append((result.steps, state))
    assert {steps for steps, _ in found} == {4}
    difference = [
        max(float((a - b).abs().max()) for a, b in zip(found[0][1].values(), other[1].values()))
        for other in found[1:]
    ]
    assert difference[0] < 1e-5 < min(difference[1:]) < max(difference[1:]) < 0.1
