// The table of corpora and tokenizers that can be fetched: a YAML file (configs/corpora.yml, whose
// head says what each key means).
#pragma once
#include <string>
#include <vector>

#include "corpus/download.h"

namespace neox {

struct RegistryEntry {
  std::string name;  // "wikipedia-{language}" is one corpus for each language
  std::string description, source, licence;
  std::string dead;               // why its addresses answer no more, and what to do; "": they do
  std::vector<std::string> urls;  // each of all files, "http://x/{00..29}.zst"; tried in this order
  std::vector<int64_t> bytes;     // of each file; empty: not known
  std::vector<std::string> sha256;       // likewise
  int64_t download_bytes = -1;           // of all files together, about; -1: not known
  int64_t text_bytes = -1, tokens = -1;  // in them, about
  std::vector<std::string> keys;         // of the JSON lines; empty: those of the command line
  std::string split_on;                  // "": a text is one document
};

struct RegistryFile {
  std::string name;  // under which it is kept, and found on a mirror
  RemoteFile remote;
};

// The files of an entry in the order of the text; none where they are the user's own.
std::vector<RegistryFile> files_of(const RegistryEntry& entry);

struct Registry {
  std::vector<RegistryEntry> corpora, tokenizers;
  // "wikipedia-de" is that of wikipedia-{language} for de. Throws Error (64) naming the nearest
  // one.
  RegistryEntry corpus(const std::string& name) const;
  // None: the table has no such file.
  const RegistryEntry* tokenizer(const std::string& name) const;
};

// Throws Error (64) with file and line.
Registry read_registry(const fs::path& file);

// configs/corpora.yml where the program is installed, or in the tree that it is built in.
fs::path default_registry();

// For people, up to 100 columns wide: each corpus, its sizes, tokens, licence and what it is.
std::string table(const Registry& registry);

// "a{08..10}" is a08, a09, a10; a text without a counter is itself. Throws Error (64).
std::vector<std::string> expand(const std::string& pattern);

// "0-2,7" of 10 files is 0 1 2 7; "" is all. Throws Error (64).
std::vector<size_t> parse_shards(const std::string& text, size_t count);

}  // namespace neox
