"""Writes checkpoints as GPT-NeoX and DeepSpeed lay them out, with torch.save: deepspeed/runtime/engine.py, pipe/module.py,
zero/stage_1_and_2.py, bf16_optimizer.py and fp16/fused_optimizer.py of DeepSpeed 0.16, zero/stage1.py of 0.3.15.
"""
import json
import math
import sys
import types
from collections import OrderedDict
from pathlib import Path

import torch

from neox_model import decays, part

VERSION = "0.16.5"


def stand_in(module, name, base=object):
    """A class that is pickled by the name it has in DeepSpeed, or that of DeepSpeed where it is loaded."""
    if hasattr(sys.modules.get(module), name):
        return getattr(sys.modules[module], name)
    made = type(name, (base,), {"__module__": module})
    for i in range(1, len(module.split(".")) + 1):
        path = ".".join(module.split(".")[:i])
        sys.modules.setdefault(path, types.ModuleType(path))
    setattr(sys.modules[module], name, made)
    return made


Scaler = stand_in("deepspeed.runtime.fp16.loss_scaler", "DynamicLossScaler")
Fragment = stand_in("deepspeed.utils.tensor_fragment", "fragment_address")


def scaler(run):
    made = Scaler.__new__(Scaler)
    made.__dict__.update(cur_scale=run.scale, cur_iter=run.iteration, last_overflow_iter=run.last_overflow,
                         scale_factor=2.0, scale_window=run.window, min_scale=1, delayed_shift=2, cur_hysteresis=1,
                         consecutive_hysteresis=False, raise_error_at_min_scale=True, dynamic=True, dtype=torch.half)
    return made


class Run:
    """What is saved: whole fp32 parameters and moments by layer and name, and how."""

    def __init__(self, shape, parameters, m, v, **options):
        self.s, self.parameters, self.m, self.v = shape, parameters, m, v
        self.tp = self.pp = self.dp = 1  # pp 0: sequential
        self.zero, self.kind, self.names = 0, "fp32", "new"
        self.iteration, self.steps, self.batch = 0, 0, 4
        self.scale, self.window, self.last_overflow = 4096.0, 1000, -1
        self.layout = "rigid"  # of ZeRO's state: rigid, elastic, old
        self.extra_step = 0  # DeepSpeed's own first step
        for name, value in options.items():
            assert hasattr(self, name), name
            setattr(self, name, value)
        self.dtype = dict(fp32=torch.float32, fp16=torch.float16, bf16=torch.bfloat16)[self.kind]

    def stages(self):
        """Layers of the pipeline that hold parameters, by stage; the first has one block more."""
        layers = sorted(self.parameters)
        if self.pp <= 1:
            return [layers]
        cut = layers.index(2 + (self.s.layers + 1) // 2)
        return [layers[:cut], layers[cut:]]

    def name_of(self, name):
        if self.names == "new":
            return name
        if self.names == "llama":
            return name.replace("linear2", "w2")
        return name.replace("linear1", "dense_h_to_4h").replace("linear2", "dense_4h_to_h")

    def of_rank(self, values, layer, name, rank, moment=False):
        return part(self.s, name, values[layer][name], rank, self.tp, moment).contiguous()

    def weights(self, layer, rank):
        """As the model has them, with the buffers of old versions."""
        made = OrderedDict()
        for name in self.parameters[layer]:
            value = self.of_rank(self.parameters, layer, name, rank).to(self.dtype)
            if self.names == "llama" and name == "mlp.linear1.weight":
                made["mlp.w1.weight"], made["mlp.w3.weight"] = [x.clone() for x in reversed(value.chunk(2))]
            else:
                made[self.name_of(name)] = value.clone()
            if self.names == "legacy" and name == "attention.query_key_value.bias":
                made["attention.rotary_emb.inv_freq"] = torch.ones(4)
        return made


def parameters_of(run, stage, rank):
    """(name in the module, layer, name, shape) in the order of the modules."""
    found = []
    first, last = stage == 0, stage == len(run.stages()) - 1
    layers = run.stages()[stage]
    if run.s.tied and last and not first:
        layers = [0] + layers
    seen_relative = False
    for layer in layers:
        for name in run.parameters[layer]:
            if name == "attention.rpe.weight":
                if seen_relative:
                    continue
                seen_relative = True
            prefix = "sequential." if run.pp == 0 else ""
            place = "tied_modules.embed." if run.s.tied and layer == 0 and run.pp else f"{prefix}{layer}."
            shape = run.of_rank(run.parameters, layer, name, rank).shape
            found.append((place + run.name_of(name), layer, name, shape))
    return found


def groups_of(run, stage, rank):
    found = parameters_of(run, stage, rank)
    return [[p for p in found if decays(p[2])], [p for p in found if not decays(p[2])]]


def flat(run, values, group, rank, moment):
    return torch.cat([run.of_rank(values, layer, name, rank, moment).flatten() for _, layer, name, _ in group])


def partitions(vector, dp, alignment):
    """DeepSpeed's equal pieces, and the padding of each: the last one counts all of it, also what lies before it."""
    padded = torch.cat([vector, torch.zeros(-vector.numel() % alignment)])
    pieces = [piece.clone() for piece in padded.split(padded.numel() // dp)]
    return pieces, [0] * (dp - 1) + [padded.numel() - vector.numel()]


def slices(group, start, size):
    made, at = OrderedDict(), 0
    for full, _, _, shape in group:
        begin, end = max(at, start), min(at + shape.numel(), start + size)
        if begin < end:
            made[full] = Fragment.__new__(Fragment)
            made[full].__dict__.update(numel=end - begin, start=begin - start)
        at += shape.numel()
    return made


def torch_adam(run, states):
    groups = [{"lr": 1e-3, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1 * (1 - g), "params": [g],
               "step": run.steps + run.extra_step} for g in range(len(states))]
    return {"state": dict(enumerate(states)), "param_groups": groups}


def zero_state(run, rank, stage, data_rank):
    masters, states, paddings, mapping = [], [], [], []
    for group in groups_of(run, stage, rank):
        made = {}
        for key, values in (("master", run.parameters), ("exp_avg", run.m), ("exp_avg_sq", run.v)):
            pieces, padding = partitions(flat(run, values, group, rank, key != "master"), run.dp, 2 * run.dp)
            made[key] = pieces[data_rank]
        size, pad = made["master"].numel(), padding[data_rank]
        mapping.append(slices(group, data_rank * size, size - pad))
        lean = (lambda x: x[:size - pad].clone()) if run.kind != "bf16" else (lambda x: x)
        masters.append(lean(made["master"]))
        state = {k: (lean(made[k]) if run.layout == "elastic" else made[k]) for k in ("exp_avg", "exp_avg_sq")}
        states.append(state | {"step": run.steps + run.extra_step})
        paddings.append(pad)
    made = {"base_optimizer_state": states if run.layout == "elastic" else torch_adam(run, states),
            "single_partition_of_fp32_groups": masters, "group_paddings": paddings, "clip_grad": 1.0,
            "partition_count": [run.dp, run.dp], "ds_version": VERSION, "param_slice_mappings": mapping}
    if run.kind != "bf16":
        made |= {"loss_scaler": scaler(run), "dynamic_loss_scale": True, "overflow": False, "zero_stage": run.zero}
    return made


def old_state(run, rank, stage, data_rank, intervals=3):
    """Stage 1 of before 0.3.17: intervals of communication, each shared out over the ranks."""
    masters, states = [], []
    for group in groups_of(run, stage, rank):
        made = {}
        for key, values in (("master", run.parameters), ("exp_avg", run.m), ("exp_avg_sq", run.v)):
            vector = flat(run, values, group, rank, key != "master")
            size = math.ceil(vector.numel() / (run.dp * intervals))
            pieces = list(vector.split(size)) + [torch.zeros(0)] * (run.dp * intervals)
            made[key] = [pieces[i * run.dp + data_rank].clone() for i in range(intervals)]
        masters.append(made.pop("master"))
        states.append([{k: made[k][i] for k in made} for i in range(intervals)])
    return {"loss_scaler": scaler(run), "dynamic_loss_scale": True, "overflow": False, "base_optimizer_state": states,
            "zero_stage": 1, "partition_count": run.dp, "num_comm_intervals_per_group": [intervals] * 2,
            "local_sub_partitions_of_fp32_groups": masters}


def plain_state(run, rank, stage):
    """Without ZeRO: flat masters in fp16, each parameter by itself in fp32."""
    groups = groups_of(run, stage, rank)
    if run.kind == "fp16":
        states = [{"exp_avg": flat(run, run.m, g, rank, True), "exp_avg_sq": flat(run, run.v, g, rank, True)}
                  for g in groups]
        return {"dynamic_loss_scale": True, "cur_scale": run.scale, "cur_iter": run.iteration,
                "last_overflow_iter": run.last_overflow, "scale_factor": 2, "scale_window": run.window,
                "optimizer_state_dict": torch_adam(run, states), "clip_grad": 1.0,
                "fp32_groups_flat": [flat(run, run.parameters, g, rank, False) for g in groups]}
    state, indices = {}, []
    for group in groups:
        indices.append(list(range(len(state), len(state) + len(group))))
        for _, layer, name, _ in group:
            state[len(state)] = {"step": torch.tensor(float(run.steps)),
                                 "exp_avg": run.of_rank(run.m, layer, name, rank, True),
                                 "exp_avg_sq": run.of_rank(run.v, layer, name, rank, True)}
    return {"state": state, "param_groups": [{"lr": 1e-3, "params": i} for i in indices]}


def client_state(run, rank, stage):
    s = run.s
    state = dict(module=None, lr_scheduler=dict(start_lr=1e-3, warmup_iter=2.0, num_iters=run.steps, decay_style="cosine",
                                                end_iter=20, min_lr=1e-4),
                 skipped_steps=run.iteration - run.steps, global_steps=run.iteration,
                 global_samples=run.iteration * run.batch, dp_world_size=run.dp,
                 mp_world_size=run.tp * max(run.pp, 1), iteration=run.iteration,
                 args=dict(num_layers=s.layers, hidden_size=s.hidden, num_attention_heads=s.heads,
                           max_position_embeddings=s.seq, make_vocab_size_divisible_by=s.vocab // run.tp,
                           padded_vocab_size=s.vocab, tokenizer_type="HFTokenizer", model_parallel_size=run.tp),
                 random_rng_state=(3, tuple(range(5)), None), torch_rng_state=torch.get_rng_state(),
                 ds_config=dict(train_batch_size=run.batch), optimizer=None, param_shapes=None)
    if run.pp == 0:
        state["module"] = OrderedDict((f"sequential.{layer}.{name}", value) for layer in sorted(run.parameters)
                                      for name, value in run.weights(layer, rank).items())
    if not run.zero and run.kind != "bf16":
        state["optimizer"] = plain_state(run, rank, stage)
    elif run.layout != "old":
        state["param_shapes"] = [OrderedDict((full, shape) for full, _, _, shape in group)
                                 for group in groups_of(run, stage, rank)]
    return state


def save(run, folder, configs):
    folder = Path(folder)
    step = folder / f"global_step{run.iteration}"
    (step / "configs").mkdir(parents=True)
    for name, keys in configs.items():
        (step / "configs" / name).write_text(json.dumps(keys))
    for stage in range(len(run.stages())):
        for rank in range(run.tp):
            mp = stage * run.tp + rank
            torch.save(client_state(run, rank, stage), step / f"mp_rank_{mp:02d}_model_states.pt")
            if run.zero or run.kind == "bf16":
                make = old_state if run.layout == "old" else zero_state
                prefix = "bf16_" if run.kind == "bf16" else ""
                for data_rank in range(run.dp):
                    torch.save({"optimizer_state_dict": make(run, rank, stage, data_rank), "ds_version": VERSION},
                               step / f"{prefix}zero_pp_rank_{data_rank}_mp_rank_{mp:02d}_optim_states.pt")
    if run.pp:
        for layer in sorted(run.parameters):
            for rank in range(run.tp):
                torch.save(run.weights(layer, rank), step / f"layer_{layer:02d}-model_{rank:02d}-model_states.pt")
    (folder / "latest").write_text(step.name)
