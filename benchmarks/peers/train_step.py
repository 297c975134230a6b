"""A worker that trains one peer in one setting: forward, backward, clipping to 1.0, fused AdamW.

The first line on stdin is the setting (the keys of peers/settings.py, and shape, seq, micros, device, rows, backend); the answer is
{"micro", "start_s", "held_bytes", ...} once a first step was made with the first micro-batch of `micros` that fits, or {"error"}.
Each further line {"steps", "seconds"} runs at least so many steps and about so long: {"tokens_s", "micro", "peak_bytes", "loss", ...}.
"""
import gc
import json
import os
import pathlib
import resource
import statistics
import sys
import time

START = time.perf_counter()
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import torch  # noqa: E402
from harness.process import Answers  # noqa: E402
from harness.shapes import SHAPES  # noqa: E402
from peers import neox_torch as peer  # noqa: E402


class Master:
    """bf16 weights with fp32 masters, and fused AdamW over the masters, clipped through its grad_scale.

    Group after group, so that the fp32 gradients of one group exist at a time."""

    def __init__(self, weights, masters, capturable, group=1 << 30):
        self.weights, self.groups, part, count = weights, [], [], 0
        for weight, master in zip(weights, masters):
            if part and count + master.numel() > group:
                self.groups.append(part)
                part, count = [], 0
            part.append((weight, master))
            count += master.numel()
        self.groups.append(part)
        self.groups = [(*map(list, zip(*g)), adamw([m for _, m in g], capturable)) for g in self.groups]

    @torch.no_grad()
    def step(self):
        norms = torch._foreach_norm([w.grad for w in self.weights], 2, torch.float32)
        scale = torch.linalg.vector_norm(torch.stack(norms)).clamp(min=1.0)
        for weights, masters, optimizer in self.groups:
            grads = [torch.empty_like(m) for m in masters]
            torch._foreach_copy_(grads, [w.grad for w in weights])
            for master, grad in zip(masters, grads):
                master.grad = grad
            optimizer.grad_scale = scale
            optimizer.step()
            for master in masters:
                master.grad = None
            torch._foreach_copy_(weights, masters)


class Clipped:
    """AdamW over the weights themselves, after clip_grad_norm_."""

    def __init__(self, weights, capturable):
        self.weights, self.optimizer = weights, adamw(weights, capturable)

    def step(self):
        torch.nn.utils.clip_grad_norm_(self.weights, 1.0, foreach=True)
        self.optimizer.step()


def adamw(weights, capturable):
    return torch.optim.AdamW(weights, lr=1e-4, betas=(0.9, 0.95), weight_decay=0.01, fused=True,
                             capturable=capturable)


class Feed:
    """Random tokens and their successors; on a GPU from pinned memory, copied one step ahead."""

    def __init__(self, device, vocab, micro, seq, count=8):
        x = torch.randint(0, vocab, (count, micro, seq + 1), generator=torch.Generator().manual_seed(1))
        self.batches = torch.stack((x[..., :-1], x[..., 1:]), 1).contiguous()
        self.at, self.count, self.device, self.cuda = 0, count, device, device == "cuda"
        if self.cuda:
            self.batches, self.stream = self.batches.pin_memory(), torch.cuda.Stream()
            self.fetch()

    def fetch(self):
        with torch.cuda.stream(self.stream):
            self.ahead = self.batches[self.at % self.count].to(self.device, non_blocking=True)

    def next(self):
        if not self.cuda:
            self.at += 1
            return tuple(self.batches[self.at % self.count])
        out, now = self.ahead, torch.cuda.current_stream()
        now.wait_stream(self.stream)
        out.record_stream(now)
        self.at += 1
        self.fetch()
        return tuple(out)


def build(s):
    """(model, weights, optimizer) of a setting."""
    amp, graph = s["precision"] == "amp", s["compile"].endswith("+graph")
    with torch.device(s["device"]):
        if s["impl"] == "transformers":
            torch.manual_seed(0)
            model = peer.transformers_model(s["shape"], s["seq"], s["attention"])
        else:
            model = peer.NeoX(s["shape"], s["seq"], s["attention"], torch.bfloat16 if amp else None)
            model.draw()
    model.train()
    weights = list(model.parameters())
    masters = [p.detach() for p in weights] if s["precision"] == "master" else None
    if s["precision"] in ("master", "bf16"):
        model.to(torch.bfloat16)  # gives each parameter new storage; the masters keep the old one
        weights = list(model.parameters())
    return model, weights, Master(weights, masters, graph) if masters else Clipped(weights, graph)


def loss_function(s, model):
    """(inputs, targets) -> loss, compiled as the setting says."""
    mode = s["compile"].removesuffix("+graph")
    options = {"dynamic": False, "backend": s["backend"]}
    if mode not in ("none", "default", "blocks"):
        options["mode"] = mode
    compiled = (lambda f: f) if mode == "none" else (lambda f: torch.compile(f, **options))
    theirs = s["impl"] == "transformers"
    head = (model.get_output_embeddings() if theirs else model.head).weight
    trunk = ((lambda x: model.gpt_neox(x, use_cache=False).last_hidden_state) if theirs else model.trunk)
    if mode == "blocks":  # one layer is compiled, and reused
        for block in model.gpt_neox.layers if theirs else model.blocks:
            block.compile(**options)
    whole = (lambda f: f) if mode == "blocks" else compiled
    if s["loss"] == "chunked":
        f, kernel = whole(trunk), compiled(peer.chunk_loss)
        return lambda x, y: peer.ChunkedLoss.apply(f(x), head, y, s["rows"], kernel)
    if theirs:
        f = whole(model)
        return lambda x, y: f(input_ids=x, labels=x, use_cache=False).loss
    if mode == "blocks":
        f = compiled(peer.full_loss)
        return lambda x, y: f(trunk(x), head, y)
    return compiled(lambda x, y: peer.full_loss(trunk(x), head, y))


class Trainer:
    """One setting at one micro-batch, after its first step."""

    def __init__(self, s, micro):
        self.s, self.micro, self.cuda = s, micro, s["device"] == "cuda"
        model, self.weights, self.optimizer = build(s)
        self.loss_of = loss_function(s, model)
        self.feed = Feed(s["device"], SHAPES[s["shape"]][3], micro, s["seq"])
        self.go = lambda: self.step(*self.feed.next())
        with peer.attention_by(s["attention"]):
            if s["compile"].endswith("+graph"):
                self.capture()
            self.go().item()

    def step(self, x, y):
        for p in self.weights:
            p.grad = None
        with torch.autocast(self.s["device"], dtype=torch.bfloat16, enabled=self.s["precision"] == "amp"):
            loss = self.loss_of(x, y)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def capture(self):
        """The whole step, optimizer included, as one CUDA graph."""
        still = [t.clone() for t in self.feed.next()]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(4):
                self.step(*still)
        torch.cuda.current_stream().wait_stream(side)
        for p in self.weights:
            p.grad = None
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=side):
            out = self.step(*still)

        def replay():
            for mine, new in zip(still, self.feed.next()):
                mine.copy_(new)
            graph.replay()
            return out
        self.go = replay

    def synchronize(self):
        if self.cuda:
            torch.cuda.synchronize()

    def run(self, steps, seconds):
        """Wall time of each step on the CPU; on a GPU of runs of steps, so that the host may run ahead."""
        with peer.attention_by(self.s["attention"]):
            self.go()
            self.synchronize()
            times, group = [], 4 if self.cuda else 1
            begin, begin_cpu = time.perf_counter(), time.process_time()
            while len(times) * group < steps or time.perf_counter() - begin < seconds:
                at = time.perf_counter()
                for _ in range(group):
                    loss = self.go()
                self.synchronize()
                times.append((time.perf_counter() - at) / group)
        tokens, steps = self.micro * self.s["seq"], len(times) * group
        cpu = (time.process_time() - begin_cpu) / torch.get_num_threads()
        return {"tokens_s": tokens / statistics.median(times), "tokens_cpu_s": steps * tokens / cpu, "steps": steps,
                "loss": loss.item(), "peak_bytes": self.peak()}

    def peak(self):
        if self.cuda:
            return torch.cuda.max_memory_reserved()
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    def release(self):
        """Gives back what no tensor uses; returns what stays."""
        if not self.cuda:
            return self.peak()
        gc.collect()
        torch.cuda.empty_cache()
        return torch.cuda.memory_reserved()


def out_of_memory(error):
    text = str(error)
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or "ALLOC_FAILED" in text


def start(s):
    """A trainer of the first micro-batch that fits."""
    for micro in s["micros"]:
        try:
            return Trainer(s, micro)
        except Exception as error:
            if micro == s["micros"][-1] or not out_of_memory(error):
                raise
        gc.collect()
        torch._dynamo.reset()
        torch.cuda.empty_cache()


def main():
    answers = Answers()
    s = json.loads(sys.stdin.readline())
    if s["device"] == "cpu":
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", len(os.sched_getaffinity(0)))))
    torch.set_float32_matmul_precision(s["matmul"])
    with answers as say:
        trainer = start(s)
        say({"micro": trainer.micro, "start_s": time.perf_counter() - START, "held_bytes": trainer.release()})
        for line in sys.stdin:
            asked = json.loads(line)
            found = trainer.run(asked["steps"], asked["seconds"])
            say({**found, "micro": trainer.micro, "held_bytes": trainer.release()})


if __name__ == "__main__":
    main()
