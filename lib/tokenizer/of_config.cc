#include "tokenizer/of_config.h"

#include <utility>

#include "base/error.h"
#include "base/file.h"

namespace neox {

namespace fs = std::filesystem;

std::unique_ptr<Tokenizer> load_tokenizer(const Config& config) {
  const TokenizerConfig& t = config.tokenizer;
  bool has_files = Tokenizer::reads_files(t.type);
  if (has_files && t.vocab_file.empty()) return nullptr;
  for (auto [key, file] : {std::pair{"vocab_file", t.vocab_file}, {"merge_file", t.merge_file}})
    check_io(!has_files || file.empty() || is_found(file), config.where(key), ": ", key, " names ",
             file.string(), ", which does not exist",
             file.is_absolute() ? "" : " from " + fs::current_path().string(),
             "; say where the tokenizer is: vocab_file, or --vocab-file in generating");
  return std::make_unique<Tokenizer>(Tokenizer::of_type(t.type, t.vocab_file, t.merge_file));
}

void follow_tokenizer(TokenizerConfig& tokenizer, const fs::path& dir) {
  const fs::path was = tokenizer.vocab_file, now = dir / was.filename();
  std::error_code error;  // of a place that another user alone may look at
  bool ours = !was.empty() && was.parent_path().filename() == dir.filename();
  if (!ours || fs::exists(was, error) || !fs::exists(now, error)) return;
  tokenizer.vocab_file = now;
  if (!tokenizer.merge_file.empty()) tokenizer.merge_file = dir / tokenizer.merge_file.filename();
}

}  // namespace neox
