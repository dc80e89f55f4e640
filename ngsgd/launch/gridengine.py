"""Jobs on Grid Engine (Sun's and its descendants): qsub, qstat, qdel; qacct tells what became of a job."""

import re
import xml.etree.ElementTree as ElementTree

from ngsgd.launch.cluster import Engine, State, Unreachable, launch_on
from ngsgd.launch.registry import launchers
from ngsgd.launch.request import Request


class GridEngine(Engine):
    title = "Grid Engine"
    usual = "conf/queue.conf"
    default = """
        command qsub
        option time=* -l h_rt=$0
        option mem=* -l mem_free=$0
        option mem=0
        option num_threads=* -pe smp $0
        option num_threads=1
        option gpu=* -l gpu=$0
        option gpu=0
    """
    index = "SGE_TASK_ID"
    own_id = "$JOB_ID"
    own = {"-sync": 1, "-cwd": 0, "-S": 1, "-j": 1, "-o": 1, "-e": 1, "-t": 1, "-terse": 0, "-N": 1}
    transient = re.compile(
        r"gdi request|qmaster|unable to contact|can't connect|timed out|timeout|commlib|job limit|are allowed per"
    )
    max_array = 10000

    def words(self, name: str, output: str, count: int, limit: int | None) -> list[str]:
        path = output.format(index="$TASK_ID" if count > 1 else "1")
        # A job that the engine would start again by itself is ours to try again, by --max-tries.
        words = ["-terse", "-S", "/bin/bash", "-j", "y", "-r", "n", "-N", name, "-o", path]
        array = ["-t", f"1-{count}", *(["-tc", str(limit)] if limit else [])]
        return words + array if count > 1 else words

    def id_in(self, answer: str) -> str | None:
        found = re.findall(r"^(\d+)(?:\.\d+-\d+:\d+)?$", answer, re.MULTILINE) or re.findall(
            r"^Your job(?:-array)? (\d+)", answer, re.MULTILINE
        )
        return found[-1] if found else None

    def states(self, ids: list[str]) -> dict[tuple[str, int], State]:
        answer = self.ask(["qstat", "-xml", "-g", "d"])
        try:
            jobs = ElementTree.fromstring(answer).iter("job_list")
        except ElementTree.ParseError as error:
            raise Unreachable(f"qstat -xml: {error}") from None
        states = {}
        for job in jobs:
            id = job.findtext("JB_job_number", "")
            if id in ids:
                # E: the engine could not start it and would keep it for ever.
                bad = "E" in job.findtext("state", "")
                why = f"Grid Engine could not start it: {self._error(id)}" if bad else ""
                states[id, int(job.findtext("tasks", "1") or 1)] = State(not bad, why, stuck=bad)
        return states

    def _error(self, id: str) -> str:
        found = re.findall(r"^error reason.*?: *(.*)$", self.ask(["qstat", "-j", id]), re.MULTILINE)
        return found[0].strip() if found else "state E"

    def post_mortem(self, id: str, index: int) -> str:
        try:
            answer = self.ask(["qacct", "-j", id])
        except Unreachable:  # no accounts kept here, or not written yet
            return ""
        for record in re.split(r"^=+$", answer, flags=re.MULTILINE):
            fields = dict(re.findall(r"^(\S+) +(.*?) *$", record, re.MULTILINE))
            if fields.get("taskid") in (str(index), "undefined"):
                return _why(fields)
        return ""

    def cancel_words(self, ids: list[str]) -> list[str]:
        return ["qdel", *ids]


def _why(fields: dict[str, str]) -> str:
    """What accounting says ended a job, "" when it ended by itself.

    `failed` has the engine's own code with words; a limit that was asked for (`category`) and reached tells which.
    """
    failed = fields.get("failed", "0").strip()
    if failed.startswith("0"):
        return ""
    limits = dict(re.findall(r"\b([hs]_(?:rt|vmem|rss|cpu))=([\d.]+)", fields.get("category", "")))
    wall_s = float(re.sub(r"[^\d.]", "", fields.get("ru_wallclock", "")) or 0)
    for name in ("s_rt", "h_rt"):
        if name in limits and wall_s >= float(limits[name]) - 1:
            return f"time limit reached ({name}={limits[name]})"
    if fields.get("deleted_by", "NONE") not in ("NONE", ""):
        return f"deleted by {fields['deleted_by']}"
    return failed


@launchers.register("gridengine")
def launch(request: Request) -> int:
    """Run the request's jobs on Grid Engine, by the contract of registry.py. Raises DataError when it takes none."""
    return launch_on(GridEngine(), request)
