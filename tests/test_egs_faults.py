"""What is wrong with a user's data or machine is said in one line, before work is lost, and nothing is left behind.

The full and the unwritable disk are small file systems in memory, which only root can mount.
"""

import os
import shutil
import subprocess

import numpy as np
import pytest
from test_train_step import SMALL, golden_data, golden_inputs, inputs  # noqa: F401 (fixtures)

from ngsgd.backend import gpu_missing
from ngsgd.egs import size
from ngsgd.egs.make import MakeEgsOptions, make_egs
from ngsgd.errors import DataError
from ngsgd.kaldi_io.tables import SequentialReader, Writer


@pytest.fixture
def small_disk(tmp_path):
    """A function that mounts a file system of some kilobytes on tmp_path/disk, or gives it another size or way."""
    disk = tmp_path / "disk"
    disk.mkdir()

    def mount(*options):
        words = ["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", str(disk)]
        if subprocess.run(words, capture_output=True).returncode:
            pytest.skip("cannot mount a file system of its own here (root can)")
        return disk

    yield mount
    while subprocess.run(["umount", str(disk)], capture_output=True).returncode == 0:
        pass


def half_written(folder):
    return [path for path in folder.rglob("*") if ".tmp" in path.name]


def errors(result):
    """The ERROR lines of a program or step, which has no traceback."""
    assert "Traceback" not in result.stderr
    return [line for line in result.stderr.splitlines() if line.startswith("ERROR")]


def plan_of(run, tmp_path, utterances, aligned, *options, status=0):
    """egs-plan of made-up features and alignments of 20 frames."""
    (tmp_path / "data").mkdir()
    with Writer(f"ark,scp:{tmp_path}/f.ark,{tmp_path}/data/feats.scp", "matrix") as out:
        for utterance in utterances:
            out.write(utterance, np.ones((20, 2), np.float32))
    with Writer(f"ark:{tmp_path}/a.ark", "int32_vector") as out:
        for utterance in aligned:
            out.write(utterance, np.zeros(20, np.int32))
    return run("egs-plan", *options, "data", f"ark:{tmp_path}/a.ark", "egs", status=status)


def test_alignments_of_others(run, tmp_path):
    result = plan_of(run, tmp_path, ["a", "b"], ["c", "d"], status=1)
    assert "data/feats.scp: no utterance of it has an alignment in ark:" in errors(result)[0]
    assert len(errors(result)) == 1 and not (tmp_path / "egs/info").exists()


def test_one_utterance(run, tmp_path):
    result = plan_of(run, tmp_path, ["a"], ["a"], status=1)
    assert "training needs at least 2 utterances to hold one out, found 1" in errors(result)[0]
    assert not (tmp_path / "egs/info").exists()


def test_more_jobs_than_utterances(run, tmp_path):
    result = plan_of(run, tmp_path, "abc", "abc", "--nj=40")
    assert "40 jobs for 2 training utterances: running 2 jobs" in result.stderr
    assert (tmp_path / "egs/lists/num_jobs").read_text() == "2\n"
    assert sorted(path.name for path in (tmp_path / "egs/lists").glob("train.*")) == ["train.1.scp", "train.2.scp"]


TRAIN = ("train_ngsgd.py", "data", "lang", "ali", "exp")


def refused(run, folder, message, *options):
    result = run(*TRAIN, *options, status=1)
    assert len(errors(result)) == 1 and message in errors(result)[0]
    assert not list((folder / "exp").glob("*.mdl")) and not half_written(folder)


def test_a_missing_alignment_file(run, golden_inputs):  # noqa: F811
    (golden_inputs / "ali/num_jobs").write_text("2\n")
    refused(run, golden_inputs, "no such file: ali/ali.2.gz; ali/num_jobs promises it")


def test_a_tree_of_another_training(run, golden_inputs, golden):  # noqa: F811
    (golden_inputs / "ali/tree").write_bytes((golden / "gmm/mono/tree").read_bytes())
    refused(run, golden_inputs, "so they are not of one training")


def test_phones_of_another_lang(run, golden_inputs):  # noqa: F811
    topo = (golden_inputs / "lang/topo").read_text()
    phones = topo.split("<ForPhones>")[1].split("</ForPhones>")[0]
    (golden_inputs / "lang/topo").write_text(topo.replace(phones, f"{phones.rstrip()} 999\n", 1))
    refused(run, golden_inputs, "up to 999, and ali/final.mdl")


def test_examples_of_another_tree(run, golden_inputs, golden):  # noqa: F811
    for name in ("final.mdl", "tree"):
        (golden_inputs / "ali" / name).write_bytes((golden / "gmm/mono" / name).read_bytes())
    egs = golden_inputs / "egs"
    shutil.copytree(golden / "nnet2/egs", egs)
    options = (f"--egs-dir={egs}", "--left-context=3", "--right-context=3")
    refused(run, golden_inputs, "make new examples with the alignments of ali", *options)
    (egs / "tree").write_bytes((golden / "gmm/tri3b_ali/tree").read_bytes())
    refused(run, golden_inputs, f"{egs} has examples of another tree than ali/tree", *options)


@pytest.mark.skipif(not gpu_missing(), reason="there is a GPU here")
def test_no_gpu_is_told_before_any_work(run, golden_inputs):  # noqa: F811
    refused(run, golden_inputs, "--device gpu: cupy is not installed", "--device=gpu")
    assert not (golden_inputs / "exp/egs").exists()


def test_two_sources_of_examples(run, golden_inputs):  # noqa: F811
    refused(run, golden_inputs, "give one of the two", "--egs-dir=x", "--egs-on-the-fly")


def test_the_size_of_examples_is_known_before_they_are_made(golden, tmp_path):
    options = MakeEgsOptions(4, 3, 7, model=f"{golden}/gmm/mono/final.mdl")
    feats = f"ark:{golden}/feats/raw_mfcc_train.1.ark"
    make_egs(feats, f"ark:gunzip -c {golden}/gmm/mono/ali.1.gz |", [f"ark:{tmp_path}/egs"], options)
    lengths = {key: len(value) for key, value in SequentialReader(feats, "matrix")}
    estimate = size.ExampleSize(7, 4, 3, 13, 0).total(lengths)
    assert estimate == pytest.approx((tmp_path / "egs").stat().st_size, rel=0.01)


def test_examples_that_do_not_fit_are_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(size.shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**12, 0, 20_300_000_000))
    size.require_space(str(tmp_path), 20_000_000_000)
    with pytest.raises(DataError, match=r"need about 70.1 GB and 20.3 GB are free: train with --egs-on-the-fly"):
        size.require_space(str(tmp_path), 70_123_000_000)


@pytest.mark.parametrize(("number", "text"), [(1, "0.001 kB"), (999_400, "999 kB"), (999_900, "1 MB"), (7e13, "70 TB")])
def test_sizes_for_people(number, text):
    assert size.text_of(number) == text


def test_a_disk_too_small_for_the_examples(run, golden_data, small_disk):  # noqa: F811
    small_disk("size=700k")
    step = ("make_egs.sh", "--nj", "2", "--num-utts-subset", "10", "data", "ali", "disk/egs")
    result = run(*step, status=1)
    assert len(errors(result)) == 1 and "train with --egs-on-the-fly" in errors(result)[0]
    assert not half_written(golden_data / "disk") and not list((golden_data / "disk").rglob("egs*.ark"))


def test_a_disk_that_fills_up_while_examples_are_made(run, golden_data, small_disk):  # noqa: F811
    """The room that the estimate saw is taken by others meanwhile; with more room the same command goes on."""
    small_disk("size=200k")
    step = ("make_egs.sh", "--nj", "2", "--on-the-fly", "true", "data", "ali", "disk/egs")
    result = run(*step, status=1)
    assert "No space left on device" in result.stderr and "Traceback" not in result.stderr
    assert not half_written(golden_data / "disk") and not (golden_data / "disk/egs/archive.sh").exists()
    small_disk("remount", "size=20m")
    run(*step)
    run("bash", "disk/egs/archive.sh", 1, 0, text=False)


def test_a_full_disk_leaves_the_previous_model(run, golden, small_disk):
    disk = small_disk("size=4m")
    model = golden / "nnet2/final.mdl"
    shutil.copyfile(model, disk / "final.mdl")
    with (disk / "filler").open("wb") as filler:
        free = shutil.disk_usage(disk).free
        filler.write(bytes(max(0, free - 8192)))
    result = run("nnet-copy", "--learning-rate=0.1", model, disk / "final.mdl", status=1)
    assert errors(result) == [f"ERROR (nnet-copy) cannot write {disk}/final.mdl: No space left on device"]
    assert (disk / "final.mdl").read_bytes() == model.read_bytes()
    assert sorted(path.name for path in disk.iterdir()) == ["filler", "final.mdl"]


def test_a_directory_that_cannot_be_written(run, golden_inputs, small_disk):  # noqa: F811
    disk = small_disk("size=100k")
    for folder in ("log", "stats", "jobs"):
        (disk / "exp" / folder).mkdir(parents=True)
    small_disk("remount", "ro")
    for directory in ("disk/exp", "disk/new"):
        result = run(*TRAIN[:-1], directory, status=1)
        assert errors(result) == [
            f"ERROR (train_ngsgd.py) cannot write into {directory}: Read-only file system; "
            "change its permissions, or train in another directory"
        ]


@pytest.mark.slow
def test_a_disk_that_fills_up_in_training(run, golden, golden_data, small_disk):  # noqa: F811
    """The training stops in one line; with room again the same command ends with the same model."""
    command = ["train_ngsgd.py", *SMALL, "--egs-on-the-fly", "data", golden / "lang", "ali"]
    run(*command, "exp/whole")
    disk = small_disk("size=4m")
    used = sum(path.stat().st_size for path in (golden_data / "exp/whole/egs").rglob("*") if path.is_file())
    small_disk("remount", f"size={used + 700_000}")
    result = run(*command, "disk/exp", status=1)
    assert "No space left on device" in result.stderr and len(errors(result)) >= 1
    assert not half_written(disk)
    small_disk("remount", "size=40m")
    run(*command, "disk/exp")
    assert (disk / "exp/final.mdl").read_bytes() == (golden_data / "exp/whole/final.mdl").read_bytes()


def test_what_killed_programs_left_is_removed(tmp_path):
    from ngsgd.train.workdir import Workdir

    work = Workdir(str(tmp_path / "exp"))
    (work.path / "egs").mkdir()
    for name in ("3.mdl", "egs/egs.1.ark", "stats/valid.1.json"):
        (work.path / name).write_text("whole")
        (work.path / f"{name}.tmp.{os.getpid()}").write_text("half")
    work.remove_half_written()
    left = sorted(str(p.relative_to(work.path)) for p in work.path.rglob("*") if p.is_file())
    assert left == ["3.mdl", "egs/egs.1.ark", "stats/valid.1.json"]
