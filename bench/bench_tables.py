#!/usr/bin/env python3
"""How fast tables are read on one core: matrices in float and compressed, text, vectors, look-ups in a large script.

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


def write_table(path: str, compression: CompressOptions) -> None:
    """The made-up utterances, to PATH.ark and PATH.scp."""
    rng = np.random.default_rng(0)
    with Writer(f"ark,scp:{path}.ark,{path}.scp", "matrix", compression) as out:
        for u in range(UTTERANCES):
            frames = int(rng.integers(100, 900))
            out.write(f"speaker{u // 10:04d}-utterance{u:06d}", rng.standard_normal((frames, DIM), np.float32))


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
        for name, compression in FORMS.items():
            path = f"{folder}/feats"
            start = time.process_time()
            write_table(path, compression)
            writing = time.process_time() - start
            size = read(f"ark:{path}.ark")
            for how, rspecifier in (("ark", f"ark:{path}.ark"), ("scp", f"scp:{path}.scp")):
                seconds = median_seconds(lambda rspecifier=rspecifier: read(rspecifier))
                print(f"{name:18} {how}: {size / 1e6 / seconds:6.0f} MB/s")
            keys = [key for key, _ in SequentialReader(f"scp:{path}.scp", "general_matrix")]
            np.random.default_rng(1).shuffle(keys)
            seconds = median_seconds(lambda path=path, keys=keys: look_up(f"{path}.scp", keys))
            print(f"{name:18} looked up in random order: {size / 1e6 / seconds:6.0f} MB/s")
            print(f"{name:18} written: {size / 1e6 / writing:6.0f} MB/s (made up meanwhile)")
        with open(f"{folder}/large.scp", "w") as script:
            for u in range(LINES):
                script.write(
                    f"speaker{u // 10:05d}-utterance{u:06d} {folder}/raw_mfcc_train.{u // 1000}.ark:{u * 9999}\n"
                )
        seconds = median_seconds(lambda: RandomReader(f"scp:{folder}/large.scp", "matrix"))
        print(f"a script of {LINES} utterances opened for look-ups: {seconds:.3f} s")


if __name__ == "__main__":
    main()
