"""Derives the description of the model to be trained from the options and the data."""

from typing import Any

from evalgrad_lab import losses, models, saved
from evalgrad_lab.commands.train import TrainOptions
from evalgrad_lab.data.dataset import Dataset, Examples
from evalgrad_lab.data.files.read import look_at
from evalgrad_lab.errors import UserError
from evalgrad_lab.metrics import Metric
from evalgrad_lab.phases import kind_of
from evalgrad_lab.recipe import AUTO

# What is built in for images and for rows: model, its options, learning rate.
MODELS: dict[tuple[str, bool], tuple[str, dict[str, Any], float]] = {
    ("segmentation", True): ("unet", {"width": 16}, 0.01),
    ("classification", True): ("densenet", {"depth": 13, "growth": 12}, 0.003),
    ("classification", False): ("mlp", {"widths": [128, 128]}, 0.003),
    ("ranking", True): ("densenet", {"depth": 13, "growth": 12}, 0.003),
    ("ranking", False): ("mlp", {"widths": [64]}, 0.003),
    ("multilabel", True): ("densenet", {"depth": 13, "growth": 12}, 0.003),
    ("multilabel", False): ("mlp", {"widths": [128, 128]}, 0.003),
}
SMALLEST = 4  # pixels on a side that the densenet takes
# red, green and blue as DeepLab's Caffe networks take them: minus the mean of ImageNet, 0 to 255
CAFFE_MEAN, CAFFE_DEVIATION = [122.675 / 255, 116.669 / 255, 104.008 / 255], [1 / 255] * 3

NO_LABEL = -100  # that no item has, as torch's default of `ignore_index`


def ignored(options: TrainOptions) -> int:
    """The label that does not count: of pixels alone. Of 300 classes 255 is one like any other."""
    return options.ignore_index if options.task == "segmentation" else NO_LABEL


def describe(
    options: TrainOptions, metric: Metric, data: Dataset[Examples]
) -> tuple[saved.Description, bool]:
    """What the model is, and whether all that is measured has one size."""
    mean, std, same_size = look_at(options.data, data.train)
    _check_images(data.train, options, same_size)
    image, bgr, count = data.train.inputs[0], options.normalise == "caffe", len(data.classes)
    kind = kind_of(_trained(options, metric), options.task, count)
    description = saved.Description(
        **{
            **options.shared(saved.Description),
            **_model(options, image.ndim > 1),
            "ignore_index": ignored(options),
        },
        kind=kind,
        inputs=image.shape[0],
        outputs=1 if kind in ("binary segmentation", "ranking") else count,
        classes=data.classes,
        columns=data.columns,
        mean=CAFFE_MEAN if bgr else mean,
        std=CAFFE_DEVIATION if bgr else std,
        bgr=bgr,
        views=options.views(),
        decision=None,
    )
    parts = (data.validation, data.test)
    looks = [look_at(options.data, part, image.shape[0]) for part in parts if len(part)]
    return description, all(look.alike for look in looks)


def _model(options: TrainOptions, image: bool) -> dict[str, Any]:
    """Its name and options: those of `--model`, or the default."""
    model, own, _ = MODELS[options.task, image]
    if options.model is not None:
        chosen = models.choose(options.model, options.task)
        model, own = chosen.name, {**chosen.options, **(options.model_options or {})}
    elif options.model_options is not None:
        own = options.model_options
    return {"model": model, "model_options": own}


def _trained(options: TrainOptions, metric: Metric) -> str:
    """The loss that says what the network gives; raises for one that is not known."""
    if options.loss == AUTO and options.mix != "none":
        raise UserError(
            "--loss auto does its own mixing. Drop --mix, or name the loss to mix: --loss"
            f" {metric.loss}."
        )
    trained = metric.loss if options.loss == AUTO else options.loss
    losses.find(trained)
    return trained


def _check_images(train: Examples, options: TrainOptions, same_size: bool) -> None:
    image = train.inputs[0].ndim > 1
    if not image and (options.augment != "none" or options.crop):
        raise UserError(
            "--augment and --crop are for images; the data are rows of numbers. Drop them."
        )
    if options.normalise == "caffe" and (not image or train.inputs[0].shape[0] != 3):
        raise UserError(
            "--normalise caffe is for images of three channels; got inputs of shape"
            f" {tuple(train.inputs[0].shape)}. Drop it."
        )
    height_width = tuple(train.inputs[0].shape[1:])
    small = image and min(height_width) < SMALLEST
    if small and options.model is None and options.task != "segmentation":
        raise UserError(
            f"images must have at least {SMALLEST} x {SMALLEST} pixels for the default network,"
            f" which halves them twice; got {height_width}. Enlarge them, or pass a --model."
        )
    scaled = options.augment == "full" and options.task == "segmentation"
    if image and options.crop is None and (not same_size or scaled) and options.batch_size != 1:
        why = "--augment full scales them" if same_size else "they have different sizes"
        raise UserError(
            f"images must be of one size to form a batch, but {why}. Pass --crop SIZE, or"
            " --batch-size 1."
        )
