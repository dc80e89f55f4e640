"""Mixtures: Kaldi's files byte for byte, and log-likelihoods that are Kaldi's and the textbook's."""

import io

import numpy as np
import pytest

from ngsgd.errors import DataError
from ngsgd.gmm.model import AmDiagGmm, read_model, write_model
from ngsgd.kaldi_io.stream import TokenReader
from ngsgd.kaldi_io.tables import SequentialReader
from tests.reference import gmm as reference

MODELS = [*(f"{n}/final.mdl" for n in ("mono", "tri1", "tri2b", "tri3b")), "tri3b/final.alimdl", "ops/init.mdl"]


def mixtures(rng, counts, dim):
    """A model of random mixtures and their (weights, means, variances)."""
    parts = []
    for m in counts:
        weights = rng.random(m) + 0.1
        parts.append((weights / weights.sum(), rng.standard_normal((m, dim)), rng.random((m, dim)) + 0.3))
    weights, means, variances = (np.concatenate(p) for p in zip(*parts, strict=True))
    model = AmDiagGmm(np.concatenate([[0], np.cumsum(counts)]), weights, means / variances, 1 / variances)
    return model, parts


@pytest.mark.parametrize("name", MODELS)
def test_models_come_back_byte_for_byte(name, golden, tmp_path):
    path = golden / "gmm" / name
    transitions, gmm = read_model(str(path))
    write_model(str(tmp_path / "copy"), transitions, gmm)
    assert (tmp_path / "copy").read_bytes() == path.read_bytes()
    write_model(str(tmp_path / "text"), transitions, gmm, binary=False)
    again_transitions, again = read_model(str(tmp_path / "text"))
    np.testing.assert_allclose(again.params(), gmm.params(), rtol=2e-6)
    assert np.array_equal(again_transitions.tuples, transitions.tuples)
    write_model(str(tmp_path / "text2"), again_transitions, again, binary=False)
    assert (tmp_path / "text2").read_bytes() == (tmp_path / "text").read_bytes()


@pytest.mark.parametrize("name", MODELS)
def test_constants_are_rounded_as_kaldi_rounds_them(name, golden):
    _, gmm = read_model(str(golden / "gmm" / name))
    made = AmDiagGmm(gmm.offsets, gmm.weights, gmm.means_invvars, gmm.inv_vars)
    assert np.array_equal(made.gconsts, gmm.gconsts)


def test_likelihoods_are_kaldis(golden):
    _, gmm = read_model(str(golden / "gmm/tri1/final.mdl"))
    feats = dict(SequentialReader(f"ark:gunzip -c {golden}/gmm/ops/delta.ark.gz |", "matrix"))
    likes = dict(SequentialReader(f"ark:{golden}/gmm/ops/tri1.likes3.ark", "matrix"))
    assert len(likes) == 3
    for key, expected in likes.items():
        np.testing.assert_allclose(gmm.log_likelihoods(feats[key]), expected, rtol=1e-4)


def test_likelihoods_are_the_textbooks():
    rng = np.random.default_rng(3)
    model, parts = mixtures(rng, [1, 3, 3, 1, 7], 6)
    feats = rng.standard_normal((9, 6)).astype(np.float32)
    expected = [[reference.log_likelihood(x, *p)[0] for p in parts] for x in feats]
    found = model.log_likelihoods(feats)
    assert found.shape == (9, 5) and found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(model.log_likelihoods(feats, np.array([4, 0, 2])), found[:, [4, 0, 2]], rtol=1e-5)


def test_long_and_far_utterances():
    """More frames than one product takes, and frames so far off that no density is representable."""
    model, _ = mixtures(np.random.default_rng(4), [2, 3], 4)
    feats = np.random.default_rng(5).standard_normal((2500, 4)).astype(np.float32)
    whole = model.log_likelihoods(feats)
    np.testing.assert_allclose(whole, np.concatenate([model.log_likelihoods(f[None]) for f in feats]), rtol=1e-5)
    far = model.log_likelihoods(np.full((1, 4), 1e4, np.float32))
    assert np.isfinite(far).all() and far.max() < -1e6
    with pytest.raises(DataError, match="the model wants 4 columns"):
        model.log_likelihoods(np.zeros((3, 5), np.float32))


def test_a_weight_of_zero_is_no_density():
    model = AmDiagGmm([0, 2], [1.0, 0.0], np.zeros((2, 3)), np.ones((2, 3)))
    assert model.gconsts[1] == -np.inf
    expected = reference.log_likelihood(np.zeros(3), [1.0], np.zeros((1, 3)), np.ones((1, 3)))[0]
    assert model.log_likelihoods(np.zeros((1, 3)))[0, 0] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("cut", [300, 5000, 20000, 72000])
def test_a_damaged_model_is_an_error(cut, golden, tmp_path):
    path = tmp_path / "cut.mdl"
    path.write_bytes((golden / "gmm/mono/final.mdl").read_bytes()[:cut])
    with pytest.raises(DataError, match=r"cut\.mdl"):
        read_model(str(path))


@pytest.mark.parametrize(
    "old,new,message",
    [
        (b"<DIMENSION> \x04\x02", b"<DIMENSION> \x04\x03", "expected means and variances of shape"),
        (b"<WEIGHTS>", b"<WHITES>>", "found '<WHITES>>'"),
    ],
)
def test_inconsistent_mixtures_are_named(old, new, message):
    from ngsgd.kaldi_io.stream import TokenWriter

    model, _ = mixtures(np.random.default_rng(4), [2, 3], 2)
    out = io.BytesIO()
    model.write(TokenWriter(out))
    assert old in out.getvalue()
    with pytest.raises(DataError, match=message):
        AmDiagGmm.read(TokenReader(io.BufferedReader(io.BytesIO(out.getvalue().replace(old, new))), "x"))
