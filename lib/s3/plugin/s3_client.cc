// Arrow's client for S3 behind S3Directory; s3_plugin's entry is the only symbol that others see.
#include <arrow/filesystem/s3fs.h>
#include <arrow/io/interfaces.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <string_view>

#include "base/error.h"
#include "s3/s3_directory.h"

namespace neox {
namespace {

namespace afs = arrow::fs;

// Of those for single parts of objects.
constexpr int kThreads = 32;
constexpr int kTries = 6;
constexpr double kConnectSeconds = 10, kStallSeconds = 10;

void check_s3(const arrow::Status& status, const char* what, const std::string& url) {
  if (!status.ok()) fail(Exit::kIo, "cannot ", what, " ", url, ": ", status.message());
}

template <class Value>
Value result_of(arrow::Result<Value> result, const char* what, const std::string& url) {
  check_s3(result.status(), what, url);
  return std::move(result).ValueUnsafe();
}

// The SDK must be ended while the library's own objects are there, of which the first client makes
// some: those that were made before this one go after it.
void start_sdk(const std::string& url, const std::string& certificates) {
  struct Sdk {
    Sdk(const std::string& url, const std::string& certificates) {
      if (!certificates.empty())
        check_s3(afs::Initialize({.tls_ca_file_path = certificates, .tls_ca_dir_path = ""}),
                 "set up", url);
      afs::S3GlobalOptions options = afs::S3GlobalOptions::Defaults();
      options.log_level = afs::S3LogLevel::Off;
      check_s3(afs::InitializeS3(options), "set up", url);
      check_s3(arrow::io::SetIOThreadPoolCapacity(kThreads), "set up", url);
      afs::S3Options nobody = afs::S3Options::Anonymous();
      nobody.region = "us-east-1";
      check_s3(afs::S3FileSystem::Make(nobody).status(), "set up", url);
    }
    ~Sdk() { (void)afs::FinalizeS3(); }
  };
  static Sdk sdk(url, certificates);
}

// As the SDK tries, until somebody gives up.
class Tries : public afs::S3RetryStrategy {
 public:
  bool ShouldRetry(const AWSErrorDetail& error, int64_t attempted) override {
    return !given_up && sdk_->ShouldRetry(error, attempted);
  }
  int64_t CalculateDelayBeforeNextRetry(const AWSErrorDetail& error, int64_t attempted) override {
    return sdk_->CalculateDelayBeforeNextRetry(error, attempted);
  }
  std::atomic<bool> given_up = false;

 private:
  std::shared_ptr<S3RetryStrategy> sdk_ = GetAwsStandardRetryStrategy(kTries);
};

class Writer : public S3Writer {
 public:
  Writer(std::shared_ptr<arrow::io::OutputStream> stream, std::string url, const Tries& tries)
      : stream_(std::move(stream)), url_(std::move(url)), tries_(tries) {}
  ~Writer() override {
    if (!finished_) (void)stream_->Abort();
  }
  void append(std::span<const std::byte> bytes) override {
    check_io(!tries_.given_up, "cannot write ", url_, ": given up");
    check_s3(stream_->Write(bytes.data(), static_cast<int64_t>(bytes.size())), "write", url_);
    check_s3(stream_->Flush(), "write", url_);  // else it takes all into memory
  }
  void finish() override {
    check_s3(stream_->Close(), "write", url_);
    finished_ = true;
  }

 private:
  std::shared_ptr<arrow::io::OutputStream> stream_;
  std::string url_;
  const Tries& tries_;
  bool finished_ = false;
};

// As a URI has it, up to the options. Names are plain, as in other clients: "a b", "50%".
std::string encoded(const std::string& url) {
  static constexpr char kHex[] = "0123456789ABCDEF";
  size_t options = std::min(url.find('?'), url.size());
  std::string text;
  for (unsigned char c : url.substr(0, options)) {
    bool plain =
        std::isalnum(c) || std::string_view("-._~/:").find(char(c)) != std::string_view::npos;
    if (plain)
      text += static_cast<char>(c);
    else
      text += {'%', kHex[c / 16], kHex[c % 16]};
  }
  return text + url.substr(options);
}

class Client : public S3Directory {
 public:
  explicit Client(const std::string& url) : url_(url.substr(0, url.find('?'))) {
    auto options = result_of(afs::S3Options::FromUri(encoded(url), &path_), "find", url);
    options.retry_strategy = tries_;
    options.connect_timeout = kConnectSeconds;
    options.request_timeout = kStallSeconds;
    options.allow_delayed_open = true;  // small objects are one request then
    system_ = result_of(afs::S3FileSystem::Make(options), "open", url);
  }
  const std::string& url() const override { return url_; }

  std::vector<Object> list(const std::string& below) override {
    afs::FileSelector all;
    all.base_dir = below.empty() ? path_ : concat(path_, "/", below);
    all.recursive = true;
    all.allow_not_found = true;
    std::vector<Object> objects;
    for (const afs::FileInfo& info : result_of(system_->GetFileInfo(all), "list", url_of(below)))
      if (info.type() == afs::FileType::File)
        objects.push_back({info.path().substr(path_.size() + 1), info.size()});
    std::ranges::sort(objects, {}, &Object::name);
    return objects;
  }

  void read(const Object& object, int64_t offset, std::span<std::byte> bytes) override {
    afs::FileInfo info(concat(path_, "/", object.name), afs::FileType::File);
    info.set_size(object.bytes);
    std::string url = url_of(object.name);
    check_io(!tries_->given_up, "cannot read ", url, ": given up");
    auto file = result_of(system_->OpenInputFile(info), "read", url);
    auto size = static_cast<int64_t>(bytes.size());
    int64_t read = result_of(file->ReadAt(offset, size, bytes.data()), "read", url);
    check_io(read == size, "cannot read ", url, ": it ends at byte ", offset + read, ", not ",
             object.bytes);
  }

  std::unique_ptr<S3Writer> write(const std::string& name) override {
    std::string url = url_of(name);
    auto stream = result_of(system_->OpenOutputStream(concat(path_, "/", name)), "write", url);
    return std::make_unique<Writer>(std::move(stream), url, *tries_);
  }

  void give_up() override { tries_->given_up = true; }

 private:
  std::string url_of(const std::string& name) const {
    return name.empty() ? url_ : concat(url_, "/", name);
  }

  std::string url_, path_;  // without options; the latter bucket/prefix
  std::shared_ptr<Tries> tries_ = std::make_shared<Tries>();
  std::shared_ptr<afs::S3FileSystem> system_;
};

std::unique_ptr<S3Directory> open(const std::string& url, const std::string& certificates) {
  start_sdk(url, certificates);
  return std::make_unique<Client>(url);
}

}  // namespace
}  // namespace neox

extern "C" [[gnu::visibility("default")]] const neox::S3Plugin* neox_s3_plugin() {
  static const neox::S3Plugin plugin{NEOX_S3_INTERFACE, neox::open};
  return &plugin;
}
