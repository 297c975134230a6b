#include "corpus/transfer.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <exception>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "corpus/request.h"

namespace neox {

PartFile::PartFile(const fs::path& to)
    : path_(to.string() + ".part"),
      from_(to.string() + ".part.from"),
      file_(path_, O_RDWR | O_CREAT, "create") {
  bool held = ::flock(file_.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  check_io(!held, "another process is downloading ", path_, "; wait for it");
  bytes_ = static_cast<int64_t>(fs::file_size(path_));
  if (bytes_ > 0 && fs::exists(from_)) version_ = read_file(from_);
  if (version_.empty()) restart("");
}

PartFile::~PartFile() {
  if (bytes_ == 0 && !published_) ::unlink(path_.c_str());
}

void PartFile::restart(const std::string& version) {
  check_call(::ftruncate(file_.get(), 0) == 0, "empty", path_);
  bytes_ = 0;
  version_ = version;
  version.empty() ? static_cast<void>(fs::remove(from_)) : write_file_atomically(from_, version);
}

void PartFile::append(const char* data, size_t size) {
  // By it others know that this is no file, also where the server tells no version.
  if (bytes_ == 0 && version_.empty()) write_file_atomically(from_, "");
  auto [done, error] = pwrite_all(file_.get(), std::as_bytes(std::span(data, size)), bytes_);
  bytes_ += static_cast<int64_t>(done);
  check_io(error == 0, "cannot write ", path_, ": ", describe_errno(error),
           error == ENOSPC ? "; make room, and start again: it goes on from there" : "");
}

void PartFile::publish(const fs::path& to) {
  check_call(::fsync(file_.get()) == 0, "flush", path_);
  int renamed = ::rename(path_.c_str(), to.c_str());
  check_call(renamed == 0, ("rename " + path_ + " to").c_str(), to);
  published_ = true;
  fs::remove(from_);
  sync_directory(directory_of(to));
}

namespace {

class Transfer {
 public:
  Transfer(const std::string& url, PartFile& part, const TransferLimits& limits,
           const TransferWatch& watch)
      : url_(url),
        part_(part),
        limits_(limits),
        watch_(watch),
        request_(url, limits.connect_seconds) {
    request_.set(CURLOPT_LOW_SPEED_LIMIT, 1L);
    request_.set(CURLOPT_LOW_SPEED_TIME, std::max(1L, static_cast<long>(limits.stall_seconds)));
    request_.set(CURLOPT_WRITEFUNCTION, &Transfer::body);
    request_.set(CURLOPT_WRITEDATA, this);
    request_.set(CURLOPT_XFERINFOFUNCTION, &Transfer::look);
    request_.set(CURLOPT_XFERINFODATA, this);
    request_.set(CURLOPT_NOPROGRESS, 0L);
    // What is not known to be of one version with the rest begins again.
    if (part.bytes() > 0 && part.version().empty()) part.restart("");
    if (part.bytes() > 0) {
      request_.set(CURLOPT_RANGE, concat(part.bytes(), "-").c_str());
      request_.add_header("If-Range: " + part.version());
    }
  }

  Outcome run() {
    CURLcode code = request_.perform();
    if (thrown_) std::rethrow_exception(thrown_);
    check_io(!watch_.stopped(), "the download was stopped");
    long status = request_.status();
    bool connected = status > 0;
    if (code == CURLE_OK && !begun_) begin();  // an empty file
    if (!other_file_.empty()) return {Outcome::Next::kOtherAddress, connected, other_file_};
    if (other_version_) {
      part_.restart("");
      return {Outcome::Next::kResume, connected, url_ + ": the file is another one by now"};
    }
    if (code == CURLE_OK) return whole(connected);
    std::string why = url_ + ": " + request_.describe(code);
    // Somebody was there, and hung up.
    if (code == CURLE_GOT_NOTHING || code == CURLE_RECV_ERROR || code == CURLE_SEND_ERROR)
      connected = true;
    if (status == 416) {  // there is nothing behind what has come, or it is another file
      part_.restart("");
      return {Outcome::Next::kResume, connected, why};
    }
    bool permanent = code == CURLE_UNSUPPORTED_PROTOCOL || code == CURLE_TOO_MANY_REDIRECTS ||
                     code == CURLE_URL_MALFORMAT;
    bool cured_by_waiting = !permanent && (code != CURLE_HTTP_RETURNED_ERROR || status >= 500 ||
                                           status == 408 || status == 429);
    return {connected && cured_by_waiting ? Outcome::Next::kResume : Outcome::Next::kOtherAddress,
            connected, why, request_.retry_after_seconds()};
  }

 private:
  // All that was sent is here: is it all of the file?
  Outcome whole(bool connected) {
    int64_t bytes = request_.whole_bytes();
    if (bytes < 0 || bytes == part_.bytes()) return {Outcome::Next::kDone, connected};
    std::string why = concat(url_, ": the server has sent ", with_commas(part_.bytes()), " of ",
                             with_commas(bytes), " bytes");
    if (part_.bytes() > bytes) part_.restart("");
    return {Outcome::Next::kResume, connected, why};
  }

  // Before the first byte of the file: is it the rest of what is there, of the size that is meant?
  bool begin() {
    begun_ = true;
    bool part = request_.status() == 206;
    check_io(!part || request_.range().starts_with(concat("bytes ", part_.bytes(), "-")), url_,
             ": the server sends another part of the file than byte ", part_.bytes(), " on (",
             request_.range(), "); remove ", part_.path(), " and start again");
    int64_t bytes = request_.whole_bytes();
    if (bytes >= 0 && limits_.file_bytes >= 0 && bytes != limits_.file_bytes) {
      other_file_ = concat(url_, ": the file has ", with_commas(bytes), " bytes and should have ",
                           with_commas(limits_.file_bytes));
      return false;
    }
    if (bytes >= 0) watch_.whole(bytes);
    std::string version = request_.etag().empty() ? request_.date() : request_.etag();
    // A server that does not know If-Range sends the rest of whatever it has.
    other_version_ = part && !version.empty() && version != part_.version();
    if (!part) part_.restart(version);
    return !other_version_;
  }

  // What a callback throws goes through run(), since C code lies in between.
  static size_t body(char* data, size_t, size_t size, void* self) {
    auto& transfer = *static_cast<Transfer*>(self);
    try {
      if (!transfer.begun_ && !transfer.begin()) return CURL_WRITEFUNC_ERROR;
      transfer.part_.append(data, size);
      transfer.watch_.came(transfer.part_.bytes());
      return size;
    } catch (...) {
      transfer.thrown_ = std::current_exception();
      return CURL_WRITEFUNC_ERROR;
    }
  }

  static int look(void* self, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
    return static_cast<Transfer*>(self)->watch_.stopped() ? 1 : 0;
  }

  const std::string& url_;
  PartFile& part_;
  const TransferLimits& limits_;
  const TransferWatch& watch_;
  Request request_;
  bool begun_ = false, other_version_ = false;
  std::string other_file_;
  std::exception_ptr thrown_;
};

}  // namespace

Outcome transfer(const std::string& url, PartFile& part, const TransferLimits& limits,
                 const TransferWatch& watch) {
  return Transfer(url, part, limits, watch).run();
}

}  // namespace neox
