"""Tables and streams: Kaldi's bytes, ranges, pipes, damage (`cases`: Tables)."""

import gzip
import io
import struct

import numpy as np
import pytest

from ngsgd.errors import DataError
from ngsgd.kaldi_io.compressed import CompressedMatrix
from ngsgd.kaldi_io.files import open_bytes, open_bytes_writer
from ngsgd.kaldi_io.holders import holders
from ngsgd.kaldi_io.lists import read_map, write_map
from ngsgd.kaldi_io.stream import TokenReader, TokenWriter, open_reader, open_writer
from ngsgd.kaldi_io.tables import RandomReader, SequentialReader, Writer

RNG = np.random.default_rng(0)
VALUES = {
    "matrix": RNG.standard_normal((11, 3)).astype(np.float32),
    "general_matrix": CompressedMatrix.from_dense(RNG.standard_normal((9, 2)).astype(np.float32)),
    "vector": RNG.standard_normal(4).astype(np.float32),
    "int32_vector": np.array([3, -1, 7], np.int32),
    "int32_lists": [[3, 1], [], [7]],
    "int32": 17,
    "float": 0.5,
    "token": "word",
    "tokens": ["two", "words"],
    "posterior": [[(1, 0.5), (2, 0.5)], [], [(3, 1.0)]],
}


def same(a, b) -> bool:
    if isinstance(a, CompressedMatrix) or isinstance(b, CompressedMatrix):
        a, b = (x.to_dense() if isinstance(x, CompressedMatrix) else x for x in (a, b))
    if isinstance(a, np.ndarray):
        return a.shape == b.shape and np.allclose(a, b, rtol=1e-6)
    return a == b


@pytest.mark.parametrize("text", [False, True])
@pytest.mark.parametrize("kind", sorted(VALUES))
def test_every_kind_round_trips(kind, text, tmp_path):
    spec = f"ark{',t' if text else ''}:{tmp_path}/a.ark"
    with Writer(spec, kind) as out:
        out.write("one", VALUES[kind])
        out.write("two", VALUES[kind])
    got = list(SequentialReader(spec, kind))
    assert [key for key, _ in got] == ["one", "two"]
    assert all(same(value, VALUES[kind]) for _, value in got)


def test_all_kinds_are_tested():
    own = {name for name in holders if holders[name].__module__ == "ngsgd.kaldi_io.holders"}
    assert own - {"fst"} == set(VALUES)


@pytest.mark.parametrize("kind", ["matrix", "vector", "int32_vector", "posterior"])
def test_no_prefix_of_an_archive_reads_as_whole(kind, tmp_path):
    with Writer(f"ark:{tmp_path}/a.ark", kind) as out:
        out.write("key-1", VALUES[kind])
    data = (tmp_path / "a.ark").read_bytes()
    for size in range(1, len(data)):
        (tmp_path / "cut.ark").write_bytes(data[:size])
        with pytest.raises(DataError, match=r"cut\.ark"):
            list(SequentialReader(f"ark:{tmp_path}/cut.ark", kind))


def test_damage_names_key_offset_and_sizes(tmp_path):
    with Writer(f"ark:{tmp_path}/a.ark", "matrix") as out:
        out.write("key-1", np.zeros((10, 10), np.float32))
    data = (tmp_path / "a.ark").read_bytes()
    (tmp_path / "a.ark").write_bytes(data[:-100])
    with pytest.raises(DataError, match=r"key key-1\) at byte \d+: a matrix is cut off: expected 400 bytes, found 300"):
        list(SequentialReader(f"ark:{tmp_path}/a.ark", "matrix"))


def test_a_header_is_not_trusted_with_the_memory(tmp_path):
    header = b"k \0BFM " + struct.pack("<bibi", 4, 1 << 15, 4, 1 << 15)
    (tmp_path / "a.ark").write_bytes(header + bytes(1000))
    with pytest.raises(DataError, match="found 1000"):
        list(SequentialReader(f"ark:{tmp_path}/a.ark", "matrix"))


def test_wrong_kind_names_both(tmp_path):
    with Writer(f"ark:{tmp_path}/a.ark", "vector") as out:
        out.write("k", VALUES["vector"])
    with pytest.raises(DataError, match="expected a matrix, found a vector"):
        list(SequentialReader(f"ark:{tmp_path}/a.ark", "matrix"))


@pytest.fixture
def script(tmp_path):
    with Writer(f"ark,scp:{tmp_path}/a.ark,{tmp_path}/a.scp", "matrix") as out:
        for key in ("a", "b", "c"):
            out.write(key, VALUES["matrix"])
    return tmp_path / "a.scp"


def test_script_files_point_into_archives(script):
    reader = RandomReader(f"scp:{script}", "matrix")
    assert "b" in reader and "x" not in reader and same(reader["b"], VALUES["matrix"])
    with pytest.raises(DataError, match="no entry for 'x'"):
        reader["x"]
    assert [k for k, _ in SequentialReader(f"scp:{script}", "matrix")] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("limits", "shape"), [("3:5", (3, 3)), ("0:9", (10, 3)), ("0:9,1:2", (10, 2)), (":,0:0", (11, 1)), ("8:12", (3, 3))]
)
def test_ranges_include_both_ends(script, limits, shape):
    first = script.read_text().splitlines()[0]
    script.write_text(f"{first}[{limits}]\n")
    assert [v.shape for _, v in SequentialReader(f"scp:{script}", "matrix")] == [shape]


@pytest.mark.parametrize("limits", ["11:12", "5:40", "5:3", "0:1,3:4", "x:1"])
def test_a_range_outside_is_skipped_with_a_warning(script, limits, caplog):
    lines = script.read_text().splitlines()
    script.write_text(f"{lines[0]}[{limits}]\n{lines[1]}\n")
    assert [k for k, _ in SequentialReader(f"scp:{script}", "matrix")] == ["b"]
    assert "key a" in caplog.text


def test_pipes(tmp_path):
    with Writer(f"ark:| gzip -c > {tmp_path}/a.gz", "int32_vector") as out:
        out.write("k", [1, 2])
    assert [v.tolist() for _, v in SequentialReader(f"ark:gunzip -c {tmp_path}/a.gz |", "int32_vector")] == [[1, 2]]


@pytest.mark.parametrize("command", ["false", "no-such-command-xyz", "head -c 60 {ark}; exit 3", "cat {ark}; exit 3"])
def test_a_failing_input_pipe_is_named(command, tmp_path):
    with Writer(f"ark:{tmp_path}/a.ark", "matrix") as out:
        out.write("k", VALUES["matrix"])
    command = command.format(ark=tmp_path / "a.ark")
    with pytest.raises(DataError, match=r"input pipe '.*' failed with status [1-9]"):
        list(SequentialReader(f"ark:{command} |", "matrix"))


def test_closing_an_input_pipe_early_is_no_error(tmp_path):
    with open_bytes("yes |") as stream:
        assert stream.read(2) == b"y\n"


def test_a_stray_pipe_behind_a_file_is_explained(tmp_path):
    (tmp_path / "a.wav").write_bytes(b"")
    with pytest.raises(DataError, match="stray"), open_bytes(f"{tmp_path}/a.wav |") as stream:
        stream.read()


@pytest.mark.parametrize("command", ["false", "head -c 1 > /dev/null; exit 4"])
def test_a_failing_output_pipe_is_named(command):
    with pytest.raises(DataError, match="output pipe"), open_bytes_writer(f"| {command}") as stream:
        for _ in range(1000):
            stream.write(bytes(10000))


def test_a_full_disk_is_an_error():
    with pytest.raises(DataError, match="/dev/full: No space"), open_bytes_writer("/dev/full") as stream:
        stream.write(bytes(100000))


def test_files_are_whole_or_absent(tmp_path):
    path = tmp_path / "x"
    with pytest.raises(RuntimeError), open_bytes_writer(str(path)) as stream:
        stream.write(b"half")
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []
    path.write_bytes(b"old")
    with open_bytes_writer(str(path)) as stream:
        stream.write(b"new")
        stream.flush()
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    with pytest.raises(DataError, match="cannot write"), open_bytes_writer(str(tmp_path / "no" / "y")):
        pass


def test_missing_file_says_why():
    with pytest.raises(DataError, match=r"cannot open .*nope: No such file"), open_bytes("/nope"):
        pass
    with pytest.raises(DataError, match="not expanded"), open_bytes("~/a.wav"):
        pass


def test_utf8_keys(tmp_path):
    with Writer(f"ark,scp:{tmp_path}/a.ark,{tmp_path}/a.scp", "int32") as out:
        out.write("größe-1", 3)
    assert RandomReader(f"scp:{tmp_path}/a.scp", "int32")["größe-1"] == 3


def test_an_empty_text_value(tmp_path):
    (tmp_path / "t").write_text("a\nb \nc x y\n")
    assert list(SequentialReader(f"ark:{tmp_path}/t", "tokens")) == [("a", []), ("b", []), ("c", ["x", "y"])]


def test_sorted_access(tmp_path):
    spec = f":{tmp_path}/a.ark"
    with Writer("ark" + spec, "int32") as out:
        for key in ("b", "a", "c"):
            out.write(key, 1)
    assert [k for k, _ in SequentialReader("ark" + spec, "int32")] == ["b", "a", "c"]
    assert "c" in RandomReader("ark" + spec, "int32") and "a" in RandomReader("ark" + spec, "int32")
    with pytest.raises(DataError, match="'a' comes after 'b'"):
        list(SequentialReader("ark,s" + spec, "int32"))


@pytest.mark.parametrize("spec", ["x.ark", "arc:x", "ark", "scp,q:x"])
def test_bad_specifiers(spec):
    with pytest.raises(DataError, match="expected a table"):
        SequentialReader(spec, "matrix")


def test_text_looks_as_kaldi_prints_it():
    out = io.BytesIO()
    writer = TokenWriter(out, binary=False)
    writer.matrix(np.array([[1, 0.5], [1e-10, 123456789]], np.float32))
    writer.vector(np.array([1.5]))
    writer.int32_vector([1, 2])
    writer.float32(1 / 3)
    writer.bool(True)
    assert out.getvalue() == b" [\n  1 0.5 \n  1e-10 1.234568e+08 ]\n [ 1.5 ]\n[ 1 2 ]\n0.3333333 T "


def test_token_errors_say_expected_and_found(tmp_path):
    with open_writer(str(tmp_path / "x")) as writer:
        writer.token("<A>")
        writer.int32(3)
    with open_reader(str(tmp_path / "x")) as reader, pytest.raises(DataError, match=r"expected <B>, found '<A>'"):
        reader.expect("<B>")
    with open_reader(str(tmp_path / "x")) as reader:
        assert reader.peek() == "<A>" and reader.token() == "<A>"
        with pytest.raises(DataError, match="a float"):
            TokenReader(io.BufferedReader(io.BytesIO(b"\x03abc")), "y").float32()


@pytest.mark.parametrize("kind", ["", "CM", "CM2", "CM3"])
@pytest.mark.parametrize("shape", [(1, 1), (8, 3), (9, 3), (100, 5), (3, 4)])
def test_compression_keeps_values(kind, shape):
    matrix = RNG.standard_normal(shape).astype(np.float32)
    step = {"CM2": 1e-4, "": 0.04, "CM": 0.1, "CM3": 0.02}[kind]
    dense = CompressedMatrix.from_dense(matrix, kind).to_dense()
    assert dense.dtype == np.float32 and np.abs(dense - matrix).max() <= step * np.ptp(matrix) + 1e-4
    assert np.isfinite(CompressedMatrix.from_dense(np.zeros(shape, np.float32), kind).to_dense()).all()


def test_nan_is_not_compressed():
    with pytest.raises(DataError, match="NaN"):
        CompressedMatrix.from_dense(np.array([[np.nan]], np.float32))


def test_maps(tmp_path):
    path = str(tmp_path / "utt2spk")
    write_map(path, {"b": "x", "a": ["y", "z"], "B": ""})
    assert (tmp_path / "utt2spk").read_text() == "B\na y z\nb x\n"
    assert read_map(path) == {"B": "", "a": "y z", "b": "x"}
    (tmp_path / "utt2spk").write_bytes(b"a 1\na 2\n")
    with pytest.raises(DataError, match="utt2spk:2: 'a' comes twice"):
        read_map(path)
    (tmp_path / "utt2spk").write_bytes(b"a 1\nb \xff\n")
    with pytest.raises(DataError, match="utt2spk:2: not UTF-8: byte 0xff"):
        read_map(path)


@pytest.mark.parametrize(
    "name",
    ["feats/raw_mfcc_train.1.ark", "feats/raw_mfcc_test_hires.2.ark", "feats/cmvn_train.ark", "ops/loglikes.ark"],
)
def test_kaldi_matrices_are_copied_byte_for_byte(golden, name, tmp_path):
    with Writer(f"ark:{tmp_path}/x", "general_matrix") as out:
        for key, value in SequentialReader(f"ark:{golden}/{name}", "general_matrix"):
            out.write(key, value)
    assert (tmp_path / "x").read_bytes() == (golden / name).read_bytes()


def test_kaldi_compression_is_reproduced_byte_for_byte(golden, tmp_path):
    """Decompressing and compressing again gives Kaldi's own bytes."""
    for key, value in SequentialReader(f"ark:{golden}/feats/raw_mfcc_test.1.ark", "general_matrix"):
        assert CompressedMatrix.from_dense(value.to_dense()).payload == value.payload, key


@pytest.mark.parametrize("name", ["mono/ali.1", "tri1/ali.2", "tri2b/ali.1", "tri3b_ali/ali.2"])
def test_kaldi_alignments_are_copied_byte_for_byte(golden, name, tmp_path):
    path = golden / "gmm" / f"{name}.gz"
    data = gzip.decompress(path.read_bytes())
    form = "ark" if b"\0B" in data[:40] else "ark,t"
    with Writer(f"{form}:{tmp_path}/x", "int32_vector") as out:
        for key, value in SequentialReader(f"ark:gunzip -c {path} |", "int32_vector"):
            out.write(key, value)
    assert (tmp_path / "x").read_bytes() == data


def test_posteriors_of_kaldi_are_copied_byte_for_byte(golden, tmp_path):
    path = golden / "gmm/ops/post_nosil.ark"
    with Writer(f"ark:{tmp_path}/x", "posterior") as out:
        for key, value in SequentialReader(f"ark:{path}", "posterior"):
            out.write(key, value)
    assert (tmp_path / "x").read_bytes() == path.read_bytes()


def test_kaldiio_reads_what_we_write_and_we_what_it_writes(tmp_path):
    kaldiio = pytest.importorskip("kaldiio")
    matrix = VALUES["matrix"]
    with Writer(f"ark:{tmp_path}/a.ark", "matrix", compress=True) as out:
        out.write("k", matrix)
    theirs = dict(kaldiio.load_ark(f"{tmp_path}/a.ark"))["k"]
    ours = dict(SequentialReader(f"ark:{tmp_path}/a.ark", "matrix"))["k"]
    assert np.allclose(theirs, ours, atol=1e-5)
    for number in (None, 2, 3, 5):
        kaldiio.save_ark(f"{tmp_path}/b.ark", {"k": matrix}, compression_method=number)
        ours = dict(SequentialReader(f"ark:{tmp_path}/b.ark", "matrix"))["k"]
        assert np.allclose(dict(kaldiio.load_ark(f"{tmp_path}/b.ark"))["k"], ours, atol=1e-5)
