#!/usr/bin/env python3
"""Compares the extraction of articles from MediaWiki dumps with wikiextractor 3.1.0, on pages made by wiki_pages.py.

Usage: wiki.py WIKI_TOOL [--pages N] [--seed S] [--show N]     compares, line by line of the texts; fails below 98 %
       wiki.py WIKI_TOOL --dump FILE                           the same for a dump of yours
       wiki.py WIKI_TOOL --speed [--dump FILE]                 times both on one thread, in turns, on plain articles
       wiki.py --golden                                        writes tests/golden/wiki.json
"""
import argparse
import difflib
import io
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import types

import wikiextractor.WikiExtractor as program
from wikiextractor import extract
from wiki_pages import chosen_pages, dump, plain_pages, random_pages

NOW = "2024-02-03 04:05:06"  # of {{CURRENTYEAR}} and its like in the golden texts
GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden/wiki.json"


class Peer:
    """wikiextractor on a dump, in this process: what its program does, without its processes."""

    def __init__(self, path):
        self.path = path
        text = pathlib.Path(path).read_text(encoding="utf-8")
        head = text[:text.find("</siteinfo>")]
        base = re.search(r"<base>([^<]*)", head).group(1)
        self.urlbase = base[:base.rfind("/")]
        program.templateNamespace = re.search(r'key="10"[^>]*>([^<]*)', head).group(1)
        namespaces = set(re.findall(r"<namespace[^>]*>([^<]*)", head)) | {"Template"}
        self.templates, self.redirects = {}, {}
        with open(path, encoding="utf-8") as file:
            program.load_templates(file, templates=self.templates, redirects=self.redirects,
                                   template_prefix=program.templateNamespace + ":")
        self.options = dict(templates=self.templates, redirects=self.redirects, to_json=True, knownNamespaces=namespaces,
                            templatePrefix=program.templateNamespace + ":",
                            ignored_tag_patterns=[*extract._DEFAULT_IGNORED_TAG_PATTERNS, extract.ignoreTag("a")])

    def articles(self):
        with open(self.path, encoding="utf-8") as file:
            for number, revision, title, lines in program.collect_pages(file):
                out = io.StringIO()
                try:
                    extract.Extractor(number, revision, self.urlbase, title, lines, **self.options).extract(out)
                except RecursionError:
                    yield {"id": number, "title": title, "text": None}
                    continue
                yield json.loads(out.getvalue())


def ours(tool, path):
    output = subprocess.run([tool, path], check=True, capture_output=True).stdout
    return [json.loads(line) for line in output.splitlines()]


def as_read(text):
    """As readers of wikiextractor's JSON take lone surrogates."""
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace") if text.isascii() else re.sub("[\ud800-\udfff]", "?", text)


def compare(tool, path, show):
    peer, mine = list(Peer(path).articles()), ours(tool, path)
    same_pages = [p["id"] for p in peer] == [m["id"] for m in mine]
    lines = equal = articles = shown = 0
    for theirs, our in zip(peer, mine):
        if theirs["text"] is None:
            continue
        articles += 1
        expected, found = as_read(theirs["text"]).split("\n"), our["text"].split("\n")
        lines += len(expected)
        fields = all(theirs[key] == our[key] for key in ("id", "revid", "url", "title"))
        match = difflib.SequenceMatcher(None, expected, found, autojunk=False)
        here = sum(block.size for block in match.get_matching_blocks()) if fields else 0
        equal += min(here, len(expected))
        if shown < show and (not fields or expected != found):
            shown += 1
            print(f"--- {our['id']} {our['title']}")
            print("\n".join(difflib.unified_diff(expected, found, "wikiextractor", "neox", lineterm="", n=0)))
    share = equal / lines if lines else 0
    print(f"{articles} articles, {lines} lines, {equal} equal: {100 * share:.3f} %" + ("" if same_pages else "; other pages"))
    return same_pages and share >= .98


def speed(tool, path):
    bytes_read = pathlib.Path(path).stat().st_size
    rates = {"wikiextractor": [], "neox": []}
    for _ in range(3):
        peer = Peer(path)
        start = time.process_time()
        for _ in peer.articles():
            pass
        rates["wikiextractor"].append(bytes_read / (time.process_time() - start) / 1e6)
        seconds = subprocess.run([tool, "bench", path], check=True, capture_output=True, text=True).stdout.split()
        rates["neox"].append(bytes_read / float(seconds[1]) / 1e6)
    for name, rate in rates.items():
        print(f"{name}: {min(rate):.2f} .. {max(rate):.2f} MB/s of dump on one thread")
    print(f"ratio of the best: {max(rates['neox']) / max(rates['wikiextractor']):.0f}")


def write_golden():
    pages = chosen_pages()
    extract.time = types.SimpleNamespace(strftime=lambda form: time.strftime(form, time.strptime(NOW, "%Y-%m-%d %H:%M:%S")))
    text = dump(pages)
    with tempfile.NamedTemporaryFile("w", suffix=".xml", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        articles = list(Peer(file.name).articles())
    for article in articles:
        article["text"] = as_read(article["text"])
    GOLDEN.write_text(json.dumps({"dump": text.split("\n"), "articles": articles}, ensure_ascii=False, indent=0) + "\n",
                      encoding="utf-8")
    print(f"{GOLDEN}: {len(articles)} articles of {len(pages)} pages")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tool", nargs="?")
    parser.add_argument("--pages", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, default=5)
    parser.add_argument("--dump")
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--golden", action="store_true")
    options = parser.parse_args()
    if options.golden:
        return write_golden()
    with tempfile.TemporaryDirectory() as directory:
        path = options.dump or f"{directory}/dump.xml"
        if not options.dump:
            chosen = [p for p in chosen_pages() if "<ns>10</ns>" not in p]
            pages = plain_pages(options.seed, 200) if options.speed else random_pages(options.seed, options.pages) + chosen
            pathlib.Path(path).write_text(dump(pages), encoding="utf-8")
        if options.speed:
            return speed(options.tool, path)
        if not compare(options.tool, path, options.show):
            sys.exit("fewer than 98 % of the lines are equal, or other pages were taken")


if __name__ == "__main__":
    main()
