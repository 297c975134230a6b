#include "corpus/sha256.h"

#include <openssl/evp.h>

#include <fstream>
#include <memory>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace neox {

std::string sha256_of_file(const fs::path& path) {
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(),
                                                                  EVP_MD_CTX_free);
  check(context && EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) == 1,
        "OpenSSL gives no SHA-256");
  std::ifstream file(path, std::ios::binary);
  std::vector<char> buffer(1 << 20);
  while (file) {
    file.read(buffer.data(), static_cast<std::streamsize>(buffer.size()));
    EVP_DigestUpdate(context.get(), buffer.data(), static_cast<size_t>(file.gcount()));
  }
  check_io(file.eof(), "cannot read ", path.string());
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int bytes = 0;
  check(EVP_DigestFinal_ex(context.get(), digest, &bytes) == 1, "OpenSSL gives no SHA-256");
  return hexadecimal({reinterpret_cast<const char*>(digest), bytes});
}

}  // namespace neox
