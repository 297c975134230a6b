"""Normalizers, pre-tokenizers and post-processors of byte-level tokenizers, as published models have them and at their edges.

Run as a script it writes tests/golden/pipelines.json: what the Python library `tokenizers` makes of texts with each of them.
"""
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from tokenizer_peer import RandomTexts, train_peer
from tokenizers import Tokenizer

CL100K = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|"
GLUE = ["(x)", "a\r\n\r\nb", "12 345 6789", "\u0661\u0662\u00b2\u00bd", "\u4e2d\u6587\u3042\u30a2", "don't \u201cyou\u201d", "\ufb01\uff21\u3392",
        "\u00a0\u2003\u3000x", "e\u0301\u0323", "\u1e9b\u0323", "\uac00\u11a8", "\ufdfa", "a_b-c+d=$5", "<|endoftext|>", "\u2581", "tab\tx"]


def split(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def bytes_level(regex=False, prefix=False):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": regex}


def row(*parts):
    return {"type": "Sequence", "pretokenizers": list(parts)}


def normalizers(*parts):
    return {"type": "Sequence", "normalizers": list(parts)}


def replace(pattern, content, kind="Regex"):
    return {"type": "Replace", "pattern": {kind: pattern}, "content": content}


DIGITS, NUMBERS = {"type": "Digits", "individual_digits": True}, {"type": "Digits", "individual_digits": False}
PUNCTUATION = {"type": "Punctuation", "behavior": "Contiguous"}
PLAIN = bytes_level(True)
PIPELINES = {
    "DeepSeek V3": {"pre_tokenizer": row(
        split(r"\p{N}{1,3}"), split("[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"),
        split(r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"""
              r"|\s*[\r\n]+|\s+(?!\S)|\s+"), bytes_level())},
    "DeepSeek Coder": {"pre_tokenizer": row(split("[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"),
                                            split("[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"), DIGITS, bytes_level())},
    "BLOOM": {"pre_tokenizer": row(split(" ?[^(\\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+"), bytes_level())},
    "Falcon": {"pre_tokenizer": row(PUNCTUATION, bytes_level(True), NUMBERS, split("[0-9][0-9][0-9]"))},
    "line ends as they are": {"pre_tokenizer": row(split((CONTRACTIONS + CL100K).replace(r"\r", "\r").replace(r"\n", "\n")), bytes_level())},
    "two numbers": {"pre_tokenizer": row(split(CL100K.replace("{1,3}", "{1,2}")), bytes_level())},
    "cl100k behind digits": {"pre_tokenizer": row(DIGITS, split(CONTRACTIONS + CL100K), bytes_level())},
    "prefix space behind punctuation": {"pre_tokenizer": row({"type": "Punctuation"}, bytes_level(True, True))},
    "bytes, then pieces of them": {"pre_tokenizer": row(bytes_level(True, True), DIGITS, split("\u0120", "MergedWithNext", kind="String"))},
    **{f"split {behavior} {invert}": {"pre_tokenizer": row(split("[aeiou ]|(?=n)", behavior, invert), PLAIN)}
       for behavior in ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous") for invert in (False, True)},
    "texts": {"pre_tokenizer": row(split(".", "MergedWithPrevious", kind="String"), split("th", "Removed", kind="String"), PLAIN)},
    **{form: {"normalizer": {"type": form}} for form in ("NFC", "NFD", "NFKC", "NFKD")},
    "forms in turn": {"normalizer": normalizers({"type": "NFKD"}, {"type": "NFC"}, {"type": "NFD"})},
    "replaced": {"normalizer": normalizers(replace(r"\r\n?", "\n"), replace(" {2,}", " "), replace("the", "a\u0301", "String"), {"type": "NFC"},
                                           replace(r"^[ \t]+|(?<=\w)x*$", "|"))},  # an empty match at the beginning would be there twice
    "prepended": {"normalizer": normalizers({"type": "Prepend", "prepend": "> "}, {"type": "NFKC"})},
    "RoBERTa": {"post_processor": {"type": "RobertaProcessing", "sep": ["<|padding|>", 1], "cls": ["<|endoftext|>", 0],
                                   "trim_offsets": True, "add_prefix_space": False}},
    "BERT's": {"post_processor": {"type": "BertProcessing", "sep": ["<|padding|>", 1], "cls": ["<|endoftext|>", 0]}},
    "byte_fallback beside ByteLevel": {"model": {"byte_fallback": True}},
}


def with_pipeline(described, name):
    """tokenizer.json of a tokenizer, with parts replaced."""
    made = json.loads(described)
    for part, value in PIPELINES[name].items():
        made[part] = {**made[part], **value} if part == "model" else value
    if "normalizer" not in PIPELINES[name]:
        made["normalizer"] = None
    return json.dumps(made)


def main():
    from tokenizer_golden import PARTS, Generator
    described = train_peer(Generator(1).documents(200, 100), 500).to_str()
    random_texts = RandomTexts(12, GLUE + PARTS)
    texts = ["".join(GLUE), "", "  \u3000"] + [random_texts.text().decode(errors="replace") for _ in range(10)]
    texts += [Generator(20 + i).text(30) for i in range(3)]
    golden = {"texts": texts, "pipelines": []}
    for name in PIPELINES:
        peer = Tokenizer.from_str(with_pipeline(described, name))
        golden["pipelines"].append({"name": name, **PIPELINES[name], "ids": [peer.encode(t).ids for t in texts]})
    path = pathlib.Path(__file__).resolve().parents[1] / "golden/pipelines.json"
    lines = ",\n".join(json.dumps(p) for p in golden["pipelines"])
    path.write_text(f'{{"texts": {json.dumps(texts)},\n"pipelines": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
