"""LLaMA as Meta publishes it, made of a model of transformers: params.json and consolidated.NN.pth, and what Meta's code computes.

The names, how ranks share tensors, and the model are those of Meta's llama/model.py (LLaMA 1 to 3.2); params.json of Mistral's
form is that of mistral_inference/args.py.
"""
import io
import json

import sentencepiece
import torch
from safetensors.torch import save_file

# Meta's name, and the dimension that ranks share; None: each has a copy.
NAMES = {"embed_tokens": ("tok_embeddings", 1), "norm": ("norm", None), "lm_head": ("output", 0),
         "input_layernorm": ("attention_norm", None), "post_attention_layernorm": ("ffn_norm", None),
         "q_proj": ("attention.wq", 0), "k_proj": ("attention.wk", 0), "v_proj": ("attention.wv", 0),
         "o_proj": ("attention.wo", 1), "gate_proj": ("feed_forward.w1", 0), "down_proj": ("feed_forward.w2", 1),
         "up_proj": ("feed_forward.w3", 0)}


def to_pairs(rows, heads):
    """Row d and d + D / 2 of a head become neighbours."""
    return rows.view(heads, 2, -1, rows.shape[1]).transpose(1, 2).reshape(rows.shape)


def state_of(model):
    """Of a model of transformers: tensors by Meta's names, and the dimensions that ranks share."""
    config, state, shared = model.config, {}, {}
    for name, tensor in model.state_dict().items():
        parts = name.split(".")
        theirs, dim = NAMES[parts[-2]]
        layer = f"layers.{parts[2]}." if "layers" in parts else ""
        heads = dict(q_proj=config.num_attention_heads, k_proj=config.num_key_value_heads).get(parts[-2])
        state[f"{layer}{theirs}.weight"] = to_pairs(tensor, heads) if heads else tensor
        shared[f"{layer}{theirs}.weight"] = dim
    return state, shared


def params_of(config, mistrals):
    params = dict(dim=config.hidden_size, n_layers=config.num_hidden_layers, n_heads=config.num_attention_heads,
                  norm_eps=config.rms_norm_eps, vocab_size=-1)
    if config.num_key_value_heads != config.num_attention_heads:
        params["n_kv_heads"] = config.num_key_value_heads
    rope = config.rope_parameters
    if rope["rope_theta"] != 10000 or mistrals:
        params["rope_theta"] = rope["rope_theta"]
    if rope["rope_type"] == "llama3":
        params["use_scaled_rope"] = True
        if rope["factor"] not in (8, 32):
            params["rope_scaling_factor"] = rope["factor"]
    if not mistrals:
        return params | dict(multiple_of=256, ffn_dim_multiplier=1.3)
    return params | dict(head_dim=config.head_dim, hidden_dim=config.intermediate_size, vocab_size=config.vocab_size,
                         sliding_window=config.sliding_window, moe=None)


def pieces(text):
    """A tokenizer.model, learnt, with LLaMA's options."""
    made = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter([text] * 3), model_writer=made, vocab_size=300,
                                             model_type="bpe", byte_fallback=True, remove_extra_whitespaces=False,
                                             normalization_rule_name="identity", hard_vocab_limit=False, minloglevel=2)
    return made.getvalue()


def ids(file, text):
    """Of a text, as Meta's code begins it."""
    model = sentencepiece.SentencePieceProcessor(model_file=str(file))
    return [model.bos_id()] + model.encode(text)


def write(model, folder, ranks=1, embedding="columns", form="pth"):
    """form: "pth", or Mistral's: "safetensors" or "mistral.pth"."""
    folder.mkdir()
    params = params_of(model.config, form != "pth")
    (folder / "params.json").write_text(json.dumps(params))
    state, shared = state_of(model)
    if embedding == "rows":
        shared["tok_embeddings.weight"] = 0
    if form == "safetensors":
        save_file({name: tensor.clone() for name, tensor in state.items()}, folder / "consolidated.safetensors")
    for rank in range(ranks if form != "safetensors" else 0):
        part = {name: tensor if shared[name] is None else tensor.chunk(ranks, shared[name])[rank]
                for name, tensor in state.items()}
        part["rope.freqs"] = torch.ones(4, dtype=next(model.parameters()).dtype)
        if embedding == "columns":  # with rows they stay views of one storage
            part = {name: tensor.clone() for name, tensor in part.items()}
        torch.save(part, folder / f"consolidated.{rank:02}.pth")
    return params, state


def frequencies(params, size, tied):
    freqs = 1 / params.get("rope_theta", 10000.0) ** (torch.arange(0, size, 2).float() / size)
    if not params.get("use_scaled_rope"):
        return freqs
    factor = params.get("rope_scaling_factor", 32 if tied else 8)
    lengths = 2 * torch.pi / freqs
    smooth = ((8192 / lengths - 1) / 3).clamp(0, 1)  # 0 above 8192 / 1, 1 below 8192 / 4
    return (1 - smooth) * freqs / factor + smooth * freqs


@torch.no_grad()
def logits(params, state, ids):
    """[T, vocab] of Meta's model in fp32: neighbours of a head's numbers are rotated as one complex number."""
    weight = {name: tensor.float() for name, tensor in state.items()}
    T, H, G = len(ids), params["n_heads"], params.get("n_kv_heads", params["n_heads"])
    size = params.get("head_dim", params["dim"] // H)
    head = weight.get("output.weight", weight["tok_embeddings.weight"])
    tied = torch.equal(head, weight["tok_embeddings.weight"])
    turns = torch.polar(torch.ones(1), torch.outer(torch.arange(T).float(), frequencies(params, size, tied)))
    steps = torch.arange(T)[:, None] - torch.arange(T)
    mask = torch.zeros(T, T).masked_fill((steps < 0) | (steps >= (params.get("sliding_window") or T)), -torch.inf)

    def norm(x, name):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + params["norm_eps"]) * weight[name + ".weight"]

    def rotated(x):
        return torch.view_as_real(torch.view_as_complex(x.reshape(T, -1, size // 2, 2)) * turns[:, None]).flatten(2)

    h = weight["tok_embeddings.weight"][ids]
    for layer in range(params["n_layers"]):
        def linear(x, name):
            return x @ weight[f"layers.{layer}.{name}.weight"].T
        x = norm(h, f"layers.{layer}.attention_norm")
        q, k = (rotated(linear(x, f"attention.{w}")) for w in ("wq", "wk"))
        v = linear(x, "attention.wv").view(T, G, size)
        k, v = (t.repeat_interleave(H // G, 1) for t in (k, v))
        scores = torch.einsum("thd,shd->hts", q, k) / size ** 0.5 + mask
        h = h + linear(torch.einsum("hts,shd->thd", scores.softmax(-1), v).flatten(1), "attention.wo")
        x = norm(h, f"layers.{layer}.ffn_norm")
        h = h + linear(torch.nn.functional.silu(linear(x, "feed_forward.w1")) * linear(x, "feed_forward.w3"),
                       "feed_forward.w2")
    return (norm(h, "norm") @ head.T).numpy()
