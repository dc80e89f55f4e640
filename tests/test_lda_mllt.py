"""Posteriors, LDA and MLLT, program by program, against Kaldi's results of each step (golden/gmm/ops)."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ngsgd.features.compose import ComposeOptions, compose_files
from ngsgd.gmm.lda import EstLdaOptions, LdaStats, discriminants, estimate_lda
from ngsgd.gmm.mllt import (
    AccMlltOptions,
    EstMlltOptions,
    MlltStats,
    accumulate_mllt,
    estimate_mllt_file,
    transform_model_means,
)
from ngsgd.gmm.model import read_model
from ngsgd.gmm.posteriors import WeightSilenceOptions, convert_alignments, weight_silence_archive
from ngsgd.kaldi_io.copying import OutputOptions
from ngsgd.kaldi_io.stream import open_reader, open_writer

SILENCE = "1:2:3:4:5"


def read_matrix(path):
    with open_reader(str(path)) as reader:
        return reader.matrix()


def read_stats(path, kind):
    with open_reader(str(path)) as reader:
        return kind.read(reader)


def difference(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Largest difference, of the largest value."""
    return float(np.abs(ours - theirs).max() / np.abs(theirs).max())


def up_to_sign(ours: np.ndarray, theirs: np.ndarray) -> float:
    """As `difference`, with the sign of each row left open."""
    return difference(np.sign((ours * theirs).sum(axis=1))[:, None] * ours, theirs)


def agreement(golden: Path, folder: Path) -> Iterator[tuple[str, float, float]]:
    """Each step of golden/gmm/ops/commands.txt about posteriors, LDA and MLLT: (case, difference, bound)."""
    ops, out = golden / "gmm/ops", str(folder / "out")
    for name, ali, model in (("post_nosil", "tri1_ali", "tri1_ali"), ("post2b_nosil", "tri2b_ali", "tri2b")):
        model = golden / "gmm" / model.removesuffix("_ali") / "final.mdl"
        convert_alignments(f"ark:{ops}/{ali}.ark", f"ark:{out}.post")
        weight_silence_archive("0.0", SILENCE, str(model), f"ark:{out}.post", f"ark:{out}", WeightSilenceOptions())
        same = Path(out).read_bytes() == (ops / f"{name}.ark").read_bytes()
        yield f"{name}.ark, byte for byte", 0.0 if same else 1.0, 0.0
    estimate_lda(out, (f"{ops}/lda.acc",), EstLdaOptions(write_full_matrix=f"{out}.full"))
    yield "lda.mat, up to sign", up_to_sign(read_matrix(out), read_matrix(ops / "lda.mat")), 1e-3
    ours, theirs = read_matrix(f"{out}.full"), read_matrix(ops / "lda_full.mat")
    # Beyond the rank of the between-class covariance, classes - 1, all directions are as good as each other.
    with_variance = np.count_nonzero(discriminants(read_stats(ops / "lda.acc", LdaStats)).variance > 1e-9)
    yield "lda_full.mat, rows with variance, up to sign", up_to_sign(ours[:with_variance], theirs[:with_variance]), 1e-3
    projections = (np.linalg.pinv(m) @ m for m in (ours[with_variance:], theirs[with_variance:]))
    yield "lda_full.mat, space of the other rows", difference(*projections), 1e-3
    model = str(golden / "gmm/tri2b/final.mdl")
    labels = f"ark:{ops}/post2b_nosil.ark"
    accumulate_mllt(model, f"ark:gunzip -c {ops}/lda_mllt.ark.gz |", labels, out, AccMlltOptions())
    ours, theirs = read_stats(out, MlltStats), read_stats(ops / "mllt.macc", MlltStats)
    yield "mllt.macc, statistics", difference(ours.G, theirs.G), 1e-4
    yield "mllt.macc, frames", abs(ours.beta / theirs.beta - 1), 1e-6
    estimate_mllt_file(out, (f"{ops}/mllt.macc",), EstMlltOptions())
    yield "mllt.mat", difference(read_matrix(out), read_matrix(ops / "mllt.mat")), 1e-3
    transform_model_means(f"{ops}/mllt.mat", model, out, OutputOptions())
    ours, theirs = read_model(out)[1], read_model(str(ops / "mllt_transformed.mdl"))[1]
    yield "mllt_transformed.mdl, means", difference(ours.means(), theirs.means()), 1e-5
    yield "mllt_transformed.mdl, constants", difference(ours.gconsts, theirs.gconsts), 1e-5
    compose_files(f"{ops}/mllt.mat", str(golden / "gmm/tri2b/final.mat"), out, ComposeOptions())
    yield "mllt_composed.mat", difference(read_matrix(out), read_matrix(ops / "mllt_composed.mat")), 1e-5


def test_every_step_agrees_with_kaldi(golden, tmp_path):
    missed = [(case, found, bound) for case, found, bound in agreement(golden, tmp_path) if found > bound]
    assert not missed


@pytest.mark.parametrize("name, kind", [("lda.acc", LdaStats), ("mllt.macc", MlltStats)])
def test_statistics_come_back(golden, tmp_path, name, kind):
    """Binary byte for byte, and through text to seven digits."""
    path = golden / "gmm/ops" / name
    stats = read_stats(path, kind)
    for file, binary in (("binary", True), ("text", False)):
        with open_writer(str(tmp_path / file), binary) as writer:
            stats.write(writer)
    assert (tmp_path / "binary").read_bytes() == path.read_bytes()
    again = read_stats(tmp_path / "text", kind)
    for field, value in vars(stats).items():
        np.testing.assert_allclose(getattr(again, field), value, rtol=1e-5, atol=1e-6 * np.abs(value).max())
