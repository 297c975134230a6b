"""The machine a benchmark runs on: its name, its processors, the versions of what is compared, published peaks."""
import datetime
import hashlib
import os
import pathlib
import platform
import subprocess

# Dense bf16 FLOP/s by the makers' data sheets, for a name that contains the key. First match counts.
PUBLISHED_PEAKS = {"H200 NVL": 835e12, "H100 NVL": 835e12, "H100 PCIe": 756e12, "H200": 989e12, "H100": 989e12,
                   "A100": 312e12, "GB200": 2500e12, "B200": 2250e12}
SHOWN_FLAGS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16", "asimd", "bf16", "sve")


def said(*command):
    """First line of what a command prints; empty where there is no such command."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                              timeout=120)
        return (done.stdout.strip().splitlines() or [""])[0] if done.returncode == 0 else ""
    except (OSError, subprocess.TimeoutExpired):
        return ""


def cpu_name():
    found = {}
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            key, _, value = line.partition(":")
            found.setdefault(key.strip(), value.strip())
    flags = set((found.get("flags") or found.get("Features") or "").split())
    shown = " ".join(flag for flag in SHOWN_FLAGS if flag in flags)
    return f"{found.get('model name', platform.machine())} [{shown}]"


def said_of_gpu(query):
    """Of the GPU that CUDA counts first; empty where programs see none."""
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "all").split(",")[0].strip()
    if first in ("", "-1", "NoDevFiles"):
        return ""
    chosen = [] if first == "all" or first.startswith("MIG-") else ["-i", first]  # nvidia-smi cannot choose a part of a GPU
    return said("nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits", *chosen)


def gpu_name():
    return said_of_gpu("name")


def memory_bytes():
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def gpu_memory_bytes():
    mib = said_of_gpu("memory.total")
    return int(mib) << 20 if mib.isdigit() else 0


def published_peak(device):
    """FLOP/s, or None where it is not known."""
    name = gpu_name() if device == "cuda" else ""
    return next((peak for key, peak in PUBLISHED_PEAKS.items() if key in name), None)


def facts(device):
    """What a reader of figures wants to know of the machine."""
    return {"date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
            "cpu": cpu_name(), "cpus": len(os.sched_getaffinity(0)),
            "memory_gb": round(memory_bytes() / 1e9, 1), "load": round(os.getloadavg()[0], 2),
            "gpu": gpu_name() if device == "cuda" else "", "kernel": platform.release(),
            "system": platform.freedesktop_os_release().get("PRETTY_NAME", "")}


VERSIONS = """
import importlib.metadata as m
def of(name):
    try: return f"{name} {m.version(name)}"
    except m.PackageNotFoundError: return ""
print(", ".join(filter(None, map(of, %r))))
"""
PACKAGES = ["torch", "transformers", "tokenizers", "tiktoken", "numpy", "safetensors", "llama_cpp_python"]


def build_hash(build):
    """Of all programs of a build, so that figures of different ones are told apart; empty where there are none."""
    folders = [pathlib.Path(build, name) for name in ("bin", "libexec", "benchmarks")]
    found = [p for folder in folders if folder.is_dir() for p in sorted(folder.iterdir()) if p.is_file() and os.access(p, os.X_OK)]
    whole = hashlib.sha256()
    for program in found:
        whole.update(program.read_bytes())
    return whole.hexdigest()[:12] if found else ""


def versions(python, build):
    """Of the peers' packages in that Python, and of ours."""
    return {"python": said(python, "-c", "import platform; print(platform.python_version())"),
            "packages": said(python, "-c", VERSIONS % PACKAGES), "build": build_hash(build),
            "ours": said(os.path.join(build, "bin", "neox-train"), "--version")}
