#!/usr/bin/env python3
"""Processor time and memory of the tools for data directories, on a made-up directory with segments.

Usage: bench/bench_data_dir.py [--utterances=1000000]
"""

import argparse
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

UTILS = Path(__file__).resolve().parents[1] / "utils"
WORDS = ["THE", "QUICK", "BROWN", "FOX", "JUMPS", "OVER", "A", "LAZY", "DOG", "ÉTÉ"]
COMMANDS = (
    "validate_data_dir.py {all}",
    "limit_jobs.py {all} 40",
    "split_data_dir.py {all} 8",
    "split_data_dir.py --per-utt {all} 32",
    "subset_data_dir.py {all} 100000 {dir}/subset",
    "copy_data_dir.py --utt-prefix=x- --spk-prefix=x- {all} {dir}/copy",
    "fix_data_dir.py {all}",
    "subset_data_dir.py --first {all} {half} {dir}/first",
    "subset_data_dir.py --last {all} {half} {dir}/last",
    "combine_data.py {dir}/combined {dir}/first {dir}/last",
    "combine_data.py --skip-fix {dir}/combined {dir}/first {dir}/last",
)


def make(path: Path, count: int) -> None:
    """200 utterances a speaker, 50 a recording, and every file that training makes."""
    ids = [(f"spk{i // 200:05d}-utt{i:08d}", f"spk{i // 200:05d}", f"rec{i // 50:06d}") for i in range(count)]
    speakers: dict[str, list[str]] = {}
    for utterance, speaker, _ in ids:
        speakers.setdefault(speaker, []).append(utterance)
    files = {
        "utt2spk": [f"{u} {s}" for u, s, _ in ids],
        "spk2utt": [f"{s} {' '.join(u)}" for s, u in speakers.items()],
        "text": [f"{u} {' '.join(WORDS[(i + k) % 10] for k in range(8 + i % 5))}" for i, (u, *_) in enumerate(ids)],
        "wav.scp": [f"{r} flac -d -c -s /corpora/speech/{r}.flac |" for r in dict.fromkeys(r for *_, r in ids)],
        "segments": [f"{u} {r} {i % 50 * 3.5:.2f} {i % 50 * 3.5 + 3.2:.2f}" for i, (u, _, r) in enumerate(ids)],
        "feats.scp": [
            f"{u} /data/mfcc/raw_mfcc_train.{i // 9999}.ark:{i % 9999 * 4211}" for i, (u, *_) in enumerate(ids)
        ],
        "cmvn.scp": [f"{s} /data/mfcc/cmvn_train.ark:{i * 100}" for i, s in enumerate(speakers)],
        "utt2dur": [f"{u} 3.2" for u, *_ in ids],
        "utt2num_frames": [f"{u} 318" for u, *_ in ids],
    }
    path.mkdir()
    for name, lines in files.items():
        (path / name).write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--utterances", type=int, default=1_000_000)
    count = parser.parse_args().utterances
    with tempfile.TemporaryDirectory() as folder:
        # In a process of its own: a child's peak memory counts from its parent's.
        maker = multiprocessing.get_context("spawn").Process(target=make, args=(Path(folder, "all"), count))
        maker.start()
        maker.join()
        for command in COMMANDS:
            words = command.format(all=f"{folder}/all", dir=folder, half=count // 2).split()
            start = time.monotonic()
            process = subprocess.Popen(
                [sys.executable, UTILS / words[0], *words[1:]], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            _, status, used = os.wait4(process.pid, 0)
            wall = time.monotonic() - start
            shown = command.format(all="ALL", dir=".", half=count // 2)
            seconds = f"{used.ru_utime + used.ru_stime:6.1f} s of processor, {wall:6.1f} s"
            print(f"{seconds}, {used.ru_maxrss / 1024:6.0f} MB, status {status}: {shown}", flush=True)


if __name__ == "__main__":
    main()
