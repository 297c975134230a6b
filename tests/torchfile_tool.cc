// Shows and rewrites PyTorch files, for tests/oracle/torchfile.py.
//   torchfile_tool dump FILE...      one line for each: its tree as JSON, or "error: ..."
//   torchfile_tool pickle FILE       the tree of a pickle alone
//   torchfile_tool rewrite IN OUT    reads a file and writes what it holds
//   torchfile_tool large OUT BYTES   a file with a tensor of that many bytes, each 7, and a small
//   one
#include <algorithm>
#include <iostream>

#include "base/error.h"
#include "base/program.h"
#include "torchfile/tensor.h"
#include "torchfile/torch_file.h"
#include "torchfile/torch_writer.h"
#include "torchfile_dump.h"

namespace {

using namespace neox;
using namespace neox::torchfile;

Item item_of(Value value);

Item::Items items_of(Value value) {
  Item::Items items;
  for (Value item : value.items()) items.push_back(item_of(item));
  return items;
}

Item dict_of(Value value) {
  Item::Entries entries;
  for (const Entry& entry : value.entries())
    entries.emplace_back(item_of(entry.key), item_of(entry.value));
  bool ordered = value.type() == "collections.OrderedDict";
  return ordered ? Item::ordered_dict(std::move(entries)) : Item::dict(std::move(entries));
}

Item item_of(Value value) {
  switch (value.kind()) {
    case Kind::kNone:
      return {};
    case Kind::kBool:
      return value.as_bool();
    case Kind::kInt:
      return value.as_int();
    case Kind::kFloat:
      return value.as_float();
    case Kind::kString:
      return std::string(value.text());
    case Kind::kBytes:
      return Item::bytes(std::string(value.text()));
    case Kind::kList:
      return Item::list(items_of(value));
    case Kind::kTuple:
      return Item::tuple(items_of(value));
    case Kind::kDict:
      return dict_of(value);
    case Kind::kTensor:
      return new_tensor(to_tensor(value.tensor()));
    default:
      fail(Exit::kUsage, "cannot write ", kind_name(value.kind()));
  }
}

void dump(const std::string& path) {
  try {
    TorchFile file{fs::path(path)};
    std::cout << json_of(file.root()).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace)
              << '\n';
  } catch (const Error& error) { std::cout << "error: " << error.what() << '\n'; }
}

void write_large(const std::string& path, int64_t bytes) {
  NewTensor large = {
      DType::kUInt8, {bytes}, [bytes](const NewTensor::Write& write) {
        std::vector<std::byte> piece(1 << 20, std::byte{7});
        for (int64_t left = bytes; left > 0; left -= 1 << 20)
          write(std::span(piece).first(static_cast<size_t>(std::min<int64_t>(left, 1 << 20))));
      }};
  NewTensor small = {DType::kUInt8, {3}, [](const NewTensor::Write& write) {
                       write(std::as_bytes(std::span("abc", 3)));
                     }};
  write_torch_file(path, Item::dict({{"large", large}, {"small", small}}));
}

int run(const std::vector<std::string>& args) {
  std::string what = args.empty() ? "" : args[0];
  if (what == "dump" && args.size() > 1) {
    for (size_t i = 1; i < args.size(); ++i) dump(args[i]);
  } else if (what == "pickle" && args.size() == 2) {
    std::cout << json_of(TorchFile::plain_pickle(args[1]).root()) << '\n';
  } else if (what == "rewrite" && args.size() == 3) {
    TorchFile file{fs::path(args[1])};
    write_torch_file(args[2], item_of(file.root()));
  } else if (what == "large" && args.size() == 3) {
    write_large(args[1], std::stoll(args[2]));
  } else {
    fail(Exit::kUsage,
         "usage: torchfile_tool dump FILE... | pickle FILE | rewrite IN OUT | large OUT BYTES");
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return run_program("torchfile_tool", [&] { return run({argv + 1, argv + argc}); });
}
