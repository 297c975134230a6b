#include "torchfile/torch_file.h"

#include <sys/mman.h>

#include <algorithm>

#include "base/error.h"
#include "torchfile/bytes.h"
#include "torchfile/document.h"
#include "torchfile/pickle.h"
#include "torchfile/zip_reader.h"

namespace neox::torchfile {
namespace {

constexpr std::string_view kLegacyMagic{"\x8a\x0al\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", 12};

// Names the formats that people may take for this one.
void check_is_zip(std::string_view text, const std::string& file) {
  if (text.starts_with("PK")) return;
  bool legacy = text.size() > 2 && text[0] == '\x80' && text.substr(2).starts_with(kLegacyMagic);
  bool tar = text.size() > 262 && text.substr(257, 5) == "ustar";
  constexpr const char* kDo =
      "; load it with PyTorch (torch.load) and save it again (torch.save): files of PyTorch 1.6 "
      "and later are read";
  check_io(!legacy, file, ": is in torch.save's format of before PyTorch 1.6", kDo);
  check_io(!tar, file, ": is a tar archive, torch.save's format of before PyTorch 0.2", kDo);
  check_io(!text.starts_with("\x80"), file, ": is a pickle, not a file of torch.save", kDo);
  check_io(!text.empty(), file, ": is empty");
  fail(Exit::kIo, file, ": is not a file of torch.save: it does not begin as a zip file");
}

}  // namespace

TorchFile::TorchFile(const fs::path& path)
    : name_(path.string()), file_(path, MappedFile::Access::kSequential) {
  read(file_.bytes());
}

TorchFile::TorchFile(std::span<const std::byte> bytes, std::string name) : name_(std::move(name)) {
  read(bytes);
}

TorchFile::TorchFile(TorchFile&&) noexcept = default;
TorchFile& TorchFile::operator=(TorchFile&&) noexcept = default;
TorchFile::~TorchFile() = default;

TorchFile TorchFile::plain_pickle(const fs::path& path) {
  TorchFile file;
  file.name_ = path.string();
  file.file_ = MappedFile(path);
  file.document_ = std::make_unique<Document>();
  Records none = {[&](std::string_view key) -> std::span<const std::byte> {
    fail(Exit::kIo, file.name_, ": a pickle alone has no storage ", key);
  }};
  file.root_ = read_pickle(file.file_.bytes(), file.name_, none, *file.document_);
  return file;
}

void TorchFile::read(std::span<const std::byte> bytes) {
  check_is_zip(text(bytes), name_);
  auto records = read_zip(bytes, name_);
  constexpr std::string_view kPickle = "data.pkl";
  auto pickle = std::find_if(records.begin(), records.end(), [&](const auto& record) {
    return record.first.ends_with("/data.pkl") &&
           record.first.find('/') == record.first.size() - kPickle.size() - 1;
  });
  check_io(pickle != records.end(), name_,
           ": is a zip file, but has no data.pkl: not torch.save's");
  std::string top = pickle->first.substr(0, pickle->first.size() - kPickle.size());
  check_io(!records.contains(top + "constants.pkl"), name_,
           ": is a TorchScript program; save its state_dict() with torch.save");
  auto order = records.find(top + "byteorder");
  std::string_view name = order == records.end() ? "little" : text(order->second.bytes);
  check_io(name == "little" || name == "big", name_, ": its byteorder is neither little nor big");
  Records data = {[&](std::string_view key) {
                    auto found = records.find(concat(top, "data/", key));
                    check_io(found != records.end(), name_, ": the record data/", key,
                             " is missing");
                    return found->second.bytes;
                  },
                  name == "big"};
  document_ = std::make_unique<Document>();
  root_ = read_pickle(pickle->second.bytes, name_, data, *document_);
}

Value TorchFile::at(std::string_view path) const {
  try {
    return root_.at(path);
  } catch (const Error& error) { fail(error.exit(), name_, ": ", error.what()); }
}

void TorchFile::release_memory() const {
  std::span<const std::byte> mapped = file_.bytes();
  if (!mapped.empty())
    ::madvise(const_cast<std::byte*>(mapped.data()), mapped.size(), MADV_DONTNEED);
}

}  // namespace neox::torchfile
