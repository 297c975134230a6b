"""Processes of a benchmark: bound to processors, cut off at a deadline, talked to in JSON lines.

A child leads a session of its own, so that it can be ended with all it started, and ends where its parent does."""
import contextlib
import ctypes
import glob
import json
import os
import re
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time

POOLS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS")
PR_SET_PDEATHSIG = 1
# What launchers tell their ranks. A benchmark is one process, also in a job of several tasks; mpirun sets its own.
RANKS = re.compile(r"SLURM_|PMI|OMPI_|TORCHELASTIC_|NEOX_(RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_SIZE|MASTER)$|(LOCAL_)?(RANK|WORLD_SIZE)$")
TOO_LONG, NO_TIME = "took longer than it may", "no time left"
GRACE = 5  # seconds in which a process that is ended may remove its files


def on_cpus(threads):
    """What to do in a child before it starts, and its environment: the last so many processors; 0: all."""
    cpus = sorted(os.sched_getaffinity(0))[-threads:] if threads else sorted(os.sched_getaffinity(0))
    environment = {key: value for key, value in os.environ.items() if not RANKS.match(key)}
    environment.update(PYTHONUNBUFFERED="1", HF_HUB_OFFLINE="1")
    if threads:
        environment.update({name: str(threads) for name in POOLS})
    return lambda: (os.sched_setaffinity(0, cpus), end_with_parent()), environment


def end_with_parent():
    """The calling process is ended when its parent is, and by SIGTERM as by an error: with its `finally` parts."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def end(process):
    """Ends a process that leads a session of its own, with all it has started."""
    for kind, seconds in ((signal.SIGTERM, GRACE), (signal.SIGKILL, None)):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, kind)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(seconds)


@contextlib.contextmanager
def own_folder(parent, name):
    """A folder while it is needed. Removes those first that processes of this machine left which were killed."""
    start = os.path.join(parent, f"{name}-{os.uname().nodename}-")
    folder = f"{start}{os.getpid()}"
    for left in glob.glob(glob.escape(start) + "*"):
        if left == folder or not os.path.exists(f"/proc/{left.removeprefix(start)}"):
            shutil.rmtree(left, ignore_errors=True)
    os.makedirs(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def last_words(file):
    """The end of what a process wrote, in one line."""
    size = os.fstat(file.fileno()).st_size
    return " ".join(os.pread(file.fileno(), 2000, max(0, size - 2000)).decode(errors="replace").split())[-300:]


class Answers:
    """A worker's side: `say` answers; an error within `with` is the last answer, and the parent goes on with other settings."""

    def __init__(self):
        self.to = os.fdopen(os.dup(1), "w")  # a copy of its own: compilers may print on stdout
        os.dup2(2, 1)

    def say(self, answer):
        print(json.dumps(answer), file=self.to, flush=True)

    def __enter__(self):
        return self.say

    def __exit__(self, kind, error, trace):
        if not isinstance(error, Exception):
            return False
        self.say({"error": f"{kind.__name__}: {' '.join(str(error).split())}"[:300]})
        return True


def measure_when_asked(make, start):
    """A worker that measures again and again: its first question is what to make, its first answer how long that took from `start`."""
    with Answers() as say:
        made = make(json.loads(sys.stdin.readline()))
        say({"start_s": round(time.perf_counter() - start, 1)})
        for _ in sys.stdin:
            say(made.measure())


class Worker:
    """A child that answers each JSON line with one JSON line; where it ends instead, the end of its stderr says why."""

    def __init__(self, command, threads, more_environment=None):
        pin, environment = on_cpus(threads)
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0,
                                        stderr=self.log, preexec_fn=pin, start_new_session=True,
                                        env={**environment, **(more_environment or {})})
        self.buffer = b""

    def ask(self, question):
        try:
            self.process.stdin.write(json.dumps(question).encode() + b"\n")
        except BrokenPipeError:
            pass  # answer() says so

    def answer(self, until):
        """The next answer; {"error": ...} where it comes not before time.monotonic() is `until`."""
        while b"\n" not in self.buffer:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                return {"error": TOO_LONG}
            piece = os.read(self.process.stdout.fileno(), 65536)
            if not piece:
                return {"error": f"ended with {self.process.wait()}: {last_words(self.log)}"}
            self.buffer += piece
        line, _, self.buffer = self.buffer.partition(b"\n")
        return json.loads(line)

    def end(self):
        end(self.process)
        self.process.stdin.close()
        self.process.stdout.close()
        self.log.close()


def run(command, threads=0, until=None, more_environment=None):
    """Runs a command to its end: (status, or None past the time.monotonic() `until`; output; errors; CPU seconds)."""
    pin, environment = on_cpus(threads)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               preexec_fn=pin, start_new_session=True,
                               env={**environment, **(more_environment or {})})
    try:
        out, errors = process.communicate(timeout=until and max(0.1, until - time.monotonic()))
        status = process.returncode
    except subprocess.TimeoutExpired:
        end(process)
        out, errors = process.communicate()
        status = None
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return status, out, errors, used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
