"""Real text for comparisons: documentation, manual pages, headers and sources that a Debian machine holds."""
import gzip
import hashlib
import os

ROOTS = ["/usr/share/doc", "/usr/share/common-licenses", "/usr/share/man", "/usr/share/perl", "/usr/include", "/usr/lib/python3",
         "/usr/lib/python3.11", "/usr/lib/python3.12", "/usr/lib/python3.13"]
BINARY = (".mo", ".pyc", ".so", ".png", ".gif", ".jpg", ".pdf", ".ps", ".zip", ".jar", ".ttf", ".a", ".o")
LARGEST = 2_000_000


def text_of(path):
    """The file as text, or None."""
    try:
        if os.path.islink(path) or path.endswith(BINARY) or os.path.getsize(path) > LARGEST:
            return None
        with open(path, "rb") as file:
            data = file.read()
        if path.endswith(".gz"):
            data = gzip.decompress(data)
        return None if b"\0" in data or not 64 <= len(data) <= LARGEST else data.decode("utf-8")
    except (OSError, EOFError, ValueError):
        return None


def machine_texts(megabytes):
    """Different texts of together about so many 10^6 bytes, or all there are; the same each time on a machine."""
    found = {}
    for root in ROOTS:
        for folder, subfolders, names in os.walk(root):
            subfolders.sort()
            for name in sorted(names):
                text = text_of(os.path.join(folder, name))
                if text is not None:
                    found.setdefault(hashlib.sha256(text.encode()).digest(), text)
    texts, size = [], 0
    for _, text in sorted(found.items()):  # by their hashes: a mix
        if size >= megabytes * 1_000_000:
            break
        texts.append(text)
        size += len(text.encode())
    return texts
