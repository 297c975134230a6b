"""GPT-NeoX in plain PyTorch, as somebody writes it who knows torch.compile: the peer that is hard to beat.

Fused QKV, scaled_dot_product_attention, parallel residual; the loss over all logits at once or in chunks that never hold them all.
`selftest()` compares logits, loss and gradients with transformers' GPTNeoXForCausalLM on the same weights.
"""
import contextlib
import pathlib
import sys

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from harness.shapes import SHAPES  # noqa: E402


def attention_by(name):
    """A context in which scaled_dot_product_attention uses only this kernel; sdpa: torch chooses."""
    if name in ("sdpa", "eager"):
        return contextlib.nullcontext()
    from torch.nn.attention import SDPBackend, sdpa_kernel
    return sdpa_kernel({"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}[name])


def rotate(x, cos, sin):
    """The first channels of each head turned by position. x [B, H, T, D], cos [T, rotary / 2]."""
    half = cos.shape[-1]
    a, b, rest = x.split([half, half, x.shape[-1] - 2 * half], -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin, rest), -1)


def plain_attention(q, k, v):
    """Scores, mask, softmax, values as four operations, which Inductor fuses between two products."""
    T = q.shape[-2]
    scores = (q @ k.transpose(-1, -2)) * q.shape[-1] ** -0.5
    mask = torch.ones(T, T, dtype=torch.bool, device=q.device).tril()
    weights = scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(-1, dtype=torch.float32)
    return weights.to(v.dtype) @ v


class Block(nn.Module):
    def __init__(self, hidden, heads, attention):
        super().__init__()
        self.heads, self.attention = heads, attention
        self.ln1, self.ln2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x, cos, sin):
        B, T, hidden = x.shape
        qkv = self.qkv(self.ln1(x)).view(B, T, self.heads, 3, hidden // self.heads)
        q, k, v = qkv.permute(3, 0, 2, 1, 4).unbind(0)  # each [B, H, T, D]
        q, k = rotate(q, cos, sin).to(v.dtype), rotate(k, cos, sin).to(v.dtype)
        y = (plain_attention(q, k, v) if self.attention == "eager"
             else F.scaled_dot_product_attention(q, k, v, is_causal=True))
        y = self.out(y.transpose(1, 2).reshape(B, T, hidden))
        return x + y + self.down(F.gelu(self.up(self.ln2(x)), approximate="tanh"))


class NeoX(nn.Module):
    def __init__(self, shape, seq, attention="sdpa", residual=None):
        super().__init__()
        layers, hidden, heads, vocab = SHAPES[shape]
        self.residual = residual  # dtype of the residual stream; None: the embedding's
        self.embed, self.head = nn.Embedding(vocab, hidden), nn.Linear(hidden, vocab, bias=False)
        self.blocks = nn.ModuleList(Block(hidden, heads, attention) for _ in range(layers))
        self.norm = nn.LayerNorm(hidden)
        rotary = hidden // heads // 4
        turn = 1.0 / 10000 ** (torch.arange(0, rotary, 2, dtype=torch.float32) / rotary)
        angle = torch.outer(torch.arange(seq, dtype=torch.float32), turn)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    @torch.no_grad()
    def draw(self):
        torch.manual_seed(0)
        for name, p in self.named_parameters():
            if p.dim() > 1:
                p.normal_(0, 0.02)
            else:
                p.fill_(1.0 if name.endswith("weight") else 0.0)

    def trunk(self, ids):
        x = self.embed(ids)
        x = x if self.residual is None else x.to(self.residual)
        cos, sin = (t[:ids.shape[1]].to(x.dtype) for t in (self.cos, self.sin))
        for block in self.blocks:
            x = block(x, cos, sin)
        return self.norm(x)


def full_loss(hidden, weight, targets):
    logits = F.linear(hidden, weight)
    return F.cross_entropy(logits.view(-1, weight.shape[0]).float(), targets.reshape(-1))


def chunk_loss(logits, targets, scale):
    """Of one chunk: the sum of the losses, and d loss / d logits times scale."""
    x = logits.float()
    total = x.logsumexp(-1, keepdim=True)
    at = x.gather(-1, targets[:, None])
    onehot = torch.arange(x.shape[-1], device=x.device) == targets[:, None]
    return (total - at).sum(), (((x - total).exp() - onehot.float()) * scale).to(logits.dtype)


class ChunkedLoss(torch.autograd.Function):
    """LM head and mean cross entropy, `rows` tokens at a time; gradients are made in the forward pass."""

    @staticmethod
    def forward(ctx, hidden, weight, targets, rows, kernel):
        shape, device = hidden.shape, hidden.device.type
        h, targets = hidden.reshape(-1, shape[-1]), targets.reshape(-1)
        if torch.is_autocast_enabled(device):
            h = h.to(torch.get_autocast_dtype(device))
        w, loss = weight.to(h.dtype), torch.zeros((), device=h.device)
        dh, dw = torch.empty_like(h), torch.zeros_like(weight, dtype=torch.float32)
        with torch.autocast(device, enabled=False):
            for a in range(0, h.shape[0], rows):
                x = h[a:a + rows]
                part, dlogits = kernel(x @ w.t(), targets[a:a + rows], 1.0 / h.shape[0])
                loss += part
                torch.mm(dlogits, w, out=dh[a:a + rows])
                dw += dlogits.t() @ x
        ctx.save_for_backward(dh.view(shape), dw.to(weight.dtype))
        return loss / h.shape[0]

    @staticmethod
    def backward(ctx, grad):
        dh, dw = ctx.saved_tensors
        return dh * grad, dw * grad, None, None, None


def transformers_model(shape, seq, attention):
    """transformers' model of the same shape, on the default device."""
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM
    layers, hidden, heads, vocab = SHAPES[shape]
    config = GPTNeoXConfig(
        vocab_size=vocab, hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads,
        intermediate_size=4 * hidden, rotary_pct=0.25, max_position_embeddings=max(seq, 2048),
        use_parallel_residual=True, hidden_act="gelu_pytorch_tanh", tie_word_embeddings=False,
        attention_dropout=0.0, hidden_dropout=0.0, bos_token_id=0, eos_token_id=0)
    config._attn_implementation = "eager" if attention == "eager" else "sdpa"
    return GPTNeoXForCausalLM(config)


@torch.no_grad()
def copy_weights(mine, theirs):
    pairs = [(mine.embed, theirs.get_input_embeddings()), (mine.head, theirs.get_output_embeddings()),
             (mine.norm, theirs.gpt_neox.final_layer_norm)]
    for a, b in zip(mine.blocks, theirs.gpt_neox.layers):
        pairs += [(a.ln1, b.input_layernorm), (a.ln2, b.post_attention_layernorm),
                  (a.qkv, b.attention.query_key_value), (a.out, b.attention.dense),
                  (a.up, b.mlp.dense_h_to_4h), (a.down, b.mlp.dense_4h_to_h)]
    for a, b in pairs:
        for name, p in a.named_parameters():
            p.copy_(getattr(b, name))


def selftest(shape="tiny", attention="sdpa"):
    """Largest difference to transformers over loss and gradients, relative to the largest value of each."""
    theirs, mine = transformers_model(shape, 64, "eager"), NeoX(shape, 64, attention)
    torch.manual_seed(1)
    for p in theirs.parameters():  # norms and biases too, which start as ones and zeros
        nn.init.normal_(p, 0.3 if p.dim() == 1 else 0.0, 0.08)
    copy_weights(mine, theirs)
    ids = torch.randint(0, SHAPES[shape][3], (2, 65))
    theirs(ids, labels=ids, use_cache=False).loss.backward()
    pairs = [(mine.embed.weight, theirs.get_input_embeddings().weight),
             (mine.blocks[0].qkv.weight, theirs.gpt_neox.layers[0].attention.query_key_value.weight),
             (mine.head.weight, theirs.get_output_embeddings().weight)]
    worst = 0.0
    for loss in (lambda h, y: full_loss(h, mine.head.weight, y),
                 lambda h, y: ChunkedLoss.apply(h, mine.head.weight, y, 37, chunk_loss)):
        mine.zero_grad()
        loss(mine.trunk(ids[:, :-1]), ids[:, 1:]).backward()
        for a, b in pairs:
            worst = max(worst, ((a.grad - b.grad).abs().max() / b.grad.abs().max()).item())
    return worst
