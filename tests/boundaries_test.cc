// Attention within documents, and positions that start again with each.
#include "data/boundaries.h"

#include <gtest/gtest.h>

#include "model_cases.h"
#include "run_fixture.h"
#include "tiny_run.h"

namespace neox {
namespace {

using Numbers = std::vector<int64_t>;

Numbers applied(void (*rule)(std::span<const int64_t>, int64_t, std::span<int64_t>),
                const Numbers& tokens, int64_t end_of_document) {
  Numbers found(tokens.size(), -1);
  rule(tokens, end_of_document, found);
  return found;
}

TEST(Boundaries, LieBehindEachEndOfDocument) {
  const Numbers tokens = {5, 6, 0, 7, 0, 0, 8};
  EXPECT_EQ(applied(number_documents, tokens, 0), (Numbers{0, 0, 0, 1, 1, 2, 3}));
  EXPECT_EQ(applied(restart_positions, tokens, 0), (Numbers{0, 1, 2, 0, 1, 0, 0}));
  EXPECT_EQ(applied(number_documents, tokens, 9), (Numbers{0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(applied(restart_positions, tokens, 9), (Numbers{0, 1, 2, 3, 4, 5, 6}));
}

// Against transformers with a mask of blocks and the positions given (tests/oracle/boundaries.py).
class Documents : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    at::set_num_threads(1);
    want_ = read_golden("boundaries_sketches.json").at("cases")[static_cast<size_t>(GetParam())];
    case_ = model_case(want_);
    Tensor tokens = made_up_tokens(case_, 0);
    batch_ = batch_of(tokens.masked_fill(tokens.remainder(6) == 0, 0));
    add_boundaries(batch_, 0);
    if (!want_.at("attention").get<bool>()) batch_.documents = Tensor();
    if (!want_.at("positions").get<bool>()) batch_.positions = Tensor();
  }
  // Loss, the loss of each token, and each gradient: the greatest distance.
  Worst worst(const ModelOptions& options) {
    ModelRun run(case_, options);
    Worst worst;
    worst.add("loss", std::abs(run.loss(batch_) / want_.at("loss").get<double>() - 1));
    const nlohmann::json& sketches = want_.at("sketches");
    Tensors got = run.gradients();
    got["token_losses"] = token_losses(run);
    for (const auto& [name, t] : got)
      worst.add(name, relative_distance(sketch(name, t), sketches.at(name).get<Sketch>()));
    EXPECT_EQ(got.size(), sketches.size());
    return worst;
  }
  Tensor token_losses(ModelRun& run) const {
    Tensor losses = at::empty(batch_.tokens.sizes(), at::kDouble).flatten();
    for (int64_t i = 0; i < losses.numel(); ++i) {
      Batch one = batch_;
      one.weights = at::zeros_like(batch_.weights);
      one.weights.view({-1})[i] = 1;
      losses[i] = Pipeline(run.model()).evaluate(1, [&](int64_t) { return one; }).loss;
    }
    return losses.view(batch_.tokens.sizes());
  }

  nlohmann::json want_;
  ModelCase case_;
  Batch batch_;
};

TEST_P(Documents, GiveTheLossesAndGradientsOfTransformers) {
  Worst fp64 = worst({.dtypes = kAll64});
  EXPECT_LE(fp64.distance, 1e-12) << fp64.name;
  Worst fp32 = worst({.dtypes = kAll32});
  EXPECT_LE(fp32.distance, 1e-5) << fp32.name;
  std::cout << "fp64 " << fp64.distance << " " << fp64.name << ", fp32 " << fp32.distance << "\n";
}

TEST_P(Documents, AreKeptInRecomputation) {
  Worst again = worst({.dtypes = kAll64, .recompute_layers = 1});
  EXPECT_LE(again.distance, 1e-12) << again.name;
}

// A chance to drop that never comes true takes the way of dropout, by a mask on the scores.
TEST_P(Documents, AreKeptWithDropout) {
  case_.config.attention_dropout = 1e-18;
  Worst masked = worst({.dtypes = kAll64});
  EXPECT_LE(masked.distance, 1e-12) << masked.name;
}

INSTANTIATE_TEST_SUITE_P(All, Documents, ::testing::Range(0, 4));

class Packed : public ::testing::Test {
 protected:
  Packed() { at::set_num_threads(1); }

  // The last token of a document predicts nothing.
  Batch part(int64_t from, int64_t to) const {
    Batch batch = batch_of(tokens_.narrow(1, from, to - from + 1));
    batch.weights.masked_fill_(batch.tokens == 0, 0);
    return batch;
  }
  std::pair<double, Tensors> train(const std::vector<Batch>& batches) const {
    ModelRun run(case_, {.dtypes = kAll64});
    auto source = [&](int64_t m) { return batches[static_cast<size_t>(m)]; };
    LossSum sum =
        Pipeline(run.model())
            .train(static_cast<int64_t>(batches.size()), source, at::ones({}, at::kDouble));
    return {sum.loss.item<double>(), run.gradients()};
  }
  double distance(const std::vector<Batch>& a, const std::vector<Batch>& b) const {
    auto [loss, gradients] = train(a);
    auto [other_loss, other] = train(b);
    Worst worst;
    worst.add("loss", std::abs(loss / other_loss - 1));
    for (const auto& [name, t] : gradients) worst.add(name, relative_distance(t, other.at(name)));
    return worst.distance;
  }

  ModelCase case_ = model_case(read_golden("boundaries_sketches.json").at("cases")[0]);
  Tensor tokens_ =
      at::tensor({5, 9, 3, 8, 0, 4, 4, 11, 0, 2, 6, 17, 10, 9, 3, 0, 1}, at::kLong).view({1, -1});
  std::vector<Batch> alone_ = {part(0, 5), part(5, 9), part(9, 16)};
};

TEST_F(Packed, DocumentsTrainAsEachAlone) {
  Batch packed = part(0, 16);
  EXPECT_GT(distance({packed}, alone_), 1e-3);
  add_boundaries(packed, 0);
  EXPECT_LE(distance({packed}, alone_), 1e-12);
  packed.positions = Tensor();  // the float angles of rotary positions are rounded
  EXPECT_LE(distance({packed}, alone_), 1e-5);
}

TEST_F(Packed, DocumentsTrainAsEachAloneWithScoresOfTheDistance) {
  case_.config.kv_heads = 1;
  for (int64_t window : {0, 2})
    for (auto positions : {PositionEmbedding::kAlibi, PositionEmbedding::kLearned}) {
      case_.config.position_embedding = positions;
      case_.config.window = window;
      Batch packed = part(0, 16);
      EXPECT_GT(distance({packed}, alone_), 1e-3);
      add_boundaries(packed, 0);
      EXPECT_LE(distance({packed}, alone_), 1e-12) << window;
    }
}

class LayoutsWithDocuments : public ::testing::TestWithParam<Layout> {};

TEST_P(LayoutsWithDocuments, EqualOneRank) {
  at::set_num_threads(1);
  TinyOptions dropout{.end_of_document = 3}, none = dropout;
  none.model.hidden_dropout = none.model.attention_dropout = 0;
  none.recompute = 2;
  none.micro = 2;
  double losses[2] = {};
  for (const TinyOptions& options : {dropout, none}) {
    TinyResult one = TinyRun({}, options).train(0, 4);
    TinyResult many = TinyRun(GetParam(), options).train(0, 4);
    EXPECT_LE(distance(many.steps, one.steps), 1e-12);
    EXPECT_LE(distance(many.state, one.state), 1e-12);
    losses[options.recompute > 0] = one.steps[0].loss;
  }
  EXPECT_NE(losses[0], losses[1]);
}

INSTANTIATE_TEST_SUITE_P(All, LayoutsWithDocuments,
                         ::testing::Values(Layout{.tp = 2}, Layout{.pp = 3},
                                           Layout{.replicate = 2, .shard = 2},
                                           Layout{.pp = 2, .shard = 2, .tp = 2}));

// neox-train on short documents that end with <|endoftext|>.
class Run : public ::testing::Test {
 protected:
  static std::map<int64_t, double> losses(testing::Strings settings,
                                          const testing::Strings& more = {}) {
    testing::Training run;
    Tokenizer tokenizer = Tokenizer::from_json(testing::Material::get() / "tokenizer.json");
    testing::Documents documents;
    for (const std::string& text : TextGenerator(8).documents(200, 6)) {
      documents.push_back(tokenizer.encode(text));
      documents.back().push_back(tokenizer.end_of_document());
    }
    run.dir().put("short", documents, tokenizer.vocab_size());
    settings.insert(settings.end(),
                    {"data_path=" + (run.dir() / "short"), "train_iters=4", "padded_vocab_size=304",
                     "eod_mask_loss=true", "eval_iters=1"});
    auto ended = run.train(settings, more);
    EXPECT_EQ(ended.code, 0) << ended.err;
    std::map<int64_t, double> all = run.losses();
    for (const auto& [step, loss] : run.metric("validation/lm_loss")) all[1000 + step] = loss;
    return all;
  }
};

TEST_F(Run, SeesDocumentsAtEveryStageAndInEvaluation) {
  const testing::Strings on = {"reset_attention_mask=true", "reset_position_ids=true"};
  testing::Strings ranks = on;
  ranks.insert(ranks.end(), {"pipe_parallel_size=2", "model_parallel_size=2"});
  auto without = losses({}), with = losses(on), many = losses(ranks, {"--spawn", "4"});
  EXPECT_EQ(with.size(), 5u);
  EXPECT_EQ(with.size(), many.size());
  for (const auto& [step, loss] : with) {
    EXPECT_NEAR(loss, many.at(step), 1e-4) << step;
    EXPECT_GT(std::abs(loss - without.at(step)), 1e-4) << step;
  }
}

TEST_F(Run, NeedsTheEndOfDocument) {
  testing::Training run;
  auto ended = run.train({"reset_attention_mask=true", "vocab_file=null", "padded_vocab_size=300"});
  EXPECT_EQ(ended.code, 64);
  EXPECT_NE(ended.err.find("reset_attention_mask needs a tokenizer"), std::string::npos)
      << ended.err;
}

}  // namespace
}  // namespace neox
