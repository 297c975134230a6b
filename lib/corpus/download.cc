#include "corpus/download.h"

#include <curl/curl.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/text.h"
#include "base/version.h"
#include "corpus/sha256.h"

namespace neox {
namespace {

using Seconds = std::chrono::duration<double>;

double now() { return Seconds(std::chrono::steady_clock::now().time_since_epoch()).count(); }

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

// The bytes that have come so far, and which version of which file they are of: an ETag or a date,
// without which a transfer starts again. Locked, so that two processes do not write one file.
class PartFile {
 public:
  explicit PartFile(const fs::path& to)
      : path_(to.string() + ".part"), from_(to.string() + ".part.from") {
    fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    check_io(fd_ >= 0, "cannot create ", path_, ": ", describe_errno(errno));
    if (::flock(fd_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      ::close(fd_);
      fail(Exit::kIo, "another process is downloading ", path_, "; wait for it");
    }
    bytes_ = static_cast<int64_t>(fs::file_size(path_));
    if (bytes_ > 0 && fs::exists(from_)) version_ = read_file(from_);
    if (version_.empty()) restart("");
  }
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;
  ~PartFile() {
    if (bytes_ == 0 && !published_) ::unlink(path_.c_str());
    ::close(fd_);
  }

  int64_t bytes() const { return bytes_; }
  const std::string& version() const { return version_; }
  const std::string& path() const { return path_; }

  void restart(const std::string& version) {
    check_io(::ftruncate(fd_, 0) == 0, "cannot empty ", path_, ": ", describe_errno(errno));
    bytes_ = 0;
    version_ = version;
    version.empty() ? static_cast<void>(fs::remove(from_)) : write_file_atomically(from_, version);
  }

  void append(const char* data, size_t size) {
    while (size > 0) {
      ssize_t n = ::pwrite(fd_, data, size, bytes_);
      if (n < 0 && errno == EINTR) continue;
      check_io(n >= 0, "cannot write ", path_, ": ", describe_errno(errno));
      data += n;
      size -= static_cast<size_t>(n);
      bytes_ += n;
    }
  }

  void publish(const fs::path& to) {
    check_io(::fsync(fd_) == 0, "cannot flush ", path_, ": ", describe_errno(errno));
    check_io(::rename(path_.c_str(), to.c_str()) == 0, "cannot rename ", path_, " to ", to.string(),
             ": ", describe_errno(errno));
    published_ = true;
    fs::remove(from_);
    sync_directory(to.parent_path().empty() ? "." : to.parent_path());
  }

 private:
  std::string path_, from_, version_;
  int fd_ = -1;
  int64_t bytes_ = 0;
  bool published_ = false;
};

// What is left to do after a try.
enum class Next { kDone, kResume, kOtherAddress };

struct Outcome {
  Next next = Next::kDone;
  bool connected = false;
  std::string message = {};
};

// One request: what is missing of the file, or all of it where the server has another version.
class Transfer {
 public:
  Transfer(const std::string& url, PartFile& part, Progress& progress,
           const DownloadOptions& options, double connect_seconds)
      : curl_(curl_easy_init(), curl_easy_cleanup),
        url_(url),
        part_(part),
        progress_(progress),
        options_(options),
        headers_(nullptr, curl_slist_free_all) {
    check(curl_ != nullptr, "libcurl gives no handle");
    set(CURLOPT_URL, url.c_str());
    set(CURLOPT_PROTOCOLS_STR, "http,https");
    set(CURLOPT_FOLLOWLOCATION, 1L);
    set(CURLOPT_FAILONERROR, 1L);
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_QUICK_EXIT, 1L);  // does not wait for a name server that is silent
    set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(1000 * connect_seconds));
    set(CURLOPT_LOW_SPEED_LIMIT, 1L);
    set(CURLOPT_LOW_SPEED_TIME, std::max(1L, static_cast<long>(options.stall_seconds)));
    set(CURLOPT_USERAGENT, concat("neox.cpp/", kVersion).c_str());
    set(CURLOPT_ERRORBUFFER, error_);
    set(CURLOPT_HEADERFUNCTION, &Transfer::header);
    set(CURLOPT_HEADERDATA, this);
    set(CURLOPT_WRITEFUNCTION, &Transfer::body);
    set(CURLOPT_WRITEDATA, this);
    set(CURLOPT_XFERINFOFUNCTION, &Transfer::look);
    set(CURLOPT_XFERINFODATA, this);
    set(CURLOPT_NOPROGRESS, 0L);
    if (part.bytes() > 0) {
      set(CURLOPT_RANGE, concat(part.bytes(), "-").c_str());
      headers_.reset(curl_slist_append(nullptr, ("If-Range: " + part.version()).c_str()));
      set(CURLOPT_HTTPHEADER, headers_.get());
    }
  }

  Outcome run() {
    CURLcode code = curl_easy_perform(curl_.get());
    if (thrown_) std::rethrow_exception(thrown_);
    check_io(!stopped(), "the download was stopped");
    long status = response();
    bool connected = status > 0;
    if (code == CURLE_OK) {
      if (!begun_) begin();  // an empty file
      return {Next::kDone, connected};
    }
    std::string why =
        concat(url_, ": ",
               code == CURLE_HTTP_RETURNED_ERROR ? concat("HTTP status ", status) : describe(code));
    if (status == 416) {  // there is nothing behind what has come, or it is another file
      part_.restart("");
      return {Next::kResume, connected, why};
    }
    bool cured_by_waiting =
        code != CURLE_HTTP_RETURNED_ERROR || status >= 500 || status == 408 || status == 429;
    return {connected && cured_by_waiting ? Next::kResume : Next::kOtherAddress, connected, why};
  }

 private:
  template <class Value>
  void set(CURLoption option, Value value) {
    CURLcode code = curl_easy_setopt(curl_.get(), option, value);
    check(code == CURLE_OK, "libcurl refuses option ", option, ": ", curl_easy_strerror(code));
  }

  long response() const {
    long status = 0;
    curl_easy_getinfo(curl_.get(), CURLINFO_RESPONSE_CODE, &status);
    return status;
  }

  std::string describe(CURLcode code) const {
    return error_[0] ? std::string(error_) : std::string(curl_easy_strerror(code));
  }

  bool stopped() const { return options_.stop && *options_.stop; }

  static size_t header(char* data, size_t, size_t size, void* self) {
    static_cast<Transfer*>(self)->take_header(std::string(data, size));
    return size;
  }

  void take_header(const std::string& line) {
    if (line.starts_with("HTTP/")) etag_ = date_ = range_ = "";  // of an answer that led elsewhere
    size_t colon = line.find(':');
    if (colon == std::string::npos) return;
    std::string name = lower(line.substr(0, colon)), value(trim(line.substr(colon + 1)));
    if (name == "etag" && !value.starts_with("W/"))
      etag_ = value;  // a weak one may not ask for ranges
    if (name == "last-modified") date_ = value;
    if (name == "content-range") range_ = value;
  }

  // Before the first byte of the file: is it the rest of what is there?
  void begin() {
    begun_ = true;
    bool rest = response() == 206 && range_.starts_with(concat("bytes ", part_.bytes(), "-"));
    check_io(rest || response() != 206, url_,
             ": the server sends another part of the file than byte ", part_.bytes(), " on (",
             range_, "); remove ", part_.path(), " and start again");
    if (!rest) part_.restart(etag_.empty() ? date_ : etag_);
  }

  // What a callback throws goes through run(), since C code lies in between.
  static size_t body(char* data, size_t, size_t size, void* self) {
    auto& transfer = *static_cast<Transfer*>(self);
    try {
      if (!transfer.begun_) transfer.begin();
      transfer.part_.append(data, size);
      transfer.progress_.update(transfer.part_.bytes());
      return size;
    } catch (...) {
      transfer.thrown_ = std::current_exception();
      return CURL_WRITEFUNC_ERROR;
    }
  }

  static int look(void* self, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
    return static_cast<Transfer*>(self)->stopped() ? 1 : 0;
  }

  std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> curl_;
  std::string url_;
  PartFile& part_;
  Progress& progress_;
  const DownloadOptions& options_;
  std::unique_ptr<curl_slist, decltype(&curl_slist_free_all)> headers_;
  char error_[CURL_ERROR_SIZE] = {};
  std::string etag_, date_, range_;
  bool begun_ = false;
  std::exception_ptr thrown_;
};

class Download {
 public:
  Download(const RemoteFile& file, const fs::path& to, const DownloadOptions& options)
      : file_(file),
        to_(to),
        options_(options),
        part_(to),
        progress_({.label = "download " + to.filename().string(),
                   .unit = "B",
                   .total = file.bytes,
                   .start = part_.bytes()}) {}

  void run() {
    static const CURLcode ready = curl_global_init(CURL_GLOBAL_DEFAULT);
    check(ready == CURLE_OK, "libcurl does not start");
    if (part_.bytes() > 0 && part_.bytes() == file_.bytes && finish(part_.path())) return;
    double begin = now();
    for (size_t i = 0; i < file_.urls.size(); ++i) {
      double left = options_.connect_seconds - (connected_ ? 0 : now() - begin);
      if (try_address(file_.urls[i], left / static_cast<double>(file_.urls.size() - i))) return;
    }
    fail(Exit::kIo, "cannot download ", to_.string(), ":\n  ", join(messages_, "\n  "),
         options_.advice.empty() ? "" : "\n", options_.advice);
  }

 private:
  bool try_address(const std::string& url, double connect_seconds) {
    double pause = options_.first_pause_seconds;
    for (int retries = options_.retries;;) {
      int64_t before = part_.bytes();
      Outcome outcome =
          Transfer(url, part_, progress_, options_, std::max(0.5, connect_seconds)).run();
      connected_ = connected_ || outcome.connected;
      if (outcome.next == Next::kDone && finish(url)) return true;
      if (outcome.next == Next::kDone) return false;  // whole, and wrong
      if (part_.bytes() > before) retries = options_.retries, pause = options_.first_pause_seconds;
      if (outcome.next == Next::kOtherAddress || retries-- == 0) {
        messages_.push_back(outcome.message);
        return false;
      }
      log_warning(outcome.message, "; trying again in ", human_duration(pause));
      std::this_thread::sleep_for(Seconds(pause));
      pause = std::min(2 * pause, 60.0);
    }
  }

  // A file of another content is a fault of the server: it must not be resumed.
  bool finish(const std::string& url) {
    try {
      check_content(file_, part_.path());
    } catch (const Error& e) {
      messages_.push_back(concat(url, ": ", e.what()));
      part_.restart("");
      return false;
    }
    part_.publish(to_);
    progress_.finish();
    return true;
  }

  const RemoteFile& file_;
  const fs::path& to_;
  const DownloadOptions& options_;
  PartFile part_;
  Progress progress_;
  bool connected_ = false;
  std::vector<std::string> messages_;
};

}  // namespace

bool is_downloaded(const RemoteFile& file, const fs::path& to) {
  return fs::is_regular_file(to) &&
         (file.bytes < 0 || static_cast<int64_t>(fs::file_size(to)) == file.bytes);
}

void check_content(const RemoteFile& file, const fs::path& path) {
  auto bytes = static_cast<int64_t>(fs::file_size(path));
  check_io(file.bytes < 0 || bytes == file.bytes, path.string(), " has ", with_commas(bytes),
           " bytes and should have ", with_commas(file.bytes));
  if (file.sha256.empty()) return;
  std::string found = sha256_of_file(path);
  check_io(found == file.sha256, path.string(), " has the SHA-256 ", found, " and should have ",
           file.sha256, "; it is damaged, or not the file that is meant");
}

void download(const RemoteFile& file, const fs::path& to, const DownloadOptions& options) {
  if (options.existing == DownloadOptions::Existing::kKeep && is_downloaded(file, to)) return;
  check_io(options.network == DownloadOptions::Network::kUse, to.string(),
           fs::exists(to) ? " is not whole" : " is not there",
           ", and --offline forbids to fetch it", options.advice.empty() ? "" : "\n",
           options.advice);
  if (!to.parent_path().empty()) make_directories(to.parent_path());
  Download(file, to, options).run();
}

}  // namespace neox
