"""The suites of benchmarks/run, as data: which programs print their lines, and with what arguments.

Words in braces are filled in by the runner:
  {python} of the peers  {build} and of it {bin}, {tools}: benchmark programs  {here} this directory  {out} the results
  {folder} on the disk to measure  {device} {threads} {rounds} {budget} {versions}  {corpus} JSON lines  {tokenizer}
"""
from dataclasses import dataclass

CPU_SHAPES, GPU_SHAPES, LARGE_SHAPES = "14m,70m,160m", "70m,160m,410m,1.4b", "2.8b,6.9b"


@dataclass(frozen=True)
class Command:
    argv: tuple
    quick: tuple = ()         # options of --quick, and of --large
    large: tuple = ()
    devices: tuple = ("cpu", "cuda")
    threads: str = "each"     # each: once for each number of --threads; all: {threads} is the list; none: it has none
    peers: tuple = ()         # packages it needs to compare with peers
    alone: tuple = ()         # options without them; it measures nothing then where there are none


@dataclass(frozen=True)
class Suite:
    commands: tuple
    what: str                 # what is compared with what
    shapes: dict = None       # device -> whose matrix products are the ceilings
    disk: bool = False        # measure the disk too


def with_options(argv, more):
    """The arguments with more options; one that is there already gets the new value."""
    argv, more = list(argv), list(more)
    while more:
        option = more.pop(0)
        value = [more.pop(0)] if more and not more[0].startswith("--") else []
        if option in argv:
            at = argv.index(option)
            argv[at + 1:at + 1 + len(value)] = value
        else:
            argv += [option, *value]
    return argv


def python(script, *arguments, **more):
    return Command(("{python}", "{here}/" + script, *arguments), **more)


CPU_KERNELS = ("--rounds", "{rounds}", "--dtype", "fp32", "--shapes", "70m,410m", "--tokens", "2048")
GPU_KERNELS = ("--rounds", "{rounds}", "--dtype", "bf16", "--shapes", "410m,1.4b", "--tokens", "16384", "--device", "cuda")

MODELS, ALONE = ("torch", "transformers"), ("--no-peers",)

SUITES = {
    "train": Suite((
        python("train.py", "--shapes", "{shapes}", "--device", "{device}", "--threads", "{threads}", "--rounds", "{rounds}",
               "--budget", "{budget}", "--program", "{bin}/neox-train", "--python", "{python}", "--versions", "{versions}",
               "--lines", "{out}/lines.jsonl", "--cache", "{out}/compiled", quick=("--quick", "--seq", "64"), peers=MODELS, alone=ALONE),),
        "tokens/s of neox-train, and of the best setting of transformers and of a plain PyTorch GPT-NeoX",
        {"cpu": CPU_SHAPES, "cuda": GPU_SHAPES}),
    "kernels": Suite((
        Command(("{tools}/kernels", *CPU_KERNELS), quick=("--shapes", "70m"), devices=("cpu",)),
        python("kernels.py", *CPU_KERNELS, quick=("--shapes", "70m"), devices=("cpu",), peers=("torch",)),
        Command(("{tools}/kernels", *GPU_KERNELS), quick=("--shapes", "70m"), devices=("cuda",), threads="none"),
        python("kernels.py", *GPU_KERNELS, quick=("--shapes", "70m"), devices=("cuda",), threads="none", peers=("torch",))),
        "fused operations, the same from ATen's parts and by torch.compile, and the rates of memory and products"),
    "generate": Suite((
        python("generate.py", "--shapes", "{shapes}", "--device", "{device}", "--threads", "{threads}", "--rounds", "{rounds}",
               "--budget", "{budget}", "--program", "{tools}/generate_ours", "--python", "{python}", "--versions", "{versions}",
               "--cache", "{out}/compiled", quick=("--settings", "bf16:dynamic", "--tokens", "8", "--prompt", "16"), peers=MODELS,
               alone=ALONE),),
        "tokens/s of our generation, of transformers' generate, and on a CPU of llama.cpp", {"cpu": "160m,410m", "cuda": "410m,1.4b"}),
    "checkpoint": Suite((
        python("checkpoint.py", "--folder", "{folder}", "--rounds", "{rounds}", "--build", "{build}",
               quick=("--shape", "14m"), large=("--shape", "1.4b"), devices=("cpu",), threads="none", peers=("torch",), alone=ALONE),
        python("checkpoint.py", "--device", "cuda", "--shape", "1.4b", "--skip", "raw,ours,torch,dcp", "--folder", "{folder}", "--rounds",
               "{rounds}", "--build", "{build}", quick=("--shape", "14m"), devices=("cuda",), threads="none", peers=("torch",),
               alone=ALONE)),
        "writing, stalling for and reading a training state; torch.save, torch.distributed.checkpoint", disk=True),
    "collectives": Suite((
        Command(("mpirun", "--allow-run-as-root", "--bind-to", "none", "-n", "2", "{tools}/collectives", "--rounds", "{rounds}"),
                quick=("--least", "4", "--most", "64"), devices=("cpu",), threads="none"),),
        "bus bandwidth of the back ends between processes and threads, and of MPI itself"),
    "tokenizer": Suite((
        python("encode.py", "{tokenizer}", "{corpus}", "--rounds", "{rounds}", "--threads", "{threads}", "--program",
               "{tools}/encode", quick=("--mb", "1", "--peer-mb", "0.2"), threads="all", peers=("tokenizers", "tiktoken"), alone=ALONE),
        python("train_bpe.py", "{corpus}", "--rounds", "{rounds}", "--threads", "{threads}", "--program",
               "{build}/tests/tokenizer_tool", quick=("--entries", "1000"), peers=("tokenizers",), alone=ALONE)),
        "MB/s of encoding and seconds of training a BPE; tokenizers, tiktoken made exact"),
    "prepare": Suite((
        python("prepare.py", "--corpus", "{corpus}", "--tokenizer", "{tokenizer}", "--rounds", "{rounds}", "--workers",
               "{threads}", "--program", "{bin}/neox-prepare-data", quick=("--mb", "0.2", "--copies", "1"), threads="all",
               peers=("tokenizers", "numpy"), alone=ALONE),),
        "MB/s from JSON lines to .bin/.idx; the Python tools of GPT-NeoX and Megatron-LM, imitated"),
    "convert": Suite((
        python("convert.py", "--bin", "{bin}", "--folder", "{folder}", "--rounds", "{rounds}",
               quick=("--shape", "160m"), threads="none"),),
        "GB/s from Hugging Face's files to a checkpoint and back; cp", disk=True),
    "startup": Suite((
        python("startup.py", "--bin", "{bin}", "--device", "{device}", "--rounds", "{rounds}", "--python", "{python}",
               "--versions", "{versions}", quick=("--quick",), threads="none", peers=MODELS, alone=("--versions", "")),),
        "seconds to --help and to the first forward, sizes of the programs; importing transformers"),
}
