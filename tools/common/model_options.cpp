#include "tools/common/model_options.h"

#include <algorithm>

#include "tools/common/device_choice.h"
#include "tools/common/kv_choice.h"
#include "tools/common/model_file.h"
#include "tools/common/rank_choice.h"

namespace leq {
namespace {

std::vector<Option> all_model_options() {
  const std::string group = "Model";
  return {
      {.name = "model",
       .spellings = "-m",
       .kind = OptionKind::text,
       .value_name = "FILE",
       .help = "the model: a .leq file, or a GGUF file, which is converted once",
       .group = group,
       .required = true},
      {.name = "threads",
       .spellings = "-t",
       .kind = OptionKind::integer,
       .value_name = "N",
       .fallback = "0",
       .help = "threads; 0 or -1: one for each usable core",
       .group = group,
       .minimum = -1,
       .maximum = 1024},
      rank_option(group),
      {.name = "threads-batch",
       .spellings = "-tb",
       .kind = OptionKind::integer,
       .value_name = "N",
       .help = "accepted if equal to -t: one pool of threads does all work",
       .group = group,
       .minimum = -1,
       .maximum = 1024,
       .hidden = true},
      {.name = "ctx-size",
       .spellings = "-c",
       .kind = OptionKind::integer,
       .value_name = "N",
       .fallback = "0",
       .help = "context size in tokens, shared by all sequences; 0: the model's, capped at 8192",
       .group = group,
       .minimum = 0,
       .maximum = 16777216},
      {.name = "batch-size",
       .spellings = "-b",
       .kind = OptionKind::integer,
       .value_name = "N",
       .fallback = "2048",
       .help = "most tokens in one step",
       .group = group,
       .minimum = 1,
       .maximum = 65536},
      {.name = "ubatch-size",
       .spellings = "-ub",
       .kind = OptionKind::integer,
       .value_name = "N",
       .fallback = "512",
       .help = "the same limit under another name; the smaller of --batch-size and --ubatch-size "
               "applies",
       .group = group,
       .minimum = 1,
       .maximum = 65536},
      {.name = "parallel",
       .spellings = "-np",
       .kind = OptionKind::integer,
       .value_name = "N",
       .fallback = "1",
       .help = "sequences at the same time",
       .group = group,
       .minimum = 1,
       .maximum = 1024},
      {.name = "graph",
       .fallback = "true",
       .help = "on a GPU, launch the operations of each step of generation one by one, not as a "
               "recorded graph: for comparing",
       .group = group},
      {.name = "mmap",
       .fallback = "auto",
       .help = "use the file where it is mapped, or read it into memory (default: read where small "
               "pages would slow it and memory allows)",
       .group = group},
      conversion_cache_option(),
      {.name = "mlock", .help = "keep the model in memory", .group = group},
      {.name = "verbose",
       .spellings = "-v",
       .help = "print the plan: instruction set, kernels, KV cache, memory",
       .group = group},
  };
}

}  // namespace

std::vector<Option> device_options(const std::string& group) {
  return {
      numa_option(group),
      {.name = "device",
       .spellings = "-dev",
       .kind = OptionKind::text,
       .value_name = "NAME",
       .fallback = "cpu",
       .help = "where to compute: cpu | cuda | cuda:N | cuda:GPU-UUID | sim (the CUDA kernels, "
               "emulated)",
       .group = group,
       .suggestions = {"cpu", "cuda", "cuda:0"}},
      {.name = "gpu-layers",
       .spellings = "-ngl --n-gpu-layers",
       .kind = OptionKind::text,
       .value_name = "N",
       .help = "0: the CPU; all: the GPU. A model runs on one device as a whole",
       .group = group,
       .suggestions = {"0", "all"}},
      {.name = "vram",
       .kind = OptionKind::text,
       .value_name = "SIZE",
       .help = "take at most so much of the GPU's memory, as 8G or 900M (default: what is free, "
               "less 2 %)",
       .group = group},
      {.name = "exact",
       .help = "on a GPU, compute the CPU's logits bit for bit; slower, and refused where no "
               "kernel can",
       .group = group},
  };
}

std::vector<Option> model_options(std::initializer_list<std::string_view> left_out) {
  std::vector<Option> options = all_model_options();
  const auto before = std::ranges::find(options, "mmap", &Option::name);
  const std::vector<Option> device = device_options("Model");
  options.insert(before, device.begin(), device.end());
  const auto after_sequences = std::ranges::find(options, "graph", &Option::name);
  const std::vector<Option> cache = kv_options("Model");
  options.insert(after_sequences, cache.begin(), cache.end());
  std::erase_if(options, [&](const Option& option) {
    return std::ranges::find(left_out, option.name) != left_out.end();
  });
  return options;
}

}  // namespace leq
