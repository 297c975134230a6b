#!/usr/bin/env python3
"""Tokenizers whose words are not spelled in bytes, or whose model is not byte-pair encoding, as tutorials and small projects have them.

Usage: word_models.py                  writes tests/golden/word_models.json: small tokenizers of each form, and what the Python library
                                       `tokenizers` makes of texts with them
       word_models.py DIR TEXT SIZE    tokenizers of SIZE entries, trained on the lines of TEXT, as DIR/NAME.json: for benchmarks/encode.py
"""
import base64
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from tokenizer_peer import RandomTexts
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from unicode_tables import charsmap_of

UNKNOWN = "[UNK]"
GLUE = ["Hello, World!", "\u0130stanbul \u00c9T\u00c9", "e\u0301\u0323", "\u4e2d\u6587 \u3042\u30a2\u30fc", "\u0434\u0430 \u03a9", "don't you're I'm",
        "a.b ? c !", "12 345", "\u00a0\u2003\u3000x", "\r\n\t\u200b\ufeff", "\u2581to", "x_y-z", "</s>", "[UNK]", "##er", "<0x41>", "\u0600a", "\x01\x7f"]
BYTES = [f"<0x{b:02X}>" for b in range(256)]


def metaspace(**options):
    return pre_tokenizers.Metaspace(**options), decoders.Metaspace(**{k: v for k, v in options.items() if k == "prepend_scheme"})


def bpe(texts, size, model=None, special=(UNKNOWN,), **parts):
    options = {"continuing_subword_prefix": model.pop("prefix", None), "end_of_word_suffix": model.pop("suffix", None)} if model else {}
    options = {k: v for k, v in options.items() if v}
    made = Tokenizer(models.BPE(unk_token=UNKNOWN if UNKNOWN in special else None, **options))
    trainer = trainers.BpeTrainer(vocab_size=size, limit_alphabet=40, special_tokens=list(special), show_progress=False, **options)
    return finished(made, trainer, texts, model or {}, parts)


def other(kind, trainer, texts, size, model=None, special=(UNKNOWN,), **parts):
    return finished(Tokenizer(kind), trainer(vocab_size=size, special_tokens=list(special), show_progress=False), texts, model or {}, parts)


def word_piece(texts, size, **parts):
    return other(models.WordPiece(unk_token=UNKNOWN), trainers.WordPieceTrainer, texts, size, **parts)


def word_level(texts, size, **parts):
    return other(models.WordLevel(unk_token=UNKNOWN), trainers.WordLevelTrainer, texts, size, **parts)


def unigram(texts, size, unknown=UNKNOWN, **parts):
    trainer = lambda **options: trainers.UnigramTrainer(unk_token=unknown, **options)
    return other(models.Unigram(), trainer, texts, size, **parts)


def finished(made, trainer, texts, model, parts):
    """Trained with its normalizer and pre_tokenizer; then `model` replaces fields of the model, and `added` tokens come in."""
    if parts.get("normalizer"):
        made.normalizer = parts["normalizer"]
    if parts.get("splitter"):
        made.pre_tokenizer = parts["splitter"]
    made.train_from_iterator(texts, trainer)
    described = json.loads(made.to_str())
    described["added_tokens"] = [t for t in described["added_tokens"] if not t["content"].startswith("<0x")]
    described["model"].update(model)
    made = Tokenizer.from_str(json.dumps(described))
    if parts.get("decoder"):
        made.decoder = parts["decoder"]
    if parts.get("processor"):
        made.post_processor = parts["processor"]
    made.add_special_tokens([AddedToken("</s>"), AddedToken("<mask>", lstrip=True)])
    made.add_tokens(["Hello", AddedToken("er", single_word=True)])
    return Tokenizer.from_str(made.to_str())


def forms(texts, size):
    """name -> tokenizer"""
    sequence, white = normalizers.Sequence, pre_tokenizers.Whitespace()
    spm = sequence([normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    mark, mark_back = metaspace()
    spelled = pre_tokenizers.ByteLevel(add_prefix_space=True)
    bert = normalizers.BertNormalizer()
    alone = lambda **options: normalizers.BertNormalizer(**{**dict(clean_text=False, handle_chinese_chars=False, strip_accents=False,
                                                                   lowercase=False), **options})
    cls = processors.TemplateProcessing(single="[UNK] $A </s>", special_tokens=[(UNKNOWN, 0), ("</s>", 0)])
    replace = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    first, first_back = metaspace(prepend_scheme="first")
    never, never_back = metaspace(prepend_scheme="never", split=False)
    rows = {
        "BPE of words": bpe(texts, size, splitter=white),
        "BPE of words, unknown ones fused": bpe(texts, size, {"fuse_unk": True}, splitter=pre_tokenizers.WhitespaceSplit()),
        "BPE that loses the unknown": bpe(texts, size, special=(), splitter=white),
        "BPE without words": bpe(texts, size, normalizer=normalizers.Lowercase()),
        "BPE with a suffix": bpe(texts, size, {"suffix": "</w>"}, normalizer=bert, splitter=pre_tokenizers.BertPreTokenizer(),
                                 decoder=decoders.BPEDecoder("</w>")),
        "BPE with a prefix": bpe(texts, size, {"prefix": "##"}, splitter=white, decoder=decoders.WordPiece()),
        "BPE with both": bpe(texts, size, {"prefix": "@", "suffix": "$"}, splitter=white),
        "BPE with marks": bpe(texts, size, splitter=mark, decoder=mark_back),
        "BPE with a mark in front": bpe(texts, size, {"fuse_unk": True}, splitter=first, decoder=first_back),
        "BPE with marks between": bpe(texts, size, splitter=never, decoder=never_back),
        "BPE of marks behind punctuation": bpe(texts, size, decoder=mark_back,
                                               splitter=pre_tokenizers.Sequence([pre_tokenizers.Punctuation(), mark, pre_tokenizers.Digits()])),
        "BPE with some bytes": bpe(texts, size, {"byte_fallback": True}, special=(UNKNOWN, *BYTES[0x80:0xD0]), splitter=mark, decoder=replace),
        "BPE with bytes, whole words": bpe(texts, 256 + size, {"byte_fallback": True, "ignore_merges": True}, special=(UNKNOWN, *BYTES),
                                           splitter=mark, decoder=replace),
        "BPE of spelled bytes, some unknown": bpe(texts, size, splitter=spelled, decoder=decoders.ByteLevel()),
        "BPE of spelled bytes behind scripts": bpe(texts, size, splitter=pre_tokenizers.Sequence([pre_tokenizers.UnicodeScripts(), spelled]),
                                                   decoder=decoders.ByteLevel()),
        "BPE of normalized bytes": bpe(texts, size, normalizer=sequence([normalizers.NFC(), normalizers.ByteLevel()]),
                                       decoder=decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 2, 0)])),
        "WordPiece, uncased": word_piece(texts, size, normalizer=bert, splitter=pre_tokenizers.BertPreTokenizer(), processor=cls,
                                         decoder=decoders.WordPiece()),
        "WordPiece, cased": word_piece(texts, size, model={"max_input_chars_per_word": 6}, normalizer=alone(handle_chinese_chars=True),
                                       splitter=white, decoder=decoders.WordPiece("##", False)),
        "WordPiece, cleaned": word_piece(texts, size, normalizer=alone(clean_text=True, strip_accents=True), splitter=white),
        "words": word_level(texts, size, normalizer=sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase()]), splitter=white),
        "words between commas": word_level(texts, size, normalizer=normalizers.Strip(), splitter=pre_tokenizers.CharDelimiterSplit(",")),
        "words of a length": word_level(texts, size, normalizer=normalizers.Strip(True, False), splitter=pre_tokenizers.FixedLength(3),
                                        decoder=decoders.Fuse()),
        "characters by CTC": word_level(texts, size, normalizer=normalizers.Replace(" ", "|"), splitter=pre_tokenizers.FixedLength(1),
                                        decoder=decoders.CTC("a", "|", True)),
        "pieces": unigram(texts, size, normalizer=spm, splitter=mark, decoder=mark_back),
        "pieces without words": unigram(texts, size, normalizer=normalizers.Strip(False, True)),
        "pieces of scripts": unigram(texts, size, splitter=pre_tokenizers.UnicodeScripts()),
        "pieces of spelled bytes": unigram(texts, size, normalizer=sequence([normalizers.NFC(), normalizers.Lowercase()]), splitter=spelled,
                                           decoder=decoders.ByteLevel()),
        "pieces with bytes": unigram(texts, 256 + size, model={"byte_fallback": True}, special=(UNKNOWN, *BYTES), splitter=mark, decoder=replace),
        "pieces of precompiled characters": unigram(texts, size, normalizer=normalizers.Precompiled(charsmap_of({"e\u0301": "\u00e9", "\r": " ",
                                                    "\u0130": "I", "\u3000": " ", "a": "A", "\u00a0": "", "12": "x"})), splitter=mark),
    }
    return rows


def save(folder, text, size):
    for name, made in forms(pathlib.Path(text).read_text().splitlines(), int(size)).items():
        made.save(str(pathlib.Path(folder) / f"{name.replace(' ', '_').replace(',', '')}.json"))


def main():
    if len(sys.argv) > 1:
        return save(*sys.argv[1:])
    from tokenizer_golden import Generator
    generator = Generator(3)
    words = [w for t in generator.documents(60, 30) for w in t.split()][:400]
    documents = [" ".join(words[i:i + 8]) + "  Hello, World. 12 34" for i in range(0, len(words), 8)]
    random_texts = RandomTexts(12, GLUE + words[:40])
    texts = [" ".join(GLUE), "".join(GLUE), "", " ", "  to  ", "A"] + [random_texts.text().decode(errors="replace") for _ in range(8)]
    texts += documents[:2]
    golden = []
    for name, made in forms(documents, 90).items():
        rows = [made.encode(t).ids for t in texts]
        golden.append({"name": name, "tokenizer": json.loads(made.to_str()), "ids": rows,
                       "decoded": [made.decode(ids) for ids in rows], "with_special": [made.decode(ids, False) for ids in rows]})
    path = pathlib.Path(__file__).resolve().parents[1] / "golden/word_models.json"
    lines = ",\n".join(json.dumps(p) for p in golden)
    path.write_text(f'{{"texts": {json.dumps(texts)},\n"tokenizers": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
