#!/usr/bin/env python3
"""Mixed real text for benchmarks, as JSON lines, from what any Debian machine holds; the same bytes each time on one machine.

Usage: make_corpus.py FILE [--mb 200]
Documents stand in the order of their SHA-256, so that any first part is a fair mix.
"""
import argparse
import collections
import gzip
import hashlib
import json
import os

# name: (share of the size, roots, endings or None). What one kind cannot fill goes to the others.
KINDS = {
    "documentation": (0.34, ["/usr/share/doc", "/usr/share/common-licenses", "/usr/share/info"], None),
    "headers": (0.22, ["/usr/include"], None),
    "python": (0.20, ["/usr/lib/python3", "/usr/lib/python3.11", "/usr/lib/python3.12", "/usr/lib/python3.13"],
               (".py", ".pyi", ".txt", ".rst", ".md")),
    "perl": (0.08, ["/usr/share/perl", "/usr/share/perl5"], (".pm", ".pl", ".pod", ".txt")),
    "manuals": (0.10, ["/usr/share/man"], None),
    "translated manuals": (0.06, ["/usr/share/man"], None),
}
SKIPPED = (".mo", ".po", ".pyc", ".so", ".png", ".gif", ".jpg", ".svgz", ".pdf", ".ps", ".zip", ".jar", ".ttf", ".bin", ".a", ".o")
LEAST, MOST = 64, 2_000_000  # bytes of a document


def files(roots):
    for root in roots:
        for folder, below, names in os.walk(root):
            below.sort()
            for name in sorted(names):
                path = os.path.join(folder, name)
                if not os.path.islink(path) and not name.endswith(SKIPPED):
                    yield path


def text_of(path):
    """The file's bytes, or None where they are no UTF-8 text of a fitting size."""
    try:
        if os.path.getsize(path) > MOST:
            return None
        with open(path, "rb") as f:
            raw = f.read()
        raw = gzip.decompress(raw) if path.endswith(".gz") else raw
        raw.decode("utf-8")
    except (OSError, EOFError, ValueError):
        return None
    return raw if LEAST <= len(raw) <= MOST and b"\0" not in raw else None


def is_of(kind, path):
    _, roots, endings = KINDS[kind]
    if endings and not path.endswith(endings):
        return False
    if roots != ["/usr/share/man"]:
        return True
    english = os.path.relpath(path, roots[0]).split("/")[0].startswith("man")
    return english == (kind == "manuals")


def collect():
    """kind -> [(digest, text)], each text once."""
    seen, found = set(), collections.defaultdict(list)
    for kind, (_, roots, _) in KINDS.items():
        for path in files(roots):
            text = text_of(path) if is_of(kind, path) else None
            digest = text and hashlib.sha256(text).digest()
            if text and digest not in seen:
                seen.add(digest)
                found[kind].append((digest, text))
    return found


def quotas(found, wanted):
    """Bytes of each kind: the small ones whole, the rest by shares."""
    have = {kind: sum(len(t) for _, t in texts) for kind, texts in found.items()}
    quota, left, rest = {}, wanted, set(found)
    while rest:
        total = sum(KINDS[k][0] for k in rest)
        small = [k for k in rest if have[k] <= left * KINDS[k][0] / total]
        if not small:
            quota.update({k: left * KINDS[k][0] / total for k in rest})
            break
        for k in small:
            quota[k] = have[k]
            left -= have[k]
            rest.discard(k)
    return quota


def documents(wanted):
    found, chosen = collect(), []
    for kind, quota in sorted(quotas(found, wanted).items()):
        used = 0
        for digest, text in sorted(found[kind]):
            if used >= quota:
                break
            chosen.append((digest, text))
            used += len(text)
    return [text for _, text in sorted(chosen)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--mb", type=float, default=200, help="10^6 bytes of text")
    options = parser.parse_args()
    texts, whole = documents(options.mb * 1e6), hashlib.sha256()
    with open(options.file, "wb") as out:
        for text in texts:
            line = json.dumps({"text": text.decode()}, ensure_ascii=False).encode() + b"\n"
            out.write(line)
            whole.update(line)
    size, high = sum(map(len, texts)), sum(not t.isascii() for t in texts)
    print(f"{options.file}: {len(texts)} documents, {size / 1e6:.1f} MB of text, {high} of them not ASCII, "
          f"SHA-256 {whole.hexdigest()[:16]}")


if __name__ == "__main__":
    main()
