# This site's settings, sourced by recipes and found on PATH: a recipe's own local/cmd.sh comes before this one.
#
# cmd: the launcher of all jobs, with its options: run.py on this machine, slurm.py or queue.py on a cluster, e.g.
# cmd="slurm.py --mem 2G" (docs/cluster.md).
# nj: pieces into which data is split. The results depend on it in the last digits, so it does not follow the machine;
# how many of them run at once does (run.py: as many as there are cores).

cmd="run.py"
nj=4
