// What rendering a template may take, so that it ends whatever the template says: steps, which
// measure time, and bytes of the values that are there at once. A Budget counts what its thread
// does while it lives; where none lives nothing is counted. For one thread.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace neox::jinja {

class Budget {
 public:
  static constexpr int64_t kSteps = 10'000'000;  // a second or two
  static constexpr int64_t kBytes = 256'000'000;
  Budget();
  ~Budget();
  Budget(const Budget&) = delete;

  // Each throws Failure where there is less left. A step is a part of an expression, or an item.
  static void step(size_t more = 1);
  // Of a text that is gone through.
  static void text(size_t bytes) { step(1 + bytes / kTextBytes); }
  // Room is not taken by it.
  static void check_room(size_t bytes);

 private:
  friend class Room;
  static constexpr size_t kTextBytes = 128;  // take about as long as a step
  int64_t steps_ = 0, bytes_ = 0;
  uint64_t number_;
  Budget* outer_;
};

// That a value takes until it goes. Throws Failure where there is none.
class Room {
 public:
  explicit Room(size_t bytes);
  void grow(size_t more);
  ~Room();
  Room(const Room&) = delete;

 private:
  bool counts() const;
  size_t bytes_ = 0;
  uint64_t budget_;
};

// A value with the room that it takes.
template <class T>
std::shared_ptr<T> held(T&& value, size_t bytes) {
  struct Holder {
    Holder(T&& its, size_t takes) : room(takes), value(std::forward<T>(its)) {}
    Room room;
    T value;
  };
  auto holder = std::make_shared<Holder>(std::forward<T>(value), bytes);
  return {holder, &holder->value};
}

}  // namespace neox::jinja
