// Puts the tokenizer and its trainer at the disposal of the scripts in tests/oracle. Texts come on
// stdin and results go to stdout as frames: a 32-bit length, then that many bytes.
//   tokenizer_tool json FILE            for each text: ids (32-bit), decoded text without and with
//   tokenizer_tool gpt2 VOCAB MERGES    special tokens
//   tokenizer_tool spm FILE
//   tokenizer_tool tiktoken FILE [OUT]        OUT: writes its tokenizer.json there instead
//   tokenizer_tool train DIR SIZE MIN_FREQUENCY none|nfc THREADS [SPECIAL...]
//       writes tokenizer.json, vocab.json and merges.txt in DIR, learnt from the texts; prints (no
//       frame) the seconds that reading and learning took, and their CPU time
//   tokenizer_tool bench FILE TEXT REPEATS    seconds to load; best seconds to encode TEXT once
#include <chrono>
#include <ctime>
#include <iostream>
#include <limits>

#include "base/error.h"
#include "base/file.h"
#include "base/program.h"
#include "tokenizer/bpe_trainer.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_files.h"

namespace {

using neox::Tokenizer;

bool read_frame(std::string& text) {
  uint32_t size = 0;
  if (!std::cin.read(reinterpret_cast<char*>(&size), sizeof size)) return false;
  text.resize(size);
  return static_cast<bool>(std::cin.read(text.data(), size));
}

void write_frame(const void* data, size_t bytes) {
  auto size = static_cast<uint32_t>(bytes);
  std::cout.write(reinterpret_cast<const char*>(&size), sizeof size);
  std::cout.write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes));
}

void encode_frames(const Tokenizer& tokenizer) {
  for (std::string text; read_frame(text);) {
    std::vector<int32_t> ids = tokenizer.encode(text);
    write_frame(ids.data(), ids.size() * sizeof(int32_t));
    for (auto special : {Tokenizer::Special::kSkip, Tokenizer::Special::kKeep}) {
      std::string decoded = tokenizer.decode(ids, special);
      write_frame(decoded.data(), decoded.size());
    }
  }
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void train_on_frames(const std::vector<std::string>& args) {
  using Normalizer = neox::BpeTrainerConfig::Normalizer;
  neox::BpeTrainerConfig config{
      .vocab_size = std::stoll(args[2]),
      .min_frequency = std::stoll(args[3]),
      .normalizer = args[4] == "nfc" ? Normalizer::kNfc : Normalizer::kNone,
      .num_threads = std::stoi(args[5])};
  if (args.size() > 6) config.special_tokens = {args.begin() + 6, args.end()};
  auto start = std::chrono::steady_clock::now();
  neox::TrainedBpe trained = neox::train_bpe(config, read_frame);
  std::cout << seconds_since(start) << ' ' << double(std::clock()) / CLOCKS_PER_SEC << '\n';
  std::filesystem::path dir = args[1];
  neox::write_tokenizer_json(dir / "tokenizer.json", trained);
  neox::write_gpt2_files(dir / "vocab.json", dir / "merges.txt", trained);
}

void bench(const std::string& file, const std::string& path, int repeats) {
  auto start = std::chrono::steady_clock::now();
  Tokenizer tokenizer = Tokenizer::from_json(file);
  std::cout << seconds_since(start) << '\n';
  std::string text = neox::read_file(path);
  double best = std::numeric_limits<double>::max();
  for (int i = 0; i < repeats; ++i) {
    start = std::chrono::steady_clock::now();
    tokenizer.encode(text);
    best = std::min(best, seconds_since(start));
  }
  std::cout << best << '\n';
}

int run(const std::vector<std::string>& args) {
  std::ios::sync_with_stdio(false);
  if (args.size() == 2 && args[0] == "json") {
    encode_frames(Tokenizer::from_json(args[1]));
  } else if (args.size() == 2 && args[0] == "spm") {
    encode_frames(Tokenizer::from_sentencepiece(args[1]));
  } else if (args.size() == 2 && args[0] == "tiktoken") {
    encode_frames(Tokenizer::from_tiktoken(args[1]));
  } else if (args.size() == 3 && args[0] == "tiktoken") {
    neox::write_file_atomically(args[2], neox::tokenizer_json_of(neox::read_tiktoken(args[1])));
  } else if (args.size() == 3 && args[0] == "gpt2") {
    encode_frames(Tokenizer::from_gpt2(args[1], args[2]));
  } else if (args.size() >= 6 && args[0] == "train") {
    train_on_frames(args);
  } else if (args.size() == 4 && args[0] == "bench") {
    bench(args[1], args[2], std::stoi(args[3]));
  } else {
    neox::fail(neox::Exit::kUsage, "unknown command; see the head of tokenizer_tool.cc");
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return neox::run_program("tokenizer_tool", [&] { return run({argv + 1, argv + argc}); });
}
