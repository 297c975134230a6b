// Parts of the programs that are libraries of their own, since they link what few runs need: they
// are loaded when they are needed.
#pragma once
#include <string>

namespace neox {

// In lib/neox of the installed tree. All link libraries of Apache Arrow, out of pyarrow's wheel.
struct PluginFile {
  const char* name;       // "libneox_arrow.so"
  const char* entry;      // the function that gives its table
  const char* interface;  // a hash of the headers that the program was compiled with
};

// What the entry returns, whose first member must be the interface. The library's symbols are its
// own: Arrow's libraries hold others of which the programs have another version. Throws Error (74)
// that begins with `purpose`, "a.parquet is read with Apache Arrow", and says what is missing.
const void* load_plugin(const PluginFile& file, const std::string& purpose);

}  // namespace neox
