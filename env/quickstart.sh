#!/usr/bin/env bash
# The main job from end to end on this machine: sets up, builds, prepares text, trains a small model, stops it halfway,
# resumes, draws the loss curve, generates a paragraph. Results in build/quickstart.
# Usage: env/quickstart.sh [FILE...]     text or JSON lines (*.jsonl) to train on; by default the quotations of `fortune`
# Arguments after -- go to neox-train, e.g. env/quickstart.sh -- --set train_iters=1000
source "$(dirname "$0")/common.sh"
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive} # threads that spin slow down a machine that has other work

out=build/quickstart
bin=build/release/bin
fortunes=/usr/share/games/fortunes
train=()

step() { printf '\n== %s\n' "$*"; }
# run COMMAND...: shows it as one would type it, then runs it.
show() { printf '$'; printf ' %q' "$@"; printf '\n'; }
run() { show "$@"; "$@"; }

main() {
  local files=()
  while [ $# -gt 0 ]; do
    case $1 in
      -h|--help) sed -n '2,5s/^# //p' "$0"; exit 0 ;;
      --) shift; break ;;
      -*) fail 64 "unknown argument $1; see env/quickstart.sh --help" ;;
      *) [ -f "$1" ] && [ -r "$1" ] || fail 74 "cannot read the file $1"; files+=("$(realpath "$1")"); shift ;;
    esac
  done
  train=("$bin/neox-train" configs/quickstart.yml "$@")
  cd "$repo"
  step "1/7 Set up and build"
  env/build.sh release neox-prepare-data neox-train neox-generate neox-plot
  local start=$SECONDS
  rm -rf "$out"
  mkdir -p "$out"
  prepare ${files[@]+"${files[@]}"}
  train_with_a_break
  draw
  step "7/7 Generate"
  run "$bin/neox-generate" "$out/checkpoints" --prompt "The secret of" --max-tokens 120 --temperature 0.7 --top-k 40 --seed 1
  next_steps "$start"
}

prepare() {
  local input=("$@")
  step "2/7 Tokenize"
  if [ $# = 0 ]; then
    mapfile -t input < <(find "$fortunes" -maxdepth 1 -type f ! -name '*.dat' ! -name '*.u8' | LC_ALL=C sort)
    say "Text: the quotations of the package fortunes in $fortunes, ${#input[@]} files, parted by lines of %."
  else
    say "Text: $(($# > 1 ? $# : 1)) of your files, cut into documents of a few paragraphs."
    mapfile -t input < <(documents "$@")
  fi
  say "Trains a byte-level BPE tokenizer of 4096 entries on it, then writes token ids for training."
  run "$bin/neox-prepare-data" --input "${input[@]}" --output-prefix "$out/data" --tokenizer-type HFTokenizer \
    --vocab-file "$out/tokenizer.json" --train-tokenizer 4096 --split-on % --append-eod --workers "$(nproc)"
}

# documents FILE...: prints the files to tokenize: JSON lines as they are, and texts cut by lines of % into documents
# of 4000 characters or more (at blank lines, or at any line after 16000), since part of the documents is kept for validation.
documents() {
  local file n=0
  for file in "$@"; do
    case $file in *.jsonl) echo "$file"; continue ;; esac
    n=$((n + 1))
    awk '{ print; size += length($0) + 1 }
         size > 16000 || (size > 4000 && $0 ~ /^[ \t\r]*$/) { print "%"; size = 0 }' "$file" > "$out/text$n.txt"
    echo "$out/text$n.txt"
  done
}

# The last step in the run's metrics; 0 before there is one.
steps_done() { tail -n 1 "$out/logs/metrics.jsonl" 2>/dev/null | sed -n 's/.*"step":\([0-9]*\).*/\1/p' | grep . || echo 0; }

train_with_a_break() {
  local total pid code=0
  total=$("${train[@]}" --explain | sed -n 's/^ *train_iters  *\([0-9]*\) .*/\1/p')
  [ -n "$total" ] || fail 70 "neox-train --explain does not say train_iters"
  step "3/7 Train"
  say "Each step is 8 samples of 256 tokens. Watch the loss fall from ln(4096) = 8.3."
  show "${train[@]}"
  "${train[@]}" &
  pid=$!
  trap 'kill -USR1 '$pid' 2> /dev/null || true' EXIT
  while kill -0 $pid 2> /dev/null && [ "$(steps_done)" -lt $((total / 2)) ]; do sleep 0.3; done
  if kill -USR1 $pid 2> /dev/null; then step "4/7 Interrupt: halfway the run gets SIGUSR1, as Slurm sends it before a time limit; it saves and stops"; fi
  wait $pid || code=$?
  trap - EXIT
  case $code in
    0) say "The run was done before it could be interrupted."; return ;;
    75) say "Exit code 75: saved, and asks to be started again." ;;
    *) fail $code "neox-train ended with $code" ;;
  esac
  step "5/7 Resume: the same command goes on where the run was stopped"
  run "${train[@]}"
}

draw() {
  step "6/7 The loss curve"
  run "$bin/neox-plot" "$out/logs"
  run "$bin/neox-plot" "$out/logs" --out "$out/loss.svg"
}

next_steps() {
  step "Done in $(since "$1") after the build"
  cat <<TEXT
Tokenizer, data, checkpoints, metrics and loss.svg are in $repo/$out.
To go on, from $repo:
  # prompts of your own
  $bin/neox-generate $out/checkpoints --temperature 0.8
  # train on your own text
  env/quickstart.sh my.txt
  # the same for longer, beside this run
  $bin/neox-train configs/quickstart.yml --set train_iters=1000 --set save=runs/longer --set load=runs/longer --set log_dir=runs/longer
  # what a run of Pythia-70M would need
  $bin/neox-train configs/pythia/70M.yml --set vocab_file=$out/tokenizer.json --set data_path=$out/data_text_document --dry-run
README.md says how a run of your own is set up; each program has --help with examples.
TEXT
}

main "$@"
