"""Networks on fMLLR features: the transforms of the alignments, or others, at each step that reads features."""

import shutil

import numpy as np
import pytest

import ngsgd.egs.example  # noqa: F401  the kind of table nnet_example
from ngsgd.kaldi_io.stream import open_reader
from ngsgd.kaldi_io.tables import SequentialReader
from tests.test_gmm_steps import source, work  # noqa: F401  fixtures

EXAMPLES = ("--nj=1", "--min-passes=1", "--num-utts-subset=4", "--left-context=3", "--right-context=3")
SMALL = (
    *("--num-jobs-initial=1", "--num-jobs-final=1", *EXAMPLES),
    *("--pnorm-input-dim=60", "--pnorm-output-dim=20", "--hidden-layers=1"),
    *("--num-epochs=2", "--num-epochs-extra=0", "--initial-effective-lrate=0.02", "--final-effective-lrate=0.002"),
)


@pytest.fixture
def tri3b_ali(work, golden):  # noqa: F811
    """Kaldi's alignments of the speaker-adapted system in exp/tri3b_ali beside data/train."""
    shutil.copytree(golden / "gmm/tri3b_ali", work / "exp/tri3b_ali", copy_function=shutil.copyfile)
    for name in ("final.mat", "splice_opts", "cmvn_opts", "num_jobs"):
        shutil.copyfile(golden / "gmm/tri3b" / name, work / "exp/tri3b_ali" / name)
    return work


def inputs_of(table):
    """By key, the input frames of examples for their first labelled frame."""
    return {key: example.input.to_dense()[:7] for key, example in SequentialReader(table, "nnet_example")}


def difference(ours, kaldis):
    """Of the examples that both have: how many, and the largest difference of an input, in Kaldi's deviations."""
    common = sorted(ours.keys() & kaldis.keys())
    a, b = (np.concatenate([examples[key] for key in common]) for examples in (ours, kaldis))
    return len(common), float(np.abs(a - b).max() / b.std())


@pytest.mark.parametrize("options", [(), ("--transform-dir", "trans")])
def test_examples_are_those_of_kaldi(tri3b_ali, run, golden, options):
    (tri3b_ali / "trans").mkdir()
    if "trans" in options:
        for name in ("trans.1", "trans.2", "num_jobs"):
            (tri3b_ali / "exp/tri3b_ali" / name).rename(tri3b_ali / "trans" / name)
        (tri3b_ali / "exp/tri3b_ali/num_jobs").write_text("2\n")
    run("make_egs.sh", *EXAMPLES, *options, "data/train", "exp/tri3b_ali", "egs")
    kaldis = inputs_of(f"ark:{golden}/nnet2/egs/egs.1.ark")
    count, largest = difference(inputs_of(f"ark:cat {tri3b_ali}/egs/egs.*.ark |"), kaldis)
    assert count > 100 and largest < 0.1  # they are compressed to a byte


@pytest.mark.slow
def test_training_and_decoding_take_the_transforms_of_the_alignments(tri3b_ali, run, golden):
    run("train_ngsgd.py", *SMALL, "data/train", "data/lang", "exp/tri3b_ali", "exp/nnet")
    with open_reader(str(tri3b_ali / "exp/nnet/lda.mat")) as reader:
        assert reader.matrix().shape == (280, 281)
    graph = tri3b_ali / "exp/graph"
    graph.mkdir()
    for source, name in ((golden / "gmm/tri3b", "HCLG.fst"), (golden / "lang", "words.txt")):  # noqa: F402
        shutil.copyfile(source / name, graph / name)
    refused = run("decode_nnet.sh", "exp/graph", "data/train", "exp/nnet/decode", status=1)
    assert "--transform-dir DIR" in refused.stderr
    run("decode_nnet.sh", "--nj=2", "--transform-dir", "exp/tri3b_ali", "exp/graph", "data/train", "exp/nnet/decode")
    wer = float((tri3b_ali / "exp/nnet/decode/scoring/best_wer").read_text().split()[1])
    assert wer < 20


def pdfs_of(run, model, files):
    table = run("ali-to-pdf", model, f"ark:gunzip -c {files} |", "ark,t:-").stdout
    return {line.split()[0]: line.split()[1:] for line in table.splitlines()}


@pytest.mark.slow
def test_a_network_aligns_as_the_gmm_that_it_learnt_from(tri3b_ali, run, golden):
    (tri3b_ali / "exp/nnet").mkdir()
    for name in ("final.mdl", "tree", "final.mat"):
        shutil.copyfile(golden / "nnet2" / name, tri3b_ali / "exp/nnet" / name)
    options = ("--nj=2", "--transform-dir=exp/tri3b_ali")
    run("align_nnet.sh", *options, "data/train", "data/lang", "exp/nnet", "exp/ali")
    ours = pdfs_of(run, "exp/ali/final.mdl", "exp/ali/ali.1.gz exp/ali/ali.2.gz")
    theirs = pdfs_of(run, "exp/tri3b_ali/final.mdl", "exp/tri3b_ali/ali.1.gz exp/tri3b_ali/ali.2.gz")
    assert len(ours) == 24
    same = [a == b for key in ours for a, b in zip(ours[key], theirs[key], strict=True)]
    assert sum(same) > 0.9 * len(same)
