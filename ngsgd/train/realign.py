"""New alignments of the training data by the network in training, and the examples with labels of these.

The plan's column `alignment` counts them: rows with 0 train on the examples as they were made, rows with k > 0 on
those of realign.K/, which come from the model before the first such row: its priors are estimated, the data aligned,
and the archives relabelled. Held-out and diagnostic examples keep their first labels, so that scores of models before
and after can be compared. Each file is made only where it is missing: an interrupted realignment goes on.
"""

import os
import shlex
from pathlib import Path

from ngsgd.errors import DataError
from ngsgd.launch.client import Launcher, wait_for_files
from ngsgd.train import programs
from ngsgd.train.options import DriverOptions, TrainOptions
from ngsgd.train.plan import Row
from ngsgd.train.setup import Examples, Inputs
from ngsgd.train.workdir import Workdir


class Realigner:
    """Makes the directories of relabelled examples."""

    def __init__(
        self,
        work: Workdir,
        inputs: Inputs,
        examples: Examples,
        options: TrainOptions,
        how: DriverOptions,
        launcher: Launcher,
    ):
        self.work, self.inputs, self.examples = work, inputs, examples
        self.options, self.how, self.launcher = options, how, launcher

    def check(self, plan: list[Row]) -> None:
        """Raise DataError when the plan has realignments and they cannot be made."""
        if not any(row.alignment for row in plan):
            return
        if self.examples.ivector_dim or programs.archive_maker(self.examples.directory):
            what = "networks with i-vectors" if self.examples.ivector_dim else "examples that are made on the fly"
            raise DataError(f"{what} cannot be realigned: leave --realign-epochs out")
        for path in (f"{self.inputs.data}/text", f"{self.inputs.lang}/L.fst"):
            if not os.path.isfile(path):
                raise DataError(f"no such file: {path}, which --realign-epochs needs")

    def make(self, row: Row) -> None:
        """Make the archives that `row` trains on, where they are not there. DataError when a step fails."""
        if not row.alignment:
            return
        directory = self.work.realigned(row.alignment)
        archives = [f"{directory}/egs.{k}.ark" for k in range(1, self.examples.num_archives + 1)]
        if all(map(os.path.exists, archives)):
            return
        what, log = f"iteration {row.iteration}, realigning", f"{directory}/log"
        Path(log).mkdir(parents=True, exist_ok=True)
        self._align(row.iteration, what, directory, log)
        self._relabel(what, directory, log, archives)
        if self.how.cleanup and row.alignment > 1:
            self.work.remove_matching(f"realign.{row.alignment - 1}/egs.*.ark")

    def _align(self, x: int, what: str, directory: str, log: str) -> None:
        """Alignments of all training data by model x."""
        network = f"{directory}/network.mdl"
        if not os.path.exists(network):
            words = programs.adjust_priors(self.work.model(x), self.examples.directory, self.options.seed + x, network)
            self.launcher.run(what, f"{log}/adjust_priors.log", words, network)
        words = ["align_nnet.sh", "--cmd", self.how.cmd, "--nj", str(self.how.nj), "--model", network]
        if transforms := self._transforms():
            words += ["--transform-dir", transforms]
        self.launcher.run_script([*words, self.inputs.data, self.inputs.lang, str(self.work.path), directory], log)

    def _transforms(self) -> str:
        """The directory of the transforms that the examples were made with; "" for none."""
        recorded = Path(self.examples.directory, "transform_dir")
        if self.options.transform_dir or not self.work.has("speaker_transforms"):
            return self.options.transform_dir
        return recorded.read_text().strip() if recorded.exists() else self.inputs.ali

    def _relabel(self, what: str, directory: str, log: str, archives: list[str]) -> None:
        jobs = int(Path(directory, "num_jobs").read_text())
        files = " ".join(shlex.quote(f"{directory}/ali.{job}.gz") for job in range(1, jobs + 1))
        pdfs = f"ark:gunzip -c {files} | ali-to-pdf {shlex.quote(f'{directory}/network.mdl')} ark:- ark:- |"
        output = f"{directory}/egs.JOB.ark"
        relabel = ["egs-relabel", pdfs, f"ark:{self.examples.directory}/egs.JOB.ark", f"ark:{output}"]
        words = ["test", "-f", output, "||", *relabel]
        launched = self.launcher.start(what, f"{log}/relabel.JOB.log", words, (1, len(archives)))
        if launched.wait() != 0:
            raise DataError(launched.complaint())
        wait_for_files(archives, what)
