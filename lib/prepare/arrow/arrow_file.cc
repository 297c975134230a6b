#include <arrow/buffer.h>
#include <arrow/io/file.h>
#include <arrow/ipc/dictionary.h>
#include <arrow/ipc/message.h>
#include <arrow/ipc/options.h>
#include <arrow/ipc/reader.h>
#include <arrow/type.h>

#include <algorithm>

#include "base/error.h"
#include "prepare/arrow/row_file.h"

namespace neox {
namespace {

using arrow::ipc::Message;
using arrow::ipc::MessageType;
using namespace std::string_view_literals;

constexpr const char* kAs = "an Arrow file";
constexpr std::string_view kMagic = "ARROW1\0\0"sv;  // of the format for files
constexpr std::string_view kEnd = "\xff\xff\xff\xff\0\0\0\0"sv;

using Messages = std::vector<std::shared_ptr<const Message>>;

// Gives these messages, without copies of what they hold.
class TheseMessages : public arrow::ipc::MessageReader {
 public:
  explicit TheseMessages(Messages messages) : messages_(std::move(messages)) {}
  arrow::Result<std::unique_ptr<Message>> ReadNextMessage() override {
    if (next_ == messages_.size()) return std::unique_ptr<Message>();
    const Message& message = *messages_[next_++];
    return Message::Open(message.metadata(), message.body());
  }

 private:
  Messages messages_;
  size_t next_ = 0;
};

// Arrow's IPC formats 1.0: for streams, which Hugging Face's datasets writes, and for files, which
// is the same between a magic number and a table of contents. Each record batch is a group.
class ArrowFile : public RowFile {
 public:
  explicit ArrowFile(const std::string& path) : path_(path) {
    auto file =
        value_of(arrow::io::MemoryMappedFile::Open(path, arrow::io::FileMode::READ), path, kAs);
    bool has_contents = bytes_at(*file, 0) == kMagic;
    if (has_contents) check(file->Seek(static_cast<int64_t>(kMagic.size())));
    read_messages(file);
    int64_t end = value_of(file->Tell(), path_, kAs);
    if (!schema_ || bytes_at(*file, end - static_cast<int64_t>(kEnd.size())) != kEnd)
      fail_reading(path_, kAs, "it has no end");
    count_rows();
  }

  const std::vector<RowGroup>& groups() const override { return groups_; }
  std::vector<std::string> columns() const override { return schema_->field_names(); }

  Batches batches(int group, std::span<const std::string> columns) const override {
    auto options = arrow::ipc::IpcReadOptions::Defaults();
    options.use_threads = false;
    for (int i = 0; i < schema_->num_fields(); ++i)
      if (std::ranges::find(columns, schema_->field(i)->name()) != columns.end())
        options.included_fields.push_back(i);
    return [path = path_, rows = open(group, options)] {
      std::shared_ptr<arrow::RecordBatch> batch;
      arrow::Status status = rows->ReadNext(&batch);
      if (status.ok() && batch) status = batch->ValidateFull();
      if (!status.ok()) fail_reading(path, kAs, status);
      return batch;
    };
  }

 private:
  void check(const arrow::Status& status) const {
    if (!status.ok()) fail_reading(path_, kAs, status);
  }

  std::string bytes_at(arrow::io::RandomAccessFile& file, int64_t at) const {
    if (at < 0) return "";
    return value_of(file.ReadAt(at, static_cast<int64_t>(kMagic.size())), path_, kAs)->ToString();
  }

  // Up to the end of the stream. What they hold stays in the mapped file.
  void read_messages(const std::shared_ptr<arrow::io::MemoryMappedFile>& file) {
    auto reader = arrow::ipc::MessageReader::Open(file);
    for (;;) {
      int64_t begin = value_of(file->Tell(), path_, kAs);
      std::shared_ptr<Message> message = value_of(reader->ReadNextMessage(), path_, kAs);
      if (!message) return;
      if (!schema_) {
        arrow::ipc::DictionaryMemo memo;
        schema_ = value_of(arrow::ipc::ReadSchema(*message, &memo), path_, kAs);
      }
      if (message->type() == MessageType::RECORD_BATCH) {
        groups_.push_back({begin, 0});
        batches_.push_back({std::move(message), heads_.size()});
      } else {
        heads_.push_back(std::move(message));
      }
    }
  }

  // A reader of one batch, and of what is said before it.
  std::shared_ptr<arrow::RecordBatchReader> open(int group,
                                                 const arrow::ipc::IpcReadOptions& options) const {
    const Batch& batch = batches_[static_cast<size_t>(group)];
    Messages chosen(heads_.begin(), heads_.begin() + static_cast<ptrdiff_t>(batch.heads));
    chosen.push_back(batch.message);
    return value_of(arrow::ipc::RecordBatchStreamReader::Open(
                        std::make_unique<TheseMessages>(std::move(chosen)), options),
                    path_, kAs);
  }

  void count_rows() {
    auto options = arrow::ipc::IpcReadOptions::Defaults();
    options.use_threads = false;
    options.included_fields = {0};
    for (size_t i = 0; i < groups_.size(); ++i) {
      std::shared_ptr<arrow::RecordBatch> batch;
      check(open(static_cast<int>(i), options)->ReadNext(&batch));
      groups_[i].rows = batch->num_rows();
    }
  }

  struct Batch {
    std::shared_ptr<const Message> message;
    size_t heads;  // that are before it
  };

  const std::string path_;
  std::shared_ptr<arrow::Schema> schema_;
  Messages heads_;              // the schema and dictionaries
  std::vector<Batch> batches_;  // one a group
  std::vector<RowGroup> groups_;
};

}  // namespace

std::unique_ptr<RowFile> open_arrow(const std::string& path) {
  return std::make_unique<ArrowFile>(path);
}

}  // namespace neox
