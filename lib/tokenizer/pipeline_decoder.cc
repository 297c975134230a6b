#include "base/log.h"
#include "tokenizer/pipeline.h"

namespace neox {
namespace {

using Part = JsonPart;
using DecoderKind = DecoderStep::Kind;

void read_steps(const Part& decoder, std::vector<DecoderStep>& steps) {
  std::string type = decoder.type();
  auto cleanup = [&] { return decoder.at("cleanup").flag(); };
  if (type == "Sequence") {
    for (const Part& part : decoder.at("decoders").items()) read_steps(part, steps);
  } else if (type == "ByteLevel") {
    steps.push_back({.kind = DecoderKind::kByteLevel});
  } else if (type == "ByteFallback") {
    steps.push_back({.kind = DecoderKind::kByteFallback});
  } else if (type == "Fuse") {
    steps.push_back({.kind = DecoderKind::kFuse});
  } else if (type == "Replace") {
    steps.push_back({.kind = DecoderKind::kReplace,
                     .pattern = read_pattern(decoder),
                     .content = decoder.at("content").text()});
  } else if (type == "Strip") {
    steps.push_back({.kind = DecoderKind::kStrip,
                     .content = decoder.at("content").character(),
                     .start = decoder.at("start").number(0),
                     .stop = decoder.at("stop").number(0)});
  } else if (type == "WordPiece") {
    steps.push_back({.kind = DecoderKind::kWordPiece,
                     .content = decoder.at("prefix").text(),
                     .cleanup = cleanup()});
  } else if (type == "Metaspace") {
    steps.push_back({.kind = DecoderKind::kMetaspace,
                     .content = decoder.at("replacement").character(),
                     .strips_first = read_prepend_scheme(decoder) != PreTokenizer::Prefix::kNone});
  } else if (type == "BPEDecoder") {
    steps.push_back({.kind = DecoderKind::kSuffix, .content = decoder.at("suffix").text()});
  } else if (type == "CTC") {
    steps.push_back({.kind = DecoderKind::kCtc,
                     .content = decoder.at("pad_token").text(),
                     .delimiter = decoder.at("word_delimiter_token").text(),
                     .cleanup = cleanup()});
  } else {
    decoder.refuse("the type is ", type,
                   "; supported are BPEDecoder, ByteFallback, ByteLevel, CTC, Fuse, Metaspace, "
                   "Replace, Strip, WordPiece and Sequences of these");
  }
}

}  // namespace

// Without a decoder `tokenizers` puts spaces between tokens; of spelled bytes that is no text.
void read_decoder(const Part& root, TokenizerFiles& files) {
  if (root.has("decoder")) {
    read_steps(root.at("decoder"), files.decoder);
    bool plain = files.decoder.size() == 1 && files.decoder[0].kind == DecoderKind::kByteLevel;
    if (plain && !files.model) files.decoder.clear();
  } else if (files.model) {
    files.decoder.push_back({.kind = DecoderKind::kSpaces});
  } else {
    log_warning(root.where, " has no decoder; taken is ByteLevel, as its pre_tokenizer is");
  }
}

}  // namespace neox
