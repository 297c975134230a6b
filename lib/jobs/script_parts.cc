#include "jobs/script_parts.h"

namespace neox {

std::vector<std::string> script_comment(JobKind kind) {
  switch (kind) {
    case JobKind::kBuildImage:
      return {"Builds the container image of neox.cpp and imports it as $APPS_PATH/neox.sqsh.",
              "  sbatch 0.build-image.sbatch [NAME=value]...    values for containers/Makefile: "
              "KIND=cpu ..."};
    case JobKind::kPrepareData:
      return {
          "Downloads a corpus where it is missing, tokenizes it over all tasks, and fetches the "
          "20B tokenizer.",
          "Started again, or requeued, it goes on where it was.",
          "  sbatch 1.prepare-data.sbatch [option]...    options are handed to "
          "neox-prepare-data"};
    case JobKind::kTrain:
      return {
          "Trains a GPT-NeoX model. Started again, or requeued, it goes on from its newest "
          "checkpoint.",
          "  sbatch 2.train.sbatch [CONFIG...] [--set key=value]...    all is handed to "
          "neox-train"};
    case JobKind::kConvert:
      return {"Converts the newest checkpoint of a run into the form of Hugging Face.",
              "  sbatch 3.convert.sbatch [option]...    options are handed to neox-convert"};
    case JobKind::kGenerate:
      return {"Generates text from the newest checkpoint of a run.",
              "  sbatch generate.sbatch --prompt TEXT    options are handed to neox-generate"};
  }
  return {};
}

std::vector<Variable> script_variables(JobKind kind) {
  std::vector<Variable> all = {{"FSX_PATH", "/fsx", "the file system that all nodes share"},
                               {"APPS_PATH", "$FSX_PATH/apps", "where images lie"}};
  if (kind == JobKind::kBuildImage) {
    all.push_back(
        {"ENROOT_IMAGE", "$APPS_PATH/neox.sqsh", "what is written; a .sif is for apptainer"});
    all.push_back({"BUILDER", "docker", "docker, podman or buildah"});
    return all;
  }
  bool prepares = kind == JobKind::kPrepareData, trains = kind == JobKind::kTrain;
  if (prepares || trains) {
    all.push_back({"DATASET", "enwik8", "a corpus that neox-prepare-data knows"});
    all.push_back({"DATA_PATH", "$FSX_PATH/data", "data sets, each in a folder of its own"});
  }
  all.push_back({"MODEL_PATH", "$FSX_PATH/gpt-neox", "tokenizers and checkpoints"});
  if (prepares || trains)
    all.push_back({"VOCAB_FILE", "$MODEL_PATH/tokenizers/20B_tokenizer.json", ""});
  if (!prepares)
    all.push_back({"MODEL_CONFIG", "configs/pythia/70M.yml",
                   "here, one folder up, or in the installed tree"});
  if (trains)
    all.push_back({"MAX_RESTARTS", "10", "after lives without a checkpoint, in a row; 0: none"});
  if (prepares) all.push_back({"MAX_RESTARTS", "10", "how often it is requeued at most; 0: never"});
  all.push_back({"CONTAINER_MOUNT", "$FSX_PATH:$FSX_PATH", "FROM:TO[,FROM:TO]... in a container"});
  return all;
}

const char* const kHelpers = R"sh(say() { echo "neox: $*"; }
die() { echo "neox: $2" >&2; exit "$1"; }
[ -n "${SLURM_JOB_ID:-}" ] || die 64 "this script is for sbatch: sbatch $0"
)sh";

const char* const kEarlySignal =
    R"sh(# Until the tasks are started a SIGUSR1 is remembered: bash would die of it, and the job would not be requeued.
early=""
trap 'early=yes; say "SIGUSR1 at $(date "+%F %T"), before the tasks were started"' USR1
)sh";

const char* const kModules =
    R"sh(# The function comes with the shell's environment, but from bash alone.
for file in /etc/profile.d/{lmod,z00_lmod,modules}.sh; do
  if command -v module > /dev/null; then break; fi
  # shellcheck disable=SC1090
  if [ -r "$file" ]; then . "$file" || true; fi
done
)sh";

const char* const kConfigs = R"sh(# find_config NAME: its absolute path.
find_config() {
  local place file installed
  installed=$(dirname "$(readlink -f "$(command -v neox-train || echo /)")")/../share/neox
  for place in "$PWD" "$PWD/.." "$installed"; do
    case $1 in /*) place="" ;; esac
    for file in "$place/$1" "$place/$1.yml"; do
      if [ -f "$file" ]; then realpath -s "$file"; return; fi  # a link keeps its name
    done
  done
  die 64 "MODEL_CONFIG=$1: there is no such file, neither from $PWD nor from the folder above it, nor in $installed"
}
)sh";

const char* const kFoundConfig = R"sh(MODEL_CONFIG=$(find_config "$MODEL_CONFIG")
)sh";

const char* const kNamedConfig =
    R"sh(if found=$(find_config "$MODEL_CONFIG" 2> /dev/null); then MODEL_CONFIG=$found; fi  # its name is enough
)sh";

const char* const kName = R"sh(# The run is named after its configuration.
name=${MODEL_CONFIG##*/}
case $name in *.yml | *.yaml | *.json) name=${name%.*} ;; esac
: "${CHECKPOINT_PATH:=$MODEL_PATH/${name}_checkpoints}"
)sh";

const char* const kStep = R"sh(step=(srun -l --kill-on-bad-exit=1)
export SLURM_EXPORT_ENV=ALL  # what is exported here reaches the tasks, also after sbatch --export=NONE
# A shell inside another job hands its own on to sbatch, and srun would take them for this job's.
unset SLURM_NPROCS SLURM_DISTRIBUTION SLURM_DIST_PLANESIZE
unset SLURM_NTASKS_PER_CORE SLURM_NTASKS_PER_GPU SLURM_NTASKS_PER_SOCKET
unset SLURM_GPUS SLURM_GPUS_PER_SOCKET SLURM_GPUS_PER_TASK SLURM_CPUS_PER_GPU SLURM_TRES_PER_TASK  # a step has all that its job has
case ${SLURM_STEP_ID:-4294967291} in 4294967291) ;; *) unset SLURM_MPI_TYPE ;; esac  # the batch step's is the user's
unset "${!SLURM_CPU_BIND@}" "${!SLURM_MEM_BIND@}" "${!SLURM_MEM_PER_@}"
# ask SECONDS: sets `asked` to what Slurm knows of this job; of a heterogeneous one it is the first component.
ask() { asked=$(timeout "$1" scontrol show job -o "$SLURM_JOB_ID" 2> /dev/null | grep -m 1 "^JobId=$SLURM_JOB_ID ") || true; }
for pause in 0 5 15 30; do
  sleep "$pause"
  ask 15
  if [ -n "$asked" ]; then break; fi
done
[ -n "$asked" ] || say "scontrol show job got no answer in a minute, so the number of tasks does not regard --gres, and may regard a job around the submitting shell"
# told FIELD: what sbatch itself was told of it.
told() { case $asked in *" $1="*) set -- "${asked##* "$1"=}"; echo "${1%% *}" ;; esac; }
if [ -z "$(told TresBind)" ]; then unset SLURM_GPU_BIND SLURM_TRES_BIND; fi
case $(told ReqB:S:C:T) in "" | "0:0:*:*") unset SLURM_HINT SLURM_THREADS_PER_CORE ;; esac
case $asked in
  "" | *" ArrayJobId=${SLURM_ARRAY_JOB_ID:-none} "*) ;;
  *) unset SLURM_ARRAY_JOB_ID SLURM_ARRAY_TASK_ID ;;
esac
if [ "${SLURM_CPUS_PER_TASK:-1}" != 1 ]; then  # sbatch makes a 1 of what a shell inside another job has there
  export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK  # srun of Slurm 22.05 and later does not take it from sbatch
else
  unset SLURM_CPUS_PER_TASK SRUN_CPUS_PER_TASK
  step+=(--cpu-bind=none)  # every task may use all cores of its node; it takes its share by itself
fi
tres=$(told TresPerNode)
if [ -n "$asked" ] && [ "${SLURM_GPUS_PER_NODE:-0}" != 0 ]; then
  case ,$tres, in
    *gpu[:,]*gpu[:,]*)
      die 64 "GPUs are asked for by --gpus-per-node and by --gres, and Slurm adds them ($tres): say --gpus-per-node=N alone, or --gres=gpu:N where the script has that line"
      ;;
    *gpu:"${SLURM_GPUS_PER_NODE##*:}",* | *gpu:*:"${SLURM_GPUS_PER_NODE##*:}",*) ;;
    *) unset SLURM_GPUS_PER_NODE ;;
  esac
fi
if [ -z "${SLURM_GPUS_PER_NODE:-}" ]; then  # --gres sets no variable
  SLURM_GPUS_PER_NODE=$(printf %s "$tres" | awk -F: -v RS=, '/gpu(:|$)/ { n += $NF ~ /^[0-9]+$/ ? $NF : 1 } END { print n }')
fi
# GPUs talk through NCCL. Tasks on CPUs talk through MPI, whose processes find each other by PMIx.
# With --exclusive this shell sees all GPUs of its node, and the tasks only those that --gpus-per-node asks for.
on_cpus() {  # where that was said, as by --gpus-per-node=0
  [ -z "${CUDA_VISIBLE_DEVICES-unset}" ] || case ${SLURM_GPUS_PER_NODE:-} in 0 | *:0) ;; *) false ;; esac
}
on_gpus() {
  if on_cpus; then return 1; fi
  [ -n "${SLURM_GPUS_PER_NODE:-}" ] || [ -n "${CUDA_VISIBLE_DEVICES:-}" ] || [ "${SLURM_GPUS_ON_NODE:-0}" != 0 ] || [ -e /dev/nvidia0 ]
}
)sh";

const char* const kTasks =
    R"sh(# Said to srun and not to sbatch: Slurm would fix the number of tasks at the first start, and a job of --nodes=2-4 could not
# go on with fewer nodes. What sbatch was told is taken over: --ntasks-per-node=N, or the GPUs of a node.
if [ -n "${SLURM_NTASKS_PER_NODE:-}" ]; then
  case $asked in
    *" NtasksPerN:B:S:C=0:"*) unset SLURM_NTASKS_PER_NODE ;;  # sbatch was not: that of a shell inside another job
  esac
fi
)sh";

const char* const kTaskCount =
    R"sh(# --ntasks=N is taken where Slurm knows of it, too: a shell inside another job hands its own on.
if [ -z "${SLURM_NTASKS_PER_NODE:-}" ] && [ -n "${SLURM_NTASKS:-}" ] && [ "$SLURM_NTASKS" = "$(told NumTasks)" ]; then
  if [ $((SLURM_NTASKS % SLURM_JOB_NUM_NODES)) != 0 ]; then
    die 64 "--ntasks=$SLURM_NTASKS cannot be shared out evenly among $SLURM_JOB_NUM_NODES nodes: say --ntasks-per-node=$tasks, or what a node is to have"
  elif [ "$SLURM_NTASKS" != "$SLURM_JOB_NUM_NODES" ]; then
    tasks=$((SLURM_NTASKS / SLURM_JOB_NUM_NODES))
  elif [ "$tasks" != 1 ]; then  # Slurm counts one for each node also where nothing was said
    say "starts $tasks tasks on each node; one on each is said by --ntasks-per-node=1, not by --ntasks=$SLURM_NTASKS"
  fi
fi
unset SLURM_NTASKS
)sh";

const char* const kImage =
    R"sh(# mount_too FOLDER: at its own path, unless it lies in one that is mounted.
mounts=$CONTAINER_MOUNT
if [ "$mounts" = "$FSX_PATH:$FSX_PATH" ] && [ ! -d "$FSX_PATH" ]; then mounts=""; fi  # a container would not start
mount_too() {
  local mount to IFS=,
  for mount in $mounts; do
    to=${mount#*:}
    case $1/ in "${to%%:*}"/*) if [ "${mount%%:*}" = "${to%%:*}" ]; then return; fi ;; esac
  done
  mounts+=${mounts:+,}$1:$1
}
# of_system FOLDER: images have one, too, which a mount would hide.
of_system() {
  case $1/ in / | // | /bin/* | /dev/* | /etc/* | /lib/* | /lib64/* | /proc/* | /sbin/* | /sys/* | /usr/*) ;; *) return 1 ;; esac
}
# mount_for PATH: the folder of it that exists, unless a mount has it, or it would hide what an image or a mount has.
mount_for() {
  local place=$1 mount to IFS=,
  for mount in $mounts; do
    to=${mount#*:}
    case $place/ in "${to%%:*}"/*) return 0 ;; esac
  done
  while [ -n "$place" ] && [ ! -d "$place" ]; do place=${place%/*}; done
  if of_system "$place"; then return 0; fi
  case $place/ in
    /home/ | /media/ | /mnt/ | /opt/ | /root/ | /run/ | /srv/ | /tmp/ | /var/) return 0 ;;
  esac
  for mount in $mounts; do
    to=${mount#*:}
    case ${to%%:*} in "$place"/*) if [ "${mount%%:*}" != "${to%%:*}" ]; then return 0; fi ;; esac
  done
  mount_too "$place"
}
# An image is squashfs or of a registry (pyxis), or a .sif (apptainer). IMAGE= (empty): the programs in PATH.
if [ -z "${IMAGE+set}" ]; then
  IMAGE=${ENROOT_IMAGE-$APPS_PATH/neox.sqsh}
  if [ -z "${ENROOT_IMAGE+set}" ] && [ ! -e "$IMAGE" ]; then
    say "there is no image $IMAGE, so the programs in PATH are run"
    IMAGE=""
  fi
fi
case $IMAGE in
  *://* | /*) ;;
  ./* | *.sqsh | *.sif) IMAGE=$PWD/$IMAGE ;;  # pyxis would ask a registry for it
esac
case $IMAGE in
  /*) [ -e "$IMAGE" ] || die 74 "IMAGE=$IMAGE does not exist; build it (0.build-image.sbatch), or run the programs in PATH with IMAGE=" ;;
esac
# The directory of the node's PMIx server is not in an image: what it would share there is sent.
if [ -n "$IMAGE" ]; then export PMIX_MCA_gds=${PMIX_MCA_gds:-hash}; fi
of_system "$PWD" || mount_too "$PWD"
for word in "${paths[@]}"; do
  path=$word  # or what key=/path says
  while [ "${path#/}" = "$path" ] && [ "${path#*=}" != "$path" ]; do path=${path#*=}; done
  case $path in
    /*) mount_for "$path" ;;
    *.yml | *.yaml | *.json) if [ -f "$word" ]; then mount_for "$(realpath -s "$word")"; fi ;;
  esac
  for file in "$path" "$path.bin" "$path.idx"; do
    if [ -L "$file" ]; then mount_for "$(realpath "$file")"; fi  # what a link leads to
  done
done
case $IMAGE in
  "")
    command -v "${command[0]}" > /dev/null ||
      die 64 "${command[0]} is not in PATH, and no image is given: IMAGE=/path/neox.sqsh, or PATH=/path/bin:\$PATH"
    ;;
  *.sif)
    apptainer=$(command -v apptainer || command -v singularity) ||
      die 64 "IMAGE=$IMAGE needs apptainer, which is not in PATH on $(hostname)"
    step+=("$apptainer" exec --bind "$mounts" --pwd "$PWD")
    if on_gpus; then step+=(--nv); fi
    step+=("$IMAGE")
    ;;
  *)
    step+=(--container-image="$IMAGE" --container-mounts="$mounts" --container-workdir="$PWD")
    on_gpus || export NVIDIA_VISIBLE_DEVICES=void  # enroot does not start an image for GPUs where there is no driver
    ;;
esac
)sh";

const char* const kBuildImage =
    R"sh(# The folder of the image's recipe: here, or beside the folder of the scripts.
: "${CONTAINERS_PATH:=$([ -d containers ] && echo containers || echo ../containers)}"
[ -f "$CONTAINERS_PATH/Makefile" ] ||
  die 64 "there is no $CONTAINERS_PATH/Makefile from $PWD; submit from the source tree, or set CONTAINERS_PATH"
command -v "$BUILDER" > /dev/null || die 64 "BUILDER=$BUILDER is not in PATH on $(hostname)"
mkdir -p "$(dirname "$ENROOT_IMAGE")" || die 74 "cannot make the folder of ENROOT_IMAGE=$ENROOT_IMAGE"
say "job $SLURM_JOB_ID on $(hostname): builds with $BUILDER, then writes $ENROOT_IMAGE"
make -C "$CONTAINERS_PATH" build BUILDER="$BUILDER" "$@"
case $ENROOT_IMAGE in
  *.sif) make -C "$CONTAINERS_PATH" sif BUILDER="$BUILDER" SIF="$(realpath "$ENROOT_IMAGE")" "$@" ;;
  *) make -C "$CONTAINERS_PATH" image BUILDER="$BUILDER" ENROOT_IMAGE="$(realpath "$ENROOT_IMAGE")" "$@" ;;
esac
say "$ENROOT_IMAGE is ready"
)sh";

std::string script_command(JobKind kind) {
  switch (kind) {
    case JobKind::kPrepareData:
      return R"sh(command=(neox-prepare-data "$DATASET" --data-path "$DATA_PATH" --vocab-file "$VOCAB_FILE")sh";
    case JobKind::kTrain:
      return R"sh(# What MODEL_CONFIG says itself wins over --default.
command=(neox-train "$MODEL_CONFIG"
  --default data_path="$DATA_PATH/$DATASET/${DATASET}_text_document" --default vocab_file="$VOCAB_FILE"
  --default save="$CHECKPOINT_PATH" --default load="$CHECKPOINT_PATH")sh";
    case JobKind::kConvert:
      return R"sh(: "${CONVERT_TO:=hf}"
: "${CONVERTED_PATH:=$MODEL_PATH/${name}_$CONVERT_TO}"
command=(neox-convert --to "$CONVERT_TO" "$CHECKPOINT_PATH" "$CONVERTED_PATH")sh";
    case JobKind::kGenerate:
      return R"sh(command=(neox-generate "$CHECKPOINT_PATH")sh";
    case JobKind::kBuildImage:
      break;
  }
  return "";
}

}  // namespace neox
