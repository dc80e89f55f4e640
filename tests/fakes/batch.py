#!/usr/bin/env python3
"""A batch system in a directory: sbatch, squeue, scancel, sacct, qsub, qstat, qdel and qacct, by the name it is called.

It takes and refuses what the real ones do (Slurm 22.05, Grid Engine 8.1.9), with their words, and runs the jobs here.
FAKE_CLUSTER names the directory, which holds a folder for each job and, made by a test, files that order faults:

    down       that many submissions find no controller
    liar       that many submissions are taken, but the answer does not come back
    mute       questions get no answer while it is there
    kill       "STATE ...": a job of the first array is killed when a file `kill.now` appears there, for that reason
    late       seconds until what a job leaves in its submission's folder is seen there
    stuck      jobs wait for ever, and the engine says why
    instant    jobs do not run: they are done at once
"""

import contextlib
import getopt
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(os.environ["FAKE_CLUSTER"])
NAME = Path(sys.argv[0]).name
SLOTS = 4
SLURM = NAME in ("sbatch", "squeue", "scancel", "sacct")
KILLED = {  # our word for a reason: what squeue says, what qacct says in `failed`
    "time": ("TIMEOUT", "37  : qmaster enforced h_rt, h_cpu, or h_vmem limit"),
    "memory": ("OUT_OF_MEMORY", "37  : qmaster enforced h_rt, h_cpu, or h_vmem limit"),
    "node": ("NODE_FAIL", "100 : assumedly after job"),
}


def end(status, *lines):
    for line in lines:
        print(line, file=sys.stderr)
    sys.exit(status)


def take(name):
    """One from the counter in a file of orders; whether there was one."""
    path = ROOT / name
    if not path.exists() or not (left := int(path.read_text())):
        return False
    path.write_text(str(left - 1))
    return True


def controller_is_down():
    if SLURM:
        end(1, "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)")
    end(
        1,
        "error: commlib error: got select error (Connection refused)",
        'Unable to run job: unable to send message to qmaster using port 6444 on host "here": got send error',
        "Exiting.",
    )


# Submission.

SBATCH_FLAGS = ("parsable", "no-requeue", "requeue", "exclusive", "quiet")
SBATCH_VALUES = {
    "array": r"\d+-\d+(%\d+)?",
    "cpus-per-task": r"\d+",
    "export": r".+",
    "gres": r"gpu(:\w+)?:\d+",
    "job-name": r".+",
    "mem": r"\d+[KMGT]?",
    "open-mode": r"append|truncate",
    "output": r".+",
    "partition": r"all|gpu",
    "time": r"\d+(:\d+){0,2}",
}
SBATCH_SHORT = {"p": "partition", "t": "time", "c": "cpus-per-task", "J": "job-name", "o": "output", "a": "array"}
SBATCH_SAYS = {
    "partition": "Batch job submission failed: Invalid partition name specified",
    "array": "Batch job submission failed: Invalid job array specification",
}


def sbatch(args):
    try:
        long = [*SBATCH_FLAGS, *(f"{name}=" for name in SBATCH_VALUES)]
        found, rest = getopt.getopt(args, "".join(f"{letter}:" for letter in SBATCH_SHORT), long)
    except getopt.GetoptError as error:
        what = f"unrecognized option '--{error.opt}'" if len(error.opt) > 1 else f"invalid option -- '{error.opt}'"
        end(255, f"sbatch: {what}", 'Try "sbatch --help" for more information')
    options = {SBATCH_SHORT.get(name[1:], name.lstrip("-")): value for name, value in found}
    for name, value in options.items():
        if name in SBATCH_VALUES and not re.fullmatch(SBATCH_VALUES[name], value):
            end(1, f"sbatch: error: {SBATCH_SAYS.get(name, f'Invalid --{name} specification')}")
    script = read_script(rest[0], "sbatch: error: Unable to open file {}")
    if not script.startswith("#!"):
        end(1, "sbatch: error: This does not look like a batch script.  The first")
    count, limit = 1, SLOTS
    if "array" in options:
        first, last, limit = re.fullmatch(r"(\d+)-(\d+)(?:%(\d+))?", options["array"]).groups()
        count, limit = int(last), int(limit or SLOTS)
        if first != "1" or count > 1000:
            end(1, f"sbatch: error: {SBATCH_SAYS['array']}")
    output = options["output"].replace("%%", "\0").replace("%a", "{}").replace("\0", "%")
    environment = {name: value for name, value in os.environ.items() if name != "FAKE_CLUSTER"}
    number = submit(rest[0], "array" in options, count, limit, output, environment)
    print(number if "parsable" in options else f"Submitted batch job {number}")


QSUB_FLAGS = ("-terse", "-V", "-cwd")
QSUB_VALUES = {
    "-S": r"/\S+",
    "-N": r".+",
    "-b": r"y|n",
    "-j": r"y|n",
    "-l": r".+",
    "-o": r".+",
    "-p": r"-?\d+",
    "-pe": r"\S+ \d+",
    "-q": r".+",
    "-r": r"y|n",
    "-t": r"1-\d+",
    "-tc": r"\d+",
    "-v": r".+",
}
COMPLEXES = {"mem_free", "ram_free", "h_rt", "s_rt", "h_vmem", "gpu", "arch", "hostname"}


def qsub(args):
    options, args = {}, list(args)
    while args and args[0].startswith("-"):
        switch = args.pop(0)
        if switch in QSUB_FLAGS:
            options[switch] = ""
            continue
        value = " ".join([args.pop(0) for _ in range(2 if switch == "-pe" else 1) if args])
        if switch not in QSUB_VALUES:
            end(2, f'qsub: invalid option argument "{switch}"')
        if not re.fullmatch(QSUB_VALUES[switch], value):
            end(7, f'qsub: invalid option argument "{switch} {value}"')
        options[switch] = value
        if switch == "-N" and value[0].isdigit():
            end(1, f'Unable to run job: denied: "{value}" is not a valid object name (cannot start with a digit)')
        if switch == "-N" and re.search(r"[/:@\\*?]", value):
            end(2, "qsub: argument to -N option must not contain /")
        for resource in value.split(",") if switch == "-l" else []:
            if resource.split("=")[0] not in COMPLEXES:
                end(1, f'Unable to run job: unknown resource "{resource.split("=")[0]}"', "Exiting.")
        if switch == "-q" and value not in ("all.q", "*.q", "gpu.q"):
            end(1, f'Unable to run job: Job was rejected because job requests unknown queue "{value}"', "Exiting.")
        if switch == "-pe" and value.split()[0] != "smp":
            end(1, "Unable to run job: job rejected: the requested parallel environment does not exist", "Exiting.")
    script_name = args[0] if args else end(1, "Unable to run job: job rejected: no script in your request")
    read_script(script_name, "Unable to read script file because of error: error opening {}: No such file or directory")
    array = "-t" in options
    count = int(options["-t"].split("-")[1]) if array else 1
    # A job gets nothing of the submitter's environment but what is asked for.
    asked = options.get("-v", "").split(",")
    environment = {"PATH": "/usr/bin:/bin", "HOME": os.environ.get("HOME", "/"), "LANG": "C"}
    environment |= {name: value for name, value in os.environ.items() if name in asked or "-V" in options}
    output = options["-o"].replace("$TASK_ID", "{}")
    number = submit(script_name, array, count, int(options.get("-tc", SLOTS)), output, environment)
    print(f"{number}.1-{count}:1" if array else number)


def read_script(name, complaint):
    try:
        text = Path(name).read_text()
    except OSError:
        end(1, complaint.format(name))
    if subprocess.run(["bash", "-n", name]).returncode:
        end(1, f"{name} is not bash")
    return text


def submit(script, array, count, limit, output, environment):
    if take("down"):
        controller_is_down()
    (ROOT / "jobs").mkdir(exist_ok=True)
    number = len(list((ROOT / "jobs").iterdir())) + 1
    job = ROOT / "jobs" / str(number)
    job.mkdir()
    states = {str(index): ["waiting", ""] for index in range(1, count + 1)}
    facts = {"script": str(Path(script).resolve()), "array": array, "limit": limit, "output": output, "slurm": SLURM}
    write(job / "job.json", {**facts, "environment": environment, "number": number})
    write(job / "states.json", states)
    if (ROOT / "stuck").exists():
        write(job / "states.json", {index: ["stuck", ""] for index in states})
    elif (ROOT / "instant").exists():
        folder, submission = Path(script).parent, script.split(".")[-2]
        for task in (folder / f"tasks.{submission}").read_text().split():
            (folder / f"ended.{submission}.{task}").write_text("0 here code 0")
    else:
        command = [sys.executable, str(Path(__file__).resolve()), "run", str(job)]
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        runner = subprocess.Popen(command, start_new_session=True, cwd="/", **quiet)
        (job / "pid").write_text(str(runner.pid))
    if take("liar"):
        controller_is_down()
    return number


def write(path, value):
    path.with_suffix(".new").write_text(json.dumps(value))
    path.with_suffix(".new").rename(path)


# Running.


class Cancelled(Exception):
    pass


def run_job(job):
    """The tasks of a job, as many at once as may be; ended by SIGTERM."""

    def cancel(*_):
        raise Cancelled

    signal.signal(signal.SIGTERM, cancel)
    facts = json.loads((job / "job.json").read_text())
    states = json.loads((job / "states.json").read_text())
    folder = Path(facts["script"]).parent
    script = facts["script"]
    late = ROOT / "late"
    if late.exists():  # the node has its own view of the submission's folder
        there = job / "node"
        shutil.copytree(folder, there)
        script = str(job / "script.sh")
        Path(script).write_text(Path(facts["script"]).read_text().replace(f" {folder} ", f" {there} "))
    running = {}
    try:
        waiting = list(states)
        while waiting or running:
            while waiting and len(running) < facts["limit"]:
                index = waiting.pop(0)
                running[index] = start_task(facts, script, index)
                states[index] = ["running", ""]
            write(job / "states.json", states)
            time.sleep(0.02)
            order = ROOT / "kill"
            if order.exists() and (ROOT / "kill.now").exists() and facts["number"] == 1:
                index, why = order.read_text().split()
                if index in running:
                    os.killpg(running[index].pid, signal.SIGKILL)
                    running.pop(index).wait()
                    states[index] = ["ended", why]
            for index in [index for index, process in running.items() if process.poll() is not None]:
                status = running.pop(index).returncode
                states[index] = ["ended", "" if status >= 0 else "signal"]
            write(job / "states.json", states)
        if late.exists():
            time.sleep(float(late.read_text()))
            for path in (job / "node").glob("ended.*"):
                shutil.copy(path, folder / f"{path.name}.copy")
                (folder / f"{path.name}.copy").rename(folder / path.name)
    except Cancelled:
        for process in running.values():  # Slurm asks first, Grid Engine does not
            os.killpg(process.pid, signal.SIGTERM if facts["slurm"] else signal.SIGKILL)
        deadline = time.monotonic() + 0.5
        while any(process.poll() is None for process in running.values()) and time.monotonic() < deadline:
            time.sleep(0.01)
        for process in running.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        for index, (state, _) in states.items():
            if state != "ended":
                states[index] = ["ended", "cancelled"]
        write(job / "states.json", states)


def start_task(facts, script, index):
    number = str(facts["number"])
    own = {"SLURM_JOB_ID": number + index, "JOB_ID": number, "SGE_TASK_ID": index if facts["array"] else "undefined"}
    if facts["array"]:
        own["SLURM_ARRAY_TASK_ID"] = index
    with open(facts["output"].format(index), "a") as output:
        return subprocess.Popen(
            ["bash", script],
            cwd="/",
            env=facts["environment"] | own,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


# Questions.


def jobs():
    found = (ROOT / "jobs").iterdir() if (ROOT / "jobs").exists() else []
    return {job.name: job for job in sorted(found, key=lambda job: int(job.name))}


def states_of(job):
    return json.loads((job / "states.json").read_text())


def squeue(args):
    found = dict(getopt.getopt(args, "hrt:j:o:")[0])
    if (ROOT / "mute").exists():
        end(1, "slurm_load_jobs error: Unable to contact slurm controller (connect failure)")
    if found["-j"] not in jobs():
        end(1, "slurm_load_jobs error: Invalid job id specified")
    job = jobs()[found["-j"]]
    array = json.loads((job / "job.json").read_text())["array"]
    names = {"waiting": "PENDING", "stuck": "PENDING", "running": "RUNNING", "ended": "COMPLETED"}
    for index, (state, why) in states_of(job).items():
        name = {"cancelled": "CANCELLED", "signal": "FAILED"}.get(why) or KILLED.get(why, [names[state]])[0]
        reason = "JobLaunchFailure" if why == "signal" else "BadConstraints" if state == "stuck" else "None"
        line = {"%K": index if array else "N/A", "%T": name, "%r": reason}
        print(re.sub("%.", lambda match, line=line: line[match[0]], found["-o"]))


def qstat(args):
    if args[0] == "-j":
        print("error reason          1:      12/01/2026 05:41:12 [0:1373]: error: can't open output file")
        return
    if args != ["-xml", "-g", "d"]:
        end(1, f"qstat: unknown option {args}")
    if (ROOT / "mute").exists():
        end(1, "error: commlib error: got select error (Connection refused)")
    lines = []
    for number, job in jobs().items():
        array = json.loads((job / "job.json").read_text())["array"]
        for index, (state, _) in states_of(job).items():
            if state != "ended":
                task = f"<tasks>{index}</tasks>" if array else ""
                code = {"waiting": "qw", "running": "r", "stuck": "Eqw"}[state]
                number_and_state = f"<JB_job_number>{number}</JB_job_number><state>{code}</state>"
                lines.append(f"<job_list>{number_and_state}{task}</job_list>")
    print(f"<?xml version='1.0'?>\n<job_info><queue_info>{''.join(lines)}</queue_info><job_info/></job_info>")


def qacct(args):
    number = args[args.index("-j") + 1]
    if number not in jobs():
        end(1, f"error: job id {number} not found")
    array = json.loads((jobs()[number] / "job.json").read_text())["array"]
    for index, (state, why) in states_of(jobs()[number]).items():
        if state == "ended" and why != "cancelled":
            failed = KILLED[why][1] if why in KILLED else "100 : assumedly after job" if why else "0"
            print("=" * 62)
            print(f"jobnumber    {number}               \ntaskid       {index if array else 'undefined'}   ")
            print(f"failed       {failed}    \nru_wallclock 5s")
            print(
                "category     " + ("-l h_rt=4" if why == "time" else "-l h_vmem=1G" if why == "memory" else "-q all.q")
            )


def cancel(args):
    for number in args:
        if number not in jobs():
            print(f'denied: job "{number}" does not exist')
            continue
        if (ROOT / "stuck").exists():
            write(jobs()[number] / "states.json", {"1": ["ended", "cancelled"]})
            continue
        with contextlib.suppress(ProcessLookupError):  # it has ended
            os.kill(int((jobs()[number] / "pid").read_text()), signal.SIGTERM)


def sacct(args):
    end(1, "Slurm accounting storage is disabled")


PROGRAMS = {"sbatch": sbatch, "qsub": qsub, "squeue": squeue, "qstat": qstat, "qacct": qacct, "sacct": sacct}
PROGRAMS |= {"scancel": cancel, "qdel": cancel}
if __name__ == "__main__":
    if NAME in PROGRAMS:
        PROGRAMS[NAME](sys.argv[1:])
    else:
        run_job(Path(sys.argv[2]))
