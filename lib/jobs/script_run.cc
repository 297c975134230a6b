#include "jobs/script_parts.h"

namespace neox {

const char* const kTimeLimit =
    R"sh(# An element of an array by the name that is its alone: the number of the last one stands for the whole array.
job=${SLURM_ARRAY_TASK_ID:+${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID}
job=${job:-$SLURM_JOB_ID}
# When the allocation ends, where Slurm itself does not say it to the job (before 23.02).
unset NEOX_JOB_END_TIME
if [ -z "${SLURM_JOB_END_TIME:-}" ]; then
  end=$(SLURM_TIME_FORMAT=standard squeue -h -j "$job" -o %e 2> /dev/null || true)
  end=${end%%$'\n'*}  # of a heterogeneous job a line for each component
  if [ -n "$end" ] && end=$(date -d "$end" +%s 2> /dev/null); then export NEOX_JOB_END_TIME=$end; fi
fi
)sh";

const char* const kRunOnce =
    R"sh(say "job $SLURM_JOB_ID on ${SLURM_JOB_NODELIST:-?}, ${IMAGE:-no image}: ${command[*]}"
code=0
"${step[@]}" "${command[@]}" || code=$?
say "job $SLURM_JOB_ID ended with code $code"
exit "$code"
)sh";

const char* const kRunRequeued =
    R"sh(# Bash runs a trap only between commands, so srun runs in the background and the shell waits for it.
terminated=""
# shellcheck disable=SC2317  # called by the traps
on_signal() {
  say "SIG$1 at $(date '+%F %T'), handed to all tasks"
  if [ "$1" = TERM ]; then
    timeout 5 scancel --signal=TERM "$job" 2> /dev/null || true  # srun would answer a SIGTERM by killing the tasks
    ask 5
    terminated=$(told Reason)
    terminated=${terminated:-untold}
  else
    while [ $((SECONDS - started)) -lt 2 ]; do sleep 1; done  # srun dies of a signal before it has set itself up
    kill -"$1" "$pid" 2> /dev/null || true
  fi
}
trap 'on_signal TERM' TERM

if [ -n "${SLURM_HET_SIZE:-}" ]; then say "this job has $SLURM_HET_SIZE components; the run takes the nodes of the first one alone"; fi
restarts=$(told Restarts)
restarts=${restarts:-${SLURM_RESTART_COUNT:-0}}  # which a shell inside a requeued job hands on
case $MAX_RESTARTS in "" | *[!0-9]*) die 64 "MAX_RESTARTS=$MAX_RESTARTS is no number; 0: no restarts" ;; esac
# How many lives of this job have ended without a checkpoint, one behind the other: Slurm counts all restarts alike.
# neox-train writes "saved" there. Behind the number stands "odd" if one of them ended by a code that is not of a lost rank.
export NEOX_FAILURES_FILE=$PWD/.neox-failures-$job
if [ "$restarts" = 0 ]; then rm -f "$NEOX_FAILURES_FILE"; fi  # of an older job of this number
failed=$restarts odd=""  # all of them where the file is missing, as in a folder of another node's own
if [ -e "$NEOX_FAILURES_FILE" ]; then read -r failed odd < "$NEOX_FAILURES_FILE" || true; fi
case $failed in "" | *[!0-9]*) failed=0 ;; esac
say "job $job (restart $restarts) on ${SLURM_JOB_NODELIST:-?}, ${IMAGE:-no image}: ${command[*]}"
# Slurm names the files and sockets of PMIx after job and step. What a killed step left of them on a node would keep a step of
# its name from starting there, and its orphans could talk to it: each life of the job leaves out one more number of steps.
case " ${step[*]} " in
  *" --mpi=pmix"*) for ((i = restarts % 10; i > 0; i--)); do srun --mpi=none --nodes=1 --ntasks=1 true || true; done ;;
esac
started=$SECONDS
code=138  # of one whom SIGUSR1 ends before it has begun
if [ -z "$early" ]; then
  "${step[@]}" "${command[@]}" &
  pid=$!
  trap 'on_signal USR1' USR1
  if [ -n "$early" ]; then on_signal USR1; fi  # it came while srun was started
  # A wait that a trap interrupts ends early; bash keeps the code of srun until it is asked for.
  while kill -0 "$pid" 2> /dev/null; do wait "$pid" || true; done
  code=0
  wait "$pid" || code=$?
fi
say "job $job ended with code $code"
)sh";

const char* const kRequeue =
    R"sh(saved=""  # a checkpoint begins the count anew
if [ "$(cat "$NEOX_FAILURES_FILE" 2> /dev/null)" = saved ]; then saved=yes failed=0 odd=""; fi
# cancelled: a SIGTERM came, and not because the time was over. Where Slurm did not tell why, the clock has to.
cancelled() {
  local end=${SLURM_JOB_END_TIME:-${NEOX_JOB_END_TIME:-}}
  case $terminated in
    "" | TimeLimit) return 1 ;;
    untold) [ -z "$end" ] || [ "$(date +%s)" -lt $((end - 60)) ] ;;
  esac
}
# ask_requeue: for about a minute, while Slurm does not answer.
ask_requeue() {
  local pause answer=""
  for pause in 0 10 20 40; do
    sleep "$pause" || true
    if cancelled; then return; fi
    if answer=$(scontrol requeue "$job" 2>&1); then return; fi
    case $answer in
      *"pending execution"*) return ;;  # it had heard the question before
      *"disabled for job"* | *"Invalid job id"*)
        say "scontrol requeue failed: $answer; submit the job again and it goes on"
        return
        ;;
    esac
  done
  say "scontrol requeue got no answer in a minute ($answer); Slurm may have heard it: look with squeue before submitting again"
}
# restarts_anyway: a job that ends in its GraceTime is started again by Slurm itself, from 24.05 on and where preemption means that.
# Asked for it as well, Slurm would start it once more when it is done.
restarts_anyway() {
  local config version partition
  ask 5
  case "$(told Requeue) $(told PreemptTime)" in "1 "[0-9]*) ;; *) return 1 ;; esac
  config=$(timeout 5 scontrol show config 2> /dev/null) || return 1
  version=$(sed -nE 's/^SLURM_VERSION *= *([0-9]+)\.([0-9]+).*/\1\2/p' <<< "$config")
  [ "${version:-0}" -ge 2405 ] && grep -qE '^PreemptType *= *preempt/partition_prio$' <<< "$config" || return 1
  partition=$(timeout 5 scontrol show partition "${SLURM_JOB_PARTITION:-}" 2> /dev/null) || return 1
  grep -qE ' PreemptMode=([A-Z]+,)?REQUEUE( |,|$)' <<< "$partition"
}
# requeue REASON: the same job again, on the same or other nodes.
requeue() {
  if [ -z "$saved" ] || [ "$code" != 75 ]; then failed=$((failed + 1)); fi
  { echo "$failed${odd:+ $odd}" > "$NEOX_FAILURES_FILE"; } 2> /dev/null || failed=$((restarts + 1))
  if [ "$MAX_RESTARTS" = 0 ] || [ "$failed" -gt "$MAX_RESTARTS" ]; then
    say "$1, but MAX_RESTARTS=$MAX_RESTARTS is reached; submit the job again and it goes on"
    rm -f "$NEOX_FAILURES_FILE"
  elif restarts_anyway; then
    say "$1, being preempted: Slurm itself starts it again"
  else
    if [ "$failed" = 0 ]; then say "$1; asks Slurm for a restart"; else say "$1; asks Slurm for restart $failed of at most $MAX_RESTARTS after failures"; fi
    # What keeps failing at once may need Slurm to see first that a node is dead: each try waits longer.
    if [ "$code" != 75 ] && [ $((SECONDS - started)) -lt 60 ]; then sleep $((failed < 7 ? 5 * (failed - 1) : 30)) || true; fi
    ask_requeue
  fi
}
# requeue_odd: a first life would end the same way again. One that saved, or that goes on, may have met a fault that passes: it
# is tried once more, and again only after a checkpoint.
requeue_odd() {
  if [ "$restarts" = 0 ] && [ -z "$saved" ]; then
    rm -f "$NEOX_FAILURES_FILE"
  elif [ -n "$odd" ]; then
    say "the second end by such a code without a checkpoint in between: a restart would end the same way"
    rm -f "$NEOX_FAILURES_FILE"
  else
    odd=odd
    requeue "code $code may be of a fault that passes"
  fi
}
if cancelled; then
  say "ended by SIGTERM before its time (scancel, preemption, a failed node): Slurm decides whether it is requeued"
  if [ "$(told Restarts)" = "$restarts" ]; then rm -f "$NEOX_FAILURES_FILE"; fi  # it is not
else
  case $code in
    0 | 64 | 78) rm -f "$NEOX_FAILURES_FILE" ;;
    75) requeue "saved and stopped" ;;
    14 | 76 | 137 | 143) requeue "a task was lost, or killed (14: Open MPI 5 lost it; 137: often out of memory)" ;;
    138) requeue "stopped before it could save" ;;  # SIGUSR1 found a task that had not yet started
    1)  # srun's own, which it also makes of a task that Slurm has killed for its memory
      if [ $((SECONDS - started)) -ge 60 ]; then requeue "srun ended with 1 (often a task out of memory, see above)"; else requeue_odd; fi
      ;;
    *) requeue_odd ;;
  esac
fi
exit "$code"
)sh";

}  // namespace neox
