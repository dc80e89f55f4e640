"""Warnings: each on the figures that deserve it, once, and not on healthy ones."""

import math

import numpy as np
import pytest

from ngsgd.nnet.objectives.cross_entropy import Score, score
from ngsgd.report.progress import Record
from ngsgd.report.watch import Watch, all_warnings


def scored(*valid, train=None, error=None):
    """Records of models whose held-out log-probs are `valid`; training ones rise unless given."""
    train = train or [-1.0 + 0.1 * x for x in range(len(valid))]
    return {
        x: Record(x, valid_logprob=v, valid_error=error, train_logprob=t) for x, (v, t) in enumerate(zip(valid, train))
    }


def timed(*pairs, jobs=4):
    """Records of iterations of which (slowest, mean) seconds are given."""
    return {
        x: Record(x, jobs=jobs, slowest_job_s=slowest, mean_job_s=mean) for x, (slowest, mean) in enumerate(pairs, 1)
    }


UNEQUAL = [(20.0, 12.0)] * 3


@pytest.mark.parametrize(
    "records, kinds",
    [
        ({}, []),
        (scored(-3, -2, -1, -0.9, -0.95, -1.0), ["overfitting"]),
        (scored(-3, -2, -1, -0.9, -0.91, -0.915), []),  # within the noise
        (scored(-3, -2, -1, -0.9, -0.95), []),  # a single one
        (scored(-3, -2, -1, -0.9, -1.2, -0.9), []),  # back again
        (scored(-3, -2, -1, -0.9, -1.2, -1.2, train=[-2, -1.5, -1, -0.8, -1.1, -1.1]), []),  # train falls as well
        (scored(-4, -1, error=0.06), ["small validation set"]),
        (scored(-4, -1, error=0.04), []),
        (timed(*UNEQUAL), ["waiting"]),
        (timed(*UNEQUAL, *[(20.0, 19.0)] * 5), []),  # no longer
        (timed(UNEQUAL[0]), []),  # a single one
        (timed((2.0, 1.0), (2.0, 1.0)), []),  # so short that starting them takes as long
        (timed(*UNEQUAL, jobs=1), []),
        ({x: Record(x, jobs=4, slowest_job_s=20.0) for x in range(9)}, []),  # an older table
    ],
)
def test_what_is_warned_of(records, kinds):
    assert list(all_warnings(records)) == kinds


def test_models_without_all_layers_do_not_count():
    records = scored(-3, -0.5, -2, -1, -0.9, -0.8)
    assert list(all_warnings(records)) == ["overfitting"]
    assert list(all_warnings(records, first=3)) == []


def test_each_says_its_figures_and_what_to_do():
    words = all_warnings(scored(-3, -2, -1, -0.9, -0.95, -1.0, error=0.07))
    for expected in (
        "best after iteration 3 (-0.900)",
        "to -1.000",
        "to -0.500",
        "--early-stop-epochs",
        "perturb_speed",
    ):
        assert expected in words["overfitting"]
    for expected in ("-1.000", "0.070", "--num-utts-subset"):
        assert expected in words["small validation set"]
    for expected in ("40 %", "latest 3 iterations", "20 s", "mean of 4 is 12 s", "stats/job.2.*.json"):
        assert expected in all_warnings(timed(*UNEQUAL))["waiting"]


def test_the_error_of_a_log_prob_is_that_of_a_mean_over_frames():
    rng = np.random.default_rng(1)
    y = rng.dirichlet(np.ones(7), 50).astype(np.float32)
    pdf = rng.integers(7, size=50)
    halves = [score(y[rows], np.arange(25), pdf[rows], np.ones(25, np.float32)) for rows in (slice(25), slice(25, 50))]
    log_probs = np.log(y[np.arange(50), pdf])
    assert sum(halves, Score()).standard_error == pytest.approx(log_probs.std() / np.sqrt(50), rel=1e-5)
    assert math.isnan(Score().standard_error)
    assert score(np.full((3, 2), 0.5), np.arange(3), np.zeros(3, int), np.ones(3)).standard_error < 1e-7


def test_each_is_said_once():
    said = []
    watch = Watch(said.append)
    for _ in range(3):
        watch.look(timed(*UNEQUAL))
    assert len(said) == 1
    watch.look(timed(*UNEQUAL) | scored(-1, -1, -1, error=0.1))
    assert len(said) == 2
