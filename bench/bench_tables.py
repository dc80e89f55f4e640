#!/usr/bin/env python3
"""How fast tables are read and written on one core: matrices in float and compressed, look-ups, a large script file.

Usage: bench_tables.py [<folder>]
e.g.: bench/bench_tables.py /dev/shm

1500 utterances of 1 to 9 s, 40 dimensions, are made up in a new folder below <folder> (default: that of temporary
files). Medians of 7 passes, CPU time, files in the page cache. MB/s are bytes of the float32 values that come out,
whatever their form in the file.
"""

import sys
import tempfile
import time
from collections.abc import Callable

import numpy as np

from ngsgd.kaldi_io.compressed import CompressOptions
from ngsgd.kaldi_io.tables import RandomReader, SequentialReader, Writer

UTTERANCES, DIM, PASSES, LINES = 1500, 40, 7, 100_000
FORMS = {
    "float32": CompressOptions(),
    "compressed (CM)": CompressOptions(True, 2),
    "compressed (CM2)": CompressOptions(True, 3),
    "compressed (CM3)": CompressOptions(True, 5),
}


def median_seconds(work: Callable[[], object]) -> float:
    """CPU seconds of one call, the median of several; one before them warms the caches."""
    seconds = []
    work()
    for _ in range(PASSES):
        start = time.process_time()
        work()
        seconds.append(time.process_time() - start)
    return float(np.median(seconds))


def made_up() -> dict[str, np.ndarray]:
    """The utterances, 120 MB."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(100, 900, UTTERANCES).tolist()
    keys = [f"speaker{u // 10:04d}-utterance{u:06d}" for u in range(UTTERANCES)]
    return {key: rng.standard_normal((frames, DIM), np.float32) for key, frames in zip(keys, lengths)}


def write(utterances: dict[str, np.ndarray], path: str, compression: CompressOptions) -> None:
    """A table, to PATH.ark and PATH.scp."""
    with Writer(f"ark,scp:{path}.ark,{path}.scp", "matrix", compression) as out:
        for key, value in utterances.items():
            out.write(key, value)


def read(rspecifier: str) -> int:
    """Bytes of the values of a table."""
    return sum(value.nbytes for _, value in SequentialReader(rspecifier, "matrix"))


def look_up(script: str, keys: list[str]) -> int:
    """Bytes of the values of these keys, in this order."""
    reader = RandomReader(f"scp:{script}", "matrix")
    return sum(reader[key].nbytes for key in keys)


def main() -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as folder:
        utterances, path = made_up(), f"{folder}/feats"
        megabytes = sum(value.nbytes for value in utterances.values()) / 1e6
        keys = list(utterances)
        np.random.default_rng(1).shuffle(keys)
        for name, compression in FORMS.items():
            works = {
                "written": lambda compression=compression: write(utterances, path, compression),
                "read (ark)": lambda: read(f"ark:{path}.ark"),
                "read (scp)": lambda: read(f"scp:{path}.scp"),
                "looked up in random order": lambda: look_up(f"{path}.scp", keys),
            }
            for what, work in works.items():
                print(f"{name:18}{what:26}{megabytes / median_seconds(work):6.0f} MB/s", flush=True)
        with open(f"{folder}/large.scp", "w") as script:
            for u in range(LINES):
                script.write(
                    f"speaker{u // 10:05d}-utterance{u:06d} {folder}/raw_mfcc_train.{u // 1000}.ark:{u * 9999}\n"
                )
        seconds = median_seconds(lambda: RandomReader(f"scp:{folder}/large.scp", "matrix"))
        print(f"a script of {LINES} utterances opened for look-ups: {seconds:.3f} s")


if __name__ == "__main__":
    main()
