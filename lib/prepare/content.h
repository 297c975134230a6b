// What a file holds, by its name and its first bytes.
#pragma once
#include <string>
#include <string_view>

#include "prepare/input_files.h"

namespace neox {

constexpr size_t kHeadBytes = 4096;  // that are looked at

// Whether a file is an archive, compressed, or Parquet or Arrow; throws Error (74) for packed files
// that are not read.
InputFile::Packing packing_of(const std::string& path, std::string_view head);

// Of a file that holds no others, not packed any more. Throws Error (74).
InputFile::Format format_of(const std::string& path, std::string_view head, Separated separated);

bool is_binary(std::string_view head);
// Whether a file, or a member of an archive, is left out since it is binary. JSON lines never are:
// a bad line has a message of its own.
bool is_left_out(const std::string& path, std::string_view head);
// Of a file, before the work begins: throws Error (74) where it is left out and its name says that
// it is text.
void check_is_text(const std::string& path, std::string_view head);

// Its name without the ending of a compression: "a.jsonl" of "a.jsonl.zst", "a.tar" of "a.tgz".
std::string decompressed_name(const std::string& path);

}  // namespace neox
