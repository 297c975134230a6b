// A corpus by its name: fetched, and described for prepare_data(), which reads its files as they
// came.
//   DATA/20B_tokenizer.json      where no other tokenizer is named
//   DATA/pile/00.jsonl.zst ...   as they came
//   DATA/pile/pile_text_document.{bin,idx}
#pragma once
#include <string>

#include "base/error.h"
#include "corpus/registry.h"
#include "launch/control.h"
#include "prepare/prepare_options.h"

namespace neox {

struct CorpusOptions {
  std::string name;          // "": none is asked for
  fs::path registry = {};    // the table named on the command line; "": the project's
  RegistryEntry entry = {};  // of that name
  fs::path data_path = {};
  std::string shards = {};  // "0-3,7": these of its files; "": all
  std::string mirror = {};  // address of a directory that has the files
  std::string local = {};   // a file, or a directory that has the files
  enum class Until { kFetched, kPrepared } until = Until::kPrepared;
  DownloadOptions download = {};
};

// Adds the name of a corpus, and the options that go with one.
void add_corpus_options(Program& program);

// The table of corpora that the command line names, or the project's.
fs::path registry_of(const Program& program);

// data_dir: the value of the variable DATA_DIR, as GPT-NeoX reads it. Throws Error (64).
CorpusOptions read_corpus_options(const Program& program, const std::string& data_dir);

// What --list prints.
std::string table_of_corpora(const Program& program);

// What --check prints: which addresses of the corpora named answer, of all where none is named. An
// address is given up after so many seconds.
struct CorpusCheck {
  std::string text;
  Exit exit = Exit::kDone;  // kIo where no address of a corpus answers
};
CorpusCheck check_corpora(const Program& program, double seconds = 8);

// What stands for the options of prepare_data() that are not given. Throws Error (64, 74).
PrepareDefaults corpus_defaults(const CorpusOptions& corpus);

// Collective: rank 0 brings what is missing of the corpus and of the tokenizer. Opens no socket
// where all is there. Throws Error (64, 74).
void fetch_corpus(const CorpusOptions& corpus, const PrepareOptions& options, Control& control);

}  // namespace neox
