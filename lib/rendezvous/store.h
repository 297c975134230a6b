// The key-value store of a job (c10d::TCPStore): rank 0 serves it, every process connects. c10d's
// calls wait without a limit where a server is stopped or unreachable; here each connection has a
// thread of its own that makes the calls, and who waits for it can give up.
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "rendezvous/address.h"

namespace neox {

// The store cannot be reached any more, so rank 0 is gone.
class StoreLost : public Error {
 public:
  explicit StoreLost(const std::string& message) : Error(Exit::kPeerLost, message) {}
};

// Serves as long as it lives, on a thread of c10d's. Takes over the listener.
class StoreServer {
 public:
  // The values are there, in this order, before anybody else can see the last of them.
  StoreServer(const Listener& listener,
              std::span<const std::pair<std::string, std::string>> values);
  ~StoreServer();

 private:
  struct Store;
  std::unique_ptr<Store> store_;
};

// A connection. Calls come from any thread, one after the other. Values are bytes.
class StoreClient {
 public:
  enum class State { kConnecting, kConnected, kFailed };
  // A knock tells at once, with the system's reason, that nobody listens, where c10d would go on
  // trying. But the server looks up the name of each that it accepts (getnameinfo), one after the
  // other, and where DNS is slow a knock holds up all ranks as long as a connection does: a store
  // that is known to be there is not knocked at.
  enum class Knock { kBefore, kNot };

  // Starts to connect and returns at once. The store is the right one where it has this key; its
  // value is the greeting.
  StoreClient(const Address& address, const std::string& key, Knock knock);
  StoreClient(const StoreClient&) = delete;
  StoreClient& operator=(const StoreClient&) = delete;
  // Leaves an attempt to connect and a call that got no answer behind: their thread ends with the
  // process, which then runs no destructors (base/program.h).
  ~StoreClient();

  const Address& address() const { return address_; }
  State wait_connected(std::chrono::milliseconds limit);
  const std::string& greeting() const;  // where connected
  const std::string& problem() const;   // where it failed

  // While a call waits, on_wait is called every 100 ms; where it throws, the call throws that, and
  // later calls throw StoreLost. It gets the time that the call has waited, in which a stop of this
  // process (SIGSTOP) does not count.
  void on_wait(std::function<void(std::chrono::milliseconds waited)> on_wait);

  // All of them throw StoreLost where the server is gone.
  void set(const std::string& key, const std::string& value);
  std::string get(const std::string& key);  // of a key that is there
  std::vector<std::string> get(std::span<const std::string> keys);
  // Sets a key that is not there, or has the value `expected`. Returns the value that it has then.
  std::string compare_set(const std::string& key, const std::string& expected,
                          const std::string& value);
  int64_t add(const std::string& key, int64_t amount);
  bool has(const std::string& key);
  // Are they all there within the limit, of at most some seconds?
  bool wait(std::span<const std::string> keys, std::chrono::milliseconds limit);
  void remove(const std::string& key);

  // A value of any size, in parts, which the store limits to 8 MiB. Written once.
  void set_large(const std::string& key, const std::string& value);
  std::string get_large(const std::string& key);
  // The same for all of them at once.
  std::vector<std::string> get_large(std::span<const std::string> keys);
  void remove_large(const std::string& key, size_t value_bytes);

 private:
  struct Line;
  template <class F>
  auto call(F f);
  template <class F>
  void post(F f);
  std::string finish_large(const std::string& key, std::string first);

  Address address_;
  std::shared_ptr<Line> line_;  // shared with the thread, which may outlive this
  std::thread thread_;
  bool answered_ = true;  // the last call was, if only by an error
  std::function<void(std::chrono::milliseconds)> on_wait_;
};

}  // namespace neox
