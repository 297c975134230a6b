// neox-serve and what comes over the line: wrong requests are said to be so, and cost nobody else
// anything; addresses, keys.
#include <poll.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <new>

#include "generate/load.h"
#include "serve/service.h"
#include "serve_program.h"

namespace {
std::atomic<size_t> g_most_memory = SIZE_MAX;  // bytes that are given at once
std::atomic<size_t> g_never_given = 0;         // a number of them
}  // namespace

// Where GCC sees what they do it warns of each pair of them.
[[gnu::noinline]] void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  bool given = bytes <= g_most_memory && bytes != g_never_given;
  return given ? std::malloc(std::max<size_t>(bytes, 1)) : nullptr;
}
[[gnu::noinline]] void* operator new(size_t bytes) {
  void* memory = operator new(bytes, std::nothrow);
  if (!memory) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace neox::testing {
namespace {

// A service in this process while a test lasts.
class OwnService {
 public:
  OwnService(LoadedModel& loaded, const std::string& name, const ServiceOptions& options = {},
             std::optional<ChatTemplate> chat = {})
      : served_{loaded.tokenizer(), loaded.model().config(), name, std::move(chat)},
        service_(loaded.model(), served_, options),
        runs_(std::async(std::launch::async, [this] { service_.run(); })) {}
  ~OwnService() {
    service_.stop();
    runs_.get();
  }
  OwnService(const OwnService&) = delete;
  OwnService& operator=(const OwnService&) = delete;
  HttpClient client() const { return client_of(service_.url()); }

 private:
  ServedModel served_;
  Service service_;
  std::future<void> runs_;
};

struct Wrong {
  const char *path, *body, *says;
};

TEST_F(Serve, SaysWhatIsWrongWithARequest) {
  for (const auto& [path, body, says] : std::vector<Wrong>{
           {"/v1/completions", "{\"prompt\": ", "not readable JSON: parse error at line 1"},
           {"/v1/completions", "[1]", "must be a JSON object"},
           {"/v1/completions", "{}", "which prompt?"},
           {"/v1/completions", R"({"prompt": {}})", "prompt must be a text"},
           {"/v1/completions", R"({"prompt": []})", "prompt must be a text"},
           {"/v1/completions", R"({"prompt": [1, 9999]})", "the token 9999; tokens of this model"},
           {"/v1/completions", R"({"prompt": [1, -1]})", "the token -1"},
           {"/v1/completions", R"({"prompt": "a", "temperature": "hot"})",
            "temperature is \\\"hot"},
           {"/v1/completions", R"({"prompt": "a", "temprature": 1})", "did you mean temperature?"},
           {"/v1/completions", R"({"prompt": "a", "top_p": 2})", "from 0 to 1"},
           {"/v1/completions", R"({"prompt": "a", "n": 100000})", "n is 100000"},
           {"/v1/completions", R"({"prompt": "a", "max_tokens": 0})", "max_tokens is 0"},
           {"/v1/completions", R"({"prompt": "a", "max_tokens": 1e99})", "must be an integer"},
           {"/v1/completions", R"({"prompt": "a", "suffix": "b"})", "suffix is \\\"b\\\": not sup"},
           {"/v1/completions", R"({"prompt": "a", "stop": [1]})", "stop must be a text"},
           {"/v1/completions", R"({"prompt": "a", "stream": true, "echo": true})", "leave one out"},
           {"/v1/chat/completions", R"({"messages": []})", "--chat-template NAME"},
           {"/api", R"({"prompt": "a"})", "prompts argument required"},
           {"/api", R"({"prompts": [""]})", "Empty prompts require add_BOS=true"},
           {"/api", R"({"prompts": ["a"], "top_k": 2, "top_p": 0.5})", "cannot set both"},
           {"/api", R"({"prompts": ["a"], "max_len": 2})", "tokens_to_generate"},
           {"/api", R"({"prompts": ["a"], "beam_width": 2})", "Beam search"}}) {
    HttpAnswer answer = server().client().post(path, body);
    EXPECT_EQ(answer.status, 400) << body;
    EXPECT_TRUE(has(answer.body, says)) << body << " gave " << answer.body;
    Json json = Json::parse(answer.body);
    EXPECT_TRUE(std::string(path) == "/api" ? json.contains("message")
                                            : json["error"].contains("message"));
  }
}

TEST_F(Serve, KnowsItsAddresses) {
  HttpClient client = server().client();
  EXPECT_EQ(client.ask("GET", "/health").status, 200);
  EXPECT_TRUE(has(client.ask("GET", "/").body, "<html"));
  EXPECT_EQ(Json::parse(client.ask("GET", "/v1/models").body)["data"][0]["max_model_len"], 48);
  std::string name = Json::parse(client.ask("GET", "/v1/models").body)["data"][0]["id"], escaped;
  for (char c : name) escaped += c == '/' ? "%2F" : std::string(1, c);
  for (const std::string& path : {name, escaped})
    EXPECT_EQ(Json::parse(client.ask("GET", "/v1/models/" + path).body)["id"], name);
  HttpAnswer other = client.ask("GET", "/v1/models/other");
  EXPECT_EQ(other.status, 404);
  EXPECT_EQ(Json::parse(other.body)["error"]["message"],
            concat("there is no model other; this server has ", name));
  HttpAnswer nowhere = client.ask("GET", "/v2");
  EXPECT_EQ(nowhere.status, 404);
  EXPECT_TRUE(has(nowhere.body, "/v1/completions"));
  EXPECT_EQ(client.ask("GET", "/v1/completions").status, 405);
}

TEST_F(Serve, ScoresThatAreNoNumbersAreAnError) {
  LoadedModel loaded(run().save(), {"precision=fp32"}, at::kCPU);
  loaded.model().param("final_layer_norm.weight").mutable_data_ptr<float>()[0] = NAN;
  OwnService service(loaded, "run");
  Json order = {{"prompt", "the mi"}, {"temperature", 0}, {"logprobs", 1}, {"echo", true}};
  for (int most : {0, 1, 2}) {
    order["max_tokens"] = most;
    HttpAnswer answer = service.client().post("/v1/completions", order.dump());
    EXPECT_EQ(answer.status, 500) << most;
    EXPECT_TRUE(has(answer.body, "log-probability of a token is not a finite")) << answer.body;
  }
}

// Of two texts: the first ends before anything is told of it, at a stop, the second fails.
TEST_F(Serve, AStreamThatHasBegunWithoutATextEndsWithTheError) {
  LoadedModel loaded(run().save(), {"precision=fp32"}, at::kCPU);
  Tokens first = loaded.tokenizer().encode("the mi");
  int32_t broken = loaded.tokenizer().encode("ka").at(0);
  ASSERT_EQ(std::ranges::count(first, broken), 0);
  loaded.model().param("embed_in.weight")[broken].fill_(NAN);
  OwnService service(loaded, "run", {.batch_size = 1});
  Json order = {{"prompt", first}, {"max_tokens", 1}, {"temperature", 0}};
  HttpAnswer whole = service.client().post("/v1/completions", order.dump());
  std::string text = Json::parse(whole.body)["choices"][0]["text"];
  order.update({{"prompt", {first, Tokens{broken}}}, {"stream", true}, {"stop", text}});
  HttpAnswer answer = service.client().post("/v1/completions", order.dump());
  EXPECT_EQ(answer.status, 200);
  std::vector<std::string> events = events_in(answer.body);
  ASSERT_EQ(events.size(), 2U) << answer.body;
  EXPECT_EQ(Json::parse(events[0])["choices"][0]["text"], "");
  EXPECT_EQ(Json::parse(events[0])["choices"][0]["finish_reason"], "stop");
  EXPECT_TRUE(Json::parse(events[1])["error"].contains("message")) << events[1];
}

TEST_F(Serve, ANameThatIsNotUtf8IsToldAllTheSame) {
  LoadedModel loaded(run().save(), {}, at::kCPU);
  OwnService service(loaded, "run\xff");
  HttpAnswer models = service.client().ask("GET", "/v1/models");
  EXPECT_EQ(models.status, 200);
  EXPECT_EQ(Json::parse(models.body)["data"][0]["id"], "run\xEF\xBF\xBD");
  EXPECT_EQ(service.client().ask("GET", "/v1/models/run\xff").status, 200);
  Json order = {{"prompt", "the"}, {"max_tokens", 2}};
  EXPECT_EQ(service.client().post("/v1/completions", order.dump()).status, 200);
}

TEST_F(Serve, AModelIsFoundByItsNameInAPath) {
  LoadedModel loaded(run().save(), {}, at::kCPU);
  OwnService service(loaded, "a run/50%/n\u00e4chste");
  for (const char* path : {"a%20run%2F50%25%2Fn%C3%A4chste", "a%20run/50%/n%c3%a4chste"})
    EXPECT_EQ(service.client().ask("GET", concat("/v1/models/", path)).status, 200) << path;
  for (const char* path : {"a%20run", "a%2run/50%/n%c3%a4chste", "a%20run/50%/n%c3%a4chste%"})
    EXPECT_EQ(service.client().ask("GET", concat("/v1/models/", path)).status, 404) << path;
}

TEST_F(Serve, AnAnswerThatThereIsNoMemoryForCostsNobodyElseAnything) {
  LoadedModel loaded(run().save(), {}, at::kCPU);
  OwnService service(loaded, "run");
  Json order = {{"prompt", "the mi"}, {"max_tokens", 40}, {"n", 64}, {"logprobs", 100}};
  g_most_memory = 1 << 20;
  HttpAnswer answer = service.client().post("/v1/completions", order.dump());
  g_most_memory = SIZE_MAX;
  EXPECT_EQ(answer.status, 500);
  EXPECT_TRUE(has(answer.body, "there is no memory for the answer")) << answer.body;
  EXPECT_EQ(service.client().post("/v1/completions", order.dump()).status, 200);
}

// The 33rd score of a text, and the 65th of a token's likeliest ones, need room that is not there.
TEST_F(Serve, ATextThatThereIsNoMemoryForCostsNobodyElseAnything) {
  LoadedModel loaded(run().save(), {}, at::kCPU);
  OwnService service(loaded, "run");
  const std::string expected = generated("the mi");
  Json order = {{"prompt", "the mi"}, {"max_tokens", 12}, {"temperature", 0}};
  for (const auto& [bytes, likeliest] :
       {std::pair(64 * sizeof(TokenScore), 1), {128 * sizeof(std::pair<int32_t, double>), 100}})
    for (bool streams : {false, true}) {
      Json many = {{"prompt", "the"}, {"max_tokens", 40}, {"logprobs", likeliest}, {"n", 2}};
      many["stream"] = streams;
      g_never_given = bytes;
      auto lacks = std::async(std::launch::async, [&] {
        return service.client().post("/v1/completions", many.dump());
      });
      HttpAnswer answer = service.client().post("/v1/completions", order.dump());
      HttpAnswer failed = lacks.get();
      g_never_given = 0;
      EXPECT_EQ(answer.status, 200) << answer.body;
      EXPECT_EQ(Json::parse(answer.body)["choices"][0]["text"], expected);
      EXPECT_TRUE(failed.status == 500 || has(failed.body, "server_error")) << failed.body;
      EXPECT_EQ(service.client().post("/v1/completions", many.dump()).status, 200);
    }
}

TEST_F(Serve, ABodyThatThereIsNoMemoryForCostsNobodyElseAnything) {
  LoadedModel loaded(run().save(), {}, at::kCPU);
  OwnService service(loaded, "run");
  const std::string bytes = concat("POST /v1/completions HTTP/1.1\r\nContent-Length: ", 4 << 20,
                                   "\r\n\r\n", std::string(4 << 20, 'a'));
  char answer = 0;
  g_most_memory = 1 << 20;
  int fd = service.client().send(bytes);
  EXPECT_LE(::recv(fd, &answer, 1, 0), 0);
  g_most_memory = SIZE_MAX;
  ::close(fd);
  EXPECT_EQ(service.client().ask("GET", "/health").status, 200);
}

// A template that takes its time.
struct ServeSlowTemplates : Serve {
  static ChatTemplate style() {
    Directory dir;
    return read_chat_template(
        dir.put("t.jinja",
                "{% for i in range(99999) %}{% for j in range(10) %}{% endfor %}{% endfor %}the"));
  }
  // Asks, and waits for nothing.
  static int ask(const OwnService& service) {
    const std::string body = R"({"messages": [{"role": "user", "content": "a"}], "max_tokens": 1})";
    return service.client().send(
        concat("POST /v1/chat/completions HTTP/1.1\r\nHost: test\r\nConnection: close\r\n",
               "Content-Length: ", body.size(), "\r\n\r\n", body));
  }
  static std::string answer(int fd) {
    std::string all(1 << 16, ' ');
    all.resize(static_cast<size_t>(std::max<ssize_t>(0, ::recv(fd, all.data(), all.size(), 0))));
    ::close(fd);
    return all;
  }
  LoadedModel loaded{run().save(), {}, at::kCPU};
};

TEST_F(ServeSlowTemplates, KeepNoOtherClientWaiting) {
  OwnService service(loaded, "run", {}, style());
  int fd = ask(service), others = 0;
  for (pollfd slow{.fd = fd, .events = POLLIN, .revents = 0}; ::poll(&slow, 1, 5) == 0; ++others)
    EXPECT_EQ(service.client().ask("GET", "/health").status, 200);
  EXPECT_GT(others, 5);
  EXPECT_TRUE(has(answer(fd), "200 OK"));
}

TEST_F(ServeSlowTemplates, AreToldThatTheServerStops) {
  std::optional<OwnService> service(std::in_place, loaded, "run", ServiceOptions(), style());
  int first = ask(*service), second = ask(*service);
  EXPECT_EQ(service->client().ask("GET", "/health").status, 200);  // both have come
  service.reset();
  for (int fd : {first, second}) EXPECT_TRUE(has(answer(fd), "the server is stopping"));
}

TEST_F(Serve, RequestsThatAreTooLargeOrBrokenCostNobodyElseAnything) {
  HttpClient client = server().client();
  EXPECT_EQ(client.post("/v1/completions", std::string(17 << 20, 'a')).status, 413);
  EXPECT_EQ(client.ask("GET", "/health", "", "X: " + std::string(20000, 'x') + "\r\n").status, 413);
  ::close(client.send("GARBAGE\r\n\r\n"));
  ::close(client.send("POST /v1/completions HTTP/1.1\r\nContent-Length: 100\r\n\r\nhalf"));
  EXPECT_EQ(client.ask("GET", "/health").status, 200);
}

TEST_F(Serve, AKeyKeepsOthersOut) {
  Server own({}, {"NEOX_SERVE_KEY=open sesame"});
  std::string order = R"({"prompt": "the", "max_tokens": 2})";
  HttpClient client = own.client();
  EXPECT_EQ(client.post("/v1/completions", order).status, 401);
  EXPECT_EQ(client.ask("GET", "/v1/models").status, 401);
  EXPECT_EQ(client.ask("GET", "/health").status, 200);
  std::string wrong = "Authorization: Bearer open\r\n",
              right = "Authorization: Bearer open sesame\r\n";
  EXPECT_EQ(client.ask("POST", "/v1/completions", order, wrong).status, 401);
  EXPECT_EQ(client.ask("POST", "/v1/completions", order, right).status, 200);
  right.replace(right.find('B'), 1, "b");
  EXPECT_EQ(client.ask("POST", "/v1/completions", order, right).status, 200);
}

TEST_F(Serve, AKeyThatNoRequestCanBringIsRefused) {
  Ended empty = Child({program("neox-serve"), run().save(), "--listen", "0"},
                      {.environment = {"NEOX_SERVE_KEY="}})
                    .end();
  EXPECT_EQ(empty.code, 64);
  EXPECT_TRUE(has(empty.err, "NEOX_SERVE_KEY is empty")) << empty.err;
  for (const auto& [end, says] :
       std::vector<std::pair<std::string, std::string>>{{" ", "ends with a blank"},
                                                        {"\t", "ends with a blank"},
                                                        {"\r", "has a control character"},
                                                        {"\nsesame", "has a control character"}}) {
    Ended ended = Child({program("neox-serve"), run().save(), "--listen", "0"},
                        {.environment = {"NEOX_SERVE_KEY=open" + end}})
                      .end();
    EXPECT_EQ(ended.code, 64);
    EXPECT_TRUE(has(ended.err, "NEOX_SERVE_KEY " + says)) << ended.err;
    EXPECT_FALSE(has(ended.err, "open")) << ended.err;
  }
}

TEST_F(Serve, RefusesWhatIsNestedDeeply) {
  const int levels = 100'000;
  std::string deep = std::string(levels, '[') + std::string(levels, ']');
  for (const char* field : {"n", "temperature", "prompt", "tools"}) {
    HttpAnswer answer = server().client().post(
        "/v1/completions", concat(R"({"prompt": "a", ")", field, R"(": )", deep, "}"));
    EXPECT_EQ(answer.status, 400);
    EXPECT_TRUE(has(answer.body, "nested in more than 16 levels")) << answer.body;
  }
}

// Each new key is looked for among all, by the one thread that reads requests.
TEST_F(Serve, RefusesObjectsOfManyKeys) {
  std::string many;
  for (int i = 0; i < 80'000; ++i) many += concat(i ? ", " : "", '"', i, "\": 1");
  HttpAnswer answer = server().client().post("/v1/completions", "{" + many + "}");
  EXPECT_EQ(answer.status, 400);
  EXPECT_TRUE(has(answer.body, "has an object of more than 1000 keys")) << answer.body;
}

// Stops of one letter, which tokens hold in their middle and at their ends.
TEST_F(Serve, EventsJoinedAreTheTextBeforeAnyStop) {
  Json order = {{"prompt", "the mi"}, {"max_tokens", 12}};
  int stopped = 0;
  for (const char* stop : {"a", "e", "n", " ", "ka", "mi "})
    for (int seed = 0; seed < 6; ++seed) {
      order["stop"] = {stop, "never there"};
      order["seed"] = seed;
      order["stream"] = false;
      Json choice = server().completion(order)["choices"][0];
      order["stream"] = true;
      HttpAnswer answer = server().client().post("/v1/completions", order.dump());
      EXPECT_EQ(choice["text"], streamed(answer.body)) << order.dump();
      stopped += choice["finish_reason"] == "stop" && choice["text"] != "" ? 1 : 0;
    }
  EXPECT_GT(stopped, 5);
}

TEST_F(Serve, WithoutNewTokensEchoIsThePromptAlone) {
  Json order = {{"prompt", "the mi"}, {"max_tokens", 0}, {"echo", true}, {"n", 2}};
  Json answer = server().completion(order);
  EXPECT_EQ(answer["usage"]["completion_tokens"], 0);
  for (const Json& choice : answer["choices"]) {
    EXPECT_EQ(choice["text"], "the mi");
    EXPECT_EQ(choice["finish_reason"], "length");
  }
  order = {{"prompt", Tokens(48, 7)}, {"max_tokens", 0}, {"echo", true}};
  EXPECT_EQ(server().completion(order)["usage"]["prompt_tokens"], 48);
}

TEST_F(Serve, ATopPOfZeroIsTheLikeliestToken) {
  for (double top_p : {0.0, 1e-6}) {
    Json order = {{"prompt", "the mi"}, {"max_tokens", 12}, {"top_p", top_p}};
    EXPECT_EQ(server().text(order), generated("the mi"));
  }
}

TEST_F(Serve, SpeaksHttp) {
  HttpClient client = server().client();
  HttpAnswer head = client.ask("HEAD", "/health"), get = client.ask("GET", "/health");
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.head, get.head);
  EXPECT_EQ(head.body, "");
  HttpAnswer malformed = client.ask("GET", "/health", "", "Content-Length: -5\r\n");
  EXPECT_EQ(malformed.status, 400);
  EXPECT_TRUE(Json::parse(malformed.body)["error"].contains("message"));
  std::string body = Json{{"prompt", "a"}, {"max_tokens", 1}}.dump();
  HttpAnswer waited = client.ask("POST", "/v1/completions", body, "Expect: 100-continue\r\n");
  EXPECT_EQ(waited.status, 100);
  EXPECT_TRUE(has(waited.body, "200 OK")) << waited.body;
}

// Before the connection has been idle for too long (60 s), also where they would keep it.
TEST_F(Serve, WhoSpeaksHttp10SeesTheEndOfAStream) {
  std::string body = Json{{"prompt", "a"}, {"max_tokens", 2}, {"stream", true}}.dump(), all;
  int fd = server().client().send(concat(
      "POST /v1/completions HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: ", body.size(),
      "\r\n\r\n", body));
  timeval patience{.tv_sec = 20, .tv_usec = 0};
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  char part[4096];
  ssize_t n = 0;
  while ((n = ::recv(fd, part, sizeof part, 0)) > 0) all.append(part, static_cast<size_t>(n));
  ::close(fd);
  EXPECT_EQ(n, 0) << all;
  EXPECT_TRUE(all.ends_with("data: [DONE]\n\n")) << all;
}

}  // namespace
}  // namespace neox::testing
