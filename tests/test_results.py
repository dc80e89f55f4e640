"""The table of results that a recipe ends with."""

import pytest

from ngsgd.decode.results import results_table
from ngsgd.errors import DataError


@pytest.fixture
def decoding(run, tmp_path):
    def make(name, hypotheses):
        (tmp_path / "text").write_text("a-1 ONE TWO\na-2 THREE FOUR\n")
        (tmp_path / "hyp").write_text("".join(f"10_0.0_a-{i} {words}\n" for i, words in enumerate(hypotheses, 1)))
        run("score-wer", "--replications=100", "text", "ark:hyp", f"{name}/scoring")
        return str(tmp_path / name)

    return make


def test_rates_intervals_and_reduction(decoding):
    first, second = decoding("first", ["ONE", "THREE FIVE"]), decoding("second", ["ONE TWO", "THREE FIVE"])
    lines = results_table([first, second]).splitlines()
    assert lines[1].split()[1] == "50.00" and " 2 / 4 " in lines[1]
    assert lines[2].split()[1] == "25.00" and lines[2].endswith("50.0 %")


def test_the_interval_does_not_go_below_zero(decoding):
    assert results_table([decoding("x", ["ONE TWO", "THREE FOUR"])]).splitlines()[1].split()[2] == "0.00"


def test_a_directory_without_figures_is_named(tmp_path):
    with pytest.raises(DataError, match=r"nothing/scoring/wer.json: no figures"):
        results_table([str(tmp_path / "nothing")])
