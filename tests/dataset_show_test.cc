// neox-data show.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/text.h"
#include "data/step_samples.h"
#include "dataset_files.h"
#include "tokenizer/bpe.h"

namespace neox {
namespace {

using ::testing::AllOf;
using testing::counting;
using testing::Directory;
using testing::Documents;
using ::testing::HasSubstr;
using testing::neox_data;
using ::testing::Not;
using ::testing::StartsWith;

// The bytes, and <|endoftext|> for 0: a tokenizer whose text is known.
std::string put_tokenizer(const Directory& dir) {
  std::string vocab = "{\"<|endoftext|>\":0";
  for (int b = 0; b < 256; ++b) {
    std::string text = to_byte_level(std::string(1, static_cast<char>(b)));
    vocab += concat(",\"", text == "\"" || text == "\\" ? "\\" : "", text, "\":", b + 1);
  }
  dir.put("merges.txt", "#version: 0.2\n");
  return dir.put("vocab.json", vocab + "}");
}

std::string config(const Directory& dir, const std::string& more = "") {
  return dir.put(
      "run.yml",
      "{num_layers: 1, hidden_size: 8, num_attention_heads: 1, seq_length: 8,\n"
      "max_position_embeddings: 8, train_iters: 5, padded_vocab_size: 300, pos_emb: none,\n"
      "split: '1', data_path: " +
          (dir / "data") + more + "}\n");
}

const char* kBatch = ", train_batch_size: 7, train_micro_batch_size_per_gpu: 2";

TEST(Show, PrintsADocument) {
  Directory dir;
  std::string vocab = put_tokenizer(dir),
              data = dir.put("data", Documents{{5}, {'H' + 1, 'i' + 1, 0}}, 300);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(neox_data({"show", data, "--document", "1"}), "0: 73 106 0\n");
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr(": 1 sequence, 3 tokens\n"));
  EXPECT_EQ(neox_data({"show", data, "--document", "1", "-v", vocab, "-m", dir / "merges.txt"}),
            "0: Hi<|endoftext|>");
  EXPECT_THAT(neox_data({"show", data, "--document", "2"}), HasSubstr("there is no document 2"));
}

TEST(Show, PrintsLabelsWithADotForWhatIsMasked) {
  Directory dir;
  std::string vocab = put_tokenizer(dir), name = "a_label_document";
  dir.put(name + ".bin", testing::bytes_of(std::vector<int32_t>{-100, -100, 'H' + 1, 'i' + 1, 0}));
  dir.put(name + ".idx", testing::Index{.lengths = {5}, .type = TokenType::kInt32}.bytes());
  EXPECT_EQ(neox_data({"show", dir / name, "--document", "0"}), "0: -100 -100 73 106 0\n");
  EXPECT_EQ(
      neox_data({"show", dir / name, "--document", "0", "-v", vocab, "-m", dir / "merges.txt"}),
      "0: \u00b7Hi<|endoftext|>");
}

// Keeps what is written, and the size of the largest write.
class Writes : public std::stringbuf {
 public:
  std::streamsize largest = 0;

 protected:
  std::streamsize xsputn(const char* text, std::streamsize size) override {
    largest = std::max(largest, size);
    return std::stringbuf::xsputn(text, size);
  }
};

// What is shown of the first document of data, by several writes.
std::string shown_in_pieces(const std::vector<std::string>& arguments) {
  Writes writes;
  std::ostream out(&writes);
  std::vector<std::string> all = {"show", "--document", "0"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  EXPECT_EQ(run_data_command(all, out), 0);
  EXPECT_LT(2 * writes.largest, std::ssize(writes.str()));
  return writes.str();
}

TEST(Show, WritesALargeDocumentInPieces) {
  Directory dir;
  std::string vocab = put_tokenizer(dir), text, ids;
  for (int i = 0; i < 600'000; ++i)
    text += "a\u00e9\u20ac";  // 1, 2 and 3 bytes, tokens of one each
  std::vector<int32_t> tokens;
  for (char c : text) tokens.push_back(static_cast<unsigned char>(c) + 1);
  for (int32_t token : tokens) ids += std::to_string(token) + " ";
  ids.back() = '\n';
  std::string data = dir.put("data", Documents{tokens}, 300);
  EXPECT_TRUE(shown_in_pieces({data}) == ids);
  EXPECT_TRUE(shown_in_pieces({data, "-v", vocab, "-m", dir / "merges.txt"}) == text);
}

// Of SentencePiece's kind: decode() leaves out the space in front of a text.
std::string put_marking_tokenizer(const Directory& dir) {
  std::string vocab = R"("<unk>": 0, "\u2581a": 1)";
  for (int b = 0; b < 256; ++b) vocab += printed(", \"<0x%02X>\": %d", b, b + 2);
  const std::string begin = R"({"added_tokens": [], "normalizer":
      {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u2581"},
       {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]},
      "pre_tokenizer": null, "decoder": {"type": "Sequence", "decoders": [
       {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
       {"type": "ByteFallback"}, {"type": "Fuse"},
       {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
      "model": {"type": "BPE", "byte_fallback": true, "unk_token": "<unk>", "fuse_unk": true,
       "merges": [], "vocab": {)";
  return dir.put("tokenizer.json", begin + vocab + "}}}");
}

TEST(Show, PiecesBeginWithTheirSpaces) {
  Directory dir;
  constexpr int kWords = 3'000'000;
  std::string data = dir.put("data", Documents{std::vector<int32_t>(kWords, 1)}), text;
  for (int i = 0; i < kWords; ++i) text += " a";
  EXPECT_TRUE(shown_in_pieces({data, "-v", put_marking_tokenizer(dir)}) == text.substr(1));
}

TEST(Show, MaskedLabelsOfSeveralPiecesAreOneDot) {
  Directory dir;
  std::string vocab = put_tokenizer(dir), name = dir / "a_label_document";
  std::vector<int32_t> labels(3'000'000, kMaskedLabel);
  labels.insert(labels.end(), {'H' + 1, 'i' + 1});
  dir.put("a_label_document.bin", testing::bytes_of(labels));
  dir.put("a_label_document.idx",
          testing::Index{.lengths = {3'000'002}, .type = TokenType::kInt32}.bytes());
  EXPECT_EQ(neox_data({"show", name, "--document", "0", "-v", vocab, "-m", dir / "merges.txt"}),
            "0: \u00b7Hi");
}

// The ids that follow "sample N" in a report.
std::vector<std::pair<int64_t, std::string>> samples_in(const std::string& report) {
  std::vector<std::pair<int64_t, std::string>> found;
  std::istringstream lines(report);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("sample ")) found.push_back({std::stoll(line.substr(7)), ""});
    if (line.starts_with("  ids: ")) found.back().second = line.substr(7);
  }
  return found;
}

TEST(Show, GivesEachSampleOfAStepToOneRank) {
  Directory dir;
  dir.put("data", counting({5, 3, 8, 2, 7, 4, 6, 1, 9, 5}));
  std::string run = config(dir, kBatch);
  Config read = load_config({.files = {run}});
  Sampler sampler(read.data, 8, 300, -1, sample_counts(read.train, BatchSchedule(7), 35));
  std::set<int64_t> seen;
  for (const char* rank : {"0", "1", "2"}) {
    std::string text = neox_data({"show", run, "--step", "3", "--rank", rank, "--ranks", "3"});
    EXPECT_THAT(text, HasSubstr("step 3 of 5: samples 14..20; data rank"));
    for (auto& [id, ids] : samples_in(text)) {
      std::vector<int64_t> tokens(9);
      std::vector<float> weights(8);
      sampler.get(Split::kTrain, id, tokens, weights);
      std::string wanted;
      for (int64_t token : tokens) wanted += concat(wanted.empty() ? "" : " ", token);
      EXPECT_EQ(ids, wanted) << id;
      EXPECT_TRUE(seen.insert(id).second) << id;
    }
  }
  EXPECT_EQ(seen, (std::set<int64_t>{14, 15, 16, 17, 18, 19, 20}));
}

TEST(Show, SaysHowMuchOfASampleACurriculumTakes) {
  Directory dir;
  dir.put("data", counting({5, 3, 8, 2, 7, 4, 6, 1, 9, 5}));
  std::string run =
      config(dir, concat(kBatch, ", curriculum_learning: {enabled: true, min_difficulty: 2, ",
                         "max_difficulty: 8, schedule_type: fixed_discrete, ",
                         "schedule_config: {difficulty: [2, 8], max_step: [3]}}"));
  const std::string line = "of each sample the first 2 tokens, by curriculum_learning (";
  EXPECT_THAT(neox_data({"show", run, "--step", "3"}), HasSubstr(line));
  EXPECT_THAT(neox_data({"show", run, "--step", "4"}), Not(HasSubstr("of each sample")));
}

TEST(Show, GivesAStepOfABatchThatGrowsItsSamples) {
  Directory dir;
  dir.put("data", counting({5, 3, 8, 2, 7, 4, 6, 1, 9, 5}));
  std::string run =
      config(dir, concat(kBatch, ", rampup_batch_size: [3, 4, 8], train_samples: 24"));
  EXPECT_THAT(neox_data({"show", run, "--set", "train_iters=null", "--step", "2"}),
              HasSubstr("step 2 of 5: samples 3..5; data rank 0 of 1: 2 micro-batches of 2\n"));
  EXPECT_THAT(neox_data({"show", run, "--set", "train_iters=null", "--step", "4"}),
              HasSubstr("step 4 of 5: samples 9..15; data rank 0 of 1: 4 micro-batches of 2\n"));
}

TEST(Show, GivesBothAnswersOfAPair) {
  Directory dir;
  dir.put("chosen", counting({3, 4, 5}));
  dir.put("rejected", counting({6, 2, 1}));
  std::string run =
      config(dir, concat(kBatch,
                         ", train_impl: dpo, dataset_impl: pairwise, pack_impl: "
                         "unpacked, pos_train_data_paths: [",
                         dir / "chosen", "], neg_train_data_paths: [", dir / "rejected", "]"));
  std::string text = neox_data({"show", run, "--set", "data_path=null", "--step", "1"});
  EXPECT_EQ(samples_in(text).size(), 14u);
  EXPECT_THAT(text, HasSubstr("sample 3, micro-batch 1, chosen\n  tokens: "));
  EXPECT_THAT(text, HasSubstr("sample 3, micro-batch 1, rejected\n  tokens: "));
  EXPECT_THAT(text, HasSubstr(" of " + (dir / "rejected") + ", from position 0 on"));
}

TEST(Show, DealsMicroBatchesAsGptNeoXDoes) {
  BatchPlan plan{.global = 7, .micro = 2, .accumulation = 2};
  auto run = [&](int64_t rank, int64_t m) {
    SampleRun found = micro_batch(plan, {rank, 3}, 100, m);
    return std::pair(found.first, found.size);
  };
  EXPECT_EQ(run(0, 0), std::pair(int64_t{100}, int64_t{2}));
  EXPECT_EQ(run(2, 0), std::pair(int64_t{104}, int64_t{2}));
  EXPECT_EQ(run(0, 1), std::pair(int64_t{106}, int64_t{1}));
  EXPECT_EQ(run(1, 1).second, 0);
}

TEST(Show, NamesPiecesWeightsAndText) {
  Directory dir;
  std::string vocab = put_tokenizer(dir);
  dir.put("data", Documents(8, {'a' + 1, 'b' + 1, 0}), 300);
  std::string run =
      config(dir, concat(kBatch, ", eod_mask_loss: true, vocab_file: ", vocab,
                         ", tokenizer_type: GPT2BPETokenizer, merge_file: ", dir / "merges.txt"));
  std::string text = neox_data({"show", run, "--step", "1"});
  EXPECT_THAT(text, HasSubstr("  tokens: 3 of sequence"));
  EXPECT_THAT(text, HasSubstr("  weights: 2 x 1, 1 x 0, 2 x 1, 1 x 0, 2 x 1\n"));
  EXPECT_THAT(text, HasSubstr("  text:\nab<|endoftext|>ab<|endoftext|>ab"));
  EXPECT_THAT(text, HasSubstr("1 samples of micro-batch 3 fill it up"));
}

TEST(Show, SaysWhatIsWrongWithARequest) {
  Directory dir;
  dir.put("data", counting({5, 3, 8, 2, 7, 4}));
  std::string run = config(dir, kBatch);
  EXPECT_THAT(neox_data({"show", run, "--step", "6"}),
              AllOf(StartsWith("64: "), HasSubstr("train_iters 5")));
  EXPECT_THAT(neox_data({"show", run, "--step", "1", "--rank", "2", "--ranks", "2"}),
              HasSubstr("rank 2 of 2 data ranks"));
  EXPECT_THAT(neox_data({"show", run}), HasSubstr("give --document N"));
  EXPECT_THAT(neox_data({"show", dir / "absent.yml", "--step", "1"}), StartsWith("64: "));
}

}  // namespace
}  // namespace neox
