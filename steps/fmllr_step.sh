# What the steps share that estimate fMLLR transforms. To be sourced after feature_pipeline.sh:
#
#   fmllr_transforms LOG OUT FEATS MODEL EARLIER [OPTION...] -- LABELS...
#
# Each job writes the transforms OUT of its speakers, estimated from FEATS under MODEL; where EARLIER is not empty, FEATS
# are under these transforms, and OUT is both in one. LABELS are gzipped posteriors or, with --alignments among the
# options of gmm-est-fmllr, alignments. LOG, OUT, FEATS, EARLIER and LABELS have JOB in them. What was done with the same
# inputs is not done again. Uses cmd, nj, split, silence_phones, silence_weight, fmllr_update_type, fmllr_min_count.

fmllr_transforms() {
  local log=$1 out=$2 feats=$3 model=$4 earlier=$5 labels command options=()
  shift 5
  while [ "$1" != -- ]; do
    options+=("$1")
    shift
  done
  shift
  labels="ark:gunzip -c$(printf ' %q' "$@") |"
  command=(gmm-est-fmllr --spk2utt="$split/JOB/spk2utt" --silence-phones="$silence_phones"
    --silence-weight="$silence_weight" ${fmllr_update_type:+--fmllr-update-type="$fmllr_update_type"}
    ${fmllr_min_count:+--fmllr-min-count="$fmllr_min_count"} "${options[@]}" "$model" "$feats" "$labels")
  if [ -n "$earlier" ]; then
    command=(compose-transforms --b-is-affine "ark:$(printf '%q ' "${command[@]}") ark:- |" "ark:$earlier" "ark:$out")
    set -- "$@" "$earlier"
  else
    command+=("ark:$out")
  fi
  $cmd JOB=1:"$nj" "$log" unless_done.sh "${log%.log}.done" "$out" "$model" "$split/JOB/spk2utt" "$@" -- "${command[@]}"
}
