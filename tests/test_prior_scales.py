"""Scales of the output layer: Kaldi's numbers, and pdfs that are rare or absent."""

import numpy as np
import pytest

from ngsgd.errors import DataError
from ngsgd.kaldi_io.stream import open_reader
from ngsgd.nnet.prior_scales import prior_scales


def test_agrees_with_kaldi(golden, run, tmp_path):
    alignments = f"ark:gunzip -c {golden}/gmm/tri3b_ali/ali.*.gz |"
    run("nnet-prior-scales", golden / "gmm/tri3b_ali/final.mdl", alignments, tmp_path / "scales")
    with open_reader(str(tmp_path / "scales")) as reader:
        ours = reader.vector()
    kaldi = (golden / "nnet2/presoftmax_prior_scale_vecfile").read_text().strip(" []\n").split()
    np.testing.assert_allclose(ours, np.array(kaldi, float), atol=2e-6)


def test_rare_pdfs_get_larger_scales_and_unseen_ones_finite():
    scales = prior_scales(np.array([1000.0, 10.0, 0.0]), -0.25)
    assert scales[0] < scales[1] < scales[2] < 3
    assert scales.mean() == pytest.approx(1, rel=1e-6)
    assert np.isfinite(prior_scales(np.array([1.0, 0.0, 0.0]), -0.25)).all()
    np.testing.assert_array_equal(prior_scales(np.array([3.0, 1.0]), 0.0), [1, 1])


def test_no_frames_is_an_error():
    with pytest.raises(DataError, match="no frames"):
        prior_scales(np.zeros(3), -0.25)
