# Sourced by the scenarios beside it, each of which is `NAME.sh BUILD_DIR [--full]`: a cluster of slurm_cluster that
# is gone when the scenario ends, whatever happens; jobs; runs of neox-train on a tiny model, and their comparison.
# A scenario ends with 0, 1 after "FAILED: ..." with the logs of its jobs, or 77 where it cannot run here.
# shellcheck shell=bash
set -euo pipefail
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
repo=$(readlink -f "$here/../..")
build=$(readlink -f "${1:?which build directory}")
# shellcheck disable=SC2034 # for the scenarios
full=${2-}
export LC_ALL=C.UTF-8 PATH=$build/bin:$PATH:/usr/sbin:/sbin
export IMAGE= # jobs take the programs in PATH
# Ranks share few cores here; threads that spin or are bound make that slow.
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive
export OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_hwloc_base_binding_policy=none PRTE_MCA_hwloc_default_binding_policy=none
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

say() { printf '[%5.1f s] %s\n' "$(elapsed "$began")" "$*"; }
elapsed() { awk -v a="$EPOCHREALTIME" -v b="$1" 'BEGIN { printf "%.1f", a - b }'; } # SINCE
began=$EPOCHREALTIME

fail() {
  say "FAILED: $*" >&2
  exit 1
}

# --- the cluster ---

# What must be there for a cluster; skips the scenario where it is not, saying what.
need_cluster() {
  local program
  if ((EUID != 0)); then skip "a cluster needs root"; fi
  for program in slurmctld slurmd srun sbatch munged ip nsenter unshare; do
    command -v "$program" > /dev/null || skip "$program is missing; env/setup.sh --tests installs it"
  done
  unshare --pid --fork --mount --net --uts --ipc true 2> /dev/null || skip "this container may not make namespaces"
  mountpoint -q /sys/fs/cgroup || skip "there are no cgroups, which slurmd wants; is this a chroot?"
  unshare --net bash -c 'ip link add probe0 type veth peer name probe1 && ip link add probe2 type bridge' 2> /dev/null ||
    skip "this kernel or container makes no virtual network"
}
skip() { echo "skipped: $*"; exit 77; }

# up OPTION...: of slurm_cluster up. Sets $fsx, the directory that all nodes share. KillWait is Slurm's default again.
up() {
  # Short, since sockets lie in it; the tree may lie in /tmp, which nodes have of their own.
  interfaces=$(list_interfaces)
  SLURM_CLUSTER_DIR=$(mktemp -d /tmp/neox_slurm.XXXXXX)
  export SLURM_CLUSTER_DIR
  fsx=$SLURM_CLUSTER_DIR/fsx
  trap 'finish $?' EXIT
  trap 'exit 130' INT TERM HUP
  "$here/slurm_cluster" up --share "$repo" --share "$build" --conf KillWait=30 "$@" > /dev/null
  say "a cluster is up: $*"
}
export SLURM_PMIX_FENCE=ring  # otherwise Open MPI may crash in MPI_Init (docs/slurm.md)
login() { "$here/slurm_cluster" run -- "$@"; }

finish() { # EXIT_CODE
  local code=$1
  trap - EXIT INT TERM HUP
  if ((code != 0)); then show_logs || true; fi
  "$here/slurm_cluster" down || code=1
  check_nothing_left || code=1
  say "ends with $code"
  exit "$code"
}

show_logs() {
  local log
  for log in "$fsx"/*.out "$fsx"/*/*.out; do
    [[ ! -s $log ]] || { echo "--- $log"; tail -n 60 "$log"; }
  done
  echo "--- slurmctld.log"
  tail -n 20 "$SLURM_CLUSTER_DIR/log/slurmctld.log"
  for log in "$SLURM_CLUSTER_DIR"/log/node*.log; do
    echo "--- $(basename "$log")"
    grep -i error "$log" | tail -n 10 || true
  done
}

list_interfaces() { ls /sys/class/net; }

# After `down` there is no process, mount, interface or directory of the cluster.
check_nothing_left() {
  local bad=0 pid
  for _ in {1..40}; do # the kernel takes a moment to end the last processes
    [[ -n $(processes_with "SLURM_CLUSTER_DIR=$SLURM_CLUSTER_DIR") ]] || break
    sleep 0.05
  done
  for pid in $(processes_with "SLURM_CLUSTER_DIR=$SLURM_CLUSTER_DIR"); do
    echo "LEFT: process $pid: $(tr '\0' ' ' < "/proc/$pid/cmdline")" && bad=1
  done
  if grep -F "$SLURM_CLUSTER_DIR" /proc/self/mounts; then echo "LEFT: these mounts" && bad=1; fi
  if [[ $(list_interfaces) != "$interfaces" ]]; then echo "LEFT: interfaces, $(list_interfaces | xargs)" && bad=1; fi
  if [[ -e $SLURM_CLUSTER_DIR ]]; then echo "LEFT: $SLURM_CLUSTER_DIR" && bad=1; fi
  return $bad
}

# processes_with VARIABLE=VALUE...: the processes whose environment, at their start, had all of these.
processes_with() {
  local files=(/proc/[0-9]*/environ) setting
  for setting in "$@"; do
    mapfile -t files < <(env -u SLURM_CLUSTER_DIR grep -lzxF -- "$setting" "${files[@]}" 2> /dev/null)
    ((${#files[@]})) || return 0
  done
  printf '%s\n' "${files[@]}" | cut -d/ -f3
}

# --- waiting ---

# wait_until SECONDS WHAT COMMAND...: fails naming WHAT where the command does not succeed in that time.
wait_until() {
  local end=$((SECONDS + $1)) what=$2
  shift 2
  until "$@"; do
    ((SECONDS < end)) || fail "in vain for $what"
    sleep 0.2
  done
}

# --- jobs ---

# submit SBATCH_ARGUMENT...: prints the job's number.
submit() { login sbatch --parsable "$@"; }
field() { login scontrol show job "$1" --oneliner | grep -oP "(?<= $2=)\S+"; } # field JOB NAME
state_is() { [[ $(field "$1" JobState) =~ ^($2)$ ]]; }                         # state_is JOB REGEX
is_over() { state_is "$1" 'COMPLETED|FAILED|CANCELLED|TIMEOUT|NODE_FAIL|OUT_OF_MEMORY|BOOT_FAIL|DEADLINE'; }

# wait_for JOB SECONDS STATE: the job ends in that state within that time.
wait_for() {
  wait_until "$2" "the end of job $1, which is $(field "$1" JobState)" is_over "$1"
  state_is "$1" "$3" || fail "job $1 ended as $(field "$1" JobState), exit $(field "$1" ExitCode), not $3"
  say "job $1: $3, restarts $(field "$1" Restarts)"
}

# tasks JOB PROGRAM [RANK]: the processes of that program in a job, or of one rank.
tasks() {
  local pid
  for pid in $(processes_with "SLURM_CLUSTER_DIR=$SLURM_CLUSTER_DIR" "SLURM_JOB_ID=$1" ${3+"SLURM_PROCID=$3"}); do
    if [[ $(cat "/proc/$pid/comm" 2> /dev/null) == "$2" ]]; then echo "$pid"; fi
  done
}
no_tasks() { [[ -z $(tasks "$@") ]]; }

requeued() { [[ $(field "$1" Restarts) == "$2" ]]; } # JOB TIMES; PENDING may be over at once
restarted() { [[ $(field "$1" Restarts) != 0 ]] && state_is "$1" RUNNING; } # JOB
gone() { # PID...: none of them runs
  local pid
  for pid in "$@"; do
    if [[ $(sed 's/.*) //' "/proc/$pid/stat" 2> /dev/null) == [^Z]* ]]; then return 1; fi
  done
}
slurmd_of() { # NODE: its process
  local pid
  for pid in $(processes_with "SLURM_CLUSTER_DIR=$SLURM_CLUSTER_DIR"); do
    if [[ $(tr '\0' ' ' < "/proc/$pid/cmdline") == "slurmd -D -N $1 " ]]; then echo "$pid"; fi
  done 2> /dev/null # some end meanwhile
}

# The run `alone`, and $job, the run `elastic` of --nodes=2-4 with two tasks on each, past its first checkpoint on four nodes.
elastic_on_four() {
  need_cluster
  up --nodes 4
  make_data
  new_run alone "${long[@]}"
  new_run elastic "${long[@]}"
  train_alone alone
  job=$(elastic_job elastic 2-4 2)
  wait_until 180 "a checkpoint" saved elastic 20
  [[ $(field "$job" NumNodes) == 4 ]] || fail "the job has $(field "$job" NumNodes) nodes"
}

# --- what was written ---

# expect FILE REGEX...: the file has a line for each.
expect() {
  local regex
  for regex in "${@:2}"; do
    grep -qE -- "$regex" "$1" || fail "$1 has no line like: $regex"
  done
}
expect_no() { ! grep -nE -- "$2" "$1" || fail "$1 has the line above"; }

# --- runs of neox-train ---

# Settings of runs long enough to kill something in them, and to lose a node; a checkpoint every few steps.
steps=60 long_steps=120
# shellcheck disable=SC2034 # for the scenarios
short=("train_iters: $steps" "checkpoint_factor: 20")
# shellcheck disable=SC2034
long=("train_iters: $long_steps" "checkpoint_factor: 20" "zero_optimization: {stage: 1}")

# Text, tokenizer and dataset, as a user would make them: $fsx/data_text_document, $fsx/tokenizer.json.
make_data() {
  awk 'BEGIN {
    srand(7)
    for (d = 0; d < 120; d++) {
      line = ""
      for (w = 0; w < 50; w++) line = line substr("the cat sat on a mat and saw two red birds fly over hills ", 1 + int(rand() * 48), 3 + int(rand() * 6)) " "
      printf "{\"text\": \"%s\"}\n", line
    }
  }' > "$fsx/text.jsonl"
  neox-prepare-data --input "$fsx/text.jsonl" --output-prefix "$fsx/data" --tokenizer-type HFTokenizer \
    --vocab-file "$fsx/tokenizer.json" --train-tokenizer 300 --append-eod > "$fsx/prepare.log" 2>&1 ||
    fail "neox-prepare-data: $(tail -n 3 "$fsx/prepare.log")"
}

# new_run NAME LINE...: $fsx/NAME/config.yml of a tiny model; of lines with the same key the last counts.
new_run() {
  mkdir -p "$fsx/$1"
  {
    cat << YAML
num_layers: 4
hidden_size: 32
num_attention_heads: 4
seq_length: 32
max_position_embeddings: 32
pos_emb: rotary
rotary_pct: 0.5
no_weight_tying: true
gpt_j_residual: true
hidden_dropout: 0.1
attention_dropout: 0.1
data_path: $fsx/data_text_document
split: "90, 8, 2"
tokenizer_type: HFTokenizer
vocab_file: $fsx/tokenizer.json
make_vocab_size_divisible_by: 8
train_batch_size: 10
train_micro_batch_size_per_gpu: 1
log_interval: 10
eval_interval: 1000
eval_iters: 0
optimizer: {type: Adam, params: {lr: 0.003, betas: [0.9, 0.95]}}
lr_decay_style: cosine
warmup: 0.1
min_lr: 0.0003
weight_decay: 0.1
gradient_clipping: 1.0
save: $fsx/$1/save
load: $fsx/$1/save
log_dir: $fsx/$1/log
YAML
    printf '%s\n' "${@:2}"
  } | tac | awk -F: '!seen[$1]++' | tac > "$fsx/$1/config.yml"
}

# train_alone NAME: by one process, outside of the cluster.
train_alone() {
  neox-train "$fsx/$1/config.yml" > "$fsx/$1/alone.out" 2>&1 || fail "neox-train $1: $(tail -n 5 "$fsx/$1/alone.out")"
}

# train_job NAME SBATCH_OPTION...: submits a run by sbatch/2.train.sbatch; prints the job's number. Its log: $fsx/NAME/job.out.
train_job() {
  MODEL_CONFIG=$fsx/$1/config.yml submit --output="$fsx/$1/job.out" --gpus-per-node=0 "${@:2}" "$repo/sbatch/2.train.sbatch"
}
# elastic_job NAME MIN-MAX TASKS_PER_NODE: the same by neox-submit, on any number of nodes.
elastic_job() {
  login neox-submit train "$fsx/$1/config.yml" --nodes "$2" --gpus-per-node 0 --tasks-per-node "$3" > "$fsx/$1/job.sbatch" \
    2> "$fsx/$1/submit.out" || fail "neox-submit: $(cat "$fsx/$1/submit.out")"
  submit --output="$fsx/$1/job.out" "$fsx/$1/job.sbatch"
}

# Losses "STEP LOSS" of a run, over all its lives: an event "start" at a step takes back what older lines say of it.
losses() { # NAME
  awk '
    match($0, /"step":[0-9]+/) { step = substr($0, RSTART + 7, RLENGTH - 7) + 0 }
    /"event":"start"/ { for (s in loss) if (s + 0 >= step) delete loss[s] }
    match($0, /"train\/lm_loss":[^,}]+/) { loss[step] = substr($0, RSTART + 16, RLENGTH - 16) }
    END { for (s in loss) print s, loss[s] }' "$fsx/$1/log/metrics.jsonl" | sort -n
}

# same_losses NAME OTHER STEPS TOLERANCE: both have each step 1..STEPS, and differ by at most TOLERANCE; "bits": not at all.
same_losses() {
  local worst
  worst=$(join <(losses "$1" | sort -k1,1) <(losses "$2" | sort -k1,1) | awk -v steps="$3" -v tolerance="$4" '
    { n++; d = $2 - $3; if (d < 0) d = -d; if (d > worst) worst = d; if ($2 != $3 "") differ++ }
    $2 !~ /^[0-9]/ || $3 !~ /^[0-9]/ { odd++ }
    END {
      printf "%d steps, %d differ, by up to %g", n, differ, worst
      exit n != steps || odd || (tolerance == "bits" ? differ : worst > tolerance)
    }') || fail "losses of $1 and $2, $3 steps within $4: $worst"
  say "losses of $1 and $2: $worst"
}

at_step() { [[ -e $fsx/$1/log/metrics.jsonl && $(losses "$1" | wc -l) -ge $2 ]]; } # NAME STEP
saved() { [[ -e $fsx/$1/save/global_step$2/COMPLETE ]]; } # NAME STEP
