// The table of corpora and tokenizers that can be fetched: a YAML file (configs/corpora.yml).
#pragma once
#include <string>
#include <vector>

#include "corpus/download.h"

namespace neox {

struct RegistryEntry {
  std::string name, description, source, licence;
  RemoteFile file;
  std::string file_name;  // under which it is kept, and found on a mirror
  bool archive = false;
  std::vector<std::string> members;  // of the archive; empty: all
  int64_t text_bytes = -1;           // of what is unpacked; -1: not known
  std::string split_on;              // "": a text is one document
};

struct Registry {
  std::vector<RegistryEntry> corpora, tokenizers;
  // Throws Error (64) naming the nearest one.
  const RegistryEntry& corpus(const std::string& name) const;
  const RegistryEntry& tokenizer(const std::string& name) const;
};

// Throws Error (64) with file and line.
Registry read_registry(const fs::path& file);

// configs/corpora.yml where the program is installed, or in the tree that it is built in.
fs::path default_registry();

// For people: name, size, licence and description of each corpus.
std::string table(const Registry& registry);

}  // namespace neox
