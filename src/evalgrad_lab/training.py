"""Implements `evalgrad train`: one run, from the options to the files it writes."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evalgrad_lab import checkpoints, saved
from evalgrad_lab.branches import take_better
from evalgrad_lab.collapse import Collapse, repair_of
from evalgrad_lab.commands.train import TrainOptions, TrainResult, read_result, result_path
from evalgrad_lab.data.dataset import Examples
from evalgrad_lab.data.files.read import digest_of, fingerprints
from evalgrad_lab.decisions import Decision, plain
from evalgrad_lab.errors import UserError
from evalgrad_lab.fit import Hook, Training, fit
from evalgrad_lab.guesses import guesses_of
from evalgrad_lab.lock import held
from evalgrad_lab.parts import dataset, files_of
from evalgrad_lab.progress import Progress
from evalgrad_lab.ready import Ready, prepare
from evalgrad_lab.recipe import LEAST, Fork, fork_step
from evalgrad_lab.report.run_page import totals, write_run
from evalgrad_lab.store import read_json, write_atomically
from evalgrad_lab.trials import EXAMPLES, shown
from evalgrad_lab.validation import Validation

if TYPE_CHECKING:
    from lightning.fabric import Fabric

# of the training, of its second branch, and of the repeat of that after a collapse
BRANCHES = ("first branch", "second branch", "its repeat")
LOGS = ("log.csv", "branch.csv", "branch1.csv")
OF_SECOND = ("branch0.ckpt", "branch1.ckpt", *LOGS[1:])
# what a run leaves, but for its options and result
LEFT = (
    *("last.ckpt", *OF_SECOND, "log.csv"),
    *("best.safetensors", "model.json", "parts.json", "report.html"),
)
CONTENTS = "contents of --data"  # what the digest is called beside the options


def run(options: TrainOptions) -> TrainResult:
    """Check everything, tune if asked to, train, and leave the model in `out`."""
    ready = prepare(options)
    fabric = make_fabric(options)
    with held(options.out):
        return _run(ready, fabric)


def _run(asked: Ready, fabric: "Fabric") -> TrainResult:
    """The run in a folder that is this process's own."""
    ready, options = asked, asked.options
    longer = options.resume == "auto" and _is_longer(ready)
    state = _state_to_resume(ready)
    goes_on = state is not None and options.resume == "auto"
    if goes_on and not longer and (finished := read_result(options)):
        return finished
    tuned: dict[str, Any] = {}
    if options.tune:
        from evalgrad_lab.comparison.own import tuned_options  # which trains with what is here

        tuned, best = tuned_options(ready)
        ready = replace(ready, options=best)
    fabric.launch()  # the other ranks come here by themselves
    one = Run(ready, fabric, options.out)
    if state is not None:
        checkpoints.resume(one.training, one.hooks, state)
        one.training.stopped &= not longer
    if fabric.is_global_zero:
        _remember(asked, begins=state is None)
        print(ready.note, end="\n" * bool(ready.note), file=sys.stderr)
    result = one.result(tuned)
    measured = (ready, one.training, ready.last_part, result.decision)
    examples, guesses = examples_of(*measured), guesses_of(*measured)
    if fabric.is_global_zero:
        description = replace(ready.description, decision=result.decision)
        saved.write(options.out, description, one.training.network)
        saved.write_parts(options.out, ready.data, files_of(options))
        write_run(options, result.plain(), one.curves(), examples, guesses)
        content = json.dumps(result.plain(), indent=1)
        write_atomically(result_path(options), content.encode())
        _say_cost(one.curves())
        _say_few(ready, result.decision)
    return result


def _say_few(ready: Ready, decision: Decision | None) -> None:
    """Warn of a threshold that was chosen on so few positives that it is mostly noise."""
    if ready.options.task not in ("ranking", "multilabel") or decision is None:
        return
    positives = int((ready.data.validation.labels() == 1).sum(0).min())
    if decision.rule == "threshold" and decision != plain(True) and positives < LEAST:
        what = "positive" if positives == 1 else "positives"
        print(
            f"threshold chosen on {positives} {what}: with fewer than {LEAST} it is mostly noise.",
            file=sys.stderr,
        )


def _say_cost(curves: list[list[dict[str, Any]]]) -> None:
    """What each branch took; the result has no seconds, which differ between runs."""
    if len(curves) > 1:
        each = zip(BRANCHES, (totals([rows]) for rows in curves), strict=False)
        told = (f"{name}: {steps} steps in {seconds:.1f} s" for name, (steps, seconds) in each)
        print("; ".join(told), file=sys.stderr)


class Run:
    """A training with its hooks, for `train` and for every run of `compare --data`. With a `folder`
    it writes logs and checkpoints there.
    """

    def __init__(self, ready: Ready, fabric: "Fabric", folder: Path | None = None) -> None:
        self.ready, self.folder = ready, folder
        self.training = ready.training(fabric)
        self.validation, self.logs = ready.validation(self.training), list[Progress]()
        self.batches, following = ready.feed(fabric)
        self.hooks = [self.validation, *following, *self._watched(self.validation)]
        self.fork = None
        if ready.recipe is not None:
            self.fork = Fork(fork_step(self.training.steps))
            self.hooks.append(self.fork)

    def _watched(self, validation: Validation) -> list[Hook]:
        if self.folder is None:
            return []
        number, options = len(self.logs), self.ready.options
        branch = BRANCHES[number] if number else ""
        log = Progress(self.folder / LOGS[number], validation, options.metric, branch)
        self.logs.append(log)
        if number:  # has one that stops it
            return [log]
        repair = repair_of(options.loss, options.mix)
        return [log, Collapse(validation, stops=False, repair=repair)]

    def curves(self) -> list[list[dict[str, Any]]]:
        """The rows of the log, and those of the second branch if there is one; of two, the last did
        not collapse, or was the last that was tried.
        """
        return [log.rows for log in self.logs]

    def result(self, tuned: dict[str, Any]) -> TrainResult:
        """Take all steps, keep the network that validation chooses, and measure it."""
        ready, training = self.ready, self.training
        recipe = self._fitted()
        decision, value = ready.decision(training, last=True)
        judged = ready.judged(training, ready.last_part, decision)
        default, by_default = plain(ready.description.of_one_score), judged.value
        if decision != default and ready.measure.decides:
            by_default = ready.judged(training, ready.last_part, default).value
        return TrainResult(
            ready.options.out,
            ready.options.metric,
            ready.description.loss,
            value,
            judged.value if len(ready.data.test) else None,
            decision,
            by_default,
            training.epoch,
            training.step,
            tuned,
            recipe,
            judged.classes,
            judged.confusion,
            "test" if len(ready.data.test) else "validation",
        )

    def _fitted(self) -> dict[str, Any]:
        """All steps and the best network; what the recipe did."""
        ready, training, fabric = self.ready, self.training, self.training.fabric
        last = None if self.folder is None else self.folder / "last.ckpt"
        goes_on = training.step < training.steps and not training.stopped
        anew = goes_on or ready.options.resume != "auto"
        if self.folder is not None and anew and fabric.is_global_zero:
            for old in OF_SECOND:  # of a shorter training, or of another one
                (self.folder / old).unlink(missing_ok=True)
        fit(training, self.batches, self.hooks, last)
        self.validation.restore_best(training)
        if self.fork is None:
            return {}
        return take_better(ready, training, self.fork, self.folder, self._watched)


def examples_of(
    ready: Ready, training: Training, part: Examples, decision: Decision | None
) -> list[dict[str, Any]]:
    """The first images of a segmentation with true and predicted masks, ignored pixels as -1."""
    found: list[dict[str, Any]] = []
    count = EXAMPLES if ready.options.task == "segmentation" else 0
    for i in range(min(count, len(part))):
        ((scores, target, _),) = ready.scored(training, part.take([i]), alone=True)
        predicted = (decision or plain(ready.description.of_one_score))(scores)
        target = target.masked_fill(target == ready.options.ignore_index, -1)
        found.append(shown(part.inputs[i], target[0], predicted[0]))
    return found


def make_fabric(options: TrainOptions) -> "Fabric":
    """Lightning's devices, ranks and precision."""
    from lightning.fabric import Fabric  # takes seconds to import

    names = ("accelerator", "devices", "num_nodes", "strategy", "precision")
    where = {name: getattr(options, name) for name in names}
    try:
        return Fabric(**where)
    except Exception as error:  # Lightning's own exceptions have no common class
        reason = str(error).splitlines()[0]
        raise UserError(
            f"Lightning cannot train with {where}: {reason} Change these options."
        ) from error


def _state_to_resume(ready: Ready) -> dict[str, Any] | None:
    """The checkpoint to go on from, checked against the options and the network; None to begin."""
    options = ready.options
    last = options.out / "last.ckpt"
    if options.resume == "never" or (options.resume == "auto" and not last.exists()):
        return None
    path = last if options.resume == "auto" else Path(options.resume)
    repair = "Pass the last.ckpt of an `evalgrad train`, or --resume never to start over."
    state = checkpoints.read(path, repair)
    saved.check_weights(path, state["network"], ready.network())
    return state


def _settings(ready: Ready) -> dict[str, Any]:
    """What the run is: its options and a digest of its data."""
    return {**ready.options.plain(elsewhere=False), CONTENTS: ready.digest}


def holds(options: TrainOptions) -> bool:
    """Whether the folder holds this very run, finished or not."""
    path = options.out / "options.json"
    return path.exists() and _known(options.out) == _settings(prepare(options))


def _known(folder: Path) -> dict[str, Any]:
    """What the run in a folder is."""
    repair = "Choose another --out, or --resume never to start over."
    return read_json(folder / "options.json", repair)


def _remember(ready: Ready, begins: bool) -> None:
    """Write down what the run is, to refuse another one in its folder; it is not finished now. One
    that begins anew leaves nothing of an old one to go on from.
    """
    result_path(ready.options).unlink(missing_ok=True)
    for name in LEFT if begins else ():
        (ready.options.out / name).unlink(missing_ok=True)
    content = json.dumps(_settings(ready), indent=1, sort_keys=True)
    write_atomically(ready.options.out / "options.json", content.encode())


def _said(value: Any) -> Any:
    return "left out" if value is None else value


def _is_longer(ready: Ready) -> bool:
    """Whether the folder's run is the same with fewer steps, so that it may go on, or refuse."""
    out, longer = ready.options.out, False
    before = _known(out) if (out / "options.json").exists() else {}
    for name, value in _settings(ready).items():
        if name not in before or before[name] == value:
            continue
        if name in ("epochs", "iterations") and (before[name] or 0) < (value or 0):
            longer = True
            continue
        what = name if " " in name else f"--{name.replace('_', '-')}"
        raise UserError(
            f"{out} holds a run with {what} {_said(before[name])}; got {_said(value)}. Choose"
            " another --out, pass the old option to continue, or --resume never to start over."
        )
    return longer


def stored_test(folder: Path) -> Examples:
    """The test part of a run, read again; raises if the data have changed since."""
    parts = saved.read_parts(folder)
    values = read_json(folder / "options.json", "Pass data with --data.")
    files = dict(zip(("data", "validation_data", "test_data"), parts["data"], strict=True))
    options = TrainOptions.of({**values, **files, "out": str(folder)})
    test = dataset(options, digest_of(files_of(options))).test
    if not len(test):
        raise UserError(f"{folder} was trained without a test part. Pass data with --data.")
    if fingerprints(test) != [mark for _, mark in parts["test"]]:
        raise UserError(
            f"{options.data} has changed since {folder} was trained. Pass data with --data."
        )
    return test
