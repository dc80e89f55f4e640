"""Ten utterances of two speakers, and forty jobs asked for: steps say both numbers and run what there is."""

import pytest

from ngsgd.kaldi_io.tables import SequentialReader

UTTERANCES = 10


@pytest.fixture(scope="module")
def corpus(golden, tmp_path_factory):
    """data of ten utterances, Kaldi's features and alignments of them (ali), and a model to decode with."""
    from ngsgd.data.datadir import DataDir
    from ngsgd.kaldi_io.tables import Writer

    work = tmp_path_factory.mktemp("small")
    for folder in ("data", "ali", "model/graph"):
        (work / folder).mkdir(parents=True)
    whole = DataDir.load(golden / "corpus/train")
    chosen = [u for spk in list(whole.spk2utt)[:2] for u in whole.spk2utt[spk][: UTTERANCES // 2]]
    data = whole.select(chosen)
    data.files.pop("wav.scp")
    with Writer(f"ark,scp:{work}/f.ark,{work}/data/feats.scp", "matrix") as out:
        for job in (1, 2):
            for key, feats in SequentialReader(f"ark:{golden}/feats/raw_mfcc_train.{job}.ark", "matrix"):
                if key in chosen:
                    out.write(key, feats)
    with Writer(f"ark,scp:{work}/c.ark,{work}/data/cmvn.scp", "matrix") as out:
        for key, stats in SequentialReader(f"ark:{golden}/feats/cmvn_train.ark", "matrix"):
            if key in data.spk2utt:
                out.write(key, stats)
    for name in ("utt2spk", "spk2utt", "text"):
        (work / "data" / name).write_bytes(data.content(name))
    for name in ("ali.1.gz", "ali.2.gz", "final.mdl", "tree", "num_jobs", "cmvn_opts"):
        for folder in ("ali", "model"):
            (work / folder / name).write_bytes((golden / "gmm/mono" / name).read_bytes())
    (work / "model/graph/HCLG.fst").write_bytes((golden / "gmm/mono/HCLG.fst").read_bytes())
    (work / "model/graph/words.txt").write_bytes((golden / "lang/words.txt").read_bytes())
    return work


def utterances_of(table):
    return len(dict(SequentialReader(table, "int32_vector")))


def test_compute_cmvn(corpus, run):
    run("compute_cmvn.sh", "data", "log", "cmvn", cwd=corpus)
    assert len((corpus / "data/cmvn.scp").read_text().splitlines()) == 2


@pytest.mark.parametrize("step", ["align_si.sh", pytest.param("train_mono.sh", marks=pytest.mark.slow)])
def test_alignments(corpus, golden, run, step):
    more = {"align_si.sh": ["model"], "train_mono.sh": []}[step]
    schedule = {"align_si.sh": [], "train_mono.sh": ["--num-iters", "2", "--totgauss", "70", "--max-iter-inc", "1"]}[
        step
    ]
    result = run(step, "--nj", 40, *schedule, "data", golden / "lang", *more, step[:-3], cwd=corpus)
    assert f"40 jobs for {UTTERANCES} utterances: running {UTTERANCES} jobs" in result.stderr
    assert (corpus / step[:-3] / "num_jobs").read_text() == f"{UTTERANCES}\n"
    tables = [f"ark:gunzip -c {corpus}/{step[:-3]}/ali.{job}.gz |" for job in range(1, UTTERANCES + 1)]
    assert sum(map(utterances_of, tables)) == UTTERANCES


@pytest.mark.slow
def test_decoding(corpus, run):
    result = run("decode_gmm.sh", "--nj", 40, "model/graph", "data", "model/decode", cwd=corpus)
    assert f"40 jobs for {UTTERANCES} utterances" in result.stderr
    assert "%WER" in result.stdout


def test_examples(corpus, run):
    result = run("make_egs.sh", "--nj", 40, "data", "ali", "egs", cwd=corpus)
    assert "40 jobs for 9 training utterances: running 9 jobs" in result.stderr
    assert f"{UTTERANCES} utterances in all: 1 held out for validation instead of 300" in result.stderr
    for name in ("valid_uttlist", "train_subset_uttlist"):
        assert len((corpus / "egs" / name).read_text().splitlines()) == 1
    for name in ("valid_diagnostic", "valid_combine", "train_diagnostic", "combine"):
        assert (corpus / "egs" / f"{name}.egs").stat().st_size > 100


@pytest.mark.slow
def test_training(corpus, golden, run):
    run(
        "train_ngsgd.py",
        *("--nj=9", "--num-epochs=1", "--num-epochs-extra=1", "--num-jobs-initial=8", "--num-jobs-final=8"),
        *("--pnorm-input-dim=20", "--pnorm-output-dim=10", "--min-passes=1"),
        *("data", golden / "lang", "ali", "nnet"),
        cwd=corpus,
    )
    assert (corpus / "nnet/final.mdl").stat().st_size > 1000
