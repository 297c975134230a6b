#!/usr/bin/env bash
# The scripts of sbatch/ do what they say.
# Usage: job_script_test.sh TREE
source "$(dirname "$0")/job_scripts.sh"

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
run 2.train.sbatch CUDA_VISIBLE_DEVICES=0,1 SLURM_GPUS_PER_NODE=8 TRES=gres:gpu:8,gres:gpu:4  # of sbatch --gres=gpu:4
ends_with 64
says 'Slurm adds them \(gres:gpu:8,gres:gpu:4\): say --gpus-per-node=N alone'
# Slurm is asked again where it does not answer, and that it never did is said.
run 2.train.sbatch CUDA_VISIBLE_DEVICES=0,1 DEAF=3 TRES=gres:gpu:2
does '--ntasks-per-node=2 neox-train'
does '^sleep 30$'
run 2.train.sbatch CUDA_VISIBLE_DEVICES=0,1 DEAF=4 TRES=gres:gpu:2
does '--ntasks-per-node=8 neox-train'
says 'scontrol show job got no answer in a minute'
run 2.train.sbatch SLURM_MPI_TYPE=none SLURM_STEP_ID=4294967290  # of an interactive shell in another job
does '--mpi=pmix env'
does_not '^env SLURM_MPI_TYPE'
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
cd / && run 2.train.sbatch FSX_PATH="$here/fsx" IMAGE="$here/image.sqsh" MODEL_CONFIG="$here/job/configs/pythia/70M.yml"
does "--container-mounts=$here/fsx:$here/fsx,$here/job/configs/pythia:$here/job/configs/pythia --container-workdir=/ "
cd "$here/job" || exit 1
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
run 2.train.sbatch END=$'2026-11-21T15:00:55\n2026-11-21T15:00:55' SLURM_HET_SIZE=2
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
for c in 14 75 76 137 143; do
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
for c in 0 64 78; do
  failed_before=2 run 2.train.sbatch CODE=$c SAVED=yes
  does_not scontrol
done
# What had gone well before is tried once more after other codes, too, and again after a checkpoint.
for c in 1 2 70 74 134 139; do
  failed_before=2 run 2.train.sbatch CODE=$c
  ends_with $c
  does '^scontrol requeue 7$'
  [ "$(cat .neox-failures-7)" = '3 odd' ] || complain 'does not count'
  failed_before='3 odd' run 2.train.sbatch CODE=$c
  does_not scontrol
  says 'the second end by such a code without a checkpoint in between'
  [ ! -e .neox-failures-7 ] || complain 'leaves a file'
  failed_before='3 odd' run 2.train.sbatch CODE=$c SAVED=yes
  does '^scontrol requeue 7$'
  [ "$(cat .neox-failures-7)" = '1 odd' ] || complain 'does not count'
done
run 2.train.sbatch CODE=74 SAVED=yes
does '^scontrol requeue 7$'
failed_before='3 odd' run 2.train.sbatch CODE=76
[ "$(cat .neox-failures-7)" = '4 odd' ] || complain 'forgets'
# Without a file, as on another node, all restarts count; a file of an older job of this number does not.
run 2.train.sbatch CODE=76 SLURM_RESTART_COUNT=10
says 'MAX_RESTARTS=10 is reached'
failed_before=10 run 2.train.sbatch CODE=76 SLURM_RESTART_COUNT=0
says 'asks Slurm for restart 1 of at most 10'
# Nor does the count of a requeued job around the submitting shell; where Slurm does not answer, it is the only one.
failed_before=10 run 2.train.sbatch CODE=76 SLURM_RESTART_COUNT=10 RESTARTS=0
says 'job 7 \(restart 0\)'
says 'asks Slurm for restart 1 of at most 10'
run 2.train.sbatch CODE=70 SLURM_RESTART_COUNT=2 RESTARTS=0
does_not scontrol
run 2.train.sbatch CODE=76 SLURM_RESTART_COUNT=10 DEAF=4
says 'MAX_RESTARTS=10 is reached'
# Slurm is asked for about a minute, but for what it refuses.
run 2.train.sbatch CODE=75 SCONTROL_CODE=1 ANSWER='Unable to contact slurm controller'
ends_with 75
does '^sleep 40$'
[ "$(grep -c '^scontrol requeue' "$here/log")" = 4 ] || complain 'does not ask four times'
says 'got no answer in a minute \(Unable to contact .*; Slurm may have heard it: look with squeue before submitting again'
for answer in 'Requested operation is presently disabled for job 7' 'Invalid job id specified for job 7'; do
  run 2.train.sbatch CODE=75 SCONTROL_CODE=1 ANSWER="$answer"
  does_not '^sleep 10$'
  says "scontrol requeue failed: $answer; submit the job again"
done
run 2.train.sbatch CODE=75 SCONTROL_CODE=1 ANSWER='Job is pending execution for job 7'
does_not '^sleep 10$'
# A job that ends in its GraceTime is started again by newer Slurms themselves, where that is sure.
preempted='Requeue=1 PreemptEligibleTime=2026-11-21T14:00:00 PreemptTime=2026-11-21T15:00:00' config=$'PreemptMode = X\nPreemptType = preempt/partition_prio'
with_version() { printf '%s\nSLURM_VERSION           = %s\n' "$config" "$1"; }
for mode in REQUEUE GANG,REQUEUE; do
  run 2.train.sbatch CODE=75 TOLD="$preempted" CONFIG="$(with_version 24.05.1)" PARTITION="   OverTimeLimit=NONE PreemptMode=$mode" SLURM_JOB_PARTITION=p
  ends_with 75
  does_not scontrol
  says 'saved and stopped, being preempted: Slurm itself starts it again'
done
asks() {
  run 2.train.sbatch CODE=75 SLURM_JOB_PARTITION=p "$@"
  does '^scontrol requeue 7$'
}
requeues=' OverTimeLimit=NONE PreemptMode=REQUEUE'
asks TOLD="$preempted" CONFIG="$(with_version 23.11.10)" PARTITION="$requeues"
asks TOLD="$preempted" CONFIG="$(with_version 24.05.1)" PARTITION=' PreemptMode=CANCEL'
asks TOLD="$preempted" CONFIG="SLURM_VERSION = 25.11.0" PARTITION="$requeues"
asks TOLD="$preempted" PARTITION="$requeues"
asks TOLD="${preempted/Requeue=1/Requeue=0}" CONFIG="$(with_version 24.05.1)" PARTITION="$requeues"
asks TOLD='Requeue=1 PreemptTime=None' CONFIG="$(with_version 24.05.1)" PARTITION="$requeues"
# So are data prepared, where they were left.
run 1.prepare-data.sbatch CODE=74
ends_with 74
does_not scontrol
run 1.prepare-data.sbatch CODE=75
ends_with 75
does '^scontrol requeue 7$'
failed_before=10 run 1.prepare-data.sbatch CODE=75
says 'MAX_RESTARTS=10 is reached'

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
run_signalled USR1 1.prepare-data.sbatch
ends_with 75
does '^scontrol requeue 7$'
# Slurm says why it sends SIGTERM, whatever the clock says.
run_signalled TERM 2.train.sbatch END="$(date '+%FT%T')"
ends_with 75
does '^scancel --signal=TERM 7$'
does 'got TERM'
does_not scontrol
says 'ended by SIGTERM before its time'
[ ! -e .neox-failures-7 ] || complain 'leaves a file'
run_signalled TERM 2.train.sbatch NEW_RESTARTS=1 SAVED=yes  # Slurm requeues it
does_not scontrol
run_signalled TERM 2.train.sbatch REASON=TimeLimit END="$(date -d '+1 hour' '+%FT%T')"
does '^scontrol requeue 7$'
# Where it does not, the clock has to.
run_signalled TERM 2.train.sbatch REASON= END="$(date -d '+1 hour' '+%FT%T')"
does_not scontrol
run_signalled TERM 2.train.sbatch REASON= END="$(date -d '-1 minute' '+%FT%T')"
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

run 2.train.sbatch SLURM_JOB_ID=
ends_with 64
says 'this script is for sbatch'
exit $failed
