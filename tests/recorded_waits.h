// Counts, on all threads, the operations whose result the host waits for, and which cannot be
// recorded.
#pragma once
#include <ATen/record_function.h>

#include <map>
#include <memory>
#include <string>

namespace neox {

class RecordedWaits {
 public:
  RecordedWaits() {
    found().clear();
    handle_ = at::addGlobalCallback(at::RecordFunctionCallback(&note).scopes(
        {at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
  }
  ~RecordedWaits() { at::removeCallback(handle_); }
  static std::map<std::string, int>& found() {
    static std::map<std::string, int> names;
    return names;
  }

 private:
  static constexpr const char* kWaits[] = {
      "aten::_local_scalar_dense", "aten::nonzero",    "aten::equal",
      "aten::masked_select",       "aten::unique_dim", "aten::_unique2"};
  static std::unique_ptr<at::ObserverContext> note(const at::RecordFunction& function) {
    std::string name = function.name();
    for (const char* wait : kWaits)
      if (name == wait) ++found()[name];
    return nullptr;
  }
  at::CallbackHandle handle_;
};

}  // namespace neox
