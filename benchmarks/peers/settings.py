"""The settings in which the peers of the train suite are tried, one after the other while there is time.

impl        transformers: GPTNeoXForCausalLM; plain: peers/neox_torch.py
precision   fp32; amp: bf16 autocast over fp32 weights; master: bf16 weights, fp32 masters and Adam state; bf16: Adam's state too
compile     none, default (torch.compile), blocks (each layer), another of its modes; +graph: the whole step as one CUDA graph
attention   sdpa (torch chooses), eager (products and softmax), cudnn, flash
loss        full: all logits at once; chunked: LM head and loss some rows at a time
malloc      tuned: glibc without mmap for each tensor, with huge pages (CPU); it stands for a preloaded jemalloc
matmul      torch.set_float32_matmul_precision; medium: oneDNN may compute fp32 products in bf16
"*" takes the value of the best setting so far of the same model.
"""
KEYS = ("impl", "precision", "compile", "attention", "loss", "malloc", "matmul")
HF, OWN = "transformers", "plain"

SETTINGS = {
    "cpu": [  # those that were the best on some processor first
        (HF, "amp", "none", "sdpa", "full", "tuned", "highest"),
        (HF, "amp", "default", "eager", "full", "tuned", "highest"),
        (HF, "fp32", "none", "sdpa", "full", "tuned", "highest"),
        (OWN, "amp", "default", "eager", "chunked", "tuned", "highest"),
        (OWN, "fp32", "default", "eager", "chunked", "tuned", "highest"),
        (OWN, "amp", "none", "sdpa", "chunked", "tuned", "highest"),
        (OWN, "fp32", "none", "sdpa", "chunked", "tuned", "highest"),
        (HF, "fp32", "default", "eager", "full", "tuned", "highest"),
        (OWN, "fp32", "default", "sdpa", "chunked", "tuned", "highest"),
        (OWN, "fp32", "default", "*", "*", "tuned", "medium"),
        (OWN, "amp", "default", "eager", "full", "tuned", "highest"),
        (OWN, "bf16", "none", "sdpa", "chunked", "tuned", "highest"),
        (HF, "bf16", "none", "sdpa", "full", "tuned", "highest"),
        (HF, "amp", "none", "sdpa", "full", "default", "highest"),
        (HF, "fp32", "none", "sdpa", "full", "default", "highest"),
    ],
    "cuda": [
        (OWN, "master", "default", "cudnn", "full", "default", "high"),
        (OWN, "master", "default+graph", "cudnn", "full", "default", "high"),
        (OWN, "master", "default", "*", "chunked", "default", "high"),
        (HF, "amp", "default", "sdpa", "full", "default", "high"),
        (OWN, "master", "default", "flash", "full", "default", "high"),
        (OWN, "master", "default+graph", "*", "chunked", "default", "high"),
        (HF, "master", "default", "*", "full", "default", "high"),
        (OWN, "amp", "default", "*", "*", "default", "high"),
        (OWN, "master", "max-autotune-no-cudagraphs", "*", "*", "default", "high"),
        (OWN, "master", "reduce-overhead", "*", "*", "default", "high"),
        (HF, "amp", "none", "sdpa", "full", "default", "high"),
    ],
}
# Compiling a layer once instead of all of them is what a GPU's minutes allow for deep models.
LARGE = [
    (OWN, "master", "blocks", "cudnn", "full", "default", "high"),
    (OWN, "master", "blocks", "flash", "full", "default", "high"),
    (OWN, "master", "blocks", "*", "chunked", "default", "high"),
    (OWN, "master", "default", "*", "*", "default", "high"),
    (HF, "master", "blocks", "*", "full", "default", "high"),
    (OWN, "bf16", "blocks", "*", "*", "default", "high"),
]
TINY = [  # each implementation once: a test of the machinery
    (HF, "amp", "none", "eager", "full", "tuned", "highest"),
    (OWN, "fp32", "none", "*", "chunked", "tuned", "highest"),
    (OWN, "master", "none", "sdpa", "chunked", "default", "highest"),
]
DEEP = {"410m", "1b", "1.4b", "2.8b", "6.9b", "12b"}

# Samples of a step, tried in turn until they fit.
MICROS = {"cpu": {}, "cuda": {
    "tiny": [4], "14m": [64, 32], "31m": [64, 32], "70m": [32, 16], "160m": [32, 16, 8],
    "410m": [16, 8], "1b": [16, 8, 4], "1.4b": [16, 8, 4], "2.8b": [8, 4, 2], "6.9b": [2, 1], "12b": [1]}}
ROWS = {"cpu": 512, "cuda": 8192}  # tokens of a chunk of the loss

ENVIRONMENT = {"cpu": {}, "cuda": {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}}
# What a careful user sets instead of preloading another allocator.
MALLOC = {"default": {}, "tuned": {
    "MALLOC_MMAP_THRESHOLD_": str(4 << 30), "MALLOC_TRIM_THRESHOLD_": str(64 << 30),
    "MALLOC_TOP_PAD_": str(256 << 20), "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}}


def has_bf16():
    """Whether the processor says that it has them; elsewhere than on x86 Linux, yes."""
    try:
        flags = next(line for line in open("/proc/cpuinfo") if line.startswith("flags")).split()
    except (OSError, StopIteration):
        return True
    return "avx512_bf16" in flags or "amx_bf16" in flags


def settings_of(device, shape, quick=False):
    if quick:
        return TINY
    if device == "cuda":
        return LARGE if shape in DEEP else SETTINGS[device]
    # Where the processor has no instructions for bf16, settings in fp32 are the fast ones.
    return SETTINGS[device] if has_bf16() else sorted(SETTINGS[device], key=lambda s: s[1] != "fp32")


def resolve(setting, best):
    """The setting as a dict, its stars filled in from `best` (a dict, or None)."""
    best = best or {"attention": "sdpa", "loss": "full"}
    return {key: best[key] if value == "*" else value for key, value in zip(KEYS, setting)}


def name_of(s, versions):
    """As a table shows it: transformers 5.2 amp, default, eager, full, tuned."""
    shown = [s["precision"], f"compile {s['compile']}", s["attention"], f"loss {s['loss']}"]
    shown += [f"malloc {s['malloc']}"] if s["malloc"] != "default" else []
    shown += [f"matmul {s['matmul']}"] if s["matmul"] == "medium" else []
    package = {HF: "transformers", OWN: "torch"}[s["impl"]]
    version = next((v for v in versions.split(", ") if v.startswith(package + " ")), package)
    return f"{'plain ' if s['impl'] == OWN else ''}{version}: {', '.join(shown)}"
