// The special tokens that a tokenizer's files name. Pure but for reading them; any thread.
#pragma once
#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace neox {

// named: "bos_token" and its like.
struct SpecialTokens {
  std::string bos, eos;
  std::map<std::string, std::string> named = {};
};

// "bos_token" and its like by tokenizer_config.json and, as transformers (5.23) reads older
// tokenizers, those that it lacks by special_tokens_map.json, unless it lists all added tokens
// (added_tokens_decoder). "": no such file. Throws Error (64) for one that is no JSON object, and
// where a token of texts' beginnings or ends is neither a text nor an object with one (content).
std::map<std::string, std::string> named_tokens(const std::filesystem::path& config,
                                                const std::filesystem::path& map);

// The same of the files in a directory, as far as they are there.
std::map<std::string, std::string> named_tokens_in(const std::filesystem::path& directory);

// Of a file such as those. Throws Error (64) where it is no JSON object, or nested too deep.
nlohmann::json json_object_in(const std::filesystem::path& file);

// With bos_token and eos_token; "<|endoftext|>" where no file is there or none names it.
SpecialTokens special_tokens_beside(const std::filesystem::path& vocab);

}  // namespace neox
