"""Word error rates, their intervals and labels."""

import json

import pytest

from ngsgd.decode.scoring import Errors, ScoreOptions, errors_of, score
from ngsgd.errors import DataError


@pytest.fixture
def files(tmp_path):
    """write(name, text) -> its path."""

    def write(name, text):
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return write


def test_errors_by_kind():
    assert errors_of(["a", "b", "c", "d"], ["a", "x", "c", "d", "e"]) == Errors(4, 1, 0, 1, 1, 1)
    assert errors_of(["a"], []) == Errors(1, 0, 1, 0, 1, 1)
    assert errors_of([], ["a"]).wer == 100.0
    assert Errors(145, 2, 1, 9).line() == "%WER 8.28 [ 12 / 145, 2 ins, 1 del, 9 sub ]"


def test_kaldis_hypotheses_give_kaldis_figure(golden, tmp_path):
    lines = []
    for lmwt in range(7, 18):
        for line in (golden / f"nnet2/decode/hyp/{lmwt}.txt").read_text().splitlines():
            lines.append(f"{lmwt}_0.0_{line}\n")
    (tmp_path / "hyp").write_text("".join(lines))
    score(f"{golden}/nnet2/decode/test_filt.txt", f"ark:{tmp_path}/hyp", f"{tmp_path}/out", ScoreOptions())
    best = (tmp_path / "out/best_wer").read_text()
    assert best.partition("]")[0] == (golden / "nnet2/decode/best_wer").read_text().partition("]")[0]
    assert len((tmp_path / "out/wer.tsv").read_text().splitlines()) == 12


def test_best_and_fixed_are_told_apart(files, tmp_path):
    ref = files("ref", "u1 a b c\nu2 d e\n")
    hyp = files("hyp", "9_0.0_u1 a b c\n9_0.0_u2 d e\n10_0.0_u1 a b\n10_0.0_u2 d x\n")
    fixed = score(ref, f"ark:{hyp}", f"{tmp_path}/out", ScoreOptions(acoustic_scale=0.1))
    assert fixed.point == (10, 0.0) and fixed.errors == Errors(5, 0, 1, 1, 2, 2)
    figures = json.loads((tmp_path / "out/wer.json").read_text())
    assert figures["best"]["lmwt"] == 9 and figures["best"]["wer_percent"] == 0
    assert figures["fixed"]["wer_percent"] == 40
    low, high = figures["fixed"]["interval_percent"]
    assert low <= 40 <= high
    assert (tmp_path / "out/fixed.txt").read_text() == "u1 a b\nu2 d x\n"
    assert "fixed" in (tmp_path / "out/fixed_wer").read_text()
    assert "best of 2" in (tmp_path / "out/best_wer").read_text()


def test_the_interval_is_seeded_and_narrows_with_more_utterances(files, tmp_path):
    def interval(utterances, seed):
        ref = files("ref", "".join(f"u{i} a b c\n" for i in range(utterances)))
        hyp = files("hyp", "".join(f"u{i} a b {'c' if i % 2 else 'x'}\n" for i in range(utterances)))
        score(ref, f"ark:{hyp}", f"{tmp_path}/out", ScoreOptions(seed=seed))
        return json.loads((tmp_path / "out/wer.json").read_text())["fixed"]["interval_percent"]

    assert interval(20, 1) == interval(20, 1)
    few, many = interval(20, 1), interval(2000, 1)
    assert many[1] - many[0] < (few[1] - few[0]) / 5


def test_silence_words_do_not_count_and_unknown_words_do(files, tmp_path):
    ref = files("ref", "u1 <SIL> a b\n")
    hyp = files("hyp", "u1 a !SIL <UNK> <SIL>\n")
    assert score(ref, f"ark:{hyp}", f"{tmp_path}/out", ScoreOptions()).errors == Errors(2, 0, 0, 1, 1, 1)
    kept = score(ref, f"ark:{hyp}", f"{tmp_path}/out", ScoreOptions(remove=""))
    assert kept.errors.words == 3


def test_missing_hypotheses_count_as_deleted_and_are_named(files, tmp_path, caplog):
    ref = files("ref", "u1 a b\nu2 c\n")
    hyp = files("hyp", "u1 a b\n")
    assert score(ref, f"ark:{hyp}", f"{tmp_path}/out", ScoreOptions()).errors == Errors(3, 0, 1, 0, 2, 1)
    assert "1 of 2 utterances have no hypothesis (u2): all their words count as deleted" in caplog.text
    assert score(ref, f"ark:{hyp}", f"{tmp_path}/out", ScoreOptions(present=True)).errors == Errors(2, 0, 0, 0, 1, 0)


def test_speakers_add_up_to_the_whole(files, tmp_path):
    ref = files("ref", "a-1 x y\na-2 z\nb-1 x\n")
    hyp = files("hyp", "a-1 x\na-2 z\nb-1 w\n")
    spk = files("spk", "a-1 a\na-2 a\nb-1 b\n")
    score(ref, f"ark:{hyp}", f"{tmp_path}/out", ScoreOptions(utt2spk=spk))
    rows = [line.split("\t") for line in (tmp_path / "out/per_spk.tsv").read_text().splitlines()]
    assert rows[1:] == [
        ["a", "2", "3", "33.33", "0", "1", "0", "50.00"],
        ["b", "1", "1", "100.00", "0", "0", "1", "100.00"],
    ]


@pytest.mark.parametrize(
    ("ref", "hyp", "message"),
    [
        ("", "u1 a\n", "no utterances in it"),
        ("u1 a\n", "", "no hypotheses in it"),
        ("u1 a\n", "u2 a\n", "'u2' is a hypothesis of no utterance"),
        ("u1 <SIL>\n", "u1 a\n", "no words in it"),
    ],
)
def test_nothing_to_score_is_said(files, tmp_path, ref, hyp, message):
    with pytest.raises(DataError, match=message):
        score(files("ref", ref), f"ark:{files('hyp', hyp)}", f"{tmp_path}/out", ScoreOptions())
    assert not (tmp_path / "out").exists()
