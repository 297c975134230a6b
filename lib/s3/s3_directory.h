// A place in S3, or in a server that speaks its protocol. What speaks to it is Apache Arrow's
// client, the AWS SDK, in a plugin (libneox_s3.so) that is loaded where a run names such a place:
// credentials and repeated tries are as `aws s3` has them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace neox {

// An object that is being written. Nothing of it is seen before finish(); without that it is given
// up.
class S3Writer {
 public:
  virtual ~S3Writer() = default;
  // Returns when the bytes are there, but for the rest of less than a part.
  virtual void append(std::span<const std::byte> bytes) = 0;
  virtual void finish() = 0;
};

// All below s3://bucket/prefix; names are relative to that. Thread-safe. Everything throws Error
// (74), which names the object and says why.
class S3Directory {
 public:
  virtual ~S3Directory() = default;
  virtual const std::string& url() const = 0;

  struct Object {
    std::string name;  // "global_step10/COMPLETE"
    int64_t bytes = 0;
  };
  // Of the objects below a directory of it ("": all of them), by name; none where there is none.
  virtual std::vector<Object> list(const std::string& below) = 0;
  // An object's bytes from `offset` on, as many as there is room for.
  virtual void read(const Object& object, int64_t offset, std::span<std::byte> bytes) = 0;
  virtual std::unique_ptr<S3Writer> write(const std::string& name) = 0;
  // What is under way fails soon, and whatever comes after.
  virtual void give_up() = 0;

  std::string read_text(const Object& object);
  void write_text(const std::string& name, const std::string& text);
};

struct S3Plugin {
  const char* interface;  // must equal the program's
  // certificates: a file of those that are trusted; "": where the SDK looks by itself.
  std::unique_ptr<S3Directory> (*open)(const std::string& url, const std::string& certificates);
};
inline constexpr const char* kS3PluginEntry = "neox_s3_plugin";

// url: s3://bucket/prefix. Throws Error (74) where the plugin is not there, and where the bucket is
// not.
std::unique_ptr<S3Directory> open_s3(const std::string& url);

}  // namespace neox
