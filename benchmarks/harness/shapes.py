"""Model shapes of the benchmarks, and how many floating-point operations a token costs."""

SHAPES = {  # layers, hidden, heads, vocabulary
    "tiny": (2, 64, 4, 512), "14m": (6, 128, 4, 50304), "31m": (6, 256, 8, 50304),
    "70m": (6, 512, 8, 50304), "160m": (12, 768, 12, 50304), "410m": (24, 1024, 16, 50304),
    "1b": (16, 2048, 8, 50304), "1.4b": (24, 2048, 16, 50304), "2.8b": (32, 2560, 32, 50304),
    "6.9b": (32, 4096, 32, 50432), "12b": (36, 5120, 40, 50688),
}


def num_parameters(shape):
    """(all, those of the blocks, the last norm and the LM head, which every token multiplies with)."""
    layers, hidden, _, vocab = SHAPES[shape]
    body = layers * (12 * hidden * hidden + 13 * hidden) + 2 * hidden
    return body + 2 * vocab * hidden, body + vocab * hidden


def train_flops_per_token(shape, seq):
    """6 N + 6 L h T, attention counted causal: the formula of llm.c (train_gpt2.cu, estimate_mfu)."""
    layers, hidden, _, _ = SHAPES[shape]
    return 6 * num_parameters(shape)[1] + 6 * layers * hidden * seq


def matmuls(shape, tokens):
    """name -> (m, n, k) of the products of one forward pass over that many tokens."""
    _, hidden, _, vocab = SHAPES[shape]
    sizes = {"qkv": (3 * hidden, hidden), "dense": (hidden, hidden), "h to 4h": (4 * hidden, hidden),
             "4h to h": (hidden, 4 * hidden), "head": (vocab, hidden)}
    return {name: (tokens, n, k) for name, (n, k) in sizes.items()}
