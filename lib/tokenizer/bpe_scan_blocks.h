// The bit arithmetic of bpe_scan.h over an instruction set: Isa::classify(bytes) gives the classes
// of 64 ASCII bytes and which are not ASCII, Isa::append(bits, base, out) writes base + the place
// of each bit and may write 64 entries. Included by one file for each instruction set. These are
// compiled for CPUs that not every machine has, so nothing here may call inline functions of
// others: the linker could keep this file's copy for all.
#pragma once
#include "tokenizer/bpe_scan.h"

namespace neox {

template <class Isa>
void read_ahead(ScanState& state, size_t at) {
  ByteClasses& ahead = state.ahead;
  if (at + kScanBlock <= state.size) {
    ahead = Isa::classify(state.text + at);
  } else {  // behind the text stand line ends: spaces that no blank run reaches into
    char block[kScanBlock];
    __builtin_memset(block, '\n', kScanBlock);
    if (at < state.size) __builtin_memcpy(block, state.text + at, state.size - at);
    ahead = Isa::classify(block);
  }
  if (ahead.high | state.spill_bytes) classify_high(state, at, ahead);
}

// Each contraction is one piece: 's 't 'm 'd 're 've 'll. `quotes` are those that start a piece.
inline __attribute__((always_inline)) void join_contractions(ScanState& state, uint64_t quotes,
                                                             uint64_t& starts) {
  unsigned __int128 clear = 0, set = 0;
  for (; quotes; quotes &= quotes - 1) {
    int bit = __builtin_ctzll(quotes);
    const char* quote = state.text + state.at + bit;
    size_t left = static_cast<size_t>(state.text + state.size - quote);
    char first = left > 1 ? quote[1] : '\0', second = left > 2 ? quote[2] : '\0';
    int bytes = 0;
    if (first == 's' || first == 't' || first == 'm' || first == 'd') bytes = 2;
    if ((first == 'r' && second == 'e') || (first == 'v' && second == 'e') ||
        (first == 'l' && second == 'l'))
      bytes = 3;
    if (!bytes) continue;
    clear |= static_cast<unsigned __int128>(1) << (bit + 1);
    set |= static_cast<unsigned __int128>(1) << (bit + bytes);
  }
  starts = (starts & ~static_cast<uint64_t>(clear)) | static_cast<uint64_t>(set);
  state.clear = static_cast<uint64_t>(clear >> 64);
  state.set = static_cast<uint64_t>(set >> 64);
}

// The starts in the block whose classes are `now`, those of the next being state.ahead.
inline __attribute__((always_inline)) uint64_t find_starts(ScanState& s, const ByteClasses& now) {
  const ByteClasses& next = s.ahead;
  uint64_t other = ~(now.letter | now.number | now.space);
  uint64_t after_blank = now.blank << 1 | s.blank;
  uint64_t run = now.blank & (after_blank | now.blank >> 1 | next.blank << 63) & s.cut_runs;
  uint64_t after_run = run << 1 | s.run, after_space = now.space << 1 | s.space;
  uint64_t same = (now.letter & (now.letter << 1 | s.letter)) |
                  (now.number & (now.number << 1 | s.number)) | (other & (other << 1 | s.other));
  uint64_t words = ~(now.space | same | (after_blank & ~after_run));
  uint64_t before_word = now.space & ~run & ~(now.space >> 1 | next.space << 63);
  uint64_t spaces = now.space & ~run & (~after_space | after_run | before_word);
  if (now.space_tail | now.space_lead2 | now.space_lead3) {
    uint64_t next_last = next.space & ~(next.space >> 1);
    spaces &= ~now.space_tail;
    spaces |= now.space_lead2 & (before_word >> 1 | next_last << 63);
    spaces |= now.space_lead3 & (before_word >> 2 | next_last << 62);
  }
  uint64_t starts = words | spaces | (run & ~after_run);
  starts = (starts & ~s.clear) | s.set;
  s.clear = s.set = 0;
  uint64_t quotes = words & now.quote & (now.letter >> 1 | next.letter << 63);
  if (quotes) join_contractions(s, quotes, starts);
  s.letter = now.letter >> 63, s.number = now.number >> 63, s.other = other >> 63;
  s.space = now.space >> 63, s.blank = now.blank >> 63, s.run = run >> 63;
  return starts;
}

template <class Isa>
void begin_scan(ScanState& state) {
  read_ahead<Isa>(state, state.at);
}

template <class Isa>
size_t scan_blocks(ScanState& state, uint32_t* starts) {
  ScanState s = state;
  uint32_t* out = starts;
  for (uint32_t base = 0; base < kMaxStarts && s.at < s.size; base += kScanBlock) {
    ByteClasses now = s.ahead;
    read_ahead<Isa>(s, s.at + kScanBlock);
    uint64_t found = find_starts(s, now);
    if (size_t left = s.size - s.at; left < kScanBlock) found &= (uint64_t{1} << left) - 1;
    out = Isa::append(found, base, out);
    s.at += kScanBlock;
  }
  state = s;
  return static_cast<size_t>(out - starts);
}

template <class Isa>
constexpr ScanFunctions kScanFunctions = {begin_scan<Isa>, scan_blocks<Isa>};

}  // namespace neox
