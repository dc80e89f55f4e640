"""Jobs on a Slurm cluster: sbatch, squeue, scancel; sacct where it keeps accounts."""

import os
import re

from ngsgd.launch.cluster import Engine, State, Unreachable, launch_on
from ngsgd.launch.registry import launchers
from ngsgd.launch.request import Request

# Reasons of a waiting job that waiting does not cure.
HOPELESS = {
    "BadConstraints",
    "PartitionTimeLimit",
    "PartitionNodeLimit",
    "launch failed requeued held",
    "JobHoldMaxRequeue",
}
ENDED = {
    "COMPLETED": "",
    "FAILED": "",
    "TIMEOUT": "time limit reached",
    "DEADLINE": "deadline reached",
    "OUT_OF_MEMORY": "memory limit exceeded",
    "NODE_FAIL": "its node was lost",
    "BOOT_FAIL": "its node was lost",
    "PREEMPTED": "preempted by another job",
    "CANCELLED": "cancelled",
    "REVOKED": "cancelled",
}


class Slurm(Engine):
    title = "Slurm"
    usual = "conf/slurm.conf"
    default = """
        command sbatch
        option time=* --time=$0
        option mem=* --mem=$0
        option mem=0
        option num_threads=* --cpus-per-task=$0
        option gpu=* --gres=gpu:$0
        option gpu=0
    """
    index = "SLURM_ARRAY_TASK_ID"
    own_id = "$SLURM_JOB_ID"
    own = {"-sync": 1, "-V": 0, "-cwd": 0, "-S": 1, "-o": 1, "-e": 1, "-a": 1, "-W": 0}
    transient = re.compile(
        r"contact slurm controller|Socket timed out|Connection refused|Zero Bytes|standby|[Tt]ry again|timed out"
        r"|temporar|Munge|munge|Communication|Transport endpoint|Unexpected message|rate limit|Rate limit"
    )

    def words(self, name: str, output: str, count: int, limit: int | None) -> list[str]:
        path = output.replace("%", "%%").format(index="%a" if count > 1 else "1")
        array = f"--array=1-{count}" + (f"%{limit}" if limit and limit < count else "")
        # A job that Slurm would start again by itself is ours to try again, by --max-tries.
        words = ["--parsable", "--no-requeue", "--open-mode=append", f"--job-name={name}", f"--output={path}"]
        return [*words, array] if count > 1 else words

    def id_in(self, answer: str) -> str | None:
        ids = [line.split(";")[0] for line in answer.split("\n") if re.fullmatch(r"\d+(;\S+)?", line.strip())]
        return ids[-1].strip() if ids else None

    def states(self, ids: list[str]) -> dict[tuple[str, int], State]:
        states = {}
        for id in ids:  # one by one: a single one that Slurm has forgotten spoils the answer for all
            try:
                answer = self.ask(["squeue", "-h", "-t", "all", "-r", "-j", id, "-o", "%K|%T|%r"])
            except Unreachable as error:
                if "Invalid job id" not in str(error):
                    raise
                continue
            for line in answer.splitlines():
                index, state, reason = line.strip().split("|", 2)
                states[id, int(index) if index.isdigit() else 1] = _state(state, reason)
        return states

    def post_mortem(self, id: str, index: int) -> str:
        try:
            answer = self.ask(["sacct", "-n", "-P", "-X", "-j", id, "-o", "JobID,State"])
        except Unreachable:  # many sites keep no accounts
            return ""
        found = dict(line.split("|", 1) for line in answer.splitlines() if "|" in line)
        state = found.get(f"{id}_{index}") or found.get(id) or ""
        return ENDED.get(state.split(" ")[0], "")

    def cancel_words(self, ids: list[str]) -> list[str]:
        return ["scancel", *ids]

    def environment(self) -> dict[str, str]:
        kept = ("SLURM_CONF", "SLURM_CLUSTERS", "SLURM_TIME_FORMAT")
        return {name: value for name, value in os.environ.items() if name in kept or not name.startswith("SLURM_")}


def _state(state: str, reason: str) -> State:
    if state == "PENDING" and reason in HOPELESS:
        return State(False, f"Slurm can never start it: {reason}", stuck=True)
    if state not in ENDED:
        return State(True)
    # Without control groups, Slurm calls a batch script that was killed one that failed to launch.
    return State(False, "a signal" if reason in ("JobLaunchFailure", "RaisedSignal") else ENDED[state])


@launchers.register("slurm")
def launch(request: Request) -> int:
    """Run the request's jobs on Slurm, by the contract of registry.py. Raises DataError when it takes none."""
    return launch_on(Slurm(), request)
