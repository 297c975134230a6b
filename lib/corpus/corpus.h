// A corpus by its name: fetched, unpacked, and described for prepare_data().
//   DATA/20B_tokenizer.json      where no other tokenizer is named
//   DATA/enwik8/enwik8.zip       as it came
//   DATA/enwik8/text/            unpacked
//   DATA/enwik8/enwik8_text_document.{bin,idx}
#pragma once
#include <string>

#include "corpus/registry.h"
#include "launch/control.h"
#include "prepare/prepare_options.h"

namespace neox {

struct CorpusOptions {
  std::string name;
  fs::path registry;
  fs::path data_path;
  std::string mirror = {};  // address of a directory that has the files
  std::string local = {};   // a file, or a directory that has the files
  enum class Until { kFetched, kPrepared } until = Until::kPrepared;
  DownloadOptions download = {};
};

// Adds the name of a corpus, and the options that go with one.
void add_corpus_options(Program& program);

// data_dir: the value of the variable DATA_DIR, as GPT-NeoX reads it. Throws Error (64).
CorpusOptions read_corpus_options(const Program& program, const std::string& data_dir);

// What --list prints.
std::string table_of_corpora(const Program& program);

// What stands for the options of prepare_data() that are not given.
PrepareDefaults corpus_defaults(const CorpusOptions& corpus);

// Collective: rank 0 brings what is missing of the corpus and of the tokenizer. Opens no socket
// where all is there. Throws Error (64, 74).
void fetch_corpus(const CorpusOptions& corpus, const PrepareOptions& options, Control& control);

}  // namespace neox
