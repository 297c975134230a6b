#include "prepare/arrow/row_lines.h"

#include <arrow/array.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "prepare/arrow/json_text.h"

namespace neox {
namespace {

std::unique_ptr<RowFile> open_file(const RowSlice& slice) {
  auto now = static_cast<int64_t>(fs::file_size(slice.path));
  check_io(now == slice.bytes, slice.path, " has ", now, " bytes, and had ", slice.bytes,
           " when it was found; it must not change while it is read");
  std::string magic(3, '\0');
  std::ifstream(slice.path).read(magic.data(), 3);
  return magic == "PAR" ? open_parquet(slice.path) : open_arrow(slice.path);
}

void append_row(const arrow::RecordBatch& batch, int64_t row, std::string& text) {
  for (int i = 0; i < batch.num_columns(); ++i) {
    text += i == 0 ? "{" : ", ";
    append_json_string(batch.column_name(i), text);
    text += ": ";
    append_json(*batch.column(i), row, text);
  }
  text += "}\n";
}

}  // namespace

RowLines::RowLines(RowSlice slice, std::span<const std::string> columns, int threads)
    : slice_(std::move(slice)),
      columns_(columns.begin(), columns.end()),
      threads_(std::clamp(threads, 1, kMostThreads)),
      file_(open_file(slice_)) {
  choose_groups();
  check_columns();
}

// Those that begin in the slice. Wherever a file says that its groups begin, each is taken to
// begin in the file and not before the one before it, so that one slice has it.
void RowLines::choose_groups() {
  int64_t rows = 0, begin = 0;
  int number = 0;
  for (const RowGroup& group : file_->groups()) {
    ++number;
    begin = std::clamp(group.begin, begin, slice_.bytes - 1);
    rows += group.rows;
    if (begin >= slice_.end) continue;
    end_group_ = number;
    all_rows_ += group.rows;
    if (begin >= slice_.begin) continue;
    next_group_ = number;
    rows_before_ = rows;
  }
  all_rows_ -= rows_before_;
}

void RowLines::check_columns() const {
  std::vector<std::string> has = file_->columns();
  std::string names;
  for (const std::string& name : has) names += (names.empty() ? "" : ", ") + name;
  for (const std::string& column : columns_)
    check_io(std::ranges::find(has, column) != has.end(), slice_.path, " has no column '", column,
             "'; it has ", names.empty() ? "none" : names, " (--jsonl-keys names those to take)");
}

// The next text of a group.
void RowLines::decode(Group& group) const {
  if (!group.next) group.next = file_->batches(group.number, columns_);
  while (std::ssize(group.text) < kTextAtOnce) {
    if (!group.batch) {
      group.batch = group.next();
      group.row = 0;
    }
    if (!group.batch) {
      int64_t said = file_->groups()[static_cast<size_t>(group.number)].rows;
      check_io(group.all_rows == said, slice_.path, " is damaged: group ", group.number, " has ",
               group.all_rows, " rows, and should have ", said, "; fetch or copy it again");
      group.ended = true;
      return;
    }
    int64_t first = group.row, size = group.batch->num_rows();
    while (group.row < size && std::ssize(group.text) < kTextAtOnce)
      append_row(*group.batch, group.row++, group.text);
    group.rows += group.row - first;
    group.all_rows += group.row - first;
    if (group.row == size) group.batch.reset();
  }
}

// The group stays in its place: a deque is added to and taken from at its ends.
void RowLines::begin(Group& group) const {
  auto policy = threads_ > 1 ? std::launch::async : std::launch::deferred;
  group.done = std::async(policy, [this, &group] { decode(group); });
}

// Takes the text that is ready, while the next ones are decoded; false after the last.
bool RowLines::next_text() {
  while (next_group_ < end_group_ && ahead_.size() < static_cast<size_t>(threads_)) {
    Group& group = ahead_.emplace_back();
    group.number = next_group_++;
    begin(group);
  }
  if (ahead_.empty()) return false;
  Group& first = ahead_.front();
  first.done.get();
  text_ = std::exchange(first.text, {});
  rows_ += std::exchange(first.rows, 0);
  given_ = 0;
  first.ended ? ahead_.pop_front() : begin(first);
  return true;
}

size_t RowLines::read(std::span<char> to) {
  while (given_ == text_.size())
    if (!next_text()) return 0;
  size_t n = std::min(to.size(), text_.size() - given_);
  std::memcpy(to.data(), text_.data() + given_, n);
  given_ += n;
  return n;
}

// As if each row had the same.
int64_t RowLines::consumed() const {
  if (rows_ == all_rows_) return slice_.end;
  double part = static_cast<double>(rows_) / static_cast<double>(all_rows_);
  return slice_.begin + static_cast<int64_t>(static_cast<double>(slice_.end - slice_.begin) * part);
}

}  // namespace neox
