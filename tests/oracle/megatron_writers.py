"""Checkpoints of Megatron-LM and Megatron-DeepSpeed as they document theirs, for megatron_checkpoint.py."""
import argparse
import collections
import enum
import json
import random
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import torch
import torch.distributed.checkpoint as dcp

from megatron_model import NAMES, TYPES, Gpt, layer_part, nested, order_of, rank_part
from megatron_peer import save_core


class ModelType(enum.Enum):
    encoder_or_decoder = 1


class PositionEmbeddingType(enum.Enum):
    """Of BigScience's fork, by the name that it is pickled under."""
    rotary = 1
    absolute = 2
    alibi = 3


PositionEmbeddingType.__module__ = "megatron.enums"
sys.modules["megatron.enums"] = types.ModuleType("megatron.enums")
sys.modules["megatron.enums"].PositionEmbeddingType = PositionEmbeddingType


def args_of(c, deepspeed=False):
    """A command line as it is saved, with much that says nothing of the model."""
    args = argparse.Namespace(
        num_layers=c.layers, hidden_size=c.hidden, num_attention_heads=c.heads, kv_channels=c.size,
        ffn_hidden_size=c.ffn, max_position_embeddings=c.positions, seq_length=c.positions // 2, padded_vocab_size=c.vocab,
        layernorm_epsilon=c.eps, swiglu=c.swiglu, bias_gelu_fusion=c.fused and c.bias, add_bias_linear=c.bias,
        untie_embeddings_and_output_weights=not c.tied, hidden_dropout=0.1, attention_dropout=0.1, init_method_std=0.02,
        rotary_percent=c.percent, apply_layernorm_1p=False, squared_relu=False, openai_gelu=False, onnx_safe=None,
        tensor_model_parallel_size=c.tp, pipeline_model_parallel_size=max(c.pp, 1), tokenizer_type="GPT2BPETokenizer",
        vocab_file="/nowhere/vocab.json", merge_file="/nowhere/merges.txt", model_type=ModelType.encoder_or_decoder,
        params_dtype=TYPES[c.kind], lr=1e-3, data_path=["x"], iteration=5, world_size=max(c.tp * c.pp, 1), rank=0,
        consumed_train_samples=80, moe_aux_loss_coeff=0.0, num_experts=[1] if deepspeed else None)
    if deepspeed:
        args.normalization = c.norm.lower()
        args.num_key_value_heads = c.groups
        args.use_rotary_position_embeddings = c.embedding == "rope"
        args.add_position_embedding = c.embedding != "rope"
        args.rope_theta = c.base
        if c.thirds == "args":
            args.ds_sequence_parallel_fpdt = False
    else:
        args.normalization = c.norm
        args.position_embedding_type = c.embedding
        args.add_position_embedding = True
        args.use_rotary_position_embeddings = False
        args.rotary_base = c.base
        args.group_query_attention = c.groups != c.heads
        args.num_query_groups = c.groups if c.groups != c.heads else 1
        args.qk_layernorm = c.qk_norm
        args.add_qkv_bias = c.qkv_bias
        args.spec = None
    if c.bigscience:
        for name in ("normalization", "num_key_value_heads", "use_rotary_position_embeddings", "add_position_embedding",
                     "rope_theta", "swiglu", "add_bias_linear", "untie_embeddings_and_output_weights", "num_experts",
                     "apply_layernorm_1p", "squared_relu"):
            delattr(args, name)
        args.position_embedding_type = (PositionEmbeddingType.alibi if c.embedding == "alibi" else
                                        PositionEmbeddingType.absolute)
        args.embed_layernorm = c.embed_norm
        args.glu_activation = None
        args.use_bnb_optimizer = False
        args.pretrain_causal_attention = True
        args.apply_residual_connection_post_layernorm = False
    if c.names == "old":  # of 2020
        for name in ("position_embedding_type", "normalization", "swiglu", "add_bias_linear", "group_query_attention",
                     "tensor_model_parallel_size", "pipeline_model_parallel_size", "kv_channels", "ffn_hidden_size",
                     "use_rotary_position_embeddings", "untie_embeddings_and_output_weights"):
            delattr(args, name)
        args.model_parallel_size = c.tp
        args.ffn_hidden_size = c.ffn
    return args


def client_state(c, deepspeed=False):
    state = dict(args=args_of(c, deepspeed), iteration=5, checkpoint_version=c.version, rng_state=[dict(
        random_rng_state=random.getstate(), np_rng_state=np.random.get_state(), torch_rng_state=torch.get_rng_state(),
        rng_tracker_states={"model-parallel-rng": torch.get_rng_state()})],
        opt_param_scheduler=dict(max_lr=1e-3, num_steps=80))
    if c.version == 0:
        del state["checkpoint_version"]
    return state


def stages_of(c):
    """Layers of each (pipeline stage, virtual stage), in the order of the model: virtual stages first."""
    each = c.layers // (c.pp * c.vp)
    order = [(p, v) for v in range(c.vp) for p in range(c.pp)]
    return {place: range(i * each, (i + 1) * each) for i, place in enumerate(order)}


def write_megatron(model, folder):
    c = model.c
    stages = stages_of(c)
    last = list(stages)[-1]
    for p in range(c.pp):
        for t in range(c.tp):
            state = client_state(c)
            for v in range(c.vp):
                flat = rank_part(model, t, c.tp, stages[p, v], (p, v) == (0, 0), (p, v) == last, order_of(c), c.names)
                if c.names.startswith("core"):
                    tree = collections.OrderedDict((k, x.clone()) for k, x in flat.items())
                    tree["decoder.layers.0.mlp.linear_fc1._extra_state"] = torch.zeros(t, dtype=torch.uint8) if v else None
                else:
                    tree = nested(flat)
                state[f"model{v}" if c.vp > 1 else "model"] = tree
            state["optimizer"] = dict(param_groups=[dict(lr=0.1, params=[0])], state={0: dict(step=torch.tensor(3.0))})
            place = folder / "iter_0000005" / (f"mp_rank_{t:02d}_{p:03d}" if c.pp > 1 else f"mp_rank_{t:02d}")
            place.mkdir(parents=True)
            torch.save(state, place / "model_optim_rng.pt")
    (folder / "latest_checkpointed_iteration.txt").write_text("5")


def numbers_of(c):
    """Of the first layer and of the last norm in a pipeline, where functions that turn tensors have numbers, or have none."""
    return (3, c.layers + 4) if c.turns else (2, c.layers + 2)


def write_deepspeed(model, folder):
    c = model.c
    step = folder / "global_step5"
    step.mkdir(parents=True)
    order = order_of(c)
    for mp in range(c.tp * max(c.pp, 1)):
        module = None
        if not c.pp:
            module = nested(rank_part(model, mp, c.tp, range(c.layers), True, True, order, "classic"))
            module["language_model"]["moe_state_dict"] = {}
        torch.save(dict(module=module, buffer_names=[], optimizer=None, param_shapes=None, lr_scheduler=None,
                        skipped_steps=0, global_steps=5, global_samples=80, dp_world_size=2,
                        mp_world_size=c.tp * max(c.pp, 1),  # DeepSpeed counts the stages of a pipeline
                        ds_config=dict(train_batch_size=2), ds_version="0.10.0", **client_state(c, True)),
                   step / f"mp_rank_{mp:02d}_model_states.pt")
    for t in range(c.tp if c.pp else 0):
        def save(layer, tensors):
            torch.save(collections.OrderedDict((k, x.clone()) for k, x in tensors.items()),
                       step / f"layer_{layer:02d}-model_{t:02d}-model_states.pt")

        first, norm = numbers_of(c)
        head = {"word_embeddings.weight": model.p["embedding"].chunk(c.tp)[t]}
        if c.embed_norm:
            head |= {f"word_embeddings.norm.{end}": model.p[f"embed_norm.{end}"] for end in ("weight", "bias")}
        if "positions" in model.p:
            head["position_embeddings.weight"] = model.p["positions"]
        save(1, head)
        for n in range(c.layers):
            part = layer_part(model, n, t, c.tp, order)
            save(n + first, {NAMES["classic"][name] + end: x for (name, end), x in part.items()})
        save(norm, {end: model.p[f"final.{end}"] for end in ("weight", "bias") if f"final.{end}" in model.p})
        if not c.tied:
            save(norm + 1, {"lm_head.weight": model.p["head"].chunk(c.tp)[t]})
    (folder / "latest").write_text("global_step5")
    (folder / "latest_checkpointed_iteration.txt").write_text("5")


def dist_tensors(model):
    """Whole tensors by Megatron-Core's names, gate and up one after the other."""
    c = model.c
    flat = rank_part(model, 0, 1, range(c.layers), True, True, "groups", "core")
    prefix, layers, whole = NAMES["core"]["layers"], collections.defaultdict(list), {}
    for name, x in flat.items():
        if not name.startswith(prefix) or c.by_layer:
            whole[name] = x
        else:
            layers[name[len(prefix):].split(".", 1)[1]].append(x)
    whole |= {prefix + name: torch.stack(xs) for name, xs in layers.items()}
    if c.split_gates:
        for name in [n for n in whole if "linear_fc1.weight" in n]:
            whole[name + "_w"], whole[name + "_v"] = whole.pop(name).chunk(2)
    whole["optimizer.state.exp_avg.embedding.word_embeddings.weight"] = torch.zeros(c.vocab, c.hidden)
    return whole


def save_dist(rank, world, model, place):
    """In each of the processes of a group."""
    state = dist_tensors(model)
    if world > 1:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import DTensor, Shard
        mesh = init_device_mesh("cpu", (world,))
        for name, x in list(state.items()):
            dim = x.dim() - 1 if "linear_proj.weight" in name or "fc2.weight" in name else 0
            state[name] = DTensor.from_local(x.tensor_split(world, dim)[rank].contiguous(), mesh, [Shard(dim)],
                                             shape=x.shape, stride=x.stride())
    state["rng_state/shard_0_1"] = dict(random_rng_state=random.getstate())
    if model.c.common == "object":
        state["common_state/shard_0_1"] = [client_state(model.c)]
    dcp.save(state, storage_writer=dcp.FileSystemWriter(place, thread_count=2),
             planner=dcp.DefaultSavePlanner(flatten_state_dict=False))
    if rank == 0:
        if model.c.common != "object":
            torch.save(client_state(model.c), place / "common.pt")
        (place / "metadata.json").write_text(json.dumps(dict(sharded_backend="torch_dist", sharded_backend_version=1)))


def write_dist(model, folder):
    """Processes of this script, one for each rank."""
    c = model.c
    place = folder / "iter_0000005"
    place.mkdir(parents=True)
    (folder / "latest_checkpointed_iteration.txt").write_text("5")
    torch.save(model.p, folder / "parameters.pt")
    logs = [folder / f"rank{r}.log" for r in range(c.tp)]
    script = Path(__file__).with_name("megatron_checkpoint.py")
    ranks = [subprocess.Popen([sys.executable, script, "--rank", str(r), "--case", json.dumps(vars(c)), folder, place],
                              stdout=log.open("w"), stderr=subprocess.STDOUT) for r, log in enumerate(logs)]
    try:
        assert not any(rank.wait(timeout=300) for rank in ranks), "\n".join(log.read_text() for log in logs)
    finally:
        for rank in ranks:
            rank.kill()


def rank_main(rank, case, folder, place):
    model = Gpt(case, 0)
    model.p = torch.load(folder / "parameters.pt")
    c = model.c
    store = torch.distributed.FileStore(str(folder / "store"), c.tp)
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=c.tp)
    if c.writer == "core":
        part = rank_part(model, rank, c.tp, range(c.layers), True, True, "groups", "core_local")
        state = client_state(c)
        del state["rng_state"]  # each rank's own
        save_core(c, part, state, place, TYPES[c.kind])
    else:
        save_dist(rank, c.tp, model, place)
    torch.distributed.destroy_process_group()


WRITERS = dict(megatron=write_megatron, deepspeed=write_deepspeed, dist=write_dist, core=write_dist)
