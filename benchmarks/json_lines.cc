// MB/s of JSON lines to documents by one thread, and of nlohmann::json for the same lines, in turn.
//   json_lines [FILE]       without a file: ASCII text of about 4 KB a line with a few escapes
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>

#include "base/text.h"
#include "prepare/documents.h"

namespace {

using namespace neox;

std::string make_lines(size_t bytes) {
  std::mt19937 random(1);
  std::string text;
  while (text.size() < bytes) {
    text += "{\"id\": " + std::to_string(random() % 100000) +
            ", \"meta\": {\"a\": [1, true]}, \"text\": \"";
    for (size_t words = 100 + random() % 1400; words > 0; --words)
      text += std::string(2 + random() % 9, static_cast<char>('a' + random() % 26)) +
              (random() % 15 == 0    ? ".\\n"
               : random() % 100 == 0 ? " \\\""
                                     : " ");
    text += "\"}\n";
  }
  return text;
}

std::vector<Block> blocks_of(const std::string& text) {
  auto file = std::make_shared<InputFile>(InputFile{"f", InputFile::Format::kJsonLines});
  std::vector<Block> blocks;
  for (size_t at = 0; at < text.size();) {
    size_t end =
        text.find('\n', std::min(at + static_cast<size_t>(BlockReader::kBlockBytes), text.size()));
    end = end == std::string::npos ? text.size() : end + 1;
    blocks.push_back({.file = file, .text = text.substr(at, end - at)});
    at = end;
  }
  return blocks;
}

// Of the time that this thread computed, which other work on the machine does not spoil.
double megabytes_per_second(size_t bytes, const std::function<size_t()>& work) {
  auto now = [] {
    timespec t;
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  };
  double begin = now();
  size_t found = work();
  double seconds = now() - begin;
  if (found == 0) std::puts("no text");
  return 1e-6 * static_cast<double>(bytes) / seconds;
}

size_t by_parse_block(const std::vector<Block>& blocks) {
  size_t bytes = 0;
  for (const Block& block : blocks)
    for (const Document& document : parse_block(block, {}).documents)
      bytes += document.texts[0].size();
  return bytes;
}

size_t by_nlohmann(const std::vector<Block>& blocks) {
  size_t bytes = 0;
  for (const Block& block : blocks)
    for (const std::string& line : split(block.text, '\n'))
      if (!line.empty())
        bytes += nlohmann::json::parse(line)["text"].get_ref<std::string&>().size();
  return bytes;
}

void print(const char* name, std::vector<double> rates) {
  std::sort(rates.begin(), rates.end());
  std::printf("%-12s %6.0f MB/s   (%.0f .. %.0f)\n", name, rates[rates.size() / 2], rates.front(),
              rates.back());
}

}  // namespace

int main(int argc, char** argv) {
  std::string text = argc > 1 ? read_file(argv[1]) : make_lines(50'000'000);
  std::vector<Block> blocks = blocks_of(text);
  std::vector<double> ours, peer;
  for (int i = 0; i < 7; ++i) {
    ours.push_back(megabytes_per_second(text.size(), [&] { return by_parse_block(blocks); }));
    if (i % 2 == 0)
      peer.push_back(megabytes_per_second(text.size(), [&] { return by_nlohmann(blocks); }));
  }
  print("parse_block", ours);
  print("nlohmann", peer);
}
