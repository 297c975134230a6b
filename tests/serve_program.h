// neox-serve as a child process that answers for a test, and its events.
#pragma once
#include <gtest/gtest.h>

#include <csignal>
#include <future>
#include <string>
#include <vector>

#include "generate_program.h"
#include "http_client.h"

namespace neox::testing {

using Json = nlohmann::json;
using Tokens = std::vector<int32_t>;

inline HttpClient client_of(const std::string& url) {
  return HttpClient(std::stoi(url.substr(url.rfind(':') + 1)));
}

class Serve : public GenerateProgram {
 protected:
  // A server of the run's model while a test lasts.
  class Server {
   public:
    explicit Server(const Strings& more = {}, const Strings& environment = {})
        : child_(Strings{program("neox-serve"), run().save(), "--listen", "0"} + more,
                 {.environment = environment, .limit_seconds = 600}) {  // one serves all tests
      EXPECT_TRUE(child_.wait_for("/v1/completions -d"));
      const std::string& said = child_.said();
      size_t at = said.find("http://127.0.0.1:");
      check(at != std::string::npos, "no address: ", said);
      port_ = std::stoi(said.substr(at + std::string("http://127.0.0.1:").size()));
      // Its messages are read, or it would wait for room in the pipe.
      reads_ = std::async(std::launch::async, [this] { child_.wait_for("Stopped"); });
    }
    HttpClient client() const { return HttpClient(port_); }
    Json completion(const Json& order) const {
      HttpAnswer answer = client().post("/v1/completions", order.dump());
      EXPECT_EQ(answer.status, 200) << answer.body;
      return Json::parse(answer.body);
    }
    std::string text(const Json& order) const { return completion(order)["choices"][0]["text"]; }
    Ended stop() {
      child_.signal(SIGTERM);
      reads_.get();
      return child_.end();
    }
    ~Server() {
      if (reads_.valid()) stop();
    }
    Server(const Server&) = delete;
    Server& operator=(const Server&) = delete;

   private:
    Child child_;
    int port_ = 0;
    std::future<void> reads_;
  };

  static Server& server() {
    static Server server;
    return server;
  }
  static std::string generated(const std::string& prompt) {
    std::string all = text({"--prompt", prompt, "--temperature", "0", "--json"});
    return Json::parse(all)["text"];
  }
};

// What follows each event's "data: ".
inline std::vector<std::string> events_in(const std::string& body) {
  std::vector<std::string> events;
  for (size_t at = 0; at < body.size();) {
    size_t end = body.find("\n\n", at);
    EXPECT_EQ(body.compare(at, 6, "data: "), 0) << body.substr(at);
    if (end == std::string::npos) break;
    events.push_back(body.substr(at + 6, end - at - 6));
    at = end + 2;
  }
  return events;
}

// The pieces of a text in a stream of OpenAI's events, joined.
inline std::string streamed(const std::string& body) {
  std::string text;
  for (const std::string& event : events_in(body)) {
    if (event == "[DONE]" || Json::parse(event)["choices"].empty()) continue;
    Json choice = Json::parse(event)["choices"][0];
    text +=
        (choice.contains("delta") ? choice["delta"]["content"] : choice["text"]).get<std::string>();
  }
  return text;
}

}  // namespace neox::testing
