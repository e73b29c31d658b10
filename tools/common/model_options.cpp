#include "tools/common/model_options.h"

#include <algorithm>

#include "tools/common/device_choice.h"
#include "tools/common/kv_choice.h"

namespace leq {
namespace {

constexpr double kMaxSeed = 9007199254740992.0;  // 2^53, exact in a double

// The help text of a setting: "keep the N most probable tokens, 0 = all (model's, or 40)"
std::string parameter_help(const SamplingParameter& parameter) {
  const std::string own = number_text(parameter_value(SamplingSettings{}, parameter));
  return std::string(parameter.help) + (parameter.config_key.empty() ? " (" : " (model's, or ") +
         own + ")";
}

std::string with_dashes(std::string_view name) {
  std::string word(name);
  std::ranges::replace(word, '_', '-');
  return word;
}

// choose_sampling checks non-integer values, together with the model's.
Option parameter_option(const SamplingParameter& parameter) {
  Option option = {.name = parameter_word(parameter),
                   .kind = parameter.is_whole() ? OptionKind::integer : OptionKind::real,
                   .value_name = std::string(parameter.value_name),
                   .help = parameter_help(parameter)};
  if (!parameter.short_name.empty()) option.spellings = "--" + with_dashes(parameter.name);
  if (parameter.is_whole()) {
    option.minimum = parameter.least;
    option.maximum = parameter.most;
  }
  return option;
}

}  // namespace

std::vector<Option> device_options() {
  return {
      {.name = "device",
       .spellings = "-dev",
       .kind = OptionKind::text,
       .value_name = "NAME",
       .fallback = "cpu",
       .help = "device: cpu | cuda | cuda:N | cuda:GPU-UUID | sim (the CUDA kernels, emulated)",
       .suggestions = {"cpu", "cuda", "cuda:0"}},
      {.name = "gpu-layers",
       .spellings = "-ngl --n-gpu-layers",
       .kind = OptionKind::text,
       .value_name = "N",
       .help = "0: the CPU; all: the GPU. A model runs on one device as a whole",
       .suggestions = {"0", "all"}},
  };
}

std::vector<Option> device_tuning_options() {
  return {
      {.name = "vram",
       .kind = OptionKind::text,
       .value_name = "SIZE",
       .help = "maximum GPU memory to use, as 8G or 900M (default: the free memory, less 2 %)"},
      {.name = "exact",
       .help = "on a GPU, compute the CPU's logits bit for bit; slower, and refused where no "
               "kernel can"},
      numa_option(),
  };
}

std::vector<Option> model_options(std::initializer_list<std::string_view> left_out) {
  std::vector<Option> options = {
      {.name = "model",
       .spellings = "-m",
       .kind = OptionKind::text,
       .value_name = "FILE",
       .help = "the model: a .leq file, or a GGUF file, which is converted once"},
      {.name = "ctx-size",
       .spellings = "-c",
       .kind = OptionKind::integer,
       .value_name = "N",
       .fallback = "0",
       .help =
           "context size in tokens, shared by all sequences; 0: for each the model's, at most 8192",
       .minimum = 0,
       .maximum = 16777216},
      {.name = "threads",
       .spellings = "-t",
       .kind = OptionKind::integer,
       .value_name = "N",
       .fallback = "0",
       .help = "CPU threads; 0 or -1: one per usable core",
       .minimum = -1,
       .maximum = 1024},
      {.name = "parallel",
       .spellings = "-np",
       .kind = OptionKind::integer,
       .value_name = "N",
       .fallback = "1",
       .help = "maximum number of sequences that are processed at the same time",
       .minimum = 1,
       .maximum = 1024},
      {.name = "verbose",
       .spellings = "-v",
       .help = "print the plan: instruction set, kernels, KV cache, memory"},
  };
  const auto third = options.begin() + 3;
  std::vector<Option> device = device_options();
  options.insert(third, device.begin(), device.end());
  std::vector<Option> tuning = {
      {.name = "batch-size",
       .spellings = "-b",
       .kind = OptionKind::integer,
       .value_name = "N",
       .fallback = "2048",
       .help = "maximum tokens per step",
       .minimum = 1,
       .maximum = 65536},
      {.name = "ubatch-size",
       .spellings = "-ub",
       .kind = OptionKind::integer,
       .value_name = "N",
       .fallback = "512",
       .help = "the same limit under another name; the smaller of --batch-size and --ubatch-size "
               "applies",
       .minimum = 1,
       .maximum = 65536},
      {.name = "threads-batch",
       .spellings = "-tb",
       .kind = OptionKind::integer,
       .value_name = "N",
       .help = "accepted if equal to -t: one pool of threads does all work",
       .minimum = -1,
       .maximum = 1024,
       .hidden = true},
      {.name = "mmap",
       .fallback = "auto",
       .help = "map the file into memory, or read it (default: read where mapping gives small "
               "pages and memory suffices)"},
      {.name = "mlock", .help = "lock the model in memory, so that it is not swapped out"},
      {.name = "cache",
       .fallback = "true",
       .help = "convert a GGUF file in memory only, without keeping the result in the cache folder "
               "($XDG_CACHE_HOME/leq, ~/.cache/leq) for the next start"},
      {.name = "graph",
       .fallback = "true",
       .help = "on a GPU, launch the operations of each decode step one by one, not as a recorded "
               "graph; for comparisons"},
      rank_option(),
  };
  for (auto& option : device_tuning_options()) tuning.push_back(std::move(option));
  for (auto& option : kv_options()) tuning.push_back(std::move(option));
  options = in_group("Model", std::move(options));
  for (auto& option : in_group(kTuningGroup, std::move(tuning))) {
    options.push_back(std::move(option));
  }
  std::erase_if(options, [&](const Option& option) {
    return std::ranges::find(left_out, option.name) != left_out.end();
  });
  return options;
}

std::vector<Option> sampling_options() {
  std::vector<Option> options = {
      {.name = "seed",
       .spellings = "-s",
       .kind = OptionKind::integer,
       .value_name = "N",
       .fallback = "-1",
       .help = "seed of the random numbers; -1: a new one, which is printed",
       .minimum = -1,
       .maximum = kMaxSeed}};
  for (const SamplingParameter& parameter : kSamplingParameters)
    options.push_back(parameter_option(parameter));
  return in_group("Sampling", std::move(options));
}

GivenSampling read_sampling(const Options& options) {
  GivenSampling given;
  for (const SamplingParameter& parameter : kSamplingParameters) {
    const std::string name = parameter_word(parameter);
    if (!options.given(name)) continue;
    given[parameter.name] = {
        parameter.is_whole() ? static_cast<double>(options.integer(name)) : options.real(name),
        options.from_environment(name) ? SettingOrigin::environment : SettingOrigin::flag};
  }
  return given;
}

bool speculates(const Options& options) {
  const bool some = !options.declares("draft-max") || options.integer("draft-max") > 0;
  return some && options.text("speculate") != "off";
}

bool finds_drafts(const Options& options) { return options.text("speculate") != "mtp"; }

bool drafts_by_mtp(const Options& options, const Model& model) {
  if (!options.declares("speculate")) return false;
  const std::string& how = options.text("speculate");
  require(how != "mtp" || model.mtp() != nullptr, "--speculate mtp: ", model.file().name(),
          " has no head of multi-token prediction; use --speculate auto");
  const bool other = options.declares("model-draft") && options.given("model-draft");
  return speculates(options) && how != "ngram" && !other && model.mtp() != nullptr;
}

std::vector<Option> speculation_options(const std::string& group) {
  return in_group(
      group,
      {
          {.name = "speculate",
           .kind = OptionKind::text,
           .value_name = "HOW",
           .fallback = "auto",
           .help = "speculative decoding: propose draft tokens and check several in one step, "
                   "where that is faster; the reply is the same. ngram: what followed the same "
                   "text earlier; mtp: the model's head of multi-token prediction; auto: both",
           .choices = {kSpeculations.begin(), kSpeculations.end()}},
          {.name = "model-draft",
           .spellings = "-md --spec-draft-model",
           .kind = OptionKind::text,
           .value_name = "FILE",
           .help = "draft model: a small model with the same vocabulary; the reply is the same"},
          {.name = "draft-max",
           .spellings = "--draft --draft-n --spec-draft-n-max",
           .kind = OptionKind::integer,
           .value_name = "N",
           .fallback = "16",
           .help = "maximum draft tokens per step (at most 16)",
           .minimum = 0,
           .maximum = 1024},
      });
}

}  // namespace leq
