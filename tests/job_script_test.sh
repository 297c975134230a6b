#!/usr/bin/env bash
# The scripts of sbatch/ do what they say, run by bash with stand-ins for Slurm's commands and the programs.
# neox-submit hands them to sbatch, one after the other.
# Usage: job_script_test.sh TREE BUILD_DIRECTORY
set -uo pipefail
tree=$(cd "$1" && pwd)
build=$(cd "$2" && pwd)
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
here=$(realpath "$here")
failed=0
mkdir -p "$here/bin" "$here/fsx" "$here/job/configs/pythia" "$here/job/sub"
cp "$tree/configs/pythia/70M.yml" "$here/job/configs/pythia/"
touch "$here/image.sqsh" "$here/image.sif"
cd "$here/job" || exit 1

stand_in() { printf '#!/bin/bash\n%s\n' "$2" > "$here/bin/$1"; chmod +x "$here/bin/$1"; }
stand_in srun 'log=$HERE/log
echo $$ > "$HERE/pid"; echo "srun $*" >> "$log"; env | sed "s/^/env /" >> "$log"
trap "echo got USR1 >> $log; sleep ${SAVES:-0}; exit 75" USR1
trap "echo got TERM >> $log; exit ${TERM_CODE:-75}" TERM
for i in $(seq "${LASTS:-0}"); do sleep 0.1; done
if [ -n "${SAVED-}" ]; then echo saved > "$NEOX_FAILURES_FILE"; fi
exit "${CODE:-0}"'
stand_in scancel 'echo "scancel $*" >> "$HERE/log"; kill -TERM "$(cat "$HERE/pid")"; exit 1'
stand_in scontrol 'if [ "$1" = show ]; then
[ -z "${SLOW-}" ] || { echo "env of a slow scontrol" >> "$HERE/log"; sleep 1; }
echo "JobId=7 ${OF_ARRAY:+ArrayJobId=$OF_ARRAY ArrayTaskId=3 }NtasksPerN:B:S:C=${ASKED:-2}:0:*:* CoreSpec=* Power= ${TOLD-} TresPerNode=${TRES-${SLURM_GPUS_PER_NODE:+gres:gpu:$SLURM_GPUS_PER_NODE}} "; exit; fi
echo "scontrol $*" >> "$HERE/log"; exit "${SCONTROL_CODE:-0}"'
stand_in squeue 'echo "squeue $* in ${SLURM_TIME_FORMAT-}" >> "$HERE/log"; echo "${END-NONE}"'
stand_in sleep 'echo "sleep $1" >> "$HERE/log"; [ "${1%.*}" -lt 5 ] || set -- 0.1; exec /bin/sleep "$1"'  # nothing waits long
for program in neox-train neox-prepare-data neox-convert apptainer; do stand_in $program ''; done

# start SCRIPT [NAME=value]... [-- ARGUMENT...]: as Slurm would, with these variables only, on a machine without /fsx, whose /etc/profile.d is
# $here/profile.d.
start() {
  local script=$1 variables=() ; shift
  while [ $# -gt 0 ] && [ "$1" != -- ]; do variables+=("$1"); shift; done
  [ $# = 0 ] || shift
  : > "$here/log"
  rm -f .neox-failures-*
  if [ -n "${failed_before-}" ]; then echo "$failed_before" > .neox-failures-7; fi
  sed -E "s,([= :])/fsx,\\1/no-fsx,g; s,/etc/profile\.d,$here/profile.d,g" "${scripts:-$tree/sbatch}/$script" > "$here/$script"
  exec env -i PATH="$here/bin:/usr/bin:/bin" HERE="$here" SLURM_JOB_ID=7 SLURM_JOB_NUM_NODES=2 SLURM_JOB_NODELIST='node[1-2]' \
    CUDA_VISIBLE_DEVICES= "${variables[@]}" bash "$here/$script" "$@"
}
# run SCRIPT ...: start, to its end; then the code is in $code, what it and the stand-ins said in log and out.
run() { (start "$@") > "$here/out" 2>&1; code=$?; sed -i 's,/no-fsx,/fsx,g' "$here/out" "$here/log"; }
# run_signalled SIGNAL SCRIPT ...: the same, with a signal once the first srun runs, or a slow scontrol.
run_signalled() {
  local signal=$1 script; shift
  : > "$here/log"
  (start "$@" LASTS="${lasts:-100}") > "$here/out" 2>&1 &
  script=$!
  for _ in $(seq 100); do grep -q '^env' "$here/log" 2> /dev/null && break; sleep 0.05; done
  kill -"$signal" $script
  if [ -n "${again-}" ]; then
    for _ in $(seq 100); do grep -q '^got' "$here/log" && break; sleep 0.05; done
    kill -"$signal" $script
  fi
  wait $script; code=$?
}
complain() { echo "FAILED line ${BASH_LINENO[1]}: $1"; head -c 600 "$here/out"; grep -v '^env' "$here/log" | head -n 12; failed=1; }
ends_with() { [ "$code" = "$1" ] || complain "ended with $code, not $1"; }
says() { grep -qE -- "$1" "$here/out" || complain "does not say '$1'"; }
does() { grep -qE -- "$1" "$here/log" || complain "does not do '$1'"; }
does_not() { ! grep -qE -- "$1" "$here/log" || complain "does '$1'"; }

# Defaults.
run 2.train.sbatch
ends_with 0
says 'there is no image /fsx/apps/neox.sqsh, so the programs in PATH are run'
does "^srun -l --kill-on-bad-exit=1 --cpu-bind=none --nodes=2 --ntasks=16 --ntasks-per-node=8 --mpi=pmix env CUDA_VISIBLE_DEVICES= neox-train $here/job/configs/pythia/70M.yml "
does '--default data_path=/fsx/data/enwik8/enwik8_text_document --default vocab_file=/fsx/gpt-neox/tokenizers/20B_tokenizer.json'
does '--default save=/fsx/gpt-neox/70M_checkpoints --default load=/fsx/gpt-neox/70M_checkpoints$'
does '^env NCCL_SOCKET_IFNAME=\^docker,lo,veth'
does_not scontrol
run 1.prepare-data.sbatch
ends_with 0
does '^srun .* neox-prepare-data enwik8 .*/fsx/data'
does_not '--mpi'

# What the user exports wins, and arguments are handed on.
run 2.train.sbatch FSX_PATH=/lustre DATASET=pile DATA_PATH=/data NCCL_SOCKET_IFNAME=eth0 NCCL_P2P_DISABLE=1 -- --set train_iters=5
does 'data_path=/data/pile/pile_text_document .*save=/lustre/gpt-neox/70M_checkpoints .* --set train_iters=5$'
does '^env NCCL_SOCKET_IFNAME=eth0'
does '^env NCCL_P2P_DISABLE=1'
run 2.train.sbatch SLURM_EXPORT_ENV=NONE  # of sbatch --export=NONE
does '^env SLURM_EXPORT_ENV=ALL$'
run 2.train.sbatch NCCL_SOCKET_IFNAME=
does '^env NCCL_SOCKET_IFNAME=$'
run 2.train.sbatch CHECKPOINT_PATH=/c MAX_RESTARTS=0 CODE=75
does 'save=/c --default load=/c'
says 'MAX_RESTARTS=0 is reached'
run 2.train.sbatch MAX_RESTARTS=unlimited
ends_with 64
says 'MAX_RESTARTS=unlimited is no number'
does_not srun

# The configuration: from the folder of the scripts too, and without its ending; a missing one is named.
cd sub && run 2.train.sbatch MODEL_CONFIG=configs/pythia/70M
does "neox-train $here/job/configs/pythia/70M.yml "
cd .. && run 2.train.sbatch MODEL_CONFIG=configs/none.yml
ends_with 64
says 'MODEL_CONFIG=configs/none.yml: there is no such file'
# A run has one name, whoever says it: that of its file without the ending, of a link its own.
cp configs/pythia/70M.yml pythia-1.4B.yml
ln -sf pythia-1.4B.yml current.yml
for config in pythia-1.4B pythia-1.4B.yml current.yml; do
  run 2.train.sbatch MODEL_CONFIG=$config
  name=${config%.yml}
  does " --default save=/fsx/gpt-neox/${name}_checkpoints "
  run 3.convert.sbatch MODEL_CONFIG=$config
  does " neox-convert --to hf /fsx/gpt-neox/${name}_checkpoints /fsx/gpt-neox/${name}_hf"
done
run 3.convert.sbatch MODEL_CONFIG=that-was-1.4B
does " /fsx/gpt-neox/that-was-1.4B_checkpoints "
# Configurations beside the programs, also where those are linked to.
mkdir -p "$here/inst/bin" "$here/inst/share/neox/configs"
cp configs/pythia/70M.yml "$here/inst/share/neox/configs/there.yml"
mv "$here/bin/neox-train" "$here/inst/bin/"
ln -s "$here/inst/bin/neox-train" "$here/bin/neox-train"
run 2.train.sbatch MODEL_CONFIG=configs/there.yml
does "neox-train $here/inst/share/neox/configs/there.yml "

# GPUs, CPUs, MPI.
run 2.train.sbatch CUDA_VISIBLE_DEVICES=0,1
does_not '--mpi|env CUDA_VISIBLE_DEVICES= neox-train'
run 2.train.sbatch CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 SLURM_GPUS_ON_NODE=8 SLURM_GPUS_PER_NODE=h100:4
does '--ntasks-per-node=4'
does_not '--mpi'
run 2.train.sbatch CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 SLURM_GPUS_ON_NODE=8 SLURM_GPUS_PER_NODE=0  # exclusive, and without GPUs
does '--ntasks-per-node=8 --mpi=pmix env CUDA_VISIBLE_DEVICES= neox-train'
run 2.train.sbatch SLURM_JOB_NUM_NODES=1 SLURM_NTASKS_PER_NODE=1
does '--ntasks-per-node=1'
does_not '--mpi'
run 2.train.sbatch SLURM_MPI_TYPE=pmix_v4
does '--mpi=pmix_v4'
run 2.train.sbatch SLURM_CPUS_PER_TASK=3
does '^env SRUN_CPUS_PER_TASK=3'
does_not '--cpu-bind'
# What a shell inside another job hands on is not what this job asked for.
run 2.train.sbatch SLURM_CPUS_PER_TASK=1 SLURM_NTASKS_PER_NODE=1 ASKED=0 SLURM_NTASKS=1 SLURM_NPROCS=1 SLURM_DISTRIBUTION=cyclic \
  SLURM_ARRAY_JOB_ID=4 SLURM_ARRAY_TASK_ID=1 CODE=75
does '--cpu-bind=none --nodes=2 --ntasks=16 --ntasks-per-node=8'
does_not '^env S[LR].*CPUS_PER_TASK|^env SLURM_(NTASKS|NPROCS|DISTRIBUTION|ARRAY)'
does '^scontrol requeue 7$'
run 2.train.sbatch CUDA_VISIBLE_DEVICES=0,1 SLURM_GPUS_PER_NODE=1 TRES=gres:gpu:h100:2 SLURM_CPU_BIND=quiet,mask_cpu:0x1 \
  SLURM_CPU_BIND_LIST=0x1 SLURM_MEM_BIND=local SLURM_MEM_PER_CPU=100
does '--ntasks-per-node=2 neox-train'
does_not '^env SLURM_(GPUS_PER_NODE|CPU_BIND|MEM_)'
run 3.convert.sbatch SLURM_GPUS_PER_NODE=4 TRES=
does_not '^env SLURM_GPUS_PER_NODE'
run 2.train.sbatch CUDA_VISIBLE_DEVICES=0,1 SLURM_GPUS_PER_NODE=h100:2 TRES=gres/gpu:h100:2,gres/shard:1
does '--ntasks-per-node=2 neox-train'
does '^env SLURM_GPUS_PER_NODE=h100:2$'
run 2.train.sbatch CUDA_VISIBLE_DEVICES=0,1 SLURM_GPUS=1 SLURM_GPUS_PER_TASK=1 SLURM_CPUS_PER_GPU=2 SLURM_NTASKS_PER_GPU=1 SLURM_GPU_BIND=single:1 \
  SLURM_TRES_BIND=gres/gpu:single:1 SLURM_TRES_PER_TASK=cpu=1 SLURM_NTASKS_PER_SOCKET=1 SLURM_HINT=nomultithread SLURM_THREADS_PER_CORE=1
does '--ntasks-per-node=8 neox-train'
does_not '^env SLURM_(GPUS=|GPUS_PER_TASK|CPUS_PER_GPU|GPU_BIND|TRES_|HINT|THREADS_PER_CORE|NTASKS_PER_[GS])'
run 2.train.sbatch SLURM_GPU_BIND=single:1 SLURM_THREADS_PER_CORE=1 TOLD='ReqB:S:C:T=0:0:*:1 TresBind=gpu:single:1'
does '^env SLURM_GPU_BIND=single:1$'
does '^env SLURM_THREADS_PER_CORE=1$'
run 2.train.sbatch SLURM_NTASKS_PER_NODE=4 ASKED=4
does '--ntasks-per-node=4'
# sbatch --ntasks=N: in equal parts, where Slurm knows of it.
run 2.train.sbatch SLURM_NTASKS=6 TOLD=NumTasks=6
does '--nodes=2 --ntasks=6 --ntasks-per-node=3 '
does_not '^env SLURM_NTASKS'
run 2.train.sbatch SLURM_NTASKS=6 SLURM_NTASKS_PER_NODE=4 ASKED=4 TOLD=NumTasks=6
does '--ntasks-per-node=4 '
run 2.train.sbatch SLURM_NTASKS=7 TOLD=NumTasks=7
ends_with 64
says '--ntasks=7 cannot be shared out evenly among 2 nodes: say --ntasks-per-node=8'
does_not srun
run 2.train.sbatch SLURM_NTASKS=4 TOLD=NumTasks=2  # of a shell inside another job
does '--ntasks-per-node=8 '
run 2.train.sbatch SLURM_NTASKS=2 TOLD=NumTasks=2  # of that, or of this job
does '--ntasks-per-node=8 '
says 'starts 8 tasks on each node; one on each is said by --ntasks-per-node=1, not by --ntasks=2'
for tres in gpu:4=4 gpu:h100:4,gres:lscratch:9=4 gpu:a:1,gres:gpu:b:2=3 gpu=1 lscratch:9=8; do  # of --gres
  scripts=$tree/tests/golden/sbatch run aws-hyperpod.sbatch CUDA_VISIBLE_DEVICES=0,1 TRES="gres:${tres%=*}"
  does "--ntasks-per-node=${tres#*=} neox-train"
done
run 2.train.sbatch CUDA_VISIBLE_DEVICES=0,1 TRES=gres:gpu:0
does '--ntasks-per-node=8 --mpi=pmix env CUDA_VISIBLE_DEVICES= neox-train'

# Images.
run 2.train.sbatch FSX_PATH="$here/fsx" IMAGE="$here/image.sqsh"
does "--container-image=$here/image.sqsh --container-mounts=$here/fsx:$here/fsx,$here/job:$here/job --container-workdir=$here/job env CUDA_VISIBLE_DEVICES= neox-train"
mkdir "$here/paths" && touch "$here/paths/local.yml"
run 2.train.sbatch FSX_PATH="$here/fsx" IMAGE="$here/image.sqsh" -- "$here/paths/local.yml" /none/other.yml
does "--container-mounts=$here/fsx:$here/fsx,$here/job:$here/job,$here/paths:$here/paths --"
run 2.train.sbatch ENROOT_IMAGE="$here/image.sqsh" CONTAINER_MOUNT="$here:$here"
does "--container-image=$here/image.sqsh --container-mounts=$here:$here --"
run 2.train.sbatch IMAGE=docker://nvcr.io#x/neox:1 CONTAINER_MOUNT="$here:/work"
does "--container-image=docker://nvcr.io#x/neox:1 --container-mounts=$here:/work,$here/job:$here/job "
mkdir "$here/data" "$here/here"  # what is named without a mount is mounted: the folder of it that exists
run 2.train.sbatch FSX_PATH="$here/fsx" IMAGE="$here/image.sqsh" DATA_PATH="$here/data" CHECKPOINT_PATH="$here/here/new/run" -- --set train_data_paths=/usr/lib
does "--container-mounts=$here/fsx:$here/fsx,$here/job:$here/job,$here/data:$here/data,$here/here:$here/here --"
mkdir -p "$here/m/tokenizers"
run 2.train.sbatch FSX_PATH="$here/fsx" IMAGE="$here/image.sqsh" MODEL_PATH="$here/m"
does "--container-mounts=$here/fsx:$here/fsx,$here/job:$here/job,$here/m/tokenizers:$here/m/tokenizers,$here/m:$here/m --"
mkdir -p "$here/links/enwik8" "$here/far"  # and what links lead to that are named by key=/path
touch "$here/far/x.bin" "$here/far/t.json"
ln -s "$here/far/x.bin" "$here/links/enwik8/enwik8_text_document.bin"
run 2.train.sbatch FSX_PATH="$here/fsx" IMAGE="$here/image.sqsh" DATA_PATH="$here/links"
does "--container-mounts=$here/fsx:$here/fsx,$here/job:$here/job,$here/links/enwik8:$here/links/enwik8,$here/far:$here/far --"
ln -s "$here/far/t.json" t.json
run 2.train.sbatch FSX_PATH="$here/fsx" IMAGE="$here/image.sqsh" -- --set=vocab_file=t.json
does "--container-mounts=$here/fsx:$here/fsx,$here/job:$here/job,$here/far:$here/far --"
run 2.train.sbatch IMAGE="$here/image.sqsh" CONTAINER_MOUNT="$here/data:$here/data/in" -- --set=save="$here/data/x" vocab_file=/opt/none/t.json
does "--container-mounts=$here/data:$here/data/in,$here/job:$here/job --"
cp "$here/image.sqsh" own.sqsh
run 2.train.sbatch IMAGE=own.sqsh
does "--container-image=$here/job/own.sqsh "
run 2.train.sbatch IMAGE=none.sqsh
ends_with 74
run 2.train.sbatch IMAGE="$here/image.sif" CUDA_VISIBLE_DEVICES=0  # without the folder that is mounted by default
does "^srun .* $here/bin/apptainer exec --bind $here/job:$here/job --pwd $here/job --nv $here/image.sif neox-train"
run 2.train.sbatch IMAGE="$here/image.sif"
does_not '--nv'
run 2.train.sbatch IMAGE=/none/neox.sqsh
ends_with 74
says 'IMAGE=/none/neox.sqsh does not exist'
run 2.train.sbatch IMAGE= ENROOT_IMAGE="$here/image.sqsh"
does_not 'container'
run 2.train.sbatch IMAGE= PATH=/usr/bin:/bin
ends_with 64
says 'neox-train is not in PATH'

# Modules of a profile: of the submitting shell, or of /etc/profile.d. They and the prologue may ask for variables that are not set.
scripts=$tree/tests/golden/sbatch run options.sbatch
ends_with 64
says 'profile site loads modules \(cuda/13.0\), but there is no function module'
mkdir "$here/profile.d"
echo 'false; module() { echo "module $* $NEVER_SET" >> "$HERE/log"; }' > "$here/profile.d/modules.sh"
scripts=$tree/tests/golden/sbatch run options.sbatch
does '^module load cuda/13.0 $'
says 'IMAGE=/fsx/neox.sif does not exist'  # it went on
scripts=$tree/tests/golden/sbatch run options.sbatch 'BASH_FUNC_module%%=() { echo "handed on: $*" >> "$HERE/log"; }'
does '^handed on: load cuda/13.0$'
does_not '^module load'

# The end of the allocation.
run 2.train.sbatch END=2026-11-21T15:00:55 SLURM_TIME_FORMAT=relative
does '^squeue .* in standard$'
does "^env NEOX_JOB_END_TIME=$(date -d 2026-11-21T15:00:55 +%s)"
run 2.train.sbatch END=NONE NEOX_JOB_END_TIME=5
does_not 'NEOX_JOB_END_TIME'
run 2.train.sbatch SLURM_JOB_END_TIME=99 END=2026-11-21T15:00:55
does_not 'NEOX_JOB_END_TIME|squeue'

# An element of an array means itself alone; the last one's number is that of the array.
array=(SLURM_ARRAY_JOB_ID=7 SLURM_ARRAY_TASK_ID=3 OF_ARRAY=7)
run 2.train.sbatch "${array[@]}" CODE=75 END=2026-11-21T15:00:55
does '^squeue .*-j 7_3 '
does '^scontrol requeue 7_3$'
run_signalled TERM 2.train.sbatch "${array[@]}"
does '^scancel --signal=TERM 7_3$'

run 2.train.sbatch SLURM_HET_SIZE=2
says 'this job has 2 components; the run takes the nodes of the first one alone'

# Codes.
for c in 75 76 137 143; do
  failed_before=9 run 2.train.sbatch CODE=$c SLURM_RESTART_COUNT=99
  ends_with $c
  does '^scontrol requeue 7$'
  says 'asks Slurm for restart 10 of at most 10 after failures'
  [ "$(cat .neox-failures-7)" = 10 ] || complain 'does not count'
  if [ $c = 75 ]; then does_not '^sleep 30$'; else does '^sleep 30$'; fi  # what keeps failing waits for Slurm to see why
  failed_before=10 run 2.train.sbatch CODE=$c
  ends_with $c
  does_not scontrol
  says 'MAX_RESTARTS=10 is reached; submit the job again'
  [ ! -e .neox-failures-7 ] || complain 'leaves a file'
done
# A life that saved is none, or the first of a new row where it failed then.
failed_before=10 run 2.train.sbatch CODE=75 SAVED=yes
does '^scontrol requeue 7$'
says 'saved and stopped; asks Slurm for a restart$'
[ "$(cat .neox-failures-7)" = 0 ] || complain 'counts what is none'
failed_before=10 run 2.train.sbatch CODE=76 SAVED=yes
says 'asks Slurm for restart 1 of at most 10 after failures'
failed_before=saved run 2.train.sbatch CODE=76  # of a life whose node was lost
says 'asks Slurm for restart 1 of at most 10 after failures'
run 2.train.sbatch CODE=75 SAVED=yes MAX_RESTARTS=0
does_not scontrol
failed_before=3 run 2.train.sbatch CODE=64
[ ! -e .neox-failures-7 ] || complain 'leaves a file'
failed_before=3 run 2.train.sbatch
[ ! -e .neox-failures-7 ] || complain 'leaves a file'
for c in 0 1 64 70 74 78; do  # 1: srun itself, at once
  run 2.train.sbatch CODE=$c
  ends_with $c
  does_not scontrol
done
run 2.train.sbatch CODE=75 SCONTROL_CODE=1
ends_with 75
says 'scontrol requeue failed; submit the job again'
run 1.prepare-data.sbatch CODE=74
ends_with 74

# Signals.
run_signalled USR1 2.train.sbatch
ends_with 75
does 'got USR1'
does '^scontrol requeue 7$'
again=1 run_signalled USR1 2.train.sbatch SAVES=1
ends_with 75
# One that comes before the tasks are started is not lost: no task is started.
for early in SLOW=1 SLURM_RESTART_COUNT=3; do
  lasts=5 run_signalled USR1 2.train.sbatch $early
  ends_with 138
  says 'SIGUSR1 at .*, before the tasks were started'
  does '^scontrol requeue 7$'
  does_not '^srun .*neox-train'
done
run_signalled TERM 2.train.sbatch END="$(date -d '+1 hour' '+%FT%T')"
ends_with 75
does '^scancel --signal=TERM 7$'
does 'got TERM'
does_not scontrol
says 'ended by SIGTERM before its time'
run_signalled TERM 2.train.sbatch END="$(date -d '-1 minute' '+%FT%T')"
does '^scontrol requeue 7$'
run_signalled TERM 2.train.sbatch TERM_CODE=76
ends_with 76
does_not scontrol

run 3.convert.sbatch MODEL_PATH=/m -- --dtype fp16
ends_with 0
does '^srun .*neox-convert --to hf /m/70M_checkpoints /m/70M_hf --dtype fp16$'
run 3.convert.sbatch CONVERT_TO=neox CONVERTED_PATH=/n
does '^srun .*neox-convert --to neox /fsx/gpt-neox/70M_checkpoints /n$'

# The image is built with what is there.
stand_in make 'echo "make $*" >> "$HERE/log"'
stand_in docker ''
run 0.build-image.sbatch
ends_with 64
says 'there is no ../containers/Makefile'
mkdir containers && touch containers/Makefile
run 0.build-image.sbatch APPS_PATH="$here/apps" -- KIND=cpu
ends_with 0
does '^make -C containers build BUILDER=docker KIND=cpu$'
does "^make -C containers image BUILDER=docker ENROOT_IMAGE=$here/apps/neox.sqsh KIND=cpu$"
run 0.build-image.sbatch ENROOT_IMAGE="$here/neox.sif"
does "^make -C containers sif BUILDER=docker SIF=$here/neox.sif$"
run 0.build-image.sbatch BUILDER=buildah2
ends_with 64

# neox-submit --submit: one after the other, logs in logs/, the ids said.
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
does "^sbatch --parsable --output=$here/job/logs/%x_%j.out logs/neox-prepare-data.sbatch$"
does "^sbatch --parsable --output=$here/job/logs/%x_%j.out logs/neox-train.sbatch$"
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
does '^sbatch --parsable logs/neox-train.sbatch$'
submit train configs/pythia/70M.yml --after 5 -- --array=1-4%1  # each element has a log and a number of its own
does "^sbatch --parsable --output=$here/job/logs/%x_%A_%a.out logs/neox-train.sbatch$"
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

run 2.train.sbatch SLURM_JOB_ID=
ends_with 64
says 'this script is for sbatch'
exit $failed
