# Sourced by the tests of job scripts beside it, each of which is `NAME.sh TREE ...` and ends with $failed: the scripts are run by bash, with
# stand-ins for Slurm's commands and the programs.
# shellcheck shell=bash
set -uo pipefail
tree=$(cd "$1" && pwd)
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
stand_in scontrol 'case "$1 $2" in "show config") echo "${CONFIG-}"; exit ;; "show partition") echo "${PARTITION-}"; exit ;; esac
if [ "$1" = show ]; then
[ -z "${SLOW-}" ] || { echo "env of a slow scontrol" >> "$HERE/log"; sleep 1; }
echo "scontrol is asked" >> "$HERE/asked"
if [ "$(wc -l < "$HERE/asked")" -le "${DEAF:-0}" ]; then echo "Unable to contact slurm controller" >&2; exit 1; fi
restarts=${RESTARTS-${SLURM_RESTART_COUNT:-0}}
if [ -e "$HERE/pid" ]; then [ "${REASON-None}" != "" ] || exit 1; restarts=${NEW_RESTARTS-$restarts}; fi  # the tasks have been started
echo "JobId=7 ${OF_ARRAY:+ArrayJobId=$OF_ARRAY ArrayTaskId=3 }Reason=${REASON-None} Restarts=$restarts NtasksPerN:B:S:C=${ASKED:-2}:0:*:* CoreSpec=* Power= ${TOLD-} TresPerNode=${TRES-${SLURM_GPUS_PER_NODE:+gres:gpu:$SLURM_GPUS_PER_NODE}} "
echo "JobId=8 Reason=Other NtasksPerN:B:S:C=5:0:*:* TresPerNode=gres:gpu:6 "; exit; fi  # another component
echo "scontrol $*" >> "$HERE/log"; echo "${ANSWER-}" >&2; exit "${SCONTROL_CODE:-0}"'
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
  rm -f .neox-failures-* "$here/pid" "$here/asked"
  if [ -n "${failed_before-}" ]; then echo "$failed_before" > .neox-failures-7; variables=(SLURM_RESTART_COUNT=1 "${variables[@]}"); fi
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
# shellcheck disable=SC2034 # for the tests
complain() { echo "FAILED line ${BASH_LINENO[1]}: $1"; head -c 600 "$here/out"; grep -v '^env' "$here/log" | head -n 12; failed=1; }
ends_with() { [ "$code" = "$1" ] || complain "ended with $code, not $1"; }
says() { grep -qE -- "$1" "$here/out" || complain "does not say '$1'"; }
does() { grep -qE -- "$1" "$here/log" || complain "does not do '$1'"; }
does_not() { ! grep -qE -- "$1" "$here/log" || complain "does '$1'"; }
