"""Models of SentencePiece that its own trainer makes of made-up words: each option that changes ids in one of them."""
import io
import random

import sentencepiece
from sentencepiece import sentencepiece_model_pb2

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


# How sums are rounded decides: of "ab" over a long text, and of runs of spaces, which user-defined pieces share out.
def near_scores(folder):
    model = sentencepiece_model_pb2.ModelProto()
    model.ParseFromString(train(MODELS["unigram"], folder))
    control = [p for p in model.pieces if p.type in (2, 3)]
    del model.pieces[:]
    model.pieces.extend(control)
    for piece, score in (("a", -1), ("b", -1), ("ab", -2.001), ("▁", -1.5)):
        model.pieces.add(piece=piece, score=score, type=1)
    for n in (2, 3, 4):
        model.pieces.add(piece="▁" * n, score=0, type=4)
    model.trainer_spec.user_defined_symbols[:] = []
    model.normalizer_spec.add_dummy_prefix = model.normalizer_spec.remove_extra_whitespaces = False
    return model.SerializeToString()


# (name, model)
def models(trained, folder):
    for name, options in trained.items():
        yield name, train(options, folder)
    yield "near scores", near_scores(folder)


LONG = "ab" * 60000


def peer(model):
    return sentencepiece.SentencePieceProcessor(model_proto=model)
