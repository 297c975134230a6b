#include "config/keys_nested.h"

namespace neox {
namespace {

using enum KeyType;
using enum Fate;

constexpr KeyRow kOptimizerParams[] = {
    {"lr", kNumber, "0.001", kUsed, "greatest learning rate"},
    {"betas", kNumbers, "null", kUsed,
     "decay of the two moments; default [0.9, 0.999], Lion [0.9, 0.99], Muon [0.9, 0.95]"},
    {"eps", kNumber, "null", kUsed,
     "added to the root of the second moment; default 1e-8, Muon 1e-10"},
    {"weight_decay", kNumber, "null", kUsed, "a copy of weight_decay; must agree with it"},
    {"bias_correction", kBool, "true", kUsed, "false: Adam's moments as they are"},
    {"adam_w_mode", kBool, "true", kUsed, "false: Adam's weight decay is added to the gradient"},
    {"amsgrad", kBool, "false", kRefused, "AMSGrad"},
    {"momentum", kNumber, "null", kUsed, "of SGD (default 0: none) and of Muon (0.95)"},
    {"dampening", kNumber, "0", kUsed, "of SGD's momentum"},
    {"nesterov", kBool, "false", kUsed, "true: Nesterov's momentum of SGD"},
    {"muon_lr", kNumber, "null", kUsed,
     "lr of Muon's matrices; it follows the schedule of lr in proportion; default lr"},
    {"adam_lr", kNumber, "null", kUsed, "the same for the parameters that Muon leaves to AdamW"},
    {"freeze_step", kInt, "100000", kUsed,
     "of 1-bit Adam: steps with whole gradients, after which signs are sent"},
    {"cuda_aware", kBool, "false", kNoEffect, "the job's communicator sends the signs"},
    {"comm_backend_name", kText, "null", kNoEffect, "the job's communicator sends the signs"},
    {"ns_method", kChoice, "gram", kNoEffect, "speed only: both compute the same", "gram|standard"},
};

constexpr KeyRow kOptimizer[] = {
    {"type", kChoice, "adam", kUsed,
     "Adam is AdamW (decoupled decay), as in NeoX; cpu_adam: its state lies in host memory",
     "adam|adamw|cpu_adam|cpu_torch_adam|sgd|lion|muon|onebitadam", "sm3|madgrad_wd"},
    {"params", kDict, "null", kUsed, "", "", "", kOptimizerParams},
};

constexpr KeyRow kFp16[] = {
    {"enabled", kBool, "false", kUsed, "true: asks for precision fp16"},
    {"type", kChoice, "null", kUsed, "bfloat16: asks for precision bfloat16 instead",
     "fp16|bfloat16"},
    {"loss_scale", kNumber, "0", kUsed, "0: dynamic; else the scale"},
    {"initial_scale_power", kInt, "16", kUsed, "the dynamic scale starts at 2 to this"},
    {"loss_scale_window", kInt, "1000", kUsed,
     "good steps after which the scale doubles; without ZeRO one more"},
    {"hysteresis", kInt, "2", kUsed,
     "overflows before the scale is halved; without ZeRO (stage 0) each halves it, as in "
     "DeepSpeed"},
    {"min_loss_scale", kNumber, "1", kUsed, "the scale does not fall below"},
    {"consecutive_hysteresis", kBool, "false", kRefused, "another counting of overflows"},
    {"fp16_master_weights_and_grads", kBool, "false", kRefused, "master weights in fp16"},
    {"fp16", kBool, "null", kNoEffect, "without meaning in DeepSpeed too"},
    {"auto_cast", kBool, "false", kNoEffect, "without meaning in NeoX too"},
};

constexpr const char* kNoScale = "bf16 needs no loss scale";

constexpr KeyRow kBf16[] = {
    {"enabled", kBool, "false", kUsed, "true: asks for precision bfloat16"},
    {"bf16", kBool, "null", kNoEffect, "without meaning in DeepSpeed too"},
    {"loss_scale", kNumber, "0", kNoEffect, kNoScale},
    {"initial_scale_power", kInt, "16", kNoEffect, kNoScale},
    {"loss_scale_window", kInt, "1000", kNoEffect, kNoScale},
    {"hysteresis", kInt, "2", kNoEffect, kNoScale},
    {"min_loss_scale", kNumber, "1", kNoEffect, kNoScale},
    {"immediate_grad_update", kBool, "true", kNoEffect, "speed only"},
    {"check_grad_overflow", kBool, "false", kNoEffect, "a loss that is not finite ends the run"},
};

constexpr KeyRow kCurriculumSchedule[] = {
    {"total_curriculum_step", kInt, "null", kUsed, "steps until max_difficulty"},
    {"difficulty_step", kInt, "null", kUsed, "lengths are multiples of it"},
    {"root_degree", kNumber, "null", kUsed,
     "of fixed_root: 2 rises as the square root of the step"},
    {"difficulty", kInts, "null", kUsed, "of fixed_discrete: the lengths"},
    {"max_step", kInts, "null", kUsed, "of fixed_discrete: the last step of each but the last one"},
};

constexpr KeyRow kCurriculum[] = {
    {"enabled", kBool, "false", kUsed, "true: the sequences of the first steps are shorter"},
    {"curriculum_type", kChoice, "seqlen", kUsed, "what grows: the length of sequences", "seqlen"},
    {"min_difficulty", kInt, "null", kUsed, "tokens of a sequence in the first step"},
    {"max_difficulty", kInt, "null", kUsed, "tokens of a sequence at the end; at most seq_length"},
    {"schedule_type", kChoice, "null", kUsed, "how the length rises",
     "fixed_linear|fixed_root|fixed_discrete", "custom"},
    {"schedule_config", kDict, "null", kUsed, "", "", "", kCurriculumSchedule},
};

constexpr const char* kSpeed = "speed only; sizes are chosen by themselves";
constexpr const char* kOffload = "state in host memory or on disk";
constexpr const char* kStage3 = "for stage 3: matrices are gathered a layer ahead of their use";

constexpr KeyRow kOffloadOptimizer[] = {
    {"device", kChoice, "none", kUsed,
     "cpu: master parameters and optimizer state lie in host memory, where updates happen",
     "none|cpu", "nvme"},
    {"nvme_path", kText, "null", kNoEffect, "for device: nvme only"},
    {"pin_memory", kBool, "false", kNoEffect, kSpeed},
    {"buffer_count", kInt, "4", kNoEffect, kSpeed},
    {"pipeline_read", kBool, "false", kNoEffect, kSpeed},
    {"pipeline_write", kBool, "false", kNoEffect, kSpeed},
    {"fast_init", kBool, "false", kNoEffect, kSpeed},
    {"ratio", kNumber, "1", kRefused, "offloading a part of the state"},
};

constexpr KeyRow kZero[] = {
    {"stage", kInt, "0", kUsed,
     "0: whole state on each data rank; 1: optimizer state in chunks; 2: gradients too; 3: layers' "
     "matrices too, gathered around their use"},
    {"mics_shard_size", kInt, "-1", kUsed,
     "ranks that share one copy of the state (stages 1 to 3); -1: all data ranks"},
    {"mics_hierarchical_params_gather", kBool, "false", kNoEffect, kSpeed},
    {"allgather_partitions", kBool, "true", kNoEffect, kSpeed},
    {"allgather_bucket_size", kInt, "500000000", kNoEffect, kSpeed},
    {"overlap_comm", kBool, "false", kNoEffect, kSpeed},
    {"reduce_scatter", kBool, "true", kNoEffect, kSpeed},
    {"reduce_bucket_size", kInt, "500000000", kNoEffect, kSpeed},
    {"contiguous_gradients", kBool, "false", kNoEffect, kSpeed},
    {"round_robin_gradients", kBool, "false", kNoEffect, kSpeed},
    {"use_multi_rank_bucket_allreduce", kBool, "true", kNoEffect, kSpeed},
    {"ignore_unused_parameters", kBool, "true", kNoEffect, "every parameter is used"},
    {"cpu_offload", kBool, "false", kUsed, "older name of offload_optimizer: {device: cpu}"},
    {"cpu_offload_params", kBool, "false", kRefused, kOffload},
    {"cpu_offload_use_pin_memory", kBool, "false", kNoEffect, "for cpu_offload only"},
    {"offload_optimizer", kDict, "null", kUsed, "", "", "", kOffloadOptimizer},
    {"offload_param", kDict, "null", kRefused, kOffload},
    {"load_from_fp32_weights", kBool, "true", kNoEffect, "checkpoints hold the fp32 weights"},
    {"elastic_checkpoint", kBool, "false", kNoEffect, "every checkpoint fits every layout"},
    {"legacy_stage1", kBool, "false", kNoEffect, "of old versions of DeepSpeed"},
    {"zero_quantized_weights", kBool, "false", kRefused, "quantized communication"},
    {"zero_quantized_nontrainable_weights", kBool, "false", kRefused, "quantized communication"},
    {"zero_quantized_gradients", kBool, "false", kRefused, "quantized communication"},
    {"zero_hpz_partition_size", kInt, "1", kRefused, "a second copy of the weights in a node"},
    {"sub_group_size", kInt, "1000000000", kNoEffect, kStage3},
    {"prefetch_bucket_size", kInt, "50000000", kNoEffect, kStage3},
    {"param_persistence_threshold", kInt, "100000", kNoEffect, kStage3},
    {"stage3_max_live_parameters", kInt, "1000000000", kNoEffect, kStage3},
    {"stage3_max_reuse_distance", kInt, "1000000000", kNoEffect, kStage3},
    {"stage3_prefetch_bucket_size", kInt, "50000000", kNoEffect, kStage3},
    {"stage3_param_persistence_threshold", kInt, "100000", kNoEffect, kStage3},
    {"stage3_gather_16bit_weights_on_model_save", kBool, "false", kNoEffect, kStage3},
    {"stage3_gather_fp16_weights_on_model_save", kBool, "false", kNoEffect, kStage3},
    {"stage3_module_granularity_threshold", kInt, "0", kNoEffect, kStage3},
    {"memory_efficient_linear", kBool, "true", kNoEffect, kStage3},
};

constexpr KeyRow kDataTypes[] = {
    {"grad_accum_dtype", kChoice, "null", kUsed,
     "in what gradients are accumulated; null: fp32 (fp64 in fp64)",
     "fp32|float32|float|bf16|bfloat16|fp16|float16|half"},
};

constexpr const char* kRecompute = "speed and memory only; recomputation is by layer";

constexpr KeyRow kActivationCheckpointing[] = {
    {"partition_activations", kBool, "false", kNoEffect, kRecompute},
    {"cpu_checkpointing", kBool, "false", kNoEffect, kRecompute},
    {"contiguous_memory_optimization", kBool, "false", kNoEffect, kRecompute},
    {"number_checkpoints", kInt, "null", kNoEffect, kRecompute},
    {"synchronize_checkpoint_boundary", kBool, "false", kNoEffect, kRecompute},
    {"profile", kBool, "false", kNoEffect, kRecompute},
};

constexpr KeyRow kMonitorKeys[] = {
    {"enabled", kBool, "false", kNoEffect, kMonitor},
    {"output_path", kText, "null", kNoEffect, kMonitor},
    {"job_name", kText, "null", kNoEffect, kMonitor},
    {"group", kText, "null", kNoEffect, kMonitor},
    {"team", kText, "null", kNoEffect, kMonitor},
    {"project", kText, "null", kNoEffect, kMonitor},
};

constexpr KeyRow kTensorboard[] = {
    {"enabled", kBool, "false", kUsed, "true: stands for tensorboard_dir, where that is not given"},
    {"output_path", kText, "null", kUsed, "tensorboard_dir is output_path/job_name"},
    {"job_name", kText, "DeepSpeedJobName", kUsed, "the last part of tensorboard_dir"},
};

constexpr const char* kProfiler = "no profiler is started";

constexpr KeyRow kFlopsProfiler[] = {
    {"enabled", kBool, "false", kNoEffect, kProfiler},
    {"profile_step", kInt, "1", kNoEffect, kProfiler},
    {"module_depth", kInt, "-1", kNoEffect, kProfiler},
    {"top_modules", kInt, "1", kNoEffect, kProfiler},
    {"detailed", kBool, "true", kNoEffect, kProfiler},
    {"output_file", kText, "null", kNoEffect, kProfiler},
    {"recompute_fwd_factor", kNumber, "0", kNoEffect, kProfiler},
};

constexpr KeyRow kCommsLogger[] = {
    {"enabled", kBool, "false", kNoEffect, kProfiler},
    {"verbose", kBool, "false", kNoEffect, kProfiler},
    {"prof_all", kBool, "true", kNoEffect, kProfiler},
    {"debug", kBool, "false", kNoEffect, kProfiler},
    {"prof_ops", kTexts, "null", kNoEffect, kProfiler},
};

constexpr const char* kFormat = "checkpoints have a format of their own";

constexpr KeyRow kCheckpoint[] = {
    {"tag_validation", kText, "null", kNoEffect, kFormat},
    {"load_universal", kBool, "false", kNoEffect, kFormat},
    {"use_node_local_storage", kBool, "false", kNoEffect, kFormat},
    {"parallel_write", kAny, "null", kNoEffect, kFormat},
};

constexpr const char* kNone = "there is no DeepSpeed here";

constexpr KeyRow kExtra[] = {
    {"comms_logger", kDict, "null", kNoEffect, kProfiler, "", "", kCommsLogger},
    {"flops_profiler", kDict, "null", kNoEffect, kProfiler, "", "", kFlopsProfiler},
    {"tensorboard", kDict, "null", kNoEffect, kMonitor, "", "", kMonitorKeys},
    {"wandb", kDict, "null", kNoEffect, kMonitor, "", "", kMonitorKeys},
    {"csv_monitor", kDict, "null", kNoEffect, kMonitor, "", "", kMonitorKeys},
    {"checkpoint", kDict, "null", kNoEffect, kFormat, "", "", kCheckpoint},
    {"aio", kAny, "null", kNoEffect, kNone},
    {"timers", kAny, "null", kNoEffect, kNone},
    {"disable_allgather", kBool, "false", kNoEffect, kNone},
    {"dump_state", kBool, "false", kNoEffect, kNone},
    {"memory_breakdown", kBool, "false", kNoEffect, kNone},
    {"wall_clock_breakdown", kBool, "false", kNoEffect, kProfiler},
    {"zero_allow_untested_optimizer", kBool, "false", kNoEffect, kNone},
    {"zero_force_ds_cpu_optimizer", kBool, "true", kNoEffect, kNone},
};

}  // namespace

std::span<const KeyRow> optimizer_keys() { return kOptimizer; }
std::span<const KeyRow> fp16_keys() { return kFp16; }
std::span<const KeyRow> bf16_keys() { return kBf16; }
std::span<const KeyRow> zero_keys() { return kZero; }
std::span<const KeyRow> curriculum_keys() { return kCurriculum; }
std::span<const KeyRow> data_type_keys() { return kDataTypes; }
std::span<const KeyRow> activation_checkpointing_keys() { return kActivationCheckpointing; }
std::span<const KeyRow> tensorboard_keys() { return kTensorboard; }
std::span<const KeyRow> monitor_keys() { return kMonitorKeys; }
std::span<const KeyRow> flops_profiler_keys() { return kFlopsProfiler; }
std::span<const KeyRow> comms_logger_keys() { return kCommsLogger; }
std::span<const KeyRow> checkpoint_keys() { return kCheckpoint; }
std::span<const KeyRow> extra_keys() { return kExtra; }

}  // namespace neox
