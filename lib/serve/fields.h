// The fields of a JSON object that somebody sent, of which each is asked for once: what is wrong
// names the field, and what is left over is not known.
#pragma once
#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "base/utf8.h"

namespace neox {

class Fields {
 public:
  using Json = nlohmann::ordered_json;
  // what: the object, in messages.
  Fields(const Json& object, const std::string& what) : object_(object) {
    check_usage(object.is_object(), what, " must be a JSON object");
  }

  // Undefined (null) where it is not given, or null.
  const Json* find(const std::string& name) {
    known_.insert(name);
    auto field = object_.find(name);
    return field == object_.end() || field->is_null() ? nullptr : &*field;
  }
  bool flag(const std::string& name) {
    const Json* field = find(name);
    check_usage(!field || field->is_boolean(), name, " must be true or false");
    return field && field->get<bool>();
  }
  std::optional<int64_t> integer(const std::string& name, int64_t low, int64_t high) {
    const Json* field = find(name);
    if (!field) return std::nullopt;
    bool fits = field->is_number_integer() &&
                !(field->is_number_unsigned() && field->get<uint64_t>() > uint64_t{INT64_MAX});
    check_usage(fits && field->get<int64_t>() >= low && field->get<int64_t>() <= high, name, " is ",
                shown(*field), "; must be an integer from ", low, " to ", high);
    return field->get<int64_t>();
  }
  std::optional<double> real(const std::string& name, double low, double high) {
    const Json* field = find(name);
    if (!field) return std::nullopt;
    check_usage(field->is_number() && field->get<double>() >= low && field->get<double>() <= high,
                name, " is ", shown(*field), "; must be a number from ", low, " to ", high);
    return field->get<double>();
  }
  // A text, or a list of at most so many.
  std::vector<std::string> texts(const std::string& name, size_t most) {
    const Json* field = find(name);
    if (!field) return {};
    if (field->is_string()) return {field->get<std::string>()};
    bool list = field->is_array() && field->size() <= most &&
                std::ranges::all_of(*field, [](const Json& x) { return x.is_string(); });
    check_usage(list, name, " must be a text or a list of at most ", most, " texts");
    return field->get<std::vector<std::string>>();
  }
  // A field that would change the answer, and does not here: it must have one of these values.
  void only(const std::string& name, const std::vector<Json>& values, const char* why) {
    const Json* field = find(name);
    check_usage(!field || std::ranges::find(values, *field) != values.end(), name, " is ",
                field ? shown(*field) : "", ": ", why);
  }
  // Fields that change nothing.
  void ignore(std::initializer_list<const char*> names) {
    known_.insert(names.begin(), names.end());
  }
  // To be called when all have been asked for.
  void check_all_known() const {
    std::vector<std::string> names(known_.begin(), known_.end());
    for (const auto& field : object_.items()) {
      if (known_.contains(field.key()) || field.value().is_null()) continue;
      fail(Exit::kUsage, "there is no field ", beginning_of(field.key()),
           did_you_mean(nearest(field.key(), names)));
    }
  }
  // For messages.
  static std::string shown(const Json& value) {
    return beginning_of(value.dump(-1, ' ', false, Json::error_handler_t::replace));
  }

 private:
  const Json& object_;
  std::set<std::string> known_;
};

}  // namespace neox
