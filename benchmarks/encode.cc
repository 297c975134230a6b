// Encodes texts with nothing in the caches; driven by encode.py.
//   encode TOKENIZER TEXTS     TEXTS: frames, a 32-bit length, then that many bytes
// For each line "THREADS" on stdin: encodes all texts on so many new threads and prints seconds,
// CPU seconds and the number of ids. For a line "ids FILE": writes the ids of all texts there as
// frames.
#include <ctime>

#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <iostream>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "base/program.h"
#include "tokenizer/tokenizer.h"

namespace {

using neox::Tokenizer;
using Texts = std::vector<std::string_view>;

Texts frames(std::string_view data) {
  Texts texts;
  for (size_t at = 0; at < data.size();) {
    uint32_t size = 0;
    std::memcpy(&size, data.data() + at, sizeof size);
    texts.push_back(data.substr(at + sizeof size, size));
    at += sizeof size + size;
  }
  return texts;
}

struct Work {
  size_t ids = 0;
  double cpu_seconds = 0;
};

// Texts in runs of about a megabyte, as a thread is free for one.
constexpr size_t kRunBytes = 1 << 20;

Work encode_runs(const Tokenizer& tokenizer, const Texts& texts, const std::vector<size_t>& runs,
                 std::atomic<size_t>& next) {
  Work work;
  std::vector<int32_t> ids;
  for (size_t run; (run = next++) + 1 < runs.size();)
    for (size_t i = runs[run]; i < runs[run + 1]; ++i) {
      ids.clear();
      tokenizer.encode(texts[i], ids);
      work.ids += ids.size();
    }
  timespec cpu;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu);
  work.cpu_seconds = static_cast<double>(cpu.tv_sec) + static_cast<double>(cpu.tv_nsec) * 1e-9;
  return work;
}

// Where runs begin, and the end.
std::vector<size_t> runs_of(const Texts& texts) {
  std::vector<size_t> runs = {0};
  size_t bytes = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    if ((bytes += texts[i].size()) < kRunBytes) continue;
    runs.push_back(i + 1);
    bytes = 0;
  }
  if (runs.back() != texts.size()) runs.push_back(texts.size());
  return runs;
}

void time_once(const Tokenizer& tokenizer, const Texts& texts, size_t threads) {
  std::vector<Work> work(threads);
  std::vector<size_t> runs = runs_of(texts);
  std::atomic<size_t> next = 0;
  auto start = std::chrono::steady_clock::now();
  {
    std::vector<std::jthread> running;
    for (size_t i = 0; i < threads; ++i)
      running.emplace_back([&, i] { work[i] = encode_runs(tokenizer, texts, runs, next); });
  }
  std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  Work sum;
  for (const Work& one : work) sum.ids += one.ids, sum.cpu_seconds += one.cpu_seconds;
  std::cout << seconds.count() << ' ' << sum.cpu_seconds << ' ' << sum.ids << std::endl;
}

void write_ids(const Tokenizer& tokenizer, const Texts& texts, const std::string& path) {
  std::ofstream out(path, std::ios::binary);
  for (std::string_view text : texts) {
    std::vector<int32_t> ids = tokenizer.encode(text);
    auto bytes = static_cast<uint32_t>(ids.size() * sizeof(int32_t));
    out.write(reinterpret_cast<const char*>(&bytes), sizeof bytes);
    out.write(reinterpret_cast<const char*>(ids.data()), bytes);
  }
  neox::check_io(out.flush().good(), path, ": could not be written");
  std::cout << "written" << std::endl;
}

int run(const std::vector<std::string>& args) {
  neox::check_usage(args.size() == 2, "usage: encode TOKENIZER TEXTS");
  Tokenizer tokenizer = Tokenizer::from_json(args[0]);
  std::string data = neox::read_file(args[1]);
  Texts texts = frames(data);
  for (std::string line; std::getline(std::cin, line);) {
    if (line.starts_with("ids "))
      write_ids(tokenizer, texts, line.substr(4));
    else
      time_once(tokenizer, texts, std::stoul(line));
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return neox::run_program("encode", [&] { return run({argv + 1, argv + argc}); });
}
