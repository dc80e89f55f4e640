"""Line charts as SVG text, for the report: drawn in milliseconds by the driver itself, without importing matplotlib.

(That takes a second and more of processor time for every report, which a training of short iterations would feel.)
Colours are CSS variables of the page, --series-0 ..., so that one chart serves light and dark.
"""

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

WIDTH, HEIGHT = 640, 300
LEFT, RIGHT, TOP, BOTTOM = 62, 14, 12, 38  # margins around the plot
MOST_POINTS = 400  # of a line that are drawn: there is a pixel for each
HOVER_POINTS = 100  # of them, that show their figures under the pointer
SERIES = 8  # colours there are


T = TypeVar("T")


def thinned(things: Sequence[T], most: int) -> list[T]:
    """Every k-th of them, the last always, so that there are at most `most`, and one."""
    if len(things) <= most:
        return list(things)
    kept = list(things[:: -(-len(things) // most)])
    return kept if kept[-1] is things[-1] else [*kept, things[-1]]


@dataclass(frozen=True)
class Line:
    """Points (x, y), y None where it is not known; `step` holds a value until the next; `dots` has no line."""

    name: str
    points: Sequence[tuple[float, float | None]]
    colour: int
    step: bool = False
    dashed: bool = False
    dots: bool = False


@dataclass(frozen=True)
class Axis:
    """Of the values: a logarithmic one shows only values above 0; percent multiplies by 100."""

    label: str
    log: bool = False
    percent: bool = False
    zero: bool = False  # has 0 on it
    settled: bool = False  # shows the range of all but the first tenth; what is outside is cut off


def nice_ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers in low..high, some `about` of them."""
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = power * next(m for m in (1, 2, 5, 10) if m * power >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [step * k for k in range(first, math.floor(high / step + 1e-9) + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten in low..high; with few of them 2 and 5 times these too."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    factors = (1, 2, 5) if math.log10(high / low) < 2.5 else (1,)
    ticks = [m * 10.0**k for k in powers for m in factors if low * 0.999 <= m * 10.0**k <= high * 1.001]
    return ticks[:: 1 + len(ticks) // 9]


class _Scale:
    """From values to the pixels begin..end."""

    def __init__(self, low: float, high: float, begin: float, end: float, log: bool):
        self.log, self.begin, self.end = log, begin, end
        self.low, self.high = (math.log(low), math.log(high)) if log else (low, high)

    def __call__(self, value: float) -> float:
        value = math.log(value) if self.log else value
        return self.begin + (self.end - self.begin) * (value - self.low) / (self.high - self.low)


def _bounds(values: list[float], axis: Axis) -> tuple[float, float]:
    low, high = min(values), max(values)
    if axis.log:
        return (low / 1.15, high * 1.15)
    if axis.zero:
        return (min(0.0, 1.05 * low), max(0.0, 1.05 * high) or float(low == high))
    margin = 0.05 * (high - low) or 0.1 * abs(high) or 1.0
    return (low - margin, high + margin)


def _number(value: float, percent: bool = False) -> str:
    if percent:
        return f"{100 * value:.6g} %"
    return f"{value:.4g}".replace("e-0", "e-").replace("e+0", "e")


def chart(
    title: str, lines: Sequence[Line], axis: Axis, x_label: str = "iteration", marks: Sequence[tuple[float, str]] = ()
) -> str:
    """A figure with legend; `marks` are vertical lines (x, words). Without any point it says so."""
    shown = [
        (line, [(x, y) for x, y in line.points if y is not None and math.isfinite(y) and (y > 0 or not axis.log)])
        for line in lines
    ]
    shown = [(line, thinned(points, MOST_POINTS)) for line, points in shown if points]
    head = f'<figure class="chart"><figcaption>{html.escape(title)}</figcaption>'
    if not shown:
        return f'{head}<p class="none">no figures</p></figure>'
    keys = "".join(
        f'<span class="key"><i class="{"dashed" if line.dashed else "dot" if line.dots else ""}" '
        f'style="--c:var(--series-{line.colour % SERIES})"></i>{html.escape(line.name)}</span>'
        for line, _ in shown
    )
    return f'{head}<div class="legend">{keys}</div>{_svg(title, shown, axis, x_label, marks)}</figure>'


def _svg(title: str, shown: list, axis: Axis, x_label: str, marks: Sequence[tuple[float, str]]) -> str:
    xs = [x for _, points in shown for x, _ in points]
    first, last = min(xs), max(xs)
    begin = first + (last - first) / 10 if axis.settled else first
    low, high = _bounds([y for _, points in shown for x, y in points if x >= begin], axis)
    if first == last:
        first, last = first - 1, last + 1
    x_of = _Scale(first, last, LEFT, WIDTH - RIGHT, False)
    y_of = _Scale(low, high, HEIGHT - BOTTOM, TOP, axis.log)
    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{html.escape(title, quote=True)}">']
    for y in log_ticks(low, high) if axis.log else nice_ticks(low, high):
        at = y_of(y)
        parts.append(f'<path class="grid" d="M{LEFT} {at:.1f}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text x="{LEFT - 7}" y="{at + 4:.1f}" text-anchor="end">{_number(y, axis.percent)}</text>')
    for x in nice_ticks(first, last, 8):
        if x == int(x):
            parts.append(f'<text x="{x_of(x):.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{x:g}</text>')
    middle = (TOP + HEIGHT - BOTTOM) / 2
    parts.append(f'<path class="axis" d="M{LEFT} {TOP}V{HEIGHT - BOTTOM}H{WIDTH - RIGHT}"/>')
    parts.append(f'<text class="label" x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 5}" text-anchor="middle">')
    parts.append(f"{html.escape(x_label)}</text>")
    parts.append(f'<text class="label" transform="translate(13 {middle}) rotate(-90)" text-anchor="middle">')
    parts.append(f"{html.escape(axis.label)}</text>")
    for x, words in marks:
        if first <= x <= last:
            parts.append(f'<path class="mark" d="M{x_of(x):.1f} {TOP}V{HEIGHT - BOTTOM}"><title>{html.escape(words)}')
            parts.append("</title></path>")
    inner = f"{LEFT} {TOP - 4} {WIDTH - LEFT - RIGHT + 5} {HEIGHT - TOP - BOTTOM + 4}"
    x, y, width, height = inner.split()
    parts.append(
        f'<svg x="{x}" y="{y}" width="{width}" height="{height}" viewBox="{inner}">'
    )  # cuts off what is outside
    for line, points in shown:
        parts += _draw(line, points, x_of, y_of, axis.percent, x_label)
    return "".join([*parts, "</svg></svg>"])


def _draw(line: Line, points: list, x_of: _Scale, y_of: _Scale, percent: bool, x_label: str) -> list[str]:
    style = f'style="--c:var(--series-{line.colour % SERIES})"'
    places = [(f"{x_of(x):.1f}", f"{y_of(y):.1f}") for x, y in points]
    parts = []
    if not line.dots:
        path = "M" + " ".join(places[0])
        path += "".join(f"H{x}V{y}" if line.step else f"L{x} {y}" for x, y in places[1:])
        parts.append(f'<path class="line{" dashed" if line.dashed else ""}" {style} d="{path}"/>')
    visible = line.dots or len(points) == 1
    parts.append(f'<g class="{"dot" if visible else "hover"}" {style}>')
    for (x, y), (at_x, at_y) in thinned(list(zip(points, places)), HOVER_POINTS):
        parts.append(f'<circle cx="{at_x}" cy="{at_y}" r="{3.2 if visible else 5}"><title>{html.escape(line.name)}, ')
        parts.append(f"{html.escape(x_label)} {x:g}: {_number(y, percent)}</title></circle>")
    return [*parts, "</g>"]
