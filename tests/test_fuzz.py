"""Damaged files (`tests/fuzz.py`), and by name what they found."""

import io
import re
import struct
import subprocess
import sys

import numpy as np
import pytest

from ngsgd.egs.archive import EgsArchive
from ngsgd.errors import DataError
from ngsgd.gmm.stats import GmmStats
from ngsgd.hmm.topology import Topology
from ngsgd.hmm.transitions import TransitionModel
from ngsgd.kaldi_io.fst import read_fst
from ngsgd.kaldi_io.lists import read_map
from ngsgd.kaldi_io.packed import read_symmetric
from ngsgd.kaldi_io.stream import TokenReader, split_words
from ngsgd.kaldi_io.tables import SequentialReader, Writer, read_scp
from ngsgd.nnet.components.base import read_component
from tests import fuzz

READERS = fuzz.readers()
TEXT, BINARY = False, True


@pytest.mark.parametrize("name", READERS)
def test_damaged_files_are_refused_or_read_right(name):
    outcomes, failures = fuzz.run(200, 1, [name])
    assert not failures, next(iter(failures.items()))
    assert outcomes.total() == 200


@pytest.mark.slow
def test_two_hundred_thousand_damaged_files(repo, tmp_path):
    """In a process of its own, which a reader may kill; the last input is then in `last`."""
    command = [sys.executable, "-m", "tests.fuzz", "--count=200000", f"--record={tmp_path}/last"]
    result = subprocess.run(command, cwd=repo, capture_output=True, text=True)
    killer = (tmp_path / "last").read_bytes().split(b"\n")[0] if result.returncode < 0 else b""
    assert result.returncode == 0, f"{result.stdout}\n{result.stderr[-3000:]}\n{killer.decode()}"
    assert int(re.search(r"^(\d+) inputs, 0 kinds of failure", result.stdout, re.MULTILINE)[1]) > 199000


def reader(data, binary=BINARY):
    return TokenReader(io.BufferedReader(io.BytesIO(data)), "file", binary)


def i4(value):
    return struct.pack("<bi", 4, value)


MANY = (1 << 31) - 1
# What each method of TokenReader made of counts that the file does not hold, before it checked them.
COUNTS = {
    "matrix": b"FM " + i4(MANY) + i4(MANY),
    "matrix of no columns": b"FM " + i4(MANY) + i4(0),
    "vector": b"DV " + i4(MANY),
    "int32_vector": i4(MANY),
    "int32_pairs": i4(MANY),
    "general_matrix": b"CM3 " + struct.pack("<ffii", 0, 1, MANY, MANY),
}


@pytest.mark.parametrize("kind", COUNTS)
def test_a_count_is_not_believed(kind):
    with pytest.raises(DataError, match=r"file at byte \d+: .*(cut off: expected \d+ bytes, found 0|makes no sense)"):
        getattr(reader(COUNTS[kind]), kind.split()[0])()


@pytest.mark.parametrize("kind", ["int32_vector", "int32_lists", "posterior"])
def test_a_negative_count_is_not_an_empty_value(kind, tmp_path):
    (tmp_path / "x").write_bytes(b"k \0B" + i4(-1))
    with pytest.raises(DataError, match=r"at byte 9: .* size of -1 makes no sense"):
        list(SequentialReader(f"ark:{tmp_path}/x", kind))


@pytest.mark.parametrize(
    ("method", "text"),
    [
        ("int32", b"1_000 "),
        ("int32", b"2147483648 "),
        ("int32_vector", b"[ 99999999999 ]"),
        ("int32_vector", b"[ 1 x ]"),
        ("int32_pairs", b"[ 1 ]"),
        ("int32_pairs", b"[ 1,x ]"),
        ("vector", b"[ 1 2\n 3 4 ]"),
        ("vector", b"[ 1 2"),
        ("matrix", b"[ 1 2\n 3 ]"),
    ],
)
def test_text_that_is_no_number_is_refused(method, text):
    with pytest.raises(DataError, match=r"file at byte \d+: expected"):
        getattr(reader(text, TEXT), method)()


@pytest.mark.parametrize("text", ["[ 1 0.5 2 ]", "[ 1 0.5", "[ 1 0.5 ] 3", "1 0.5", "[ x 0.5 ]", "[ 1 x ]"])
def test_text_posteriors_that_are_none(text, tmp_path):
    (tmp_path / "x").write_text(f"k {text}\n")
    with pytest.raises(DataError, match=r"\(key k\) at byte \d+: expected"):
        list(SequentialReader(f"ark,t:{tmp_path}/x", "posterior"))


@pytest.mark.parametrize("number", [1, -1, 2])
def test_compressed_matrices_without_a_range(number):
    limits = {1: (np.nan, 1), -1: (0, -1), 2: (0, np.inf)}[number]
    with pytest.raises(DataError, match="makes no sense"):
        reader(b"CM3 " + struct.pack("<ffii", *limits, 1, 1) + b"\0").general_matrix()


def test_the_last_token_of_a_binary_file_has_its_space():
    with pytest.raises(DataError, match=r"cut off: expected a space behind b'</Nnet>'"):
        reader(b"</Nnet>").token()


@pytest.mark.parametrize("key", ["a\rb", "a\x1fb", "\x01"])
def test_keys_with_control_characters(key, tmp_path):
    (tmp_path / "x").write_bytes(key.encode() + b" \0B" + i4(3))
    with pytest.raises(DataError, match=r"at byte \d+: expected a key and a space, found"):
        list(SequentialReader(f"ark:{tmp_path}/x", "int32"))
    with pytest.raises(DataError, match="white space"), Writer(f"ark:{tmp_path}/y", "int32") as out:
        out.write(key, 3)


def test_a_no_break_space_is_part_of_a_word_as_in_kaldi(tmp_path):
    assert split_words(" 10\xa0000\tx \r\n") == ["10\xa0000", "x"] and split_words("a  b c", 1) == ["a", "b c"]
    assert split_words(" \t") == []
    (tmp_path / "x").write_text("k\xa01 a\xa0b c\n")
    assert read_scp(f"{tmp_path}/x") == [("k\xa01", "a\xa0b c")]
    assert read_map(f"{tmp_path}/x") == {"k\xa01": "a\xa0b c"}
    assert list(SequentialReader(f"ark:{tmp_path}/x", "tokens")) == [("k\xa01", ["a\xa0b", "c"])]


def damaged_fst(offset, value, kind="<q"):
    data = bytearray(READERS["fst"].seeds[0])
    struct.pack_into(kind, data, offset, value)
    return bytes(data)


# Offsets in the file: version 26, properties 34, start 42, states 50, arcs of the first state 70, its first target 90.
@pytest.mark.parametrize(
    ("offset", "value", "message"),
    [
        (26, 1, "file version 2, found"),
        (34, 3 << 16, "contradict"),
        (42, 9, "starts in state 9"),
        (50, -1, "-1 states"),
        (50, 1 << 40, "cut off: expected state 3"),
        (70, -1, "with -1 arcs makes no sense"),
        (70, 1 << 40, "cut off"),
        (90, 7, "an arc to a state outside its 3"),
    ],
)
def test_fsts_are_checked_before_openfst_sees_them(offset, value, message, tmp_path):
    (tmp_path / "x").write_bytes(damaged_fst(offset, value))
    with pytest.raises(DataError, match=rf"x at byte \d+: .*{message}"):
        read_fst(f"{tmp_path}/x")


def test_packed_matrices_that_are_no_triangle():
    with pytest.raises(DataError, match="cut off"):
        read_symmetric(reader(b"FP " + i4(1 << 20) + bytes(100)))


@pytest.mark.parametrize("phone", ["2147483647", "0", "-3", "x"])
def test_phones_that_are_none(phone):
    text = f"<Topology> <TopologyEntry> <ForPhones> {phone} </ForPhones> <State> 0 <PdfClass> 0 <Transition> 1 1.0 "
    with pytest.raises(DataError, match="file"):
        Topology.read(reader(f"{text}</State> <State> 1 </State> </TopologyEntry> </Topology> ".encode(), TEXT))


def test_a_phone_of_no_topology_entry_and_of_no_topology():
    data = READERS["transition model"].seeds[0]
    entry = data.index(struct.pack("<iii", 0, 1, 1))
    with pytest.raises(DataError, match="entry 35 of 2"):
        TransitionModel.read(reader(data[2 : entry + 8] + struct.pack("<i", 35) + data[entry + 12 :]))
    state = data.index(b"<Triples> ") + 10 + 5 + 1
    with pytest.raises(DataError, match="phone that the topology does not know"):
        TransitionModel.read(reader(data[2:state] + struct.pack("<i", 500_000_000) + data[state + 4 :]))


@pytest.mark.parametrize(
    ("token", "value"), [(b"<VECSIZE> ", -5), (b"<VECSIZE> ", 500_000_000), (b"<NUMCOMPONENTS> ", MANY)]
)
def test_sizes_of_statistics(token, value):
    data = READERS["GMM statistics"].seeds[0]
    at = data.index(token) + len(token)
    with pytest.raises(DataError, match=r"file at byte \d+"):
        GmmStats.read(reader(data[2:at] + i4(value) + data[at + 5 :]))


def test_unknown_components_are_named_with_the_file():
    with pytest.raises(DataError, match=r"file at byte 18: .* unknown <NoSuchComponent>"):
        read_component(reader(b"<NoSuchComponent> "))


@pytest.mark.parametrize(
    "component",
    [
        b"<SumGroupComponent> <Sizes> " + struct.pack("<biii", 4, 2, 1, 1 << 27) + b"</SumGroupComponent> ",
        b"<SpliceComponent> <InputDim> " + i4(5) + b"<LeftContext> " + i4(1 << 29) + b"<RightContext> " + i4(1 << 29),
        b"<Convolutional1dComponent> <LearningRate> \4\0\0\0\0<PatchDim> "
        + i4(4)
        + b"<PatchStep> "
        + i4(2)
        + b"<PatchStride> "
        + i4(1 << 30)
        + b"<AppendedConv> F<FilterParams> FM "
        + i4(1)
        + i4(4)
        + bytes(16)
        + b"<BiasParams> FV "
        + i4(1)
        + bytes(4)
        + b"<IsGradient> F</Convolutional1dComponent> ",
    ],
)
def test_sizes_that_no_network_has(component):
    with pytest.raises(DataError, match=r"file: \w+Component: expected .* at most \d+, found \d+"):
        read_component(reader(component))


ONE_LABEL = b"<Lab1> " + i4(1) + bytes(4)


def entry(matrix, labels=ONE_LABEL):
    ending = b"<LeftContext> " + i4(0) + b"<SpkInfo> FV " + i4(0) + b"</NnetExample> "
    return b"k \0B<NnetExample> " + labels + b"<InputFrames> " + matrix + ending


GOOD = b"FM " + i4(1) + i4(1) + bytes(4)


@pytest.mark.parametrize("more", [0, 100])
@pytest.mark.parametrize(
    "data",
    [
        entry(b"FM " + i4(MANY) + i4(MANY)),
        entry(b"DM " + i4(1 << 30) + i4(1 << 31 - 1)),
        entry(b"CM " + struct.pack("<ffii", 0, 1, MANY, MANY)),
        entry(b"CM3 " + struct.pack("<ffii", np.nan, 1, 1, 1) + b"\0"),
        entry(GOOD, b"<Lab2> " + i4(1) + i4(1) + struct.pack("<bibf", 9, 0, 4, 1)),
        entry(GOOD, b"<Lab2> " + i4(1) + i4(MANY)),
        entry(GOOD, b"<Lab1> " + i4(MANY)),
    ],
)
def test_the_fast_reader_of_examples_stays_in_the_archive(data, more):
    """Sizes whose product overflows led outside; numbers without their size byte were read."""
    EgsArchive(entry(GOOD), "file")
    with pytest.raises(DataError, match=r"file: example 1 \(key 'k'\) at byte \d+"):
        EgsArchive(data + more * entry(GOOD), "file")
