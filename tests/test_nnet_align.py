"""Forced alignment by a network: Kaldi's alignments, and utterances that cannot be aligned."""

import numpy as np
import pytest

from ngsgd.kaldi_io.tables import SequentialReader, Writer
from ngsgd.nnet.alignment import paired
from ngsgd.nnet.model import read_model, write_model


def share_of_equal_frames(ours: str, theirs: str) -> float:
    """Of two alignment archives with the same utterances."""
    a, b = (dict(SequentialReader(f"ark:{path}", "int32_vector")) for path in (ours, theirs))
    assert a.keys() == b.keys() and all(len(a[key]) == len(b[key]) for key in a)
    return float(np.mean(np.concatenate([a[key] == b[key] for key in a])))


def test_alignments_are_kaldis(golden, run, tmp_path):
    ops = golden / "ops"
    graphs, feats = f"ark:gunzip -c {ops}/fsts.1.gz |", f"ark:{ops}/feats_fmllr_train1.ark"
    run("nnet-align", golden / "nnet2/10.mdl", graphs, feats, "ark:ali.ark")
    assert share_of_equal_frames(f"{tmp_path}/ali.ark", f"{ops}/ali.nnet.1.ark") >= 0.995
    run("nnet-align", "--divide-by-priors=false", golden / "nnet2/10.mdl", graphs, feats, "ark:other.ark")
    assert share_of_equal_frames(f"{tmp_path}/other.ark", f"{tmp_path}/ali.ark") < 0.999


def write_features(path, feats):
    with Writer(f"ark:{path}", "matrix") as out:
        for key, value in feats.items():
            out.write(key, value)


def test_utterances_that_cannot_be_aligned_are_named_counted_and_left_out(golden, run, tmp_path):
    feats = dict(list(SequentialReader(f"ark:{golden}/ops/feats_fmllr_train1.ark", "matrix"))[:9])
    graphs = dict(SequentialReader(f"ark:gunzip -c {golden}/ops/fsts.1.gz |", "fst"))
    with Writer(f"ark:{tmp_path}/fsts.ark", "fst") as out:
        for key in reversed(feats):  # another order than that of the features
            out.write(key, graphs[key])
    short, wide, nan, *good = feats
    feats["foreign"] = feats[good[0]]
    feats[short] = feats[short][:5]
    feats[wide] = feats[wide][:, :30]
    feats[nan] = feats[nan].copy()
    feats[nan][7, 3] = np.nan
    write_features(tmp_path / "feats.ark", feats)
    result = run("nnet-align", golden / "nnet2/10.mdl", "ark:fsts.ark", "ark:feats.ark", "ark:ali.ark")
    for key, why in (
        (short, "5 frames are too short for its transcript"),
        (wide, "features of dimension 30, but"),
        (nan, "nan at frame 7, column 3"),
        ("foreign", "it has no training graph"),
    ):
        assert f"skipped {key}: {why}" in result.stderr
    assert "done 6 utterances, failed 4" in result.stderr
    ours = dict(SequentialReader(f"ark:{tmp_path}/ali.ark", "int32_vector"))
    kaldis = dict(SequentialReader(f"ark:{golden}/ops/ali.nnet.1.ark", "int32_vector"))
    assert ours.keys() == set(good)
    assert all(np.array_equal(ours[key], kaldis[key]) for key in ours)

    write_features(tmp_path / "feats.ark", {key: feats[key] for key in good[:2]})
    (tmp_path / "ali.ark").unlink()
    result = run("nnet-align", golden / "nnet2/10.mdl", "ark:fsts.ark", "ark:feats.ark", "ark:ali.ark", status=1)
    assert f"skipped {good[2]}: it has no features" in result.stderr
    assert "most utterances failed, 7 of 9" in result.stderr and not (tmp_path / "ali.ark").exists()


def test_a_model_without_priors_is_refused(golden, run, tmp_path):
    model = read_model(str(golden / "nnet2/10.mdl"))
    model.priors = model.priors[:0]
    write_model(model, str(tmp_path / "x.mdl"))
    words = [f"ark:gunzip -c {golden}/ops/fsts.1.gz |", f"ark:{golden}/ops/feats_fmllr_train1.ark", "ark:ali.ark"]
    result = run("nnet-align", "x.mdl", *words, status=1)
    assert "the model has no priors yet" in result.stderr and not (tmp_path / "ali.ark").exists()


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("xy", "xy", "xx yy"),
        ("xyz", "zyx", "yy zz xx"),
        ("xy", "yz", "yy x- -z"),
        ("", "xy", "-x -y"),
        ("xyz", "", "x- y- z-"),
    ],
)
def test_pairing_two_tables(a, b, expected):
    assert [f"{left or '-'}{right or '-'}" for _, left, right in paired(zip(a, a), zip(b, b))] == expected.split()
