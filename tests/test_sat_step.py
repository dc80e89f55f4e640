"""steps/train_sat.sh as a user runs it: what it leaves, resuming after a kill, aligning and decoding with it."""

import shutil

import numpy as np
import pytest

from ngsgd.gmm.model import read_model
from ngsgd.kaldi_io.tables import SequentialReader
from tests.test_gmm_steps import killed_at, result, source, work  # noqa: F401  fixtures

OPTIONS = ["--nj", "2", "--num-iters", "5", "--max-iter-inc", "3", "--realign-iters", "3", "--fmllr-iters"]
MORE = ["--fmllr-min-count", "100", "30", "60", "data/train", "data/lang"]
SAT = ["train_sat.sh", *OPTIONS, "2 3", *MORE]


@pytest.fixture
def tri2b(work, golden):  # noqa: F811
    """Kaldi's LDA+MLLT system in exp/tri2b beside data/train, which has 24 of its utterances, of 6 speakers."""
    shutil.copytree(golden / "gmm/tri2b", work / "exp/tri2b", copy_function=shutil.copyfile)
    return work


def transforms(folder):
    merged = {}
    for job in (1, 2):
        merged |= dict(SequentialReader(f"ark:{folder}/trans.{job}", "matrix"))
    return merged


def test_training_leaves_models_and_transforms(tri2b, run):
    run(*SAT, "exp/tri2b", "exp/sat")
    made = result(tri2b / "exp/sat")
    wanted = "final.mdl final.alimdl final.mat full.mat tree splice_opts cmvn_opts trans.1 trans.2 ali.2.gz fsts.2.gz"
    assert set(made) >= {*wanted.split(), "final.occs", "plan.tsv", "num_jobs", "phones.txt"}
    left = [n for n in made if n.endswith((".acc", ".ark", ".tmp")) or n[0].isdigit() or n.count(".") > 1]
    assert [n for n in left if not n.endswith(".gz")] == []
    found = transforms(tri2b / "exp/sat")
    assert sorted(found) == [f"s0{n}" for n in range(1, 7)]
    assert all(t.shape == (40, 41) and not np.array_equal(t, np.eye(40, 41)) for t in found.values())
    transitions, gmm = read_model(str(tri2b / "exp/sat/final.mdl"))
    assert gmm.dim == 40 and 30 <= gmm.num_gauss <= 60 and transitions.num_pdfs == gmm.num_pdfs <= 30
    _, first_pass = read_model(str(tri2b / "exp/sat/final.alimdl"))
    assert np.array_equal(first_pass.offsets, gmm.offsets)
    assert np.abs(first_pass.means() - gmm.means()).max() > 0.01

    assert "done already" in run(*SAT, "exp/tri2b", "exp/sat").stderr
    other = run("train_sat.sh", *OPTIONS, "2", *MORE, "exp/tri2b", "exp/sat", status=1)
    assert "< --fmllr-iters=2 3" in other.stderr and "--overwrite" in other.stderr
    assert result(tri2b / "exp/sat") == made


@pytest.mark.slow
def test_training_starts_from_the_transforms_of_the_alignments(tri2b, run):
    run(*SAT, "exp/tri2b", "exp/sat")
    run("train_sat.sh", *OPTIONS, "", *MORE, "exp/sat", "exp/again")
    before, after = transforms(tri2b / "exp/sat"), transforms(tri2b / "exp/again")
    assert before.keys() == after.keys() and all(np.array_equal(after[s], before[s]) for s in before)


@pytest.mark.slow
def test_speakers_of_too_few_frames_are_trained_without_transforms(tri2b, run):
    """All transforms are unit, and the alignment model is then the model after another iteration."""
    run("train_sat.sh", *OPTIONS, "2", "--fmllr-min-count", "100000", *MORE[2:], "exp/tri2b", "exp/sat")
    assert all(np.array_equal(t, np.eye(40, 41)) for t in transforms(tri2b / "exp/sat").values())
    assert "s01: " in (tri2b / "exp/sat/log/fmllr.2.1.log").read_text()
    feats = (
        "ark:apply-cmvn --utt2spk=data/train/utt2spk scp:data/train/cmvn.scp scp:data/train/feats.scp ark:- | "
        "splice-feats ark:- ark:- | transform-feats exp/sat/final.mat ark:- ark:- |"
    )
    run("gmm-acc-stats-ali", "exp/sat/final.mdl", feats, "ark:gunzip -c exp/sat/ali.1.gz exp/sat/ali.2.gz |", "acc")
    run("gmm-est", "--power=0.2", "--remove-low-count-gaussians=false", "exp/sat/final.mdl", "acc", "next.mdl")
    (_, following), (_, first_pass) = (read_model(str(tri2b / name)) for name in ("next.mdl", "exp/sat/final.alimdl"))
    np.testing.assert_allclose(first_pass.params(), following.params(), rtol=1e-3, atol=1e-3)


@pytest.mark.slow
def test_training_on_deltas_and_with_one_job_for_each_speaker(tri2b, run, golden):
    shutil.copytree(golden / "gmm/mono", tri2b / "exp/mono", copy_function=shutil.copyfile)
    limited = run("train_sat.sh", "--nj", "20", *OPTIONS[2:], "2", *MORE, "exp/mono", "exp/sat")
    assert "20 jobs for 6 speakers" in limited.stderr
    assert read_model(str(tri2b / "exp/sat/final.mdl"))[1].dim == 39
    assert (tri2b / "exp/sat/num_jobs").read_text() == "6\n" and (tri2b / "exp/sat/trans.6").exists()


KILLED = ["trans.0.1", "plan.tsv", "trans.2.1", "2.2.acc", "trans.3.2", "alimdl.1.acc", "final.alimdl", "trans.1"]


@pytest.mark.slow
@pytest.mark.parametrize("at", KILLED)
def test_killed_training_goes_on_to_the_same_bytes(at, tri2b, run):
    run(*SAT, "exp/tri2b", "exp/whole")
    killed_at([*SAT, "exp/tri2b", "exp/sat"], tri2b, f"exp/sat/{at}")
    run(*SAT, "exp/tri2b", "exp/sat")
    whole, resumed = result(tri2b / "exp/whole"), result(tri2b / "exp/sat")
    assert {n for n in resumed if ".tmp" not in n} == set(whole)
    for name, content in whole.items():
        assert resumed[name] == content, name


@pytest.mark.slow
def test_decoding_is_as_good_as_kaldis(tri2b, run, golden):
    """All of the golden corpus, Kaldi's sizes there; its tri3b has 4.14 % of 145 words wrong."""
    for part in ("train", "test"):
        shutil.copytree(golden / "corpus" / part, tri2b / "data" / part, dirs_exist_ok=True)
        keep = sorted((golden / "feats").glob(f"raw_mfcc_{part}.?.ark"))
        run("copy-feats", f"ark:cat {' '.join(map(str, keep))} |", f"ark,scp:data/{part}.ark,data/{part}/feats.scp")
        run("copy-feats", f"ark:{golden}/feats/cmvn_{part}.ark", f"ark,scp:data/cmvn_{part}.ark,data/{part}/cmvn.scp")
    shutil.copytree(golden / "lang_test", tri2b / "data/lang", dirs_exist_ok=True)
    run("train_sat.sh", "--nj", "2", "150", "800", "data/train", "data/lang", "exp/tri2b", "exp/sat")
    run("mkgraph.sh", "data/lang", "exp/sat", "exp/sat/graph")
    run("decode_fmllr.sh", "--nj", "2", "exp/sat/graph", "data/test", "exp/sat/decode")
    assert float((tri2b / "exp/sat/decode/scoring/best_wer").read_text().split()[1]) < 7.5
