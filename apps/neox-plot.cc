// neox-plot: curves of runs, ours and TensorBoard's.
#include <unistd.h>

#include <iostream>

#include "base/error.h"
#include "base/program.h"
#include "metrics/plot.h"

using namespace neox;
namespace po = boost::program_options;
using Names = std::vector<std::string>;

namespace {

const ProgramInfo kInfo = {
    .name = "neox-plot",
    .summary = "Draw loss curves and other scalars of runs, overlaid.",
    .usage = "RUN... [options]",
    .description =
        "A RUN is a metrics.jsonl, a TensorBoard event file (of neox.cpp, GPT-NeoX, Megatron,\n"
        "PyTorch ...), or a directory with one of them up to four levels down. Without --out\n"
        "the chart is drawn in the terminal. Noisy curves are shown smooth.\n",
    .examples =
        "  neox-plot runs/pythia-70m                       # the loss, in the terminal\n"
        "  neox-plot runs/a runs/b --out loss.svg          # two runs in one picture\n"
        "  neox-plot runs/a --list                         # what there is to draw\n"
        "  neox-plot runs/a --tag train/grad_norm --log --x tokens\n"
        "  neox-plot gpt-neox/tensorboard runs/a --x time  # against a run of GPT-NeoX\n"};

void add_options(Program& program, PlotRequest& request, std::string& x, std::string& out) {
  auto add = program.options().add_options();
  add("run", po::value<Names>(), "a run (--run may be left out)");
  add("tag", po::value<Names>(&request.tags),
      "scalar to draw; may be repeated (default: train/lm_loss; of a single run validation/lm_loss "
      "too)");
  add("out", po::value(&out), "write this SVG file");
  add("x", po::value(&x)->default_value("step"), "step, time (since the first point) or tokens");
  add("log", "logarithmic y axis");
  add("smooth", po::value(&request.smooth),
      "mean over so many points; 1: none (default: by noise)");
  add("width", po::value(&request.width), "pixels, or columns of the terminal");
  add("height", po::value(&request.height), "pixels, or rows of the terminal");
  add("ascii", "draw with ASCII characters only");
  add("list", "list the scalars of the runs instead");
  program.positional("run", -1);
}

int run(int argc, char** argv) {
  Program program(kInfo);
  PlotRequest request;
  std::string x, out;
  add_options(program, request, x, out);
  if (!program.parse(argc, argv)) return 0;
  check_usage(program.has("run"), "give at least one run. See neox-plot --help.");
  request.x = parse_x_axis(x);
  request.out = out;
  request.y_scale = program.has("log") ? Scale::kLog : Scale::kLinear;
  request.ascii_only = program.has("ascii");
  auto runs = load_runs(program.get<Names>("run"));
  std::cout << (program.has("list") ? list_scalars(runs)
                                    : plot(runs, request, terminal_of(STDOUT_FILENO)));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return run_program("neox-plot", [&] { return run(argc, argv); });
}
