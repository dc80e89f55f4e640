"""Making, planning and copying training examples."""

import numpy as np
import pytest

from ngsgd.egs import copying, layout
from ngsgd.egs.archive import read_archive
from ngsgd.egs.make import MakeEgsOptions, archive_of, cut, make_egs
from ngsgd.errors import DataError
from ngsgd.kaldi_io.lists import read_lines
from ngsgd.kaldi_io.tables import Writer

RNG = np.random.default_rng(0)


def write_table(path, kind, **entries):
    with Writer(f"ark:{path}", kind) as out:
        for key, value in entries.items():
            out.write(key, value)
    return f"ark:{path}"


def entries(rspecifier):
    egs = read_archive(rspecifier)
    return {egs.key(e): bytes(egs.entry(e)) for e in range(len(egs))}


@pytest.fixture
def tables(tmp_path):
    """Features and pdf alignments of three utterances of 10, 11 and 12 frames."""
    lengths = {"a": 10, "b": 11, "c": 12}
    feats = {u: RNG.normal(size=(n, 4)).astype(np.float32) for u, n in lengths.items()}
    ali = {u: RNG.integers(0, 5, n).astype(np.int32) for u, n in lengths.items()}
    return (
        feats,
        ali,
        write_table(tmp_path / "f", "matrix", **feats),
        write_table(tmp_path / "a", "int32_vector", **ali),
    )


def test_examples_are_kaldis_bytes(golden, tmp_path):
    """From Kaldi's features and alignments, all examples of the training utterances in egs.1.ark."""
    options = MakeEgsOptions(3, 3, 7, model=f"{golden}/gmm/tri3b_ali/final.mdl")
    ali = f"ark:gunzip -c {golden}/gmm/tri3b_ali/ali.1.gz {golden}/gmm/tri3b_ali/ali.2.gz |"
    make_egs(f"ark:{golden}/ops/feats_fmllr_train1.ark", ali, [f"ark:{tmp_path}/egs"], options)
    ours, kaldis = entries(f"ark:{tmp_path}/egs"), entries(f"ark:{golden}/nnet2/egs/egs.1.ark")
    common = ours.keys() & kaldis.keys()
    assert len(common) == 1404
    assert all(ours[key] == kaldis[key] for key in common)


def test_ivectors_are_averaged_over_the_window(golden, tmp_path):
    iv, feats, ali = golden / "ivector/train", golden / "feats", golden / "gmm/tri3b_ali"
    options = MakeEgsOptions(
        4,
        4,
        1,
        model=f"{ali}/final.mdl",
        ivectors=f"ark:cat {iv}/ivector_online.1.ark {iv}/ivector_online.2.ark |",
        ivector_period=10,
    )
    make_egs(
        f"ark:cat {feats}/raw_mfcc_train.1.ark {feats}/raw_mfcc_train.2.ark |",
        f"ark:gunzip -c {ali}/ali.1.gz {ali}/ali.2.gz |",
        [f"ark:{tmp_path}/egs"],
        options,
    )
    kaldis, ours = read_archive(f"ark:{golden}/nnet2_iv/egs/combine.egs"), read_archive(f"ark:{tmp_path}/egs")
    place = {ours.key(e): e for e in range(len(ours))}
    same = [place[kaldis.key(e)] for e in range(len(kaldis))]
    assert all(ours.entry(e) == kaldis.entry(k) for k, e in enumerate(same))


def test_context_repeats_the_edges_and_the_last_example_is_short():
    feats = np.arange(10, dtype=np.float32)[:, None] * np.ones((1, 3), np.float32)
    examples = dict(cut("u", feats, np.arange(10, dtype=np.int32), MakeEgsOptions(2, 3, 4)))
    assert list(examples) == ["u-0", "u-4", "u-8"]
    last = examples["u-8"]
    assert last.labels == [[(8, 1.0)], [(9, 1.0)]]
    assert np.allclose(last.input.to_dense()[:, 0], [6, 7, 8, 9, 9, 9, 9], atol=1e-3)
    assert np.allclose(examples["u-0"].input.to_dense()[:3, 0], [0, 0, 0], atol=0.2)


@pytest.mark.parametrize("rows", [1, 4, 8, 9, 16, 31])
def test_the_kernel_compresses_as_the_plain_code(rows):
    """Ordinary values, whole numbers (equal quantiles), constants, and windows beyond both ends."""
    from ngsgd.egs import kernels
    from ngsgd.kaldi_io.compressed import CompressedMatrix

    whole, constant = np.round(RNG.normal(size=(20, 3))) + 0.0, np.full((2, 3), -3.5)
    for feats in (RNG.normal(size=(40, 5)) * 100, whole, constant):
        feats = feats.astype(np.float32)
        first = np.arange(-rows, len(feats) + rows, 3)
        dense = [feats[np.clip(np.arange(t, t + rows), 0, len(feats) - 1)] for t in first]
        plain = [CompressedMatrix.from_dense(matrix).to_bytes().partition(b" ")[2] for matrix in dense]
        out = np.zeros((len(first), len(plain[0])), np.uint8)
        kernels.encode(feats, first, rows, out)
        assert [entry.tobytes() for entry in out] == plain


def test_an_example_goes_to_its_archive_whatever_else_is_made(tables, tmp_path):
    feats, _, feats_table, ali = tables
    outputs = [f"ark:{tmp_path}/{n}" for n in range(3)]
    options = MakeEgsOptions(1, 1, 1, seed=7)
    make_egs(feats_table, ali, outputs, options)
    for n, output in enumerate(outputs):
        assert {archive_of(key, 3, 7) for key in entries(output)} == {n}
    alone = write_table(tmp_path / "one", "matrix", b=feats["b"])
    make_egs(alone, ali, [f"ark:{tmp_path}/alone.{n}" for n in range(3)], options)
    for n, output in enumerate(outputs):
        part = {key: value for key, value in entries(output).items() if key.startswith("b-")}
        assert entries(f"ark:{tmp_path}/alone.{n}") == part


def test_some_archives_of_all_are_the_same_archives(tables, tmp_path):
    _, _, feats, ali = tables
    make_egs(feats, ali, [f"ark:{tmp_path}/{n}" for n in (1, 2, 3)], MakeEgsOptions(1, 1, 1, seed=7))
    options = MakeEgsOptions(1, 1, 1, seed=7, num_archives=3, archives="3,1")
    make_egs(feats, ali, [f"ark:{tmp_path}/only{n}" for n in (3, 1)], options)
    assert all((tmp_path / f"only{n}").read_bytes() == (tmp_path / f"{n}").read_bytes() for n in (1, 3))
    for archives, outputs in (("4", 1), ("1,1", 2), ("0", 1), ("x", 1), ("1,2", 1), ("", 2)):
        with pytest.raises(DataError, match=r"--archives|an output for each"):
            MakeEgsOptions(num_archives=3, archives=archives).places(outputs)


def test_keeping_a_part_of_the_examples(tables, tmp_path):
    _, _, feats, ali = tables
    for keep in (1.0, 0.5):
        make_egs(feats, ali, [f"ark:{tmp_path}/{keep}"], MakeEgsOptions(num_frames=1, keep=keep))
    everything, part = entries(f"ark:{tmp_path}/1.0"), entries(f"ark:{tmp_path}/0.5")
    assert len(everything) == 33
    assert 8 < len(part) < 25
    assert part.items() <= everything.items()


def test_lengths_within_tolerance_are_cut_and_others_skipped(tables, tmp_path, caplog):
    _, ali, feats_table, _ = tables
    ali_table = write_table(tmp_path / "b", "int32_vector", a=ali["a"][:-2], b=ali["b"][:-3], c=ali["c"])
    assert make_egs(feats_table, ali_table, [f"ark:{tmp_path}/egs"], MakeEgsOptions(num_frames=4)) == (2, 1)
    assert "skipped b: 11 frames of features, 8 in the alignment" in caplog.text
    assert "in 1 utterances" in caplog.text
    assert read_archive(f"ark:{tmp_path}/egs").num_frames == 8 + 12


def test_when_most_fail_nothing_is_left(tables, tmp_path):
    feats, ali, feats_table, _ = tables
    feats["b"][3, 2] = np.nan
    feats_table = write_table(tmp_path / "g", "matrix", **feats)
    ali_table = write_table(tmp_path / "b", "int32_vector", a=ali["a"], b=ali["b"])
    with pytest.raises(DataError, match="most utterances failed, 2 of 3"):
        make_egs(feats_table, ali_table, [f"ark:{tmp_path}/egs"], MakeEgsOptions())
    assert not (tmp_path / "egs").exists()


def test_transition_ids_beyond_the_model_are_refused(golden, tables, tmp_path, caplog):
    feats, _, feats_table, _ = tables
    ali_table = write_table(tmp_path / "t", "int32_vector", **{u: np.full(len(f), 99999) for u, f in feats.items()})
    with pytest.raises(DataError, match="nothing done"):
        make_egs(feats_table, ali_table, [f"ark:{tmp_path}/e"], MakeEgsOptions(model=f"{golden}/gmm/mono/final.mdl"))
    assert "transition-ids 99999..99999, the model has 1..546" in caplog.text


@pytest.mark.parametrize(
    ("frames", "samples", "archives", "per_eg"),
    [(966000, 50000, 3, 8), (100_000_000, 400000, 32, 8), (17163, 400000, 3, 8), (500, 400000, 1, 1)],
)
def test_archives(frames, samples, archives, per_eg):
    plan = layout.plan_archives(frames, 100, layout.LayoutOptions(samples_per_iter=samples))
    assert (plan.num_archives, plan.frames_per_eg) == (archives, per_eg)
    assert plan.egs_per_archive <= samples
    assert plan.egs_per_archive * plan.num_archives * plan.frames_per_eg <= frames


def test_subsets_are_disjoint_and_shrink_on_few_utterances(caplog):
    utterances = [f"u{i:03}" for i in range(50)]
    valid, subset = layout.choose_subsets(utterances, 300, 1)
    assert len(valid) == len(subset) == 5 and not set(valid) & set(subset)
    assert "50 utterances in all: 5 held out for validation instead of 300" in caplog.text
    assert layout.choose_subsets(utterances[::-1], 300, 1) == (valid, subset)
    assert layout.choose_subsets(utterances, 300, 2) != (valid, subset)
    assert [len(part) for part in layout.choose_subsets(utterances[:2], 300, 1)] == [1, 1]
    with pytest.raises(DataError, match="at least 2 utterances"):
        layout.choose_subsets(["one"], 300, 1)


@pytest.mark.parametrize(("wanted", "held_out"), [(300, 6), (6, 6), (5, 3), (1, 3)])
def test_versions_of_an_utterance_are_held_out_together_and_count_each(wanted, held_out):
    """60 utterances, 20 in three versions: never more than a tenth or than wanted, unless one original is more."""
    utterances = [f"{speed}u{i:02}" for speed in ("sp0.9-", "", "sp1.1-") for i in range(20)]
    uniq = {u: u.rpartition("-")[2] for u in utterances}
    valid, subset = layout.choose_subsets(utterances, wanted, 3, uniq)
    assert len(valid) == held_out and len({uniq[u] for u in valid}) == held_out // 3
    assert subset and not {uniq[u] for u in valid} & {uniq[u] for u in subset}


def test_of_unequal_originals_those_that_fit_are_held_out():
    uniq = {f"u{i:03}": "many" for i in range(30)} | {f"v{i:03}": f"v{i:03}" for i in range(2)}
    for seed in range(5):
        assert set(layout.choose_subsets(list(uniq), 300, seed, uniq)[0]) <= {"v000", "v001"}
    with pytest.raises(DataError, match="all utterances are versions of one, 'many'"):
        layout.choose_subsets(["u000", "u001"], 1, 0, uniq)


def test_copying_one_frame_is_kaldis(golden, tmp_path):
    """nnet-copy-egs --frame=2 of egs.1.ark is what job 1 of iteration 8 read."""
    copying.copy_egs(f"ark:{golden}/nnet2/egs/egs.1.ark", [f"ark:{tmp_path}/cut"], copying.CopyEgsOptions("2"))
    assert entries(f"ark:{tmp_path}/cut") == entries(f"ark:gunzip -c {golden}/nnet2/order/8.1.egs.gz |")


def test_shuffling_keeps_the_examples_and_forgets_their_order(golden, tmp_path):
    source, options = f"ark:{golden}/nnet2_iv/egs/combine.egs", copying.ShuffleEgsOptions(seed=4, sort=True)
    copying.shuffle_egs(source, f"ark:{tmp_path}/1", options)
    copying.shuffle_egs(f"ark:{tmp_path}/1", f"ark:{tmp_path}/2", options)
    assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes()
    assert entries(f"ark:{tmp_path}/1") == entries(source)
    assert list(entries(f"ark:{tmp_path}/1")) != sorted(entries(source))


def test_subsets_share_what_there_is(golden, tmp_path, caplog):
    source = f"ark:{golden}/steps/egs64.ark"
    targets = [f"ark:{tmp_path}/a", f"ark:{tmp_path}/b"]
    assert copying.subset_egs(source, targets, copying.SubsetEgsOptions(10, 20)) == [10, 20]
    assert not entries(targets[0]).keys() & entries(targets[1]).keys()
    assert copying.subset_egs(source, targets, copying.SubsetEgsOptions(100, 300)) == [16, 48]
    assert "64 examples there, so [16, 48] instead of [100, 300]" in caplog.text


def test_no_version_of_a_held_out_utterance_is_trained_on(run, tmp_path):
    """From the copies that perturb_speed.py makes to the lists of examples."""
    import soundfile

    (tmp_path / "data").mkdir()
    ids = [f"s{i % 2}-{i}" for i in range(10)]
    for utterance in ids:
        soundfile.write(tmp_path / f"{utterance}.wav", RNG.integers(-900, 900, 800).astype(np.int16), 8000)
    for name, value in (("wav.scp", f"{tmp_path}/{{0}}.wav"), ("utt2spk", "{1}"), ("text", "ONE")):
        lines = [f"{u} {value.format(u, u[:2])}\n" for u in sorted(ids)]
        (tmp_path / "data" / name).write_text("".join(lines))
    run("perturb_speed.py", "data", "copies")
    run("perturb_volume.py", "copies", "louder")
    utterances = [line.split()[0] for line in (tmp_path / "louder/utt2spk").read_text().splitlines()]
    feats = write_table(tmp_path / "f", "matrix", **{u: np.ones((9, 2), np.float32) for u in utterances})
    run("copy-feats", feats, "ark,scp:f.ark,louder/feats.scp")
    ali = write_table(tmp_path / "a", "int32_vector", **{u: np.zeros(9, np.int32) for u in utterances})
    run("egs-plan", "louder", ali, "egs")
    held_out = {line[-4:] for line in (tmp_path / "egs/valid_uttlist").read_text().split()}
    trained_on = {line.split()[0][-4:] for line in (tmp_path / "egs/lists/train.1.scp").read_text().splitlines()}
    assert len(utterances) == 30 and len(held_out) == 1 and len(trained_on) == 9 and not held_out & trained_on


@pytest.fixture
def corpus(golden, run, tmp_path):
    """data/train and ali of the digit corpus, as Kaldi left them."""
    data, ali = tmp_path / "data", tmp_path / "ali"
    data.mkdir()
    ali.mkdir()
    feats = f"ark:cat {golden}/feats/raw_mfcc_train.1.ark {golden}/feats/raw_mfcc_train.2.ark |"
    run("copy-feats", feats, "ark,scp:data/f.ark,data/feats.scp")
    run("copy-feats", f"ark:{golden}/feats/cmvn_train.ark", "ark,scp:data/c.ark,data/cmvn.scp")
    (data / "utt2spk").write_bytes((golden / "corpus/train/utt2spk").read_bytes())
    for name in ("ali.1.gz", "ali.2.gz", "final.mdl", "num_jobs", "cmvn_opts"):
        (ali / name).write_bytes((golden / "gmm/mono" / name).read_bytes())
    return tmp_path


def whole(directory):
    return {p.name: p.read_bytes() for p in directory.iterdir() if p.suffix in (".ark", ".egs")}


def test_make_egs_step_gives_the_same_bytes_with_other_jobs_and_after_an_interruption(corpus, run):
    run("make_egs.sh", "--nj", 2, "--num-utts-subset", 6, "data", "ali", "egs")
    first = whole(corpus / "egs")
    assert len([name for name in first if name.startswith("egs.")]) == int(
        (corpus / "egs/info/num_archives").read_text()
    )
    assert set(first) >= {"valid_diagnostic.egs", "valid_combine.egs", "train_diagnostic.egs", "combine.egs"}
    held_out = set(read_lines(str(corpus / "egs/valid_uttlist")))
    assert len(held_out) == 6
    trained_on = {
        key.rsplit("-", 1)[0]
        for name in first
        for key in entries(f"ark:{corpus}/egs/{name}")
        if not name.startswith("valid")
    }
    assert not held_out & trained_on
    assert {key.rsplit("-", 1)[0] for key in entries(f"ark:{corpus}/egs/valid_diagnostic.egs")} == held_out
    for name in ("egs.2.ark", "train_diagnostic.egs"):
        (corpus / "egs" / name).unlink()
    (corpus / "egs/egs_orig.2.1-of-2.ark").write_bytes(b"left by a run with two jobs that was killed")
    run("make_egs.sh", "--nj", 3, "--num-utts-subset", 6, "data", "ali", "egs")
    assert whole(corpus / "egs") == first
    refused = run("make_egs.sh", "--num-utts-subset", 7, "data", "ali", "egs", status=1)
    assert "--num-utts-subset was 6, now 7" in refused.stderr


def test_examples_on_the_fly_are_those_on_disk(corpus, run):
    """Where an archive is drawn from all utterances, it is the same, byte for byte, and the subsets are too."""
    for kind in ("false", "true"):
        run("make_egs.sh", "--nj", 2, "--num-utts-subset", 6, "--on-the-fly", kind, "data", "ali", kind)
    on_disk, on_the_fly = whole(corpus / "false"), whole(corpus / "true")
    assert on_the_fly.keys() - {"ali.ark"} == {name for name in on_disk if not name.startswith("egs.")}
    assert all(on_disk[name] == content for name, content in on_the_fly.items() if name != "ali.ark")
    for archive, frame in ((1, 0), (3, 5)):
        made = run("bash", "true/archive.sh", archive, frame, text=False)
        assert made.stdout == on_disk[f"egs.{archive}.ark"]
    wrong = run("bash", "true/archive.sh", 4, 0, status=1)
    assert "true has archives 1 to 3 and frames 0 to 7, asked for archive 4, frame 0" in wrong.stderr


def test_on_the_fly_archives_divide_the_utterances_anew_for_each_frame(tmp_path):
    """Groups of about as many frames, each utterance in one, whatever the lengths; by seed and frame alone."""
    lengths = {f"u{i:03}": 20 + 7 * (i % 50) for i in range(200)}
    (tmp_path / "data").mkdir()
    with Writer(f"ark,scp:{tmp_path}/f,{tmp_path}/data/feats.scp", "matrix") as out:
        for utterance, length in lengths.items():
            out.write(utterance, np.ones((length, 2), np.float32))
    ali = write_table(tmp_path / "a", "int32_vector", **{u: np.zeros(n, np.int32) for u, n in lengths.items()})
    options = layout.LayoutOptions(on_the_fly=True, mix_utterances=60, min_passes=50, feat_dim=2)
    archives = layout.write_layout(str(tmp_path / "data"), ali, str(tmp_path / "egs"), options)
    assert (archives.num_archives, archives.per_group) == (6, 2)

    def group(archive, frame):
        lines = layout.select_utterances(str(tmp_path / "egs"), layout.SelectOptions(archive, frame))
        return [line.split()[0] for line in lines]

    trained_on = {line.split()[0] for line in read_lines(str(tmp_path / "egs/lists/train.scp"))}
    for frame in range(archives.frames_per_eg):
        groups = [group(archive, frame) for archive in (1, 3, 5)]
        assert groups == [group(archive, frame) for archive in (2, 4, 6)]
        assert sorted(u for utterances in groups for u in utterances) == sorted(trained_on)
        frames = [sum(lengths[u] for u in utterances) for utterances in groups]
        assert max(frames) < 1.05 * min(frames)
    assert group(1, 0) != group(1, 1)
    (tmp_path / "egs/info/archives_per_group").unlink()
    with pytest.raises(DataError, match=r"archives_per_group: expected a number, as make_egs.sh --on-the-fly"):
        group(1, 0)
