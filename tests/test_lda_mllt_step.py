"""steps/train_lda_mllt.sh as a user runs it: what it leaves, resuming after a kill, aligning and decoding with it."""

import os
import shutil
import signal
import subprocess
import time

import numpy as np
import pytest

from ngsgd.gmm.model import read_model
from ngsgd.kaldi_io.stream import open_reader
from ngsgd.kaldi_io.tables import SequentialReader
from tests.conftest import environment
from tests.test_gmm_steps import UTTERANCES, result, source, work  # noqa: F401  fixtures

OPTIONS = ["--num-iters", "4", "--max-iter-inc", "2", "--realign-iters", "2", "--mllt-iters", "2", "--dim", "20"]


def command(golden, *options):
    """On the alignments of Kaldi's tri1, of which data/train has some utterances."""
    arguments = ("30", "60", "data/train", "data/lang", golden / "gmm/tri1")
    return ["train_lda_mllt.sh", "--nj", "2", *OPTIONS, *options, *arguments]


def matrix(path):
    with open_reader(str(path)) as reader:
        return reader.matrix()


def test_training_leaves_a_model_that_aligns(work, run, golden):  # noqa: F811
    step = command(golden, "--splice-opts", "--left-context=3 --right-context=3")
    run(*step, "exp/lda")
    made = result(work / "exp/lda")
    wanted = "final.mdl final.mat full.mat final.occs tree splice_opts cmvn_opts ali.1.gz ali.2.gz fsts.1.gz num_jobs"
    assert set(made) >= {*wanted.split(), "plan.tsv", "phones.txt", "questions.int"}
    left = [n for n in made if n.endswith((".acc", ".macc", ".ark", ".tmp")) or n[0].isdigit() or n.startswith("mllt")]
    assert not left
    final, full = matrix(work / "exp/lda/final.mat"), matrix(work / "exp/lda/full.mat")
    assert final.shape == (20, 91) and full.shape == (91, 91)
    # MLLT turns within the space that LDA has kept, and only there.
    np.testing.assert_allclose(np.linalg.matrix_rank(np.vstack([final, full[:20]]), tol=1e-3), 20)
    assert np.abs(final - full[:20]).max() > 0.01
    transitions, gmm = read_model(str(work / "exp/lda/final.mdl"))
    assert gmm.dim == 20 and 40 <= gmm.num_gauss <= 60 and transitions.num_pdfs == gmm.num_pdfs <= 30
    # Likelihoods are of other features after each MLLT, whose log-determinant makes them comparable.
    likes, log_det = [], 0.0
    for x in range(1, 4):
        if x == 2:
            log_det += float((work / "exp/lda/log/mllt.2.log").read_text().split("log-determinant ")[1].split()[0])
        text = (work / f"exp/lda/log/update.{x}.log").read_text()
        likes.append(float(text.split("log-likelihood ")[1].split()[0]) + log_det)
    assert likes == sorted(likes) and likes[-1] > likes[0] + 0.1

    assert "done already" in run(*step, "exp/lda").stderr
    other = run(*command(golden, "--randprune", "4"), "exp/lda", status=1)
    assert "> --randprune=4" in other.stderr and "--overwrite" in other.stderr and result(work / "exp/lda") == made

    run("align_si.sh", "--nj", "2", "data/train", "data/lang", "exp/lda", "exp/lda_ali")
    log = (work / "exp/lda_ali/log/align.1.log").read_text()
    assert "splice-feats --left-context=3 --right-context=3" in log and "transform-feats exp/lda/final.mat" in log
    aligned = {}
    for job in (1, 2):
        aligned |= dict(SequentialReader(f"ark:gunzip -c {work}/exp/lda_ali/ali.{job}.gz |", "int32_vector"))
    assert len(aligned) == UTTERANCES
    assert matrix(work / "exp/lda_ali/final.mat").tobytes() == final.tobytes()


def test_more_dimensions_than_there_are_and_wrong_numbers(work, run, golden):  # noqa: F811
    failed = run(*command(golden, "--dim", "118"), "exp/lda", status=1)
    assert "--dim=118: the features have only 117 dimensions" in failed.stderr
    assert not (work / "exp/lda/final.mdl").exists() and not (work / "exp/lda/0.mat").exists()
    run("train_lda_mllt.sh", "30", "60", "data/train", "data/lang", "exp/none", "exp/x", status=1)
    run("train_lda_mllt.sh", "many", "60", "data/train", "data/lang", golden / "gmm/tri1", "exp/x", status=2)


@pytest.mark.slow
@pytest.mark.parametrize("at", ["full.mat", "1.mdl", "plan.tsv", "2.2.macc", "mllt.mdl", "2.mat", "3.mdl", "final.mat"])
def test_killed_training_goes_on_to_the_same_bytes(at, work, run, golden):  # noqa: F811
    run(*command(golden), "exp/whole")
    process = subprocess.Popen(
        [*map(str, command(golden)), "exp/lda"],
        cwd=work,
        env=environment(),
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while not (work / "exp/lda" / at).exists() and process.poll() is None:
        time.sleep(0.005)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    run(*command(golden), "exp/lda")
    whole, resumed = result(work / "exp/whole"), result(work / "exp/lda")
    assert {n for n in resumed if ".tmp" not in n} == set(whole)
    for name, content in whole.items():
        assert resumed[name] == content, name


@pytest.mark.slow
def test_decoding_is_as_good_as_kaldis(work, run, golden):  # noqa: F811
    """All of the golden corpus, Kaldi's leaves and Gaussians there; its tri2b has 11.03 % of 145 words wrong.

    25 dimensions: with six speakers to learn from, more of them fit those speakers (40: 6 to 21 %, as chance has it).
    """
    for part in ("train", "test"):
        shutil.copytree(golden / "corpus" / part, work / "data" / part, dirs_exist_ok=True)
        keep = sorted((golden / "feats").glob(f"raw_mfcc_{part}.*.ark"))
        run("copy-feats", f"ark:cat {' '.join(map(str, keep))} |", f"ark,scp:data/{part}.ark,data/{part}/feats.scp")
        run("copy-matrix", f"ark:{golden}/feats/cmvn_{part}.ark", f"ark,scp:data/cmvn_{part}.ark,data/{part}/cmvn.scp")
        shutil.rmtree(work / "data" / part / "split2utt", ignore_errors=True)
    shutil.copytree(work / "data/lang", work / "data/lang_test")
    shutil.copy(golden / "lang_test/G.fst", work / "data/lang_test")
    train = (
        "train_lda_mllt.sh",
        "--nj",
        "1",
        "--dim",
        "25",
        "150",
        "800",
        "data/train",
        "data/lang",
        golden / "gmm/tri1",
    )
    run(*train, "exp/lda")
    run("mkgraph.sh", "data/lang_test", "exp/lda", "exp/lda/graph")
    run("decode_gmm.sh", "--nj", "2", "exp/lda/graph", "data/test", "exp/lda/decode")
    wer = float((work / "exp/lda/decode/scoring/best_wer").read_text().split()[1])
    assert wer < 15
