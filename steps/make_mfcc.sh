#!/usr/bin/env bash
# MFCC features of a data directory: writes feats.scp, utt2num_frames, utt2dur and conf/mfcc.conf (the values of all
# options) there, and the archives to ARKDIR.
#
# Usage: make_mfcc.sh [options] DATA [LOGDIR [ARKDIR]]
# e.g.: make_mfcc.sh --nj 4 data/train exp/make_mfcc/train mfcc
#
# LOGDIR is DATA/log and ARKDIR is DATA/data when not given. Utterances that cannot be done are named in the logs and left
# out. A job whose recordings and options are those of an earlier run is not run again.
#
# Options:
#   --nj N              jobs (4); fewer when there are fewer utterances
#   --cmd CMD           launcher (run.py)
#   --mfcc-config FILE  options of make-mfcc (conf/mfcc.conf)
#   --compress BOOL     write compressed matrices (true)

set -eu -o pipefail
nj=4
cmd=run.py
mfcc_config=conf/mfcc.conf
compress=true
. parse_options.sh
expect_arguments "$@"
data=$1
logdir=${2:-$data/log}
arkdir=${3:-$data/data}
name=$(basename "$data")

expect_files "$mfcc_config"
validate_data_dir.py --no-text --no-feats "$data"
mkdir -p "$logdir" "$arkdir"
nj=$(limit_jobs.py "$data" "$nj")
split_data_dir.py --per-utt "$data" "$nj"

split=$data/split${nj}utt
segments=()
inputs=("$mfcc_config" "$split/JOB/wav.scp")
if [ -f "$data/segments" ]; then
  segments=(--segments="$split/JOB/segments")
  inputs+=("$split/JOB/segments")
fi
raw=$arkdir/raw_mfcc_$name
$cmd JOB=1:"$nj" "$logdir/make_mfcc_$name.JOB.log" \
  unless_done.sh "$logdir/make_mfcc_$name.JOB.done" "$raw.JOB.scp" "${inputs[@]}" -- \
  make-mfcc --config="$mfcc_config" --compress="$compress" ${segments[@]+"${segments[@]}"} \
  --write-num-frames="ark,t:$logdir/utt2num_frames_$name.JOB" --write-utt2dur="ark,t:$logdir/utt2dur_$name.JOB" \
  --write-config="$logdir/mfcc_$name.JOB.conf" \
  "$split/JOB/wav.scp" "ark,scp:$raw.JOB.ark,$raw.JOB.scp"

scps=() frames=() durations=()
for job in $(seq "$nj"); do
  scps+=("$raw.$job.scp") frames+=("$logdir/utt2num_frames_$name.$job") durations+=("$logdir/utt2dur_$name.$job")
done
mkdir -p "$data/conf"
cp "$logdir/mfcc_$name.1.conf" "$data/conf/mfcc.conf.tmp" && mv "$data/conf/mfcc.conf.tmp" "$data/conf/mfcc.conf"
join_sorted.py "$data/utt2num_frames" "${frames[@]}"
join_sorted.py "$data/utt2dur" "${durations[@]}"
join_sorted.py --expect="$data/utt2spk" "$data/feats.scp" "${scps[@]}"
