#!/usr/bin/env python3
"""How many times faster than real time one core makes MFCC: the whole program, from its start to its end.

Usage: bench_features.py WAV_SCP [DIRECTORY [OPTION...]]
e.g.: bench/bench_features.py shared/an4/train/wav.scp shared/an4 --config=egs/an4/conf/mfcc.conf

The paths of WAV_SCP are relative to DIRECTORY (the present one); OPTIONs are those of make-mfcc. Five runs; processor
time of the program, reading, decoding and writing included, and elapsed time: best and median.
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

PROGRAM = Path(__file__).resolve().parents[1] / "bin" / "make-mfcc"
RUNS = 5


def one_run(wav_scp: str, directory: str, options: list[str]) -> tuple[float, float, float]:
    """(seconds of speech, processor seconds, elapsed seconds)."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(PROGRAM), *options, f"--write-utt2dur=ark,t:{folder}/utt2dur"]
        command += [os.path.abspath(wav_scp), f"ark,scp:{folder}/mfcc.ark,{folder}/mfcc.scp"]
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run(command, cwd=directory, check=True, stderr=subprocess.DEVNULL)
        elapsed, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
        durations = Path(folder, "utt2dur").read_text().split()[1::2]
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return sum(map(float, durations)), used, elapsed


def main() -> None:
    """Print the figures."""
    if len(sys.argv) < 2:
        sys.exit(__doc__.split("\n\n")[1])
    directory = sys.argv[2] if len(sys.argv) > 2 else "."
    options = [f"--config={os.path.abspath(o[9:])}" if o.startswith("--config=") else o for o in sys.argv[3:]]
    speech, used, elapsed = (
        np.array(column) for column in zip(*(one_run(sys.argv[1], directory, options) for _ in range(RUNS)))
    )
    for what, seconds in (("processor", used), ("elapsed", elapsed)):
        print(
            f"{speech[0]:.0f} s of speech, {what} time: {speech[0] / seconds.min():.0f} x real time at best, "
            f"{speech[0] / np.median(seconds):.0f} x in the median"
        )


if __name__ == "__main__":
    main()
