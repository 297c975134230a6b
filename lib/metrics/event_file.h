// TensorBoard event files ("events.out.tfevents.<time>.<host>..."): a sequence of TFRecords, each
// an Event message (docs/formats.md; tensorboard/compat/proto/event.proto and summary.proto of
// TensorBoard 2). The writer makes scalars as simple_value and text as the text plugin wants it;
// the reader takes the files of GPT-NeoX, Megatron, PyTorch and TensorFlow 2, and any damaged file.
// A writer belongs to one thread.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "metrics/append_file.h"

namespace neox {

// Names and values of one step.
using Scalars = std::vector<std::pair<std::string, double>>;

// One Event as far as runs are concerned; other contents (images, histograms, graphs) are left out.
struct Event {
  double time = 0;  // seconds since 1970
  int64_t step = 0;
  std::string file_version = {};  // "brain.Event:2" in the first event of a file
  bool session_start = false;     // points of this step and later ones in older files are void
  Scalars scalars = {};
  std::vector<std::pair<std::string, std::string>> texts = {};
};

// The bytes of an Event message, and of the record that carries a message.
std::string encode_event(const Event& event);
std::string encode_record(std::string_view payload);

// The event of a message; nothing where the bytes are no Event.
std::optional<Event> decode_event(std::string_view message);

struct EventFile {
  std::vector<Event> events;  // those with scalars, texts, a version or a session start
  std::string damage;         // "" or what is wrong, and from which byte on
};

// Every event up to the first damage that cannot be stepped over. A cut last record is usual (the
// writer is at work, or was killed) and is no damage.
EventFile read_event_file(std::string_view bytes);

class EventFileWriter {
 public:
  // Starts a new file in the directory, which is made. Its name sorts behind those that are there,
  // since TensorBoard reads them in that order.
  explicit EventFileWriter(const fs::path& dir);

  void write(const Event& event);
  const fs::path& path() const { return file_.path(); }

 private:
  AppendFile file_;
};

}  // namespace neox
