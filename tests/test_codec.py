"""Compressed matrices: Kaldi's bytes, and how close the values come back."""

import numpy as np
import pytest

from ngsgd.egs import example  # noqa: F401 (registers the kind of table)
from ngsgd.kaldi_io import codec
from ngsgd.kaldi_io.tables import SequentialReader


def roundtrip(matrix, kind):
    minimum, extent, payload = codec.encode(matrix, kind)
    return codec.decode(kind, minimum, extent, *matrix.shape, payload)


@pytest.mark.parametrize(("kind", "steps"), [("CM2", 65535), ("CM3", 255)])
def test_uniform_codes_come_back_within_a_step(kind, steps):
    matrix = np.random.default_rng(1).normal(size=(6, 5)).astype(np.float32) * 20
    difference = np.abs(roundtrip(matrix, kind) - matrix).max()
    assert 0 < difference <= np.ptp(matrix) / steps * 1.001


def test_column_codes_keep_the_middle_of_a_column_finer_than_its_ends():
    matrix = np.random.default_rng(2).standard_t(2, size=(400, 3)).astype(np.float32)
    error = np.abs(roundtrip(matrix, "CM") - matrix)
    low, high = np.percentile(matrix, [30, 70], axis=0)
    inner = (matrix > low) & (matrix < high)
    assert error[inner].max() < np.ptp(matrix) / 255 / 3
    assert error.max() < np.ptp(matrix) / 60


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 9])
@pytest.mark.parametrize("kind", ["CM", "CM2", "CM3"])
def test_constants_and_few_rows_are_kept(rows, kind):
    matrix = np.full((rows, 2), -3.5, np.float32)
    assert np.allclose(roundtrip(matrix, kind), matrix, atol=1e-3)


def test_recompressing_kaldis_examples_gives_kaldis_bytes(golden):
    """Examples of egs.1.ark cut to 7 rows of input; nnet-copy-egs --frame=2 wrote them to 8.1.egs.gz as CM2."""
    whole = dict(SequentialReader(f"ark:{golden}/nnet2/egs/egs.1.ark", "nnet_example"))
    compared = 0
    for key, cut in SequentialReader(f"ark:gunzip -c {golden}/nnet2/order/8.1.egs.gz |", "nnet_example"):
        m = whole[key].input
        if m.kind != "CM":
            continue
        rows = codec.decode(m.kind, m.minimum, m.extent, m.rows, m.cols, m.payload)[2:9]
        assert codec.encode(rows, "CM2") == (cut.input.minimum, cut.input.extent, cut.input.payload)
        compared += 1
    assert compared > 2000
