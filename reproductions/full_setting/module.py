"""A full setting in training: network, loss, optimiser and schedule of a config as a
LightningModule.
"""

from collections.abc import Callable, Mapping
from typing import Any

import lightning
import torch
from torch import Tensor, nn

import evalgrad as eg
from evalgrad_lab.data.layouts.images import IGNORE
from evalgrad_lab.errors import UserError
from evalgrad_lab.fit import SCHEDULES
from evalgrad_lab.loss_factories import make
from evalgrad_lab.models.alexnet import alexnet
from evalgrad_lab.models.densenet import densenet
from evalgrad_lab.models.enet import ENet
from evalgrad_lab.models.resnet import DeepLab, resnet18
from evalgrad_lab.models.segnet import SegNet
from reproductions.configs import Config

MODELS: dict[str, Callable[..., nn.Module]] = {
    "alexnet": alexnet,
    "enet": ENet,
    "deeplab": DeepLab,
    "densenet": densenet,
    "resnet18": resnet18,
    "segnet": lambda **options: SegNet(3, **options),
}
OPTIMISERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
}


class FullSetting(lightning.LightningModule):
    """One config in training; `metric` on validation is the mean IoU of the data set, the top-5
    accuracy, or the AP.
    """

    def __init__(self, config: Config, steps: int) -> None:
        super().__init__()
        self.config, self.steps = config, steps
        self.network = chosen(MODELS, config.model, "model")
        options = {key: value for key, value in config.loss.items() if key != "name"}
        self.loss = make(config.loss["name"], options)
        self.kept: list[Tensor] = []  # of the validation in progress

    def training_step(self, batch: tuple[Tensor, Tensor], number: int) -> Tensor:
        images, target = batch
        loss = self.loss(self.network(images), target)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: tuple[Tensor, Tensor], number: int) -> None:
        images, target = batch
        scores = self.network(images)
        if self.config.metric == "top5":
            right = (1 - eg.metrics.topk_error(scores, target, k=5)) * len(target)
            self.kept.append(torch.stack([right, right.new_tensor(len(target))]))
        elif self.config.metric == "ap":
            self.kept.append(torch.stack([scores, target.to(scores)]))
        else:
            classes = scores.shape[1]
            found = eg.metrics.jaccard_counts(
                scores.argmax(1), target, num_classes=classes, ignore_index=IGNORE
            )
            self.kept.append(found.sum(0))

    def on_validation_epoch_end(self) -> None:
        ranking = self.config.metric == "ap"
        total: Any = self.all_gather(
            torch.cat(self.kept, 1) if ranking else torch.stack(self.kept).sum(0)
        )
        self.kept.clear()
        if ranking:
            scores, target = total.movedim(-2, 0).flatten(1)  # of all ranks
            value = eg.metrics.average_precision(scores, target.long(), ties="worst")
        else:
            total = total.sum(0) if self.trainer.world_size > 1 else total
            value = (
                total[0] / total[1]
                if self.config.metric == "top5"
                else eg.metrics.jaccard_from_counts(total[None])
            )
        self.log("metric", value.float(), prog_bar=True, rank_zero_only=True)

    def configure_optimizers(self) -> Any:
        part = self.config.training["optimiser"]
        optimiser = chosen(OPTIMISERS, {**part, "params": self.network.parameters()}, "optimiser")
        factor = schedule_of(self.config.training["schedule"])
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimiser, lambda step: factor(min(step / self.steps, 1.0))
        )
        return {"optimizer": optimiser, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def chosen(table: Mapping[str, Callable[..., Any]], part: Mapping[str, Any], what: str) -> Any:
    """Build what `part["name"]` names with the other entries as options."""
    options = {key: value for key, value in part.items() if key != "name"}
    if part.get("name") not in table:
        raise UserError(
            f"config: the {what} must be one of {', '.join(table)}; got {part.get('name')}."
        )
    try:
        return table[part["name"]](**options)
    except TypeError as error:
        raise UserError(
            f"config: the {what} {part['name']} does not take {options}: {error}."
        ) from error


def schedule_of(part: Mapping[str, Any]) -> Callable[[float], float]:
    """The factor of the learning rate by the part of the training that is over; `drops` divides it
    by ten at each of `at`.
    """
    if part["name"] == "drops":
        return lambda over: 0.1 ** sum(over >= place for place in part["at"])
    if part["name"] not in SCHEDULES:
        raise UserError(
            f"config: the schedule must be drops or one of {', '.join(SCHEDULES)}; got"
            f" {part['name']}."
        )
    return SCHEDULES[part["name"]]
