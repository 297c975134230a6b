#include "jinja/budget.h"

#include <atomic>
#include <utility>

#include "base/text.h"
#include "jinja/value.h"

namespace neox::jinja {
namespace {

// Values are made and compared far from where the rendering is known.
thread_local Budget* t_budget = nullptr;

uint64_t next_number() {
  static std::atomic<uint64_t> last = 0;
  return ++last;
}

}  // namespace

Budget::Budget() : number_(next_number()), outer_(std::exchange(t_budget, this)) {}

Budget::~Budget() { t_budget = outer_; }

void Budget::step(size_t more) {
  if (!t_budget) return;
  t_budget->steps_ += static_cast<int64_t>(more);
  if (t_budget->steps_ > kSteps)
    throw Failure("it takes more than " + with_commas(kSteps) +
                  " steps, the most that one text may take");
}

void Budget::check_room(size_t bytes) {
  if (t_budget && static_cast<int64_t>(bytes) > kBytes - t_budget->bytes_)
    throw Failure("its values take more than " + human_bytes(kBytes) +
                  " at once, the most that one text may take");
}

Room::Room(size_t bytes) : budget_(t_budget ? t_budget->number_ : 0) { grow(bytes); }

void Room::grow(size_t more) {
  if (!counts()) return;
  Budget::check_room(more);
  t_budget->bytes_ += static_cast<int64_t>(more);
  bytes_ += more;
}

Room::~Room() {
  if (counts()) t_budget->bytes_ -= static_cast<int64_t>(bytes_);
}

// What outlives the text, or was there before, does not.
bool Room::counts() const { return t_budget && t_budget->number_ == budget_; }

}  // namespace neox::jinja
