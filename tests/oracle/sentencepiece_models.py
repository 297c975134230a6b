"""Models of SentencePiece that its own trainer makes of made-up words: each option that changes ids in one of them."""
import io
import random

import sentencepiece

SYLLABLES = ["ka", "to", "mi", "ren", "sol", "va", "du", "thi", "lo", "bre", "é", "ü", "ß", "я", "н", "語", "漢", "ー", "ا", "ﬁ", "Ａ", "½", "7", "42"]
COMMON = dict(vocab_size=420, hard_vocab_limit=False, minloglevel=2, num_threads=1, character_coverage=0.995)
RULES = "41\t61\n42\t62 62\nE9\t65\n200B\t\nFB01\t66 69\n"  # a -> b of code points: A, B, é, zero-width space, fi

# name: options of the trainer
MODELS = {
    "llama": dict(model_type="bpe", byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False,
                  split_digits=True, allow_whitespace_only_pieces=True),
    "bpe": dict(model_type="bpe", normalization_rule_name="identity", user_defined_symbols=["<sep>", "  ", "to", "<|endoftext|>"]),
    "bpe across words": dict(model_type="bpe", normalization_rule_name="identity", split_by_whitespace=False),
    "unigram": dict(model_type="unigram", normalization_rule_name="identity", user_defined_symbols=["<sep>", "sol"]),
    "unigram with rules": dict(model_type="unigram", rules=RULES, byte_fallback=True),
    "unigram without prefix": dict(model_type="unigram", normalization_rule_name="identity", add_dummy_prefix=False,
                                   remove_extra_whitespaces=False),
}
# The tables of these are SentencePiece's own, of 240 kB.
WITH_TABLES = {
    "nmt_nfkc": dict(model_type="bpe", normalization_rule_name="nmt_nfkc"),
    "nfkc_cf": dict(model_type="unigram", normalization_rule_name="nmt_nfkc_cf", byte_fallback=True),
}


def documents(seed, count):
    r = random.Random(seed)
    words = ["".join(r.choice(SYLLABLES) for _ in range(r.randint(1, 4))) for _ in range(300)]
    for _ in range(count):
        yield " ".join(r.choice(words) for _ in range(r.randint(3, 30)))


def train(options, folder):
    options = dict(COMMON, **options)
    if rules := options.pop("rules", None):
        path = folder / "rules.tsv"
        path.write_text(rules)
        options["normalization_rule_tsv"] = str(path)
    made = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=documents(1, 2000), model_writer=made, **options)
    return made.getvalue()


def peer(model):
    return sentencepiece.SentencePieceProcessor(model_proto=model)
