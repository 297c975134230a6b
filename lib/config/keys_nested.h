// The keys inside the dictionaries of a configuration; most are DeepSpeed's.
#pragma once
#include "config/keys.h"

namespace neox {

inline constexpr const char* kMonitor =
    "log_dir, tensorboard_dir and use_wandb say where metrics go";

std::span<const KeyRow> optimizer_keys();
std::span<const KeyRow> fp16_keys();
std::span<const KeyRow> bf16_keys();
std::span<const KeyRow> zero_keys();
std::span<const KeyRow> curriculum_keys();
std::span<const KeyRow> data_type_keys();
std::span<const KeyRow> activation_checkpointing_keys();
std::span<const KeyRow> tensorboard_keys();
std::span<const KeyRow> monitor_keys();  // of wandb and csv_monitor
std::span<const KeyRow> flops_profiler_keys();
std::span<const KeyRow> comms_logger_keys();
std::span<const KeyRow> checkpoint_keys();
std::span<const KeyRow> extra_keys();  // of deepspeed_extra_args

}  // namespace neox
