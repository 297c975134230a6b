#!/usr/bin/env python3
"""Writes lib/wiki/tables.cc: characters and HTML entities as Python sees them, whose `re` and `str` wikiextractor works with.

Usage: wiki_tables.py [--check] [FILE]      (default: lib/wiki/tables.cc of this tree)

  word       \\w of re: str.isalnum() and "_"
  upper, lower   str.upper(), str.lower() of one character: runs of equal distance, and characters that become several
  digits     zeros of decimal digits, behind each of which stand those for 1 to 9: what int() and float() read
  entities   html.entities.name2codepoint, the names of HTML 4
--check compares the file with this Python, whose Unicode must be that of Python 3.11 (14.0), instead of writing it.
"""
import html.entities
import pathlib
import sys
import unicodedata

ALL = [i for i in range(0x110000) if not 0xD800 <= i < 0xE000]


def word_ranges():
    found = []
    for point in ALL:
        if chr(point).isalnum() or point == ord("_"):
            if found and found[-1][1] == point - 1:
                found[-1][1] = point
            else:
                found.append([point, point])
    return found


def digit_zeros():
    zeros = [point for point in ALL if unicodedata.decimal(chr(point), None) == 0]
    assert all(unicodedata.decimal(chr(zero + i)) == i for zero in zeros for i in range(10))
    return zeros


def case_runs(change):
    """(first, last, step, distance) of characters that become one, and those that become several."""
    runs, several = [], []
    for point in ALL:
        to = change(chr(point))
        if len(to) > 1:
            several.append((point, to))
        elif ord(to) != point:
            distance = ord(to) - point
            last = runs[-1] if runs else None
            if last and last[3] == distance and point - last[1] in (1, 2) and last[2] in (0, point - last[1]):
                last[2] = point - last[1]
                last[1] = point
            else:
                runs.append([point, point, 0, distance])
    return runs, several


def rows(items, width=100):
    lines, line = [], "   "
    for item in items:
        if len(line) + len(item) + 2 > width:
            lines.append(line)
            line = "   "
        line += f" {item},"
    return "\n".join(lines + [line])


def utf8(text):
    return '"' + "".join(f"\\x{byte:02x}" for byte in text.encode()) + '"'


def source():
    runs = {"upper": case_runs(str.upper), "lower": case_runs(str.lower)}
    out = ["// Characters and HTML entities as Python's `re`, `str` and `html` know them. Written by",
           "// tests/oracle/wiki_tables.py.", '#include "wiki/tables.h"', "", "namespace neox::wiki {", "",
           "// clang-format off", "const std::vector<WordRange> kWordRanges = {",
           rows("{0x%x, 0x%x}" % tuple(r) for r in word_ranges()), "};"]
    for name, (run, several) in runs.items():
        out += ["", f"const std::vector<CaseRun> k{name.title()}Runs = {{",
                rows("{0x%x, 0x%x, %d, %d}" % (a, b, max(s, 1), d) for a, b, s, d in run), "};", "",
                f"const std::vector<CaseString> k{name.title()}Strings = {{",
                rows(f"{{0x{point:x}, {utf8(to)}}}" for point, to in several), "};"]
    out += ["", "const std::vector<char32_t> kDigitZeros = {", rows("0x%x" % zero for zero in digit_zeros()), "};"]
    out += ["", "const std::vector<Entity> kEntities = {",
            rows(f'{{"{name}", 0x{code:x}}}' for name, code in sorted(html.entities.name2codepoint.items())), "};",
            "// clang-format on", "", "}  // namespace neox::wiki", ""]
    return "\n".join(out)


def main():
    args = [a for a in sys.argv[1:] if a != "--check"]
    path = pathlib.Path(args[0] if args else pathlib.Path(__file__).resolve().parents[2] / "lib/wiki/tables.cc")
    if "--check" not in sys.argv:
        path.write_text(source())
    elif unicodedata.unidata_version != "14.0.0":
        print(f"not compared: this Python has Unicode {unicodedata.unidata_version}, the tables 14.0.0")
    elif path.read_text() != source():
        sys.exit(f"{path} differs from this Python; run {pathlib.Path(__file__).name}")
    else:
        print(f"{path.name}: as Python {sys.version.split()[0]}")


if __name__ == "__main__":
    main()
