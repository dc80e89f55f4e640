#!/usr/bin/env bash
# Make the training examples of a network from a data directory and its alignments.
#
# Usage: make_egs.sh [options] DATA ALI_DIR EGS_DIR
#   e.g.: make_egs.sh --nj 4 --left-context 7 --right-context 7 data/train exp/mono_ali exp/nnet/egs
#
# ALI_DIR holds ali.1.gz ... ali.N.gz, num_jobs, final.mdl, cmvn_opts: this toolkit's or Kaldi's. EGS_DIR gets
#   egs.1.ark ...                   shuffled examples, in the sizes of info/; or
#   archive.sh                      what writes one of them to standard output (--on-the-fly)
#   valid_diagnostic.egs, valid_combine.egs        single frames of utterances held out (valid_uttlist), disjoint
#   train_diagnostic.egs, combine.egs              single frames of training utterances, disjoint
#   tree                            whose leaves are the labels
#   cmvn_opts, feat_type, delta_order, speaker_transforms, transform_dir     how the features were made
# Whatever the number of jobs, the bytes are the same. A rerun goes on where it was interrupted.
#
#   --nj N                     jobs (default 4)
#   --left-context, --right-context N   frames (default 4)
#   --frames-per-eg N, --samples-per-iter N, --min-passes N, --num-utts-subset N   see egs-plan (its defaults)
#   --num-frames-diagnostic N  frames of each diagnostic set (default 4000)
#   --num-frames-combine N     frames of each set for combining models (default 10000)
#   --feat-type raw|delta|lda  features (default: ALI_DIR's if it is lda, else raw, normalised by --cmvn-opts)
#   --cmvn-opts OPTS           options of apply-cmvn (default: those of ALI_DIR)
#   --delta-order N            deltas behind raw features
#   --transform-dir DIR        fMLLR transforms (default: ALI_DIR, where it has some and the features are lda)
#   --online-ivector-dir DIR   append these i-vectors
#   --on-the-fly               keep no archives on disk, only the small subsets: archive.sh makes what a job reads
#   --mix-utterances N         see egs-plan
#   --length-tolerance N       frames by which features and alignments may differ (default 2)
#   --seed N                   (default 0)
set -euo pipefail

cmd=run.py
nj=4
left_context=4
right_context=4
frames_per_eg=
samples_per_iter=
min_passes=
num_utts_subset=
num_frames_diagnostic=4000
num_frames_combine=10000
feat_type=
cmvn_opts=from-alignments
delta_order=
transform_dir=
online_ivector_dir=
length_tolerance=2
on_the_fly=false
mix_utterances=
seed=0
. parse_options.sh
. feature_pipeline.sh

expect_arguments "$@"
data=$1
ali=$2
dir=$3

if [ -n "$transform_dir" ] && ! [ -f "$transform_dir/trans.1" ]; then
  echo "make_egs.sh: no transforms of speakers (trans.1) in $transform_dir" >&2
  exit 1
fi
expect_files "$data/feats.scp" "$data/utt2spk" "$ali/final.mdl" "$ali/num_jobs" "$ali/ali.1.gz" \
  ${online_ivector_dir:+"$online_ivector_dir/ivector_online.scp" "$online_ivector_dir/ivector_period"}
mkdir -p "$dir/log"

files=
for n in $(seq "$(cat "$ali/num_jobs")"); do files+=$(printf ' %q' "$ali/ali.$n.gz"); done
alignments="ark:gunzip -c$files |"

if [ -f "$ali/tree" ]; then cp "$ali/tree" "$dir/tree.tmp" && mv "$dir/tree.tmp" "$dir/tree"; fi

# How the features are made is written down first, and read from there ever after.
put() { printf '%s\n' "$2" >"$1.tmp" && mv "$1.tmp" "$1"; }
if [ "$cmvn_opts" = from-alignments ]; then cmvn_opts=$(cat "$ali/cmvn_opts" 2>/dev/null || true); fi
if [ -z "$feat_type" ]; then
  feat_type=raw
  if [ -f "$ali/final.mat" ]; then feat_type=lda; fi
fi
put "$dir/cmvn_opts" "$cmvn_opts"
put "$dir/feat_type" "$feat_type"
[ -z "$delta_order" ] || put "$dir/delta_order" "$delta_order"
for file in final.mat splice_opts delta_opts; do
  if [ "$feat_type" != raw ] && [ -f "$ali/$file" ]; then cp "$ali/$file" "$dir/$file"; fi
done
if [ -z "$transform_dir" ] && [ "$feat_type" = lda ] && [ -f "$ali/trans.1" ]; then transform_dir=$ali; fi
# Whoever decodes with the model needs transforms of the speakers then (decode_model.sh asks for them).
if [ -n "$transform_dir" ]; then
  put "$dir/speaker_transforms" true
  put "$dir/transform_dir" "$transform_dir"
fi
pipeline() { feature_pipeline "$data" "$1" "$dir" raw "$transform_dir"; }

ivector_opts=()
ivector_dim=0
if [ -n "$online_ivector_dir" ]; then
  ivector_dim=$(feat-to-dim "scp:$online_ivector_dir/ivector_online.scp" -)
  ivector_opts=(--ivectors="scp:$online_ivector_dir/ivector_online.scp"
    --ivector-period="$(cat "$online_ivector_dir/ivector_period")")
fi
head -n 1 "$data/feats.scp" >"$dir/first.scp"
feat_dim=$(feat-to-dim "$(pipeline "$dir/first.scp")" -)
rm "$dir/first.scp"

egs-plan --nj="$nj" --left-context="$left_context" --right-context="$right_context" --seed="$seed" \
  --feat-dim="$feat_dim" --ivector-dim="$ivector_dim" --on-the-fly="$on_the_fly" \
  ${frames_per_eg:+--frames-per-eg="$frames_per_eg"} ${samples_per_iter:+--samples-per-iter="$samples_per_iter"} \
  --num-frames-diagnostic="$num_frames_diagnostic" --num-frames-combine="$num_frames_combine" \
  ${min_passes:+--min-passes="$min_passes"} ${num_utts_subset:+--num-utts-subset="$num_utts_subset"} \
  ${mix_utterances:+--mix-utterances="$mix_utterances"} "$data" "$alignments" "$dir"
nj=$(cat "$dir/lists/num_jobs")
num_archives=$(cat "$dir/info/num_archives")
frames_per_eg=$(cat "$dir/info/frames_per_eg")
alignments=scp:$dir/ali.scp
make=(make-egs --model="$ali/final.mdl" --left-context="$left_context" --right-context="$right_context"
  --length-tolerance="$length_tolerance" --seed="$seed" "${ivector_opts[@]}")

# subset NAME DIAGNOSTIC COMBINE: single frames of the utterances of lists/NAME.scp.
subset() {
  if [ -f "$dir/$2" ] && [ -f "$dir/$3" ]; then return 0; fi
  $cmd "$dir/log/make_$1.log" "${make[@]}" --num-frames=1 --keep="$(cat "$dir/lists/$1.keep")" \
    "$(pipeline "$dir/lists/$1.scp")" "$alignments" ark:- '|' \
    egs-subset --seed="$seed" --n="$num_frames_diagnostic" --n-second="$num_frames_combine" ark:- \
    "ark:$dir/$2" "ark:$dir/$3"
}
subset valid valid_diagnostic.egs valid_combine.egs &
valid=$!
subset train_subset train_diagnostic.egs combine.egs
wait "$valid"

if $on_the_fly; then
  group=$(cat "$dir/info/archives_per_group")
  {
    printf '# Usage: bash archive.sh ARCHIVE FRAME: writes this archive of examples to standard output.\nset -o pipefail\n'
    printf 'egs-select --archive="$1" --frame="$2" %q |\n ' "$dir"
    printf ' %q' "${make[@]}" --num-frames="$frames_per_eg" --num-archives="$group"
    printf ' --archives=$((($1 - 1) %% %s + 1)) %q %q ark:- |\n' "$group" "$(pipeline -)" "$alignments"
    printf '  egs-shuffle --sort --seed=%q ark:- ark:-\n' "$seed"
  } >"$dir/archive.sh.tmp"
  mv "$dir/archive.sh.tmp" "$dir/archive.sh"
  echo "make_egs.sh: $num_archives archives of about $(cat "$dir/info/egs_per_archive") examples, to be made on the fly" >&2
  exit 0
fi

missing=()
for n in $(seq "$num_archives"); do [ -f "$dir/egs.$n.ark" ] || missing+=("$n"); done
if [ ${#missing[@]} -gt 0 ]; then
  # Archive N of the utterances of job J of nj, unshuffled.
  part() { printf '%s/egs_orig.%s.%s-of-%s.ark' "$dir" "$1" "$2" "$nj"; }
  outputs=()
  made=()
  for n in "${missing[@]}"; do
    outputs+=("ark:$(part "$n" JOB)")
    made+=(test -f "$(part "$n" JOB)" '&&')
  done
  $cmd JOB=1:"$nj" "$dir/log/make_egs.JOB.log" "${made[@]}" true '||' \
    "${make[@]}" --num-frames="$frames_per_eg" --num-archives="$num_archives" \
    --archives="$(IFS=,; echo "${missing[*]}")" "$(pipeline "$dir/lists/train.JOB.scp")" "$alignments" "${outputs[@]}"
  parts=()
  for j in $(seq "$nj"); do parts+=("$(part JOB "$j")"); done
  $cmd JOB=1:"$num_archives" "$dir/log/shuffle.JOB.log" test -f "$dir/egs.JOB.ark" '||' \
    egs-shuffle --sort --seed="$seed" "ark:cat$(printf ' %q' "${parts[@]}") |" "ark:$dir/egs.JOB.ark" '&&' \
    rm -f "${parts[@]}"
fi
rm -f "$dir"/egs_orig.*.ark "$dir"/ali.{ark,scp}
echo "make_egs.sh: $num_archives archives of about $(cat "$dir/info/egs_per_archive") examples in $dir" >&2
