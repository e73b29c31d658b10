#include "tools/quantize/options.h"

#include <algorithm>
#include <array>

#include "base/ascii.h"
#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "convert/import.h"
#include "quantize/rewrites/fold.h"
#include "tools/common/device_choice.h"
#include "tools/common/model_file.h"
#include "tools/common/pull.h"

namespace leq {
namespace {

constexpr std::int64_t kRtnWindows = 16;  // of calibration, for mean squares of inputs
constexpr double kPresetAlpha = 0.5;      // the paper's value
constexpr double kMaxStaticError =
    2;  // for o3: error with a fixed scale, relative to the error with one scale per token

// Names with summaries: "rtn (nearest code)".
template <class List>
std::string with_summaries(const List& list) {
  std::vector<std::string> parts;
  for (const auto& one : list) {
    parts.push_back(std::string(one.name) + " (" + std::string(one.summary) + ")");
  }
  return join(parts, "; ");
}
template <class List>
std::vector<std::string> names_of(const List& list) {
  std::vector<std::string> names;
  for (const auto& one : list) names.emplace_back(one.name);
  return names;
}

// Flags that choose the quantization; if none of them is given, kDefaultRecipe is used.
constexpr std::array kChoosingFlags = {"recipe", "type",   "bits",        "group", "method",
                                       "act",    "smooth", "tensor-type", "search"};

std::vector<Option> quantization_flags() {
  return {
      {.name = "recipe",
       .kind = OptionKind::text,
       .value_name = "NAME",
       .help = "method, type and folds together: " + with_summaries(recipes()) + " (default " +
               std::string(kDefaultRecipe) + " if no other flag chooses the quantization)",
       .suggestions = names_of(recipes())},
      {.name = "type",
       .kind = OptionKind::text,
       .value_name = "TYPE",
       .help = "number format of the weights: f32, f16, bf16, int8 (one scale per row), "
               "int8-tensor, int or uint of 8, 4, 3, 2 bits with -g32, -g64 or -g128 (one scale "
               "per group of that many columns), q4_k, q5_k, q6_k, iq4_nl, mxfp4, nvfp4, nf4, b1 "
               "(default int8, or the method's own default)",
       .suggestions = {"f32", "f16", "bf16", "int8", "int8-g128", "int4-g128", "int4-g64",
                       "int4-g32", "int3-g64", "int2-g64", "uint4-g128", "uint4-g64", "nf4"}},
      {.name = "bits",
       .kind = OptionKind::integer,
       .value_name = "B",
       .help = "instead of --type: bits per weight, 8, 4, 3 or 2",
       .minimum = 2,
       .maximum = 8,
       .suggestions = {"8", "4", "3", "2"}},
      {.name = "group",
       .kind = OptionKind::integer,
       .value_name = "G",
       .help = "with --bits: columns that share a scale, 32, 64 or 128; 0 = a row (default: a row "
               "for 8 bits, 128 for fewer)",
       .minimum = 0,
       .maximum = 128,
       .suggestions = {"0", "32", "64", "128"}},
      {.name = "method",
       .kind = OptionKind::text,
       .value_name = "NAME",
       .fallback = "absmax",
       .help = "the rounding method: " + with_summaries(checkpoint_methods()),
       .choices = names_of(checkpoint_methods())},
      {.name = "act",
       .kind = OptionKind::text,
       .value_name = "KIND",
       .fallback = "auto",
       .help = "inputs of quantized linears: auto (int8, per 128 or 32 columns), row, g128, g32, "
               "tensor (one calibrated scale), online (one scale that follows the inputs), "
               "streaming (online, one step behind), none (weights only, slow)",
       .choices = {"auto", "none", "row", "g128", "g32", "tensor", "online", "streaming"}},
      {.name = "smooth",
       .kind = OptionKind::text,
       .value_name = "HOW",
       .help = "SmoothQuant's folds: none, search (the best alpha of each layer), a number from "
               "0 to 1 (one alpha), o1, o2, o3 (the paper's settings); or awq (the scales of that "
               "method); default search with --method "
               "smoothquant, else none",
       .suggestions = {"none", "search", "0.5", "o1", "o2", "o3", "awq"}},
      {.name = "tensor-type",
       .kind = OptionKind::list,
       .value_name = "REGEX=TYPE",
       .help = "another type for the tensors whose names match, as layers\\.0\\.=int8; may be "
               "given several times, the last match applies"},
      {.name = "measure-keys",
       .help = "store the mean of each layer's keys, which int8 and int4 KV caches subtract; "
               "without this flag it is stored only if the method needs calibration text"},
      {.name = "gate",
       .fallback = "auto",
       .help = "after quantization, measure the KL divergence from the unquantized model on "
               "held-out text and store it in the file (default: on with a recipe or with "
               "--smooth o3)"},
      {.name = "heldout",
       .kind = OptionKind::text,
       .value_name = "FILE",
       .help = "text for --gate, which must differ from the calibration text (default: a built-in "
               "text of four pages)"},
  };
}

std::vector<Option> calibration_flags() {
  return {
      {.name = "calibration",
       .kind = OptionKind::text,
       .value_name = "FILE",
       .help = "plain text for calibration (default: a built-in text of 54 KB)"},
      {.name = "samples",
       .kind = OptionKind::integer,
       .value_name = "N",
       .fallback = "128",
       .help = "number of windows at random places of the calibration text; by default, recipes "
               "q8, q6, q5, q4 and q4-small use as many as this machine processes in 3 minutes, "
               "from 8 to "
               "32, and method rtn, whose ranges need few, 16",
       .minimum = 1,
       .maximum = 1 << 20},
      {.name = "time",
       .kind = OptionKind::text,
       .value_name = "TIME",
       .help = "recipes q8, q6, q5, q4 and q4-small: time for calibration and the choice of codes, "
               "as 90s, "
               "3m or 2h; as many windows (2 to 128) are used as fit into it. The file depends "
               "only on the number of windows, which is printed"},
      {.name = "length",
       .kind = OptionKind::integer,
       .value_name = "L",
       .fallback = "512",
       .help = "tokens per window",
       .minimum = 8,
       .maximum = 1 << 20},
      {.name = "seed",
       .kind = OptionKind::integer,
       .value_name = "S",
       .fallback = "0",
       .help = "seed for the choice of the windows",
       .minimum = 0},
      {.name = "max-ram",
       .kind = OptionKind::text,
       .value_name = "SIZE",
       .help = "memory limit for calibration, such as 8G or 500M; hidden states that do not fit "
               "are stored on disk, and a run that needs more memory is refused before it starts"},
      {.name = "true-sequential",
       .fallback = "true",
       .help = "gptq: gather the statistics of each block once, before it is quantized, not again "
               "after each of its linears is quantized"},
  };
}

std::vector<Option> run_flags() {
  Option ranks = rank_option();
  ranks.help =
      "number of ranks that divide the work; the ranks share the threads, or are processes started "
      "by mpirun. The file is the same for any number of ranks";
  return {
      {.name = "threads",
       .spellings = "-t",
       .kind = OptionKind::integer,
       .value_name = "N",
       .fallback = "0",
       .help = "threads; 0 = one per core. The file is the same for any number",
       .minimum = 0,
       .maximum = 1024},
      ranks,
      {.name = "restart",
       .help = "remove the partial results of an interrupted run with this output file and start "
               "over; without this flag, the same command continues the interrupted run"},
      {.name = "fix-mistral-regex",
       .help = "split texts by Mistral's own pattern, if the folder of a Mistral model contains "
               "another one, as written by transformers before 5.0"},
      {.name = "device",
       .spellings = "-dev",
       .kind = OptionKind::text,
       .value_name = "NAME",
       .fallback = "cpu",
       .help = "cpu only, because calibration needs the activations in its memory",
       .hidden = true},
  };
}

// Types that llama.cpp's users type, by the beginning of their names, and what to use instead.
struct LlamaType {
  std::string_view begins, advice;
};
constexpr LlamaType kLlamaTypes[] = {
    {"Q8_", "--recipe q8"},
    {"Q6_K", "--type q6_k"},
    {"Q5_", "--type q5_k"},
    {"Q4_", "--recipe q4"},
    {"IQ4_", "--recipe q4"},
    {"MXFP4", "--recipe q4"},
    {"NVFP4", "--recipe q4"},
    {"Q3_K", "--recipe auto --target-bpw 3.5"},
    {"IQ3_", "--recipe auto --target-bpw 3.5"},
    {"Q2_K", "--recipe auto --target-bpw 3"},
    {"IQ2_", "--recipe auto --target-bpw 3"},
    {"F16", "--type f16"},
    {"BF16", "--type bf16"},
    {"F32", "--type f32"},
};

// The flags for a type of llama.cpp; empty if it is none. q4_k, q5_k and q6_k are types here too.
std::string_view llama_advice(const std::string& name) {
  const std::string upper = ascii_upper(name);
  for (const LlamaType& type : kLlamaTypes) {
    if (upper.starts_with(type.begins)) return type.advice;
  }
  return {};
}

void refuse_llama_type(const char* flag, const std::string& name) {
  const std::string recipe = replace_all(ascii_lower(name), "_", "-");  // "Q4_small" is q4-small
  require(find_recipe(recipe) == nullptr, flag, " ", printable(name), ": use --recipe ", recipe);
  require(!parse_scheme(name), flag, " ", printable(name), ": is a type; use --type ", name);
  const std::string_view advice = llama_advice(name);
  require(advice.empty(), flag, " ", printable(name), ": is a type of llama.cpp; use ", advice);
}

// Words without a flag: the checkpoint, after which llama-quantize's users type the output and the
// type.
void check_positionals(const Options& options) {
  const std::vector<std::string>& words = options.positionals();
  require(!words.empty(),
          "HF_DIR is missing: the folder with config.json and *.safetensors, or a GGUF file");
  if (words.size() > 1) {
    // llama-quantize MODEL [OUTPUT] TYPE [THREADS]
    std::string output = options.given("output") ? options.text("output") : "";
    std::string_view advice;
    for (std::size_t i = 1; i < words.size(); ++i) {
      if (advice.empty()) advice = llama_advice(words[i]);
      if (advice.empty() && output.empty()) output = words[i];
    }
    if (output.empty() || output.ends_with(".gguf")) output = output_for(words[0]);
    fail("unexpected argument '", printable(words[1]), "': write `leq-quantize ",
         printable(words[0], 4096), " -o ", printable(output, 4096), advice.empty() ? "" : " ",
         advice, "`");
  }
  require(options.given("output"), "-o is missing, the file to write: `leq-quantize ",
          printable(words[0], 4096), " -o ", output_for(words[0]), "`");
}

void check_names(const Options& options) {
  if (options.given("type") && !parse_scheme(options.text("type"))) {
    refuse_llama_type("--type", options.text("type"));
  }
  if (!options.given("recipe")) return;
  const std::string& name = options.text("recipe");
  const std::vector<std::string> names = names_of(recipes());
  if (std::ranges::find(names, name) != names.end()) return;
  refuse_llama_type("--recipe", name);
  fail("--recipe: expected ", join(names, " | "), ", found '", printable(name), "'");
}

// Returns the type of --bits and --group; symmetric unless the method's default has zero points.
std::string type_of_bits(const Options& options, const std::string& own_type) {
  const std::int64_t bits = options.integer("bits");
  require(bits == 8 || bits == 4 || bits == 3 || bits == 2, "--bits ", bits,
          ": expected 8, 4, 3 or 2");
  const std::int64_t group =
      options.given("group") ? options.integer("group") : (bits == 8 ? 0 : 128);
  std::string type = own_type.starts_with("uint") ? "uint" : "int";
  type += std::to_string(bits);
  if (group > 0) type += "-g" + std::to_string(group);
  return type;
}

std::string chosen_type(const Options& options) {
  const std::string& method = options.text("method");
  std::string own;
  for (const CheckpointMethod& known : checkpoint_methods()) {
    if (known.name == method) own = known.type;
  }
  require(!options.given("type") || (!options.given("bits") && !options.given("group")), "--type ",
          options.given("type") ? options.text("type") : "",
          " says bits and group already; leave out --bits and --group");
  const bool searches = options.given("search") || options.given("recipe");
  require(!options.given("group") || options.given("bits") || searches,
          "--group needs --bits or --search");
  if (options.given("type")) return options.text("type");
  return options.given("bits") ? type_of_bits(options, own) : own;
}

// Sets the folds given by --smooth. Presets also set type and act.
void set_smoothing(const Options& options, QuantizeOptions& checkpoint) {
  if (!options.given("smooth")) return;
  const std::string& how = options.text("smooth");
  require(checkpoint.method != "awq", "--method awq has folds of its own; leave out --smooth");
  if (how == "none") {
    require(checkpoint.method != "smoothquant",
            "--method smoothquant --smooth none is --method "
            "absmax; choose one");
    return;
  }
  if (how == "awq") {
    checkpoint.fold = awq_scales_fold();
    return;
  }
  if (how == "search") {
    checkpoint.fold = smoothing_fold(std::nullopt);
    return;
  }
  for (const SmoothingPreset& preset : smoothing_presets()) {
    if (preset.name != how) continue;
    require(!options.given("type") && !options.given("bits") && !options.given("act"), "--smooth ",
            how, " sets type ", scheme_name(preset.weight), " and act ", act_name(preset.act),
            "; leave out --type, --bits and --act");
    checkpoint.type = scheme_name(preset.weight);
    checkpoint.act = *parse_act_choice(act_name(preset.act));
    checkpoint.fold = smoothing_fold(kPresetAlpha);
    if (preset.act == ActKind::tensor) checkpoint.max_static_error = kMaxStaticError;
    return;
  }
  const auto alpha = parse_double(how);
  require(alpha && *alpha >= 0 && *alpha <= 1, "--smooth ", printable(how),
          ": expected none, search, awq, o1, o2, o3 or an alpha from 0 to 1");
  checkpoint.fold = smoothing_fold(*alpha);
}

void set_overrides(const Options& options, QuantizeOptions& checkpoint) {
  for (const std::string& word : options.list("tensor-type")) {
    const std::size_t equals = word.rfind('=');
    require(equals != std::string::npos && equals > 0, "--tensor-type ", printable(word),
            ": expected REGEX=TYPE, as layers\\.0\\.=int8");
    checkpoint.overrides.push_back(
        {word.substr(0, equals), require_scheme(word.substr(equals + 1), "--tensor-type")});
  }
}

void set_calibration(const Options& options, QuantizeOptions& checkpoint) {
  CalibrationRequest& calibration = checkpoint.calibration;
  if (options.given("calibration")) {
    calibration.source = options.text("calibration");
    calibration.text = read_quantize_text(calibration.source);
  }
  const bool rtn = options.text("method") == "rtn" && !options.given("samples");
  calibration.samples = rtn ? kRtnWindows : options.integer("samples");
  calibration.length = options.integer("length");
  calibration.seed = static_cast<std::uint64_t>(options.integer("seed"));
  if (options.given("max-ram"))
    checkpoint.max_ram = parse_size("--max-ram", options.text("max-ram"));
}

// Returns whether a quantized checkpoint keeps its codes: no flag except --act and --tensor-type
// chooses a quantization.
bool keeps_types(const Options& options, const std::filesystem::path& folder) {
  const auto chooses = [&](std::string_view flag) {
    return flag != "act" && flag != "tensor-type" && options.given(flag);
  };
  return !options.given("fit") && std::ranges::none_of(kChoosingFlags, chooses) &&
         holds_codes(folder);
}

void set_recipe(const Options& options, const std::filesystem::path& folder, QuantizeOptions& job) {
  const bool chosen =
      std::ranges::any_of(kChoosingFlags, [&](const char* flag) { return options.given(flag); });
  job.keeps_types = keeps_types(options, folder);
  if (job.keeps_types) return;
  if (chosen && !options.given("recipe")) return;
  const Recipe& recipe = require_recipe(chosen                 ? options.text("recipe")
                                        : options.given("fit") ? std::string_view("auto")
                                                               : kDefaultRecipe);
  for (const char* flag : {"method", "type", "bits", "act", "smooth", "search"}) {
    require(!options.given(flag), "--recipe ", recipe.name, " and --", flag,
            " say the same things; leave one of them out");
  }
  apply_recipe(recipe, import_config(folder), job);
  job.fit_windows = recipe.fits_windows() && !options.given("samples") && !options.given("length");
}

// Parses "90s", "3m" or "2h"; a number without a unit is in seconds.
double parse_time(const std::string& text) {
  const bool has_unit = !text.empty() && std::string_view("smh").find(text.back()) != text.npos;
  const double unit = !has_unit || text.back() == 's' ? 1 : text.back() == 'm' ? 60 : 3600;
  const auto number = parse_double(text.substr(0, text.size() - (has_unit ? 1 : 0)));
  require(number && *number > 0 && *number * unit <= 1e9, "--time ", printable(text),
          ": expected a time as 90s, 3m or 2h");
  return *number * unit;
}

void set_time(const Options& options, QuantizeOptions& job) {
  if (!options.given("time")) return;
  job.seconds = parse_time(options.text("time"));
  for (const char* flag : {"samples", "length"}) {
    require(!options.given(flag), "--time and --", flag, ": --time says how much text to read");
  }
  require(job.fit_windows,
          "--time belongs to the recipes q8, q6, q5, q4 and q4-small, whose calibration text it "
          "measures; a search takes --search-evals");
}

QuantizeOptions checkpoint_options(const Options& options) {
  const std::string& device = options.text("device");
  require(device == "cpu", "-dev ", printable(device), ": leq-quantize computes on the CPU; leave",
          " -dev out, and measure its file on a GPU with leq-perplexity -dev ", printable(device));
  QuantizeOptions checkpoint;
  checkpoint.method = options.text("method");
  checkpoint.type = chosen_type(options);
  checkpoint.act = *parse_act_choice(options.text("act"));
  checkpoint.threads = static_cast<int>(options.integer("threads"));
  checkpoint.true_sequential = options.flag("true-sequential");
  checkpoint.resume = !options.flag("restart");
  set_smoothing(options, checkpoint);
  set_overrides(options, checkpoint);
  set_calibration(options, checkpoint);
  checkpoint.measure_keys = options.flag("measure-keys");
  checkpoint.fix_mistral_regex = options.flag("fix-mistral-regex");
  return checkpoint;
}

// Flags of earlier versions.
std::span<const ForeignOption> removed_flags() {
  static const std::vector<ForeignOption> kAll = {
      {.words = "--hadamard --hadamard-seeds",
       .use = ForeignUse::refused,
       .text = "rotations are no longer supported; --recipe q8 (SmoothQuant) handles outliers"},
      {.words = "--fold-biases",
       .use = ForeignUse::refused,
       .text = "int8 and int4 caches subtract the biases of keys without it; leave it out"},
      {.words = "--resume",
       .use = ForeignUse::refused,
       .text = "runs with calibration and searches continue by themselves; leave it out"},
      {.words = "--save-stats --load-stats",
       .use = ForeignUse::refused,
       .text = "statistics are no longer stored; leave it out, and each run gathers its own"}};
  return kAll;
}

}  // namespace

const ToolSpec& quantize_tool() {
  static const ToolSpec kTool = [] {
    ToolSpec tool;
    tool.name = "leq-quantize";
    tool.summary = "turns a Hugging Face checkpoint folder, or a GGUF file, into a .leq file";
    tool.usage = {"HF_DIR -o model.leq",
                  "model.gguf -o model.leq",
                  "HF_DIR -o model.leq --recipe q4",
                  "Qwen/Qwen3-0.6B -o model.leq           (downloads it)",
                  "HF_DIR -o model.leq --type int4-g128",
                  "HF_DIR -o model.leq --method gptq+ --bits 4 --group 64 --calibration text.txt",
                  "HF_DIR -o model.leq --method gptq+ --search --target-bpw 4.25"};
    tool.advice =
        "Which type? Without a flag a GGUF file keeps its types, and a checkpoint gets 8-bit "
        "weights (recipe q8), about as exact as the checkpoint and half of its f16 size; --recipe "
        "q4 halves that again for a small loss, and both measure the loss.";
    tool.max_positionals = 4;  // more than one is refused with advice
    add_options(tool, in_group("Files", {{.name = "output",
                                          .spellings = "-o",
                                          .kind = OptionKind::text,
                                          .value_name = "FILE",
                                          .help = "the file to write; appears complete or not at "
                                                  "all"}}));
    add_options(tool, in_group("Quantization", quantization_flags()));
    add_options(tool, in_group("Calibration", calibration_flags()));
    add_options(tool, in_group("Run", run_flags()));
    add_options(tool, search_flags());
    tool.foreign = removed_flags();
    return tool;
  }();
  return kTool;
}

QuantizeCommand quantize_command(const Options& options) {
  check_names(options);
  check_positionals(options);
  QuantizeCommand command;
  const std::filesystem::path& folder = command.checkpoint =
      checkpoint_by_name(options.positionals().front());
  check_checkpoint_folder(folder.string());
  command.output = options.text("output");
  require(command.output.extension() != ".gguf", "-o ", printable(options.text("output")),
          ": leq writes .leq files, not GGUF; end the name with .leq");
  require(!command.output.empty(), "-o: expected the name of a file to write, found nothing");
  check_output(command.output);
  QuantizeOptions& job = command.options = checkpoint_options(options);
  for (const char* flag : {"calibration", "heldout", "search-text"}) {
    if (options.given(flag)) job.texts.emplace_back(options.text(flag));
  }
  set_recipe(options, folder, job);
  set_time(options, job);
  const bool floats = require_scheme(job.type, "--type").is_float();
  require(!floats || job.method == "absmax" || !job.overrides.empty(), "--type ", job.type,
          " has no codes to choose; leave out --method ", job.method);
  if (options.given("search") || (job.recipe != nullptr && job.recipe->searches)) {
    job.search = searched_bits(options, job, import_config(folder));
  } else {
    require_no_search_flags(options);
  }
  // Some models do not tolerate --smooth o3.
  const bool risky = options.given("smooth") && options.text("smooth") == "o3";
  job.measure = options.has("gate") ? options.flag("gate") : job.recipe != nullptr || risky;
  job.gate_text = built_in_gate_text();
  if (options.given("heldout")) {
    require(job.measure, "--heldout: is the text of --gate, which is off here: give --gate");
    job.gate_text = {read_quantize_text(options.text("heldout")), options.text("heldout")};
  }
  return command;
}

}  // namespace leq
