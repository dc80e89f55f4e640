"""Products written in place, with every library that is installed."""

import subprocess
import sys

import numpy as np
import pytest

from ngsgd.errors import DataError
from ngsgd.nnet import blas


def libraries():
    blas._mkl.cache_clear()
    return ["openblas", *(["mkl"] if blas.library() == "MKL" else [])]


@pytest.fixture(params=libraries())
def library(request, monkeypatch):
    monkeypatch.setenv(blas.VARIABLE, request.param)
    blas._mkl.cache_clear()
    yield request.param
    blas._mkl.cache_clear()


def test_products_are_written_in_place_for_any_layout(library):
    rng = np.random.default_rng(8)
    for dtype in (np.float32, np.float64):
        whole = np.zeros((9, 12), dtype)
        for out in (np.zeros((5, 7), dtype), whole[:5, :7], np.zeros((7, 5), dtype).T):
            for a in (rng.standard_normal((4, 5)), rng.standard_normal((5, 4)).T, rng.standard_normal((4, 9))[:, ::2]):
                for b in (
                    rng.standard_normal((4, 7)),
                    rng.standard_normal((7, 4)).T,
                    rng.standard_normal((4, 8))[:, 1:],
                ):
                    left, right = a.astype(dtype, order="K"), b.astype(dtype, order="K")
                    expected = out + 0.5 * a.T @ b
                    blas.accumulate(out, 0.5, left, right)
                    assert np.allclose(out, expected, atol=1e-5)
                    for product in (blas.times_transposed(left.T, right.T, out), blas.times(left.T, right, out)):
                        assert product is out
                        assert np.allclose(out, a.T @ b, atol=1e-5)


@pytest.mark.parametrize("n,p,q", [(1, 1, 1), (1, 5, 3), (4, 1, 3), (4, 5, 1), (0, 5, 3), (3, 0, 4)])
def test_products_of_single_rows_and_columns_and_of_none(library, n, p, q):
    rng = np.random.default_rng(9)
    a, b, wide = (rng.standard_normal(s).astype(np.float32) for s in ((n, p), (p, q), (p, q + 2)))
    assert np.allclose(blas.times(a, b), a @ b, atol=1e-5)
    assert np.allclose(blas.times(a, wide[:, :q]), a @ wide[:, :q], atol=1e-5)
    assert np.allclose(blas.times_transposed(a, b.T.copy(), np.ones((n, q), np.float32)), a @ b, atol=1e-5)
    out = np.ones((p, q), np.float32)
    blas.accumulate(out, -1.0, a, a @ b)
    assert np.allclose(out, 1.0 - a.T @ (a @ b), atol=1e-4)


def test_the_library_is_chosen_by_the_environment(monkeypatch):
    try:
        monkeypatch.setenv(blas.VARIABLE, "atlas")
        blas._mkl.cache_clear()
        with pytest.raises(DataError, match="NGSGD_BLAS: expected mkl, openblas or nothing, got 'atlas'"):
            blas.library()
        monkeypatch.setenv(blas.VARIABLE, "openblas")
        blas._mkl.cache_clear()
        assert blas.library() == "OpenBLAS"
        monkeypatch.setenv(blas.VARIABLE, "mkl")
        monkeypatch.setattr(sys, "prefix", "/nowhere")
        monkeypatch.setattr("site.USER_BASE", None)
        blas._mkl.cache_clear()
        with pytest.raises(DataError, match="NGSGD_BLAS=mkl, but there is no libmkl_rt"):
            blas.library()
    finally:
        blas._mkl.cache_clear()


def test_another_process_gives_the_same_bytes(library):
    """What resuming relies on; an offset moves the operands in memory."""
    program = (
        "import sys, numpy as np; from ngsgd.nnet import blas; offset = int(sys.argv[1])\n"
        "a, b = (np.empty(n + offset, np.float32)[offset:] for n in (128 * 201, 201 * 300))\n"
        "rng = np.random.default_rng(1)\n"
        "a[:], b[:] = rng.standard_normal(a.size), rng.standard_normal(b.size)\n"
        "a, b, out = a.reshape(128, 201), b.reshape(201, 300), np.zeros((201, 300), np.float32)\n"
        "product = blas.times(a, b); blas.accumulate(out, 1.0, a, product)\n"
        "print(hash(product.tobytes()), hash(out.tobytes()))"
    )
    environment = {"NGSGD_BLAS": library, "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = ":".join(p for p in sys.path if p)
    results = {
        subprocess.run(
            [sys.executable, "-c", program, str(offset)], env=environment, capture_output=True, text=True, check=True
        ).stdout
        for offset in (0, 1, 5)
    }
    assert len(results) == 1
