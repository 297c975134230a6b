// Prints the rows of a Parquet file as neox-prepare-data reads them.
// Usage: rows_tool FILE THREADS COLUMN...
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <vector>

#include "base/error.h"
#include "prepare/arrow_plugin.h"

int main(int argc, char** argv) try {
  neox::check_usage(argc > 3, "usage: rows_tool FILE THREADS COLUMN...");
  std::vector<std::string> columns(argv + 3, argv + argc);
  auto bytes = static_cast<int64_t>(std::filesystem::file_size(argv[1]));
  auto rows =
      neox::arrow_plugin(argv[1]).open({argv[1], bytes, 0, bytes}, columns, std::atoi(argv[2]));
  std::string text(1 << 20, '\0');
  while (size_t n = rows->read(text)) std::cout.write(text.data(), static_cast<std::streamsize>(n));
  return 0;
} catch (const neox::Error& e) {
  std::cerr << e.what() << "\n";
  return static_cast<int>(e.exit());
}
