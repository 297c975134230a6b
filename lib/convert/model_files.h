// A model in neox.cpp's terms, whatever files it comes from: what every reader of a format returns
// and every writer takes.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "checkpoint/train_state.h"
#include "config/config.h"
#include "convert/tensor_source.h"
#include "shard/box.h"

namespace neox {

// What training keeps beside a parameter: fp32, of its shape.
struct StateTensor {
  std::string state;  // "param": the master, which stands for the parameter; "adam_m" ...
  std::function<at::Tensor()> read;
};

// A parameter by the name and shape that lib/model gives it, and where it comes from.
struct ModelTensor {
  TensorInfo info;
  std::vector<std::string> from;  // names in the source
  std::function<at::Tensor()> read;
  std::string note = {};                 // what is not plain copying
  std::vector<StateTensor> states = {};  // where the model has a train state
};

// Does a state stand for the parameter?
bool has_master(const ModelTensor& tensor);

// A file that goes along: tokenizer.json, generation_config.json ...
struct Companion {
  std::string name;  // where it goes
  fs::path path;     // where it is
};

// The tokenizer among the files that go along: its type, as of Tokenizer::of_type(), and the names
// of its files, of which merges may be empty.
struct CompanionTokenizer {
  std::string type, vocab, merges;
};

struct Ignored {
  std::string name;    // in the source
  std::string reason;  // the rule
};

struct ModelFiles {
  std::string where;  // the source, for messages
  Config config;      // model and tokenizer; model.vocab is the rows of the embedding
  std::shared_ptr<const TensorSource> files;
  std::vector<ModelTensor> tensors;  // embedding, layers, head
  std::vector<Ignored> ignored;
  std::vector<Companion> companions;
  std::optional<CompanionTokenizer> tokenizer = {};  // by choose_tokenizer()
  int64_t iteration = 0;                             // steps that the weights have had
  // Training goes on from here: `states` of all tensors are there. Without architecture and config,
  // which the writer adds.
  std::optional<TrainState> train = {};
  // Fills `train` and `states`, whose files are opened for that alone, or says in `ignored` why
  // there are none; empty where there is nothing to fill.
  std::function<void(ModelFiles&)> open_train_state = {};
};

// The tensors of a format that a parameter is made of, in order.
struct Pieces {
  struct Piece {
    std::vector<std::string> names;  // any one of them; the first is written
    Dims shape;
  };
  std::vector<Piece> pieces;
  // Makes the parameter of them; empty: of the one piece, as it is.
  std::function<at::Tensor(const std::vector<at::Tensor>&)> join = {};
  std::string note = {};
};
using PiecesOf = std::function<Pieces(const ParamSpec& ours)>;

// The names by which a format calls a parameter, the one that is written first.
using Names = std::function<std::vector<std::string>(const std::string& ours)>;
// The reason why a tensor of a format is left out; "" where it must not be.
using IgnoreRule = std::function<std::string(const std::string& theirs)>;

// Fills tensors and ignored from files. Throws (74) for a piece that is missing or has another
// shape or type, and for a tensor that is neither a piece nor ignored: every tensor of the source
// is accounted for.
void map_pieces(ModelFiles& model, const PiecesOf& pieces, const IgnoreRule& ignore);
// The same for formats that store parameters as they are.
void map_tensors(ModelFiles& model, const Names& names, const IgnoreRule& ignore);

// Leaves the weights alone.
void drop_train_state(ModelFiles& model, const std::string& reason);

// Converts every parameter to the type; the weights alone are left.
void set_dtype(ModelFiles& model, at::ScalarType dtype);
// Gives embedding and head that many rows: new ones are zeros, and the last ones are cut off; the
// weights alone are left.
void set_rows(ModelFiles& model, int64_t rows);

// muP's multipliers become factors of the parameters, and the model one without muP that computes
// the same; the weights alone are left. Throws (64) where they cannot.
void fold_multipliers(ModelFiles& model);

// "layers.3" for the tensors of a layer, else the name itself: what is written together.
std::string group_of(const std::string& name);

}  // namespace neox
