// Text from a model: greedy, or sampled with temperature, top-k and top-p, with a key/value cache.
// Several texts at once read the weights once for all of them, and none depends on the others.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "generate/score.h"
#include "model/gpt_neox.h"
#include "tokenizer/tokenizer.h"

namespace neox {

struct Sampling {
  int64_t max_tokens = 64;
  double temperature = 0;  // 0 with top_k, top_p and min_p 0: greedy
  int64_t top_k = 0;       // only the k likeliest; 0: all
  double top_p = 0;        // only the likeliest that sum to p; 0: all
  double min_p = 0;        // only those of at least this share of the likeliest's probability
  int64_t vocab = 0;       // only ids below it: the rest pads the embedding; 0: all
  uint64_t key = 0;        // what is drawn is a function of key and position
  // Logits are changed before anything else: by what is given for a token; of tokens that the
  // prompt or the text has, divided by the repetition penalty, or multiplied where they are
  // negative (Keskar et al., arXiv 1909.05858, as in transformers); and, for tokens that the text
  // has behind its prompt, less so much once, and so much each time (OpenAI's penalties).
  std::vector<std::pair<int32_t, double>> bias = {};
  double repetition_penalty = 1, presence_penalty = 0, frequency_penalty = 0;
};

// How many times a text has a token behind its prompt; 0: only there.
using TokenCounts = std::map<int32_t, int64_t>;
// Whether what is chosen depends on them.
inline bool counts_tokens(const Sampling& s) {
  return s.repetition_penalty != 1 || s.presence_penalty != 0 || s.frequency_penalty != 0;
}

// The next token for logits [V] (on the CPU, float): the likeliest, or drawn by the rules above; -1
// where there is none, as of ops/next_tokens.h. made: where the sampling counts tokens.
int64_t choose(const Tensor& logits, const Sampling& sampling, int64_t position,
               const TokenCounts& made = {});

// Whether it takes the likeliest token by the logits as they are.
bool is_greedy(const Sampling& sampling);

struct TextRequest {
  std::vector<int32_t> prompt;  // as prompt_tokens() gives them
  Sampling sampling;
  std::optional<int64_t> likeliest = {};  // on_score() is called, with so many of them
};

// What ended a text: an end token, its greatest length, or false from on_token.
enum class TextEnd { kToken, kLength, kCaller };

struct TextOptions {
  int64_t batch_size = 1;          // texts at once: a finished one makes room for the next
  std::vector<int32_t> ends = {};  // tokens that end a text and are not part of it
  // Tokens of prompts that are read at once while texts grow, which take a step then: a long prompt
  // is interrupted between its layers, on CPUs, a short one counts with those behind it. 0: any
  // number.
  int64_t read_at_once = 0;
  // Called when the prompt of a text is begun, with each new token of it, and when no more follow;
  // false from on_token ends it.
  std::function<void(size_t request)> on_start = {};
  std::function<bool(size_t request, int32_t token)> on_token = {};
  std::function<void(size_t request, TextEnd how)> on_end = {};
  // Called instead of on_end where the model's numbers for a text are not finite, where there is no
  // memory for its prompt or for a step, or where choosing its token fails: it ends, the others go
  // on. Without it generate() throws, of numbers Error (78).
  std::function<void(size_t request, const std::string& why)> on_failure = {};
  // Called on the last stage before on_token, and with a token that ends the text.
  std::function<void(size_t request, const TokenScore& score)> on_score = {};
};

// The tokens that follow each prompt, up to max_tokens, the model's positions, or an end token.
// Collective over the mesh's pp and tp axes; all ranks get the tokens and must give the same
// arguments.
std::vector<std::vector<int32_t>> generate(GptNeoX& model, std::span<const TextRequest> requests,
                                           const TextOptions& options);
// Gives the next text where one has room, or none for now. `wait`: none grows, so it may take its
// time; none then means that no more come. after_layer: to be given to what else it asks of the
// model, so that texts grow meanwhile.
using TextSource = std::function<std::optional<TextRequest>(bool wait, const AfterLayer&)>;
// The same for texts that come while others grow, numbered in that order; `options` has what they
// become. cache: a new one of the model, with batch_size rows of all its positions.
void generate(GptNeoX& model, KvCache cache, const TextSource& next, const TextOptions& options);

}  // namespace neox
