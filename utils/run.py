#!/usr/bin/env python3
"""Run a command, or N numbered copies of it, on this machine, each with its own log.

Usage: run.py [options] [JOB=1:N] LOG COMMAND...
e.g.:  run.py JOB=1:4 exp/log/feats.JOB.log make-mfcc scp:wav.JOB.scp ark:feats.JOB.ark
       run.py --max-jobs-run 2 JOB=1:8 exp/log/x.JOB.log prog-a JOB \\| prog-b '>' out.JOB

JOB (any word) is replaced by the job's number wherever it stands as a word, in the log's name too. Words arrive as
written; operators such as \\| and '>' are the shell's.
Exit status: 0 all done, 1 some failed, 2 usage, 130 interrupted.

Options (also --name=value):
  --max-jobs-run N   at most N at once (default: the number of cores divided by --num-threads)
  --num-threads N    threads that each job uses
  --gpu N            GPUs for each job, through CUDA_VISIBLE_DEVICES; jobs wait for free ones
  --max-tries N      run a failed job again, N times in all (default: 1)
  --mem X, --time X, --config FILE   for clusters; accepted and without effect here
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from ngsgd.launch.front import main

main("local", __doc__)
