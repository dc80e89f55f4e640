"""Progress: a table that survives a restart, lines that people read."""

import pytest

from ngsgd.errors import DataError
from ngsgd.report.display import Lines, make_display
from ngsgd.report.progress import Progress, Record, format_record, format_time, seconds_left


def test_table_survives_a_restart(tmp_path):
    path = str(tmp_path / "progress.tsv")
    first = Progress(path)
    first.note(1, jobs=4, learning_rate=0.02, frames=1000, seconds=2.5, epoch=0.25)
    first.note(0, valid_logprob=-4.5, valid_accuracy=0.1)
    again = Progress(path)
    assert again.records == first.records
    again.note(1, valid_logprob=-2.25)
    lines = [line.split("\t") for line in (tmp_path / "progress.tsv").read_text().splitlines()]
    assert [line[0] for line in lines] == ["model", "0", "1"]
    one = dict(zip(lines[0], lines[2]))
    assert (one["jobs"], one["frames"], one["valid_logprob"], one["train_logprob"]) == ("4", "1000", "-2.25", "")


@pytest.mark.parametrize(
    "text", ["", "model\tjob\n1\t2\n", "jobs\n1\n", "model\tjobs\n\t2\n", "{good}\nx\n", "model\tjobs\n1\ty\n"]
)
def test_damaged_table_is_named_with_its_line(tmp_path, text):
    good = "\t".join(Record.__dataclass_fields__)
    (tmp_path / "progress.tsv").write_text(text.format(good=good))
    with pytest.raises(DataError, match=r"progress\.tsv:[12]: .*; remove the file to go on"):
        Progress(str(tmp_path / "progress.tsv"))


def test_time_left_is_by_the_latest_iterations_and_the_jobs_to_come(tmp_path):
    progress = Progress(str(tmp_path / "progress.tsv"))
    assert seconds_left(progress.records, [4]) is None
    for model in range(1, 11):
        progress.note(model, jobs=2, seconds=100.0 if model <= 5 else 10.0)
    assert seconds_left(progress.records, [2, 4]) == pytest.approx(30)
    assert seconds_left(progress.records, []) == 0


@pytest.mark.parametrize("seconds, text", [(0.4, "0:00"), (65, "1:05"), (3599.6, "1:00:00"), (90061, "25:01:01")])
def test_times(seconds, text):
    assert format_time(seconds) == text


def test_line_has_what_is_known():
    record = Record(3, 1.5, 1, 0.01, 128, 5000, 2.0, valid_logprob=-1.5, valid_accuracy=0.5)
    record.train_logprob, record.train_accuracy = -1.25, 0.625
    assert format_record(record, 10, 70) == (
        "iteration 3/10, epoch 1.5, 1 job at rate 0.01, train -1.250 (62.5 %), valid -1.500 (50.0 %), 2,500 frames/s, "
        "1:10 left"
    )
    assert format_record(Record(10), 10, 0.0) == "iteration 10/10"


def test_plain_lines_where_there_is_no_terminal(capsys):
    display = make_display()
    assert isinstance(display, Lines)
    display.at(1, 2, "working")
    display.line("a line")
    display.close()
    assert capsys.readouterr() == ("", "a line\n")
