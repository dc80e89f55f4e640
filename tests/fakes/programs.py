"""Tiny stand-ins for the programs that the driver calls, for tests of the driver alone.

A model is a JSON file: "age" (iterations), "weight" (a number that depends on all that went in, in order), "rate",
"layers". Held-out log-prob is best at age 6. A line `PATTERN` in the file $FAKES/fail makes calls that match it exit 3;
`once PATTERN` only the first; the named pipe $FAKES/gate, where there is one, holds up scores of model 0 until it is
written to.
"""

import json
import os
import sys
import zlib  # few and light imports: the tests start this hundreds of times

BEST_AGE = 6


def read(path):
    return json.loads(sys.stdin.read() if path == "-" else text_of(path))


def text_of(path):
    with open(path) as file:
        return file.read()


def write(path, value):
    text = json.dumps(value, sort_keys=True) + "\n"
    if path == "-":
        print(text, end="")
        return
    aside = f"{path}.{os.getpid()}.tmp"
    with open(aside, "w") as file:
        file.write(text)
    os.replace(aside, path)


def options(args):
    found = dict(arg[2:].split("=", 1) for arg in args if arg.startswith("--") and "=" in arg)
    if "config" in found:
        lines = text_of(found["config"]).splitlines()
        found = dict(line[2:].split("=", 1) for line in lines) | found
    return found, [arg for arg in args if not arg.startswith("--")]


def number(*things):
    return zlib.crc32(repr(things).encode()) / 2**32


def train(given, model_in, egs, model_out):
    model = read(model_in)
    what = text_of(egs.removeprefix("ark:")), given["frame"], given["srand"], given["minibatch-size"]
    weight = model["weight"] + model["rate"] * number(what)
    objective = -1.0 / (1 + model["age"]) - number(what, "objective") / 100
    figures = {"frames": 1000, "seconds": 0.01, "objective_per_frame": objective}
    write(given["stats-out"], figures)
    write(model_out, model | {"age": model["age"] + 1, "weight": weight})


def average(given, *models):
    *inputs, output = models
    all_of = [read(path) for path in inputs]
    assert len({(m["age"], m["layers"]) for m in all_of}) == 1
    result = all_of[0] | {
        "weight": sum(m["weight"] for m in all_of) / len(all_of),
        "rate": float(given["learning-rate"]),
    }
    if given.get("averaging", "average") != "average":
        shape = {name: result[name] for name in ("layers", "outputs") if name in result}
        previous = read(given["previous"])
        state = read(given["state"]) if "state" in given else previous
        assert shape == {name: m[name] for m in (previous, state) for name in ("layers", "outputs") if name in m}
        for name in ("state-out", "start-out"):
            if name in given:
                write(given[name], result)
        result["weight"] += 0.1 * previous["weight"] + 0.01 * state["weight"] * int(given["age"])
    write(output, result)


def mix_up(given, model_in, output):
    write(output, read(model_in) | {"outputs": int(given["num-mixtures"])})


def fix(given, model_in, output):
    model = read(model_in)
    write(output, model | {"weight": model["weight"] + 0.5})


def copy(given, model_in, model_out):
    model = read(model_in)
    write(model_out, model | {"rate": float(given.get("learning-rate", model["rate"]))})


def init(given, config, output):
    write(output, {"new": text_of(config), "seed": given["srand"]})


def insert(given, model_in, new, output):
    model = read(model_in)
    new_weight = number(sorted(read(new).items()))
    write(output, model | {"layers": model["layers"] + 1, "weight": model["weight"] + new_weight})


def compute_prob(given, model_in, egs):
    model = read(model_in)
    gate = os.environ["FAKES"] + "/gate"
    if model["age"] == 0 and os.path.exists(gate):
        text_of(gate)
    valid = -0.5 - 0.01 * (model["age"] - BEST_AGE) ** 2 + 1e-6 * model["weight"]
    log_prob = valid if "valid" in egs else -1.0 / (1 + model["age"])
    write(given["stats-out"], {"log_prob_per_frame": log_prob, "accuracy": 0.5, "weight": 100.0})


def show_progress(given, old, new):
    before, after = (read(path)["weight"] for path in (old, new))
    write(given["stats-out"], {"relative_difference": [abs(after - before), 0.01]})


def info(given, model):
    write(given["text-out"], read(model))


def combine(given, *args):
    *models, _fit, _held_out, output = args
    read_all = [read(path) for path in models]
    write(output, read_all[-1] | {"of": [m["age"] for m in read_all], "fit": given.get("num-lbfgs-iters", "40")})


def align(given, *args):
    """align_nnet.sh: one job."""
    *_, network, _data, _lang, _source, directory = args
    with open(f"{directory}/num_jobs", "w") as file:
        file.write("1\n")
    write(f"{directory}/ali.1.gz", read(network)["weight"])


def relabel(given, pdfs, egs, output):
    directory = output.removeprefix("ark:").rsplit("/", 1)[0]
    with open(output.removeprefix("ark:") + ".tmp", "w") as file:
        file.write(text_of(egs.removeprefix("ark:")) + text_of(f"{directory}/ali.1.gz"))
    os.replace(file.name, output.removeprefix("ark:"))


def adjust_priors(given, model_in, egs, output):
    write(output, read(model_in) | {"priors": egs.rsplit("/", 1)[1]})


PROGRAMS = {
    "nnet-train-ngsgd": train,
    "nnet-average": average,
    "nnet-mixup": mix_up,
    "nnet-fix": fix,
    "nnet-copy": copy,
    "nnet-init": init,
    "nnet-insert": insert,
    "nnet-compute-prob": compute_prob,
    "nnet-show-progress": show_progress,
    "nnet-info": info,
    "nnet-combine": combine,
    "nnet-adjust-priors": adjust_priors,
    "align_nnet.sh": align,
    "egs-relabel": relabel,
}


def fail_if_told(call):
    told = os.environ["FAKES"] + "/fail"
    if not os.path.exists(told):
        return
    import re

    for line in text_of(told).splitlines():
        pattern = line.removeprefix("once ")
        if re.search(pattern, call):
            if line != pattern:
                rest = text_of(told).replace(line + "\n", "")
                with open(told, "w") as file:
                    file.write(rest)
            print("failing as told")
            sys.exit(3)


if __name__ == "__main__":
    name, *args = sys.argv[1:]
    fail_if_told(" ".join([name, *args]))
    given, rest = options(args)
    PROGRAMS[name](given, *rest)
