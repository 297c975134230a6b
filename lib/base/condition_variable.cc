// std::condition_variable::wait as libstdc++ had it before GCC 12, which gave the same function a
// new symbol version (GLIBCXX_3.4.30): programs with a definition of their own run with the
// libstdc++ of GCC 11 too, as on Red Hat 9 and Amazon Linux 2023. The linker takes this file into a
// program where nothing but libstdc++ defines the function.
#include <condition_variable>
#include <exception>

void std::condition_variable::wait(std::unique_lock<std::mutex>& lock) {
  if (pthread_cond_wait(native_handle(), lock.mutex()->native_handle()) != 0) std::terminate();
}
