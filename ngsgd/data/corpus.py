"""Data directories as a recipe first makes them: recordings, words and speakers, from a corpus's own folder."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from ngsgd.data.datadir import DataDir, with_spk2utt
from ngsgd.errors import DataError
from ngsgd.kaldi_io.files import is_input_pipe, split_offset

MADE_BY_RECIPE = ("wav.scp", "utt2spk", "spk2utt", "text")


def data_directory(
    wav: Mapping[str, str],
    text: Mapping[str, str],
    utt2spk: Mapping[str, str],
    utt2uniq: Mapping[str, str] | None = None,
) -> DataDir:
    """A data directory of whole recordings: utterance -> file, words, speaker; the three must have the same ids.

    utt2uniq: of what original an utterance is a version, where some are.
    """
    if not wav.keys() == text.keys() == utt2spk.keys():
        odd = sorted((wav.keys() | text.keys() | utt2spk.keys()) - (wav.keys() & text.keys() & utt2spk.keys()))
        raise DataError(f"utterance {odd[0]} and {len(odd) - 1} more lack a recording, words or a speaker")
    files = {"wav.scp": dict(wav), "utt2spk": dict(utt2spk), "text": dict(text)}
    if utt2uniq is not None:
        files["utt2uniq"] = dict(utt2uniq)
    return DataDir(Path(), with_spk2utt(files))


def write_prepared(data: DataDir, path: str | Path) -> bool:
    """Write the directory, unless it already says the same of recordings, words and speakers.

    Such a directory keeps its features, and gets only what it lacks of other files. Returns whether it was written.
    """
    path = Path(path)
    if path.is_dir() and all((path / name).is_file() for name in MADE_BY_RECIPE):
        old = DataDir.load(path)
        if all(old.files.get(name) == data.files[name] for name in MADE_BY_RECIPE):
            DataDir(path, old.files | data.files).write(path)
            return False
    data.write(path)
    return True


def adopt(source: str | Path, root: str | Path) -> DataDir:
    """A corpus's data directory with the paths of wav.scp, relative to `root`, made absolute.

    Raises DataError when a file is missing (the message says how many).
    """
    data = DataDir.load(source)
    if data.wav is None or data.text is None or data.utt2spk is None:
        raise DataError(f"{source}: expected wav.scp, text and utt2spk")
    wav = {key: _absolute(entry, root) for key, entry in data.wav.items()}
    missing = [e for e in wav.values() if not is_input_pipe(e) and not os.path.isfile(split_offset(e)[0])]
    if missing:
        raise DataError(f"{source}/wav.scp: {len(missing)} of {len(wav)} recordings are missing, first {missing[0]}")
    return data_directory(wav, data.text, data.utt2spk, data.files.get("utt2uniq"))


def _absolute(entry: str, root: str | Path) -> str:
    return entry if is_input_pipe(entry) or entry.startswith("~") else os.path.abspath(os.path.join(root, entry))
