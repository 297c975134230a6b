#include "data/boundaries.h"

namespace neox {

void number_documents(std::span<const int64_t> tokens, int64_t end_of_document,
                      std::span<int64_t> documents) {
  int64_t document = 0;
  for (size_t t = 0; t < documents.size(); ++t) {
    documents[t] = document;
    document += t < tokens.size() && tokens[t] == end_of_document;
  }
}

void restart_positions(std::span<const int64_t> tokens, int64_t end_of_document,
                       std::span<int64_t> positions) {
  int64_t position = 0;
  for (size_t t = 0; t < positions.size(); ++t) {
    positions[t] = position;
    position = t < tokens.size() && tokens[t] == end_of_document ? 0 : position + 1;
  }
}

}  // namespace neox
