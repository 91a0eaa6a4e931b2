"""Runs on the user's data: each trains as `evalgrad train` does with the same options, but writes
no files and returns a record for the report.
"""

import time
from dataclasses import asdict
from statistics import median
from typing import Any

from evalgrad_lab.commands.train import TrainOptions
from evalgrad_lab.comparison.candidates import with_point
from evalgrad_lab.errors import UserError
from evalgrad_lab.peak_memory import PeakMemory
from evalgrad_lab.ready import Ready, prepare
from evalgrad_lab.training import Run, examples_of, make_fabric
from evalgrad_lab.trials import costs, interleaved

MOST_CLASSES = 40  # that the report shows one by one


def own_trial(
    *,
    options: dict[str, Any],
    data: str,
    method: dict[str, str],
    hyper: dict[str, Any],
    seed: int,
) -> dict[str, Any]:
    """Train with the `options` at the point `hyper` of the search, and return the record; its
    `budget` is left to the caller. `data` is the digest of the data: it is part of the address of
    the run, so that changed data are never answered by an old one.
    """
    ready = prepare(with_point(TrainOptions.of({**options, "seed": seed}), hyper), data)
    one = Run(ready, make_fabric(ready.options))
    with PeakMemory() as memory:
        result = one.result({})
    if result.test is None:
        raise UserError(
            f"{ready.options.data}: {ready.options.metric} is undefined on the test data. Add test"
            " data."
        )
    title, decision = ready.metric.title, result.decision
    how = "at 0" if ready.description.of_one_score else "by argmax"
    default = f"{title} {how}" if ready.measure.decides else title
    return {
        "task": ready.options.data.name,
        "title": f"{ready.options.data.name}, {title}",
        "description": description(ready),
        "designed": False,
        **method,
        "seed": seed,
        "hyper": hyper,
        "metric": title,
        "validation": {title: result.validation},
        "test": {title: result.test, default: result.by_default},
        "per_class": per_class(ready, result.classes),
        "examples": None if seed else examples_of(ready, one.training, ready.data.test, decision),
        "decision": decision and asdict(decision),
        "recipe": result.recipe,
        **costs(one.training, one.validation, memory, result.recipe.get("more_steps", 0.0)),
    }


def step_seconds(
    *, options: dict[str, Any], data: str, methods: list[dict[str, Any]]
) -> dict[str, Any]:
    """The seconds of a step of each method in turn, of a look at validation, of getting ready. To a
    step before a fork the share of a step of the second branch is added.
    """
    start = time.perf_counter()
    each = [
        prepare(with_point(TrainOptions.of({**options, "loss": m["loss"]}), m["hyper"]), data)
        for m in methods
    ]
    seconds = (time.perf_counter() - start) / len(each)
    forks = {i: ready.branch(0, ready.steps) for i, ready in enumerate(each) if ready.forked}
    trainings = [one.training(make_fabric(one.options)) for one in (*each, *forks.values())]
    batch = next(iter(each[0].batches()(0)))
    steps = [median(one) for one in interleaved(trainings, batch)]
    for i in reversed(forks):
        steps[i] += each[i].forked * steps.pop()
    start = time.perf_counter()
    each[0].decision(trainings[0])
    return {"steps": steps, "look": time.perf_counter() - start, "ready": seconds}


def description(ready: Ready) -> str:
    """What was compared on what, for the report."""
    data, model = ready.data, ready.description.model
    sizes = f"{len(data.train)}, {len(data.validation)} and {len(data.test)}"
    return (
        f"{sizes} examples for training, validation and test; the network is {model}. All runs"
        " share one test set that was not used for any choice: the intervals are over seeds of the"
        " training, not over the choice of test examples. --split 1 draws another."
    )


def per_class(ready: Ready, classes: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The metric of every class, as the report shows it."""
    name = ready.metric.name
    known = {"accuracy": "recall", "dice": "f1", "image-dice": "f1", "f1": "f1"}
    column = "iou" if name.endswith("iou") else known.get(name, name)
    if not 0 < len(classes) <= MOST_CLASSES or column not in classes[0]:
        return None
    labels = [row["class"] for row in classes]
    return {"labels": labels, "values": [row[column] or 0.0 for row in classes]}
