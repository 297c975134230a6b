#include "s3/s3_directory.h"

#include "base/plugin.h"
#include "launch/certificates.h"

namespace neox {

std::string S3Directory::read_text(const Object& object) {
  std::string text(static_cast<size_t>(object.bytes), '\0');
  read(object, 0, std::as_writable_bytes(std::span(text)));
  return text;
}

void S3Directory::write_text(const std::string& name, const std::string& text) {
  auto writer = write(name);
  writer->append(std::as_bytes(std::span(text)));
  writer->finish();
}

std::unique_ptr<S3Directory> open_s3(const std::string& url) {
  static const auto* plugin =
      static_cast<const S3Plugin*>(load_plugin({"libneox_s3.so", kS3PluginEntry, NEOX_S3_INTERFACE},
                                               url + " is read and written with Apache Arrow"));
  Environment env = environment();
  std::string named = variable(env, "AWS_CA_BUNDLE");
  return plugin->open(url, named.empty() ? certificates(env) : named);
}

}  // namespace neox
