#!/usr/bin/env python3
"""Compares TiktokenTokenizer with tiktoken, ids and decoded text, one by one.

Usage: [NEOX_TEST_DATA=DIR] [TIKTOKEN_CACHE_DIR=DIR] tiktoken_ids.py [--texts N] [--seed S]

Needs the built test tool (cmake --build build/release --target tokenizer_tool). For each encoding ranks are made here, learnt and
at random, and tiktoken's own definition of the encoding is given them; of those in TIKTOKEN_CACHE_DIR its own ranks are taken too.
Texts: every *.txt of NEOX_TEST_DATA, N random strings, and long runs. Ends with 1 on any difference.
"""
import argparse
import base64
import os
import pathlib
import random
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import tiktoken
import tokenizers
import tiktoken_ext.openai_public as public
from tokenizer import GLUE, corpus, long_runs
from tokenizer_peer import RandomTexts, count_different, encode_with_tool, run_tool, train_peer
from tokenizers import pre_tokenizers

NAMES = ["r50k_base", "p50k_base", "cl100k_base", "o200k_base", "llama3"]
CACHED = {"p50k_base": "ec7223a39ce59f226a68acc30dc1af2788490e15", "cl100k_base": "9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
          "r50k_base": "0ea1e91bbb3a60f729a8dc8f777fd2fc07cd8df4", "o200k_base": "fb374d419588a4632f3f557e76b4b70aebbca790"}


def learnt_ranks(seed):
    """Bytes in some order, then what a BPE learns, as tiktoken's own ranks are."""
    order = list(range(256))
    random.Random(seed).shuffle(order)
    made = train_peer(corpus(seed), 900, nfc=False)
    spelled = dict(zip(sorted(pre_tokenizers.ByteLevel.alphabet()), [None] * 256))
    for byte in range(256):  # how ByteLevel spells each byte: tokens of its own alphabet
        printable = 33 <= byte <= 126 or 161 <= byte <= 172 or 174 <= byte <= 255
        spelled[chr(byte) if printable else chr(256 + sum(not (33 <= b <= 126 or 161 <= b <= 172 or 174 <= b) for b in range(byte)))] = byte
    tokens = [bytes([b]) for b in order]
    for token, _ in sorted(made.get_vocab().items(), key=lambda item: item[1]):
        if len(token) > 1 and not token.startswith("<|"):
            tokens.append(bytes(spelled[c] for c in token))
    return {token: rank for rank, token in enumerate(tokens)}


def random_ranks(seed):
    """Any pieces of texts in any order: a token may come before those that it is made of."""
    chance = random.Random(seed)
    tokens = {bytes([b]): None for b in range(256)}
    for text in corpus(seed, 100):
        data = text.encode()
        for _ in range(8):
            at = chance.randrange(len(data) + 1)
            tokens[data[at:at + chance.randrange(2, 7)] or b"aa"] = None
    for letters in ("ab", "a ", "aA1", "  \n"):
        for _ in range(60):
            tokens["".join(chance.choice(letters) for _ in range(chance.randrange(2, 7))).encode()] = None
    tokens = list(tokens)
    chance.shuffle(tokens)
    return {token: rank for rank, token in enumerate(tokens)}


def filled(ranks):
    """As many as LLaMA 3 has, with tokens that no UTF-8 holds."""
    return ranks | {b"\xff" + n.to_bytes(3, "big"): n for n in range(len(ranks), 128000)}


def llama3(ranks):
    """As Meta's llama3/tokenizer.py defines it, with the names of 3.1."""
    names = ["begin_of_text", "end_of_text", "reserved_special_token_0", "reserved_special_token_1", "finetune_right_pad_id",
             "reserved_special_token_2", "start_header_id", "end_header_id", "eom_id", "eot_id", "python_tag"]
    names += [f"reserved_special_token_{n}" for n in range(3, 248)]
    words = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
             r"\s+(?!\S)|\s+")
    return tiktoken.Encoding("llama3", pat_str=words, mergeable_ranks=ranks,
                             special_tokens={f"<|{name}|>": 128000 + n for n, name in enumerate(names)})


def encoding(name, ranks):
    """tiktoken's definition, with these ranks."""
    if name == "llama3":
        return llama3(ranks)
    kept = public.load_tiktoken_bpe
    public.load_tiktoken_bpe = lambda *_, **__: ranks
    described = getattr(public, name)()
    public.load_tiktoken_bpe = kept
    described.pop("explicit_n_vocab", None)
    if name == "cl100k_base":
        # tiktoken tries this before \s*[\r\n]: white space that ends a text is one word, also across lines. Its own ranks have
        # no token across a line end and what follows; made ones may.
        assert r"|\s++$|" in described["pat_str"]
        described["pat_str"] = described["pat_str"].replace(r"|\s++$|", "|")
    return tiktoken.Encoding(**described)


def compare(title, peer, path, texts, folder):
    theirs = []
    for text in texts:
        ids = peer.encode(text.decode("utf-8", errors="replace"), allowed_special="all")
        if peer.name == "llama3":
            ids = [128000] + ids
        plain = [i for i in ids if i not in peer._special_tokens.values()]
        theirs.append((ids, peer.decode(plain), peer.decode(ids)))
    wrong = count_different(title, texts, theirs, encode_with_tool(["tiktoken", path], texts))
    if "random" in title:  # a tokenizer.json has no ranks of tokens
        return wrong
    written = pathlib.Path(folder) / "tokenizer.json"
    run_tool(["tiktoken", path, written], [])
    ids = tokenizers.Tokenizer.from_file(str(written)).encode_batch_fast([t.decode("utf-8", errors="replace") for t in texts])
    wrong += sum(e.ids != want[0] for e, want in zip(ids, theirs))
    return wrong + count_different(f"{title}, as tokenizer.json", texts, theirs, encode_with_tool(["json", written], texts))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--texts", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    data, cache = os.environ.get("NEOX_TEST_DATA"), os.environ.get("TIKTOKEN_CACHE_DIR")
    real = [p.read_bytes() for p in sorted(pathlib.Path(data).glob("*.txt"))] if data else []
    made = RandomTexts(options.seed, GLUE + ["<|fim_prefix|>", "<|endofprompt|>", "<|eot_id|>", "aaaaab", "ababa", "aA1aA"])
    strings = [made.text() for _ in range(options.texts)] + long_runs()
    print(f"tiktoken {tiktoken.__version__}, NEOX_TEST_DATA {data or 'not set'}, TIKTOKEN_CACHE_DIR {cache or 'not set: no ranks of its own'}")
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for name in NAMES:
            path = pathlib.Path(folder) / f"{name}.tiktoken"
            for kind, ranks in (("learnt", learnt_ranks(options.seed)), ("random", random_ranks(options.seed))):
                ranks = filled(ranks) if name == "llama3" else ranks
                path.write_bytes(b"".join(base64.b64encode(t) + b" %d\n" % r for t, r in ranks.items()))
                wrong += compare(f"{name}, {kind} ranks", encoding(name, ranks), path, strings, folder)
            own = pathlib.Path(cache or folder) / CACHED.get(name, "none")
            if own.exists():
                wrong += compare(f"{name}, its own ranks", tiktoken.get_encoding(name), own, strings + real, folder)
    print(f"{wrong} differ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
