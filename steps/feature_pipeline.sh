# The features that a model takes, as a table read through a pipe. To be sourced:
#
#   feats=$(feature_pipeline DATA SCP MODEL_DIR raw [TRANSFORMS])
#
# SCP lists the utterances, a part of DATA/feats.scp. MODEL_DIR says how, in the files that training leaves there and
# Kaldi's own directories have: feat_type (raw, delta or lda; without it: lda where final.mat is, else the fourth
# argument), cmvn_opts, delta_opts (of delta), delta_order (of raw), splice_opts and final.mat (of lda). TRANSFORMS are
# fMLLR transforms by speaker: a directory with trans.1 ... trans.N and num_jobs, their number, or a table, ark:FILE.
#
#   transform_files DIR   the transforms of a directory, in the array `files`
#   split_jobs spk|utt    divides the speakers or the utterances of $data between $nj jobs, or fewer where there are
#                         fewer; sets nj, and split: the parts are $split/1 ... $split/$nj

# The files by which a directory says how features are made.
# shellcheck disable=SC2034  # for those who source this
feature_files="cmvn_opts feat_type delta_opts delta_order splice_opts final.mat speaker_transforms"

split_jobs() {
  local limit=() unit=()
  if [ "$1" = spk ]; then limit=(--per-spk); else unit=(--per-utt); fi
  nj=$(limit_jobs.py "${limit[@]}" "$data" "$nj")
  split_data_dir.py "${unit[@]}" "$data" "$nj"
  split=$data/split$nj
  [ "$1" = spk ] || split+=utt
}

transform_files() {
  local job
  files=()
  for job in $(seq "$(cat "$1/num_jobs")"); do files+=("$1/trans.$job"); done
}

feature_pipeline() {
  local data=$1 scp=$2 model=$3 type=$4 transforms=${5-} pipeline cmvn_opts files
  cmvn_opts=$(cat "$model/cmvn_opts" 2>/dev/null || true)
  [ -f "$data/cmvn.scp" ] || {
    echo "feature_pipeline: no $data/cmvn.scp: run compute_cmvn.sh first" >&2
    return 1
  }
  if [ -f "$model/feat_type" ]; then
    type=$(cat "$model/feat_type")
  elif [ -f "$model/final.mat" ]; then
    type=lda
  fi
  pipeline=$(printf 'apply-cmvn %s --utt2spk=ark:%q scp:%q scp:%q ark:-' \
    "$cmvn_opts" "$data/utt2spk" "$data/cmvn.scp" "$scp")
  case $type in
    raw)
      [ ! -f "$model/delta_order" ] ||
        pipeline+=" | add-deltas --delta-order=$(cat "$model/delta_order") ark:- ark:-"
      ;;
    delta) pipeline+=" | add-deltas $(cat "$model/delta_opts" 2>/dev/null || true) ark:- ark:-" ;;
    lda)
      pipeline+=" | splice-feats $(cat "$model/splice_opts" 2>/dev/null || true) ark:- ark:-"
      pipeline+=$(printf ' | transform-feats %q ark:- ark:-' "$model/final.mat")
      ;;
    *)
      echo "feature_pipeline: $model: expected feature type raw, delta or lda, found '$type'" >&2
      return 1
      ;;
  esac
  case $transforms in
    "" | ark:*) ;;
    *)
      transform_files "$transforms"
      transforms="ark:cat$(printf ' %q' "${files[@]}") |"
      ;;
  esac
  [ -z "$transforms" ] ||
    pipeline+=$(printf " | transform-feats --utt2spk=ark:%q %q ark:- ark:-" "$data/utt2spk" "$transforms")
  printf 'ark:%s |' "$pipeline"
}
