// What a rank has found in its share of the input.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace neox {

struct Tally {
  int64_t documents = 0, empty = 0, skipped = 0, repaired = 0, text_bytes = 0;
  // Whether the document that goes on from the share before, and the last one, had bad bytes: one
  // that lies in several shares counts once.
  bool lead_repaired = false, last_repaired = false;
  // Whether its last document goes on in the next share, and whether it has a share at all.
  bool goes_on = false, share = true;
  std::string error = {};  // that ended its work, where more documents were wanted
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Tally, documents, empty, skipped, repaired, text_bytes,
                                   lead_repaired, last_repaired, goes_on, share, error)

}  // namespace neox
