#!/usr/bin/env bash
# Score the hypotheses of a decoding: word error rates in DECODE/scoring.
#
# Usage: score.sh [options] DATA DECODE
#   e.g.: score.sh data/test exp/mono/decode
#
# DATA has text and utt2spk; DECODE has hyp.1.gz ... and num_jobs. See score-wer for what it writes.
#
#   --cmd CMD             launcher (default run.py)
#   --acwt X              acoustic scale that was decoded with; one over it is the fixed language-model weight (0.1)
#   --scoring-opts OPTS   options of score-wer
set -euo pipefail

cmd=run.py
acwt=0.1
scoring_opts=
. parse_options.sh

expect_arguments "$@"
data=$1
dir=$2

expect_files "$data/text" "$data/utt2spk" "$dir/num_jobs"
files=
for job in $(seq "$(cat "$dir/num_jobs")"); do
  expect_files "$dir/hyp.$job.gz"
  files+=$(printf ' %q' "$dir/hyp.$job.gz")
done
# shellcheck disable=SC2086 # several options in one word
$cmd "$dir/log/score.log" score-wer --acoustic-scale="$acwt" --utt2spk="$data/utt2spk" $scoring_opts "$data/text" \
  "ark:gunzip -c$files |" "$dir/scoring"
for file in best_wer fixed_wer; do
  if [ -f "$dir/scoring/$file" ]; then cat "$dir/scoring/$file"; fi
done
