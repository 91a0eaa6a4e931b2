"""`evalgrad evaluate`: the metric of a trained model on data with targets."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from evalgrad_lab.data.files.reading import read_like
from evalgrad_lab.training import saved, viewing
from evalgrad_lab.training.goals import NAMES, parse_goal


def add_arguments(parser: ArgumentParser) -> None:
    """The options of `evalgrad evaluate`."""
    viewing.add_arguments(parser)
    parser.add_argument("--metric", help=f"default: the one it was trained for; {NAMES}")


def run(options: Namespace) -> int:
    """Print the metric on `val/` of the data, or on all of them."""
    description, network = saved.read(Path(options.run))
    goal = parse_goal(options.metric or description.metric, description.task)
    measure = goal.measure(len(description.classes), description.ignore_index)
    examples = read_like(Path(options.data), description)
    for scores, batch in viewing.scores_by_batch(options, description, network, examples):
        measure.update(scores, batch["target"], None if examples.lists is None else batch["lists"])
    print(
        f"{goal.name} {float(measure.compute()):.6f} on {len(examples)} examples of {options.data}"
    )
    return 0
