#!/usr/bin/env bash
# Train monophone models from a flat start, on features with deltas.
#
# Usage: train_mono.sh [options] DATA LANG DIR
#   e.g.: train_mono.sh --nj 4 --boost-silence 1.25 data/train data/lang exp/mono
#
# Writes to DIR: final.mdl, tree, final.occs, ali.1.gz ... ali.N.gz (N in num_jobs), fsts.1.gz ... (the training graphs),
# plan.tsv (the schedule), cmvn_opts, delta_opts, phones.txt, log/. A run that was interrupted goes on where it was and
# gives the same bytes; with other options or inputs it is refused, or with --overwrite begun anew.
#
#   --nj N                jobs (default 4); utterances are divided evenly between them
#   --cmd CMD             launcher (default run.py)
#   --num-iters N, --totgauss N, --max-iter-inc N, --realign-iters "1 2 ...", --initial-beam X, --regular-beam X
#                         the schedule: see gmm-plan (its defaults)
#   --retry-beam X, --careful true    see gmm-align-compiled (its defaults)
#   --boost-silence X     factor on silence while aligning (default 1)
#   --power X             exponent by which pdfs share the Gaussians (default 0.25)
#   --cmvn-opts OPTS, --delta-opts OPTS    of apply-cmvn and add-deltas
#   --cache-feats BOOL    keep the features with deltas in DIR while training, instead of making them in each iteration:
#                         160 bytes a frame, removed at the end (default true)
#   --overwrite           begin anew
set -euo pipefail

nj=4
cmd=run.py
num_iters=
totgauss=
max_iter_inc=
realign_iters=
initial_beam=
regular_beam=
retry_beam=
careful=
boost_silence=1
power=0.25
cmvn_opts=
delta_opts=
cache_feats=true
overwrite=false
. parse_options.sh
. feature_pipeline.sh

if [ $# -ne 3 ]; then
  echo "train_mono.sh: expected DATA LANG DIR, got $# arguments; see train_mono.sh --help" >&2
  exit 2
fi
data=$1
lang=$2
dir=$3

for file in "$data/feats.scp" "$data/cmvn.scp" "$data/text" "$data/utt2spk" "$lang/topo" "$lang/L.fst" \
  "$lang/words.txt" "$lang/phones.txt" "$lang/oov.int" "$lang/phones/sets.int" "$lang/phones/optional_silence.csl"; do
  [ -f "$file" ] || { echo "train_mono.sh: no such file: $file" >&2; exit 1; }
done
nj=$(limit_jobs.py "$data" "$nj")
split_data_dir.py --per-utt "$data" "$nj"
split=$data/split${nj}utt

put() { printf '%s\n' "$2" >"$1.tmp" && mv "$1.tmp" "$1"; }

# What the result depends on; a directory made from other things is not gone on with.
inputs=$(
  for option in nj num_iters totgauss max_iter_inc realign_iters initial_beam regular_beam retry_beam careful \
    boost_silence power cmvn_opts delta_opts; do
    printf -- '--%s=%s\n' "${option//_/-}" "${!option}"
  done
  sha256sum "$data/feats.scp" "$data/cmvn.scp" "$data/text" "$data/utt2spk" "$lang/topo" "$lang/L.fst" \
    "$lang/words.txt" "$lang/phones/sets.int"
)
if $overwrite; then rm -rf "$dir"; fi
mkdir -p "$dir/log"
if [ -f "$dir/inputs" ] && [ "$(cat "$dir/inputs")" != "$inputs" ]; then
  echo "train_mono.sh: $dir was made with other options or inputs (< then, > now); use --overwrite to begin anew:" >&2
  diff "$dir/inputs" <(echo "$inputs") | grep '^[<>]' >&2
  exit 1
fi
put "$dir/inputs" "$inputs"
if [ -f "$dir/final.mdl" ]; then
  echo "train_mono.sh: $dir is done already" >&2
  exit 0
fi
put "$dir/num_jobs" "$nj"
put "$dir/cmvn_opts" "$cmvn_opts"
put "$dir/delta_opts" "$delta_opts"
cp "$lang/phones.txt" "$dir/phones.txt"

pipeline=$(feature_pipeline "$data" "$split/JOB/feats.scp" "$dir" delta)
feats="ark,s,cs:${pipeline#ark:}"
if $cache_feats; then
  $cmd JOB=1:"$nj" "$dir/log/feats.JOB.log" test -f "$dir/feats.JOB.ark" '||' \
    copy-feats "$pipeline" "ark:$dir/feats.JOB.ark"
  feats=ark,s,cs:$dir/feats.JOB.ark
fi
first_feats=${feats//JOB/1}

if [ ! -f "$dir/plan.tsv" ]; then
  if [ ! -f "$dir/0.mdl" ]; then
    dim=$(feat-to-dim "$first_feats" -)
    $cmd "$dir/log/init.log" gmm-init-mono --shared-phones="$lang/phones/sets.int" --train-feats="$first_feats" \
      "$lang/topo" "$dim" "$dir/0.mdl" "$dir/tree"
  fi
  plan=()
  for option in num_iters totgauss max_iter_inc realign_iters initial_beam regular_beam; do
    [ -z "${!option}" ] || plan+=("--${option//_/-}=${!option}")
  done
  gmm-plan "${plan[@]}" "$dir/0.mdl" "$dir/plan.tsv"
fi

if [ -f "$dir/0.mdl" ]; then
  echo "train_mono.sh: compiling training graphs" >&2
  transcripts=$(printf 'ark:sym2int.py --map-oov=%q --fields=2- %q %q |' "$(cat "$lang/oov.int")" "$lang/words.txt" \
    "$split/JOB/text")
  $cmd JOB=1:"$nj" "$dir/log/compile_graphs.JOB.log" \
    unless_done.sh "$dir/log/graphs.JOB.done" "$dir/fsts.JOB.gz" "$dir/tree" "$lang/L.fst" "$split/JOB/text" -- \
    compile-train-graphs "$dir/tree" "$dir/0.mdl" "$lang/L.fst" "$transcripts" \
    "ark:| gzip -1nc > $(printf %q "$dir/fsts.JOB.gz")"
fi
graphs="ark:gunzip -c $(printf %q "$dir/fsts.JOB.gz") |"
alignments="ark:gunzip -c $(printf %q "$dir/ali.JOB.gz") |"
new_alignments="ark:| gzip -nc > $(printf %q "$dir/ali.JOB.gz")"
align=(gmm-align-acc --boost-silence="$boost_silence" --silence-phones="$(cat "$lang/phones/optional_silence.csl")"
  ${retry_beam:+--retry-beam="$retry_beam"} ${careful:+--careful="$careful"})

# estimate ITERATION NEXT GAUSSIANS [OPTIONS]: a model from the statistics of an iteration.
estimate() {
  local stats=() job
  for job in $(seq "$nj"); do stats+=("$dir/$1.$job.acc"); done
  $cmd "$dir/log/update.$1.log" gmm-est --mix-up="$3" --power="$power" --write-occs="$dir/$2.occs" "${@:4}" \
    "$dir/$1.mdl" "${stats[@]}" "$dir/$2.mdl"
}

# clean ITERATION: its files are not needed once the next model is there; the model goes last.
clean() {
  local job
  for job in $(seq "$nj"); do rm -f "$dir/$1.$job.acc"; done
  rm -f "$dir/$1.occs" && rm -f "$dir/$1.mdl"
}

# Pass 0: equal alignment. Few frames make a Gaussian here, or rare phones would never get one.
if [ -f "$dir/0.mdl" ]; then
  if [ ! -f "$dir/1.mdl" ]; then
    $cmd JOB=1:"$nj" "$dir/log/align_acc.0.JOB.log" align-equal-compiled "$graphs" "$feats" ark:- '|' \
      gmm-acc-stats-ali "$dir/0.mdl" "$feats" ark,s,cs:- "$dir/0.JOB.acc"
    estimate 0 1 0 --min-gaussian-occupancy=3
  fi
  clean 0
fi

while IFS=$'\t' read -u 3 -r iteration next gauss realign beam; do
  if [ "$iteration" = iteration ]; then continue; fi
  last=$next
  if [ ! -f "$dir/$iteration.mdl" ]; then continue; fi
  if [ ! -f "$dir/$next.mdl" ]; then
    if $realign; then
      echo "train_mono.sh: iteration $iteration, $gauss Gaussians, aligning anew" >&2
      $cmd JOB=1:"$nj" "$dir/log/align_acc.$iteration.JOB.log" "${align[@]}" --beam="$beam" \
        "$dir/$iteration.mdl" "$graphs" "$feats" "$new_alignments" "$dir/$iteration.JOB.acc"
    else
      $cmd JOB=1:"$nj" "$dir/log/acc.$iteration.JOB.log" \
        gmm-acc-stats-ali "$dir/$iteration.mdl" "$feats" "ark,s,cs:${alignments#ark:}" "$dir/$iteration.JOB.acc"
    fi
    estimate "$iteration" "$next" "$gauss"
  fi
  clean "$iteration"
done 3<"$dir/plan.tsv"

if [ -f "$dir/$last.occs" ]; then mv "$dir/$last.occs" "$dir/final.occs"; fi
mv "$dir/$last.mdl" "$dir/final.mdl"
for job in $(seq "$nj"); do rm -f "$dir/feats.$job.ark"; done
echo "train_mono.sh: done, the model is $dir/final.mdl" >&2
