"""What the tokenizer oracles share: the tool under test as a process, and texts to try."""
import pathlib
import random
import struct
import subprocess
import sys

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

SPECIAL = ["<|endoftext|>", "<|padding|>"]


def tool_path():
    build = pathlib.Path(__file__).resolve().parents[2] / "build"
    found = sorted(build.glob("*/tests/tokenizer_tool"), key=lambda p: p.stat().st_mtime)
    if not found:
        sys.exit(f"no */tests/tokenizer_tool under {build}: build the target tokenizer_tool first")
    return found[-1]


def run_tool(args, texts):
    """Sends each text (bytes) as a frame; returns the frames of the answer."""
    data = b"".join(struct.pack("<I", len(t)) + t for t in texts)
    done = subprocess.run([tool_path(), *map(str, args)], input=data, capture_output=True)
    if done.returncode:
        raise RuntimeError(f"tokenizer_tool {args} ended with {done.returncode}: {done.stderr.decode()}")
    if args[0] == "train":  # prints its times
        return []
    frames, at, out = [], 0, done.stdout
    while at < len(out):
        size, = struct.unpack_from("<I", out, at)
        frames.append(out[at + 4:at + 4 + size])
        at += 4 + size
    return frames


def encode_with_tool(args, texts):
    """(ids, text without special tokens, text with them) for each text."""
    frames = run_tool(args, texts)
    assert len(frames) == 3 * len(texts), (len(frames), len(texts))
    return [(list(struct.unpack(f"<{len(ids) // 4}i", ids)), skipped.decode(), kept.decode())
            for ids, skipped, kept in zip(*[iter(frames)] * 3)]


def count_different(name, texts, theirs, ours):
    """How many of the tuples of ids and decoded texts differ; shows the first three."""
    wrong = 0
    for text, want, found in zip(texts, theirs, ours):
        wrong += found != want
        if found != want and wrong <= 3:
            at = next((i for i, (a, b) in enumerate(zip(found[0], want[0])) if a != b), min(len(found[0]), len(want[0])))
            print(f"  {text[:200]!r}\n  token {at}: ours {found[0][at:at + 6]}, theirs {want[0][at:at + 6]}")
    tokens = sum(len(want[0]) for want in theirs)
    print(f"{name}: {len(texts)} texts, {sum(map(len, texts))} bytes, {tokens} tokens: {wrong} differ", flush=True)
    return wrong


def new_tokenizer(nfc):
    made = tokenizers.Tokenizer(models.BPE())
    if nfc:
        made.normalizer = normalizers.NFC()
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.post_processor = processors.ByteLevel()
    made.decoder = decoders.ByteLevel()
    return made


def train_peer(documents, size, nfc=True, min_frequency=0, special=SPECIAL):
    made = new_tokenizer(nfc)
    made.train_from_iterator(documents, trainers.BpeTrainer(
        vocab_size=size, min_frequency=min_frequency, special_tokens=list(special), show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return made


class RandomTexts:
    """Strings that are hard for a tokenizer: each is a mix of short pieces of several kinds."""

    def __init__(self, seed, glue):
        self.random = random.Random(seed)
        self.glue = glue  # added tokens and the like, to be put anywhere

    def code_point(self, low=0, high=0x10FFFF):
        while 0xD800 <= (c := self.random.randint(low, high)) < 0xE000:
            pass
        return chr(c)

    def some(self, make, most=8):
        return "".join(make() for _ in range(self.random.randint(1, most)))

    def piece(self):
        r = self.random
        kinds = [
            lambda: self.some(lambda: self.code_point()),
            lambda: self.some(lambda: self.code_point(r.randrange(17) << 16, 0x10FFFF)),
            lambda: self.some(lambda: self.code_point(0, 0xFFFF)),
            lambda: self.some(lambda: self.code_point(0, 0x7F)),
            lambda: self.some(lambda: self.code_point(0x80, 0x24F)),
            lambda: self.some(lambda: self.code_point(0x300, 0x36F)),
            lambda: self.some(lambda: r.choice("abcdefgiklmnorstuAEIOUNS") + self.some(
                lambda: self.code_point(0x300, 0x345), 3)),
            lambda: self.some(lambda: self.code_point(0x590, 0x1200)),
            lambda: self.some(lambda: self.code_point(0x1100, 0x11FF)),
            lambda: self.some(lambda: r.choice("\u1100\u1112\u1161\u1175\u11a7\u11a8\u11c2\uac00\uac01")),
            lambda: self.some(lambda: self.code_point(0xAC00, 0xD7A3) + r.choice(["", "\u11a8", "\u11a7"])),
            lambda: self.some(lambda: self.code_point(0xF900, 0xFAFF)),
            lambda: self.some(lambda: self.code_point(0x11000, 0x11FFF)),
            lambda: self.some(lambda: self.code_point(0x1D100, 0x1D250)),
            lambda: self.some(lambda: self.code_point(0x1E000, 0x1F9FF)),
            lambda: r.choice(" \t\n\r\v\f\x85\xa0\u1680\u2003\u2028\u202f\u205f\u3000\u180e\u200b") * r.randint(1, 30),
            lambda: " " * r.randint(1, 60),
            lambda: self.some(lambda: r.choice(" \t\n\r\xa0\u3000"), 12),
            lambda: r.choice(["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'", "''ll", "'x"]),
            lambda: self.some(lambda: r.choice("the of and to in is that for it as was".split()) + " "),
            lambda: str(r.randint(0, 10**r.randint(1, 20))),
            lambda: self.some(lambda: r.choice(self.glue), 3),
            lambda: self.some(lambda: r.choice("!?.,;:-()[]{}<>|@#$%^&*_+=~`\"/\\"), 6),
        ]
        return r.choice(kinds)()

    def text(self):
        whole = "".join(self.piece() for _ in range(self.random.randint(0, 8))).encode()
        if self.random.random() < 0.25:
            whole = self.damage(whole)
        return whole

    def damage(self, data):
        """Bytes that are not UTF-8: cut, overwritten, or inserted."""
        data = bytearray(data)
        for _ in range(self.random.randint(1, 4)):
            at = self.random.randint(0, len(data))
            kind = self.random.randrange(4)
            if kind == 0:
                data[at:at + self.random.randint(1, 3)] = b""
            elif kind == 1:
                data[at:at] = self.random.randbytes(self.random.randint(1, 4))
            elif kind == 2:
                data[at:at] = self.random.choice([
                    b"\xc0\x80", b"\xe0\x80\x80", b"\xed\xa0\x80", b"\xf0\x80\x80\x80", b"\xf4\x90\x80\x80",
                    b"\xf0\x9f\x98", b"\xe2\x82", b"\xff\xfe", b"\xc3", b"\xf8\x88\x80\x80\x80"])
            elif at < len(data):
                data[at] = self.random.randrange(256)
        return bytes(data)
