"""Damaged files for every binary reader: a DataError that says where, or a value that can be written and read again.

Usage: python -m tests.fuzz [--count=200000] [--seed=0] [READER...]

Every input is a whole file of the reader's kind, damaged once or several times: bits flipped, bytes or numbers replaced
(mostly by extreme ones, where sizes stand), pieces cut out, doubled, or taken from a file of another kind. A reader
fails by any exception but DataError, by a message that does not name the file, by taking memory that the input does not
account for (the address space is limited), by taking long, or by a value that is not the same after it was written and
read again. What kills the process is found in the file `--record` names: the reader and its input.
"""

import argparse
import collections
import contextlib
import faulthandler
import functools
import io
import logging
import mmap
import os
import re
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ngsgd.egs.archive import EgsArchive
from ngsgd.egs.example import NnetExample
from ngsgd.errors import DataError
from ngsgd.gmm.lda import LdaStats
from ngsgd.gmm.mllt import MlltStats
from ngsgd.gmm.model import AmDiagGmm
from ngsgd.gmm.stats import GmmStats
from ngsgd.hmm.topology import HmmState, Topology
from ngsgd.hmm.transitions import TransitionModel
from ngsgd.hmm.tree import ContextDependency, Leaf, Split, Table, monophone_tree
from ngsgd.kaldi_io.compressed import CompressedMatrix
from ngsgd.kaldi_io.fst import FstArrays, fst_bytes, read_fst, write_fst
from ngsgd.kaldi_io.packed import read_symmetric, write_symmetric
from ngsgd.kaldi_io.posteriors import Posteriors
from ngsgd.kaldi_io.stream import TokenWriter, open_reader, open_writer
from ngsgd.kaldi_io.tables import SequentialReader, Writer
from ngsgd.nnet.components.base import all_components, component_class
from ngsgd.nnet.model import AmNnet, Nnet, read_model, read_nnet, write_model, write_nnet

MEMORY = 192 << 20
"""Bytes of address space that a reader may take for an input of a few kB, Python's and numpy's own included."""
SECONDS = 5.0
# In what the fast reader of examples may differ from the plain one: it wants all examples of one shape, and knows no
# forms that are never written (other white space than a space behind a token); it does not look at the letters of keys.
ONLY_FAST = r"examples of different|expected a four-byte number|a float vector|found b'</?\w+>\\"
ONLY_PLAIN = "a key in UTF-8|expected a key and a space"


@dataclass(frozen=True)
class Reader:
    """A reader to test. seeds: whole files; read(path) gives a value; write(path, value) writes what was read."""

    seeds: list[bytes]
    read: Callable[[str], Any]
    write: Callable[[str, Any], None] | None = None
    exact: bool = False  # what is accepted of a binary table is written as the same bytes, but for white space


# ---- readers and their whole files


def _bytes_written(write: Callable[[str, Any], None], value: Any) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        write(f"{folder}/x", value)
        return Path(folder, "x").read_bytes()


def _table(kind: str, values: list[Any], writable: bool = True) -> Reader:
    def write(path: str, entries: list[tuple[str, Any]]) -> None:
        with Writer(f"ark:{path}", kind) as out:
            for key, value in entries:
                out.write(key, value)

    seeds = [_bytes_written(write, [("one", value), ("two", value)]) for value in values] if writable else []
    exact = kind in ("general_matrix", "vector", "int32_vector", "int32_lists", "int32", "posterior")
    return Reader(seeds, lambda path: list(SequentialReader(f"ark:{path}", kind)), write if writable else None, exact)


def _object(
    values: list[Any], read: Callable[[Any], Any], write: Callable[[Any, Any], None], text: bool = True
) -> Reader:
    """Something that is read from a TokenReader and written to a TokenWriter."""

    def read_file(path: str) -> Any:
        with open_reader(path) as reader:
            return read(reader)

    def write_file(path: str, value: Any, binary: bool = True) -> None:
        with open_writer(path, binary) as writer:
            write(writer, value)

    seeds = [_bytes_written(write_file, value) for value in values]
    if text:
        seeds += [_bytes_written(lambda path, v: write_file(path, v, binary=False), value) for value in values]
    return Reader(seeds, read_file, write_file)


def _examples(rng: np.random.Generator) -> list[NnetExample]:
    made = []
    for kind in ("CM", "CM2", "CM3"):
        rows = CompressedMatrix.from_dense(rng.standard_normal((9, 2)).astype(np.float32), kind)
        made.append(NnetExample([[(3, 1.0)], [(1, 1.0)]], rows, 4, rng.standard_normal(3).astype(np.float32)))
    labels = [[(3, 0.5), (2, 0.5)], [(1, 1.0)]]
    return [*made, NnetExample(labels, made[0].input, 2), NnetExample([[]], made[1].input, 0)]


def _posteriors(rng: np.random.Generator) -> Posteriors:
    counts = np.array([1, 1, 1, 0, 0, 2, 1], np.int32)
    return Posteriors(counts, np.arange(1, 7, dtype=np.int32), rng.random(6).astype(np.float32))


def _transitions() -> TransitionModel:
    state = HmmState(0, 0, ((0, 0.75), (1, 0.25)))
    entries = [[state, HmmState(-1, -1, ())], [state, HmmState(1, 1, ((1, 0.5), (2, 0.5))), HmmState(-1, -1, ())]]
    topology = Topology(entries, {1: 0, 2: 1, 3: 1})
    return TransitionModel.from_tree(monophone_tree(topology), topology)


def _tree() -> ContextDependency:
    split = Split(2, [1, 3], Leaf(1), Split(0, [2], Leaf(2), Leaf(3)))
    return ContextDependency(3, 1, Table(1, [None, Leaf(0), Table(-1, [split, Leaf(4)])]))


def _gmm(rng: np.random.Generator) -> AmDiagGmm:
    return AmDiagGmm([0, 1, 3], [1.0, 0.4, 0.6], rng.standard_normal((3, 2)), rng.random((3, 2)) + 0.5)


def _fsts() -> list[FstArrays]:
    made = FstArrays.from_arcs(0, [np.inf, 0.5, 0], [0, 0, 1], [1, 2, 0], [0, 3, 0], [0.25, 1, 2], [1, 2, 2])
    return [made, FstArrays.from_arcs(-1, [], *[np.zeros(0, np.int32)] * 5)]


def _networks(rng: np.random.Generator) -> list[Nnet]:
    return [Nnet([c]) for name in all_components() for c in component_class(name).examples(rng)]


def _read_both_egs(path: str) -> Any:
    """Examples by the fast reader, which must agree with the plain one: both refuse, or both see the same."""
    plain, refused = [], None
    try:
        plain = [value for _, value in SequentialReader(f"ark:{path}", "nnet_example")]
    except DataError as error:
        refused = error
    try:
        fast = EgsArchive(Path(path).read_bytes(), path)
        shaped = fast.decode(np.arange(len(fast)), np.zeros(len(fast), int), 1)  # all of one shape, and finite
    except DataError as error:
        if refused is None and plain and not re.search(ONLY_FAST, str(error)):
            raise AssertionError(f"only the fast reader refuses: {error}") from error
        raise
    if refused is not None:
        if re.search(ONLY_PLAIN, str(refused)):
            raise refused
        raise AssertionError(f"only the plain reader refuses: {refused}")
    labels = [pair for e in plain for frame in e.labels for pair in frame]
    assert np.array_equal(np.array(labels, np.float32).reshape(-1, 2)[:, 1], fast.weight, equal_nan=True), (
        "other weights"
    )
    assert [pdf for pdf, _ in labels] == fast.pdf.tolist(), "other labels"
    for example, row in zip(plain, shaped):
        cols = example.input.cols
        if np.isfinite(example.input.to_dense()).all():
            assert np.array_equal(row[0, :cols], example.input.to_dense()[0]), "other input"
        assert np.array_equal(row[0, cols:], example.spk_info, equal_nan=True), "other i-vector"
    return None


def _recordings() -> list[bytes]:
    import soundfile

    samples = (np.sin(np.arange(200) / 3) * 0.5).astype(np.float32)
    forms = [("WAV", s) for s in ("PCM_16", "PCM_U8", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "ULAW", "ALAW")]
    made = []
    for kind, subtype in [*forms, ("WAVEX", "PCM_16"), ("FLAC", "PCM_16"), ("NIST", "PCM_16"), ("AU", "PCM_16")]:
        out = io.BytesIO()
        soundfile.write(out, np.stack([samples, -samples], axis=1), 16000, subtype=subtype, format=kind)
        made.append(out.getvalue())
    return made


@functools.cache
def readers() -> dict[str, Reader]:
    """All of them, by name."""
    import ngsgd.hmm.graphs  # noqa: F401  registers fst_arrays
    from ngsgd.data.wave import read_channels

    rng = np.random.default_rng(0)
    dense = rng.standard_normal((9, 3)).astype(np.float32)
    compressed = [CompressedMatrix.from_dense(dense, kind) for kind in ("CM", "CM2", "CM3")]
    transitions, gmm, fsts = _transitions(), _gmm(rng), _fsts()
    stats = GmmStats(transitions.num_transition_ids, np.array([0, 1, 3]), 2)
    lda = LdaStats(np.ones(2), rng.random((2, 3)), np.eye(3))
    nnet = Nnet([component_class("SigmoidComponent").from_config({"dim": "4"}, rng)])
    model = AmNnet(transitions, nnet, np.full(4, 0.25, np.float32))
    made = {
        "matrix": _table("matrix", [dense, dense.astype(np.float64), *compressed]),
        "general_matrix": _table("general_matrix", [dense, *compressed]),
        "vector": _table("vector", [dense[0], dense[1].astype(np.float64)]),
        "int32_vector": _table("int32_vector", [np.arange(7, dtype=np.int32)]),
        "int32_lists": _table("int32_lists", [[[3, 1], [], [7]]]),
        "int32": _table("int32", [17]),
        "float": _table("float", [0.5]),
        "posterior": _table("posterior", [[[(1, 0.5), (2, 0.5)], [], [(3, 1.0)]]]),
        "posterior_arrays": _table("posterior_arrays", [_posteriors(rng)]),
        "nnet_example": _table("nnet_example", _examples(rng)),
        "fst table": _table("fst", [fst.to_vector() for fst in fsts]),
        "fst": Reader([fst_bytes(f.to_vector()) for f in fsts] + [f.const_bytes() for f in fsts], read_fst, write_fst),
        "int32_pairs": _object([np.arange(6).reshape(3, 2)], lambda r: r.int32_pairs(), lambda w, v: w.int32_pairs(v)),
        "packed matrix": _object([np.eye(3, dtype=np.float32), np.eye(2)], read_symmetric, write_symmetric, text=False),
        "tree": _object([_tree(), monophone_tree(transitions.topology)], ContextDependency.read, _write),
        "topology": _object([transitions.topology], Topology.read, _write),
        "transition model": _object([transitions], TransitionModel.read, _write),
        "mixtures": _object([gmm], AmDiagGmm.read, _write),
        "GMM statistics": _object([stats], GmmStats.read, _write),
        "LDA statistics": _object([lda], LdaStats.read, _write, text=False),
        "MLLT statistics": _object([MlltStats(2)], MlltStats.read, _write, text=False),
        "network": Reader(
            [_bytes_written(lambda p, n: write_nnet(n, p), n) for n in _networks(rng)],
            read_nnet,
            lambda p, n: write_nnet(n, p),
        ),
        "network model": Reader(
            [_bytes_written(lambda p, m: write_model(m, p), model)], read_model, lambda p, m: write_model(m, p)
        ),
        "recording": Reader(_recordings(), read_channels),
    }
    graphs = _table("fst_arrays", [], writable=False)
    made["training graphs"] = Reader(made["fst table"].seeds, graphs.read)
    made["archive of examples"] = Reader(made["nnet_example"].seeds, _read_both_egs)
    return made


def _write(writer: TokenWriter, value: Any) -> None:
    value.write(writer)


# ---- damage

_NUMBERS = [
    0,
    1,
    -1,
    2,
    127,
    255,
    256,
    1 << 15,
    1 << 16,
    1 << 20,
    1 << 24,
    500_000_000,
    (1 << 31) - 1,
    -(1 << 31),
    1 << 30,
]
_PIECES = [
    b"\0B",
    b"\0",
    b" ",
    b"\n",
    b"\xff" * 4,
    b"\x04",
    b"\xfc",
    b"[",
    b"]",
    b"nan ",
    b"-1 ",
    b"2147483648 ",
    b"1e999 ",
]


def damaged(data: bytes, others: list[bytes], rng: np.random.Generator) -> bytes:
    """The file with one damage, sometimes more."""
    for _ in range(1 + int(rng.geometric(0.7)) - 1 or 1):
        data = _damage_once(bytearray(data), others, rng)
    return data


def _damage_once(data: bytearray, others: list[bytes], rng: np.random.Generator) -> bytes:
    at = int(rng.integers(0, len(data) + 1))
    way = int(rng.integers(0, 9))
    if way == 0:
        return bytes(data[:at])
    if way == 1 and at < len(data):
        data[at] ^= 1 << int(rng.integers(0, 8))
    elif way == 2 and at < len(data):
        data[at] = int(rng.integers(0, 256))
    elif way in (3, 4):  # a number where one may stand: behind a size byte, or anywhere
        sizes = [i for i, byte in enumerate(data) if byte == 4]
        if way == 3 and sizes:
            at = sizes[int(rng.integers(0, len(sizes)))] + 1
        value = _NUMBERS[int(rng.integers(0, len(_NUMBERS)))]
        data[at : at + 4] = (value & 0xFFFFFFFF).to_bytes(4, "little")
    elif way == 5:
        del data[at : at + int(rng.integers(1, 9))]
    elif way == 6:
        data[at:at] = data[at : at + int(rng.integers(1, 40))]
    elif way == 7:
        data[at:at] = _PIECES[int(rng.integers(0, len(_PIECES)))]
    else:
        other = others[int(rng.integers(0, len(others)))]
        begin = int(rng.integers(0, len(other)))
        data[at : at + int(rng.integers(0, 30))] = other[begin : begin + int(rng.integers(1, 60))]
    return bytes(data)


# ---- the check


class Failure(Exception):
    """A reader did what it must not do; the text says what."""


def check(reader: Reader, data: bytes, folder: str) -> str:
    """ "refused" or "read"; raises Failure."""
    path = f"{folder}/input"
    Path(path).write_bytes(data)
    try:
        with _limits():
            value = reader.read(path)
    except DataError as error:
        if path not in str(error):
            raise Failure(f"a message that does not name the file: {error}") from error
        if "\n" in str(error) or len(str(error)) > 500:
            raise Failure(f"a message of several lines, or too long: {error}") from error
        return "refused, with the offset" if re.search(r"at byte \d+|example \d+", str(error)) else "refused"
    except Exception as error:
        raise Failure("".join(traceback.format_exception(error)[-3:])) from error
    if reader.write is not None:
        first, second = f"{folder}/first", f"{folder}/second"
        try:
            reader.write(first, value)
            reader.write(second, reader.read(first))
        except Exception as error:
            raise Failure(
                "what was read cannot be written and read:\n" + "".join(traceback.format_exception(error)[-3:])
            ) from error
        if Path(first).read_bytes() != Path(second).read_bytes():
            raise Failure("what was read is another thing after writing and reading")
        all_binary = data.count(b"\0B") == len(value) if reader.exact else False
        if all_binary and _UNSIGNED not in data and _squeezed(Path(first).read_bytes()) != _squeezed(data):
            raise Failure("other bytes were read than those there")
    return "read"


_UNSIGNED = b"\xfc"  # the size byte of an unsigned integer, which is read where a signed one is written


def _squeezed(data: bytes) -> bytes:
    return data.translate(None, b" \t\n\r")


@contextlib.contextmanager
def _limits() -> Iterator[None]:
    """An error for memory and time beyond MEMORY and SECONDS."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    handler = signal.signal(signal.SIGALRM, _too_long)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)


def _too_long(*_: Any) -> None:
    raise Failure(f"not done after {SECONDS} s")


def run(count: int, seed: int, names: list[str], record: str = "") -> tuple[collections.Counter, dict]:
    """Damage `count` files in all; returns how often what came of it, and (reader, failure) -> (times, an input)."""
    all_readers = readers()
    names = names or list(all_readers)
    others = [seed for reader in all_readers.values() for seed in reader.seeds]
    outcomes: collections.Counter = collections.Counter()
    failures: dict[tuple[str, str], list] = {}
    logging.disable(logging.WARNING)
    with (
        tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder,
        contextlib.ExitStack() as stack,
    ):
        last = stack.enter_context(_last_input(record)) if record else lambda *_: None
        for name in names:
            reader = all_readers[name]
            for data in reader.seeds:
                Path(folder, "input").write_bytes(data)
                reader.read(f"{folder}/input")  # without limits, for what is imported and compiled at the first use
                outcome = check(reader, data, folder)
                assert outcome == "read", f"a whole file is refused: {name}"
            rng = np.random.default_rng([seed, *name.encode()])
            for i in range(count // len(names)):
                data = damaged(reader.seeds[i % len(reader.seeds)], others, rng)
                last(name, data)
                try:
                    with warnings.catch_warnings():
                        warnings.simplefilter("error")
                        outcomes[name, check(reader, data, folder)] += 1
                except Failure as failure:
                    what = str(failure).replace(folder, "")
                    failures.setdefault((name, what), [0, data])[0] += 1
    logging.disable(logging.NOTSET)
    return outcomes, failures


@contextlib.contextmanager
def _last_input(record: str) -> Iterator[Callable[[str, bytes], None]]:
    """A function that keeps the reader and its input in a file, also when the process is killed."""
    with open(record, "w+b") as file:
        file.truncate(1 << 20)
        with mmap.mmap(file.fileno(), 0) as memory:

            def keep(name: str, data: bytes) -> None:
                text = f"{name} {data!r}\n".encode()
                memory[: len(text)] = text

            yield keep


def main() -> int:
    """Run, and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--record", default="")
    parser.add_argument("names", nargs="*", metavar="READER")
    options = parser.parse_args()
    faulthandler.enable()
    faulthandler.dump_traceback_later(3600, exit=True)
    start = time.time()
    outcomes, failures = run(options.count, options.seed, options.names, options.record)
    kinds = ("refused, with the offset", "refused", "read")
    print(f"{'reader':20}" + "".join(f"{kind:>26}" for kind in kinds))
    for name in dict.fromkeys(name for name, _ in outcomes):
        print(f"{name:20}" + "".join(f"{outcomes[name, kind]:26}" for kind in kinds))
    print(f"{sum(outcomes.values())} inputs, {len(failures)} kinds of failure, {time.time() - start:.0f} s")
    for (name, what), (times, data) in failures.items():
        print(f"\n{name}, {times} times: {what}\n{data!r}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
