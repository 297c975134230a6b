#!/usr/bin/env bash
# Sets up and builds what is missing, runs the tests, ends with a line "N passed, N failed, N skipped".
# Usage: env/test.sh [--full]
#   --full   also the tests at full size, the unit tests under sanitizers, the CUDA build where nvcc is found,
#            and the comparisons with Python libraries (tests/oracle/run.sh)
# NEOX_TEST_DATA names a directory with 20B_tokenizer.json and texts (*.txt); tests that want them are skipped without.
source "$(dirname "$0")/common.sh"

main() {
  local full=0 start=$SECONDS
  case ${1-} in
    "") ;;
    --full) full=1 ;;
    -h|--help) sed -n '2,6s/^# //p' "$0"; exit 0 ;;
    *) fail 64 "unknown argument $1; see env/test.sh --help" ;;
  esac
  cd "$repo"
  env/build.sh release
  slurm_packages
  test_data
  mkdir -p build/test
  rm -f build/test/*.log
  if [ $full = 1 ]; then full_tests; else run_ctest release -LE full; fi
  say "Took $(since "$start")"
  awk -f tests/summary.awk build/test/*.log
}

# The tests on a real Slurm cluster need root; without it, or without its packages, they are skipped.
slurm_packages() {
  [ "$(id -u)" = 0 ] || return 0
  env/setup.sh --tests --quiet || say "The tests on a Slurm cluster are skipped: its packages are missing"
}

# Without NEOX_TEST_DATA, the 20B tokenizer is downloaded once; without a network the tests go on without it.
test_data() {
  if [ -n "${NEOX_TEST_DATA-}" ]; then say "Test data: $NEOX_TEST_DATA"; return; fi
  local dir=$repo/.deps/test_data; mkdir -p "$dir"
  if [ ! -e "$dir/20B_tokenizer.json" ]; then
    cmake -DFILE="$dir/20B_tokenizer.json" -P tests/fetch_tokenizer.cmake > .deps/fetch.log 2>&1 ||
      { say "Test data: none; NEOX_TEST_DATA is not set, and the download failed (.deps/fetch.log)"; return; }
  fi
  say "Test data: $dir"
  export NEOX_TEST_DATA=$dir
}

# run_ctest PRESET ARGUMENTS...: logs go to build/test for the summary.
run_ctest() {
  local preset=$1 log=build/test/$1.ctest.log; shift
  say "Tests of build/$preset"
  rm -f "build/$preset/Testing/Temporary/LastTest.log"
  # One more than cores: the tests of jobs and clusters wait much.
  ctest --test-dir "build/$preset" --output-on-failure -j "$(($(nproc) + 1))" "$@" 2>&1 | tee "$log" || true
  grep -q 'tests passed,' "$log" || echo "oracle failed: ctest of build/$preset did not finish" >> "$log"
  cp "build/$preset/Testing/Temporary/LastTest.log" "build/test/$preset.cases.log" || true
}

full_tests() {
  NEOX_TEST_PYTHON=$(oracle_python)
  export NEOX_TEST_PYTHON NEOX_ORACLE_DIR=$repo/build/test/oracle
  say "Values of transformers and PyTorch to compare the model with"
  "$NEOX_TEST_PYTHON" tests/oracle/model.py --live "$NEOX_ORACLE_DIR" || echo "oracle failed: model.py --live" > build/test/live.log
  run_ctest release
  say "Comparisons with Python libraries"
  tests/oracle/run.sh build/release "$NEOX_TEST_PYTHON" 2>&1 | tee build/test/oracle.log || true
  env/build.sh asan
  run_ctest asan -LE full
  if find_nvcc > /dev/null; then
    env/build.sh cuda
    run_ctest cuda -LE full
  else
    say "The CUDA build is skipped: there is no nvcc"
  fi
}

# The Python that has the libraries to compare with: $NEOX_TEST_PYTHON, else an environment of our own.
oracle_python() {
  if [ -n "${NEOX_TEST_PYTHON-}" ]; then echo "$NEOX_TEST_PYTHON"; return; fi
  local venv; venv=$(neox_prefix)/oracle
  if [ ! -e "$venv/whole-4" ]; then
    say "Python libraries to compare with: about 2760 MB to download, 5670 MB in $venv" >&2
    need_space "$(neox_prefix)" 9000 "the Python libraries"
    rm -rf "$venv"
    /usr/bin/python3 -m venv "$venv"
    pip_install "$venv" "torch==$torch_version" transformers tokenizers==0.23.3 \
      numpy safetensors h5py sentencepiece==0.2.3 tensorboard wandb==0.31.0 megatron-core==0.16.1 wikiextractor==3.1.0 tiktoken deepspeed==0.16.5 "moto[s3,server]==5.2.5" "pyarrow==$arrow_version" >&2 ||
      fail 74 "pip could not install them; is there a network?"
    # Its list of dependencies has torchvision and seaborn, which its parametrization does not use.
    pip_install "$venv" --no-deps mup==1.0.0 >&2 ||
      fail 74 "pip could not install mup; is there a network?"
    touch "$venv/whole-4"
  fi
  echo "$venv/bin/python"
}

main "$@"
