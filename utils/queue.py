#!/usr/bin/env python3
"""Run a command, or N numbered copies of it, on Grid Engine, each with its own log.

Usage: queue.py [options] [JOB=1:N] LOG COMMAND...
e.g.:  queue.py JOB=1:4 exp/log/feats.JOB.log make-mfcc scp:wav.JOB.scp ark:feats.JOB.ark
       queue.py --mem 4G --max-jobs-run 10 JOB=1:40 exp/log/x.JOB.log prog-a JOB \\| prog-b '>' out.JOB
       queue.py -q long.q --gpu 1 exp/log/train.log nnet-train-ngsgd ...

JOB (any word) is replaced by the job's number wherever it stands as a word, in the log's name too. Words arrive as
written; operators such as \\| and '>' are the shell's. Jobs run in this directory with this PATH and Python.
Exit status: 0 all done, 1 some failed, 2 usage, 130 interrupted (submitted jobs are deleted).

Options (also --name=value); a configuration file says what they mean to qsub:
  --config FILE      in the form of Kaldi's queue.conf (default: conf/queue.conf, else built-in)
  --mem X            memory of a job, e.g. 2G
  --num-threads N    threads that each job uses
  --gpu N            GPUs for each job
  --time X           time limit, e.g. 4:00:00
  --max-jobs-run N   at most N at once
  --max-tries N      submit a failed job again, N times in all (default: 1)
Any other --name that the configuration knows; -q, -l, -pe and other short flags go to qsub as they are.
"""

import os
import sys

if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
    from ngsgd.launch.front import main

    main("gridengine", __doc__)
else:
    # A script beside this one imports the standard library's queue, and Python finds this file first: step aside.
    here = os.path.dirname(os.path.realpath(__file__))
    sys.path[:] = [folder for folder in sys.path if os.path.realpath(folder) != here]
    del sys.modules[__name__]
    sys.modules[__name__] = __import__("queue")
