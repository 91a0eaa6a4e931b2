"""`evalgrad train`: the user's data and the metric they are judged by, and a trained model in the
end.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import nn

from evalgrad_lab import losses, metrics, saved
from evalgrad_lab.data.batches import Loading, in_order, loaded, steps_per_epoch
from evalgrad_lab.data.dataset import Dataset, Examples, Found
from evalgrad_lab.data.files.read import Reading, check_inputs, read, statistics
from evalgrad_lab.errors import UserError
from evalgrad_lab.fit import Pace, Phase, Training, fit, resume, schedule_of
from evalgrad_lab.metrics import Measure, Metric
from evalgrad_lab.options import Options, option
from evalgrad_lab.phases import Given, kind_of, parse_mix, plan, shaped
from evalgrad_lab.progress import Progress
from evalgrad_lab.store import write_atomically
from evalgrad_lab.validation import Validation, broadcast_buffers

if TYPE_CHECKING:
    from lightning.fabric import Fabric

# What is built in for images and for rows: model, its options, learning rate.
MODELS: dict[tuple[str, bool], tuple[str, dict[str, Any], float]] = {
    ("segmentation", True): ("unet", {"width": 16}, 0.01),
    ("classification", True): ("densenet", {"depth": 13, "growth": 12}, 0.003),
    ("classification", False): ("mlp", {"widths": [128, 128]}, 0.003),
    ("ranking", True): ("densenet", {"depth": 13, "growth": 12}, 0.003),
    ("ranking", False): ("mlp", {"widths": [64]}, 0.003),
}


@dataclass(frozen=True, kw_only=True)
class TrainOptions(Options):
    """What `evalgrad train` takes."""

    task: Literal["segmentation", "classification", "ranking"] = option(help="what is learnt")
    metric: str = option(help="what you are judged by: miou, top5, ap, f1, ...; docs/train.md")
    data: Path = option(
        help="folder of images/ and masks/, folder of classes, .npz or .csv; see docs/train.md"
    )
    out: Path = option(
        help="folder of the run; if it holds one already, that one goes on", elsewhere=True
    )
    loss: str | None = option(None, help="default: that of the metric; `evalgrad losses` lists all")
    loss_options: dict[str, Any] = option({}, help="e.g. '{\"epsilon\": 0.1}'")
    model: str | None = option(
        None, help="a name of docs/train.md, or package.module:factory(inputs, outputs=...)"
    )
    model_options: dict[str, Any] | None = option(None, help="passed to the factory")
    epochs: int = option(50, help="passes over the training data (50)", least=1)
    iterations: int | None = option(None, help="steps, instead of --epochs", least=1)
    batch_size: int = option(16, help="examples, or lists with --group (16)", least=1)
    learning_rate: float | None = option(
        None, help="default: 0.01 for segmentation, else 0.003", least=0
    )
    weight_decay: float = option(0.0, help="of the optimiser (0)", least=0)
    optimiser: Literal["adamw", "adam", "sgd"] = option("adamw", help="(adamw)")
    momentum: float = option(0.0, help="of sgd (0)", least=0, below=1)
    schedule: str = option("cosine", help="of the learning rate: cosine, poly, constant, drops:...")
    mix: str = option(
        "none",
        help="then:SHARE (baseline for that share of the steps, then the loss) or sum:SHARE (of the"
        " loss)",
    )
    augment: Literal["none", "flip", "full"] = option(
        "none", help="of images: mirror; full: scale or move them too"
    )
    crop: int | None = option(None, help="train on random squares of this side", least=1)
    num_classes: int | None = option(None, help="default: the largest label + 1", least=1)
    ignore_index: int = option(255, help="label of pixels that do not count (255)")
    target: str = option("target", help="column of a CSV to predict (target)")
    group: str | None = option(
        None, help="column of a CSV that says which list an item belongs to; lists are kept whole"
    )
    validation: float = option(
        0.2, help="share set aside where the data have no val/ (0.2)", least=0.001, below=1
    )
    test: float = option(
        0.2, help="share kept for the test where the data have no test/ (0.2)", least=0, below=1
    )
    patience: int = option(
        0, help="stop after so many epochs without a better metric (0: never)", least=0
    )
    seed: int = option(0, help="of the weights, the parts and the batches (0)")
    resume: str = option(
        "auto",
        help="auto: go on from OUT/last.ckpt; never: begin again; or a checkpoint to go on from",
        elsewhere=True,
    )
    workers: int = option(0, help="processes that read data (0)", least=0, elsewhere=True)
    accelerator: str = option("auto", help="Lightning's: auto, cpu, gpu, ...", elsewhere=True)
    devices: int = option(1, help="processes that train (1)", least=1, elsewhere=True)
    num_nodes: int = option(1, help="machines (1)", least=1, elsewhere=True)
    strategy: str = option("auto", help="Lightning's: auto, ddp, ...", elsewhere=True)


@dataclass(frozen=True)
class TrainResult:
    """The metric of the best network on validation data, and on the test part if there is one."""

    out: Path
    metric: str
    loss: str
    validation: float
    test: float | None
    epochs: int
    steps: int

    def plain(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "out"}


def train(options: TrainOptions) -> TrainResult:
    """Check everything, train, and leave the model in `out`; a finished run is not trained
    again.
    """
    metric = metrics.find(options.metric, options.task)
    how = (options.target, options.group, options.num_classes, options.ignore_index)
    data = _parts(read(options.data, Reading(options.task, *how)), options)
    description, alike = _describe(options, metric, data)
    measure = metric.measure(len(data.classes), options.ignore_index)
    fabric = make_fabric(options)
    torch.manual_seed(options.seed)
    network = saved.build(description)
    phases = _phases(options, metric, description, data.train)
    pace = _pace(options, data.train)
    state = _state_to_resume(options, network)
    if state is not None and options.resume == "auto" and _result_path(options).exists():
        return TrainResult(out=options.out, **json.loads(_result_path(options).read_text()))
    fabric.launch()  # the other ranks come here by themselves
    training = Training(network, phases, pace, fabric)
    validation = Validation(
        lambda: _measured(training, description, measure, data.validation, alike),
        keep_best=True,
        patience=options.patience,
    )
    hooks = [validation, Progress(options.out / "log.csv", validation, options.metric)]
    if state is not None:
        resume(training, hooks, state)
    if fabric.is_global_zero:
        _remember(options)
    size = (options.batch_size, options.seed, options.augment, options.crop)
    loading = Loading(*size, options.ignore_index, options.workers)
    batches = loaded(data.train, loading, fabric.global_rank, fabric.world_size)
    fit(training, batches, hooks, checkpoint=options.out / "last.ckpt")
    validation.restore_best(training)
    test = None
    if len(data.test):
        test = _measured(training, description, measure, data.test, alike)
    result = TrainResult(
        options.out,
        options.metric,
        description.loss,
        validation.best,
        test,
        training.epoch,
        training.step,
    )
    if fabric.is_global_zero:
        saved.write(options.out, description, training.network)
        # the last file of a run: it says that the run is finished
        content = json.dumps(result.plain(), indent=1).encode()
        write_atomically(_result_path(options), content)
    return result


def main(options: TrainOptions) -> int:
    """The command."""
    finished = _result_path(options).exists() and options.resume == "auto"
    result = train(options)
    if torch.distributed.is_initialized() and torch.distributed.get_rank():
        return 0
    if finished and result.plain() == json.loads(_result_path(options).read_text()):
        print(f"{options.out} holds this run, finished; --resume never trains it again")
    test = "" if result.test is None else f", test {result.test:.4f}"
    print(
        f"{result.loss} for {result.metric}: best validation {result.validation:.4f}{test}; model"
        f" in {options.out}: `evalgrad evaluate {options.out} --data ...`"
    )
    return 0


def make_fabric(options: TrainOptions) -> "Fabric":
    """Lightning's devices, ranks and precision."""
    from lightning.fabric import Fabric  # takes seconds to import

    names = ("accelerator", "devices", "num_nodes", "strategy")
    where = {name: getattr(options, name) for name in names}
    try:
        return Fabric(**where)
    except Exception as error:  # Lightning's own exceptions have no common class
        reason = str(error).splitlines()[0]
        raise UserError(
            f"lightning cannot train with {where}: {reason} Change these options."
        ) from error


def _phases(
    options: TrainOptions, metric: Metric, description: saved.Description, train: Examples
) -> list[Phase]:
    ranks = options.devices * options.num_nodes
    per_epoch = steps_per_epoch(train, options.batch_size, ranks)
    steps = options.iterations or options.epochs * per_epoch
    own = metric.options if description.loss == metric.loss else {}
    given = Given(train, len(description.classes), options.ignore_index, ranks)
    chosen, mix = {**own, **options.loss_options}, parse_mix(options.mix)
    return plan(description.loss, chosen, description.kind, mix, steps, given)


def _pace(options: TrainOptions, train: Examples) -> Pace:
    rate = options.learning_rate or MODELS[options.task, train.inputs[0].ndim > 1][2]
    return Pace(
        rate,
        options.weight_decay,
        options.optimiser,
        options.momentum,
        schedule_of(options.schedule),
        seed=options.seed,
    )


@torch.no_grad()
def _measured(
    training: Training,
    description: saved.Description,
    measure: Measure,
    examples: Examples,
    alike: bool,
) -> float:
    """The metric of the network as it is, of all ranks together."""
    fabric, network = training.fabric, training.network
    broadcast_buffers(training)
    network.eval()
    rank = (fabric.global_rank, fabric.world_size)
    size = training.batch.inputs.shape[0] if alike else 1
    scored = (
        (shaped(_scores(fabric, network, batch.inputs), description.kind), batch)
        for batch in in_order(examples, size, *rank)
    )
    rows = metrics.measured(measure, ((s.cpu(), b.target, b.lists) for s, b in scored))
    network.train()
    return metrics.finite(measure.value(rows))


def _scores(fabric: "Fabric", network: nn.Module, inputs: torch.Tensor) -> torch.Tensor:
    with fabric.autocast():
        return network(inputs.to(fabric.device)).float()


def _result_path(options: TrainOptions) -> Path:
    return options.out / "result.json"


def _state_to_resume(options: TrainOptions, network: nn.Module) -> dict[str, Any] | None:
    """The checkpoint to go on from, checked against the options and the network; None to begin."""
    last = options.out / "last.ckpt"
    if options.resume == "never" or (options.resume == "auto" and not last.exists()):
        return None
    if options.resume == "auto":
        _check_same_options(options)
    path = last if options.resume == "auto" else Path(options.resume)
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        weights = dict(state["network"])
    except Exception as error:  # torch.load raises whatever a foreign file makes it raise
        reason = type(error).__name__  # torch's own words are a page long
        raise UserError(
            f"{path} cannot be read as a checkpoint ({reason}). Give the last.ckpt of an `evalgrad"
            " train`."
        ) from error
    saved.check_weights(path, weights, network)
    return state


def _remember(options: TrainOptions) -> None:
    """Write down what the run is, to refuse another one in its folder; it is not finished now."""
    _result_path(options).unlink(missing_ok=True)
    content = json.dumps(options.plain(elsewhere=False), indent=1, sort_keys=True)
    write_atomically(options.out / "options.json", content.encode())


def _check_same_options(options: TrainOptions) -> None:
    path = options.out / "options.json"
    before = json.loads(path.read_text()) if path.exists() else {}
    for name, value in options.plain(elsewhere=False).items():
        if name in before and before[name] != value:
            raise UserError(
                f"{options.out} holds a run with --{name.replace('_', '-')} {before[name]}; got"
                f" {value}. Choose another --out, give the old option to go on, or --resume never"
                " to begin again."
            )


def _parts(found: Found, options: TrainOptions) -> Dataset[Examples]:
    """The three parts; what cannot be trained on or measured is told."""
    if found.validation is None and len(found.train) < 2:
        raise UserError(
            f"{options.data} has one example; at least two are needed, to set one aside for"
            " validation."
        )
    if options.validation + options.test >= 1:
        raise UserError(
            f"--validation {options.validation} and --test {options.test} leave nothing to train"
            " on. Make them smaller."
        )
    data = found.complete(options.validation, options.test, options.seed)
    for name, part in (("training", data.train), ("validation", data.validation)):
        if options.task == "ranking" and len(part.labels().unique()) < 2:
            raise UserError(
                f"{options.data}: the {name} data must have items with target 0 and with target 1."
                " Add data."
            )
    return data


def _describe(
    options: TrainOptions, metric: Metric, data: Dataset[Examples]
) -> tuple[saved.Description, bool]:
    """What the model is, and whether all that is measured has one size."""
    mean, std, same_size = statistics(data.train)
    _check_images(data.train, options, same_size)
    image = data.train.inputs[0]
    model, model_options, _ = MODELS[options.task, image.ndim > 1]
    if options.model is not None:
        model, model_options = options.model, {}
    loss = options.loss or metric.loss
    losses.find(loss)
    kind = kind_of(loss, options.task, len(data.classes))
    description = saved.Description(
        task=options.task,
        metric=options.metric,
        kind=kind,
        loss=loss,
        model=model,
        model_options=model_options if options.model_options is None else options.model_options,
        inputs=image.shape[0],
        outputs=1 if kind in ("binary segmentation", "ranking") else len(data.classes),
        classes=data.classes,
        columns=data.columns,
        target=options.target,
        group=options.group,
        mean=mean,
        std=std,
        ignore_index=options.ignore_index,
    )
    parts = (data.validation, data.test)
    alike = [check_inputs(options.data, part, image.shape[0]) for part in parts if len(part)]
    return description, all(alike)


def _check_images(train: Examples, options: TrainOptions, same_size: bool) -> None:
    image = train.inputs[0].ndim > 1
    if not image and (options.augment != "none" or options.crop):
        raise UserError(
            "--augment and --crop are for images; the data are rows of numbers. Drop them."
        )
    scaled = options.augment == "full" and options.task == "segmentation"
    if image and options.crop is None and (not same_size or scaled) and options.batch_size > 1:
        why = "--augment full scales them" if same_size else "they have different sizes"
        raise UserError(
            f"images must be of one size to form a batch, but {why}. Pass --crop SIZE, or"
            " --batch-size 1."
        )
