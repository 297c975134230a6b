#include "tokenizer/bpe_merger.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "base/error.h"
#include "tokenizer/bpe.h"

namespace neox {
namespace {

constexpr size_t kProgressEvery = 64;       // merges
constexpr size_t kChunk = size_t{1} << 20;  // places
constexpr size_t kHead = 3;                 // entries of words_ before the symbols of a word
constexpr size_t kAhead = 12;               // words fetched into the cache before their turn
constexpr size_t kEnoughFrequent = 1 << 12;

uint64_t pair_of(int32_t left, int32_t right) {
  return static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right);
}

int32_t left_of(uint64_t pair) { return static_cast<int32_t>(pair >> 32); }
int32_t right_of(uint64_t pair) { return static_cast<int32_t>(pair & UINT32_MAX); }

// Of the word that begins there.
int64_t count_of(const int32_t* head) {
  return static_cast<int64_t>(head[1]) << 32 | static_cast<uint32_t>(head[2]);
}

}  // namespace

PairCounts::Slot& PairCounts::find(uint64_t pair) {
  size_t mask = slots_.size() - 1;
  uint64_t hash = pair * 0x9E3779B97F4A7C15;
  size_t at = (hash ^ hash >> 32) & mask;
  while (slots_[at].pair != pair && slots_[at].pair != kFree) at = (at + 1) & mask;
  return slots_[at];
}

int64_t& PairCounts::operator[](uint64_t pair) {
  Slot* slot = &find(pair);
  if (slot->pair == kFree) {
    if (++size_ * 2 > slots_.size()) {
      grow();
      slot = &find(pair);
    }
    slot->pair = pair;
  }
  return slot->count;
}

void PairCounts::grow() {
  std::vector<Slot> old(slots_.size() * 2);
  old.swap(slots_);
  for (const Slot& slot : old)
    if (slot.pair != kFree) find(slot.pair) = slot;
}

void PairQueue::push(const Candidate& candidate) {
  if (candidate.count >= least_)
    frequent_.push(candidate);
  else
    others_.push_back(candidate);
}

// Moves the more frequent ones of the others into the heap: some thousands, or all that are left.
void PairQueue::lower() {
  std::vector<int64_t> counts(others_.size());
  std::ranges::transform(others_, counts.begin(), &Candidate::count);
  size_t enough = std::min(std::max(kEnoughFrequent, counts.size() / 8), counts.size()) - 1;
  std::ranges::nth_element(counts, counts.begin() + static_cast<ptrdiff_t>(enough),
                           std::greater<>());
  least_ = counts[enough];
  auto rest = std::partition(others_.begin(), others_.end(),
                             [&](const Candidate& candidate) { return candidate.count < least_; });
  for (auto candidate = rest; candidate != others_.end(); ++candidate) frequent_.push(*candidate);
  others_.erase(rest, others_.end());
}

bool PairQueue::pop(Candidate& best) {
  if (frequent_.empty()) {
    if (others_.empty()) return false;
    lower();
  }
  best = frequent_.top();
  frequent_.pop();
  return true;
}

void BpeMerger::Side::note(int32_t id, uint32_t word, int64_t count) {
  Neighbour& neighbour = neighbours[static_cast<size_t>(id)];
  neighbour.count += count;
  if (neighbour.last == word) return;
  neighbour.last = word;
  if (neighbour.places++ == 0) met.push_back(id);
  notes.emplace_back(id, word);
}

BpeMerger::BpeMerger(const BpeTrainerConfig& config, WordCounts words) : config_(config) {
  for (const std::string& token : config.special_tokens) add_token(token);
  add_alphabet();
  add_words(words);
  words = {};
  queue_pairs_of_bytes();
}

void BpeMerger::add_token(const std::string& text) {
  ids_.emplace(text, static_cast<int32_t>(tokens_.size()));
  tokens_.push_back(text);
  before_.neighbours.emplace_back();
  behind_.neighbours.emplace_back();
}

void BpeMerger::add_alphabet() {
  std::vector<std::string> alphabet;
  for (int b = 0; b < 256; ++b)
    alphabet.push_back(to_byte_level(std::string(1, static_cast<char>(b))));
  std::vector<std::string> sorted = alphabet;
  std::ranges::sort(sorted);  // in UTF-8 this is the order of code points
  for (const std::string& character : sorted)
    if (!ids_.contains(character)) add_token(character);
  for (size_t b = 0; b < 256; ++b) byte_ids_[b] = ids_.at(alphabet[b]);
}

void BpeMerger::add_words(const WordCounts& words) {
  size_t needed = 0;
  words.each([&](std::string_view text, int64_t) {
    if (text.size() > 1) needed += kHead + text.size();
  });
  check_usage(needed < UINT32_MAX, "the different words of the texts have ", needed,
              " bytes, more than a tokenizer can be trained on at once (4 GB); give it a sample "
              "of the texts");
  words_.reserve(needed);
  words.each([&](std::string_view text, int64_t count) {
    if (text.size() < 2) return;
    words_.push_back(static_cast<int32_t>(text.size()));
    words_.push_back(static_cast<int32_t>(count >> 32));
    words_.push_back(static_cast<int32_t>(count & UINT32_MAX));
    for (char c : text) words_.push_back(byte_ids_[static_cast<uint8_t>(c)]);
  });
}

std::span<uint32_t> BpeMerger::new_places(size_t size) {
  if (free_.size() < size) {
    chunks_.push_back(std::make_unique_for_overwrite<uint32_t[]>(std::max(size, kChunk)));
    std::span<uint32_t> fresh(chunks_.back().get(), std::max(size, kChunk));
    if (size > kChunk / 8) return fresh.first(size);  // what is left of the other stays in use
    free_ = fresh;
  }
  std::span<uint32_t> places = free_.first(size);
  free_ = free_.subspan(size);
  return places;
}

void BpeMerger::queue(int32_t left, int32_t right, std::span<const uint32_t> places) {
  int64_t count = counts_[pair_of(left, right)];
  if (count <= 0) return;
  queue_.push({count, pair_of(left, right), static_cast<uint32_t>(places_.size())});
  places_.push_back(places);
}

// visit(word, its count, its symbols) for each word.
template <class Visit>
void BpeMerger::each_word(Visit visit) {
  for (size_t at = 0; at < words_.size();) {
    std::span<const int32_t> symbols(&words_[at + kHead], static_cast<size_t>(words_[at]));
    visit(static_cast<uint32_t>(at), count_of(&words_[at]), symbols);
    at += kHead + symbols.size();
  }
}

// All words have pairs of bytes alone, few enough for arrays.
void BpeMerger::queue_pairs_of_bytes() {
  struct Pair {
    int64_t count = 0;
    uint32_t last = UINT32_MAX, size = 0;
    std::span<uint32_t> places;
  };
  std::vector<uint8_t> byte_of(tokens_.size());
  for (int b = 0; b < 256; ++b)
    byte_of[static_cast<size_t>(byte_ids_[b])] = static_cast<uint8_t>(b);
  std::vector<Pair> pairs(size_t{1} << 16);
  auto each_pair = [&](auto visit) {
    each_word([&](uint32_t word, int64_t count, std::span<const int32_t> symbols) {
      for (size_t i = 0; i + 1 < symbols.size(); ++i)
        visit(word, count, pairs[size_t{byte_of[symbols[i]]} << 8 | byte_of[symbols[i + 1]]]);
    });
  };
  each_pair([](uint32_t word, int64_t count, Pair& pair) {
    pair.count += count;
    pair.size += std::exchange(pair.last, word) != word;
  });
  for (Pair& pair : pairs) {
    pair.places = new_places(std::exchange(pair.size, 0));
    pair.last = UINT32_MAX;
  }
  each_pair([](uint32_t word, int64_t, Pair& pair) {
    if (std::exchange(pair.last, word) != word) pair.places[pair.size++] = word;
  });
  for (size_t i = 0; i < pairs.size(); ++i) {
    if (pairs[i].count == 0) continue;
    int32_t left = byte_ids_[i >> 8], right = byte_ids_[i & 255];
    counts_[pair_of(left, right)] = pairs[i].count;
    queue(left, right, pairs[i].places);
  }
}

void BpeMerger::merge_word(uint32_t word, int32_t left, int32_t right, int32_t whole) {
  int32_t* head = &words_[word];
  int64_t count = count_of(head);
  std::span<int32_t> symbols(head + kHead, static_cast<size_t>(*head));
  size_t kept = 0;
  for (size_t i = 0; i < symbols.size(); ++i) {
    bool is_match = symbols[i] == left && i + 1 < symbols.size() && symbols[i + 1] == right;
    if (!is_match) {
      symbols[kept++] = symbols[i];
      continue;
    }
    if (kept > 0) before_.note(symbols[kept - 1], word, count);
    ++i;
    if (i + 1 < symbols.size()) behind_.note(symbols[i + 1], word, count);
    symbols[kept++] = whole;
  }
  *head = static_cast<int32_t>(kept);
}

void BpeMerger::sort_notes(Side& side) {
  side.places.clear();
  for (int32_t id : side.met) {
    Neighbour& neighbour = side.neighbours[static_cast<size_t>(id)];
    neighbour.last = static_cast<uint32_t>(side.places.size());  // from now on: where they go
    side.places.push_back(new_places(std::exchange(neighbour.places, 0)));
  }
  for (auto [id, word] : side.notes) {
    Neighbour& neighbour = side.neighbours[static_cast<size_t>(id)];
    side.places[neighbour.last][neighbour.places++] = word;
  }
}

void BpeMerger::clear(Side& side) {
  for (int32_t id : side.met) side.neighbours[static_cast<size_t>(id)] = {};
  side.met.clear();
  side.notes.clear();
}

void BpeMerger::queue_neighbours(int32_t left, int32_t right, int32_t whole) {
  sort_notes(before_);
  sort_notes(behind_);
  for (int32_t id : before_.met) {
    int64_t count = before_.neighbours[static_cast<size_t>(id)].count;
    counts_[pair_of(id, left)] -= count;
    counts_[pair_of(id, whole)] += count;
  }
  for (int32_t id : behind_.met) {
    int64_t count = behind_.neighbours[static_cast<size_t>(id)].count;
    counts_[pair_of(right, id)] -= count;
    counts_[pair_of(whole, id)] += count;
  }
  std::vector<uint32_t> twice;  // (whole, whole) comes from both sides, and is one candidate
  for (Side* side : {&before_, &behind_}) {
    for (size_t i = 0; i < side->met.size(); ++i) {
      int32_t id = side->met[i];
      std::span<const uint32_t> places = side->places[i];
      if (id == whole)
        twice.insert(twice.end(), places.begin(), places.end());
      else
        side == &before_ ? queue(id, whole, places) : queue(whole, id, places);
    }
  }
  if (!twice.empty()) {
    std::span<uint32_t> places = new_places(twice.size());
    std::ranges::copy(twice, places.begin());
    queue(whole, whole, places);
  }
  clear(before_);
  clear(behind_);
}

// As in the reference, and unlike what one would expect, the count of the pair itself is not
// lowered, and a pair that comes up again (because a token arose in two ways) is queued, and
// merged, once more.
void BpeMerger::merge(const PairQueue::Candidate& best) {
  int32_t left = left_of(best.pair), right = right_of(best.pair);
  std::string text = tokens_[static_cast<size_t>(left)] + tokens_[static_cast<size_t>(right)];
  if (!ids_.contains(text)) add_token(text);
  int32_t whole = ids_.at(text);
  merges_.push_back({left, right, whole});
  std::span<const uint32_t> places = std::exchange(places_[best.serial], {});
  for (size_t i = 0; i < places.size(); ++i) {
    __builtin_prefetch(&words_[places[std::min(i + kAhead, places.size() - 1)]], 1);
    merge_word(places[i], left, right, whole);
  }
  queue_neighbours(left, right, whole);
}

// The best pair by the counts of now: those in the queue may be outdated.
bool BpeMerger::next(PairQueue::Candidate& best) {
  while (queue_.pop(best)) {
    int64_t count = counts_[best.pair];
    if (count == best.count) return count >= std::max<int64_t>(config_.min_frequency, 1);
    best.count = count;
    queue_.push(best);
  }
  return false;
}

// Of equal merges only the last one counts, as in the reference's map of merges.
std::vector<BpeMerge> BpeMerger::merges_by_rank() const {
  std::unordered_map<uint64_t, size_t> last;
  for (size_t i = 0; i < merges_.size(); ++i) last[pair_of(merges_[i].left, merges_[i].right)] = i;
  std::vector<BpeMerge> kept;
  for (size_t i = 0; i < merges_.size(); ++i)
    if (last[pair_of(merges_[i].left, merges_[i].right)] == i) kept.push_back(merges_[i]);
  return kept;
}

TrainedBpe BpeMerger::run() {
  auto wanted = static_cast<size_t>(config_.vocab_size);
  PairQueue::Candidate best;
  while (tokens_.size() < wanted && next(best)) {
    merge(best);
    if (config_.progress && merges_.size() % kProgressEvery == 0)
      config_.progress(
          {BpeProgress::Stage::kMerge, static_cast<int64_t>(tokens_.size()), config_.vocab_size});
  }
  return {tokens_, merges_by_rank(), config_.special_tokens, config_.normalizer};
}

}  // namespace neox
