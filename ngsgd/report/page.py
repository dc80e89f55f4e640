"""The report of a training, DIR/report.html: one page without scripts or anything from elsewhere.

It takes some milliseconds, so the driver writes it itself whenever there are new figures (`Reporter`); until the end
the page loads itself again.
"""

import html
import logging
import os
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ngsgd.kaldi_io.files import open_text_writer
from ngsgd.options import opt
from ngsgd.report.chart import Axis, Line, chart, thinned
from ngsgd.report.files import Run, latest_model, read_run
from ngsgd.report.progress import COLUMNS, Record, format_time, seconds_left
from ngsgd.report.style import STYLE
from ngsgd.report.watch import all_warnings, best_valid

log = logging.getLogger(__name__)

NAME = "report.html"
RELOAD_S = 20  # while training
MOST_ROWS = 200  # of the table of iterations: all are in progress.tsv
SHARE = 0.01  # of the driver's time for reports
RUNNING, FINISHED = "running", "finished"


@dataclass
class ReportOptions:
    """Options of nnet-report."""

    output: str = opt("", "write it to this file instead of DIR/report.html")


def report(directory: str, options: ReportOptions) -> None:
    """Write the report of a training that may be over or not. DataError when DIR is not one of a training."""
    from ngsgd.nnet.info import InfoOptions, describe

    run = read_run(directory)
    if not run.network and (model := latest_model(directory)):
        run.network = describe(model, InfoOptions())
    _write(run, FINISHED if run.has_final else "not finished", options.output)


class Reporter:
    """Keeps DIR/report.html up to date. A report that cannot be written is told once and does not end the training."""

    def __init__(self, directory: str):
        self.directory = directory
        self.not_before = 0.0
        self.complained = False

    def update(self, state: str = RUNNING) -> None:
        """Write the report, unless it is `running` and reports have taken their share of the time already."""
        start = time.monotonic()
        if state == RUNNING and start < self.not_before:
            return
        try:
            _write(read_run(self.directory), state)
        except Exception as error:  # whatever it is, it is not worth a training
            if not self.complained:
                log.warning("%s/%s cannot be written (%s); training goes on without", self.directory, NAME, error)
            self.complained = True
        end = time.monotonic()
        self.not_before = end + (end - start) / SHARE


def _write(run: Run, state: str, output: str = "") -> None:
    with open_text_writer(output or os.path.join(run.directory, NAME)) as out:
        out.write(page(run, state))


def page(run: Run, state: str) -> str:
    """The whole page. state: `running`, `finished`, or words about why it stands still."""
    title = html.escape(os.path.normpath(run.directory))
    reload = f'<meta http-equiv="refresh" content="{RELOAD_S}">' if state == RUNNING else ""
    first = max(run.reshaped, default=1)
    warnings = "".join(f'<p class="warning">{html.escape(w)}</p>' for w in all_warnings(run.records, first).values())
    sections = [_tiles(run, state), warnings, _charts(run), _final(run), _network(run), _options(run), _table(run)]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">{reload}'
        f"<title>{title}</title><style>{STYLE}</style></head><body><main>"
        f'<h1>{title}</h1><p class="state">{html.escape(_state_line(run, state))}</p>{"".join(sections)}'
        "</main></body></html>\n"
    )


def _state_line(run: Run, state: str) -> str:
    now = time.strftime("%Y-%m-%d %H:%M:%S")
    return f"{state} · iteration {run.done} of {len(run.plan)} · written {now}"


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f} %"


def _nats(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}".replace("-", "−")


def _tiles(run: Run, state: str) -> str:
    records = [r for _, r in sorted(run.records.items())]
    timed = [r for r in records if r.seconds]
    scored = [r for r in records if r.valid_logprob is not None]
    tiles = []
    valid, train = run.final_scores.get("valid"), run.final_scores.get("train")
    if valid and train:
        tiles.append((_nats(valid["log_prob_per_frame"]), "final model, held-out log-prob"))
        tiles.append((_percent(valid["accuracy"]), "final model, held-out frames right"))
        tiles.append((_nats(train["log_prob_per_frame"]), "final model, training log-prob"))
    elif scored:
        tiles.append((_nats(scored[-1].valid_logprob), f"held-out log-prob, iteration {scored[-1].model}"))
        tiles.append((_percent(scored[-1].valid_accuracy), "held-out frames right"))
        tiles.append((_nats(scored[-1].train_logprob), "training log-prob"))
    if best := best_valid(scored):
        tiles.append((_nats(best.valid_logprob), f"best iteration: {best.model}"))
    if timed:
        seconds = sum(r.seconds for r in timed)
        frames = sum(r.frames or 0 for r in timed)
        tiles.append((f"{frames / seconds:,.0f}", "frames/s"))
        tiles.append((format_time(seconds), "in iterations"))
        if state == RUNNING and (left := seconds_left(run.records, [row.jobs for row in run.plan[run.done :]])):
            tiles.append((format_time(left), "left, about"))
        slowest = sum(r.slowest_job_s * (r.jobs or 0) for r in timed if r.idle_share is not None)
        if slowest:
            busy = sum(r.mean_job_s * (r.jobs or 0) for r in timed if r.idle_share is not None)
            tiles.append((_percent(1 - busy / slowest), "of the jobs' time idle"))
    cells = "".join(f'<div class="tile"><b>{b}</b><span>{html.escape(words)}</span></div>' for b, words in tiles)
    return f'<div class="tiles">{cells}</div>'


def _charts(run: Run) -> str:
    records = [r for _, r in sorted(run.records.items())]
    marks = [(x, f"model {x} has more layers or outputs than the one before") for x in run.reshaped]

    def of(name: str) -> list[tuple[float, float | None]]:
        return [(r.model, getattr(r, name)) for r in records]

    def scores(kind: str, key: str) -> list[Line]:
        lines = [Line("training frames", of(f"train_{kind}"), 0), Line("held-out frames", of(f"valid_{kind}"), 1)]
        final = run.final_scores.get("valid", {}).get(key)
        if final is not None:
            lines.append(Line("final model, held-out", [(run.done, final)], 5, dots=True))
        return lines

    objective = scores("logprob", "log_prob_per_frame")
    objective.insert(2, Line("jobs, while training", of("job_objective"), 7, dashed=True))
    plan = [(row.iteration, row) for row in run.plan]
    plan += [(len(run.plan), row) for row in run.plan[-1:]]
    rates = [
        Line("of a job", [(x, row.learning_rate) for x, row in plan], 0, step=True),
        Line("effective: over jobs", [(x, row.learning_rate / row.jobs) for x, row in plan], 2, step=True),
    ]
    times = [
        Line("iteration", of("seconds"), 0),
        Line("its jobs", of("jobs_s"), 6),
        Line("slowest job", of("slowest_job_s"), 1),
        Line("mean job", of("mean_job_s"), 2, dashed=True),
        Line("merging", of("merge_s"), 3),
    ]
    idle = [Line("waiting for the slowest job", of("idle_share"), 1)]
    charts = [
        chart("Log-prob per frame", objective, Axis("nats per frame", settled=True), marks=marks),
        chart(
            "Frames right",
            scores("accuracy", "accuracy"),
            Axis("frames right", percent=True, settled=True),
            marks=marks,
        ),
        chart("Learning rate", rates, Axis("learning rate", log=True), marks=marks),
        chart("Relative change of the parameters", _changes(run), Axis("change / norm", log=True), marks=marks),
        chart("Time of an iteration", times, Axis("seconds", zero=True), marks=marks),
        chart("Idle share of the jobs", idle, Axis("share", percent=True, zero=True), marks=marks),
    ]
    return f'<div class="charts">{"".join(charts)}</div>'


def _changes(run: Run) -> list[Line]:
    """A line a layer: hidden ones by their number; the output layer is the last, however many there are before it."""
    hidden: dict[int, list[tuple[float, float]]] = {}
    output = []
    for x, values in run.changes.items():
        for layer, value in enumerate(values[:-1], 1):
            hidden.setdefault(layer, []).append((x, value))
        output += [(x, value) for value in values[-1:]]
    lines = [Line(f"layer {k}", points, k - 1) for k, points in sorted(hidden.items())]
    return [*lines, Line("output layer", output, 7, dashed=True)]


def _final(run: Run) -> str:
    if not run.final:
        return ""
    models, how = run.final.get("models", []), run.final.get("how")
    best = max(run.combination.get("candidates", []), key=lambda c: c["log_prob_per_frame"], default=None)
    words = f"From the models of iterations {_ranges(models)} (--final={how})."
    rows = ""
    if how == "last":
        words = f"The model of the last iteration, {models[-1]}, as --final=last says."
    elif best:
        count = len(run.combination["candidates"])
        words += f" Chosen of {count} candidates by its log-prob on held-out frames: {_model_name(best['name'])}."
        shown = run.combination["candidates"][:8]
        rows = _rows(
            ("candidate", "held-out log-prob", "frames right"),
            [(_model_name(c["name"]), f"{c['log_prob_per_frame']:.4f}", _percent(c["accuracy"])) for c in shown],
        )
    done = "" if run.has_final else " It is being made."
    table = f'<div class="card">{rows}</div>' if rows else ""
    return f"<h2>The final model</h2><p>{html.escape(words + done)}</p>{table}"


def _model_name(name: str) -> str:
    return f"iteration {match[1]}" if (match := re.search(r"(?:^|/)(\d+)\.mdl$", name)) else name


def _ranges(numbers: Iterable[int]) -> str:
    """[1, 2, 3, 7] -> "1-3, 7"."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ", ".join(str(p[0]) if len(p) == 1 else f"{p[0]}–{p[-1]}" for p in parts)


def _network(run: Run) -> str:
    facts = dict(re.findall(r"^([a-z-]+) (-?\d+)$", run.network, re.MULTILINE))
    components = re.findall(r"^component (\d+) : (\w+), ?(.*)$", run.network, re.MULTILINE)
    if not components:
        return ""
    rows = []
    for number, kind, rest in components:
        values = dict(re.findall(r"([\w-]+) ?= ?((?:[^,=]|(?<==),)+?)(?=, ?[\w-]+ ?=|$)", rest))
        dims = values.pop("input-dim", ""), values.pop("output-dim", "")
        rows.append(
            (number, kind.removesuffix("Component"), *dims, ", ".join(f"{k} {v.strip()}" for k, v in values.items()))
        )
    words = (
        f"{int(facts.get('parameter-dim', 0)):,} parameters in {facts.get('num-updatable-components')} layers, "
        f"{facts.get('input-dim')} features a frame, {facts.get('left-context')} frames of context to the left and "
        f"{facts.get('right-context')} to the right, {facts.get('output-dim')} outputs."
    )
    table = _rows(("", "component", "in", "out", "with"), rows, {2, 3})
    return f'<h2>The network</h2><p>{html.escape(words)}</p><div class="card">{table}</div>'


def _options(run: Run) -> str:
    if not run.options:
        return ""
    shown = [(name, value, True) for name, value in run.inputs.items()]
    shown += [(f"--{name}", value, value != run.defaults.get(name)) for name, value in run.options.items()]
    cells = [
        f'<div class="{"set" if given else ""}"><span>{html.escape(name)}</span><span>{html.escape(value)}</span></div>'
        for name, value, given in shown
    ]
    note = '<p class="note">In bold what differs from the defaults.</p>'
    return f'<h2>Options</h2><div class="card options">{"".join(cells)}</div>{note}'


def _table(run: Run) -> str:
    records = thinned([r for _, r in sorted(run.records.items())], MOST_ROWS)
    rows = [tuple(_cell(r, name) for name in COLUMNS) for r in records]
    what = "All iterations" if len(rows) == len(run.records) else f"{len(rows)} of {len(run.records)} iterations"
    titles = [name.replace("_", " ") for name in COLUMNS]
    table = _rows(titles, rows, set(range(len(COLUMNS))))
    return f'<details><summary>{what}</summary><div class="card">{table}</div></details>'


def _cell(record: Record, name: str) -> str:
    value = getattr(record, name)
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else f"{value}"


def _rows(titles: Sequence[str], rows: Iterable[Sequence[str]], numbers: Iterable[int] = (1, 2)) -> str:
    """A table; the columns `numbers` are set to the right."""
    numbers = set(numbers)

    def row(cells: Sequence[str], tag: str) -> str:
        kinds = [' class="n"' if i in numbers else "" for i in range(len(cells))]
        return "<tr>" + "".join(f"<{tag}{k}>{html.escape(c)}</{tag}>" for c, k in zip(cells, kinds)) + "</tr>"

    return f"<table>{row(titles, 'th')}{''.join(row(cells, 'td') for cells in rows)}</table>"
