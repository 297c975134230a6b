#!/usr/bin/env python3
"""Compares our tokenizer with the Python library `tokenizers`, ids and decoded text, one by one.

Usage: [NEOX_TEST_DATA=DIR] tokenizer.py [--texts N] [--seed S] [--only NAME]

Needs the built test tool (cmake --build build/release --target tokenizer_tool). Texts: every *.txt of
NEOX_TEST_DATA (whole and line by line), N random strings, and very long runs. Tokenizers: DIR/20B_tokenizer.json,
GPT-2 files, one with added tokens of every kind, and others with options, trained here. Ends with 1 on any difference.
"""
import argparse
import json
import os
import pathlib
import random
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import tokenizers
import word_models
from tokenizer_golden import Generator
from fallback_tokenizers import FALLBACK_FORMS, fallback_tokenizer
from pipelines import PIPELINES, with_pipeline
from pipelines import GLUE as PIPELINE_GLUE
from tokenizer_peer import RandomTexts, count_different, encode_with_tool, run_tool, train_peer
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors

# Words of GPT-2; of cl100k_base as LLaMA 3 and as tiktoken write it; of Qwen 2 and 3.5; of o200k_base; of Mistral's Tekken.
UPPER, LOWER, SHORT = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]", "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
SIGNS = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
SPLITS = {
    "gpt2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "cl100k": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
              r"|\s+(?!\S)|\s+",
    "tiktoken": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
    "qwen2": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "qwen35": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+"
              r"|\s+(?!\S)|\s+",
    "o200k": rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{SHORT}|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{SHORT}|\p{{N}}{{1,3}}{SIGNS}",
    "tekken": rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*|\p{{N}}{SIGNS}",
}

GLUE = ["McHTML's", "\u0301AB", "AB\u4e2dCD", "\u01c5A", "\u02b0Z", "!\n/x", "it'SaB", " 'S", "'\u017f", "'Ll", "'rE", "\r\n", "\n \n", "\t\n x", "1234567", "?!\n\n", "<|endoftext|>", "<|padding|>", "<|endoftext|", "  ", "    ", " " * 24, "<s>", "<left>", "<both>", "word", "<|im_start|>", "<|im_end|>", "a b", "\u2581", "</s>", "<0x0A>",
        "word", "caf\u00e9", "cafe\u0301", "\n\n", " <s> ", "x", "\u00e9", "\u3000", "wordword"]


def long_runs():
    return [c.encode() * n for n in (1000, 20_000) for c in ("a", " ", "\n", "!", "1", "\u4e2d", "e\u0301", "ab", "a ")] \
        + [("a" + "\u0301\u0323" * 3000).encode(), b"\xff" * 5000, ("x" * 30 + " ") .encode() * 300]


def every_code_point():
    """Beside letters, numbers, punctuation, spaces and marks."""
    points = [chr(i) for i in range(0x110000) if not 0xD800 <= i < 0xE000]
    return ["".join(f"a{c}1{c}!{c} {c}\u0334e{c}\u0345" for c in points[i:i + 256]).encode()
            for i in range(0, len(points), 256)]


def corpus(seed, count=400):
    texts = RandomTexts(seed, GLUE)
    return [texts.text().decode(errors="replace") for _ in range(count)]


def with_added_tokens(folder):
    made = train_peer(corpus(3), 700)
    made.add_tokens(["  ", "    ", AddedToken("<s>", single_word=True), AddedToken("<left>", lstrip=True, normalized=False),
                     AddedToken("<both>", lstrip=True, rstrip=True), AddedToken("word", single_word=True),
                     AddedToken("wordword", normalized=False), AddedToken("cafe\u0301"), AddedToken("\u00e9x"),
                     AddedToken("\n\n", rstrip=True, normalized=False)])
    made.save(str(folder / "added.json"))
    return made, ["json", folder / "added.json"]


def with_options(folder, name, nfc, merges, edit, prefix=False, regex=True):
    """Trained here, then changed as JSON."""
    made = train_peer(corpus(4), 600, nfc)
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=regex)
    described = json.loads(made.to_str())
    if merges == "strings":
        described["model"]["merges"] = [" ".join(m) for m in described["model"]["merges"]]
    edit(described)
    path = folder / f"{name}.json"
    path.write_text(json.dumps(described))
    return Tokenizer.from_file(str(path)), ["json", path]


def with_split(folder, name, nfc=False, invert=False):
    """Words by a regular expression, and a template, as LLaMA 3 and Qwen 2 have them."""
    made = train_peer(corpus(7), 900, nfc)
    split = pre_tokenizers.Split(Regex(SPLITS[name]), "removed" if invert else "isolated", invert)
    made.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    around = {"gpt2": "$A", "cl100k": "<|endoftext|> $A", "tiktoken": "$A <|endoftext|>"}.get(name, "<|endoftext|> $A <|padding|>")
    tokens = [(t, made.token_to_id(t)) for t in ("<|endoftext|>", "<|padding|>") if t in around]
    template = processors.TemplateProcessing(single=around, special_tokens=tokens)
    made.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
    path = folder / f"{name}.json"
    made.save(str(path))
    return Tokenizer.from_file(str(path)), ["json", path]


def digits_alone(folder):
    """As StarCoder and SmolLM."""
    made = train_peer(corpus(8), 900, nfc=False)
    made.add_tokens(["  ", "   "])
    made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                                  pre_tokenizers.ByteLevel(add_prefix_space=False)])
    path = folder / "digits.json"
    made.save(str(path))
    return Tokenizer.from_file(str(path)), ["json", path]


def lost_bytes(folder):
    """Without tokens for bytes that are part of no merge, and none for the unknown, as SmolLM."""
    made = json.loads(train_peer(corpus(8), 900, nfc=False).to_str())
    merged = {c for merge in made["model"]["merges"] for c in "".join(merge)}
    lost = [t for t in made["model"]["vocab"] if len(t) == 1 and t not in merged][::2]
    made["model"]["vocab"] = {f"lost {id}" if t in lost else t: id for t, id in made["model"]["vocab"].items()}
    path = folder / "lost.json"
    path.write_text(json.dumps(made))
    return Tokenizer.from_file(str(path)), ["json", path]


def gpt2(folder):
    """Ours reads vocab.json and merges.txt; the peer is built as Hugging Face's GPT2TokenizerFast builds it."""
    train_peer(corpus(5), 900, nfc=False).model.save(str(folder))
    made = Tokenizer(models.BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt")))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken("<|endoftext|>", special=True, normalized=False)])
    return made, ["gpt2", folder / "vocab.json", folder / "merges.txt"]


def with_fallback(folder, name, across_words=False):
    texts = [t[:200] for t in corpus(9)] + ["the of and to in is that for it as was  \u00e9\u4e2d\u6587 \u2581x"] * 9
    path = folder / f"{name}{across_words}.json"
    made = fallback_tokenizer(name, texts, 1200, across_words)
    made.save(str(path))
    return made, ["json", path]


def with_steps(folder, name):
    path = folder / f"steps{list(PIPELINES).index(name)}.json"
    path.write_text(with_pipeline(train_peer(corpus(12) + PIPELINE_GLUE * 9, 900, nfc=False).to_str(), name))
    return Tokenizer.from_file(str(path)), ["json", path]


def saved(folder, made):
    path = folder / f"saved{len(list(folder.glob('saved*')))}.json"
    made.save(str(path))
    return made, ["json", path]


def trained_by_us(folder):
    documents = [t.encode() for t in corpus(6)]
    made = folder / "ours"
    made.mkdir()
    run_tool(["train", made, 1000, 0, "nfc", 1], documents)
    return Tokenizer.from_file(str(made / "tokenizer.json")), ["json", made / "tokenizer.json"]


def all_tokenizers(folder, data):
    nothing = lambda described: None
    def whole_words(described): described["model"]["ignore_merges"] = True
    def sequences(described):
        described["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "NFC"}]}
        described["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [described["pre_tokenizer"]]}
    def many_merges_of_one(described):
        merges = described["model"]["merges"]
        merges += merges[5:9] + merges[40:80]
    def swapped_merges(described):  # then a whole word may be out of the reach of merges
        random.Random(9).shuffle(described["model"]["merges"])
    found = {
        "added tokens": with_added_tokens(folder),
        "GPT-2 files": gpt2(folder),
        "trained by us": trained_by_us(folder),
        "no normalizer": with_options(folder, "plain", False, "strings", nothing),
        "prefix space": with_options(folder, "prefix", True, "pairs", sequences, prefix=True),
        "no regex": with_options(folder, "noregex", True, "pairs", nothing, regex=False),
        "ignore_merges": with_options(folder, "ignore", True, "strings", lambda d: (whole_words(d), swapped_merges(d))),
        "GPT-2's split": with_split(folder, "gpt2"),
        "cl100k": with_split(folder, "cl100k"),
        "tiktoken's cl100k": with_split(folder, "tiktoken", invert=True),
        "Qwen 2": with_split(folder, "qwen2", nfc=True),
        "Qwen 3.5": with_split(folder, "qwen35", nfc=True),
        "o200k": with_split(folder, "o200k"),
        "Tekken": with_split(folder, "tekken"),
        "digits alone": digits_alone(folder),
        "lost bytes": lost_bytes(folder),
        **{name: with_fallback(folder, name) for name in FALLBACK_FORMS},
        "LLaMA 2 across words": with_fallback(folder, "LLaMA 2", across_words=True),
        **{name: with_steps(folder, name) for name in PIPELINES},
        **{name: saved(folder, made) for name, made in word_models.forms(Generator(14).documents(200, 60), 600).items()},
        "repeated merges": with_options(folder, "repeated", True, "pairs", many_merges_of_one),
    }
    if data and (data / "20B_tokenizer.json").exists():
        path = data / "20B_tokenizer.json"
        found["20B"] = Tokenizer.from_file(str(path)), ["json", path]
    return found


def compare(name, peer, args, texts):
    strings = [t.decode("utf-8", errors="replace") for t in texts]
    theirs = [(e.ids, peer.decode(e.ids, skip_special_tokens=True), peer.decode(e.ids, skip_special_tokens=False))
              for e in peer.encode_batch_fast(strings)]
    return count_different(name, texts, theirs, encode_with_tool(args, texts))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--texts", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", help="tokenizers with this in their name")
    options = parser.parse_args()
    data = os.environ.get("NEOX_TEST_DATA")
    data = pathlib.Path(data) if data else None
    made = RandomTexts(options.seed, GLUE + PIPELINE_GLUE + word_models.GLUE)
    strings = [made.text() for _ in range(options.texts)]
    real = [p.read_bytes() for p in sorted(data.glob("*.txt"))] if data else []
    lines = [line for text in real for line in text.splitlines(keepends=True)]
    print(f"tokenizers {tokenizers.__version__}, NEOX_TEST_DATA {data or 'not set: no real texts, no 20B'}")
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, (peer, args) in all_tokenizers(pathlib.Path(folder), data).items():
            if options.only and options.only not in name:
                continue
            wrong += compare(f"{name}, random strings", peer, args, strings)
            runs = long_runs() if name != "no regex" else [t[:20_000] for t in long_runs()]
            wrong += compare(f"{name}, long runs", peer, args, runs)
            if name in ("added tokens", "20B", "cl100k", "Qwen 2", "o200k", "digits alone", "lost bytes", "DeepSeek V3", "Falcon", "NFD", "NFKC",
                        "NFKD", "prefix space behind punctuation", "BPE of words", "BPE with a suffix", "WordPiece, cased", "WordPiece, cleaned", "words",
                        "words between commas", "BPE of spelled bytes behind scripts", "pieces", "pieces of precompiled characters"):
                wrong += compare(f"{name}, every code point", peer, args, every_code_point())
            if name in PIPELINES:
                wrong += compare(f"{name}, every 20th line", peer, args, lines[::20])
            elif real:
                wrong += compare(f"{name}, real texts", peer, args, real)
                wrong += compare(f"{name}, their lines", peer, args, lines)
    print("all equal" if not wrong else f"{wrong} texts differ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
