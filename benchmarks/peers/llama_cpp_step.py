"""A worker that generates greedily by llama.cpp (llama-cpp-python) with random weights of a Pythia shape, on a CPU.

It answers as generate_step.py does. A setting is WEIGHTS:llama.cpp; weights are matrices in bf16, fp16 or fp32, norms and biases are in
fp32, as llama.cpp's converter writes them. The cache is in fp16, its default.
"""
import os
import pathlib
import sys
import tempfile
import time

START = time.perf_counter()
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import gguf  # noqa: E402
import llama_cpp as llama  # noqa: E402
import numpy as np  # noqa: E402
from harness.process import measure_when_asked  # noqa: E402
from harness.shapes import SHAPES  # noqa: E402

CONTEXT, PROMPTS = 2048, 3  # of the prompts the best of so many
TYPES = {name: gguf.GGMLQuantizationType[kind] for name, kind in (("bf16", "BF16"), ("fp16", "F16"), ("fp32", "F32"))}


def write_model(path, shape, weights):
    """A GGUF file of the architecture gptneox without a vocabulary of texts."""
    layers, hidden, heads, vocab = SHAPES[shape]
    writer = gguf.GGUFWriter(path, "gptneox")
    for add, value in ((writer.add_context_length, CONTEXT), (writer.add_embedding_length, hidden), (writer.add_block_count, layers),
                       (writer.add_feed_forward_length, 4 * hidden), (writer.add_head_count, heads), (writer.add_vocab_size, vocab),
                       (writer.add_rope_dimension_count, hidden // heads // 4), (writer.add_layer_norm_eps, 1e-5),
                       (writer.add_parallel_residual, True), (writer.add_tokenizer_model, "none")):
        add(value)
    random = np.random.default_rng(1)

    def matrix(name, *sizes):
        values = 0.02 * random.standard_normal(sizes, dtype=np.float32)
        writer.add_tensor(name + ".weight", gguf.quants.quantize(values, TYPES[weights]), raw_dtype=TYPES[weights])

    def vector(name, size):
        writer.add_tensor(name, np.full(size, float(name.endswith("norm.weight")), dtype=np.float32))

    def norm(name):
        vector(name + ".weight", hidden)
        vector(name + ".bias", hidden)

    matrix("token_embd", vocab, hidden)
    matrix("output", vocab, hidden)
    norm("output_norm")
    for layer in (f"blk.{i}." for i in range(layers)):
        norm(layer + "attn_norm")
        norm(layer + "ffn_norm")
        for name, rows, columns in (("attn_qkv", 3 * hidden, hidden), ("attn_output", hidden, hidden), ("ffn_up", 4 * hidden, hidden),
                                    ("ffn_down", hidden, 4 * hidden)):
            matrix(layer + name, rows, columns)
            vector(layer + name + ".bias", rows)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class Generator:
    def __init__(self, s):
        self.s, self.vocab = s, SHAPES[s["shape"]][3]
        with tempfile.TemporaryDirectory(prefix="neox-benchmark-") as folder:
            path = os.path.join(folder, "model.gguf")
            write_model(path, s["shape"], s["setting"].split(":")[0])
            options = llama.llama_model_default_params()
            options.use_mmap = False
            self.model = llama.llama_model_load_from_file(path.encode(), options)
        options = llama.llama_context_default_params()
        places = s["prompt"] + s["tokens"] + 1
        options.n_ctx, options.n_batch, options.n_ubatch = s["batch"] * places, s["batch"] * s["prompt"], min(512, s["batch"] * s["prompt"])
        options.n_seq_max = s["batch"]
        options.n_threads = options.n_threads_batch = s["threads"] or len(os.sched_getaffinity(0))
        self.context = self.model and llama.llama_init_from_model(self.model, options)
        if not self.context:
            raise RuntimeError("llama.cpp made no model of this shape")
        self.batch = llama.llama_batch_init(options.n_batch, 0, 1)
        self.ids = np.random.default_rng(1).integers(0, self.vocab, (s["batch"], s["prompt"])).tolist()
        self.measure()

    def step(self, ids, position):
        """Reads some tokens of each sequence, which begin at that position; the likeliest next one of each."""
        batch, last = self.batch, []
        for sequence, tokens in enumerate(ids):
            for at, token in enumerate(tokens):
                i = sequence * len(tokens) + at
                batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0] = token, position + at, 1, sequence
                batch.logits[i] = at == len(tokens) - 1
            last.append(i)
        batch.n_tokens = i + 1
        status = llama.llama_decode(self.context, batch)
        if status != 0:
            raise RuntimeError(f"llama_decode ended with {status}")
        return [[int(np.argmax(np.ctypeslib.as_array(llama.llama_get_logits_ith(self.context, i), (self.vocab,))))] for i in last]

    def prompts(self):
        """The tokens behind the prompts, and the seconds that those took."""
        llama.llama_memory_clear(llama.llama_get_memory(self.context), False)
        start = time.perf_counter()
        return self.step(self.ids, 0), time.perf_counter() - start

    def measure(self):
        s = self.s
        best = min(self.prompts()[1] for _ in range(PROMPTS - 1))
        ids, last = self.prompts()
        start = time.perf_counter()
        for number in range(s["tokens"]):
            ids = self.step(ids, s["prompt"] + number)
        seconds = time.perf_counter() - start
        return {"decode": s["batch"] * s["tokens"] / seconds, "prefill": s["batch"] * s["prompt"] / min(best, last)}


if __name__ == "__main__":
    measure_when_asked(Generator, START)
