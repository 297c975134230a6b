#!/usr/bin/env bash
# `sbatch 1.prepare-data.sbatch`, then `sbatch --dependency=afterok:... 2.train.sbatch` on 2 nodes x 2 tasks over MPI:
# data prepared by four tasks is that of one, and losses are those of one process, at each layout, in fp32 and fp64. The nodes
# have GPUs, which jobs on CPUs leave alone.
source "$(dirname "$0")/lib.sh"
need_cluster
up --nodes 2 --gres gpu:2
steps=20 short=("train_iters: 20" "checkpoint_factor: 20")
two_by_two=(--nodes=2 --ntasks-per-node=2)
make_data

# A corpus of our own, under the name and in the place that both scripts take from the environment, already fetched.
export FSX_PATH=$fsx DATA_PATH=$fsx/corpora DATASET=birds VOCAB_FILE=$fsx/tokenizer.json
printf '%s\n' "corpora:" "  - {name: birds, urls: [http://localhost/text.jsonl]}" > "$fsx/corpora.yml"
mkdir -p "$DATA_PATH/birds"
cp "$fsx/text.jsonl" "$DATA_PATH/birds"
prepared=$(submit --output="$fsx/prepare.out" "${two_by_two[@]}" "$repo/sbatch/1.prepare-data.sbatch" \
  --corpora "$fsx/corpora.yml" --append-eod)
new_run chained "${short[@]}"
sed -i '/^data_path:/d; /^vocab_file:/d' "$fsx/chained/config.yml"
chained=$(train_job chained --nodes=2 --ntasks=4 --dependency="afterok:$prepared" --kill-on-invalid-dep=yes)
for precision in fp32 fp64; do
  new_run "alone_$precision" "${short[@]}" "precision: $precision"
  train_alone "alone_$precision"
done
wait_for "$chained" 120 COMPLETED
grep -q "4 ranks by " "$fsx/chained/job.out" || fail "--ntasks=4: other ranks than four"
for part in bin idx; do
  cmp "$fsx/data_text_document.$part" "$DATA_PATH/birds/birds_text_document.$part" || fail "prepared by four tasks: another .$part"
done
say "four tasks prepare the bytes that one does"
same_losses alone_fp32 chained "$steps" 1e-5

# compare NAME LINE...: a layout's losses on 2 x 2 tasks with those of one process.
compare() {
  local precision tolerance job
  for precision in fp32 fp64; do
    new_run "$1_$precision" "${short[@]}" "precision: $precision" "${@:2}"
    job=$(train_job "$1_$precision" "${two_by_two[@]}")
    wait_for "$job" 240 COMPLETED
    tolerance=1e-5
    if [[ $precision == fp64 ]]; then tolerance=1e-12; fi
    same_losses "alone_$precision" "$1_$precision" "$steps" $tolerance
  done
}
compare tp "model_parallel_size: 2"
compare pp "pipe_parallel_size: 2"
compare shard "zero_optimization: {stage: 1, mics_shard_size: 2}"

# Submitted from a shell inside another job, an element of an array, whose variables sbatch hands on.
new_run nested "${short[@]}"
job=$(SLURM_CPU_BIND=quiet,mask_cpu:0x1 SLURM_MEM_PER_CPU=100 SLURM_MEM_PER_GPU=100 SLURM_NTASKS_PER_GPU=1 SLURM_GPUS=1 SLURM_NTASKS=1 SLURM_NPROCS=1 SLURM_NTASKS_PER_NODE=1 SLURM_DISTRIBUTION=cyclic SLURM_ARRAY_JOB_ID=1 SLURM_ARRAY_TASK_ID=1 \
  train_job nested "${two_by_two[@]}")
wait_for "$job" 240 COMPLETED
grep -q "4 ranks by " "$fsx/nested/job.out" || fail "nested: other ranks than four"
grep -q "job $job ended with code 0" "$fsx/nested/job.out" || fail "nested: the job took another's name"
same_losses chained nested "$steps" bits

# mpirun inside of a job is another way to start the same ranks.
new_run mpirun "${short[@]}"
job=$(submit --output="$fsx/mpirun/job.out" "${two_by_two[@]}" --wrap "mpirun neox-train $fsx/mpirun/config.yml")
wait_for "$job" 240 COMPLETED
same_losses chained mpirun "$steps" bits

# The newest checkpoint in Hugging Face's form.
job=$(MODEL_CONFIG=$fsx/chained/config.yml CHECKPOINT_PATH=$fsx/chained/save CONVERTED_PATH=$fsx/chained/hf \
  submit --output="$fsx/chained/convert.out" "$repo/sbatch/3.convert.sbatch" --dtype bf16)
wait_for "$job" 60 COMPLETED
for file in config.json model.safetensors tokenizer.json; do
  [ -s "$fsx/chained/hf/$file" ] || fail "3.convert.sbatch wrote no $file: $(cat "$fsx/chained/convert.out")"
done
