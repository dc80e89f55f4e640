"""steps/train_gmm.sh: the whole chain from a flat start to SAT in one command."""

import pytest

from ngsgd.gmm.model import read_model
from tests.test_gmm_steps import result, source, work  # noqa: F401  fixtures

SHORT = "--num-iters 4 --max-iter-inc 2 --realign-iters=1"
OPTIONS = ["--nj", "2", "--mono", "70", "--tri1", "40 60", "--tri2", "30 50", "--tri3", "30 50"]
OPTIONS += ["--mono-opts", SHORT, "--tri1-opts", SHORT, "--tri2-opts", f"{SHORT} --dim 20 --mllt-iters=2"]
OPTIONS += ["--tri3-opts", f"{SHORT} --fmllr-iters=2 --fmllr-min-count=100"]


def test_chain_begins_goes_on_and_refuses(work, run):  # noqa: F811
    run("train_gmm.sh", *OPTIONS, "--last", "mono", "data/train", "data/lang", "exp")
    assert sorted(p.name for p in (work / "exp").iterdir()) == ["mono", "mono_ali"]
    other = run("train_gmm.sh", *OPTIONS, "--mono", "80", "data/train", "data/lang", "exp", status=1)
    assert "--totgauss=80" in other.stderr and "--overwrite" in other.stderr
    wrong = run("train_gmm.sh", "--last", "tri2", "data/train", "data/lang", "exp", status=2)
    assert "expected mono, tri1, tri2b or tri3b, got 'tri2'" in wrong.stderr


@pytest.mark.slow
def test_from_a_flat_start_to_speaker_adaptive_training(work, run):  # noqa: F811
    run("train_gmm.sh", *OPTIONS, "--last", "tri1", "data/train", "data/lang", "exp")
    assert sorted(p.name for p in (work / "exp").iterdir()) == ["mono", "mono_ali", "tri1", "tri1_ali"]
    first = result(work / "exp/tri1")
    run("train_gmm.sh", *OPTIONS, "data/train", "data/lang", "exp")
    assert result(work / "exp/tri1") == first, "what was done is kept"
    for system, dim, leaves in (("tri1", 39, 40), ("tri2b", 20, 30), ("tri3b", 20, 30)):
        transitions, gmm = read_model(str(work / f"exp/{system}/final.mdl"))
        assert gmm.dim == dim and transitions.num_pdfs <= leaves < gmm.num_gauss
        assert (work / f"exp/{system}_ali/ali.2.gz").exists()
    assert (work / "exp/tri3b_ali/trans.2").exists()
