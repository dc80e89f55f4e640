"""The report of a training: what stands in it, in every state of a directory, and that it costs a training nothing."""

import html
import json
import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from ngsgd.errors import DataError
from ngsgd.options import format_options
from ngsgd.report.chart import HEIGHT, WIDTH, Axis, Line, chart, log_ticks, nice_ticks, thinned
from ngsgd.report.files import read_run
from ngsgd.report.page import FINISHED, RUNNING, Reporter, page
from ngsgd.report.progress import Progress
from ngsgd.train.options import TrainOptions
from ngsgd.train.plan import make_plan, write_plan

FAKES = Path(__file__).parent / "fakes"
NETWORK = """num-components 3
num-updatable-components 2
left-context 3
right-context 2
input-dim 13
output-dim 62
parameter-dim 182102
component 0 : SpliceComponent, input-dim=13, output-dim=78, context=-3 -2 -1 0 1 2
component 1 : AffineComponent, input-dim=78, output-dim=600, learning-rate=0.01
component 2 : PnormComponent, input-dim = 600, output-dim = 62, p = 2
"""


@pytest.fixture
def training(tmp_path):
    """A directory as training left it after 6 of its iterations."""
    folder = tmp_path / "exp" / "x<y"
    (folder / "stats").mkdir(parents=True)
    options = TrainOptions(num_epochs=3, hidden_layers=3, egs_opts="--cmvn-opts '<norm>'")
    (folder / "train.conf").write_text("# data: data/train\n" + format_options(options))
    write_plan(str(folder / "plan.tsv"), make_plan(options, num_archives=4, frames_per_eg=2))
    progress = Progress(str(folder / "progress.tsv"))
    for x in range(7):
        scores = {"valid_logprob": -2 / (x + 1), "valid_accuracy": 0.1 * x, "train_logprob": -1.9 / (x + 1)}
        times = {"seconds": 20.0, "jobs_s": 15.0, "slowest_job_s": 10.0, "mean_job_s": 7.5, "merge_s": 1.0}
        progress.note(x, train_accuracy=0.5, **scores)
        if x:
            progress.note(x, jobs=4, learning_rate=0.02, frames=400_000, job_objective=-2.0, epoch=x / 2, **times)
            change = {"relative_difference": [0.1 / x, 0.01][: 1 + (x > 2)]}
            (folder / f"stats/change.{x}.json").write_text(json.dumps(change))
    (folder / "stats/network.txt").write_text(NETWORK)
    return folder


def finish(folder):
    """The files that the end of a training leaves."""
    (folder / "final.mdl").write_text("")
    (folder / "final.json").write_text('{"how": "combine", "models": [2, 5, 6, 4]}')
    candidates = [{"name": "average of the last 3", "log_prob_per_frame": -0.25, "accuracy": 0.91}]
    candidates += [{"name": f"{folder}/{x}.mdl", "log_prob_per_frame": -0.3, "accuracy": 0.9} for x in (6, 5)]
    (folder / "stats/combine.json").write_text(json.dumps({"candidates": candidates}))
    for subset in ("valid", "train"):
        (folder / f"stats/{subset}.final.json").write_text('{"log_prob_per_frame": -0.256, "accuracy": 0.913}')


def text_of(source):
    """The words of a page without its tags."""
    return html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", source.partition("</style>")[2])))


def test_everything_a_user_wants_to_know_of_a_finished_training_is_there(training, call):
    finish(training)
    call("nnet-report", training)
    source = (training / "report.html").read_text()
    words = text_of(source)
    for expected in (
        "finished · iteration 6 of 10",
        "−0.256 final model, held-out log-prob",
        "91.3 %",
        "iterations 2, 4–6 (--final=combine)",
        "Chosen of 3 candidates by its log-prob on held-out frames: average of the last 3.",
        "iteration 6 -0.3000 90.0 %",
        "25.0 % of the jobs' time idle",
        "20,000 frames/s",
        "182,102 parameters in 2 layers, 13 features a frame, 3 frames of context to the left and 2 to the right, 62",
        "1 Affine 78 600 learning-rate 0.01",
        "context -3 -2 -1 0 1 2",
        "--hidden-layers 3",
        "layer 1",
        "output layer",
    ):
        assert expected in words, expected
    for option in TrainOptions.__dataclass_fields__:
        assert f"--{option.replace('_', '-')}<" in source
    assert re.findall(r'class="set"><span>(--[\w-]+)', source) == ["--num-epochs", "--egs-opts", "--hidden-layers"]
    assert source.count("<svg viewBox") == 6 and "no figures" not in source


def test_the_page_needs_nothing_from_elsewhere_and_is_well_formed(training):
    finish(training)
    source = page(read_run(str(training)), FINISHED)
    assert not re.search(r"<script|<link|<img|<iframe|https?:|@import|url\(|refresh", source)
    ElementTree.fromstring(source.removeprefix("<!doctype html>").replace('<meta charset="utf-8">', "").replace(
        '<meta name="viewport" content="width=device-width, initial-scale=1">', ""
    ))  # fmt: skip
    assert "x&lt;y" in source and "&lt;norm&gt;" in source


def test_a_running_one_loads_itself_again_and_says_what_is_left(training):
    source = page(read_run(str(training)), RUNNING)
    assert '<meta http-equiv="refresh"' in source
    assert "held-out log-prob, iteration 6" in source
    stopped = page(read_run(str(training)), "stopped: iteration 6: <disk> is full")
    assert "stopped: iteration 6: &lt;disk&gt; is full · iteration 6 of" in stopped
    assert "refresh" not in stopped


@pytest.mark.parametrize("missing", ["plan.tsv", "progress.tsv", "train.conf", "stats", "all but train.conf"])
def test_whatever_is_not_there_yet_is_left_out(training, missing):
    for path in sorted(training.rglob("*"), reverse=True):
        if missing in str(path.relative_to(training)) or (missing.startswith("all") and path.name != "train.conf"):
            path.rmdir() if path.is_dir() else path.unlink()
    source = page(read_run(str(training)), RUNNING)
    assert source.count('<figure class="chart">') == 6


def test_what_is_no_training_or_damaged_is_named(tmp_path, training, call):
    with pytest.raises(DataError, match=r"no train\.conf and no progress\.tsv; expected a directory of train_"):
        read_run(str(tmp_path))
    (training / "stats/change.3.json").write_text('{"relative_difference": "x"}')
    error = call("nnet-report", training, status=1).stderr
    assert "change.3.json: expected a list of numbers for relative_difference" in error
    (training / "stats/change.3.json").write_text("{")
    assert "change.3.json" in call("nnet-report", training, status=1).stderr
    assert not (training / "report.html").exists()


def test_an_older_training_without_a_summary_is_described_by_its_model(training, call, golden):
    (training / "stats/network.txt").unlink()
    (training / "6.mdl").write_bytes((golden / "nnet2/10.mdl").read_bytes())
    call("nnet-report", "--output=elsewhere.html", training)
    assert "AffineComponentPreconditionedOnline" in Path("elsewhere.html").read_text()
    assert not (training / "report.html").exists()


def test_a_report_that_cannot_be_written_is_told_once_and_ends_nothing(training, caplog):
    (training / "report.html").mkdir()
    reporter = Reporter(str(training))
    for state in (RUNNING, FINISHED):
        reporter.update(state)
    assert len(caplog.records) == 1
    assert "report.html cannot be written" in caplog.text and "training goes on without" in caplog.text


def test_reports_take_a_small_share_of_the_time(training):
    reporter = Reporter(str(training))
    reporter.update()
    (training / "report.html").unlink()
    reporter.update()  # at once again: too early
    assert not (training / "report.html").exists()
    reporter.update(FINISHED)
    assert (training / "report.html").exists()


def points_of(figure, kind="path"):
    """Coordinates in the SVG of a chart's first line."""
    if kind == "path":
        return [
            tuple(map(float, p))
            for p in re.findall(r"[ML]([\d.-]+) ([\d.-]+)", re.search(r'd="(ML?[^"]*L[^"]*)"', figure)[1])
        ]
    return [tuple(map(float, p)) for p in re.findall(r'cx="([\d.-]+)" cy="([\d.-]+)"', figure)]


def test_a_line_goes_from_left_to_right_and_higher_is_higher():
    places = points_of(chart("t", [Line("l", [(0, 1.0), (5, 3.0), (10, 2.0)], 0)], Axis("y")))
    assert [x for x, _ in places] == sorted(x for x, _ in places)
    (_, low), (_, high), (_, middle) = places
    assert 0 < high < middle < low < HEIGHT
    assert places[1][0] - places[0][0] == pytest.approx(places[2][0] - places[1][0], abs=0.2)
    assert all(0 < x < WIDTH for x, _ in places)


@pytest.mark.parametrize("points", [[], [(1, None)], [(1, float("nan"))], [(1, float("inf"))], [(1, 0.0), (2, -1.0)]])
def test_a_chart_without_any_point_says_so(points):
    figure = chart("t", [Line("l", points, 0)], Axis("y", log=True))
    assert "no figures" in figure and "<svg" not in figure


@pytest.mark.parametrize("values", [[5.0], [0.0], [-3.0, -3.0], [1e-30, 1e30], [0.1, None, float("nan"), 0.2]])
@pytest.mark.parametrize("axis", [Axis("y"), Axis("y", log=True), Axis("y", zero=True), Axis("y", settled=True)])
def test_odd_values_make_a_chart_all_the_same(values, axis):
    figure = chart("t", [Line("l", list(enumerate(values)), 0)], axis)
    assert "nan" not in figure.lower().replace("nan-", "") and "inf" not in figure.lower()


def test_ticks_are_round_and_within():
    assert nice_ticks(-0.83, -0.17) == pytest.approx([-0.8, -0.6, -0.4, -0.2])
    assert nice_ticks(0, 36, 8) == [0, 5, 10, 15, 20, 25, 30, 35]
    assert log_ticks(0.0004, 0.025) == pytest.approx([0.0005, 0.001, 0.002, 0.005, 0.01, 0.02])
    assert len(log_ticks(1e-30, 1e30)) <= 10


def test_thinning_keeps_the_last():
    assert thinned(range(5), 5) == [0, 1, 2, 3, 4]
    assert thinned(range(12), 5) == [0, 3, 6, 9, 11]
    assert len(thinned(range(100_000), 400)) <= 401


def peak_mb(run, folder, epochs, jobs):
    """The driver's peak memory in a training of so many iterations and jobs, MB."""
    paths = {"FAKES": str(folder), "PYTHONPATH": str(FAKES.parents[1])}
    iterations, peak = run(sys.executable, FAKES / "inline.py", folder, epochs, jobs, env=paths).stdout.split()
    assert int(iterations) == epochs and (folder / "final.mdl").exists()
    return float(peak)


def test_memory_of_the_driver_does_not_grow_with_iterations_or_jobs(run, tmp_path):
    short = peak_mb(run, tmp_path / "short", 30, 2)
    assert peak_mb(run, tmp_path / "long", 300, 2) < short + 6
    assert peak_mb(run, tmp_path / "wide", 8, 100) < short + 4
