#!/usr/bin/env python3
"""Writes lib/tokenizer/unicode_tables.cc: the Unicode properties that the Python library `tokenizers` goes by.

Usage: unicode_tables.py [--check] [FILE]     (default: lib/tokenizer/unicode_tables.cc of this tree)

Every property is read off the library itself, code point by code point:
  category, Han, \\w       whether its Replace normalizer, by Oniguruma, finds the code point (of categories those of letters,
                          marks, numbers, punctuation and symbols); letters and numbers agree with how ByteLevel joins
                          the code point to a neighbour
  space                   how ByteLevel (Oniguruma's \\s) joins it
  newer number            what its Digits pre-tokenizer cuts out besides (char::is_numeric of a newer Unicode than Oniguruma's)
  punctuation             what its Punctuation pre-tokenizer cuts out
  word                    whether an added token with single_word matches beside it (\\w of the Rust regex crate)
  combining class, decomposition   Python's unicodedata proposes them, the library's NFC and NFD must agree; what the
                          library's older tables do not know stays out (it is inert there)
  compatibility           its NFKD of the code point, where that is not its NFD
  lowercase, accents, nonspacing marks, controls   what its Lowercase, StripAccents and BertNormalizer make of it
  scripts                 numbers for what its UnicodeScripts tells apart (of what goes with all of them, none)
  extending, prepended    what its Precompiled sees as part of the character before or behind it
--check compares the file with the library instead of writing it. clang-format brings a new file into shape.
"""
import pathlib
import sys
import unicodedata

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

ALL = [i for i in range(0x110000) if not 0xD800 <= i < 0xE000]
nfc = normalizers.NFC().normalize_str
nfd = normalizers.NFD().normalize_str
nfkd = normalizers.NFKD().normalize_str


def ranges(points):
    found = []
    for point in points:
        if found and found[-1][1] == point - 1:
            found[-1][1] = point
        else:
            found.append([point, point])
    return found


def splitter_classes():
    split = pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str
    classes = {"letter": [], "number": [], "space": []}
    for point in ALL:
        joins = [len(split(before + chr(point))) == 1 for before in "a1!"]
        assert sum(joins) <= 1, hex(point)
        if sum(joins) == 0:
            classes["space"].append(point)
        elif not joins[2]:
            classes["letter" if joins[0] else "number"].append(point)
    return classes


def points_of(expression):
    replace = normalizers.Replace(Regex(expression), "").normalize_str
    return [p for p in ALL if replace(chr(p)) == ""]


CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So".split()


def category_ranges():
    category = {}
    for name in CATEGORIES:
        for point in points_of(rf"\p{{{name}}}"):
            assert category.setdefault(point, name) == name, hex(point)
    return sorted((a, b, name) for name in CATEGORIES for a, b in ranges([p for p in sorted(category) if category[p] == name]))


def newer_numbers(numbers):
    split = pre_tokenizers.Digits(individual_digits=True).pre_tokenize_str
    all_numbers = {p for p in ALL if len(split("a" + chr(p) + "a")) == 3}
    assert all_numbers >= set(numbers)
    return sorted(all_numbers - set(numbers))


def punctuation_points():
    split = pre_tokenizers.Punctuation().pre_tokenize_str
    return [p for p in ALL if len(split("a" + chr(p) + "a")) == 3]


def compatibility_rows():
    for point in ALL:
        whole = nfkd(chr(point))
        if whole != nfd(chr(point)):
            yield f'{point:#x},"' + "".join(f"\\x{byte:02x}" for byte in whole.encode()) + '"'


def removed_by(normalizer):
    return [p for p in ALL if normalizer.normalize_str(chr(p)) == ""]


def bert(**chosen):
    off = {"clean_text": False, "handle_chinese_chars": False, "strip_accents": False, "lowercase": False}
    return normalizers.BertNormalizer(**{**off, **chosen})


def lowercase_rows():
    lower = normalizers.Lowercase().normalize_str
    for point in ALL:
        if lower(chr(point)) != chr(point):
            yield f'{point:#x},"' + "".join(f"\\x{byte:02x}" for byte in lower(chr(point)).encode()) + '"'


def script_ranges():
    """(first, last, number): numbers by the order in which scripts are met."""
    split = pre_tokenizers.UnicodeScripts().pre_tokenize_str
    goes_with = lambda known, point: len(split(known + chr(point))) == 1
    members, found = [], []  # of each script the first
    for point in ALL:
        if goes_with("a", point) and goes_with("\u0434", point):
            continue
        last = found[-1][2] if found else 0
        order = [last, *(i for i in range(len(members)) if i != last)]
        number = next((i for i in order if i < len(members) and goes_with(members[i], point)), len(members))
        if number == len(members):
            members.append(chr(point))
        if found and found[-1][1] == point - 1 and found[-1][2] == number:
            found[-1][1] = point
        else:
            found.append([point, point, number])
    return found


def charsmap_of(texts):
    """precompiled_charsmap for a map of texts: a double array (Aoe 1989), each node with 256 places for its children, and what is made."""
    units, made, places = {}, b"", {b"": 0}  # of each prefix of a key its node
    keys = {key.encode(): value.encode() for key, value in texts.items()}
    prefixes = sorted({key[:i] for key in keys for i in range(len(key) + 1)}, key=lambda p: (len(p), p))
    base_of = {prefix: 256 * (i + 1) for i, prefix in enumerate(prefixes)}
    for prefix in prefixes:
        if prefix:
            places[prefix] = base_of[prefix[:-1]] ^ prefix[-1]
        at = places[prefix]
        units[at] = (prefix[-1] if prefix else 0) | (at ^ base_of[prefix]) << 10
        if prefix in keys:
            units[at] |= 1 << 8
            units[base_of[prefix]] = 1 << 31 | len(made)
            made += keys[prefix] + b"\0"
    size = 256 * (len(prefixes) + 1)
    array = b"".join(units.get(i, 0).to_bytes(4, "little") for i in range(size))
    return len(array).to_bytes(4, "little") + array + made


def replacing(key):
    return normalizers.Precompiled(charsmap_of({key: "X"})).normalize_str


def extending_points():
    replace = replacing("a")
    return [p for p in ALL if replace("a" + chr(p)) == "X"]


def prepended_points():
    replace = replacing("e\u0301")
    return [p for p in ALL if "X" not in replace(chr(p) + "e\u0301") and len(chr(p).encode()) < 3]


def byte_tokenizer():
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return made


def word_points():
    made = byte_tokenizer()
    made.add_tokens([AddedToken("<x>", single_word=True, normalized=False)])
    return [p for p in ALL if 256 not in made.encode(chr(p) + "<x>").ids]


def strip_points():
    made = byte_tokenizer()
    made.add_tokens([AddedToken("<x>", rstrip=True, normalized=False)])
    return [p for p in ALL if made.encode("<x>" + chr(p)).ids == [256]]


def combining_classes():
    """Code points with a combining class that the library knows, checked against one mark of each class."""
    low, high = "\u0334", "\u0345"  # classes 1 and 240, the smallest and the greatest
    known = {}
    for point in ALL:
        c, value = chr(point), unicodedata.combining(chr(point))
        if len(nfd(c)) > 1 or nfd(c) != c:
            continue
        below_high = nfd("a" + high + c) == "a" + c + high
        above_low = nfd("a" + c + low) == "a" + low + c
        if below_high or above_low:
            assert value, f"{point:#x}: the library has a combining class that unicodedata lacks"
            known[point] = value
    marks = {value: chr(point) for point, value in reversed(known.items())}
    for point, value in known.items():
        for other, mark in marks.items():
            c = chr(point)
            assert (nfd("a" + mark + c) == "a" + c + mark) == (value < other or c == mark), hex(point)
    return known


def decompositions():
    """(code point, first, second or 0, whether NFC composes the pair again)."""
    found = []
    for point in ALL:
        if 0xAC00 <= point < 0xD7A4 or nfd(chr(point)) == chr(point):
            continue
        parts = [int(x, 16) for x in unicodedata.decomposition(chr(point)).split()]
        assert 1 <= len(parts) <= 2, hex(point)
        assert nfd(chr(point)) == nfd("".join(map(chr, parts))), hex(point)
        composes = len(parts) == 2 and nfc(chr(parts[0]) + chr(parts[1])) == chr(point)
        found.append((point, parts[0], parts[1] if len(parts) == 2 else 0, composes))
    return found


def check_hangul():
    for point in range(0xAC00, 0xD7A4):
        l, v, t = (point - 0xAC00) // 588, (point - 0xAC00) % 588 // 28, (point - 0xAC00) % 28
        parts = chr(0x1100 + l) + chr(0x1161 + v) + (chr(0x11A7 + t) if t else "")
        assert nfd(chr(point)) == parts and nfc(parts) == chr(point), hex(point)


def table(kind, name, rows):
    return f"const {kind} {name}[] = {{{','.join('{' + r + '}' for r in rows)}}};\n\n"


def range_table(name, points):
    return table("CodeRange", name, (f"{a:#x},{b:#x}" for a, b in ranges(points)))


def text():
    check_hangul()
    classes = splitter_classes()
    assert strip_points() == classes["space"]
    categories = category_ranges()
    of = lambda letter: [p for a, b, name in categories if name[0] == letter for p in range(a, b + 1)]
    assert of("L") == classes["letter"] and of("N") == classes["number"]
    known = combining_classes()
    combining = [(a, b, v) for v in sorted(set(known.values()))
                 for a, b in ranges([p for p in known if known[p] == v])]
    return (
        f"// Made by tests/oracle/unicode_tables.py from tokenizers {tokenizers.__version__}; not to be edited by hand.\n"
        '#include "tokenizer/unicode_tables.h"\n\nnamespace neox::unicode {\n\n'
        + table("CategoryRange", "kCategories", (f'{a:#x},{b:#x},"{name}"' for a, b, name in categories))
        + range_table("kNewerNumbers", newer_numbers(classes["number"])) + range_table("kSpaces", classes["space"])
        + range_table("kHan", points_of(r"\p{Han}")) + range_table("kExpressionWord", points_of(r"\w"))
        + range_table("kWordCharacters", word_points())
        + range_table("kPunctuation", punctuation_points())
        + range_table("kHangul", [*range(0x1161, 0x1176), *range(0x11A8, 0x11C3)])
        + table("CombiningRange", "kCombining", (f"{a:#x},{b:#x},{v}" for a, b, v in sorted(combining)))
        + table("Decomposition", "kDecompositions",
                (f"{p:#x},{a:#x},{b:#x},{str(c).lower()}" for p, a, b, c in decompositions()))
        + table("Compatibility", "kCompatibilities", compatibility_rows())
        + table("LowerCase", "kLowerCases", lowercase_rows())
        + range_table("kAccents", removed_by(normalizers.StripAccents()))
        + range_table("kNonspacing", removed_by(bert(strip_accents=True)))
        + range_table("kControls", removed_by(bert(clean_text=True)))
        + range_table("kExtending", extending_points()) + range_table("kPrepended", prepended_points())
        + table("ScriptRange", "kScripts", (f"{a:#x},{b:#x},{n}" for a, b, n in script_ranges()))
        + "const std::span<const CategoryRange> categories = kCategories;\n"
          "const std::span<const CodeRange> newer_numbers = kNewerNumbers;\n"
          "const std::span<const CodeRange> spaces = kSpaces;\n"
          "const std::span<const CodeRange> han = kHan;\n"
          "const std::span<const CodeRange> expression_word = kExpressionWord;\n"
          "const std::span<const CodeRange> word_characters = kWordCharacters;\n"
          "const std::span<const CodeRange> punctuation = kPunctuation;\n"
          "const std::span<const CodeRange> hangul = kHangul;\n"
          "const std::span<const CombiningRange> combining = kCombining;\n"
          "const std::span<const Decomposition> decompositions = kDecompositions;\n"
          "const std::span<const Compatibility> compatibilities = kCompatibilities;\n"
          "const std::span<const LowerCase> lower_cases = kLowerCases;\n"
          "const std::span<const CodeRange> accents = kAccents;\n"
          "const std::span<const CodeRange> nonspacing = kNonspacing;\n"
          "const std::span<const CodeRange> controls = kControls;\n"
          "const std::span<const CodeRange> extending = kExtending;\n"
          "const std::span<const CodeRange> prepended = kPrepended;\n"
          "const std::span<const ScriptRange> scripts = kScripts;\n\n"
          "}  // namespace neox::unicode\n")


def main():
    args = [a for a in sys.argv[1:] if a != "--check"]
    root = pathlib.Path(__file__).resolve().parents[2]
    path = pathlib.Path(args[0]) if args else root / "lib/tokenizer/unicode_tables.cc"
    if "--check" not in sys.argv:
        path.write_text(text())
        return 0
    squeeze = lambda s: "".join(s.split()).replace("//", "").replace('""', "")  # lines may be broken
    if squeeze(path.read_text()) == squeeze(text()):
        print(f"{path} equals tokenizers {tokenizers.__version__}")
        return 0
    print(f"{path} differs from tokenizers {tokenizers.__version__}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
