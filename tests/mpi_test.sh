#!/usr/bin/env bash
# The communicator of the MPI plugin, with processes under mpirun: what all communicators must do, and what happens
# when ranks fail.
# Usage: mpi_test.sh MPI_CASE PART; PART is cases or failures
set -uo pipefail
program=$1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=1
export ASAN_OPTIONS=detect_leaks=0  # MPI and PMIx leave memory behind
failed=0
wrong() { echo "FAILED: $1"; printf '%s\n' "$2" | head -n 30; failed=1; }

# run RANKS ARGUMENTS...: its output, and at the end "code N".
run() { timeout 120 mpirun --oversubscribe --bind-to none -n "$1" "$program" "${@:2}" 2>&1; echo "code $?"; }

# expect RANKS NAME TEXT...: the case says each TEXT, a regular expression, on a line.
expect() {
  local out text
  out=$(run "$1" "$2")
  for text in "${@:3}"; do
    grep -qE "$text" <<< "$out" || wrong "$2 does not say: $text" "$out"
  done
}

cases() {
  local ranks out
  for ranks in 1 2 3 4; do
    out=$(run "$ranks" all)
    [[ $out == *"SumsGoInTheOrderOfTheRanks on $ranks ranks"*"code 0" ]] || wrong "$ranks ranks" "$out"
  done
  out=$(run 3 all 300 1008 1000000000)
  [[ $out == *"code 0" ]] || wrong "tensors cut into many messages" "$out"
  out=$(run 3 all 1000000 1008 1)
  [[ $out == *"code 0" ]] || wrong "the memory of other ranks read in many blocks" "$out"
  expect 3 world_as_launched '^code 0$'
  expect 2 late_rank '^code 0$'
  expect 2 stopped '^code 0$'
  expect 3 share '^code 0$'
}

failures() {
  # mpirun's own code is 1 where it notices first that rank 1 has left without a word.
  expect 3 missing_rank \
    '^rank 0: all_reduce sum of 7 x Float in group world: rank 1 did not arrive within 1 s' \
    '^rank 2: all_reduce sum of 7 x Float in group world: rank 1 did not arrive within 1 s' '^code (76|1)$'
  # Whichever of the two finds out first tells the other.
  expect 2 other_operation '^rank 0: .* did not arrive within 1 s' '^rank 1: .* did not arrive within 1 s' \
    'rank (1 \(in broadcast of 3 x Float in group pair\)|0 \(in all_reduce sum of 3 x Float in group world\)) did not' \
    '^code 76$'
  expect 2 send_without_receive "^rank 0: exchange in group world: no peer for rank 0's send to 1" '^code 76$'
  expect 2 other_size '^rank [01]: all_reduce sum of [34] x Float in group world: .* bytes'
  expect 3 abort_wakes '^rank 1: rank 0 on node1 was lost' '^rank 2: rank 0 on node1 was lost' '^code 76$'
  expect 2 exception_leaves '^rank 1: disk on fire' '^code 74$'
  expect 2 share_without_one '^rank 0: not all ranks of the PMIx job .* came to share within 1 s' '^code 76$'
  expect 2 world_of_four '^rank 0: rank 0 on node7: Open MPI .* says rank 0 of 2, Slurm step 12.0 says rank 0 of 4' '^code 64$'
  local out
  out=$("$program" world_of_four 2>&1; echo "code $?")
  grep -q 'would not see the other ranks: there is no PMIx server; start the job with srun --mpi=pmix' <<< "$out" ||
    wrong "started without a launcher of MPI's" "$out"
  out=$("$program" share_alone 2>&1; echo "code $?")
  grep -q 'no PMIx server answers' <<< "$out" || wrong "share without a server" "$out"
}

case $2 in
  cases) cases ;;
  failures) failures ;;
esac
exit $failed
