#include "base/build_id.h"

#include <elf.h>
#include <link.h>

#include <cstring>
#include <string_view>

#include "base/text.h"

namespace neox {
namespace {

// The description of the note NT_GNU_BUILD_ID in an ELF note segment; notes are 4-byte aligned.
std::string find_build_id(std::string_view notes) {
  while (notes.size() >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) header;
    std::memcpy(&header, notes.data(), sizeof header);
    notes.remove_prefix(sizeof header);
    size_t name = (header.n_namesz + 3) & ~size_t{3}, text = (header.n_descsz + 3) & ~size_t{3};
    if (notes.size() < name + text) return "";
    if (header.n_type == NT_GNU_BUILD_ID && notes.starts_with(std::string_view("GNU\0", 4)))
      return hexadecimal(notes.substr(name, header.n_descsz));
    notes.remove_prefix(name + text);
  }
  return "";
}

// Stops at the first object, which is the program.
int read_program(dl_phdr_info* info, size_t, void* result) {
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_NOTE) continue;
    const auto* start = reinterpret_cast<const char*>(info->dlpi_addr + segment.p_vaddr);
    std::string id = find_build_id({start, segment.p_memsz});
    if (!id.empty()) *static_cast<std::string*>(result) = id;
  }
  return 1;
}

}  // namespace

std::string build_id() {
  std::string id;
  ::dl_iterate_phdr(read_program, &id);
  return id;
}

}  // namespace neox
