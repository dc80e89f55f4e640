"""Word error rates: of each hypothesis of a grid; the best of it and a fixed one with interval and speakers.

WER = (substitutions + deletions + insertions) / words of the reference, by the alignment with the fewest errors. The
interval is the bootstrap of Bisani & Ney (2004): utterances drawn with replacement, as in Kaldi's compute-wer-bootci.

Two figures, labelled: the best of the grid, as Kaldi's recipes report it (the weight is chosen on the test set itself),
and the one at a language-model weight and penalty fixed beforehand.
"""

import json
import logging
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from ngsgd.errors import DataError
from ngsgd.kaldi_io.files import open_text_writer
from ngsgd.kaldi_io.lists import read_lists, read_map
from ngsgd.kaldi_io.tables import SequentialReader
from ngsgd.options import opt

log = logging.getLogger(__name__)

Point = tuple[int, float]
"""Language-model weight and word insertion penalty of a hypothesis."""
Transcripts = dict[str, list[str]]


@dataclass
class ScoreOptions:
    """What counts, and how sure it is."""

    lmwt: int = opt(0, "language-model weight of the fixed figure; 0: the nearest to one over --acoustic-scale")
    acoustic_scale: float = opt(0.1, "acoustic scale that was decoded with")
    wip: float = opt(0.0, "word insertion penalty of the fixed figure")
    remove: str = opt(
        "<SIL>,<sil>,!SIL,SIL,<NOISE>,<SPOKEN_NOISE>,[NOISE],[SILENCE],<eps>",
        "words, with commas, taken out of reference and hypothesis; unknown words stay, as errors",
    )
    utt2spk: str = opt("", "speakers of the utterances, for a table by speaker")
    present: bool = opt(False, "leave out utterances without a hypothesis, instead of counting all their words deleted")
    replications: int = opt(10000, "bootstrap samples for the confidence interval")
    seed: int = opt(0, "seed of the bootstrap")

    @property
    def fixed_point(self) -> Point:
        """Where the fixed figure is taken. DataError when the scale makes no sense."""
        if self.acoustic_scale <= 0 or self.lmwt < 0:
            raise DataError(f"expected a positive scale and weight, got {self.acoustic_scale} and {self.lmwt}")
        return self.lmwt or round(1.0 / self.acoustic_scale), self.wip


@dataclass(frozen=True)
class Errors:
    """Counts over some utterances."""

    words: int = 0
    insertions: int = 0
    deletions: int = 0
    substitutions: int = 0
    utterances: int = 0
    wrong_utterances: int = 0

    @property
    def total(self) -> int:
        """Word errors."""
        return self.insertions + self.deletions + self.substitutions

    @property
    def wer(self) -> float:
        """Word error rate in percent; of no words at all, 0 or 100."""
        return 100.0 * self.total / self.words if self.words else 100.0 * bool(self.total)

    @property
    def ser(self) -> float:
        """Utterances with any error, in percent."""
        return 100.0 * self.wrong_utterances / max(1, self.utterances)

    def __add__(self, other: "Errors") -> "Errors":
        return Errors(*(a + b for a, b in zip(asdict(self).values(), asdict(other).values())))

    def line(self) -> str:
        """In Kaldi's words: `%WER 8.28 [ 12 / 145, 2 ins, 1 del, 9 sub ]`."""
        return (
            f"%WER {self.wer:.2f} [ {self.total} / {self.words}, {self.insertions} ins, {self.deletions} del, "
            f"{self.substitutions} sub ]"
        )


def errors_of(reference: list[str], hypothesis: list[str]) -> Errors:
    """Errors of one utterance."""
    from kaldialign import edit_distance

    found = edit_distance(reference, hypothesis)
    return Errors(len(reference), found["ins"], found["del"], found["sub"], 1, int(found["total"] > 0))


def confidence_interval(reference: Transcripts, hypothesis: Transcripts, options: ScoreOptions) -> tuple[float, float]:
    """The 95 % interval of the WER in percent."""
    from kaldialign import bootstrap_wer_ci

    keys = sorted(reference)
    found = bootstrap_wer_ci(
        [reference[k] for k in keys], [hypothesis[k] for k in keys], replications=options.replications,
        seed=options.seed,
    )  # fmt: skip
    # kaldialign's interval is the mean ± 1.96 standard deviations of the resampled rates, which knows no zero.
    return max(0.0, 100.0 * found["ci95min"]), 100.0 * found["ci95max"]


def _filtered(words: Iterable[str], removed: set[str]) -> list[str]:
    return [word for word in words if word not in removed]


def read_hypotheses(rspecifier: str, reference: Transcripts, fixed: Point) -> dict[Point, Transcripts]:
    """Hypotheses by point of the grid. A table of plain `UTTERANCE words` is taken for that of the fixed point.

    Raises DataError for a key that is neither an utterance of the reference nor `LMWT_WIP_` and one.
    """
    grid: dict[Point, Transcripts] = {}
    for key, words in SequentialReader(rspecifier, "tokens"):
        point, utterance = _parse_key(key, reference, fixed)
        if utterance not in reference:
            raise DataError(f"{rspecifier}: '{key}' is a hypothesis of no utterance of the reference")
        grid.setdefault(point, {})[utterance] = words
    if not grid:
        raise DataError(f"{rspecifier}: no hypotheses in it")
    return grid


def _parse_key(key: str, reference: Transcripts, fixed: Point) -> tuple[Point, str]:
    parts = key.split("_", 2)
    if key in reference or len(parts) < 3:
        return fixed, key
    try:
        return (int(parts[0]), float(parts[1])), parts[2]
    except ValueError:
        return fixed, key


@dataclass(frozen=True)
class Result:
    """A point of the grid and its errors, by utterance."""

    point: Point
    by_utterance: dict[str, Errors]
    hypothesis: Transcripts

    @property
    def errors(self) -> Errors:
        """Of all utterances together."""
        return sum(self.by_utterance.values(), Errors())


def score_point(point: Point, reference: Transcripts, hypothesis: Transcripts) -> Result:
    """Errors at one point; both transcripts have the same utterances."""
    return Result(point, {k: errors_of(reference[k], hypothesis[k]) for k in sorted(reference)}, hypothesis)


def score(reference_path: str, rspecifier: str, directory: str, options: ScoreOptions) -> Result:
    """Score a table of hypotheses against a reference `text`; returns the fixed result, or the best without it.

    Writes to `directory`: wer.tsv (a line each point), best_wer and fixed_wer (a line as Kaldi's, with the interval),
    wer.json (both in numbers), best.txt and fixed.txt (hypotheses), ref.txt, and with speakers per_spk.tsv (of the
    fixed point). Raises DataError for an empty reference or no hypotheses.
    """
    removed = {word for word in options.remove.split(",") if word}
    reference = {k: _filtered(words, removed) for k, words in read_lists(reference_path).items()}
    if not reference:
        raise DataError(f"{reference_path}: no utterances in it")
    fixed_point = options.fixed_point
    grid = read_hypotheses(rspecifier, reference, fixed_point)
    reference = _with_hypotheses(reference, grid, options.present)
    if not any(reference.values()):
        raise DataError(f"{reference_path}: no words in it")
    results = {}
    for point, hypotheses in grid.items():
        complete = {k: _filtered(hypotheses.get(k, []), removed) for k in reference}
        results[point] = score_point(point, reference, complete)
    if fixed_point not in results:
        log.warning("%s: no hypotheses at the fixed point, weight %d and penalty %s", rspecifier, *fixed_point)
    best = min(results.values(), key=lambda r: (r.errors.total, r.point[1], r.point[0]))
    fixed = results.get(fixed_point)
    Path(directory).mkdir(parents=True, exist_ok=True)
    _write(Path(directory), reference, results, best, fixed, options)
    return fixed or best


def _with_hypotheses(reference: Transcripts, grid: dict[Point, Transcripts], present: bool) -> Transcripts:
    """The utterances that count; the others are named."""
    found = set.union(*(set(hypotheses) for hypotheses in grid.values()))
    missing = sorted(set(reference) - found)
    if missing:
        log.warning(
            "%d of %d utterances have no hypothesis (%s%s): %s", len(missing), len(reference), ", ".join(missing[:5]),
            ", ..." if len(missing) > 5 else "", "left out" if present else "all their words count as deleted",
        )  # fmt: skip
    return {k: words for k, words in reference.items() if k in found} if present else reference


def _write(
    directory: Path,
    reference: Transcripts,
    results: dict[Point, Result],
    best: Result,
    fixed: Result | None,
    options: ScoreOptions,
) -> None:
    rows = [["lmwt", "wip", "wer", "errors", "words", "ins", "del", "sub", "ser", "utterances"]]
    for point in sorted(results, key=lambda p: (p[1], p[0])):
        e = results[point].errors
        rows.append([*point, f"{e.wer:.2f}", e.total, e.words, e.insertions, e.deletions, e.substitutions,
                     f"{e.ser:.2f}", e.utterances])  # fmt: skip
    _write_rows(directory / "wer.tsv", rows)
    _write_transcripts(directory / "ref.txt", reference)
    summary = {}
    for name, result in (("best", best), ("fixed", fixed)):
        if result is None:
            continue
        low, high = confidence_interval(reference, result.hypothesis, options)
        label = f"best of {len(results)} weights and penalties" if name == "best" else "weight and penalty fixed"
        line = (
            f"{result.errors.line()} {directory}/{name}.txt 95% interval {low:.2f}..{high:.2f} SER "
            f"{result.errors.ser:.2f} lmwt {result.point[0]} wip {result.point[1]} ({label})"
        )
        log.info("%s", line)
        with open_text_writer(str(directory / f"{name}_wer")) as out:
            out.write(line + "\n")
        _write_transcripts(directory / f"{name}.txt", result.hypothesis)
        summary[name] = {
            "wer_percent": result.errors.wer,
            "interval_percent": [low, high],
            "ser_percent": result.errors.ser,
            "lmwt": result.point[0],
            "wip": result.point[1],
            **asdict(result.errors),
        }
    if options.utt2spk:
        _write_rows(directory / "per_spk.tsv", _speaker_rows(read_map(options.utt2spk), fixed or best))
    with open_text_writer(str(directory / "wer.json")) as out:
        out.write(json.dumps(summary, indent=1) + "\n")


def _speaker_rows(utt2spk: dict[str, str], result: Result) -> list[list]:
    """A line each speaker, most words first."""
    speakers: dict[str, Errors] = {}
    for utterance, errors in result.by_utterance.items():
        if utterance not in utt2spk:
            raise DataError(f"utt2spk: no speaker of '{utterance}'")
        speakers[utt2spk[utterance]] = speakers.get(utt2spk[utterance], Errors()) + errors
    rows: list[list] = [["speaker", "utterances", "words", "wer", "ins", "del", "sub", "ser"]]
    for speaker, e in sorted(speakers.items(), key=lambda item: (-item[1].words, item[0])):
        rows.append([speaker, e.utterances, e.words, f"{e.wer:.2f}", e.insertions, e.deletions, e.substitutions,
                     f"{e.ser:.2f}"])  # fmt: skip
    return rows


def _write_rows(path: Path, rows: list[list]) -> None:
    with open_text_writer(str(path)) as out:
        out.writelines("\t".join(map(str, row)) + "\n" for row in rows)


def _write_transcripts(path: Path, transcripts: Transcripts) -> None:
    with open_text_writer(str(path)) as out:
        out.writelines(f"{k} {' '.join(words)}".rstrip() + "\n" for k, words in sorted(transcripts.items()))
