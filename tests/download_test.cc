// Downloads, against a server of our own.
#include "corpus/download.h"
#include "corpus/request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "child.h"
#include "corpus/sha256.h"
#include "corpus/transfer.h"
#include "data_files.h"
#include "fault_preload.h"
#include "http_server.h"
#include "launch/certificates.h"

namespace neox {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using testing::Directory;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using testing::HttpServer;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::Served;
using ::testing::SizeIs;

std::string content() {
  std::string text;
  for (int i = 0; i < 50000; ++i) text += std::to_string(i * 7919 % 1000);
  return text;
}

class Download : public ::testing::Test {
 protected:
  Download() {
    for (const char* name :
         {"http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"})
      ::unsetenv(name);
  }

  RemoteFile file(const HttpServer& server) const {
    return {.urls = {server.url("/f")},
            .bytes = static_cast<int64_t>(content_.size()),
            .sha256 = sha256_of_file(dir_.put("wanted/f", content_))};
  }
  std::string fetch(const RemoteFile& remote, DownloadOptions options = {}) {
    options.first_pause_seconds = 0.01;
    DownloadFile file{remote, dir_ / "got/f"};
    return error_of([&] { download({&file, 1}, "f", options); });
  }

  // Several files, "/0" and so on of the server.
  Served several(size_t count) const {
    Served served;
    for (size_t i = 0; i < count; ++i) served.files[concat("/", i)] = content_ + std::to_string(i);
    return served;
  }
  std::vector<DownloadFile> files(const HttpServer& server, size_t count) const {
    std::vector<DownloadFile> found;
    for (size_t i = 0; i < count; ++i)
      found.push_back({{.urls = {server.url(concat("/", i))}}, dir_ / concat("got/", i)});
    return found;
  }
  std::string fetch(const std::vector<DownloadFile>& files, DownloadOptions options = {}) {
    options.first_pause_seconds = 0.01;
    return error_of([&] { download(files, "all", options); });
  }
  // Nothing else is there.
  void expect_whole(size_t count) const {
    for (size_t i = 0; i < count; ++i)
      EXPECT_EQ(read_file(dir_ / concat("got/", i)), content_ + std::to_string(i)) << i;
    EXPECT_THAT(names(), SizeIs(count));
  }
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    if (!fs::exists(dir_ / "got")) return found;
    for (const auto& entry : fs::directory_iterator(dir_ / "got"))
      found.push_back(entry.path().filename());
    std::sort(found.begin(), found.end());
    return found;
  }

  Directory dir_;
  std::string content_ = content();
};

TEST_F(Download, BringsAFileAndFindsItAgainWithoutAConnection) {
  HttpServer server({.files = {{"/f", content_}}});
  EXPECT_EQ(fetch(file(server)), "");
  EXPECT_EQ(read_file(dir_ / "got/f"), content_);
  EXPECT_THAT(names(), ElementsAre("f"));
  EXPECT_EQ(fetch(file(server), {.network = DownloadOptions::Network::kRefuse}), "");
  EXPECT_EQ(fetch(file(server)), "");
  EXPECT_THAT(server.requests(), SizeIs(1));
}

TEST_F(Download, GoesOnWhereAConnectionWasCut) {
  HttpServer server({.files = {{"/f", content_}}, .cut_after = 10000, .cuts = 3});
  EXPECT_EQ(fetch(file(server)), "");
  EXPECT_EQ(read_file(dir_ / "got/f"), content_);
  auto requests = server.requests();
  ASSERT_THAT(requests, SizeIs(4));
  EXPECT_THAT(requests[1], AllOf(HasSubstr("Range: bytes=10000-"), HasSubstr("If-Range: \"1\"")));
  EXPECT_THAT(requests[3], HasSubstr("Range: bytes=30000-"));
}

TEST_F(Download, GoesOnInALaterRun) {
  HttpServer server({.files = {{"/f", content_}}, .cut_after = 10000, .cuts = 1});
  EXPECT_THAT(fetch(file(server), {.retries = 0}), HasSubstr("74: cannot download"));
  EXPECT_THAT(names(), ElementsAre("f.part", "f.part.from"));
  EXPECT_EQ(fetch(file(server)), "");
  EXPECT_EQ(read_file(dir_ / "got/f"), content_);
  EXPECT_THAT(server.requests()[1], HasSubstr("Range: bytes=10000-"));
}

TEST_F(Download, StartsAgainWhereTheFileHasChanged) {
  HttpServer server({.files = {{"/f", std::string(content_.size(), 'x')}}, .cut_after = 10000});
  EXPECT_NE(fetch(file(server), {.retries = 0}), "");
  server.change({.files = {{"/f", content_}}, .etag = "\"2\""});
  EXPECT_EQ(fetch(file(server)), "");
  EXPECT_EQ(read_file(dir_ / "got/f"), content_);
}

// What two versions of a file have at the same places is no file.
TEST_F(Download, StartsAgainWhereAServerSendsTheRestOfAnotherVersion) {
  HttpServer server({.files = {{"/f", std::string(content_.size(), 'x')}}, .cut_after = 10000});
  RemoteFile wanted{.urls = {server.url("/f")}};
  EXPECT_NE(fetch(wanted, {.retries = 0}), "");
  server.change({.files = {{"/f", content_}}, .etag = "\"2\"", .knows_if_range = false});
  EXPECT_EQ(fetch(wanted), "");
  EXPECT_EQ(read_file(dir_ / "got/f"), content_);
}

TEST_F(Download, GoesOnBehindRangesThatAreShorterThanAsked) {
  HttpServer server({.files = {{"/f", content_}}, .cut_after = 10000, .part_bytes = 50000});
  EXPECT_EQ(fetch({.urls = {server.url("/f")}}), "");
  EXPECT_EQ(read_file(dir_ / "got/f"), content_);
}

TEST_F(Download, AsksAgainWhereAServerHangsUp) {
  HttpServer server({.files = {{"/f", content_}}, .hang_ups = 2});
  EXPECT_EQ(fetch(file(server)), "");
  EXPECT_EQ(read_file(dir_ / "got/f"), content_);
  EXPECT_THAT(server.requests(), SizeIs(3));
}

TEST_F(Download, APartOfAFileWithoutVersionIsKnownAsOne) {
  HttpServer server({.files = {{"/f", content_}}, .etag = "", .cut_after = 10000});
  EXPECT_NE(fetch(file(server), {.retries = 0}), "");
  EXPECT_THAT(names(), ElementsAre("f.part", "f.part.from"));
  EXPECT_EQ(fetch(file(server)), "");
  EXPECT_THAT(names(), ElementsAre("f"));
  EXPECT_EQ(read_file(dir_ / "got/f"), content_);
}

TEST_F(Download, StartsAgainWithoutVersionsOrRanges) {
  for (Served served : {Served{.etag = ""}, Served{.ranges = false}}) {
    fs::remove_all(dir_ / "got");
    served.files["/f"] = content_;
    served.cut_after = 10000;
    HttpServer server(served);
    EXPECT_EQ(fetch(file(server)), "");
    EXPECT_EQ(read_file(dir_ / "got/f"), content_);
    if (!served.etag.empty()) continue;
    EXPECT_THAT(server.requests().at(1), Not(HasSubstr("Range:")));
  }
}

TEST_F(Download, NamesAWrongChecksumAndKeepsNothing) {
  std::string other = content_;
  other[77] = '#';
  HttpServer server({.files = {{"/f", other}}});
  RemoteFile wanted = file(server);
  EXPECT_THAT(fetch(wanted),
              AllOf(HasSubstr(server.url("/f")), HasSubstr("SHA-256"), HasSubstr(wanted.sha256)));
  EXPECT_THAT(names(), IsEmpty());
  HttpServer shorter({.files = {{"/f", content_.substr(1)}}});
  EXPECT_THAT(fetch(file(shorter)), HasSubstr("and should have"));
}

TEST_F(Download, TakesTheNextAddress) {
  HttpServer server({.files = {{"/f", content_}}}), absent({.files = {}});
  RemoteFile wanted = file(server);
  wanted.urls.insert(wanted.urls.begin(), absent.url("/f"));
  EXPECT_EQ(fetch(wanted), "");
  EXPECT_THAT(absent.requests(), SizeIs(1));
  fs::remove_all(dir_ / "got");
  EXPECT_THAT(fetch(file(absent), {.advice = "do this"}),
              AllOf(HasSubstr("HTTP status 404"), HasSubstr("do this")));
}

TEST_F(Download, TriesAgainWhereTheServerIsBusy) {
  HttpServer server({.files = {{"/f", content_}}, .status = 503});
  EXPECT_THAT(fetch(file(server), {.retries = 2}), HasSubstr("HTTP status 503"));
  EXPECT_THAT(server.requests(), SizeIs(3));
}

TEST_F(Download, GivesUpASilentServer) {
  HttpServer server({.files = {}, .silent = true});
  EXPECT_THAT(fetch(file(server), {.stall_seconds = 1, .retries = 0}),
              HasSubstr("cannot download"));
}

TEST_F(Download, FailsSoonWithoutARoute) {
  auto begin = std::chrono::steady_clock::now();
  RemoteFile remote{
      .urls = {"http://192.0.2.1/f", "http://198.51.100.1/f", "http://none.invalid/f"}};
  EXPECT_THAT(fetch(remote, {.advice = "on the login node", .connect_seconds = 2}),
              AllOf(HasSubstr("74: cannot download"), HasSubstr("192.0.2.1"),
                    HasSubstr("198.51.100.1"), HasSubstr("on the login node")));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(8));
}

// A listener whose queue is full drops what comes, as a firewall does.
TEST_F(Download, FailsSoonWhereNothingAnswers) {
  sockaddr_in address{.sin_family = AF_INET, .sin_port = 0, .sin_addr = {}, .sin_zero = {}};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* general = reinterpret_cast<sockaddr*>(&address);
  std::vector<int> sockets = {::socket(AF_INET, SOCK_STREAM, 0)};
  ASSERT_TRUE(::bind(sockets[0], general, size) == 0 && ::listen(sockets[0], 0) == 0 &&
              ::getsockname(sockets[0], general, &size) == 0);
  for (int i = 0; i < 4; ++i) {
    sockets.push_back(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
    ::connect(sockets.back(), general, size);
  }
  std::string url = concat("http://127.0.0.1:", ntohs(address.sin_port), "/f");
  auto begin = std::chrono::steady_clock::now();
  EXPECT_THAT(fetch(RemoteFile{.urls = {url, url}}, {.connect_seconds = 2}),
              AnyOf(HasSubstr("Timeout was reached"), HasSubstr("timed out")));
  auto passed = std::chrono::steady_clock::now() - begin;
  EXPECT_GT(passed, std::chrono::seconds(1));
  EXPECT_LT(passed, std::chrono::seconds(6));
  for (int socket : sockets) ::close(socket);
}

TEST_F(Download, OfflineNeedsTheFile) {
  HttpServer server({.files = {{"/f", content_}}});
  EXPECT_THAT(
      fetch(file(server), {.network = DownloadOptions::Network::kRefuse, .advice = "do this"}),
      AllOf(HasSubstr("--offline"), HasSubstr("do this")));
  EXPECT_THAT(server.requests(), IsEmpty());
}

TEST_F(Download, StopsWhenAsked) {
  HttpServer server({.files = {{"/f", content_}}, .silent = true});
  std::atomic<bool> stop = true;
  EXPECT_THAT(fetch(file(server), {.stop = &stop}), HasSubstr("stopped"));
}

TEST_F(Download, RefusesAFileOfAnotherSizeBeforeItComes) {
  HttpServer server({.files = {{"/f", content_ + "more"}}, .stall_after = 1000});
  EXPECT_THAT(fetch(file(server), {.stall_seconds = 1, .retries = 0}),
              AllOf(HasSubstr("and should have"), HasSubstr("/f: the file")));
  EXPECT_THAT(names(), IsEmpty());
}

TEST_F(Download, GoesOnBehindARedirectAndASilence) {
  HttpServer other({.files = {{"/there", content_}}, .stall_after = content_.size() / 2 + 1});
  HttpServer server({.files = {}, .redirects = {{"/f", other.url("/there")}}});
  ASSERT_EQ(fetch(file(server), {.stall_seconds = 1}), "");
  EXPECT_EQ(read_file(dir_ / "got/f"), content_);
  EXPECT_THAT(other.requests().back(), HasSubstr("If-Range: \"1\""));
  HttpServer circle({.files = {}, .redirects = {{"/f", "/f"}}});
  EXPECT_THAT(fetch(file(circle), {.existing = DownloadOptions::Existing::kReplace, .retries = 1}),
              HasSubstr("redirects"));
  EXPECT_LT(circle.requests().size(), 15U);  // asked once: it goes on like that
}

TEST_F(Download, BringsSeveralFilesAtOnceAndOnlyThoseThatAreMissing) {
  Served served = several(7);
  served.pause_ms = 100;
  HttpServer server(served);
  EXPECT_EQ(fetch(files(server, 7), {.files_at_once = 3}), "");
  expect_whole(7);
  EXPECT_EQ(server.most_at_once(), 3);
  fs::remove(dir_ / "got/4");
  EXPECT_EQ(fetch(files(server, 7)), "");
  EXPECT_THAT(server.requests(), SizeIs(8));
  expect_whole(7);
}

TEST_F(Download, EndsAllWithTheFirstFileThatCannotBeHad) {
  Served served = several(20);
  served.files.erase("/2");
  served.pause_ms = 20;
  HttpServer server(served);
  EXPECT_THAT(fetch(files(server, 20), {.files_at_once = 2, .advice = "do this"}),
              AllOf(HasSubstr("74: cannot download " + (dir_ / "got/2")), HasSubstr("do this")));
  EXPECT_LT(server.requests().size(), 8);
  EXPECT_THAT(fetch(files(server, 20), {.network = DownloadOptions::Network::kRefuse}),
              AllOf(HasSubstr("got/2 is not there, and"), HasSubstr(" more, and --offline")));
}

TEST_F(Download, GoesOnWithSeveralFilesAfterAKill) {
  Served served = several(5);
  HttpServer server(served);
  auto all = files(server, 5);
  auto size = static_cast<int64_t>(content_.size());
  testing::Child child(
      [&] {
        neox_fault((dir_ / "got").c_str(), kFaultKill, 2 * size + size / 2, -1);
        return fetch(all, {.files_at_once = 3}).empty() ? 0 : 1;
      },
      {});
  EXPECT_EQ(child.end().code, -SIGKILL);
  size_t before = server.requests().size();
  EXPECT_EQ(fetch(all), "");
  expect_whole(5);
  auto requests = server.requests();
  bool resumed =
      std::any_of(requests.begin() + static_cast<long>(before), requests.end(),
                  [](const std::string& r) { return r.find("Range: bytes=") != r.npos; });
  EXPECT_TRUE(resumed);
}

TEST_F(Download, TidiesAfterAKillBetweenNamingAndTheEnd) {
  HttpServer server(several(2));
  auto all = files(server, 2);
  EXPECT_EQ(fetch(all), "");
  write_file_atomically(dir_ / "got/0.part.from", "v1");
  EXPECT_EQ(fetch(all), "");
  expect_whole(2);
}

TEST_F(Download, TidiesAfterAKillBeforeTheVersionIsNamed) {
  HttpServer server({.files = {{"/f", content_}}});
  dir_.put("got/f.part", "");
  dir_.put("got/f.part.from.tmp-77", "v");
  EXPECT_EQ(fetch(file(server)), "");
  EXPECT_THAT(names(), ElementsAre("f"));
}

TEST_F(Download, SaysWhyAFileCannotHaveItsName) {
  fs::create_directory(dir_ / "f");
  PartFile part(dir_ / "f");
  EXPECT_EQ(error_of([&] { part.publish(dir_ / "f"); }),
            concat("74: cannot rename ", dir_ / "f.part", " to ", dir_ / "f",
                   ": Is a directory (EISDIR): give the path of a file"));
}

TEST_F(Download, NamesTheFileWhereTheDiskIsFull) {
  HttpServer server(several(3));
  neox_fault((dir_ / "got").c_str(), ENOSPC, 100000, -1);
  std::string message = fetch(files(server, 3));
  neox_fault("", 0, -1, -1);
  EXPECT_THAT(message, AllOf(HasSubstr("74: cannot write " + (dir_ / "got/")),
                             HasSubstr("No space left on device")));
  for (const std::string& name : names()) EXPECT_THAT(name, HasSubstr(".part"));
  EXPECT_EQ(fetch(files(server, 3)), "");
  expect_whole(3);
}

TEST(Certificates, AreWhereTheDistributionHasThem) {
  Directory root;
  EXPECT_EQ(certificates({}, root.path()), "");
  std::string red_hat = root.put("etc/pki/tls/certs/ca-bundle.crt", "x");
  EXPECT_EQ(certificates({}, root.path()), red_hat);
  std::string debian = root.put("etc/ssl/certs/ca-certificates.crt", "x");
  EXPECT_EQ(certificates({}, root.path()), debian);
  EXPECT_EQ(certificates({{"CURL_CA_BUNDLE", "/site.pem"}}, root.path()), "/site.pem");
}

TEST(Sha256, IsTheStandards) {
  Directory dir;
  EXPECT_EQ(sha256_of_file(dir.put("abc", "abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

}  // namespace
}  // namespace neox
