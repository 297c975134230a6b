// Downloads and archives, against a server of our own.
#include "corpus/download.h"

#include <archive.h>
#include <archive_entry.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "corpus/sha256.h"
#include "corpus/unpack.h"
#include "data_files.h"
#include "http_server.h"

namespace neox {
namespace {

using ::testing::AllOf;
using testing::Directory;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using testing::HttpServer;
using ::testing::IsEmpty;
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
    return error_of([&] { download(remote, dir_ / "got/f", options); });
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

TEST_F(Download, StartsAgainWithoutVersionsOrRanges) {
  for (Served served : {Served{.etag = ""}, Served{.ranges = false}}) {
    fs::remove_all(dir_ / "got");
    served.files["/f"] = content_;
    served.cut_after = 10000;
    HttpServer server(served);
    EXPECT_EQ(fetch(file(server)), "");
    EXPECT_EQ(read_file(dir_ / "got/f"), content_);
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
  EXPECT_THAT(fetch({.urls = {url, url}}, {.connect_seconds = 2}), HasSubstr("Timeout was reached"));
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

// An archive of these members; links point to the content.
void put_archive(const std::string& path,
                 const std::vector<std::pair<std::string, std::string>>& members,
                 mode_t type = AE_IFREG) {
  archive* out = archive_write_new();
  const std::map<std::string, const char*> filters = {
      {".gz", "gzip"}, {".xz", "xz"}, {".bz2", "bzip2"}, {".zst", "zstd"}};
  std::string ending = fs::path(path).extension();
  ending == ".zip" ? archive_write_set_format_zip(out) : archive_write_set_format_ustar(out);
  if (filters.contains(ending)) archive_write_add_filter_by_name(out, filters.at(ending));
  check(archive_write_open_filename(out, path.c_str()) == ARCHIVE_OK, "archive ", path);
  for (const auto& [name, text] : members) {
    archive_entry* entry = archive_entry_new();
    archive_entry_set_pathname(entry, name.c_str());
    archive_entry_set_filetype(entry, type);
    archive_entry_set_perm(entry, 0644);
    if (type == AE_IFLNK) archive_entry_set_symlink(entry, text.c_str());
    archive_entry_set_size(entry, type == AE_IFREG ? static_cast<la_int64_t>(text.size()) : 0);
    archive_write_header(out, entry);
    if (type == AE_IFREG) archive_write_data(out, text.data(), text.size());
    archive_entry_free(entry);
  }
  archive_write_close(out);
  archive_write_free(out);
}

class Unpack : public ::testing::Test {
 protected:
  std::string refusal(const std::string& name, const std::vector<std::string>& members = {}) {
    std::string error = error_of([&] { unpack(dir_ / name, members, dir_ / "out", "1"); });
    EXPECT_FALSE(fs::exists(dir_ / "out.tmp-1"));
    return error;
  }
  Directory dir_;
};

TEST_F(Unpack, ReadsEveryKindOfArchive) {
  for (const char* name : {"a.zip", "a.tar", "a.tar.gz", "a.tar.xz", "a.tar.bz2", "a.tar.zst"}) {
    put_archive(dir_ / name, {{"x/one", content()}, {"two", "2"}, {"none", ""}});
    EXPECT_EQ(refusal(name), "") << name;
    EXPECT_EQ(read_file(dir_ / "out/x/one"), content());
    EXPECT_EQ(read_file(dir_ / "out/two"), "2");
    EXPECT_EQ(read_file(dir_ / "out/none"), "");
  }
}

TEST_F(Unpack, TakesTheMembersThatAreNamed) {
  put_archive(dir_ / "a.zip", {{"one", "1"}, {"two", "2"}});
  EXPECT_EQ(refusal("a.zip", {"two"}), "");
  EXPECT_FALSE(fs::exists(dir_ / "out/one"));
  EXPECT_THAT(refusal("a.zip", {"three"}), HasSubstr("no member three; it has one, two"));
  EXPECT_EQ(read_file(dir_ / "out/two"), "2");
}

TEST_F(Unpack, RefusesWhatLeadsOutOfTheDirectory) {
  for (const char* name : {"../evil", "/tmp/neox-evil", "a/../../evil"}) {
    put_archive(dir_ / "a.tar", {{"good", "1"}, {name, "2"}});
    EXPECT_THAT(refusal("a.tar"), AllOf(HasSubstr("74: "), HasSubstr("outside of the directory")))
        << name;
  }
  put_archive(dir_ / "a.tar", {{"link", "/etc"}}, AE_IFLNK);
  EXPECT_THAT(refusal("a.tar"), HasSubstr("neither a file nor a directory"));
  EXPECT_THAT(dir_.list(), ElementsAre("a.tar"));
}

TEST_F(Unpack, NamesADamagedArchive) {
  put_archive(dir_ / "a.zip", {{"one", content()}});
  std::string bytes = read_file(dir_ / "a.zip");
  dir_.put("short.zip", bytes.substr(0, bytes.size() / 2));
  EXPECT_THAT(refusal("short.zip"), AllOf(HasSubstr("74: cannot unpack"), HasSubstr("short.zip")));
  bytes[bytes.size() / 2] ^= 1;
  dir_.put("bad.zip", bytes);
  EXPECT_THAT(refusal("bad.zip"), HasSubstr("cannot unpack"));
  dir_.put("page.zip", "<html>sorry</html>");
  EXPECT_THAT(refusal("page.zip"), HasSubstr("page.zip is not an archive"));
}

TEST(Sha256, IsTheStandards) {
  Directory dir;
  EXPECT_EQ(sha256_of_file(dir.put("abc", "abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

}  // namespace
}  // namespace neox
