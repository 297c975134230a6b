#!/usr/bin/env python3
"""DeepSpeed itself as the peer of neox-convert, with the modules of GPT-NeoX by their names: two processes on the CPU.

  neox_deepspeed.py BIN_DIRECTORY

For each way to train: DeepSpeed trains a small model and saves it halfway. The converted checkpoint has the moments that
DeepSpeed has in memory and the masters that its zero_to_fp32 finds; neox-train goes on from it with the losses that
DeepSpeed goes on with; and what neox-convert writes for GPT-NeoX, DeepSpeed loads with every parameter right.
"""
import os

os.environ |= dict(OMP_NUM_THREADS="1", DS_ACCELERATOR="cpu", CUDA_VISIBLE_DEVICES="")
import argparse
import json
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import deepspeed
import torch
from deepspeed.pipe import LayerSpec, PipelineModule, TiedLayerSpec
from deepspeed.runtime.pipe.topology import PipeModelDataParallelTopology
from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint
from torch import distributed, nn
from torch.nn import functional as F

import neox_checkpoint as peer
import neox_model
from neox_model import Shape

RANKS = 2
TIED = dict(tied=True, parallel=False, layers=3)
# pp 0: sequential. DeepSpeed's tied embedding in two stages is not quite tied in fp32 without ZeRO: no such case.
CASES = {
    "sequential, ZeRO 1": dict(pp=0, zero=1),
    "sequential, ZeRO 2, bf16": dict(pp=0, zero=2, kind="bf16"),
    "one stage, ZeRO 0": dict(pp=1, zero=0),
    "two stages, tied, ZeRO 1": dict(pp=2, zero=1, **TIED),
    "two stages, tied, bf16": dict(pp=2, zero=1, kind="bf16", **TIED),
}
BOUND = dict(fp32=1e-5, bf16=1e-2)  # neox-train goes on in fp32


# ---- the model -----------------------------------------------------------------------------------

class LayerNorm(nn.LayerNorm):
    """GPT-NeoX tells parameters without weight decay by the name of this class."""


class Layer(nn.Module):
    """A layer of the pipeline with its parameters by GPT-NeoX's names."""

    def __init__(self, s, values, forward):
        super().__init__()
        self.function = forward
        for name, value in values.items():
            *path, last = name.split(".")
            module = self
            for part in path:
                if not hasattr(module, part):
                    module.add_module(part, LayerNorm(s.hidden) if "norm" in part else nn.Module())
                module = getattr(module, part)
            module._parameters[last] = nn.Parameter(value.clone())

    @property
    def word_embeddings_weight(self):
        return self.word_embeddings.weight

    def forward(self, x):
        return self.function(x, dict(self.named_parameters()))


def loss_of(logits, targets):
    return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


def layers_of(s, values):
    """What each Layer of the pipeline is made with; None for the places that have no parameters."""
    forward = [lambda x, p: p["word_embeddings.weight"][x], None]
    forward += [lambda x, p: neox_model.block(s, x, [p])] * s.layers
    forward += [None, lambda x, p: neox_model.norm(s, x, p, "norm"), lambda x, p: F.linear(x, p["final_linear.weight"])]
    return [f and (s, values.get(layer, {}), f) for layer, f in enumerate(forward)]


class Sequential(nn.Module):
    def __init__(self, s, values):
        super().__init__()
        self.sequential = nn.Sequential(*(Layer(*made) if made else nn.Identity() for made in layers_of(s, values)))

    def forward(self, inputs, targets):
        return loss_of(self.sequential(inputs), targets)


def pipeline(s, values, stages):
    layers = layers_of(s, values)
    specs = [LayerSpec(Layer, *made) if made else (lambda x: x) for made in layers]
    if s.tied:
        how = dict(tied_weight_attr="word_embeddings_weight")
        specs[0] = TiedLayerSpec("embed", Layer, *layers[0], **how)
        specs[-1] = TiedLayerSpec("embed", Layer, *layers[0], **how,
                                  forward_fn=lambda m, x: F.linear(x, m.word_embeddings.weight))
    topology = PipeModelDataParallelTopology(num_pp=stages, num_mp=1, num_dp=RANKS // stages)
    return PipelineModule(specs, topology=topology, loss_fn=loss_of, partition_method="type:layer")


class Schedule:
    def __init__(self, optimizer):
        self.optimizer, self.num_iters = optimizer, 0

    def step(self):
        self.num_iters += 1
        for group in self.optimizer.param_groups:
            group["lr"] = peer.learning_rate(self.num_iters)

    def state_dict(self):
        return dict(num_iters=self.num_iters, start_lr=peer.SCHEDULE["lr"])

    def get_last_lr(self):
        return [peer.learning_rate(self.num_iters)]


def groups_of(model):
    """GPT-NeoX's two groups (get_params_for_weight_decay_optimization)."""
    both = ([], [])
    for module in model.modules():
        for name, p in module._parameters.items():
            both[isinstance(module, LayerNorm) or name == "bias"].append(p)
    return [dict(params=both[0], weight_decay=0.1), dict(params=both[1], weight_decay=0.0)]


def engine_of(s, case, values):
    model = pipeline(s, values, case["pp"]) if case["pp"] else Sequential(s, values)
    data = RANKS // max(case["pp"], 1)
    micro = 2 if data == 1 else peer.BATCH // data
    config = dict(train_batch_size=peer.BATCH, train_micro_batch_size_per_gpu=micro, gradient_clipping=1.0,
                  zero_optimization=dict(stage=case["zero"]), zero_allow_untested_optimizer=True, steps_per_print=1000)
    if case.get("kind") == "bf16":
        config |= dict(bf16=dict(enabled=True), data_types=dict(grad_accum_dtype="fp32"))
    adam = torch.optim.AdamW(groups_of(model), lr=peer.learning_rate(0), betas=(0.9, 0.95), eps=1e-8)
    schedule = Schedule(adam)
    engine = deepspeed.initialize(model=model, optimizer=adam, config=config, lr_scheduler=schedule)[0]
    return engine, adam, micro


# ---- a process -----------------------------------------------------------------------------------

def place(name):
    layer, inner = name.replace("tied_modules.embed.", "0.").replace("sequential.", "").split(".", 1)
    return int(layer), inner


def train(case, folder, values, s):
    engine, adam, micro = engine_of(s, case, values)
    data = RANKS // max(case["pp"], 1)
    rank = distributed.get_rank() if data > 1 else 0
    losses = []
    for t, batch in enumerate(torch.load(folder / "batches.pt")):
        if t == peer.TRAINED:
            if case["zero"] == 0:
                moments = {place(n): [adam.state[p][k].clone() for k in ("exp_avg", "exp_avg_sq")]
                           for n, p in engine.module.named_parameters()}
                torch.save(moments, folder / f"moments{distributed.get_rank()}.pt")
            engine.save_checkpoint(str(folder / "neox"), tag=f"global_step{t}",
                                   client_state=dict(iteration=t, args=dict(padded_vocab_size=s.vocab),
                                                     random_rng_state=(3, (1, 2), None)))
        parts = [batch[(m * data + rank) * micro:][:micro] for m in range(peer.BATCH // (micro * data))]
        if case["pp"]:
            losses.append(float(engine.train_batch(iter([(x[:, :-1], x[:, 1:]) for x in parts]))))
            continue
        total = torch.zeros(())
        for x in parts:
            loss = engine(x[:, :-1], x[:, 1:])
            engine.backward(loss)
            engine.step()
            total += loss.detach().float() / len(parts) / RANKS
        distributed.all_reduce(total)
        losses.append(float(total))
    if distributed.get_rank() == 0:
        (folder / "losses.json").write_text(json.dumps(losses))


def load(case, folder, values, s):
    """What neox-convert wrote, into a model of zeros."""
    zeros = {layer: {n: torch.zeros_like(p) for n, p in names.items()} for layer, names in values.items()}
    engine = engine_of(s, case, zeros)[0]
    path, client = engine.load_checkpoint(str(folder / "back"), load_optimizer_states=False,
                                          load_lr_scheduler_states=False, load_module_only=True)
    assert path is not None and client["iteration"] == peer.TRAINED and client["args"]["num_layers"] == s.layers
    wanted, checked = torch.load(folder / "whole.pt"), 0
    for name, p in engine.module.named_parameters():
        layer, inner = place(name)
        assert torch.equal(p, wanted[layer][inner].to(p.dtype)), f"{name} was loaded wrong"
        checked += 1
    assert checked > 5, checked


def worker(name, what, folder):
    case = CASES[name]
    deepspeed.init_distributed("gloo")
    dict(train=train, load=load)[what](case, folder, torch.load(folder / "values.pt"), shape_of(case))


# ---- the comparison ------------------------------------------------------------------------------

def shape_of(case):
    return Shape({k: v for k, v in case.items() if k in neox_model.DEFAULTS})


def processes(name, what, folder):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = str(s.getsockname()[1])
    started = [subprocess.Popen([sys.executable, __file__, "--worker", name, what, folder], text=True,
                                env=os.environ | dict(RANK=str(r), LOCAL_RANK=str(r), WORLD_SIZE=str(RANKS),
                                                      MASTER_ADDR="127.0.0.1", MASTER_PORT=port),
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for r in range(RANKS)]
    said = [process.communicate(timeout=600)[0] for process in started]
    assert not any(process.returncode for process in started), f"{name}: {what}\n" + "\n".join(said)


def check_state(case, s, folder):
    found = peer.read_ours(folder / "ours")[0]
    if case["zero"] == 0:
        both = torch.load(folder / "moments1.pt") | torch.load(folder / "moments0.pt")
        for i, state in enumerate(("adam_m", "adam_v")):
            wanted = {}
            for (layer, name), moments in both.items():
                wanted.setdefault(layer, {})[name] = moments[i]
            for name, value in neox_model.ours(s, wanted).items():
                assert peer.same_bits(found[state, name], value), f"{state} of {name}"
        return f"{2 * len(both)} moments equal"
    if case["pp"]:
        return f"{len(found)} states"
    wanted = {}
    for name, value in get_fp32_state_dict_from_zero_checkpoint(str(folder / "neox")).items():
        layer, inner = place(name)
        wanted.setdefault(layer, {})[inner] = value
    for name, value in neox_model.ours(s, wanted).items():
        assert peer.same_bits(found["param", name], value), f"master of {name}"
    return "masters equal"


def check_case(options, name, folder):
    case = CASES[name]
    kind, s = case.get("kind", "fp32"), shape_of(case)
    peer.tokenizer(folder / "tokenizer.json")
    peer.dataset(folder / "data", s.vocab)
    values = {layer: {n: p * (0.3 if p.dim() > 1 else 1) for n, p in names.items()}
              for layer, names in neox_model.random_parameters(s, 3).items()}
    torch.save(values, folder / "values.pt")
    config = peer.own_config(s, {k: v for k, v in case.items() if k != "kind"}, folder)
    torch.save(peer.batches(options, config), folder / "batches.pt")
    processes(name, "train", folder)
    configs = folder / "neox" / f"global_step{peer.TRAINED}" / "configs"
    configs.mkdir()
    for file, keys in peer.configs(s, case, folder).items():
        (configs / file).write_text(json.dumps(keys))
    peer.run(options.bin / "neox-convert", "--to", "neox.cpp", folder / "neox", folder / "ours")
    words = check_state(case, s, folder)
    peer.run(options.bin / "neox-convert", "--to", "neox", folder / "ours", folder / "back", "--pipeline-parallel",
             case["pp"])
    torch.save(peer.read_back(folder / "back", s, 1, case["pp"])[0], folder / "whole.pt")
    processes(name, "load", folder)
    wanted = json.loads((folder / "losses.json").read_text())[peer.TRAINED:]
    apart = peer.losses_apart(options, config, folder, wanted)
    assert apart <= BOUND[kind], f"{name}: losses are {apart} apart"
    print(f"{name}: {words}, {len(wanted)} losses {apart:.1e} apart, loaded by DeepSpeed", flush=True)


def main():
    if sys.argv[1] == "--worker":
        return worker(sys.argv[2], sys.argv[3], Path(sys.argv[4]))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bin", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name in CASES:
        with tempfile.TemporaryDirectory() as folder:
            check_case(options, name, Path(folder))
    print(f"{len(CASES)} ways to train with DeepSpeed {deepspeed.__version__}, there and back")


if __name__ == "__main__":
    main()
