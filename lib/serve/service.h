// A model that answers requests over HTTP: texts of all of them grow side by side.
#pragma once
#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "serve/http.h"
#include "serve/order.h"

namespace boost::asio {
class thread_pool;
}

namespace neox {

struct ServiceOptions {
  HttpOptions http;
  int64_t batch_size = 8;      // texts at once
  std::string key;             // that requests bring as a bearer token; "": none needed
  std::vector<int32_t> ends;   // tokens that end a text
  int64_t read_at_once = 128;  // as of TextOptions
};

class Service {
 public:
  // Takes requests from now on. The model and what `served` refers to must outlive it. Throws Error
  // (64) where the keys and values of batch_size texts have no room in memory.
  Service(GptNeoX& model, const ServedModel& served, const ServiceOptions& options);
  ~Service();
  std::string url() const { return server_.url(); }
  // Answers until stop() is called; then those that have begun, and returns. What the model throws
  // ends it, but for a lack of memory, which costs those orders alone that it was for.
  void run();
  // A signal handler may call it.
  void stop() { stopped_ = true; }

 private:
  using OrderPointer = std::shared_ptr<Order>;
  struct Place {
    OrderPointer order;
    size_t choice = 0;
  };
  struct Waiting {
    OrderPointer order;
    size_t next = 0;  // of its choices
  };

  // In the server's thread.
  void handle(HttpRequest request, const std::shared_ptr<HttpReply>& reply);
  void show(const std::string& path, HttpReply& reply) const;
  void take(ApiForm form, std::string body, const std::shared_ptr<HttpReply>& reply);

  // In the reader's.
  void read(ApiForm form, const std::string& body, const std::shared_ptr<HttpReply>& reply);
  bool closed();

  // In run()'s.
  TextOptions text_options();
  std::optional<TextRequest> next(bool wait, const AfterLayer& after_layer);
  std::optional<Place> waiting(bool wait);
  std::optional<TextRequest> request_of(const Place& place);
  bool score_prompt(const Place& place, const AfterLayer& after_layer);
  bool begin(const Place& place);
  template <class Work>
  void alone(const OrderPointer& order, const Work& work);
  void finish_all(const std::string& why);
  void give_up(Order& order, int status, const std::string& why);
  void fail_answer(Order& order, int status, const std::string& why) const;
  void tell(const Place& place);
  void end(const Place& place, const std::string& finish);
  void answer(Order& order);  // in the reader's, where it is whole
  bool left(Order& order) const;
  void log(const Order& order, const char* what) const;

  GptNeoX& model_;
  const ServedModel& served_;
  const ServiceOptions options_;
  std::atomic<bool> stopped_ = false;
  std::mutex mutex_;  // of what follows
  std::condition_variable came_;
  std::deque<Waiting> queue_;  // whose turn is next in front
  bool closed_ = false;        // no more are taken
  // Of run()'s thread alone.
  KvCache cache_;
  std::map<size_t, Place> growing_;  // by their number in generate()
  size_t numbered_ = 0;
  // One thread, so that long prompts and answers keep the others from nothing.
  std::unique_ptr<boost::asio::thread_pool> reader_;
  HttpServer server_;
};

}  // namespace neox
