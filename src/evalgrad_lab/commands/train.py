"""`evalgrad train`: trains a model on the user's data for the metric they are judged by. It does
not import torch, so that `--help` is quick; `training` does the work.
"""

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from evalgrad_lab.errors import UserError
from evalgrad_lab.options import option
from evalgrad_lab.store import read_json
from evalgrad_lab.view_options import Views

if TYPE_CHECKING:
    from evalgrad_lab.decisions import Decision

TaskName = Literal["segmentation", "classification", "ranking", "multilabel"]


@dataclass(frozen=True, kw_only=True)
class DataOptions(Views):
    """The options of a training on the user's data, shared by `train` and `compare --data`."""

    data_options: dict[str, Any] = option({}, help="options of a layout; see docs/papers/README.md")
    limit: int | None = option(
        None, help="use only this many examples of each part, to try things out", least=2
    )
    validation_data: Path | None = option(None, help="separate validation data, as for --data")
    test_data: Path | None = option(None, help="separate test data, as for --data")
    model: str | None = option(
        None,
        help="a name of docs/train.md, package.module:factory(inputs, outputs=...), or a Hugging"
        " Face folder",
    )
    model_options: dict[str, Any] | None = option(None, help="keyword arguments of the factory")
    weights: Path | None = option(None, help="file or folder with initial weights")
    freeze_batch_norm: bool = option(False, help="keep the batch normalisation of --weights fixed")
    head_rate: float | None = option(
        None,
        help="factor of the head's learning rate; its biases have twice that, and no weight decay",
        least=0,
    )
    normalise: Literal["data", "caffe"] = option(
        "data",
        help="data: by mean and standard deviation of the training images; caffe: BGR minus"
        " ImageNet's mean, for weights trained in Caffe (data)",
    )
    epochs: int = option(50, help="passes over the training data (50)", least=1)
    iterations: int | None = option(None, help="steps, instead of --epochs", least=1)
    batch_size: int | None = option(
        None,
        help="examples, or lists with --group (16; more if few items are positive)",
        least=1,
    )
    accumulate: int = option(
        1, help="batches per optimiser step, with the loss of all of them together (1)", least=1
    )
    optimiser: Literal["adamw", "adam", "sgd"] = option("adamw", help="optimiser (adamw)")
    momentum: float = option(0.0, help="momentum for sgd (0)", least=0, below=1)
    nesterov: bool = option(False, help="Nesterov momentum for sgd")
    schedule: str = option(
        "cosine",
        help="learning-rate schedule: cosine, poly, constant, exponential:..., drops:...",
    )
    clip: float | None = option(None, help="maximum gradient norm", least=1e-9)
    precision: Literal["32-true", "bf16-mixed"] = option(
        "32-true", help="precision of the network; bf16-mixed is autocast in bfloat16 (32-true)"
    )
    compile: bool = option(False, help="apply torch.compile to the network", elsewhere=True)
    augment: Literal["none", "flip", "full"] = option(
        "none", help="flip: mirror images; full: also scale or shift them"
    )
    crop: int | None = option(None, help="train on random square crops of this size", least=1)
    sampler: Literal[
        "uniform", "equibatch", "performance", "quarter_positive", "half_foreground"
    ] = option(
        "uniform",
        help="equibatch: cycle over the classes; performance: half of the images for classes of low"
        " IoU; half_foreground: half of them with class 1; quarter_positive: for rankings",
    )
    size_node: float | None = option(
        None,
        help="segmentation: weight of the F1 loss of an auxiliary output that tells images with"
        " much foreground from the others",
        least=0,
    )
    num_classes: int | None = option(
        None, help="number of classes (the largest label + 1)", least=1
    )
    ignore_index: int = option(255, help="label of pixels to ignore (255)")
    target: str = option(
        "target", help="column of a CSV to predict (target); for multilabel several: a,b,c"
    )
    group: str | None = option(
        None, help="column of a CSV with the list of each item; lists are not divided"
    )
    validation: float = option(
        0.2,
        help="fraction held out for validation if the data have no val/ (0.2)",
        least=0.001,
        below=1,
    )
    test: float = option(
        0.2, help="fraction held out for testing if the data have no test/ (0.2)", least=0, below=1
    )
    split: int = option(0, help="seed of the test split (0)")
    choose: Literal["best", "last"] = option(
        "best",
        help="which network to keep: the best by the mean of three validations, or the last (best)",
    )


@dataclass(frozen=True, kw_only=True)
class TrainOptions(DataOptions):
    """Options of `train` and of the command `evalgrad train`.

    Example:
        >>> rows, out = Path("rows.csv"), Path("run")
        >>> options = TrainOptions(task="ranking", metric="ap", data=rows, out=out)
        >>> options.loss, options.epochs
        ('auto', 50)
        >>> " ".join(options.arguments())
        '--task ranking --metric ap --data rows.csv --out run'
    """

    task: TaskName = option(help="the kind of task")
    metric: str = option(
        help="the metric you are judged by: miou, top5, ap, f1, ...; docs/train.md"
    )
    data: Path = option(
        help="folder of images/ and masks/, folder of classes, .npz or .csv; see docs/train.md"
    )
    out: Path = option(help="folder of the run; an unfinished run in it is resumed", elsewhere=True)
    loss: str = option(
        "auto",
        help="auto: cross-entropy, or a branch of it with the metric's loss if that is better on"
        " validation (auto); `evalgrad losses` lists all",
    )
    loss_options: dict[str, Any] = option({}, help="options of the loss, e.g. '{\"epsilon\": 0.1}'")
    learning_rate: float | None = option(
        None, help="learning rate (0.01 for segmentation, else 0.003)", least=0
    )
    weight_decay: float | None = option(None, help="weight decay of the optimiser (0)", least=0)
    mix: str = option(
        "none",
        help="then:SHARE (baseline for that share of the steps, then the loss) or sum:SHARE (of the"
        " loss)",
    )
    tune: int = option(
        0,
        help="first search this many settings of learning rate, weight decay and loss options (0)",
        least=0,
    )
    patience: int = option(
        0, help="stop after this many epochs without improvement (0: never)", least=0
    )
    seed: int = option(0, help="seed of the weights, the validation split and the batches (0)")
    resume: str = option(
        "auto",
        help="auto: resume from OUT/last.ckpt; never: start again; or a checkpoint to resume from",
        elsewhere=True,
    )
    jobs: int = option(
        os.cpu_count() or 1, help="processes for --tune (one per core)", least=1, elsewhere=True
    )
    workers: int = option(0, help="processes that read data (0)", least=0, elsewhere=True)
    accelerator: str = option("auto", help="as in Lightning: auto, cpu, gpu, ...", elsewhere=True)
    devices: int = option(1, help="processes that train (1)", least=1, elsewhere=True)
    num_nodes: int = option(1, help="machines (1)", least=1, elsewhere=True)
    strategy: str = option("auto", help="as in Lightning: auto, ddp, ...", elsewhere=True)


@dataclass(frozen=True)
class TrainResult:
    """What `train` returns, and writes to `result.json`.

    Attributes:
        out: the folder of the run.
        metric: the name of the metric.
        loss: the name of the loss.
        validation: the metric of the network that was kept, on validation data.
        test: the same on the test part; None without one, or where the metric is undefined.
        decision: how scores become predictions, chosen on validation; None for rankings.
        by_default: the metric with argmax, or a threshold of 0, in place of the decision: on the
            test part, or on validation without one.
        epochs: number of epochs trained.
        steps: number of steps trained, without those of a second branch of `recipe`.
        tuned: the options that `tune` chose.
        recipe: what `loss="auto"` did, and why; docs/train.md explains its entries.
        classes: the table of classes, of the test part or of validation.
        confusion: the confusion matrix; rows are true, columns predicted classes.
        part: what `by_default`, `classes` and `confusion` are of: test or validation.

    Example:
        >>> quick = {"data": folder / "rows.csv", "loss": "bce", "epochs": 2}
        >>> options = TrainOptions(task="ranking", metric="ap", out=folder / "run", **quick)
        >>> result = train(options)
        >>> result.metric, result.loss, result.epochs
        ('ap', 'bce', 2)
    """

    out: Path
    metric: str
    loss: str
    validation: float
    test: float | None
    decision: "Decision | None"
    by_default: float | None
    epochs: int
    steps: int
    tuned: dict[str, Any]
    recipe: dict[str, Any]
    classes: list[dict[str, Any]]
    confusion: list[Any]
    part: str

    def plain(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name != "out"}


def train(options: TrainOptions) -> TrainResult:
    """Train a network on your data for your metric, and leave the model in ``options.out``.

    A finished run is not trained again, an interrupted one is resumed.

    Args:
        options: the data, the metric, the loss and everything else.

    Example:
        >>> # rows.csv has a column `target` of 0 and 1; "auto", the default loss, takes longer
        >>> quick = {"data": folder / "rows.csv", "loss": "bce", "epochs": 2}
        >>> options = TrainOptions(task="ranking", metric="ap", out=folder / "run", **quick)
        >>> result = train(options)
        >>> 0 < result.test <= 1, (folder / "run" / "model.json").exists()
        (True, True)
    """
    from evalgrad_lab import training

    return training.run(options)


def result_path(options: TrainOptions) -> Path:
    """The last file of a run: it says that the run is finished."""
    return options.out / "result.json"


def read_result(options: TrainOptions) -> TrainResult | None:
    """The result of a finished run, or None if it is unfinished."""
    from evalgrad_lab.decisions import Decision

    path = result_path(options)
    if not path.exists():
        return None
    repair = "Remove it; the same command then measures the run again."
    values = read_json(path, repair)
    try:
        values["decision"] = Decision.of(values["decision"])
        return TrainResult(out=options.out, **values)
    except (KeyError, TypeError) as error:
        raise UserError(f"{path} is not a result of this version ({error}). {repair}") from error


def main(options: TrainOptions) -> int:
    """The command."""
    from evalgrad_lab.commands.evaluate import print_classes

    before = result_path(options).read_bytes() if result_path(options).exists() else b""
    result = train(options)
    import torch

    if torch.distributed.is_initialized() and torch.distributed.get_rank():
        return 0
    if before and options.resume == "auto" and before == result_path(options).read_bytes():
        print(
            f"{options.out} holds this run, finished; pass more --epochs to continue it, or"
            " --resume never to train it again"
        )
    if result.tuned:
        print(f"--tune {options.tune} chose {result.tuned}")
    print_classes(result.classes, result.confusion)
    if result.decision is not None and result.decision.rule != "argmax":
        value = result.test if result.part == "test" else result.validation
        default = "a threshold of 0" if result.decision.of_one_score else "argmax"
        # a metric of the ranking is the same whatever decides
        other = ""
        if result.by_default is not None and result.by_default != value:
            other = f"; {default} has {result.part} {result.by_default:.4f}"
        print(f"decided by {result.decision}, chosen on validation{other}")
    if result.recipe:
        print(result.recipe["why"])
    test = again = ""
    if result.part == "test":
        test = ", test undefined" if result.test is None else f", test {result.test:.4f}"
        again = f"`evalgrad evaluate {options.out}` measures it again, "
    print(
        f"{result.loss} for {result.metric}: validation {result.validation:.4f}{test}; model in"
        f" {options.out}: {again}`evalgrad predict {options.out} --data ...` uses it, report.html"
        " shows it"
    )
    return 0
