"""Relabelling examples: the new labels at the frames that keys name, the input untouched."""

import numpy as np

import ngsgd.egs.example  # noqa: F401  the kind of table nnet_example
from ngsgd.egs.archive import read_archive
from ngsgd.kaldi_io.tables import SequentialReader, Writer


def examples(path):
    return dict(SequentialReader(f"ark:{path}", "nnet_example"))


def relabel(call, tmp_path, pdfs, egs, **expected):
    with Writer(f"ark:{tmp_path}/pdfs", "int32_vector") as out:
        for key, value in pdfs.items():
            out.write(key, value)
    return call("egs-relabel", "ark:pdfs", f"ark:{egs}", "ark:new", **expected)


def test_labels_are_those_of_the_alignment_at_the_examples_frames(golden, call, tmp_path):
    egs = golden / "nnet2/egs/egs.1.ark"
    old = examples(egs)
    ends = {}
    for key, example in old.items():
        utterance, first = key.rsplit("-", 1)
        ends[utterance] = max(ends.get(utterance, 0), int(first) + example.num_frames)
    without, short = sorted(ends)[:2]
    pdfs = {u: np.arange(end, dtype=np.int32) % 90 for u, end in ends.items() if u != without}
    pdfs[short] = pdfs[short][:20]
    result = relabel(call, tmp_path, pdfs, egs)
    new = examples(tmp_path / "new")
    assert list(new) == list(old)
    kept = 0
    for key, example in new.items():
        utterance, first = key.rsplit("-", 1)
        frames = range(int(first), int(first) + example.num_frames)
        if utterance == without or (utterance == short and frames[-1] >= 20):
            assert example.labels == old[key].labels
            kept += 1
        else:
            assert example.labels == [[(frame % 90, 1.0)] for frame in frames]
        assert example.input.payload == old[key].input.payload and example.left_context == old[key].left_context
    assert kept and f"{kept}, of 2 utterances, keep their labels" in result.stderr
    assert f"{without} keeps its old labels" in result.stderr


def test_the_same_labels_give_the_same_bytes(golden, call, tmp_path):
    """Kaldi's archive, relabelled with what it says: byte for byte what it was."""
    egs = golden / "nnet2/egs/egs.1.ark"
    pdfs = {}
    for key, example in examples(egs).items():
        utterance, first = key.rsplit("-", 1)
        for frame, labels in enumerate(example.labels, int(first)):
            pdfs.setdefault(utterance, {})[frame] = labels[0][0]
    whole = {u: np.array([p.get(t, 0) for t in range(max(p) + 1)], np.int32) for u, p in pdfs.items()}
    relabel(call, tmp_path, whole, egs)
    assert (tmp_path / "new").read_bytes() == egs.read_bytes()
    assert len(read_archive(f"ark:{tmp_path}/new")) == len(examples(egs))


def test_alignments_of_other_data_are_refused(golden, call, tmp_path):
    result = relabel(call, tmp_path, {"nobody": np.zeros(9, np.int32)}, golden / "nnet2/egs/egs.1.ark", status=1)
    assert "has no alignment for any of the" in result.stderr and not (tmp_path / "new").exists()
