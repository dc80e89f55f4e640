"""GMM programs and steps as a user runs them: Kaldi's outputs, resuming after a kill, refused changes."""

import gzip
import os
import shutil
import signal
import subprocess
import time

import numpy as np
import pytest

from ngsgd.gmm.model import read_model
from ngsgd.kaldi_io.tables import SequentialReader, Writer
from tests.conftest import environment

UTTERANCES = 24


@pytest.fixture(scope="module")
def source(shared, tmp_path_factory):
    """A directory with data/train (24 utterances of the golden corpus, Kaldi's features) and data/lang."""
    golden, work = shared / "golden", tmp_path_factory.mktemp("gmm")
    train = work / "data" / "train"
    train.mkdir(parents=True)
    shutil.copytree(golden / "lang", work / "data" / "lang")
    for path in work.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    keys = [line.split()[0] for line in (golden / "corpus/train/utt2spk").read_text().splitlines()][::6][:UTTERANCES]
    for name in ("text", "utt2spk"):
        lines = (golden / "corpus/train" / name).read_text().splitlines(keepends=True)
        (train / name).write_text("".join(line for line in lines if line.split()[0] in keys))
    speakers = {}
    for line in (train / "utt2spk").read_text().splitlines():
        speakers.setdefault(line.split()[1], []).append(line.split()[0])
    (train / "spk2utt").write_text("".join(f"{s} {' '.join(u)}\n" for s, u in speakers.items()))
    with Writer(f"ark,scp:{work}/feats.ark,{train}/feats.scp", "matrix", compress=True) as out:
        for job in (1, 2):
            for key, feats in SequentialReader(f"ark:{golden}/feats/raw_mfcc_train.{job}.ark", "matrix"):
                if key in keys:
                    out.write(key, feats)
    with Writer(f"ark,scp:{work}/cmvn.ark,{train}/cmvn.scp", "matrix") as out:
        for key, stats in SequentialReader(f"ark:{golden}/feats/cmvn_train.ark", "matrix"):
            if key in speakers:
                out.write(key, stats)
    return work


@pytest.fixture
def work(source, tmp_path):
    """A fresh copy of data/train and data/lang, the directory that `run` works in."""
    shutil.copytree(source / "data", tmp_path / "data")
    return tmp_path


TRAIN = [
    "train_mono.sh",
    "--nj",
    "2",
    "--num-iters",
    "4",
    "--totgauss",
    "90",
    "--max-iter-inc",
    "2",
    "--realign-iters",
    "1 3",
    "--boost-silence",
    "1.25",
    "data/train",
    "data/lang",
]


def result(folder):
    """What counts of a training directory: bytes of the files, of gzipped ones of their contents."""
    files = {}
    for path in sorted(folder.iterdir()):
        if path.is_file():
            files[path.name] = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return files


def test_training_from_a_flat_start(work, run):
    run(*TRAIN, "exp/mono")
    made = result(work / "exp/mono")
    assert set(made) >= {
        "final.mdl",
        "tree",
        "final.occs",
        "ali.1.gz",
        "ali.2.gz",
        "fsts.1.gz",
        "num_jobs",
        "plan.tsv",
        "cmvn_opts",
        "delta_opts",
        "phones.txt",
    }
    assert not [name for name in made if name.endswith((".acc", ".ark", ".tmp")) or name in ("4.mdl", "5.mdl")]
    transitions, gmm = read_model(str(work / "exp/mono/final.mdl"))
    assert 80 < gmm.num_gauss <= 95 and gmm.dim == 39 and transitions.num_pdfs == gmm.num_pdfs == 62
    alignments = {}
    for job in (1, 2):
        alignments |= dict(SequentialReader(f"ark:gunzip -c {work}/exp/mono/ali.{job}.gz |", "int32_vector"))
    assert len(alignments) == UTTERANCES
    occs = [float(w) for w in made["final.occs"].decode().split()[1:-1]]
    assert sum(occs) == pytest.approx(sum(map(len, alignments.values())), rel=1e-5)
    logs = [(work / f"exp/mono/log/update.{x}.log").read_text() for x in range(4)]
    likes = [float(text.split("log-likelihood ")[1].split()[0]) for text in logs]
    assert likes == sorted(likes) and likes[-1] > likes[0] + 5

    again = run(*TRAIN, "exp/mono")
    assert "done already" in again.stderr and result(work / "exp/mono") == made
    other = run(*TRAIN[:-2], "--totgauss", "70", *TRAIN[-2:], "exp/mono", status=1)
    assert "< --totgauss=90" in other.stderr and "> --totgauss=70" in other.stderr and "--overwrite" in other.stderr
    assert result(work / "exp/mono") == made


@pytest.mark.slow
def test_features_made_each_time_give_the_same_bytes(work, run):
    run(*TRAIN, "exp/mono")
    run(TRAIN[0], "--cache-feats", "false", *TRAIN[1:], "exp/piped")
    assert result(work / "exp/piped") == result(work / "exp/mono")


def killed_at(command, work, path):
    """Run a step and kill it, with all its children, when a file is there."""
    process = subprocess.Popen(
        command,
        cwd=work,
        env=environment(),
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while not (work / path).exists() and process.poll() is None:
        time.sleep(0.005)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.mark.slow
@pytest.mark.parametrize(
    "at",
    ["exp/mono/0.mdl", "exp/mono/0.1.acc", "exp/mono/1.mdl", "exp/mono/2.2.acc", "exp/mono/3.occs", "exp/mono/4.mdl"],
)
def test_killed_training_goes_on_to_the_same_bytes(at, work, run):
    run(*TRAIN, "exp/whole")
    killed_at([*TRAIN, "exp/mono"], work, at)
    run(*TRAIN, "exp/mono")
    whole, resumed = result(work / "exp/whole"), result(work / "exp/mono")
    assert {n for n in resumed if ".tmp." not in n} == set(whole)
    for name, content in whole.items():
        assert resumed[name] == content, name


TRIPHONES = [
    "train_deltas.sh",
    "--nj",
    "3",
    "--num-iters",
    "4",
    "--max-iter-inc",
    "2",
    "--realign-iters",
    "2",
    "40",
    "90",
    "data/train",
    "data/lang",
]


def test_triphones_from_kaldis_alignments(work, run, golden):
    """Another number of jobs than the alignments have; leaves, Gaussians, questions; refused for other alignments."""
    mono = work / "exp/mono"
    shutil.copytree(golden / "gmm/mono", mono, copy_function=shutil.copyfile)
    first = run(*TRIPHONES, "exp/mono", "exp/tri1")
    made = result(work / "exp/tri1")
    assert set(made) >= {"final.mdl", "tree", "final.occs", "ali.3.gz", "fsts.3.gz", "plan.tsv", "questions.int"}
    assert not [n for n in made if n.endswith((".acc", ".ark", ".tmp", "clustered.int")) or "treeacc" in n], made.keys()
    assert "iteration 2, 65 Gaussians, aligning anew" in first.stderr
    transitions, gmm = read_model(str(work / "exp/tri1/final.mdl"))
    assert transitions.num_pdfs == gmm.num_pdfs <= 40 and gmm.num_pdfs < gmm.num_gauss <= 90
    alignments = {}
    for job in (1, 2, 3):
        alignments |= dict(SequentialReader(f"ark:gunzip -c {work}/exp/tri1/ali.{job}.gz |", "int32_vector"))
    assert len(alignments) == UTTERANCES
    assert all(a.max() <= transitions.num_transition_ids for a in alignments.values())
    likes = [
        float((work / f"exp/tri1/log/update.{x}.log").read_text().split("log-likelihood ")[1].split()[0])
        for x in (1, 2, 3)
    ]
    assert likes == sorted(likes)
    assert made["questions.int"].decode().endswith((work / "data/lang/phones/extra_questions.int").read_text())

    assert "done already" in run(*TRIPHONES, "exp/mono", "exp/tri1").stderr
    (mono / "ali.2.gz").write_bytes((mono / "ali.1.gz").read_bytes())
    refused = run(*TRIPHONES, "exp/mono", "exp/tri1", status=1)
    assert "exp/mono/ali.2.gz" in refused.stderr and "--overwrite" in refused.stderr
    assert result(work / "exp/tri1") == made
    (mono / "phones.txt").write_text("other 1\n")
    assert "different phones" in run(*TRIPHONES, "exp/mono", "exp/no", status=1).stderr
    (mono / "ali.1.gz").unlink()
    assert "no such file: exp/mono/ali.1.gz" in run(*TRIPHONES, "exp/mono", "exp/no", status=1).stderr
    bad = [*TRIPHONES[:-4], "many", *TRIPHONES[-3:]]
    assert "expected numbers of leaves" in run(*bad, "exp/mono", "exp/no", status=2).stderr
    assert not (work / "exp/no").exists()


@pytest.mark.slow
@pytest.mark.parametrize("at", ["treeacc.1", "tree", "plan.tsv", "log/convert.2.done", "2.mdl", "2.1.acc", "4.occs"])
def test_killed_training_of_triphones_goes_on_to_the_same_bytes(at, work, run, golden):
    shutil.copytree(golden / "gmm/mono", work / "exp/mono", copy_function=shutil.copyfile)
    run(*TRIPHONES, "exp/mono", "exp/whole")
    killed_at([*TRIPHONES, "exp/mono", "exp/tri1"], work, f"exp/tri1/{at}")
    run(*TRIPHONES, "exp/mono", "exp/tri1")
    whole, resumed = result(work / "exp/whole"), result(work / "exp/tri1")
    assert {n for n in resumed if ".tmp" not in n} == set(whole)
    for name, content in whole.items():
        assert resumed[name] == content, name


def test_aligning_with_kaldis_model(work, run, golden):
    """align_si.sh in Kaldi's own tri1 directory finds Kaldi's alignments; done jobs are not done again."""
    kaldis = {}
    for job in (1, 2):
        path = golden / f"gmm/tri1/ali.{job}.gz"
        kaldis |= dict(SequentialReader(f"ark:gunzip -c {path} |", "int32_vector"))
    run("align_si.sh", "--nj", "2", "data/train", "data/lang", golden / "gmm/tri1", "exp/ali")
    ours = {}
    for job in (1, 2):
        ours |= dict(SequentialReader(f"ark:gunzip -c {work}/exp/ali/ali.{job}.gz |", "int32_vector"))
    assert len(ours) == UTTERANCES
    # tri1's last alignments were made with an earlier model, so that near agreement is all there is to expect
    assert np.mean(np.concatenate([ours[k] == kaldis[k] for k in ours])) > 0.95
    stamps = {p.name: p.stat().st_mtime_ns for p in (work / "exp/ali").glob("ali.*.gz")}
    run("align_si.sh", "--nj", "2", "data/train", "data/lang", golden / "gmm/tri1", "exp/ali")
    assert stamps == {p.name: p.stat().st_mtime_ns for p in (work / "exp/ali").glob("ali.*.gz")}


def test_missing_inputs_are_named(work, run):
    (work / "data/lang/L.fst").unlink()
    failed = run(*TRAIN, "exp/mono", status=1)
    assert "no such file: data/lang/L.fst" in failed.stderr and not (work / "exp").exists()
    assert "got 1 arguments, expected: train_mono.sh [options]" in run("train_mono.sh", "data/train", status=2).stderr
    assert "no such file" in run("align_si.sh", "data/train", "data/lang", "exp/no", "exp/ali", status=1).stderr


def test_programs_give_kaldis_files(run, golden, tmp_path):
    gmm, ops = golden / "gmm", golden / "gmm/ops"
    run("gmm-boost-silence", "--boost=1.25", "1:2:3:4:5", gmm / "mono/final.mdl", "boosted.mdl")
    assert (tmp_path / "boosted.mdl").read_bytes() == (ops / "boost_silence.mdl").read_bytes()
    run("gmm-est", "--write-occs=next.occs", gmm / "tri1/final.mdl", ops / "tri1.acc", "next.mdl")
    assert (tmp_path / "next.occs").read_bytes() == (ops / "tri1.next.occs").read_bytes()
    assert "number of gaussians 595" in run("gmm-info", "next.mdl").stdout
    ali = f"ark:gunzip -c {gmm}/tri3b_ali/ali.1.gz |"
    run("ali-to-pdf", gmm / "tri3b_ali/final.mdl", ali, "ark,t:pdf.txt")
    assert (tmp_path / "pdf.txt").read_bytes() == (golden / "ops/pdf.1.txt").read_bytes()
    run("ali-to-phones", "--per-frame", gmm / "tri3b_ali/final.mdl", ali, "ark,t:phones.txt")
    assert (tmp_path / "phones.txt").read_bytes() == (golden / "ops/phones.1.txt").read_bytes()
    lengths = run("ali-to-phones", "--write-lengths", gmm / "tri3b_ali/final.mdl", ali, "ark,t:-").stdout.splitlines()
    key, *pairs = lengths[0].replace(";", "").split()
    frames = (tmp_path / "phones.txt").read_text().splitlines()[0].split()
    assert frames == [key] + [p for p, n in zip(pairs[::2], pairs[1::2], strict=True) for _ in range(int(n))]
    run("gmm-compute-likes", gmm / "tri1/final.mdl", f"ark:gunzip -c {ops}/delta.ark.gz |", "ark:likes.ark")
    likes = dict(SequentialReader(f"ark:{tmp_path}/likes.ark", "matrix"))
    for name, expected in SequentialReader(f"ark:{ops}/tri1.likes3.ark", "matrix"):
        np.testing.assert_allclose(likes[name], expected, rtol=1e-4)


def test_one_pass_is_two_passes(run, golden, tmp_path):
    """gmm-align-acc writes what gmm-align-compiled and gmm-acc-stats-ali write; Kaldi's realignment is ours."""
    model, ops = golden / "gmm/tri1/final.mdl", golden / "gmm/ops"
    graphs, feats = f"ark:gunzip -c {ops}/tri1.fsts.gz |", f"ark:gunzip -c {ops}/delta.ark.gz |"
    run("gmm-align-compiled", model, graphs, feats, "ark:ali.ark")
    run("gmm-acc-stats-ali", model, feats, "ark:ali.ark", "two")  # half of the features have no alignment: left out
    run("gmm-align-acc", model, graphs, feats, "ark:ali2.ark", "one")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    assert (tmp_path / "ali2.ark").read_bytes() == (tmp_path / "ali.ark").read_bytes()
    one, kaldis = (tmp_path / "ali.ark").read_bytes(), (ops / "tri1.realigned.ark").read_bytes()
    assert len(one) == len(kaldis)
    assert np.mean(np.frombuffer(one, np.uint8) == np.frombuffer(kaldis, np.uint8)) > 0.995
    run("gmm-sum-accs", "sum.acc", "one", "one")
    run("gmm-est", model, "one", "one", "a.mdl"), run("gmm-est", model, "sum.acc", "b.mdl")
    a, b = read_model(str(tmp_path / "a.mdl"))[1], read_model(str(tmp_path / "b.mdl"))[1]
    np.testing.assert_allclose(a.params(), b.params(), rtol=1e-4, atol=1e-4)
    boosted = run("gmm-align-compiled", "--boost-silence=1.25", "--silence-phones=1", model, graphs, feats, "ark:c.ark")
    assert "boosted 5 pdfs" in boosted.stderr
    assert (
        "expected phones like 1:2:3"
        in run("gmm-align-compiled", "--boost-silence=2", model, graphs, feats, "ark:d.ark", status=1).stderr
    )


def test_utterances_without_features_or_path_are_named_and_left_out(run, golden, tmp_path):
    model, ops = golden / "gmm/tri1/final.mdl", golden / "gmm/ops"
    keys = []
    with Writer(f"ark:{tmp_path}/few.ark", "matrix") as out:
        for key, feats in SequentialReader(f"ark:gunzip -c {ops}/delta.ark.gz |", "matrix"):
            keys.append(key)
            if len(keys) <= 60:
                feats = feats[:4] if len(keys) == 3 else feats
                if len(keys) == 5:
                    feats = np.where(np.arange(len(feats))[:, None] == 7, np.nan, feats).astype(np.float32)
                out.write(key, feats)
    found = run("gmm-align-compiled", model, f"ark:gunzip -c {ops}/tri1.fsts.gz |", "ark:few.ark", "ark:ali.ark")
    assert f"skipped {keys[2]}: 4 frames are too short for its transcript" in found.stderr
    assert f"skipped {keys[4]}: nan at frame 7" in found.stderr
    assert f"skipped {keys[70]}: " in found.stderr
    assert "done 58 utterances, failed 14" in found.stderr
    assert len(dict(SequentialReader(f"ark:{tmp_path}/ali.ark", "int32_vector"))) == 58
    other = run("gmm-acc-stats-ali", golden / "gmm/mono/final.mdl", "ark:few.ark", "ark:ali.ark", "x.acc", status=1)
    assert "belongs to another model" in other.stderr and not (tmp_path / "x.acc").exists()
