// The command line of Megatron-LM's and Megatron-DeepSpeed's pretrain_gpt.py as a configuration.
#pragma once
#include <string>
#include <vector>

#include "base/text.h"

namespace neox {

struct MegatronOptions {
  std::string yaml;                        // with comments
  std::vector<std::string> warnings = {};  // one for each option that changes the run and is lost
};

// arguments: the options, behind whatever launches a *.py. What Megatron takes where an option is
// not given is written out, where it is not what is taken here. Throws Error (64) for a value that
// cannot be read, and for a model that is not supported.
MegatronOptions read_megatron_options(const std::vector<std::string>& arguments);

// What becomes of an option; see megatron_option_table.cc.
inline constexpr char kSwitch[] = "takes no value";
struct MegatronOption {
  enum class Fate {
    kModel,    // megatron_args.h reads it; `words` may be kSwitch
    kKey,      // is the key `words`
    kUsed,     // megatron_options.cc reads it; as kModel
    kOff,      // makes `words` false
    kNothing,  // nothing here depends on it
    kLost      // would change the run: `words` say what is done instead
  };
  const char* name;
  Fate fate;
  const char* words = "";
};

// By its name with '_'; null where it is none of them.
const MegatronOption* find_megatron_option(const std::string& name);

}  // namespace neox
