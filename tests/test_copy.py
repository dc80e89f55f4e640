"""Copy programs, the lines of `cases: Tables` as a user meets them, and refused pipes."""

import os
import subprocess

import numpy as np
import pytest
from test_tables import VALUES, same

from ngsgd.errors import DataError
from ngsgd.kaldi_io.compressed import CompressedMatrix, CompressOptions
from ngsgd.kaldi_io.files import NO_PIPES, open_bytes, open_bytes_writer
from ngsgd.kaldi_io.holders import holders
from ngsgd.kaldi_io.stream import open_reader, open_writer
from ngsgd.kaldi_io.tables import RandomReader, SequentialReader, Writer

RNG = np.random.default_rng(1)
TABLE_PROGRAMS = {
    "copy-feats": "matrix",
    "copy-matrix": "matrix",
    "copy-vector": "vector",
    "copy-int-vector": "int32_vector",
    "copy-post": "posterior",
    "copy-gselect": "int32_lists",
}


def write(path, kind, keys=("a", "b", "c"), value=None, **options):
    with Writer(f"ark,scp:{path}.ark,{path}.scp", kind, **options) as out:
        for key in keys:
            out.write(key, VALUES[kind] if value is None else value)


@pytest.fixture
def matrices(tmp_path):
    """x.ark and x.scp of three random 11 x 3 matrices a, b, c."""
    write(tmp_path / "x", "matrix")
    return tmp_path


@pytest.mark.parametrize("program", TABLE_PROGRAMS)
def test_tables_through_text_and_pipes_come_back(program, run, tmp_path):
    kind = TABLE_PROGRAMS[program]
    write(tmp_path / "x", kind, keys=("größe-1", "日本"))  # the environment of `run` is LC_ALL=C
    run(program, "ark:x.ark", "ark,t:| gzip -c > text.gz")
    log = run(program, "ark:gunzip -c text.gz |", "ark,scp:y.ark,y.scp").stderr
    assert "done 2" in log and "failed 0" in log
    got = dict(SequentialReader(f"ark:{tmp_path}/y.ark", kind))
    assert list(got) == ["größe-1", "日本"] and all(same(v, VALUES[kind]) for v in got.values())
    run(program, "scp:y.scp", "ark:z.ark")
    assert (tmp_path / "z.ark").read_bytes() == (tmp_path / "y.ark").read_bytes()


@pytest.mark.parametrize("program", ["copy-matrix", "copy-vector", "copy-int-vector"])
def test_single_objects_in_binary_and_text(program, run, tmp_path):
    method = TABLE_PROGRAMS[program]
    with open_writer(f"{tmp_path}/x") as writer:
        getattr(writer, method)(VALUES[method])
    text = run(program, "--binary=false", "x", "-").stdout
    assert text.split()[0] == "[" and text.split()[-1] == "]"
    run(program, "-", "y", stdin=text)
    with open_reader(f"{tmp_path}/y") as reader:
        assert reader.binary and same(getattr(reader, method)(), VALUES[method])


def test_a_range_of_a_single_matrix(run, tmp_path):
    with open_writer(f"{tmp_path}/x") as writer:
        writer.matrix(np.arange(12, dtype=np.float32).reshape(4, 3))
    assert run("copy-matrix", "--binary=false", "x[1:2,0:1]", "-").stdout == " [\n  3 4 \n  6 7 ]\n"
    assert "does not lie within 0:3" in run("copy-matrix", "x[8:9]", "y", status=1).stderr
    assert not (tmp_path / "y").exists()


def test_a_table_and_a_file_do_not_mix(run, matrices):
    assert "two tables" in run("copy-matrix", "ark:x.ark", "y", status=1).stderr
    assert "expected tables" in run("copy-post", "x.ark", "y", status=1).stderr


def test_trees_and_transition_models(run, golden, tmp_path):
    for program, source in (("copy-tree", "tree"), ("copy-transition-model", "final.mdl")):
        run(program, "--binary=false", golden / "gmm/tri1" / source, "text")
        run(program, "text", "binary")
        data = (golden / "gmm/tri1" / source).read_bytes()
        copied = (tmp_path / "binary").read_bytes()
        assert copied == data[: len(copied)] or program != "copy-tree"
        assert len(copied) > 1000


def test_numbers_are_changed_on_the_way(run, tmp_path):
    values = {"matrix": np.array([[1, 2], [3, 4]], np.float32), "vector": np.array([1, 2.0])}
    for kind, value in values.items():
        write(tmp_path / kind, kind, keys=["k"], value=value)
        run(f"copy-{kind}", "--scale=2", f"ark:{kind}.ark", "ark:y.ark")
        got = dict(SequentialReader(f"ark:{tmp_path}/y.ark", kind))["k"]
        assert got.dtype == value.dtype and (got == 2 * value).all()
    write(tmp_path / "post", "posterior", keys=["k"])
    run("copy-post", "--scale=0.5", "ark:post.ark", "ark:y.ark")
    assert dict(SequentialReader(f"ark:{tmp_path}/y.ark", "posterior"))["k"][2] == [(3, 0.5)]
    run("copy-matrix", "--apply-log", "ark:matrix.ark", "ark:y.ark")
    assert np.allclose(dict(SequentialReader(f"ark:{tmp_path}/y.ark", "matrix"))["k"], np.log(values["matrix"]))
    error = run("copy-matrix", "--scale=-1", "--apply-log", "ark:matrix.ark", "ark:z.ark", status=1).stderr
    assert "logarithm of -1" in error and not (tmp_path / "z.ark").exists()


METHODS = {1: "CM", 2: "CM", 3: "CM2", 4: "CM2", 5: "CM3", 6: "CM3", 7: "CM3"}
STEPS = {1: 0.04, 2: 0.04, 3: 1e-4, 4: 0.5, 5: 0.02, 6: 0.5, 7: 1 / 255}


@pytest.mark.parametrize("method", METHODS)
def test_every_way_to_compress(method, run, tmp_path):
    whole = method in (4, 6)
    matrix = (RNG.integers(0, 256, (20, 3)) if whole else RNG.random((20, 3))).astype(np.float32)
    write(tmp_path / "x", "matrix", value=matrix)
    run("copy-feats", "--compress=true", f"--compression-method={method}", "ark:x.ark", "ark,scp:y.ark,y.scp")
    kinds = [v.kind for _, v in SequentialReader(f"ark:{tmp_path}/y.ark", "general_matrix")]
    assert kinds == [METHODS[method]] * 3
    run("copy-matrix", f"scp:{tmp_path}/y.scp", "ark:z.ark")
    for _, value in SequentialReader(f"ark:{tmp_path}/z.ark", "general_matrix"):
        assert isinstance(value, np.ndarray)
        assert np.abs(value - matrix).max() <= STEPS[method]
        assert not whole or (value == matrix).all()
    before = (tmp_path / "y.ark").read_bytes()
    run("copy-matrix", "--compress", f"--compression-method={method}", "ark:y.ark", "ark:again.ark")
    assert (tmp_path / "again.ark").read_bytes() == before


def test_another_way_to_compress_is_another_result():
    small = CompressOptions(compression_method=1).apply(RNG.random((8, 2)).astype(np.float32))
    assert small.kind == "CM2"
    assert CompressOptions(compression_method=5).apply(small).kind == "CM3"
    fixed = CompressOptions(compression_method=4).apply(small)
    assert (fixed.minimum, fixed.extent) == (-32768, 65535) and np.array_equal(
        fixed.to_dense(), small.to_dense().round()
    )


def test_values_beyond_fixed_limits_are_moved_to_them():
    beyond = np.array([[-5, 0.5, 7]], np.float32)
    assert CompressOptions(compression_method=7).apply(beyond).to_dense()[0, [0, 2]].tolist() == [0, 1]


@pytest.mark.parametrize("where", ["command line", "file"])
def test_an_unknown_way_to_compress_is_a_usage_error(where, run, matrices):
    (matrices / "conf").write_text("--compression-method=8\n")
    option, status = ("--compression-method=8", 2) if where == "command line" else ("--config=conf", 1)
    assert "'8'" in run("copy-matrix", option, "ark:x.ark", "ark:y.ark", status=status).stderr


@pytest.mark.parametrize("method", range(2, 8))
def test_the_ways_to_compress_agree_with_kaldiio(method, tmp_path):
    kaldiio = pytest.importorskip("kaldiio")
    matrix = RNG.random((20, 3)).astype(np.float32)
    kaldiio.save_ark(f"{tmp_path}/b.ark", {"k": matrix}, compression_method=method)
    theirs = dict(SequentialReader(f"ark:{tmp_path}/b.ark", "general_matrix"))["k"]
    ours = CompressOptions(compression_method=method).apply(matrix)
    assert (ours.kind, ours.minimum, ours.extent) == (theirs.kind, theirs.minimum, theirs.extent)
    step = ours.extent / (65535 if ours.kind == "CM2" else 64)
    assert np.abs(ours.to_dense() - theirs.to_dense()).max() <= step


# The lines of the list


@pytest.mark.parametrize(("limits", "shape"), [("3:5", (3, 3)), ("0:9", (10, 3)), ("0:9,1:2", (10, 2))])
def test_a_range_in_a_script(limits, shape, run, matrices):
    line = (matrices / "x.scp").read_text().splitlines()[0]
    (matrices / "r.scp").write_text(f"{line}[{limits}]\n")
    run("copy-feats", "scp:r.scp", "ark:y.ark")
    assert [v.shape for _, v in SequentialReader(f"ark:{matrices}/y.ark", "matrix")] == [shape]


def _with_bad_entry(directory, entry):
    lines = (directory / "x.scp").read_text().splitlines()
    (directory / "bad.scp").write_text("\n".join([lines[0], f"b {entry}", lines[2]]) + "\n")


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("x.ark:2[50:60]", "range 50:60 does not lie within 0:10"),
        ("missing.ark:2", "cannot open missing.ark"),
        ("x.ark:99999", "at byte 99999: expected a token, found the end"),
        ("exit 3 |", "input pipe 'exit 3 |' failed with status 3"),
        ("x.scp |", "remove the stray '|'"),
    ],
)
def test_one_bad_entry_of_a_script_is_named_counted_and_skipped(entry, message, run, matrices):
    _with_bad_entry(matrices, entry)
    log = run("copy-feats", "scp:bad.scp", "ark:y.ark").stderr
    assert "skipped b:" in log and message in log and "done 2" in log and "failed 1" in log
    assert [key for key, _ in SequentialReader(f"ark:{matrices}/y.ark", "matrix")] == ["a", "c"]
    (matrices / "bad.scp").write_text(f"b {entry}\n")
    run("copy-feats", "scp:bad.scp", "ark:z.ark", status=1)
    assert not (matrices / "z.ark").exists()


@pytest.mark.parametrize("kind", ["CM", "CM2", "CM3", "float", "double", "text"])
def test_every_form_of_a_matrix_is_read(kind, run, tmp_path):
    matrix = RNG.random((12, 3)).astype(np.float64 if kind == "double" else np.float32)
    value = CompressedMatrix.from_dense(matrix, kind) if kind.startswith("CM") else matrix
    with Writer(f"ark{',t' if kind == 'text' else ''}:{tmp_path}/x.ark", "matrix") as out:
        out.write("k", value)
    run("copy-feats", "ark:x.ark", "ark:y.ark")
    assert np.allclose(dict(SequentialReader(f"ark:{tmp_path}/y.ark", "matrix"))["k"], matrix, atol=0.02)


# Integers all begin alike, and a text vector is a matrix of one row.
ALIKE = {("int32_vector", "posterior"), ("int32_vector", "int32_lists")}
CONFUSIONS = [
    (program, held, text)
    for program, wanted in TABLE_PROGRAMS.items()
    for held in ("matrix", "vector", "int32_vector")
    for text in (False, True)
    if wanted != held and (held, wanted) not in ALIKE | ({("vector", "matrix")} if text else set())
]


@pytest.mark.parametrize(("program", "held", "text"), CONFUSIONS)
def test_a_wrong_kind_says_key_wanted_and_found(program, held, text, run, tmp_path):
    form = "ark,t" if text else "ark"
    with Writer(f"{form}:{tmp_path}/x.ark", held) as out:
        out.write("the-key", VALUES[held])
    error = run(program, f"{form}:x.ark", "ark:y.ark", status=1).stderr
    assert "key the-key" in error and "expected" in error and "found" in error
    names = {"matrix": "a matrix", "vector": "a vector", "int32_vector": "integers"}
    assert text or names[held] in error
    assert not (tmp_path / "y.ark").exists()


def test_standard_output_has_the_table_and_nothing_else(run, matrices):
    result = run("copy-feats", "ark:x.ark", "ark:-", text=False)
    assert result.stdout == (matrices / "x.ark").read_bytes() and b"done 3" in result.stderr


@pytest.mark.parametrize("command", ["head -c 60 x.ark; exit 3", "cat x.ark; exit 3", "no-such-command-xyz"])
def test_a_failing_reader_is_named_and_nothing_is_left(command, run, matrices):
    error = run("copy-feats", f"ark:{command} |", "ark:y.ark", status=1).stderr
    assert f"input pipe '{command} |' failed with status" in error and not (matrices / "y.ark").exists()


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("| exit 7", "output pipe '| exit 7' failed with status 7"),
        ("| head -c 10 > /dev/null", "output pipe '| head -c 10 > /dev/null' did not read to the end"),
        ("| cat > /dev/full", "output pipe '| cat > /dev/full' failed with status 1"),
        ("| no-such-command-xyz", "failed with status 127"),
        ("/dev/full", "cannot write /dev/full: No space left"),
        ("no/such/folder/y.ark", "cannot write no/such/folder/y.ark"),
        ("cat > y |", "stands before the command"),
    ],
)
def test_a_failing_writer_is_named(target, message, run, tmp_path):
    write(tmp_path / "x", "matrix", value=np.zeros((1000, 100), np.float32))
    assert message in run("copy-feats", "ark:x.ark", f"ark:{target}", status=1).stderr


@pytest.mark.parametrize(("redirection", "message"), [("> /dev/full", "No space left"), (">&-", "is closed")])
@pytest.mark.parametrize("form", ["ark", "ark,t"])
def test_a_standard_output_that_takes_nothing_is_an_error(redirection, message, form, run, matrices):
    result = run("bash", "-c", f"copy-feats ark:x.ark {form}:- {redirection}", status=1)
    assert f"cannot write standard output: {message}" in result.stderr.replace("it is", "is")
    assert "Traceback" not in result.stderr and "Exception" not in result.stderr


@pytest.mark.parametrize("form", ["ark", "ark,t"])
def test_a_consumer_of_standard_output_may_leave(form, run, tmp_path):
    write(tmp_path / "x", "matrix", value=np.ones((1000, 100), np.float32))
    result = run("bash", "-c", f"copy-feats ark:x.ark {form}:- | head -c 10 > /dev/null; exit ${{PIPESTATUS[0]}}")
    assert "Traceback" not in result.stderr and "ERROR" not in result.stderr


def test_a_script_cannot_point_into_a_pipe(run, matrices):
    for target in ("-", "| cat > y.ark"):
        assert "cannot point into" in run("copy-feats", "ark:x.ark", f"ark,scp:{target},y.scp", status=1).stderr
    assert not (matrices / "y.scp").exists()


def test_keys_out_of_order(run, tmp_path):
    write(tmp_path / "x", "matrix", keys=("b", "a", "c"))
    write(tmp_path / "t", "matrix", keys=("b", "a", "c"), value=np.eye(3, dtype=np.float32))
    (tmp_path / "utt2spk").write_text("a a\nb b\nc c\n")
    run("copy-feats", "ark:x.ark", "ark:y.ark")
    run("transform-feats", "ark:t.ark", "ark:x.ark", "ark:y.ark")
    assert [key for key, _ in SequentialReader(f"ark:{tmp_path}/y.ark", "matrix")] == ["b", "a", "c"]
    error = run("copy-feats", "ark,s:x.ark", "ark:z.ark", status=1).stderr
    assert "'a' comes after 'b'" in error
    error = run("transform-feats", "ark,cs:t.ark", "ark:x.ark", "ark:z.ark", status=None).stderr
    assert "'a' was asked for after 'b'" in error


def test_a_sorted_archive_is_not_read_on_for_a_key_that_it_lacks(tmp_path):
    write(tmp_path / "x", "int32", keys=[f"k{i:02d}" for i in range(20)])
    reader = RandomReader(f"ark,s,cs:{tmp_path}/x.ark", "int32")
    assert "k03" in reader and "k035" not in reader and "k19" in reader and "k20" not in reader
    reader = RandomReader(f"ark,s:{tmp_path}/x.ark", "int32")
    assert "k035" not in reader and reader._last_read == "k04" and "k00" in reader


def test_a_script_with_a_key_twice_cannot_be_looked_up(matrices):
    (matrices / "x.scp").write_text((matrices / "x.scp").read_text() * 2)
    with pytest.raises(DataError, match=r"x\.scp: 'a' comes twice"):
        RandomReader(f"scp:{matrices}/x.scp", "matrix")


@pytest.mark.parametrize("source", ["y.ark", "cat y.ark |", "-"])
def test_a_cut_archive_says_key_offset_expected_and_found(source, run, matrices):
    data = (matrices / "x.ark").read_bytes()
    (matrices / "y.ark").write_bytes(data[:-30])
    stdin = {"stdin": data[:-30]} if source == "-" else {}
    error = run("copy-feats", f"ark:{source}", "ark:z.ark", status=1, text=False, **stdin).stderr.decode()
    assert f"(key c) at byte {len(data) - 30}: a matrix is cut off: expected 132 bytes, found 102" in error
    assert not (matrices / "z.ark").exists()


# Pipes refused


@pytest.fixture
def no_pipes(monkeypatch):
    monkeypatch.setenv(NO_PIPES, "1")


def test_no_command_runs_where_pipes_are_refused(no_pipes, tmp_path):
    with pytest.raises(DataError, match="refused to run"), open_bytes(f"touch {tmp_path}/ran |"):
        pass
    with pytest.raises(DataError, match="refused to run"), open_bytes_writer(f"| touch {tmp_path}/ran"):
        pass
    (tmp_path / "x.scp").write_text(f"k touch {tmp_path}/ran |[0:1]\n")
    for read in (lambda: dict(SequentialReader(f"scp:{tmp_path}/x.scp", "matrix")),
                 lambda: RandomReader(f"scp:{tmp_path}/x.scp", "matrix")["k"],
                 lambda: RandomReader(f"scp:touch {tmp_path}/ran |", "matrix")):  # fmt: skip
        with pytest.raises(DataError, match="refused to run"):
            read()
    assert os.listdir(tmp_path) == ["x.scp"]


@pytest.mark.parametrize("value", ["", "0", "false"])
def test_pipes_run_unless_refused(value, monkeypatch):
    monkeypatch.setenv(NO_PIPES, value)
    with open_bytes("echo 1 |") as stream:
        assert stream.read() == b"1\n"


ATTACKS = {
    "copy-feats --no-pipes ark:{} ark:y": "touch ran |",
    "copy-feats --no-pipes=true scp:{} ark:y": "touch ran |",
    "copy-feats --config=no-pipes.conf ark:x.ark ark:{}": "| touch ran",
    "copy-feats --no-pipes --config=pipes.conf ark:x.ark ark:{}": "| touch ran",
    "copy-feats --no-pipes ark:x.ark ark,scp:y.ark,{}": "| touch ran",
    "copy-feats --no-pipes --write-num-frames=ark,t:{} ark:x.ark ark:y": "| touch ran",
    "copy-feats --no-pipes scp:evil.scp ark:y": "",
    "make-mfcc --no-pipes scp:evil.scp ark:y": "",
    "tree-info --no-pipes {}": "touch ran |",
    "ali-to-pdf --no-pipes {} ark:x ark:y": "touch ran |",
    "nnet-init --no-pipes evil.config y": "",
    "sym2int.py --no-pipes {}": "touch ran |",
}


@pytest.mark.parametrize("command", ATTACKS)
def test_no_program_runs_a_command_with_no_pipes(command, run, matrices):
    (matrices / "no-pipes.conf").write_text("--no-pipes\n")
    (matrices / "pipes.conf").write_text("--no-pipes=false\n")
    (matrices / "evil.scp").write_text("a touch ran |\n")
    (matrices / "evil.config").write_text("FixedAffineComponent matrix=touch ran |\n")
    result = run(*(word.format(ATTACKS[command]) for word in command.split()), status=1)
    assert "Traceback" not in result.stderr and not (matrices / "ran").exists()
    assert "refused to run the command" in result.stderr or command.startswith("nnet-init")


def test_the_environment_cannot_be_overruled_and_is_inherited(run, matrices):
    env = {NO_PIPES: "1"}
    assert "refused" in run("copy-feats", "--no-pipes=false", "ark:x.ark", "ark:| cat", status=1, env=env).stderr
    inherits = "import subprocess; from ngsgd.kaldi_io.files import refuse_pipes; refuse_pipes();"
    inherits += "raise SystemExit(subprocess.call(['copy-feats', 'ark:x.ark', 'ark:| touch ran']))"
    run("python", "-c", inherits, status=1)
    assert not (matrices / "ran").exists()


def test_features_of_a_strangers_recordings(run, tmp_path):
    """Validation, features and CMVN work without pipes; the recording that is a command is left out."""
    import soundfile

    data = tmp_path / "data"
    data.mkdir()
    for name in ("a-1", "a-2"):
        soundfile.write(tmp_path / f"{name}.wav", RNG.integers(-999, 999, 8000).astype(np.int16), 16000)
    (data / "wav.scp").write_text("a-1 a-1.wav\na-2 a-2.wav\na-3 touch ran; cat a-1.wav |\n")
    (data / "utt2spk").write_text("a-1 a\na-2 a\na-3 a\n")
    (data / "spk2utt").write_text("a a-1 a-2 a-3\n")
    (tmp_path / "mfcc.conf").write_text("")
    env = {NO_PIPES: "1"}
    run("make_mfcc.sh", "--mfcc-config", "mfcc.conf", "--nj", "1", "data", "log", "mfcc", env=env)
    run("compute_cmvn.sh", "data", "log", "mfcc", env=env)
    assert [line.split()[0] for line in (data / "feats.scp").read_text().splitlines()] == ["a-1", "a-2"]
    assert "refused to run the command" in (tmp_path / "log/make_mfcc_data.1.log").read_text()
    assert not (tmp_path / "ran").exists()


def test_an_archive_executes_nothing(tmp_path):
    """kaldiio reads pickles from archives; here they are refused."""
    import pickle

    class Evil:
        def __reduce__(self):
            return subprocess.call, (["touch", f"{tmp_path}/ran"],)

    for marker in (b"", b"\0B", b"PKL", b"NPY", b"AUDIO"):
        (tmp_path / "x.ark").write_bytes(b"k " + marker + pickle.dumps(Evil()))
        for kind in set(holders) - {"token", "tokens", "wave_file"}:  # words, and bytes for a decoder of sound
            with pytest.raises(DataError):
                list(SequentialReader(f"ark:{tmp_path}/x.ark", kind))
    assert not (tmp_path / "ran").exists()
