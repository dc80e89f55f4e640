"""The data directory: which files it may have, what their lines are about, loading, choosing, writing.

| file | id | line |
|---|---|---|
| wav.scp | recording (utterance, without segments) | path, `command |` or `file:offset` |
| segments | utterance | recording, start and end in seconds, perhaps a channel |
| utt2spk, spk2utt | utterance, speaker | speaker, utterances |
| text | utterance | words |
| feats.scp, vad.scp, utt2dur, utt2num_frames, utt2lang, utt2warp | utterance | |
| utt2uniq | utterance | the original that it is a version of |
| cmvn.scp, spk2gender, spk2warp | speaker | |
| reco2dur, reco2file_and_channel | recording | |

All sorted by id in the C locale (the order of the UTF-8 bytes, which is Python's order of strings).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from ngsgd.data.scan import DAMAGED, ERROR, Scan
from ngsgd.data.segments import Segment, parse_segment
from ngsgd.errors import DataError
from ngsgd.kaldi_io.files import open_bytes_writer
from ngsgd.kaldi_io.lists import read_lists, read_map, write_map

UTTERANCE, SPEAKER, RECORDING = "utterance", "speaker", "recording"

FILES = {
    "utt2spk": UTTERANCE,
    "spk2utt": SPEAKER,
    "text": UTTERANCE,
    "wav.scp": RECORDING,
    "segments": UTTERANCE,
    "feats.scp": UTTERANCE,
    "cmvn.scp": SPEAKER,
    "vad.scp": UTTERANCE,
    "utt2dur": UTTERANCE,
    "utt2num_frames": UTTERANCE,
    "utt2lang": UTTERANCE,
    "utt2uniq": UTTERANCE,
    "utt2warp": UTTERANCE,
    "spk2gender": SPEAKER,
    "spk2warp": SPEAKER,
    "reco2dur": RECORDING,
    "reco2file_and_channel": RECORDING,
}


NAMES_UTTERANCES = ("utt2spk", "segments", "wav.scp")  # the first that is there says which utterances there are


def scan_directory(path: Path, names: Iterable[str] = tuple(FILES), odd: str = ERROR) -> dict[str, Scan]:
    """The scan of those of the files `names` that are there; `odd`: how bad odd characters are.

    Raises DataError when there is no such directory.
    """
    if not path.is_dir():
        raise DataError(f"{path}: no such data directory")
    scans: dict[str, Scan] = {}
    keys: list[list[str]] = []
    for name in names:
        if (path / name).is_file():
            scans[name] = Scan(path / name, name.endswith(".scp"), odd, keys)
            keys.append(list(scans[name].values))
    return scans


@dataclass(frozen=True)
class DataDir:
    """A data directory in memory.

    path: where it came from.  files: name -> {id: rest of the line}, ids sorted, for the files that are there.
    """

    path: Path
    files: dict[str, dict[str, str]] = field(default_factory=dict)

    @classmethod
    def load(cls, path: str | Path, names: Iterable[str] = tuple(FILES)) -> "DataDir":
        """Read those of the files `names` that are there.

        Raises DataError for no directory, none of utt2spk, segments and wav.scp, or lines that cannot be read without
        guessing (not UTF-8, an id twice). Odd white space and wrong order are put right silently (`validate` names
        them).
        """
        path = Path(path)
        scans = scan_directory(path, names)
        damaged = sum(scan.problems.count(DAMAGED) for scan in scans.values())
        if damaged:
            first = next(p for scan in scans.values() for p in scan.problems if p.level == DAMAGED)
            more = f" (and {damaged - 1} more)" if damaged > 1 else ""
            raise DataError(f"{first}{more}; utils/fix_data_dir.py {path} repairs what it can")
        if not any(name in scans for name in NAMES_UTTERANCES):
            raise DataError(f"{path}: expected a data directory, found none of {', '.join(NAMES_UTTERANCES)}")
        return cls(path, {name: scan.lines() for name, scan in scans.items()})

    @property
    def wav(self) -> dict[str, str] | None:
        """Recording -> path or command."""
        return self.files.get("wav.scp")

    @property
    def segments(self) -> dict[str, Segment] | None:
        """Utterance -> its stretch of a recording. Raises DataError for a line that is none."""
        lines = self.files.get("segments")
        if lines is None:
            return None
        return {key: parse_segment(rest, f"{self.path}/segments: '{key}'") for key, rest in lines.items()}

    @property
    def utt2spk(self) -> dict[str, str] | None:
        """Utterance -> speaker."""
        return self.files.get("utt2spk")

    @property
    def spk2utt(self) -> dict[str, list[str]] | None:
        """Speaker -> utterances: utt2spk turned round."""
        return speakers_of(self.utt2spk) if self.utt2spk is not None else None

    @property
    def text(self) -> dict[str, str] | None:
        """Utterance -> words."""
        return self.files.get("text")

    @property
    def utterances(self) -> list[str]:
        """Utterance ids, sorted."""
        return list(next(self.files[name] for name in NAMES_UTTERANCES if name in self.files))

    def recording_of(self, utterance: str) -> str:
        """The id in wav.scp that the utterance is cut from."""
        segments = self.files.get("segments")
        return utterance if segments is None else segments.get(utterance, utterance).partition(" ")[0]

    def select(self, utterances: Iterable[str]) -> "DataDir":
        """The directory of only these utterances, with their speakers and recordings."""
        chosen = set(utterances)
        utt2spk = self.utt2spk or {}
        wanted = {
            UTTERANCE: chosen,
            SPEAKER: {utt2spk[u] for u in chosen if u in utt2spk},
            RECORDING: {self.recording_of(u) for u in chosen},
        }
        order = {kind: sorted(ids) for kind, ids in wanted.items()}
        files = {}
        for name, lines in self.files.items():
            whole = lines.keys() == wanted[FILES[name]]
            files[name] = lines if whole else {key: lines[key] for key in order[FILES[name]] if key in lines}
        return DataDir(self.path, with_spk2utt(files))

    def content(self, name: str) -> bytes:
        """What the file is written as."""
        lines = self.files[name]
        order = sorted(lines)
        if order != list(lines):
            lines = {key: lines[key] for key in order}
        return "".join([f"{key} {rest}\n" for key, rest in lines.items()]).encode()

    def changed(self, path: str | Path) -> list[str]:
        """The known files that are in directory `path` and would not be as they are after `write`."""
        there = [name for name in FILES if (Path(path) / name).is_file()]
        return [n for n in there if n not in self.files or not _has(Path(path) / n, self.content(n))]

    def write(self, path: str | Path) -> None:
        """Write the files into directory `path`, touching only those whose content changes; known ones not ours go."""
        path = Path(path)
        try:
            path.mkdir(parents=True, exist_ok=True)
            for name in FILES:
                if name not in self.files:
                    (path / name).unlink(missing_ok=True)
                    continue
                content = self.content(name)
                if not _has(path / name, content):
                    with open_bytes_writer(str(path / name)) as stream:
                        stream.write(content)
        except OSError as error:
            raise DataError(f"cannot write {error.filename or path}: {error.strerror}") from None


def speakers_of(utt2spk: dict[str, str]) -> dict[str, list[str]]:
    """utt2spk turned round: speaker -> utterances, both sorted."""
    spk2utt: dict[str, list[str]] = {}
    for utterance in sorted(utt2spk):
        spk2utt.setdefault(utt2spk[utterance], []).append(utterance)
    return dict(sorted(spk2utt.items()))


def with_spk2utt(files: dict[str, dict[str, str]]) -> dict[str, dict[str, str]]:
    """The files with a spk2utt that is their utt2spk turned round, if they have one."""
    if "utt2spk" not in files:
        return files
    return {**files, "spk2utt": {spk: " ".join(utts) for spk, utts in speakers_of(files["utt2spk"]).items()}}


def write_spk2utt(utt2spk: str, spk2utt: str) -> None:
    """Turn the file `utt2spk` round. Raises DataError for lines that are not `utterance speaker`, or none."""
    entries = read_map(utt2spk)
    for utterance, speaker in entries.items():
        if len(speaker.split()) != 1:
            raise DataError(f"{utt2spk}: expected 'utterance speaker', found '{utterance} {speaker}'")
    if not entries:
        raise DataError(f"{utt2spk}: empty, expected lines 'utterance speaker'")
    write_map(spk2utt, speakers_of(entries))


def write_utt2spk(spk2utt: str, utt2spk: str) -> None:
    """Turn the file `spk2utt` round.

    Raises DataError for a speaker without utterances, an utterance of two speakers, or no lines.
    """
    entries: dict[str, str] = {}
    for speaker, utterances in read_lists(spk2utt).items():
        if not utterances:
            raise DataError(f"{spk2utt}: expected 'speaker utterance ...', found '{speaker}' alone")
        for utterance in utterances:
            if utterance in entries:
                raise DataError(f"{spk2utt}: '{utterance}' is of '{entries[utterance]}' and of '{speaker}'")
            entries[utterance] = speaker
    if not entries:
        raise DataError(f"{spk2utt}: empty, expected lines 'speaker utterance ...'")
    write_map(utt2spk, entries)


def _has(path: Path, content: bytes) -> bool:
    return path.is_file() and path.stat().st_size == len(content) and path.read_bytes() == content
