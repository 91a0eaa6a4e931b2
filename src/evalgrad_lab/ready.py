"""Checks and makes what the options of `evalgrad train` describe: data, network, loss and metric,
for `train` and for every run of `compare --data`.
"""

import sys
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from evalgrad_lab import metrics, models, saved
from evalgrad_lab.batch_size import batch_size_of
from evalgrad_lab.commands.train import TrainOptions
from evalgrad_lab.data.batches import Batches, Loading, in_order, loaded, steps_per_epoch
from evalgrad_lab.data.dataset import Dataset, Examples
from evalgrad_lab.data.files.read import digest_of
from evalgrad_lab.data.samplers import ByClass, Draw, drawing
from evalgrad_lab.decisions import Decision, one_score, plain
from evalgrad_lab.describing import MODELS, describe, ignored
from evalgrad_lab.fit import Hook, Pace, Phase, Training
from evalgrad_lab.given import Given
from evalgrad_lab.judging import Judgement, choose, fitted, judge, sample
from evalgrad_lab.measures import Measure, Scored, measured
from evalgrad_lab.metrics import Metric
from evalgrad_lab.models.weights import freeze_batch_norm, load_weights
from evalgrad_lab.parts import dataset, files_of, test_note
from evalgrad_lab.performance import Performance
from evalgrad_lab.phases import parse_mix, plan, shaped
from evalgrad_lab.recipe import AUTO, Recipe, branch_steps, recipe_for
from evalgrad_lab.schedules import schedule_of
from evalgrad_lab.size_node import check_size_node, size_labels, with_size_node
from evalgrad_lab.validation import Validation, broadcast_buffers
from evalgrad_lab.views import make_view

if TYPE_CHECKING:
    from lightning.fabric import Fabric

SMOOTH = 3  # looks whose mean chooses the network: one alone is noise


@dataclass(frozen=True)
class Ready:
    """Data, network, loss and metric that the options describe, checked before the first step."""

    options: TrainOptions
    data: Dataset[Examples]
    digest: str
    metric: Metric
    measure: Measure
    description: saved.Description
    alike: bool  # whether all that is measured has one size
    batch_size: int
    given: Given
    note: str  # of the batch size and the test part; "" where there is nothing to say
    recipe: Recipe | None = None  # of --loss auto

    @property
    def steps(self) -> int:
        ranks = self.options.devices * self.options.num_nodes
        size = self.batch_size * self.options.accumulate
        per_epoch = steps_per_epoch(self.data.train, size, ranks)
        return self.options.iterations or self.options.epochs * per_epoch

    @property
    def forked(self) -> float:
        """Steps of the second branch of the recipe, over `steps`; 0 without one."""
        forks = self.recipe is not None and self.recipe.second is not None
        return branch_steps(self.steps, self.steps, True) / self.steps if forks else 0.0

    @property
    def last_part(self) -> Examples:
        """What is looked at once, after the training: the test part, or validation without one."""
        return self.data.test if len(self.data.test) else self.data.validation

    def phases(self) -> list[Phase]:
        options, loss = self.options, self.description.loss
        own = self.metric.options if loss == self.metric.loss else {}
        chosen, mix = {**own, **options.loss_options}, parse_mix(options.mix)
        if self.recipe is not None:
            loss, chosen = self.recipe.first, self.recipe.first_options
        return plan(loss, chosen, self.description.kind, mix, self.steps, self.given)

    def branch(self, attempt: int, steps: int) -> "Ready":
        """The second branch of the recipe as a separate training."""
        assert self.recipe is not None
        loss, own = self.recipe.branch(attempt)
        options = replace(self.options, iterations=steps, loss=loss, loss_options=own)
        description = replace(self.description, loss=loss)
        return replace(self, options=options, description=description, recipe=None)

    def pace(self) -> Pace:
        options, image = self.options, self.data.train.inputs[0].ndim > 1
        rate = MODELS[options.task, image][2]
        own: dict[str, Any] = {
            "learning_rate": rate if options.learning_rate is None else options.learning_rate,
            "weight_decay": options.weight_decay or 0.0,
            "schedule": schedule_of(options.schedule),
        }
        return Pace(**{**options.shared(Pace), **own})

    def network(self) -> nn.Sequential:
        """With the weights of the seed, or those of the file that it starts with."""
        torch.manual_seed(self.options.seed)
        network = saved.build(self.description)
        if path := start_of(self.options):
            _say_once(f"{path}: {load_weights(network[1], path)}")
        if self.options.freeze_batch_norm:
            freeze_batch_norm(network)
        return network

    def training(self, fabric: "Fabric | None" = None) -> Training:
        network, phases, compiled = self.network(), self.phases(), self.options.compile
        if alpha := self.options.size_node:
            labels = size_labels(self.given)
            phases = [with_size_node(phase, network[1], labels, alpha) for phase in phases]
        return Training(network, phases, self.pace(), fabric, compiled)

    def batches(self, rank: int = 0, ranks: int = 1, draw: Draw | None = None) -> Batches:
        size = self.batch_size * self.options.accumulate
        loading = Loading(size, **self.options.shared(Loading))
        return loaded(self.data.train, loading, rank, ranks, draw)

    def feed(self, fabric: "Fabric") -> tuple[Batches, list[Hook]]:
        """The batches of this rank, and the hook by which a sampler follows the training."""
        options = self.options
        draw = drawing(options.sampler, self.data.train, options.seed, options.ignore_index)
        hooks: list[Hook] = []
        if options.sampler == "performance" and isinstance(draw, ByClass):
            decides = plain(self.description.of_one_score)

            def labels(output: Tensor, dims: int) -> Tensor:
                return decides(self.scores(output, dims))

            hooks.append(Performance(draw, labels, len(self.data.classes), options.ignore_index))
        return self.batches(fabric.global_rank, fabric.world_size, draw), hooks

    def scores(self, output: Tensor, target_dims: int) -> Tensor:
        """What the network says as scores that may be decided: of two classes one."""
        scores = shaped(output, self.description.kind)
        return one_score(scores, target_dims) if self.description.of_one_score else scores

    def validation(self, training: Training) -> Validation:
        """The hook that computes the validation metric after every epoch."""
        best = self.options.choose == "best"
        return Validation(
            lambda: self.decision(training)[1],
            keep_best=best,
            smooth=SMOOTH if best else 1,
            patience=self.options.patience,
        )

    def decision(self, training: Training, last: bool = False) -> tuple[Decision | None, float]:
        """What decides best on validation, None where nothing does, and the metric. All that may
        decide is tried at the `last`; looks during the training try thresholds alone.
        """
        part, ignored = self.data.validation, self.description.ignore_index
        fits = self.metric.of_one if self.description.of_one_score else self.metric.of_classes
        if not last:
            fits = (
                self.metric.of_one[:1]
                if self.description.of_one_score and self.measure.decides
                else ()
            )
        few = sample(part, part.inputs[0][0].numel() * self.description.outputs)
        found = fitted(fits, self.scored(training, few, alone=True), ignored)
        tried = [plain(self.description.of_one_score), *found]
        chosen, value = choose(self.measure, self.scored(training, part), tried)
        ranks = self.options.task in ("ranking", "multilabel") and not self.measure.decides
        return None if ranks and not found else chosen, value

    def rows(self, training: Training) -> Tensor:
        """What the metric on validation is made of, decided as is best for the network as it is:
        one row per example, of all ranks, in the order of one.
        """
        part, decision = self.data.validation, self.decision(training, last=True)[0]
        rows = measured(self.measure, self.scored(training, part), [decision])[:, 0]
        return rows if part.lists is not None else _in_turn(rows, training.fabric.world_size)

    def judged(self, training: Training, part: Examples, decision: Decision | None) -> Judgement:
        """The metric of the current network on a part, over all ranks."""
        known = (self.data.classes, self.description.ignore_index)
        return judge(self.metric, self.scored(training, part), *known, decision)

    @torch.no_grad()
    def scored(self, training: Training, part: Examples, alone: bool = False) -> Scored:
        """The scores of a part batch by batch: of this rank's share, or of all of it."""
        fabric, network = training.fabric, training.network
        broadcast_buffers(training)
        network.eval()
        view = make_view(self.description.views, self.description, network)
        rank = (0, 1) if alone else (fabric.global_rank, fabric.world_size)
        for batch in in_order(part, self.batch_size if self.alike else 1, *rank):
            with fabric.autocast():
                output = view(batch.inputs.to(fabric.device)).float()
            yield self.scores(output, batch.target.ndim).cpu(), batch.target, batch.lists
        network.train()


def prepare(options: TrainOptions, digest: str | None = None) -> Ready:
    """Read and check everything; raises for what cannot be trained on or measured. `digest` is
    that of the data, where it is known already.
    """
    metric = metrics.find(options.metric, options.task)
    check_size_node(options)
    digest = digest_of(files_of(options)) if digest is None else digest
    data = dataset(options, digest)
    # before the loss, which the metric may have chosen: what does not fit is the metric
    measure = metric.measure(len(data.classes), ignored(options))
    description, alike = describe(options, metric, data)
    make_view(description.views, description, nn.Identity())  # raises for views of another task
    batch_size, note = batch_size_of(options, data)
    note = "\n".join(filter(None, (note, test_note(options, data))))
    given, recipe = _given(options, data), None
    if options.loss == AUTO:
        own = options.loss_options
        recipe = recipe_for(metric, description.kind, given, data.validation, own)
    ready = (options, data, digest, metric, measure, description, alike, batch_size, given, note)
    return Ready(*ready, recipe)


def _given(options: TrainOptions, data: Dataset[Examples]) -> Given:
    ranks = options.devices * options.num_nodes
    void = options.ignore_index if options.task == "segmentation" else None
    return Given(data.train, len(data.classes), void, ranks)


def _in_turn(rows: Tensor, ranks: int) -> Tensor:
    """Rows that are there rank by rank in the order of the examples, of which the ranks take turns.
    The groups of the jackknife are those of one rank then.
    """
    places = torch.cat([torch.arange(rank, len(rows), ranks) for rank in range(ranks)])
    return rows[places.argsort()]


def start_of(options: TrainOptions) -> Path | None:
    """The weights that a network starts with: those of `--weights`, or the model's own."""
    own = models.choose(options.model, options.task).weights if options.model else None
    return options.weights or own


@lru_cache
def _say_once(text: str) -> None:
    print(text, file=sys.stderr)
