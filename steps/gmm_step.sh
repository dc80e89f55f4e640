# What the steps that train GMM-HMMs share. To be sourced after parse_options.sh and feature_pipeline.sh.
#
# A step sets data, lang, dir and the options below, defines gmm_pipeline, and calls
#
#   gmm_begin spk|utt "OPTION ..." FILE...   what is divided between the jobs; the variables and the input files that the
#                         result depends on. Sets nj and split (DATA's parts); leaves where DIR is done already,
#                         refuses one that was made otherwise, or with --overwrite begins anew
#   gmm_tree_inputs       checks NUM_LEAVES and TOT_GAUSS ($num_leaves, $totgauss) and the files of $data, $lang and $ali
#                         that training on a new tree needs; sets inputs, those of them that the result depends on
#   gmm_start_from_tree NUM_LEAVES ALI_DIR   tree, 1.mdl, ali.JOB.gz, fsts.JOB.gz and plan.tsv from alignments
#   gmm_iterate           the rows of plan.tsv; sets last, the number of the last model
#   gmm_finish            final.mdl, final.occs
#
#   gmm_pipeline N        (of the step) prints an rspecifier, with JOB in it, of the features under transform N; transform
#                         0 is what training starts with
#   gmm_transform N       (of the step, where the plan has transforms) makes transform N in iteration N, from $feats, the
#                         model $model and the alignments ali.JOB.gz; may set model to one that fits the new features
#
# Options: nj, cmd, overwrite, cache_feats, power, boost_silence, retry_beam, careful; those of gmm-plan that the step
# has: num_iters, max_iter_inc, totgauss, realign_iters, transform_iters, initial_beam, regular_beam; and where it builds
# a tree: beam, cluster_thresh, context_opts (35 iterations by default then, 25 that add Gaussians, 10 20 30 align anew).
# Everything goes on where it was interrupted and gives the same bytes.

step=${0##*/}
current_transform=0
feats=

# put FILE TEXT: the file is whole or absent.
put() { printf '%s\n' "$2" >"$1.tmp" && mv "$1.tmp" "$1"; }

# each_job NAME: NAME with the number of each job for JOB, in the array `files`.
each_job() {
  local job
  files=()
  for job in $(seq "$nj"); do files+=("${1//JOB/$job}"); done
}

gmm_tree_inputs() {
  local job
  if ! [[ $num_leaves =~ ^[0-9]+$ && $totgauss =~ ^[0-9]+$ ]] || [ "$num_leaves" -eq 0 ]; then
    echo "$step: expected numbers of leaves and of Gaussians, got '$num_leaves' and '$totgauss'; see $step --help" >&2
    exit 2
  fi
  expect_files "$ali/num_jobs" "$lang/phones.txt" "$lang/oov.int" "$lang/phones/optional_silence.csl"
  inputs=("$data/feats.scp" "$data/cmvn.scp" "$data/text" "$data/utt2spk" "$lang/topo" "$lang/L.fst" "$lang/words.txt"
    "$lang/phones/sets.int" "$lang/phones/roots.int" "$lang/phones/extra_questions.int" "$lang/phones/context_indep.csl"
    "$ali/final.mdl")
  for job in $(seq "$(cat "$ali/num_jobs")"); do inputs+=("$ali/ali.$job.gz"); done
  expect_files "${inputs[@]}"
  if [ -f "$ali/phones.txt" ] && ! cmp -s "$ali/phones.txt" "$lang/phones.txt"; then
    echo "$step: $ali and $lang have different phones (phones.txt)" >&2
    exit 1
  fi
}

gmm_begin() {
  local option record unit=$1 options=$2
  shift 2
  split_jobs "$unit"
  record=$(
    for option in $options; do printf -- '--%s=%s\n' "${option//_/-}" "${!option}"; done
    sha256sum "$@"
  )
  if $overwrite; then rm -rf "$dir"; fi
  mkdir -p "$dir/log"
  if [ -f "$dir/inputs" ] && [ "$(cat "$dir/inputs")" != "$record" ]; then
    echo "$step: $dir was made with other options or inputs (< then, > now); use --overwrite to begin anew:" >&2
    diff "$dir/inputs" <(echo "$record") | grep '^[<>]' >&2
    exit 1
  fi
  put "$dir/inputs" "$record"
  if [ -f "$dir/final.mdl" ]; then
    echo "$step: $dir is done already" >&2
    exit 0
  fi
  put "$dir/num_jobs" "$nj"
  cp "$lang/phones.txt" "$dir/phones.txt"
  new_alignments="ark:| gzip -nc > $(printf %q "$dir/ali.JOB.gz")"
  alignments="ark,s,cs:gunzip -c $(printf %q "$dir/ali.JOB.gz") |"
  graphs="ark:gunzip -c $(printf %q "$dir/fsts.JOB.gz") |"
  align_opts=(--boost-silence="$boost_silence" --silence-phones="$(cat "$lang/phones/optional_silence.csl")"
    ${retry_beam:+--retry-beam="$retry_beam"} ${careful:+--careful="$careful"})
}

# gmm_features N: sets feats, the features under transform N; they are kept in DIR when --cache-feats.
gmm_features() {
  local pipeline file all=true
  current_transform=$1
  pipeline=$(gmm_pipeline "$1")
  feats="ark,s,cs:${pipeline#ark:}"
  $cache_feats || return 0
  each_job "$dir/feats.$1.JOB.ark"
  for file in "${files[@]}"; do [ -f "$file" ] || all=false; done
  $all || $cmd JOB=1:"$nj" "$dir/log/feats.$1.JOB.log" test -f "$dir/feats.$1.JOB.ark" '||' \
    copy-feats "$pipeline" "ark:$dir/feats.$1.JOB.ark"
  feats=ark,s,cs:$dir/feats.$1.JOB.ark
}

# gmm_forget_features N: removes what gmm_features has kept.
gmm_forget_features() { each_job "$dir/feats.$1.JOB.ark" && rm -f "${files[@]}"; }

# gmm_plan MODEL [OPTIONS]: plan.tsv, from the step's defaults for gmm-plan and the options that the user gave.
gmm_plan() {
  local option given=()
  for option in num_iters totgauss max_iter_inc realign_iters transform_iters initial_beam regular_beam; do
    [ -z "${!option-}" ] || given+=("--${option//_/-}=${!option}")
  done
  gmm-plan "${@:2}" "${given[@]}" "$1" "$dir/plan.tsv"
}

# gmm_compile_graphs MODEL: the training graphs fsts.JOB.gz.
gmm_compile_graphs() {
  local transcripts
  echo "$step: compiling training graphs" >&2
  transcripts=$(printf 'ark:sym2int.py --map-oov=%q --fields=2- %q %q |' "$(cat "$lang/oov.int")" "$lang/words.txt" \
    "$split/JOB/text")
  $cmd JOB=1:"$nj" "$dir/log/compile_graphs.JOB.log" \
    unless_done.sh "$dir/log/graphs.JOB.done" "$dir/fsts.JOB.gz" "$dir/tree" "$lang/L.fst" "$split/JOB/text" -- \
    compile-train-graphs "$dir/tree" "$1" "$lang/L.fst" "$transcripts" \
    "ark:| gzip -1nc > $(printf %q "$dir/fsts.JOB.gz")"
}

# gmm_all_alignments ALI_DIR: an rspecifier of the alignments of all its jobs, however many they were.
gmm_all_alignments() {
  local job list=
  for job in $(seq "$(cat "$1/num_jobs")"); do list+=$(printf ' %q' "$1/ali.$job.gz"); done
  printf 'ark:gunzip -c%s |' "$list"
}

gmm_start_from_tree() {
  local num_leaves=$1 ali=$2 source context=()
  read -ra context <<<"$context_opts"
  source=$(gmm_all_alignments "$ali")
  if [ ! -f "$dir/plan.tsv" ]; then
    if [ ! -f "$dir/1.mdl" ]; then
      gmm_features 0
      echo "$step: building the tree" >&2
      if [ ! -f "$dir/treeacc" ]; then
        $cmd JOB=1:"$nj" "$dir/log/acc_tree.JOB.log" test -f "$dir/treeacc.JOB" '||' \
          acc-tree-stats "${context[@]}" --ci-phones="$(cat "$lang/phones/context_indep.csl")" "$ali/final.mdl" \
          "$feats" "$source" "$dir/treeacc.JOB"
        each_job "$dir/treeacc.JOB"
        $cmd "$dir/log/sum_tree_acc.log" sum-tree-stats "$dir/treeacc" "${files[@]}"
        rm "${files[@]}"
      fi
      $cmd "$dir/log/questions.log" \
        cluster-phones "${context[@]}" "$dir/treeacc" "$lang/phones/sets.int" "$dir/clustered.int"
      put "$dir/questions.int" "$(cat "$dir/clustered.int" "$lang/phones/extra_questions.int")"
      $cmd "$dir/log/compile_questions.log" \
        compile-questions "${context[@]}" "$lang/topo" "$dir/questions.int" "$dir/questions.qst"
      $cmd "$dir/log/build_tree.log" \
        build-tree "${context[@]}" --max-leaves="$num_leaves" --cluster-thresh="$cluster_thresh" "$dir/treeacc" \
        "$lang/phones/roots.int" "$dir/questions.qst" "$lang/topo" "$dir/tree"
      $cmd "$dir/log/init_model.log" \
        gmm-init-model --write-occs="$dir/1.occs" "$dir/tree" "$dir/treeacc" "$lang/topo" "$dir/1.mdl"
    fi
    rm -f "$dir/treeacc" "$dir/clustered.int"
    gmm_plan "$dir/1.mdl" --start-gauss="$num_leaves" --num-iters=35 --max-iter-inc=25 --realign-iters="10 20 30" \
      --initial-beam="${beam:-10}" --regular-beam="${beam:-10}"
  fi
  if [ -f "$dir/1.mdl" ]; then
    $cmd JOB=1:"$nj" "$dir/log/convert.JOB.log" \
      unless_done.sh "$dir/log/convert.JOB.done" "$dir/ali.JOB.gz" "$dir/tree" "$split/JOB/text" -- \
      convert-ali --utterances="$split/JOB/text" "$ali/final.mdl" "$dir/1.mdl" "$dir/tree" "$source" "$new_alignments"
    gmm_compile_graphs "$dir/1.mdl"
  fi
}

# gmm_estimate ITERATION NEXT GAUSSIANS MODEL [OPTIONS]: model NEXT from the statistics of an iteration under MODEL.
gmm_estimate() {
  each_job "$dir/$1.JOB.acc"
  $cmd "$dir/log/update.$1.log" gmm-est --mix-up="$3" --power="$power" --write-occs="$dir/$2.occs" "${@:5}" \
    "$4" "${files[@]}" "$dir/$2.mdl"
}

# gmm_clean ITERATION: its files are not needed once the next model is there; the model goes last.
gmm_clean() {
  each_job "$dir/$1.JOB.acc"
  rm -f "${files[@]}" "$dir/$1.occs"
  rm -f "$dir/$1.mdl"
}

gmm_iterate() {
  local iteration next gauss realign beam transform reached=0
  while IFS=$'\t' read -u 3 -r iteration next gauss realign beam transform; do
    if [ "$iteration" = iteration ]; then continue; fi
    last=$next
    if [ -f "$dir/$iteration.mdl" ]; then
      if [ ! -f "$dir/$next.mdl" ]; then
        gmm_iteration
      fi
      if $transform; then gmm_forget_features "$reached"; fi
      gmm_clean "$iteration"
    fi
    if $transform; then reached=$iteration; fi
  done 3<"$dir/plan.tsv"
  current_transform=$reached
}

# gmm_iteration: one row, whose values are the variables of gmm_iterate.
gmm_iteration() {
  [ "$current_transform" = "$reached" ] && [ -n "$feats" ] || gmm_features "$reached"
  model=$dir/$iteration.mdl
  if $realign; then echo "$step: iteration $iteration, $gauss Gaussians, aligning anew" >&2; fi
  if $realign && ! $transform; then
    $cmd JOB=1:"$nj" "$dir/log/align_acc.$iteration.JOB.log" gmm-align-acc "${align_opts[@]}" --beam="$beam" \
      "$model" "$graphs" "$feats" "$new_alignments" "$dir/$iteration.JOB.acc"
  else
    if $realign; then
      $cmd JOB=1:"$nj" "$dir/log/align.$iteration.JOB.log" gmm-align-compiled "${align_opts[@]}" --beam="$beam" \
        "$model" "$graphs" "$feats" "$new_alignments"
    fi
    if $transform; then
      echo "$step: iteration $iteration, estimating transforms" >&2
      gmm_transform "$iteration"
      gmm_features "$iteration"
    fi
    $cmd JOB=1:"$nj" "$dir/log/acc.$iteration.JOB.log" \
      gmm-acc-stats-ali "$model" "$feats" "$alignments" "$dir/$iteration.JOB.acc"
  fi
  gmm_estimate "$iteration" "$next" "$gauss" "$model"
}

gmm_finish() {
  if [ -f "$dir/$last.occs" ]; then mv "$dir/$last.occs" "$dir/final.occs"; fi
  mv "$dir/$last.mdl" "$dir/final.mdl"
  gmm_forget_features "$current_transform"
  echo "$step: done, the model is $dir/final.mdl" >&2
}
