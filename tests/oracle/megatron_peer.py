"""Megatron-Core on a CPU, for megatron_checkpoint.py: its GPTModel's logits, and its torch_dist checkpoints."""
import contextlib
import sys
import warnings

warnings.simplefilter("ignore")
import torch
import torch.distributed.checkpoint as dcp

# It asks for these, whatever device its tensors are on.
torch.cuda.synchronize = lambda *_: None
torch.cuda.current_device = lambda: "cpu"

path = list(sys.path)  # one of the imports takes the first entry away
from megatron.core import dist_checkpointing, parallel_state
from megatron.core.dist_checkpointing.strategies import torch as strategies
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.tensor_parallel import random
from megatron.core.transformer.transformer_config import TransformerConfig

sys.path[:] = path
random.CudaRNGStatesTracker.fork = lambda *_: contextlib.nullcontext()


def build(c, part, tp):
    """Its GPTModel of a case, on one tensor-parallel rank, with those tensors."""
    config = TransformerConfig(
        num_layers=c.layers, hidden_size=c.hidden, num_attention_heads=c.heads, num_query_groups=c.groups,
        kv_channels=c.size, add_qkv_bias=c.qkv_bias,
        ffn_hidden_size=c.ffn, use_cpu_initialization=True, normalization=c.norm, layernorm_epsilon=c.eps,
        gated_linear_unit=c.swiglu, activation_func=torch.nn.functional.silu if c.swiglu else torch.nn.functional.gelu,
        add_bias_linear=c.bias, bias_activation_fusion=c.fused and c.bias and not c.swiglu, qk_layernorm=c.qk_norm,
        hidden_dropout=0, attention_dropout=0, tensor_model_parallel_size=tp, params_dtype=torch.float32)
    spec = get_gpt_layer_local_spec(qk_layernorm=c.qk_norm, normalization=c.norm)
    model = GPTModel(config, spec, vocab_size=c.vocab, max_sequence_length=c.positions,
                     position_embedding_type=c.embedding, rotary_percent=c.percent, rotary_base=c.base,
                     share_embeddings_and_output_weights=c.tied, parallel_output=False).eval()
    known = model.load_state_dict(part, strict=False)
    assert not known.unexpected_keys, known
    assert all(name.endswith("_extra_state") for name in known.missing_keys), known
    return model


def core_logits(c, part, tokens):
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
        parallel_state.initialize_model_parallel(1, 1)
    T = len(tokens)
    with torch.no_grad():
        return build(c, part, 1)(torch.tensor([tokens]), torch.arange(T)[None],
                                 torch.ones(T, T).triu(1).bool()[None, None])[0]


class Plain(strategies.TorchDistSaveShardedStrategy):
    """Writes what Megatron-Core plans in this process, not in one that it starts for it."""

    def save(self, state, folder):
        state = strategies._replace_state_dict_keys_with_sharded_keys(state, True)[0]
        dcp.save(strategies.mcore_to_pyt_state_dict(state, False), storage_writer=dcp.FileSystemWriter(folder, thread_count=2),
                 planner=strategies.MCoreSavePlanner(dedup_replicated_tensors=False, flatten_state_dict=False))


def save_core(c, part, state, place, dtype):
    """In each process of a group of c.tp."""
    parallel_state.initialize_model_parallel(c.tp, 1)
    model = build(c, part, c.tp).to(dtype)
    metadata = dict(non_homogeneous_layers=c.by_layer, singleton_local_shards=c.by_layer,
                    dp_cp_group=parallel_state.get_data_parallel_group())
    dist_checkpointing.save(dict(state, model=model.sharded_state_dict(metadata=metadata)), str(place),
                            Plain("torch_dist", 1))
