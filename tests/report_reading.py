"""Reading a report back, and what it ought to say: computed from the records without the lab's own
statistics.
"""

import io
import re
import statistics
from html.parser import HTMLParser

from rich.console import Console
from scipy import stats
from synthetic_runs import TASKS

from evalgrad_lab import report

VOID = {"meta", "link", "img", "wbr", "br", "hr", "input"}


class Tree(HTMLParser):
    """All elements as (name, attributes, text), and whether every element is closed by its
    own end.
    """

    def __init__(self, text):
        super().__init__()
        self.elements, self.open = [], []
        self.feed(text)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag, attributes):
        assert len(dict(attributes)) == len(attributes), (
            f"{tag} has an attribute twice: {attributes}"
        )
        self.elements.append((tag, dict(attributes), []))
        if tag not in VOID:
            self.open.append(self.elements[-1])

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes), []))

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag, (
            f"</{tag}> closes another element, line {self.getpos()[0]}"
        )

    def handle_data(self, data):
        for _, _, text in self.open:
            text.append(data)

    def having(self, *attributes):
        return [
            (a, " ".join("".join(text).split()))
            for _, a, text in self.elements
            if all(name in a for name in attributes)
        ]


def in_terminal(runs, width=110):
    console = Console(file=io.StringIO(), width=width)
    report.print_table(runs, console)
    return console.file.getvalue()


def by_seed(runs, task, budget, loss, part="test"):
    chosen = [
        r for r in runs["records"] if (r["task"], r["budget"], r["loss"]) == (task, budget, loss)
    ]
    return [r[part][r["metric"]] for r in sorted(chosen, key=lambda r: r["seed"])]


def expected(runs):
    """(task, budget, loss) -> mean, spread, and (difference, low, high) to the baseline that is
    best on validation, by scipy.
    """
    table = {}
    for task, _, _, _, budgets, losses in TASKS:
        for budget in budgets:
            baselines = [loss for loss, role, _ in losses if role == "baseline"]
            best = max(
                baselines,
                key=lambda loss: statistics.mean(by_seed(runs, task, budget, loss, "validation")),
            )
            reference = by_seed(runs, task, budget, best)
            for loss, _, _ in losses:
                own = by_seed(runs, task, budget, loss)
                paired = (
                    stats.ttest_rel(own, reference).confidence_interval(0.95)
                    if loss != best
                    else None
                )
                gap = (
                    (statistics.mean(own) - statistics.mean(reference), *paired) if paired else None
                )
                table[task, budget, loss] = (statistics.mean(own), statistics.stdev(own), gap)
    return table


def numbers(text):
    return re.findall(r"[-+]?\d+\.\d", text.replace("\N{MINUS SIGN}", "-"))
