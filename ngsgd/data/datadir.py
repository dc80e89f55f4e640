"""The data directory: which files it may have, what their lines are about, loading, choosing, writing.

| file | id | line |
|---|---|---|
| wav.scp | recording (utterance, without segments) | path, `command |` or `file:offset` |
| segments | utterance | recording, start and end in seconds, perhaps a channel |
| utt2spk, spk2utt | utterance, speaker | speaker, utterances |
| text | utterance | words |
| feats.scp, vad.scp, utt2dur, utt2num_frames, utt2lang | utterance | |
| cmvn.scp, spk2gender | speaker | |
| reco2dur, reco2file_and_channel | recording | |

All sorted by id in the C locale (the order of the UTF-8 bytes, which is Python's order of strings).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from ngsgd.data.scan import DAMAGED, Scan
from ngsgd.data.segments import Segment, parse_segment
from ngsgd.errors import DataError
from ngsgd.kaldi_io.files import open_text_writer
from ngsgd.kaldi_io.lists import read_map, write_map

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
    "spk2gender": SPEAKER,
    "reco2dur": RECORDING,
    "reco2file_and_channel": RECORDING,
}


def scan_file(path: Path) -> Scan:
    """The scan of one file of a data directory, by its name."""
    return Scan(path, keep_spacing=path.name.endswith(".scp"))


def scan_directory(path: Path) -> dict[str, Scan]:
    """The scan of every known file that is there. Raises DataError when there is no such directory."""
    if not path.is_dir():
        raise DataError(f"{path}: no such data directory")
    return {name: scan_file(path / name) for name in FILES if (path / name).is_file()}


@dataclass(frozen=True)
class DataDir:
    """A data directory in memory.

    path: where it came from.  files: name -> {id: rest of the line}, ids sorted, for the files that are there.
    """

    path: Path
    files: dict[str, dict[str, str]] = field(default_factory=dict)

    @classmethod
    def load(cls, path: str | Path) -> "DataDir":
        """Read every known file.

        Raises DataError for no directory, none of utt2spk, segments and wav.scp, or lines that cannot be read without
        guessing (not UTF-8, an id twice). Odd white space and wrong order are put right silently (`validate` names
        them).
        """
        path = Path(path)
        scans = scan_directory(path)
        damaged = [str(p) for scan in scans.values() for p in scan.problems if p.level == DAMAGED]
        if damaged:
            more = f" (and {len(damaged) - 1} more)" if len(damaged) > 1 else ""
            raise DataError(f"{damaged[0]}{more}; utils/fix_data_dir.py {path} repairs what it can")
        if not any(name in scans for name in ("utt2spk", "segments", "wav.scp")):
            raise DataError(f"{path}: expected a data directory, found none of utt2spk, segments, wav.scp")
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
        return list(next(self.files[name] for name in ("utt2spk", "segments", "wav.scp") if name in self.files))

    def recording_of(self, utterance: str) -> str:
        """The id in wav.scp that the utterance is cut from."""
        segments = self.files.get("segments")
        return utterance if segments is None else segments.get(utterance, utterance).split()[0]

    def select(self, utterances: Iterable[str]) -> "DataDir":
        """The directory of only these utterances, with their speakers and recordings."""
        chosen = set(utterances)
        utt2spk = self.utt2spk or {}
        wanted = {
            UTTERANCE: chosen,
            SPEAKER: {utt2spk[u] for u in chosen if u in utt2spk},
            RECORDING: {self.recording_of(u) for u in chosen},
        }
        files = {
            name: {key: rest for key, rest in lines.items() if key in wanted[FILES[name]]}
            for name, lines in self.files.items()
        }
        if "utt2spk" in files:
            files["spk2utt"] = {spk: " ".join(utts) for spk, utts in speakers_of(files["utt2spk"]).items()}
        return DataDir(self.path, files)

    def write(self, path: str | Path) -> None:
        """Write the files into directory `path`, touching only those whose content changes; known ones not ours go."""
        path = Path(path)
        try:
            path.mkdir(parents=True, exist_ok=True)
            for name in FILES:
                if name not in self.files:
                    (path / name).unlink(missing_ok=True)
                    continue
                content = "".join(f"{key} {rest}\n" for key, rest in sorted(self.files[name].items()))
                if not _has(path / name, content):
                    with open_text_writer(str(path / name)) as stream:
                        stream.write(content)
        except OSError as error:
            raise DataError(f"cannot write {error.filename or path}: {error.strerror}") from None


def speakers_of(utt2spk: dict[str, str]) -> dict[str, list[str]]:
    """utt2spk turned round: speaker -> utterances, both sorted."""
    spk2utt: dict[str, list[str]] = {}
    for utterance, speaker in sorted(utt2spk.items()):
        spk2utt.setdefault(speaker, []).append(utterance)
    return dict(sorted(spk2utt.items()))


def write_spk2utt(utt2spk: str, spk2utt: str) -> None:
    """Turn the file `utt2spk` round. Raises DataError for lines that are not `utterance speaker`, or none."""
    entries = read_map(utt2spk)
    for utterance, speaker in entries.items():
        if len(speaker.split()) != 1:
            raise DataError(f"{utt2spk}: expected 'utterance speaker', found '{utterance} {speaker}'")
    if not entries:
        raise DataError(f"{utt2spk}: empty, expected lines 'utterance speaker'")
    write_map(spk2utt, speakers_of(entries))


def _has(path: Path, content: str) -> bool:
    return path.is_file() and path.read_bytes() == content.encode()
