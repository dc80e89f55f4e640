"""From the models of the iterations to final.mdl: chosen on held-out frames, with priors from its own posteriors.

Which models take part: the best on held-out frames, --max-models-combine / 2, and the latest ones up to the whole of
it; never those from before the last layer was added. On small data a network overfits long before the plan's end, and
then the best ones are early. nnet-combine gets them from worst to best on held-out frames, so that the averages it
tries are of the best ones, and takes nothing that is worse on other held-out frames (valid_combine.egs) than the best
model.
"""

import json
import logging

from ngsgd.kaldi_io.files import open_text_writer
from ngsgd.launch.client import Launcher
from ngsgd.train import programs
from ngsgd.train.diagnostics import Scores, read_scores, score_command
from ngsgd.train.options import TrainOptions
from ngsgd.train.plan import Row
from ngsgd.train.workdir import Workdir, read_stats

log = logging.getLogger(__name__)


def first_whole_model(rows: list[Row]) -> int:
    """The first model that has all layers and outputs and has been trained with them."""
    return 1 + max((row.iteration for row in rows if row.reshapes), default=0)


def candidates(scores: dict[int, Scores], first: int, last: int, options: TrainOptions) -> list[int]:
    """Models (numbers) for the final one, from worst to best on held-out frames; of `first`..`last`.

    A model that is neither here nor among the latest will not be here after further iterations either.
    """
    if options.final == "last":
        return [last]
    best = sorted((x for x in scores if first <= x <= last), key=lambda x: (-scores[x].valid_logprob, x))
    latest = range(max(first, last + 1 - options.max_models_combine), last + 1)
    chosen = best[: max(1, options.max_models_combine // 2)]
    chosen += sorted(set(latest) - set(chosen), reverse=True)[: options.max_models_combine - len(chosen)]
    return sorted(chosen, key=lambda x: (scores[x].valid_logprob if x in scores else float("-inf"), -x))


def is_finished(work: Workdir) -> bool:
    """Whether the final model and its scores are there: nothing is left to do."""
    return work.has("final.mdl") and work.has("stats/train.final.json")


def choice(work: Workdir) -> str:
    """In words, what nnet-combine chose for the final model; "" where it had no choice or left no word of it."""
    if not work.has("stats/combine.json"):
        return ""
    candidates = read_stats(work.file("stats/combine.json"))["candidates"]
    return f"{candidates[0]['name']}, the best of {len(candidates)} candidates on held-out frames"


def make_final(
    work: Workdir, egs: str, rows: list[Row], scores: dict[int, Scores], options: TrainOptions, launcher: Launcher
) -> Scores:
    """Make final.mdl of the models of `rows`, unless it is there; returns its scores. DataError when a job fails."""
    last = len(rows)
    if not work.has("final.mdl"):
        models = candidates(scores, min(first_whole_model(rows), last), last, options)
        chosen = work.model(models[0])
        if options.final != "last":
            chosen = work.file("combined.mdl")
            stats, fit = work.file("stats/combine.json"), options.final == "combine"
            words = programs.combine([work.model(x) for x in models], egs, fit, stats, chosen)
            launcher.run("the final combination", work.log("combine"), words, chosen)
        words = programs.adjust_priors(chosen, egs, options.seed, work.file("final.mdl"))
        with open_text_writer(work.file("final.json")) as out:
            json.dump({"how": options.final, "models": models}, out)
            out.write("\n")
        launcher.run("adjusting the priors", work.log("adjust_priors"), words, work.file("final.mdl"))
    if not is_finished(work):
        words = score_command(work, egs, work.file("final.mdl"), "final")
        words += ["&&", *programs.describe(work.file("final.mdl"), work.file("stats/network.txt"))]
        stats = work.file("stats/train.final.json")
        launcher.run("scoring the final model", work.log("compute_prob.final"), words, stats)
    return read_scores(work, "final")
