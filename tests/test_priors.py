"""Priors from posteriors and from alignments, transition probabilities, against Kaldi's."""

import gzip

import numpy as np
import pytest

from ngsgd.errors import DataError
from ngsgd.kaldi_io.stream import open_reader, open_writer
from ngsgd.kaldi_io.tables import SequentialReader, Writer
from ngsgd.nnet.model import read_model, write_model
from ngsgd.nnet.priors import floored_priors


def test_priors_from_summed_posteriors_are_kaldis(golden, run, tmp_path):
    run("nnet-adjust-priors", golden / "nnet2" / "10.mdl", golden / "ops" / "post.vec", "out.mdl")
    ours, theirs = read_model(str(tmp_path / "out.mdl")), read_model(str(golden / "ops" / "adjust_priors.mdl"))
    assert np.allclose(ours.priors, theirs.priors, rtol=1e-6)
    for a, b in zip(ours.nnet.updatable, theirs.nnet.updatable, strict=True):
        assert np.array_equal(a.params, b.params)


def test_priors_from_examples_are_the_mean_posterior(golden, run, tmp_path):
    egs = f"ark:{golden}/nnet2/egs/valid_diagnostic.egs"
    run("nnet-adjust-priors", "--minibatch-size=64", golden / "nnet2" / "10.mdl", egs, "out.mdl")
    with open_reader(str(golden / "ops" / "post.vec")) as r:
        expected = r.vector()
    assert np.allclose(read_model(str(tmp_path / "out.mdl")).priors, expected / expected.sum(), rtol=1e-4)


def test_unseen_pdfs_get_the_floor_and_the_sum_stays_one():
    priors = floored_priors(np.array([3.0, 0.0, 1.0]), 5e-6)
    assert priors.dtype == np.float32
    assert priors[1] == pytest.approx(5e-6, rel=1e-4) and priors.sum() == pytest.approx(1.0)
    for bad in ([0.0, 0.0], [1.0, np.nan], [2.0, -1.0]):
        with pytest.raises(DataError, match="priors need finite counts"):
            floored_priors(np.array(bad), 5e-6)


def test_posteriors_of_another_network_are_refused(golden, run, tmp_path):
    with open_writer(str(tmp_path / "post.vec")) as w:
        w.vector(np.ones(7, np.float32))
    result = run("nnet-adjust-priors", golden / "nnet2" / "10.mdl", "post.vec", "out.mdl", status=1)
    assert "7 posteriors for a network of 96 outputs" in result.stderr
    assert not (tmp_path / "out.mdl").exists()


def test_transitions_and_priors_from_alignments_are_kaldis(golden, run, tmp_path):
    """0.mdl has them from this alignment; blanked and estimated anew they must come back."""
    theirs = read_model(str(golden / "nnet2" / "0.mdl"))
    blank = read_model(str(golden / "nnet2" / "0.mdl"))
    blank.priors = np.zeros(0, np.float32)
    alignments = b"".join(
        gzip.decompress(p.read_bytes()) for p in sorted((golden / "gmm" / "tri3b_ali").glob("ali.*.gz"))
    )
    (tmp_path / "ali.ark").write_bytes(alignments)
    tids = np.concatenate([a for _, a in SequentialReader(f"ark:{tmp_path}/ali.ark", "int32_vector")])
    state = blank.transitions.tid_to_state
    counts = np.bincount(state[tids], minlength=state.max() + 1)
    enough = counts[state] >= 5  # the others keep their probabilities
    enough[0] = False
    blank.transitions.log_prob[enough] = np.log(0.5)
    write_model(blank, str(tmp_path / "blank.mdl"))
    run("nnet-train-transitions", "blank.mdl", "ark:ali.ark", "out.mdl")
    ours = read_model(str(tmp_path / "out.mdl"))
    assert np.allclose(ours.priors, theirs.priors, rtol=1e-6)
    several = np.diff(blank.transitions.state_to_tid)[state - 1] > 1
    changed = enough & several
    assert changed.sum() > 100
    assert np.allclose(ours.transitions.log_prob[changed], theirs.transitions.log_prob[changed], atol=1e-5)


PROGRAMS = ("nnet-train-transitions", "nnet-prior-scales")


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("other", ["mono", "tri1", "tri2b"])
def test_alignments_of_another_model_are_refused(program, other, golden, run, tmp_path):
    """Also where all their transition-ids are ids of this model as well."""
    foreign = f"ark:gunzip -c {golden}/gmm/{other}/ali.1.gz |"
    result = run(program, golden / "nnet2/0.mdl", foreign, "out", status=1)
    assert "skipped s01-000: " in result.stderr and "another model" in result.stderr
    assert "utterances failed" in result.stderr and not list(tmp_path.iterdir())


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_few_foreign_alignments_are_named_counted_and_left_out(program, golden, run, tmp_path):
    alignments = dict(SequentialReader(f"ark:gunzip -c {golden}/gmm/tri3b_ali/ali.1.gz |", "int32_vector"))
    keys = list(alignments)
    for name, broken in (("good", False), ("mixed", True)):
        with Writer(f"ark:{tmp_path}/{name}.ark", "int32_vector") as out:
            for i, key in enumerate(keys[:9]):
                out.write(key, alignments[key])
                if broken and i == 4:
                    out.write("foreign", np.array([1, 2, 99999], np.int32))
                    out.write("zero", np.array([0, 3], np.int32))
                    out.write("cut", alignments[key][:40])
                    out.write("empty", alignments[key][:0])
        run(program, golden / "nnet2/0.mdl", f"ark:{name}.ark", name)
    assert (tmp_path / "good").read_bytes() == (tmp_path / "mixed").read_bytes()
    result = run(program, golden / "nnet2/0.mdl", "ark:mixed.ark", "again")
    assert "done 9 utterances, failed 4" in result.stderr
    assert all(f"skipped {key}: " in result.stderr for key in ("foreign", "zero", "cut", "empty"))
    assert "transition-ids 1..99999, the model has 1..1010" in result.stderr
