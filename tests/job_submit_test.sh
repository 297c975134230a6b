#!/usr/bin/env bash
# neox-submit hands scripts to sbatch, one after the other, and what it writes does what it says.
# Usage: job_submit_test.sh TREE BUILD_DIRECTORY
build=$(cd "$2" && pwd)
source "$(dirname "$0")/job_scripts.sh"

# --submit: one after the other, logs in logs/, the ids said.
submit() {
  : > "$here/log"
  env -i PATH="$here/bin:/usr/bin:/bin" HERE="$here" DATA_PATH="$here" MODEL_PATH="$here" "${more[@]}" \
    "$build/bin/neox-submit" --submit "$@" > "$here/out" 2>&1; code=$?
}
more=(CODE=0)
stand_in sbatch 'echo "sbatch $*" >> "$HERE/log"; cat "${@: -1}" >> "$HERE/log"
[ "$CODE" = 0 ] || { echo "sbatch: error: invalid partition" >&2; exit 1; }
echo "$(grep -c "^sbatch " "$HERE/log")1;cluster"'
submit prepare-data train configs/pythia/70M.yml --nodes 3 -- --mem=0
ends_with 0
does "^sbatch --parsable .* --output=$here/job/logs/%x_%j.out logs/neox-prepare-data.sbatch$"
# What was asked for stands on the command line too: SBATCH_TIMELIMIT and the like override what a script says.
does "^sbatch --parsable --job-name=neox-train --nodes=3 --gpus-per-node=8 --signal=B:USR1@180 --dependency=afterok:11 \
--kill-on-invalid-dep=yes --mem=0 --output=$here/job/logs/%x_%j.out logs/neox-train.sbatch$"
does '^#SBATCH --dependency=afterok:11$'
does '^#SBATCH --kill-on-invalid-dep=yes$'
does '^#SBATCH --mem=0$'
does "^MODEL_CONFIG=$here/job/configs/pythia/70M.yml$"
does '^#SBATCH --nodes=3$'
does '^#SBATCH --nodes=1$'
says '^submitted job 21 \(neox-train\), which starts after job 11$'
says 'tail -F logs/neox-train_21.out'
# Paths that stand in a configuration are mounted as those of the command line are.
d=$here/d
mkdir -p "$d/enwik8" "$d/tokenizers"
printf '%s\n' "data_path: $d/enwik8/text" "vocab_file: $d/tokenizers/t.json" "save: $d/new" "load: $d/new" > own.yml
mounts_of() {
  env -i PATH="$here/bin:/usr/bin:/bin" "$build/bin/neox-submit" train configs/pythia/70M.yml own.yml \
    --container docker://x#y:1 --write "$here/scripts" "$@" > "$here/out" 2>&1 || complain 'is not written'
  scripts=$here/scripts run 2.train.sbatch
}
mounts_of
does "--container-mounts=$here/job:$here/job,$d/enwik8:$d/enwik8,$d/tokenizers:$d/tokenizers,$d:$d --"
mounts_of --mounts "$d:$d"
does "--container-mounts=$d:$d,$here/job:$here/job --"
mounts_of --mounts "/x:$d/a/b"  # a folder above it would hide it
does "--container-mounts=/x:$d/a/b,$here/job:$here/job,$d/enwik8:$d/enwik8,$d/tokenizers:$d/tokenizers --"
mkdir -p "$d/far" && touch "$d/far/x.bin" && ln -sf "$d/far/x.bin" "$d/enwik8/text.bin"  # what links lead to
mounts_of --mounts "/x:$d/a/b"
does "--container-mounts=/x:$d/a/b,.*,$d/far:$d/far"
rm "$d/enwik8/text.bin"
mounts_of --mounts "$d:$d" --set vocab_file=/opt/none/t.json
does "--container-mounts=$d:$d,$here/job:$here/job --"
mkdir -p "$here/metrics" "$here/board" "$here/cache"
printf '%s\n' "log_dir: $here/metrics" "tensorboard_dir: $here/board/new" "data_cache_path: $here/cache" > written.yml
mounts_of --mounts "$d:$d" written.yml
does "--container-mounts=$d:$d,$here/job:$here/job,$here/metrics:$here/metrics,$here/board:$here/board,$here/cache:$here/cache --"
submit train configs/pythia/70M.yml --after 5 -- --output=/logs/x.out
does '^sbatch --parsable .* --output=/logs/x.out logs/neox-train.sbatch$'
submit train configs/pythia/70M.yml --after 5 -- --array=1-4%1  # each element has a log and a number of its own
does "^sbatch --parsable .* --output=$here/job/logs/%x_%A_%a.out logs/neox-train.sbatch$"
says '^  logs:   logs/neox-train_11_\*\.out$'
says 'scancel --batch --signal=USR1 11_ELEMENT$'
submit train configs/pythia/70M.yml
ends_with 64
does_not sbatch
says 'enwik8_text_document.bin does not exist. Prepare it first'
submit train -- --submit
ends_with 64
says "'--submit' behind --"
submit train configs/pythia/70M.yml --after 5
ends_with 0
does '^#SBATCH --dependency=afterok:5$'
more=(CODE=1)
submit train
ends_with 74
says 'invalid partition'
says 'sbatch refused logs/neox-train.sbatch'
rm "$here/bin/sbatch"
more=(PATH=/none)
submit train
ends_with 74
says 'sbatch could not be started'

exit $failed
