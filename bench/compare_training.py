#!/usr/bin/env python3
"""Train the same network by several update rules and numbers of jobs, and print what came of each, as Markdown tables.

Usage: compare_training.py [options] DATA LANG ALI_DIR EXP
e.g.: compare_training.py --settings "online/1 online/8 sgd/8" --train-opts "--num-epochs 8" \\
          --decode "--transform-dir exp/tri3b/decode_test exp/tri3b/graph data/test" \\
          data/train data/lang exp/tri3b_ali exp/compare

A setting is UPDATE_RULE/JOBS with further options of train_ngsgd.py behind it, separated by commas
(sgd/4,--seed=1); its directory is EXP/UPDATE_RULE_JOBS... All train on the examples that the first one makes. What is
done already is not done again. To be called in a recipe's directory, with its environment (. ../../utils/path.sh).
"""

import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path

from ngsgd import cli
from ngsgd.decode.results import load_result
from ngsgd.errors import DataError
from ngsgd.options import opt
from ngsgd.report.progress import Progress


@dataclass
class CompareOptions:
    settings: str = opt("online/1 online/4 sgd/1 sgd/4", "what to compare: UPDATE_RULE/JOBS[,OPTION...] ...")
    train_opts: str = opt("", "options of train_ngsgd.py that all have")
    decode: str = opt("", "options and arguments of decode_nnet.sh but for the output directory; '': do not decode")
    reach: str = opt("", "held-out log-probs whose first reaching is listed, e.g. '-0.5 -0.4'")
    epochs: str = opt("1 2 4 8", "epochs after which log-probs are listed")
    nj: int = opt(4, "jobs of making examples and of decoding")
    cmd: str = opt("run.py", "launcher of all jobs")


def name_of(setting: str) -> str:
    return setting.replace("/", "_").replace(",--", "_").replace("=", "_").replace(",", "_").replace(" ", "_")


def train(options: CompareOptions, setting: str, data: str, lang: str, ali: str, exp: Path) -> Path:
    """Train and decode one setting; returns its directory."""
    rule, _, rest = setting.partition("/")
    jobs, *more = rest.split(",")
    directory = exp / name_of(setting)
    how = ["--cmd", options.cmd, "--nj", str(options.nj)]
    words = ["train_ngsgd.py", *how, "--egs-dir", str(exp / "egs"), f"--update-rule={rule}"]
    words += [f"--num-jobs-initial={jobs}", f"--num-jobs-final={jobs}", *shlex.split(options.train_opts), *more]
    _call([*words, data, lang, ali, str(directory)])
    if options.decode:
        _call(["decode_nnet.sh", *how, *shlex.split(options.decode), str(directory / "decode")])
    return directory


def _call(words: list[str]) -> None:
    if subprocess.run(words, check=False).returncode:
        raise DataError(f"{shlex.join(words)} failed")


def row(setting: str, directory: Path, options: CompareOptions) -> list[str]:
    """Log-probs by epoch, samples to reach a held-out log-prob, and error rates of one setting."""
    records = [r for _, r in sorted(Progress(str(directory / "progress.tsv")).records.items()) if r.epoch is not None]
    scored = [r for r in records if r.valid_logprob is not None and r.model > 0]
    cells = [setting]
    for epoch in map(float, options.epochs.split()):
        past = [r for r in scored if r.epoch <= epoch + 1e-6]
        cells.append(f"{past[-1].valid_logprob:.3f} / {past[-1].train_logprob:.3f}" if past else "")
    best = max(scored, key=lambda r: r.valid_logprob)
    cells.append(f"{best.valid_logprob:.3f} ({best.epoch:.1f})")
    for target in map(float, options.reach.split()):
        reached = [r for r in scored if r.valid_logprob >= target]
        frames = sum(r.frames or 0 for r in records if reached and r.model <= reached[0].model)
        cells.append(f"{frames / 1e6:.2f}" if reached else "never")
    if options.decode:
        result = load_result(str(directory / "decode"))
        fixed, low_high = result["fixed"]["wer_percent"], result["fixed"]["interval_percent"]
        cells += [f"{fixed:.2f} ({low_high[0]:.2f} .. {low_high[1]:.2f})", f"{result['best']['wer_percent']:.2f}"]
    return cells


@cli.program(__doc__)
@cli.options_from(CompareOptions)
@cli.argument("data")
@cli.argument("lang")
@cli.argument("ali_dir")
@cli.argument("exp")
def main(compare, data, lang, ali_dir, exp):
    exp_dir = Path(exp)
    header = ["setting", *(f"valid / train, epoch {e}" for e in compare.epochs.split()), "best valid (epoch)"]
    header += [f"M samples to {target}" for target in compare.reach.split()]
    header += ["WER % (95 %)", "best of grid"] if compare.decode else []
    rows = [header, ["---"] * len(header)]
    egs = ["make_egs.sh", "--cmd", compare.cmd, "--nj", str(compare.nj)]
    context = [w for w in shlex.split(compare.train_opts) if w.split("=")[0][2:] in EGS_OPTIONS]
    _call([*egs, *context, data, ali_dir, str(exp_dir / "egs")])
    for setting in compare.settings.split():
        rows.append(row(setting, train(compare, setting, data, lang, ali_dir, exp_dir), compare))
    for cells in rows:
        print("| " + " | ".join(cells) + " |")


# Options of train_ngsgd.py that make_egs.sh has under the same names, given as --name=value.
EGS_OPTIONS = {"left-context", "right-context", "frames-per-eg", "samples-per-iter", "min-passes", "num-utts-subset"}

if __name__ == "__main__":
    main()
