"""The figures, as small SVG: colours are CSS classes with values for light and dark mode.

Every text passes through `Markup.format`, which escapes it.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from markupsafe import Markup
from matplotlib.ticker import MaxNLocator

from evalgrad_lab.report.panels import Difference
from evalgrad_lab.report.words import points

NOTHING = Markup("")


class Scale(NamedTuple):
    """A straight map from data in [low, high] to pixels in [start, end]."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        width = (self.high - self.low) or 1.0
        return round(self.start + (value - self.low) / width * (self.end - self.start), 1)


class Line(NamedTuple):
    """A learning curve: mean over seeds, and the band from the lowest to the highest."""

    name: str
    style: str
    x: Sequence[float]
    mean: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]


class Bars(NamedTuple):
    """One bar for each class."""

    name: str
    style: str
    values: Sequence[float]


def curves(lines: Sequence[Line], x_name: str, description: str, percent: bool = True) -> Markup:
    """Lines with bands; the vertical axis is a metric in per cent, or a plain number."""
    width, height = 420, 240
    x = Scale(0, max(max(line.x) for line in lines), 40, width - 14)
    low, high = min(min(line.low) for line in lines), max(max(line.high) for line in lines)
    y = Scale(low, high, height - 40, 10)
    x_ticks = [(tick, f"{tick:g}") for tick in _ticks(x, 5)]
    drawn = join(_band(line, x, y) for line in lines) + join(_line(line, x, y) for line in lines)
    x_label = _text(width - 14, height - 4, x_name, ' class="axis"')
    grid = _grid(x, y, x_ticks, 100 if percent else 1)
    return _figure(width, height, description, grid + drawn + x_label)


def scatter(
    x_values: Sequence[float],
    y_values: Sequence[float],
    y: tuple[float, float],
    style: str,
    description: str,
) -> Markup:
    """Training loss against validation metric, a point for each look; neighbours share `y`."""
    width, height = 220, 150
    low, high = min(x_values), max(x_values)
    x_scale, y_scale = Scale(low, high, 46, width - 14), Scale(*y, height - 26, 10)
    ends = [(low, f"{low:.3g}"), (high, f"{high:.3g}")] if high > low else [(low, f"{low:.3g}")]
    # Strokes of length zero with round caps: a tenth of the size of as many circles.
    path = "".join(f"M{x_scale(a)} {y_scale(b)}h0" for a, b in zip(x_values, y_values, strict=True))
    dots = Markup('<path class="dots {}" d="{}"/>').format(style, path)
    return _figure(width, height, description, _grid(x_scale, y_scale, ends) + dots)


def class_bars(
    labels: Sequence[str], groups: Sequence[Bars], highest: float, description: str
) -> Markup:
    """Horizontal bars, the groups of one class beside each other; the scale ends at `highest`."""
    thickness, left = 11, 96
    step = thickness * len(groups) + 10
    width, height = 420, step * len(labels) + 6
    x = Scale(0, highest, left, width - 40)
    parts = []
    for row, label in enumerate(labels):
        top = row * step + 6
        middle = top + thickness * len(groups) / 2 + 4
        parts.append(_text(left - 8, middle, _short(label)))
        for k, group in enumerate(groups):
            place = (x, top + thickness * k, thickness)
            parts.append(_bar(group, label, group.values[row], *place))
    return _figure(width, height, description, join(parts))


def interval_bar(difference: Difference, low: float, high: float, description: str) -> Markup:
    """The difference as a dot on its interval, zero as a line; rows share [low, high]."""
    x = Scale(low, high, 6, 214)
    start, end = difference.interval or (difference.mean, difference.mean)
    body = Markup(
        '<path class="zero" d="M{0} 0V24"/><g class="verdict {1}"><path d="M{2} 12H{3}M{2} 7V17M{3}'
        ' 7V17"/><circle cx="{4}" cy="12" r="4.5"/></g>'
    ).format(x(0), difference.verdict, x(start), x(end), x(difference.mean))
    return _figure(220, 24, description, body)


def key(style: str) -> Markup:
    """The line that stands for a loss in legends and tables."""
    path = Markup('<path class="line {}" d="M1 5H25"/>').format(style)
    return Markup('<svg class="key" viewBox="0 0 26 10" aria-hidden="true">{}</svg>').format(path)


def _figure(width: float, height: float, description: str, body: Markup) -> Markup:
    figure = Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>')
    return figure.format(width, height, description, body)


def _text(x: float, y: float, text: str, more: str = "", anchor: str = "end") -> Markup:
    pattern = Markup('<text{} x="{}" y="{}" text-anchor="{}">{}</text>')
    return pattern.format(Markup(more), x, y, anchor, text)


def _grid(x: Scale, y: Scale, x_ticks: Iterable[tuple[float, str]], unit: int = 100) -> Markup:
    line, parts = Markup('<path class="grid" d="M{1} {0}H{2}"/>'), []
    for tick in _ticks(Scale(y.low * unit, y.high * unit, 0, 0), 4, 1 / unit):
        number = _text(x.start - 6, y(tick) + 4, f"{unit * tick:g}")
        parts.append(line.format(y(tick), x.start, x.end) + number)
    parts += [_text(x(tick), y.start + 16, text, anchor="middle") for tick, text in x_ticks]
    return join(parts)


def _ticks(scale: Scale, count: int, unit: float = 1.0) -> list[float]:
    """Round numbers within the range, in data units; `unit` turns per cent back into shares."""
    ticks = MaxNLocator(count, steps=[1, 2, 5, 10]).tick_values(scale.low, scale.high)
    return [round(float(tick) * unit, 10) for tick in ticks if scale.low <= tick <= scale.high]


def _band(line: Line, x: Scale, y: Scale) -> Markup:
    edge = [*zip(line.x, line.high, strict=True), *reversed([*zip(line.x, line.low, strict=True)])]
    return Markup('<path class="band {}" d="{}Z"/>').format(line.style, _path(edge, x, y))


def _line(line: Line, x: Scale, y: Scale) -> Markup:
    path = _path(zip(line.x, line.mean, strict=True), x, y)
    drawn = Markup('<path class="line {}" d="{}"><title>{}</title></path>')
    return drawn.format(line.style, path, line.name)


def _path(pairs: Iterable[tuple[float, float]], x: Scale, y: Scale) -> str:
    return "M" + "L".join(f"{x(a)} {y(b)}" for a, b in pairs)


def _bar(group: Bars, label: str, value: float, x: Scale, top: float, thickness: float) -> Markup:
    return Markup(
        '<rect class="bar {}" x="{}" y="{}" width="{}" height="{}" data-class="{}" data-loss="{}"'
        ' data-value="{}"/><text class="small" x="{}" y="{}">{}</text>'
    ).format(
        *(group.style, x.start, top, round(x(value) - x.start, 1), thickness - 2),
        *(label, group.name, value, x(value) + 5, top + thickness - 3, points(value)),
    )


def _short(label: str, length: int = 14) -> str:
    return label if len(label) <= length else label[: length - 1] + "…"


def join(parts: Iterable[Markup]) -> Markup:
    """The parts in a row."""
    return NOTHING.join(parts)
