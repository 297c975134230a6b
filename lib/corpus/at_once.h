// Several pieces of work at the same time, that wait for a network or a disk more than they count.
#pragma once
#include <cstddef>
#include <functional>

namespace neox {

// work(0) .. work(count - 1), begun in this order, so many at once. After the first that throws no
// other is begun, failed() is called so that those under way can end soon, and it is thrown again.
void at_once(
    size_t count, int threads, const std::function<void(size_t)>& work,
    const std::function<void()>& failed = [] {});

}  // namespace neox
