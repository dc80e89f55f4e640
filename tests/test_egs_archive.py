"""Training examples: Kaldi's files byte for byte, the fast reader against the plain one, damage."""

import io

import numpy as np
import pytest

from ngsgd.egs.archive import EgsArchive, read_archive
from ngsgd.egs.example import NnetExample, NnetExampleHolder
from ngsgd.egs.minibatch import minibatches, read_minibatches
from ngsgd.errors import DataError
from ngsgd.kaldi_io.compressed import CompressedMatrix
from ngsgd.kaldi_io.stream import TokenWriter
from ngsgd.kaldi_io.tables import SequentialReader, Writer

FILES = ["nnet2/egs/egs.1.ark", "nnet2/egs/valid_diagnostic.egs", "nnet2_iv/egs/combine.egs", "steps/egs64.ark"]
RNG = np.random.default_rng(0)


def example(frames=3, left=2, right=1, dim=4, ivector=0, labels=None):
    rows = RNG.normal(size=(left + frames + right, dim)).astype(np.float32)
    labels = labels or [[(int(pdf), 1.0)] for pdf in RNG.integers(0, 9, frames)]
    return NnetExample(labels, CompressedMatrix.from_dense(rows), left, RNG.normal(size=ivector).astype(np.float32))


def pack(*examples, keys=None):
    out = io.BytesIO()
    for i, value in enumerate(examples):
        out.write((keys[i] if keys else f"utt-{i}").encode() + b" \0B")
        NnetExampleHolder.write(TokenWriter(out), value)
    return out.getvalue()


def archive(*examples):
    return EgsArchive(pack(*examples), "ark:test")


@pytest.mark.parametrize("file", FILES)
def test_kaldis_archives_are_written_back_byte_identically(golden, tmp_path, file):
    with Writer(f"ark:{tmp_path}/copy", "nnet_example") as out:
        for key, value in SequentialReader(f"ark:{golden}/{file}", "nnet_example"):
            out.write(key, value)
    assert (tmp_path / "copy").read_bytes() == (golden / file).read_bytes()


def test_text_form_comes_back(golden, tmp_path):
    entries = list(SequentialReader(f"ark:{golden}/nnet2_iv/egs/valid_diagnostic.egs", "nnet_example"))[:20]
    entries[3][1].labels[0] = [(2, 0.25), (5, 0.75)]
    with Writer(f"ark,t:{tmp_path}/text", "nnet_example") as out:
        for key, value in entries:
            out.write(key, value)
    assert (tmp_path / "text").read_text().startswith(entries[0][0] + " <NnetExample> <Lab1> [ ")
    again = read_archive(f"ark,t:{tmp_path}/text")
    assert [again.key(e) for e in range(20)] == [key for key, _ in entries]
    assert again.pdf.tolist() == [p for _, e in entries for f in e.labels for p, _ in f]
    assert again.weight[3:5].tolist() == [0.25, 0.75]
    first = entries[0][1]
    rows = again.decode(np.array([0]), np.array([0]), first.input.rows)[0]
    assert np.allclose(rows[:, : first.input.cols], first.input.to_dense(), atol=1e-3)
    assert np.allclose(rows[:, first.input.cols :], first.spk_info, rtol=1e-6)


@pytest.mark.parametrize("file", FILES)
def test_fast_reader_agrees_with_the_plain_one(golden, file):
    fast = read_archive(f"ark:{golden}/{file}")
    plain = [value for _, value in SequentialReader(f"ark:{golden}/{file}", "nnet_example")]
    assert len(fast) == len(plain)
    for e in range(0, len(plain), 11):
        value = plain[e]
        rows = fast.decode(np.array([e]), np.array([0]), value.input.rows)[0]
        m = value.input
        assert (rows[:, : m.cols] == m.to_dense()).all()
        assert (rows[:, m.cols :] == value.spk_info).all()
        begin = fast.label_offset[fast.frame_offset[e]]
        end = fast.label_offset[fast.frame_offset[e + 1]]
        assert fast.pdf[begin:end].tolist() == [pdf for frame in value.labels for pdf, _ in frame]


def test_picking_a_frame_is_what_kaldi_trained_on(golden):
    """2.1.egs.gz is nnet-copy-egs --frame=... of egs.1.ark; its input was compressed a second time (to 16 bits)."""
    whole = read_archive(f"ark:{golden}/nnet2/egs/egs.1.ark")
    cut = read_archive(f"ark:gunzip -c {golden}/nnet2/order/8.1.egs.gz |")
    rows = {whole.key(e): e for e in range(len(whole))}
    ours = next(minibatches(whole, 100000, frame=2))
    kaldis = next(minibatches(cut, 100000))
    eligible = [e for e in range(len(whole)) if np.diff(whole.frame_offset)[e] > 2]
    place = {e: n for n, e in enumerate(eligible)}
    order = [place[rows[cut.key(e)]] for e in range(len(cut))]
    assert ours.num_frames == kaldis.num_frames == len(order)
    assert (ours.pdf[order] == kaldis.pdf).all()
    assert np.abs(ours.input[order] - kaldis.input).max() < 2e-3


def test_minibatches_keep_the_order_and_the_partial_last_one():
    egs = archive(*(example(frames=1) for _ in range(7)))
    batches = list(minibatches(egs, 3))
    assert [b.num_frames for b in batches] == [3, 3, 1]
    assert np.concatenate([b.pdf for b in batches]).tolist() == egs.pdf.tolist()
    assert batches[0].input.shape == (3, 4, 4)
    assert batches[0].input.dtype == np.float32
    assert batches[0].row.tolist() == [0, 1, 2]


def test_shuffling_is_a_seeded_permutation():
    egs = archive(*(example(frames=1) for _ in range(50)))
    once, again, other, plain = (next(minibatches(egs, 50, seed=s)) for s in ([1, 2], [1, 2], [1, 3], None))
    assert (once.input == again.input).all()
    assert not (once.input == other.input).all()
    assert (np.sort(once.input[:, 0, 0]) == np.sort(plain.input[:, 0, 0])).all()


def test_every_frame_or_one_of_each_example():
    egs = archive(example(frames=3), example(frames=1), example(frames=2))
    everything = next(minibatches(egs, 10))
    assert everything.num_frames == 6
    second = next(minibatches(egs, 10, frame=1))
    assert second.num_frames == 2  # the one-frame example has none
    assert (second.input == everything.input[[1, 5]]).all()
    assert second.pdf.tolist() == everything.pdf[[1, 5]].tolist()


def test_narrower_context_is_the_middle_of_the_wider():
    egs = archive(example(left=3, right=2))
    wide = next(minibatches(egs, 9)).input
    narrow = next(minibatches(egs, 9, left_context=1, right_context=1)).input
    assert (narrow == wide[:, 2:5]).all()


def test_soft_labels_and_ivectors():
    labels = [[(3, 0.5), (4, 0.25), (5, 0.25)], [(1, 1.0)], []]
    egs = archive(example(labels=labels, ivector=2))
    batch = next(minibatches(egs, 9))
    assert batch.row.tolist() == [0, 0, 0, 1]
    assert batch.pdf.tolist() == [3, 4, 5, 1]
    assert batch.weight.tolist() == [0.5, 0.25, 0.25, 1.0]
    assert (batch.input[..., 4:] == egs.speakers[0]).all()
    assert batch.input.shape == (3, 4, 6)


@pytest.mark.parametrize(
    ("wants", "message"),
    [
        ({"left_context": 3}, "needs 3 frames of left context, the examples have 2"),
        ({"right_context": 2}, "needs 2 frames of right context, the examples have 1"),
        ({"input_dim": 13}, "takes 13 inputs a frame, the examples have 4"),
        ({"ivector_dim": 10}, "i-vectors of dimension 10, the examples have 0"),
        ({"num_pdfs": 5}, "expected 0..4"),
        ({"frame": 3}, "no example has a frame 3; the longest has 3"),
    ],
)
def test_what_the_model_wants_and_the_examples_lack_is_named(wants, message):
    egs = archive(example(labels=[[(8, 1.0)]] * 3))
    with pytest.raises(DataError, match=message):
        minibatches(egs, 4, **wants)


def test_examples_of_different_shape_are_named():
    with pytest.raises(DataError, match="different feature dimension: 4 in 'utt-0', 5 in 'utt-1'"):
        minibatches(archive(example(), example(dim=5)), 4)


def test_empty_archive_is_an_error_with_its_name(tmp_path):
    (tmp_path / "none.ark").write_bytes(b"")
    with pytest.raises(DataError, match=r"none\.ark: no examples"):
        read_minibatches(f"ark:{tmp_path}/none.ark", 4)


def test_an_archive_cut_anywhere_is_refused():
    data = pack(example(), example())
    boundary = len(pack(example()))
    for cut in (*range(1, boundary, 3), *range(boundary + 1, len(data), 3)):
        with pytest.raises(DataError, match=r"example \d \(key .*\) at byte \d+ of"):
            EgsArchive(data[:cut], "ark:cut")


def test_damage_is_located():
    data = bytearray(pack(example(), example()))
    second = data.index(b"utt-1")
    at = data.index(b"<InputFrames>", second)
    data[at : at + 13] = b"<InputFramez>"
    with pytest.raises(DataError, match=rf"example 2 \(key 'utt-1'\) at byte {at} of .* expected <InputFrames>"):
        EgsArchive(bytes(data), "ark:x")


def test_random_bytes_never_crash():
    rng = np.random.default_rng(5)
    good = pack(example(), example(labels=[[(1, 0.5), (2, 0.5)]] * 3))
    for _ in range(300):
        data = bytearray(good)
        for at in rng.integers(0, len(data), 3):
            data[at] = rng.integers(256)
        try:
            next(minibatches(EgsArchive(bytes(data), "ark:x"), 4))
        except DataError:
            continue


def test_uncompressed_input_is_read_too():
    value = example()
    dense = value.input.to_dense()
    head, tail = pack(value).split(b"<InputFrames> ")
    tail = tail[tail.index(b"<LeftContext>") :]
    for token, dtype in ((b"FM ", "<f4"), (b"DM ", "<f8")):
        size = b"".join(b"\4" + int(n).to_bytes(4, "little") for n in dense.shape)
        egs = EgsArchive(head + b"<InputFrames> " + token + size + dense.astype(dtype).tobytes() + tail, "ark:x")
        assert (next(minibatches(egs, 9)).input[0] == dense[:4]).all()
