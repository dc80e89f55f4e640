#!/usr/bin/env bash
# A Grid Engine of one host on this machine, on loopback, from nothing: installed when it is missing (Debian, as root),
# started, and stopped again. All of it lives in one directory with its own cell, ports and spool; a Grid Engine that
# the machine has already is left alone. Doing a thing twice is doing it once.
#
# Usage: tests/cluster/gridengine.sh start|stop|status|env
# e.g.:  eval "$(tests/cluster/gridengine.sh start)"    # SGE_ROOT and ports now point qsub and queue.py at it
#        queue.py JOB=1:4 log/x.JOB.log hostname
#        tests/cluster/gridengine.sh stop
#
# NGSGD_GRIDENGINE_DIR: the directory (default /tmp/ngsgd-gridengine). SLOTS: jobs at once (2).

set -euo pipefail
dir=${NGSGD_GRIDENGINE_DIR:-/tmp/ngsgd-gridengine}
slots=${SLOTS:-2}
port=${NGSGD_GRIDENGINE_PORT:-17844}
host=$(hostname -s)
# shellcheck source=tests/cluster/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
export SGE_ROOT=$dir/root SGE_CELL=default SGE_QMASTER_PORT=$port SGE_EXECD_PORT=$((port + 1))
binaries=/usr/lib/gridengine

configure() {
  local resources=/usr/share/gridengine/util/resources common=$SGE_ROOT/$SGE_CELL/common
  mkdir -p "$common" "$dir/log" "$dir/run/job_scripts" "$dir/execd" "$dir/spooldb"
  chmod 755 "$dir" "$dir"/*
  ln -sfn /usr/share/gridengine/util "$SGE_ROOT/util"
  [ -e "$common/ready" ] && return
  cat >"$common/bootstrap" <<END
admin_user              none
default_domain          none
ignore_fqdn             true
spooling_method         berkeleydb
spooling_lib            libspoolb
spooling_params         $dir/spooldb
binary_path             $binaries
qmaster_spool_dir       $dir/run
security_mode           none
listener_threads        2
worker_threads          2
scheduler_threads       1
END
  echo "$host" >"$common/act_qmaster"
  # Every name of 127.0.0.1 is this host.
  echo "$host localhost $(getent hosts 127.0.0.1 | cut -d' ' -f2- | tr -s ' ')" >"$common/host_aliases"
  sed -e "s|^execd_spool_dir .*|execd_spool_dir $dir/execd|" -e "s|^\(min_[ug]id\) .*|\1 0|" \
    -e 's|^load_report_time .*|load_report_time 00:00:01|' -e 's|^max_unheard .*|max_unheard 00:00:10|' \
    -e 's|flush_time=[0-9:]*|flush_time=00:00:01|' /usr/share/gridengine/default-configuration >"$dir/configuration"
  "$binaries/spoolinit" berkeleydb libspoolb "$dir/spooldb" init
  "$binaries/spooldefaults" configuration "$dir/configuration"
  "$binaries/spooldefaults" complexes "$resources/centry"
  "$binaries/spooldefaults" usersets "$resources/usersets"
  "$binaries/spooldefaults" managers root
  touch "$common/ready"
}

# One queue of $slots jobs on this host, jobs scheduled as soon as they come, the parallel environment "smp".
add_queue() {
  qconf -ah "$host" || true
  qconf -as "$host" || true
  qconf -ssconf | sed -e 's/^schedule_interval .*/schedule_interval 0:0:1/' \
    -e 's/^flush_submit_sec .*/flush_submit_sec 1/' -e 's/^flush_finish_sec .*/flush_finish_sec 1/' \
    -e 's/^load_formula .*/load_formula slots/' -e 's/^job_load_adjustments .*/job_load_adjustments NONE/' >"$dir/scheduler"
  qconf -Msconf "$dir/scheduler"
  qconf -sp smp >/dev/null 2>&1 || qconf -Ap /usr/share/gridengine/util/resources/pe/smp
  qconf -sq all.q >/dev/null 2>&1 || {
    qconf -sq | sed -e 's/^qname .*/qname all.q/' -e "s/^hostlist .*/hostlist $host/" -e "s/^slots .*/slots $slots/" \
      -e 's/^pe_list .*/pe_list smp/' -e 's|^shell .*|shell /bin/bash|' -e 's/^load_thresholds .*/load_thresholds NONE/' \
      -e 's/^priority .*/priority 0/' -e 's/^notify .*/notify 00:00:02/' >"$dir/queue"
    qconf -Aq "$dir/queue"
  }
}

start() {
  install_packages qsub gridengine-master gridengine-exec gridengine-client
  is_up && return
  stop
  configure
  daemon qmaster "$binaries/sge_qmaster"
  wait_until 30 "the answer of the queue master" qconf -sh
  add_queue >"$dir/log/queue.out" 2>&1 || {
    cat "$dir/log/queue.out" >&2
    return 1
  }
  SGE_EXECD_PIDFILE=$dir/run/execd.pid daemon execd "$binaries/sge_execd"
  wait_until 60 "the execution host" is_up
}

is_up() {
  alive qmaster && alive execd && [ "$(timeout 10 qstat -f -q all.q 2>/dev/null | awk '/^all.q/ && NF == 5' | wc -l)" -eq 1 ]
}

stop() {
  end_process execd
  end_process qmaster
}

settings() {
  local name
  for name in SGE_ROOT SGE_CELL SGE_QMASTER_PORT SGE_EXECD_PORT; do printf "export %s='%s'\n" "$name" "${!name}"; done
}

case ${1:-} in
  start)
    start >&2
    settings
    ;;
  stop)
    stop
    rm -rf "$dir"
    ;;
  status) is_up && timeout 10 qstat -f ;;
  env) settings ;;
  *) usage ;;
esac
