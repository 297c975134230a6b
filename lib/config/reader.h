// Typed access to a checked configuration. Each look at a key records its effective value and where
// that comes from; what nobody looked at has no effect.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "config/config.h"
#include "config/value.h"

namespace neox {

class KeyReader {
 public:
  // `root` must have passed check_keys() and outlive the reader.
  explicit KeyReader(const Value& root) : root_(root) {}

  // The value in the files or overrides; null pointer: absent or null.
  const Value* given(const std::string& key) const;
  bool overridden(const std::string& key) const;  // by --set

  // The value, or the default of the table.
  bool flag(const std::string& key);
  int64_t integer(const std::string& key);
  double number(const std::string& key);
  std::string text(const std::string& key);    // null: ""
  std::string choice(const std::string& key);  // in the table's spelling; null: ""
  std::optional<int64_t> maybe_integer(const std::string& key);
  std::optional<double> maybe_number(const std::string& key);
  std::vector<int64_t> integers(const std::string& key);
  std::vector<double> numbers(const std::string& key);
  std::vector<std::string> texts(const std::string& key);

  // The same with bounds; the message names the place.
  int64_t integer_from(const std::string& key, int64_t least, int64_t most = int64_t{1} << 40);
  double number_in(const std::string& key, double least, double most);
  double positive(const std::string& key);
  void check_positive(const std::string& key, double value) const;

  // Records a value that was computed: `from` says of what.
  void derive(const std::string& key, const std::string& value, const std::string& from);
  // The key was read by hand, and only to check it.
  void record_input(const std::string& key);
  // The key was only read to derive another one, or has no effect in this run.
  void mark(const std::string& key, Effect effect);
  void record(const std::string& key, const std::string& value);
  void note(const std::string& text) { notes_.push_back(text); }

  std::string where(const std::string& key) const;  // "70M.yml:12" or "default"
  // What has been read or derived, as YAML; the key must have been.
  std::string value(const std::string& key) const { return settings_.at(key).value; }
  // Throws Error (64): "70M.yml:12: <text>"; for a default: "<text>".
  template <class... Parts>
  [[noreturn]] void fail_at(const std::string& key, const Parts&... parts) const {
    const Value* value = given(key);
    std::string place = value ? value->place.text() + ": " : "";
    fail(Exit::kUsage, place, parts...);
  }
  template <class... Parts>
  void require(bool ok, const std::string& key, const Parts&... parts) const {
    if (!ok) fail_at(key, parts...);
  }

  // Hands over settings and notes; adds the given keys without effect.
  void finish(Config& config);

 private:
  Value effective(const std::string& key) const;
  void record_given(const std::string& key, const Value& value);
  void add_idle(const Value& map, const std::string& parent, std::vector<std::string>& idle);

  const Value& root_;
  std::map<std::string, Setting> settings_;
  std::vector<std::string> notes_;
};

}  // namespace neox
