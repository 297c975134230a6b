// neox-plot: curves of runs, ours and TensorBoard's.
#include <unistd.h>

#include <iostream>

#include "base/program.h"
#include "metrics/plot.h"

using namespace neox;
namespace po = boost::program_options;

namespace {

const ProgramInfo kInfo = {
    "neox-plot", "Draws loss curves and other scalars of runs, overlaid.", "RUN... [options]",
    "A RUN is a metrics.jsonl, a TensorBoard event file (also of GPT-NeoX, Megatron, PyTorch),\n"
    "or a directory with one of them up to four levels down. Without --out the chart is drawn\n"
    "in the terminal. Noisy curves are shown smooth. Without --tag it is train/lm_loss, and of\n"
    "a single run validation/lm_loss too.\n",
    "  neox-plot runs/pythia-70m                       # the loss, in the terminal\n"
    "  neox-plot runs/a runs/b --out loss.svg          # two runs in one picture\n"
    "  neox-plot runs/a --list                         # what there is to draw\n"
    "  neox-plot runs/a --tag train/grad_norm --log --x tokens\n"
    "  neox-plot gpt-neox/tensorboard runs/a --x time  # against a run of GPT-NeoX\n"};

void add_options(Program& program, PlotRequest& request, std::vector<std::string>& runs) {
  auto add = program.options().add_options();
  add("run", po::value(&runs)->value_name("DIR"), "a run (--run may be left out)");
  add("tag", po::value(&request.tags)->value_name("TAG"),
      "scalar to draw, may be repeated (default: the loss)");
  add("out", text("FILE")->default_value("", ""), "write this SVG file");
  add("x", text("AXIS")->default_value("step"), "step, tokens or time (of the run)");
  add("log", "logarithmic y axis");
  add("smooth", po::value(&request.smooth)->value_name("N"),
      "mean over about so many points; 1: none (default: auto)");
  add("width", po::value(&request.width)->value_name("N"), "pixels, or columns of the terminal");
  add("height", po::value(&request.height)->value_name("N"), "pixels, or rows of the terminal");
  add("ascii", po::bool_switch(&request.ascii_only), "draw with ASCII characters only");
  add("list", "list the scalars of the runs instead");
  program.positional("run", -1);
}

int run(int argc, char** argv) {
  Program program(kInfo);
  PlotRequest request;
  std::vector<std::string> paths;
  add_options(program, request, paths);
  if (!program.parse(argc, argv)) return 0;
  request.x = parse_x_axis(program.get<std::string>("x"));
  request.out = program.get<std::string>("out");
  request.y_scale = program.has("log") ? Scale::kLog : Scale::kLinear;
  auto runs = load_runs(paths);
  std::cout << (program.has("list") ? list_scalars(runs)
                                    : plot(runs, request, terminal_of(STDOUT_FILENO)));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return run_program("neox-plot", [&] { return run(argc, argv); });
}
