#!/usr/bin/env python3
"""Tokenizers of characters whose bytes stand for those without a token (byte_fallback), as LLaMA's, Mistral's and Gemma's.

Usage: fallback_tokenizers.py      writes tests/golden/fallback_tokenizers.json: what `tokenizers` makes of texts with each
"""
import json
import pathlib
import random

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

MARK = "\u2581"
REPLACE, PREPEND = normalizers.Replace(" ", MARK), normalizers.Prepend(MARK)
SPACE = decoders.Replace(MARK, " ")
# Normalizer, pre_tokenizer, and whether decoding strips a space, as in the files of these models ("always": of none).
FALLBACK_FORMS = {
    "LLaMA 2": (normalizers.Sequence([PREPEND, REPLACE]), None, True),
    "Mistral 0.3": (None, pre_tokenizers.Metaspace(prepend_scheme="first", split=False), True),
    "always": (None, pre_tokenizers.Metaspace(prepend_scheme="always", split=False), True),
    "Gemma": (REPLACE, pre_tokenizers.Split(" ", "merged_with_previous"), False),
}
ADDED = ["<|im_start|>", "<|im_end|>", AddedToken("<left>", lstrip=True), AddedToken("<both>", rstrip=True)]
ADDED_WORDS = [AddedToken("word", single_word=True), AddedToken("a b"), AddedToken("x", normalized=False)]
TEXTS = ["", " ", "  ", "to", " to", "to mi  ren", "to\nmi", "a b", "xto x", "<s>to</s>", "to <|im_start|> mi<|im_end|>ren",
         "<|im_start|>to", "mi <left> to <both> ren", "word words word", "\u00e9\u4e2d \U0001f642", "\u2581to", "to\u2581mi",
         "<0x41>", "<0xE4> ", "\u4e2d<0xE4>", "toto" * 40, " " * 9]


def fallback_tokenizer(name, texts, size, across_words=False):
    made = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    made.pre_tokenizer = pre_tokenizers.Metaspace(split=not across_words)
    special = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256))]
    made.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=size, limit_alphabet=250, special_tokens=special,
                                                        show_progress=False))
    normalizer, splitter, strips = FALLBACK_FORMS[name]
    chain = [SPACE, decoders.ByteFallback(), decoders.Fuse()] + [decoders.Strip(" ", 1, 0)] * strips
    made.decoder = decoders.Sequence(chain)
    made.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    described = json.loads(made.to_str())
    described["added_tokens"] = [t for t in described["added_tokens"] if not t["content"].startswith("<0x")]
    described["pre_tokenizer"] = None
    made = Tokenizer.from_str(json.dumps(described))
    if normalizer:
        made.normalizer = normalizer
    if splitter:
        made.pre_tokenizer = splitter
    made.add_special_tokens(ADDED)
    made.add_tokens(ADDED_WORDS)
    return Tokenizer.from_str(made.to_str())


def case(made, text):
    ids = made.encode(text).ids
    return {"text": text, "ids": ids, "decoded": made.decode(ids), "with_special": made.decode(ids, False)}


def broken_rows(made):
    """Ids whose bytes give no UTF-8, alone, among others and behind whole characters."""
    byte = lambda b: made.token_to_id(f"<0x{b:02X}>")
    rows = [[byte(0xE4)], [byte(0x41), byte(0xFF)], [byte(b) for b in "\u4e2d".encode()] + [byte(0x80)], [byte(0xC3), 2, byte(0xA9)]]
    return [{"ids": ids, "decoded": made.decode(ids), "with_special": made.decode(ids, False)} for ids in rows]


def main():
    r = random.Random(1)
    words = ["to", "mi", "ren", "tomi", "word", "a", "b", "\u00e9"]
    texts = [" ".join(r.choice(words) for _ in range(9)) + "  " for _ in range(200)]
    golden = {}
    for name in FALLBACK_FORMS:
        made = fallback_tokenizer(name, texts, 300)
        described = json.loads(made.to_str())
        model = described.pop("model")
        golden.setdefault("model", model)
        assert golden["model"] == model
        golden[name] = {"parts": described, "cases": [case(made, t) for t in TEXTS], "rows": broken_rows(made)}
    path = pathlib.Path(__file__).resolve().parents[1] / "golden/fallback_tokenizers.json"
    path.write_text("{" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in golden.items()) + "}\n")


if __name__ == "__main__":
    main()
