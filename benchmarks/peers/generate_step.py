"""A worker that generates greedily by transformers' GPTNeoXForCausalLM with random weights, in one setting.

The first line on stdin is {"shape", "batch", "setting", "device", "threads" (0: all), "prompt", "tokens"}; the answer is {"start_s"}
once it is compiled and warm, or {"error"}. Each further line measures once: {"decode", "prefill"} in tokens/s. A setting is
WEIGHTS:CACHE, where CACHE is dynamic, static, or static+MODE of torch.compile.
"""
import os
import pathlib
import sys
import time

START = time.perf_counter()
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import torch  # noqa: E402
import transformers  # noqa: E402
from harness.process import measure_when_asked  # noqa: E402
from harness.shapes import SHAPES  # noqa: E402
from transformers.generation.configuration_utils import CompileConfig  # noqa: E402

SHORT = 2  # tokens; what a longer text takes beyond it is decoding alone
PROMPTS = 3  # the best of so many


class Generator:
    def __init__(self, s):
        self.s, self.cuda = s, s["device"] == "cuda"
        torch.set_num_threads(s["threads"] or len(os.sched_getaffinity(0)))
        weights, cache = s["setting"].split(":")
        layers, hidden, heads, vocab = SHAPES[s["shape"]]
        config = transformers.GPTNeoXConfig(
            vocab_size=vocab, hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads, intermediate_size=4 * hidden,
            rotary_pct=0.25, max_position_embeddings=2048, use_parallel_residual=True, hidden_act="gelu", tie_word_embeddings=False)
        dtype = {"bf16": torch.bfloat16, "fp32": torch.float32}[weights]
        with torch.device(s["device"]):
            model = transformers.GPTNeoXForCausalLM._from_config(config, dtype=dtype, attn_implementation="sdpa")
        self.model = model.eval()
        ids = torch.randint(0, vocab, (s["batch"], s["prompt"]), generator=torch.Generator().manual_seed(1))
        self.ids = ids.to(s["device"])
        self.options = dict(do_sample=False, pad_token_id=0, eos_token_id=None, attention_mask=torch.ones_like(self.ids))
        if cache != "dynamic":
            self.options["cache_implementation"] = "static"
        _, _, mode = cache.partition("+")
        if mode:
            compiling = CompileConfig(mode=mode, fullgraph=False, dynamic=False)
            compiling._compile_all_devices = True
            self.options["compile_config"] = compiling
        elif cache == "static":
            self.options["disable_compile"] = True
        for tokens in (SHORT + s["tokens"], SHORT, 0):  # the longest first: a static cache keeps its size, and is compiled once
            for _ in range(3 if self.cuda else 1):      # what is recorded as CUDA graphs runs as it is at first
                self.seconds(tokens)

    @torch.no_grad()
    def seconds(self, tokens):
        """Of so many tokens behind the prompts; of the prompts alone for 0."""
        self.settle()
        start = time.perf_counter()
        if tokens == 0:
            self.model(input_ids=self.ids, use_cache=True, logits_to_keep=1)
        else:
            self.model.generate(self.ids, max_new_tokens=tokens, min_new_tokens=tokens, **self.options)
        self.settle()
        return time.perf_counter() - start

    def settle(self):
        if self.cuda:
            torch.cuda.synchronize()

    def measure(self):
        s, texts = self.s, 3 if self.cuda else 1
        long, short, prompt = (min(self.seconds(n) for _ in range(times))
                               for n, times in ((SHORT + s["tokens"], texts), (SHORT, texts), (0, PROMPTS)))
        return {"decode": s["batch"] * s["tokens"] / (long - short), "prefill": s["batch"] * s["prompt"] / prompt}


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    measure_when_asked(Generator, START)
