"""Copying a data directory, with other names for its utterances and speakers if wanted."""

from dataclasses import dataclass, fields
from pathlib import Path

from ngsgd.data.datadir import FILES, RECORDING, SPEAKER, UTTERANCE, DataDir, with_spk2utt
from ngsgd.errors import DataError
from ngsgd.options import opt


@dataclass
class CopyOptions:
    """What is added to ids."""

    utt_prefix: str = opt("", "put before each utterance id")
    utt_suffix: str = opt("", "put behind each utterance id")
    spk_prefix: str = opt(
        "", "put before each speaker id; give it too where utterances get one, so that they sort alike"
    )
    spk_suffix: str = opt("", "put behind each speaker id")


def copy(source: str | Path, target: str | Path, options: CopyOptions) -> DataDir:
    """Write a copy of the data directory `source` to `target`, which must be another.

    Where utterances get other names, utt2uniq says of what original each is a version. A recording has the name of
    its utterance unless there are segments, and then keeps its own. Raises DataError for additions with white space.
    """
    for field in fields(options):
        if len(f"x{getattr(options, field.name)}".split()) != 1:
            raise DataError(
                f"--{field.name.replace('_', '-')}: expected no white space, got '{getattr(options, field.name)}'"
            )
    if Path(source).resolve() == Path(target).resolve():
        raise DataError(f"{source}: expected another directory to copy to")
    directory = DataDir.load(source)

    def utterance(name: str) -> str:
        return f"{options.utt_prefix}{name}{options.utt_suffix}"

    def speaker(name: str) -> str:
        return f"{options.spk_prefix}{name}{options.spk_suffix}"

    rename = {UTTERANCE: utterance, SPEAKER: speaker}
    rename[RECORDING] = str if "segments" in directory.files else utterance
    files = {n: {rename[FILES[n]](key): rest for key, rest in lines.items()} for n, lines in directory.files.items()}
    if "utt2spk" in files:
        files["utt2spk"] = {key: speaker(spk) for key, spk in files["utt2spk"].items()}
    if options.utt_prefix or options.utt_suffix:
        files.setdefault("utt2uniq", {utterance(u): u for u in directory.utterances})
    made = DataDir(Path(target), with_spk2utt(files))
    made.write(target)
    return made
