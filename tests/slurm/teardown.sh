#!/usr/bin/env bash
# However a scenario ends, nothing of its cluster is left: after success, after SIGTERM in the middle of a job, and
# after kill -9 of the cluster itself; and the check that says so finds what is left.
source "$(dirname "$0")/lib.sh"
need_cluster
here_too=$(mktemp -d /tmp/neox_slurm.XXXXXX)
trap 'rm -rf "$here_too"' EXIT

# scenario NAME LINES: a scenario of those lines in the background; its output goes to a file.
scenario() {
  printf '%s\n' "source '$here/lib.sh'" "up --nodes 2" "$2" > "$here_too/$1.sh"
  bash "$here_too/$1.sh" "$build" > "$here_too/$1.out" 2>&1 &
}
# shellcheck disable=SC2016 # the scenario's shell expands them
a_job='job=$(submit --nodes=2 --output=/dev/null --wrap "srun -l sleep 500"); wait_until 20 "the job" state_is "$job" RUNNING; echo ready'

scenario good "$a_job"
wait $! || fail "a scenario that succeeds: $(cat "$here_too/good.out")"

scenario stopped "$a_job; while :; do sleep 0.2; done"
stopped=$!
wait_until 30 "the scenario" grep -q ready "$here_too/stopped.out"
kill -TERM $stopped
code=0
wait $stopped || code=$?
[[ $code == 130 ]] || fail "after SIGTERM: $code, $(cat "$here_too/stopped.out")"

# shellcheck disable=SC2016
scenario killed "$a_job"'; kill -KILL "$(cut -d" " -f1 "$SLURM_CLUSTER_DIR/pid")"'
wait $! || fail "after kill -9 of the cluster: $(cat "$here_too/killed.out")"

# shellcheck disable=SC2016
scenario dirty 'env FOO=1 setsid sleep 30 & echo $! > '"$here_too/pid"
code=0
wait $! || code=$?
kill "$(< "$here_too/pid")"
[[ $code == 1 ]] || fail "a process was left, and the check did not see it"
expect "$here_too/dirty.out" 'LEFT: process .*sleep 30'
if grep -h LEFT "$here_too"/{good,stopped,killed}.out; then fail "something was left"; fi
say "nothing is left"
