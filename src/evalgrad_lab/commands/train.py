"""`evalgrad train`: the user's data, the metric they are judged by, and a trained model in
the end.
"""

import json
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from pathlib import Path
from typing import Any

import lightning

from evalgrad_lab.data import augment
from evalgrad_lab.data.examples import Examples, Source, split
from evalgrad_lab.data.files.reading import check_inputs, read_source, statistics
from evalgrad_lab.data.loading import Loaders, Loading, steps_per_epoch
from evalgrad_lab.errors import UserError
from evalgrad_lab.schedules import SCHEDULES, parse_mix
from evalgrad_lab.store import write_atomically
from evalgrad_lab.training import engine, objective, saved
from evalgrad_lab.training.goals import NAMES, TASKS, Goal, parse_goal
from evalgrad_lab.training.module import Pace, Training

UNET, DENSENET, MLP = (
    f"evalgrad_lab.models.{name}" for name in ("unet:UNet", "densenet:densenet", "mlp:mlp")
)
# What is built in for images and for rows: model, its options, learning rate.
MODELS: dict[tuple[str, bool], tuple[str, dict[str, Any], float]] = {
    ("segmentation", True): (UNET, {"width": 16}, 0.01),
    ("classification", True): (DENSENET, {"depth": 13, "growth": 12}, 0.003),
    ("classification", False): (MLP, {"widths": [128, 128]}, 0.003),
    ("ranking", True): (DENSENET, {"depth": 13, "growth": 12}, 0.003),
    ("ranking", False): (MLP, {"widths": [64]}, 0.003),
}


def add_arguments(parser: ArgumentParser) -> None:
    """The options of `evalgrad train`."""
    add = parser.add_argument
    add("--task", required=True, choices=TASKS)
    add("--metric", required=True, help=f"what you are judged by: {NAMES}")
    add(
        "--data",
        required=True,
        help="folder of images/ and masks/, folder of classes, .npz or .csv; see docs/train.md",
    )
    add("--out", required=True, help="folder of the run; if it holds one already, that one goes on")
    add("--loss", help="default: the loss for the metric; `evalgrad losses` lists all")
    add("--loss-options", type=_object, default={}, help="JSON, e.g. '{\"epsilon\": 0.1}'")
    add("--model", help="package.module:factory, called as factory(inputs, outputs=...)")
    add("--model-options", type=_object, help="JSON, passed to the factory")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--epochs", type=_positive, default=50)
    length.add_argument(
        "--iterations", type=_positive, help="steps instead of epochs, rounded up to whole epochs"
    )
    add("--batch-size", type=_positive, default=16, help="examples, or lists with --group")
    add("--learning-rate", type=float, help="default: 0.01 for segmentation, else 0.003")
    add("--weight-decay", type=float, default=0.0)
    add(
        "--schedule",
        choices=sorted(SCHEDULES),
        default="cosine",
        help="of the learning rate (cosine)",
    )
    add(
        "--mix",
        default="none",
        help=(
            "then:SHARE (baseline for that share of the steps, then the loss) or sum:SHARE (of the"
            " loss)"
        ),
    )
    add(
        "--augment",
        choices=augment.MODES,
        default="none",
        help="of images: mirror; full: scale or move them too",
    )
    add("--crop", type=_positive, help="train on random squares of this side")
    add("--num-classes", type=_positive, help="default: the largest label + 1")
    add("--ignore-index", type=int, default=255, help="label of pixels that do not count (255)")
    add("--target", default="target", help="column of a CSV to predict (target)")
    add(
        "--group",
        help="column of a CSV that says which list an item belongs to; lists are kept whole",
    )
    add(
        "--validation",
        type=float,
        default=0.2,
        help="share set aside where the data have no val/ (0.2)",
    )
    add(
        "--patience",
        type=int,
        default=0,
        help="stop after so many epochs without a better metric (0: never)",
    )
    add("--seed", type=int, default=0)
    add(
        "--resume",
        default="auto",
        help="auto: go on from OUT/last.ckpt; never: begin again; or a checkpoint to go on from",
    )
    add("--logger", choices=("csv", "tensorboard"), default="csv")
    add("--workers", type=int, default=0, help="processes that read data")
    add("--accelerator", default="auto", help="lightning's: auto, cpu, gpu, ...")
    add("--devices", type=int, default=1)
    add("--num-nodes", type=int, default=1)
    add("--strategy", default="auto", help="lightning's: auto, ddp, ...")


def run(options: Namespace) -> int:
    """Check everything, train, and leave the model in `--out`."""
    goal = parse_goal(options.metric, options.task)
    source = read_source(
        Path(options.data),
        options.task,
        options.target,
        options.group,
        options.num_classes,
        options.ignore_index,
    )
    train, validation = _parts(source, options, goal)
    mean, std, same_size = statistics(train)
    _check_images(train, options, same_size)
    description = _describe(options, goal, source, train, mean, std)
    measured_alike = check_inputs(options.data, validation, description.inputs)
    loading = Loading(
        options.batch_size,
        options.seed,
        options.augment,
        options.crop,
        options.ignore_index,
        options.workers,
        measured_alike,
    )
    loaders = Loaders(train, validation, loading)
    per_epoch = steps_per_epoch(
        len(loaders.train_items), options.batch_size, options.devices * options.num_nodes
    )
    epochs = -(-options.iterations // per_epoch) if options.iterations else options.epochs
    module = _module(options, goal, description, train, epochs * per_epoch)
    trainer = engine.make_trainer(options, epochs, progress=sys.stderr.isatty())
    return _train(options, trainer, module, loaders, description)


def _module(
    options: Namespace, goal: Goal, description: saved.Description, train: Examples, steps: int
) -> Training:
    """The network with fresh weights of the seed, its losses and its metric."""
    lightning.seed_everything(options.seed, verbose=False)
    network, classes = saved.build(description), len(description.classes)
    chosen = {**(goal.options if description.loss == goal.loss else {}), **options.loss_options}
    given = objective.Given(train, classes, options.ignore_index)
    phases = objective.plan(
        description.loss, chosen, description.kind, parse_mix(options.mix), steps, given
    )
    rate = options.learning_rate or MODELS[options.task, train.inputs[0].ndim > 1][2]
    pace = Pace(rate, options.weight_decay, options.schedule, options.seed)
    measure = goal.measure(classes, options.ignore_index)
    return Training(
        network,
        description.kind,
        phases,
        pace,
        measure,
        in_lists=options.task == "ranking" and train.lists is not None,
    )


def _train(
    options: Namespace,
    trainer: lightning.Trainer,
    module: Training,
    loaders: Loaders,
    description: saved.Description,
) -> int:
    out, checkpoint = Path(options.out), engine.checkpoint_to_resume(options, module)
    if checkpoint and options.resume == "auto" and (out / "result.json").exists():
        print(f"{out} holds this run, finished; --resume never trains it again")
        return 0
    if trainer.is_global_zero:
        engine.remember_options(options)
        print(
            f"train {description.loss} for {options.metric}"
            + (f", going on from {checkpoint}" if checkpoint else "")
        )
    engine.fit(trainer, module, loaders, checkpoint)
    if trainer.is_global_zero:
        module.network.load_state_dict(engine.network_weights(out / "best.ckpt"))
        saved.write(out, description, module.network)
        _report(options, trainer, out)
    return 0


def _report(options: Namespace, trainer: lightning.Trainer, out: Path) -> None:
    """`result.json`, the last file of a run: it says that the run is finished."""
    score = engine.best_score(trainer)
    result = {
        "metric": options.metric,
        "validation": score,
        "epochs": trainer.current_epoch,
        "steps": trainer.global_step,
    }
    write_atomically(out / "result.json", json.dumps(result, indent=1).encode())
    print(
        f"best validation {options.metric} {score:.4f}; model in {out}: `evalgrad evaluate {out}"
        " --data ...`"
    )


def _parts(source: Source, options: Namespace, goal: Goal) -> tuple[Examples, Examples]:
    if not 0 < options.validation < 1:
        raise UserError(f"--validation must be between 0 and 1; got {options.validation}.")
    if source.validation is None and len(source.train) < 2:
        raise UserError(
            f"{options.data} has one example; at least two are needed, to set one aside for"
            " validation."
        )
    train, validation = source.train, source.validation
    if validation is None:
        train, validation = split(source.train, options.validation, options.seed)
    for name, part in (("training", train), ("validation", validation)):
        if (
            goal.task == "ranking"
            and part.targets is not None
            and len({int(part.targets[i]) for i in range(len(part))}) < 2
        ):
            raise UserError(
                f"{options.data}: the {name} data must have items with target 0 and with target 1."
                " Add data."
            )
    return train, validation


def _check_images(train: Examples, options: Namespace, same_size: bool) -> None:
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


def _describe(
    options: Namespace,
    goal: Goal,
    source: Source,
    train: Examples,
    mean: list[float],
    std: list[float],
) -> saved.Description:
    model, model_options, _ = MODELS[options.task, train.inputs[0].ndim > 1]
    if options.model is not None:
        model, model_options = options.model, {}
    loss = options.loss or goal.loss
    kind = objective.kind_of(loss, goal, len(source.classes))
    single = kind in ("binary segmentation", "ranking")
    return saved.Description(
        task=options.task,
        metric=options.metric,
        kind=kind,
        loss=loss,
        model=model,
        model_options=options.model_options if options.model_options is not None else model_options,
        inputs=train.inputs[0].shape[0],
        outputs=1 if single else len(source.classes),
        classes=source.classes,
        columns=list(source.columns),
        target=options.target,
        group=options.group,
        mean=mean,
        std=std,
        ignore_index=options.ignore_index,
    )


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise ArgumentTypeError(f"must be a whole number from 1 on; got {text!r}")
    return int(text)


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ArgumentTypeError(f"must be JSON; got {text!r} ({error})") from error
    if not isinstance(value, dict):
        raise ArgumentTypeError(
            f"must be a JSON object such as '{{\"epsilon\": 0.1}}'; got {text!r}"
        )
    return value
