#!/usr/bin/env bash
# A Slurm cluster of two virtual nodes on this machine, on loopback, from nothing: installed when it is missing (Debian,
# as root), started, and stopped again. All of it lives in one directory with its own key, ports and configuration;
# a Slurm or munge that the machine has already is left alone. Doing a thing twice is doing it once.
#
# Usage: tests/cluster/slurm.sh start|stop|status|env|node-down N|node-up N|controller-down|controller-up
# e.g.:  eval "$(tests/cluster/slurm.sh start)"    # SLURM_CONF now points sbatch and slurm.py at it
#        slurm.py JOB=1:4 log/x.JOB.log hostname
#        tests/cluster/slurm.sh stop
#
# NGSGD_SLURM_DIR: the directory (default /tmp/ngsgd-slurm). NODES: how many nodes (2), each with two processors.
# node-down N kills the daemon of node N and what runs there, as a power cut does; node-up N brings it back.
# controller-down, controller-up: the same for the daemon that takes the jobs.

set -euo pipefail
dir=${NGSGD_SLURM_DIR:-/tmp/ngsgd-slurm}
nodes=${NODES:-2}
base_port=${NGSGD_SLURM_PORT:-17817}
# shellcheck source=tests/cluster/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
export SLURM_CONF=$dir/slurm.conf PATH=$PATH:/usr/sbin

configure() {
  mkdir -p "$dir/state" "$dir/log" "$dir/run" "$dir/munge"
  # munge refuses sockets and keys in directories that others can write to.
  chmod 755 "$dir" "$dir"/*
  [ -s "$dir/munge/key" ] || (umask 077 && head -c 128 /dev/urandom >"$dir/munge/key")
  local node
  {
    echo "ClusterName=ngsgd"
    echo "SlurmctldHost=$(hostname -s)(127.0.0.1)"
    echo "SlurmUser=root"
    echo "SlurmctldPort=$base_port"
    echo "AuthType=auth/munge"
    echo "AuthInfo=socket=$dir/run/munge.socket"
    echo "CredType=cred/munge"
    echo "StateSaveLocation=$dir/state"
    echo "SlurmdSpoolDir=$dir/spool.%n"
    echo "SlurmctldPidFile=$dir/run/slurmctld.pid"
    echo "SlurmdPidFile=$dir/run/slurmd.%n.pid"
    echo "SlurmctldLogFile=$dir/log/slurmctld.log"
    echo "SlurmdLogFile=$dir/log/slurmd.%n.log"
    # No control groups: a container may not make them.
    echo "ProctrackType=proctrack/linuxproc"
    echo "TaskPlugin=task/none"
    echo "JobAcctGatherType=jobacct_gather/linux"
    echo "JobAcctGatherFrequency=1"
    echo "JobAcctGatherParams=OverMemoryKill"
    echo "SelectType=select/cons_tres"
    echo "SelectTypeParameters=CR_CPU_Memory"
    echo "MpiDefault=none"
    echo "ReturnToService=2"
    # Everything that waits, waits briefly: these are tests.
    echo "SlurmdTimeout=5"
    echo "SlurmctldTimeout=5"
    echo "InactiveLimit=0"
    echo "KillWait=2"
    echo "MessageTimeout=5"
    echo "MinJobAge=300"
    echo "SchedulerParameters=batch_sched_delay=0,sched_interval=2,bf_interval=2"
    for ((node = 1; node <= nodes; node++)); do
      echo "NodeName=node$node NodeHostname=$(hostname -s) NodeAddr=127.0.0.1 Port=$((base_port + node)) CPUs=2 RealMemory=2000"
    done
    echo "PartitionName=all Nodes=node[1-$nodes] Default=YES MaxTime=60 DefMemPerCPU=500 State=UP OverTimeLimit=0"
  } >"$dir/slurm.conf.new"
  mv "$dir/slurm.conf.new" "$dir/slurm.conf"
}

start_controller() {
  daemon slurmctld /usr/sbin/slurmctld -f "$SLURM_CONF"
}

start_node() {
  daemon "slurmd.node$1" /usr/sbin/slurmd -N "node$1" -f "$SLURM_CONF"
}

# kill_node N: its daemon first, so that nobody is told, then the steps that watch its jobs, then the jobs.
kill_node() {
  local jobs=() steps=() process parent
  for process in /proc/[0-9]*; do
    grep -qxz "SLURMD_NODENAME=node$1" "$process/environ" && grep -qxz "SLURM_CONF=$SLURM_CONF" "$process/environ" ||
      continue
    jobs+=("${process#/proc/}")
    parent=$(awk '$1 == "PPid:" {print $2}' "$process/status")
    [ "$(cat "/proc/$parent/comm")" = slurmstepd ] && steps+=("$parent")
  done 2>/dev/null
  kill -9 "$(cat "$dir/run/slurmd.node$1.pid")" "${steps[@]}" "${jobs[@]}"
  rm "$dir/run/slurmd.node$1.pid"
}

start() {
  install_packages sbatch munge slurmctld slurmd slurm-client
  is_up && return
  stop
  configure
  daemon munged /usr/sbin/munged --force --socket="$dir/run/munge.socket" --key-file="$dir/munge/key" \
    --pid-file="$dir/run/munged.pid" --log-file="$dir/log/munged.log" --seed-file="$dir/munge/seed"
  start_controller
  local node
  for ((node = 1; node <= nodes; node++)); do start_node "$node"; done
  wait_until 30 "the nodes of Slurm" is_up
}

is_up() {
  [ -f "$SLURM_CONF" ] && alive munged && alive slurmctld &&
    [ "$(timeout 10 sinfo -h -N -t idle,mix,alloc -o %N 2>/dev/null | wc -l)" -ge "$nodes" ]
}

stop() {
  local file
  for file in "$dir"/run/slurmd.*.pid; do
    [ -e "$file" ] && end_process "$(basename "$file" .pid)"
  done
  end_process slurmctld
  end_process munged
}

case ${1:-} in
  start)
    start >&2
    echo "export SLURM_CONF='$SLURM_CONF'"
    ;;
  stop)
    stop
    rm -rf "$dir"
    ;;
  status) is_up && timeout 10 sinfo -N ;;
  env) echo "export SLURM_CONF='$SLURM_CONF'" ;;
  node-down) kill_node "${2:?}" ;;
  node-up)
    start_node "${2:?}"
    wait_until 30 "node $2" is_up
    ;;
  controller-down) end_process slurmctld ;;
  controller-up)
    start_controller
    wait_until 30 "the controller" is_up
    ;;
  *) usage ;;
esac
