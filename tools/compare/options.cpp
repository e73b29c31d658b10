#include "tools/compare/options.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "tools/common/model_path.h"
#include "tools/common/option_rows.h"

namespace leq {
namespace {

constexpr std::int64_t kWindows = 16, kQuickWindows = 8;
constexpr std::int64_t kSamples = 32, kQuickSamples = 8;
constexpr std::int64_t kQuickWindow = 256;

std::vector<Option> what_flags() {
  const std::string group = "What is compared";
  Option file = text_row("file", "FILE", "the text to measure on, in UTF-8", group);
  file.spellings = "-f";
  file.required = true;
  Option choices = text_row("choices", "FILE",
                            "questions with choices (JSONL of HellaSwag, PIQA, ARC, MMLU, or "
                            "context, choices and label); may be given again",
                            group);
  choices.kind = OptionKind::list;
  return {
      text_row("methods", "LIST",
               "METHOD[:TYPE][+ACT][#WINDOWS][@CACHE], separated by commas: absmax:int8, "
               "smoothquant:int8+online, gptq:int4-g64#32, simquant:4, base@simq8, q8; the "
               "unquantized model is always there (default: the paper's methods and recipes)",
               group),
      file, choices,
      number_row(OptionKind::integer, "questions", "N", "",
                 "the first N of each file of choices; 0: all (default 0, --quick 40)", group, 0)};
}

std::vector<Option> how_flags() {
  const std::string group = "How";
  std::vector<Option> rows = window_rows(group);
  for (Option& row : rows) {
    if (row.name == "window") row.help += "; --quick 256";
    if (row.name != "chunks") continue;
    row.fallback.clear();
    row.help += " (default 16, --quick 8)";
  }
  const auto integers = [&](const char* name, const char* help) {
    rows.push_back(number_row(OptionKind::integers, name, "N,...", "", help, group, 1, 1 << 24));
  };
  rows.push_back(text_row("calibration", "FILE",
                          "plain text to calibrate on; default: a built-in text", group));
  rows.push_back(number_row(OptionKind::integer, "samples", "N", "",
                            "number of calibration windows (default 32, --quick 8)", group, 1,
                            1 << 20));
  rows.push_back(text_row("parts", "LIST",
                          "what is measured beside files and their quality, separated by commas "
                          "(default speed,layers,inside,curves); none: nothing",
                          group));
  integers("contexts",
           "window lengths of the curve over context; the model's longest is the limit "
           "(default 128 to 32768, --quick 128,512,2048)");
  integers("calibration-windows",
           "calibration windows of the curve over calibration text (default 1 to 128, "
           "--quick 1,4,16)");
  rows.push_back(text_row("again", "LIST",
                          "kept results that are measured again, as after a run beside other "
                          "programs: speed, setup (seconds of quantization)",
                          group));
  rows.push_back(
      {.name = "quick", .help = "few windows, short tests, fewer methods", .group = group});
  rows.push_back(number_row(OptionKind::integer, "threads", "N", "0",
                            "threads; 0 = one for each core", group, 0, 1024));
  rows.back().spellings = "-t";
  return rows;
}

void set_text_windows(const Options& options, CompareJob& job) {
  job.protocol.protocol = options.text("protocol");
  if (options.given("join")) job.protocol.join = options.text("join");
  if (options.given("window")) {
    job.protocol.window = options.integer("window");
  } else if (job.quick && job.protocol.protocol == "hf") {
    job.protocol.window = kQuickWindow;
  }
  job.protocol.chunks = options.given("chunks") ? options.integer("chunks")
                        : job.quick             ? kQuickWindows
                                                : kWindows;
}

// Returns the words of a list option, each of which must be in `known`.
std::vector<std::string> words_of(const Options& options, const std::string& flag,
                                  std::span<const std::string_view> known) {
  std::vector<std::string> words;
  for (const std::string_view word : split(options.text(flag), ",")) {
    if (word == "none" || word.empty()) continue;
    require(std::ranges::find(known, word) != known.end(), "--", flag, ": unknown part ",
            printable(word), "; use ", join(std::vector<std::string>(known.begin(), known.end())),
            " or none");
    words.emplace_back(word);
  }
  return words;
}

void set_calibration_text(const Options& options, CompareJob& job) {
  if (options.given("calibration")) {
    job.calibration.source = options.text("calibration");
    job.calibration.text = read_text_file(job.calibration.source, 1u << 30);
  }
  job.calibration.samples = options.given("samples") ? options.integer("samples")
                            : job.quick              ? kQuickSamples
                                                     : kSamples;
}

}  // namespace

ToolSpec compare_tool() {
  ToolSpec tool;
  tool.name = "leq-compare";
  tool.summary = "compares ways to quantize a model: tables, charts and tests on one page";
  tool.usage = {"HF_DIR -f wiki.test.raw -o report",
                "HF_DIR -f wiki.test.raw -o report --methods smoothquant:int8,awq,gptq,q4",
                "HF_DIR -f text.txt -o report --quick --choices hellaswag_val.jsonl"};
  tool.max_positionals = 1;
  tool.options = {
      {.name = "output",
       .spellings = "-o",
       .kind = OptionKind::text,
       .value_name = "FOLDER",
       .help = "for index.html, report.json, CSV files and kept results: the same "
               "command continues an interrupted comparison",
       .group = "Files",
       .required = true},
      {.name = "keep-files", .help = "leave the quantized files in FOLDER/work", .group = "Files"}};
  for (auto& option : what_flags()) tool.options.push_back(std::move(option));
  for (auto& option : how_flags()) tool.options.push_back(std::move(option));
  return tool;
}

CompareJob compare_job(const Options& options) {
  require(!options.positionals().empty(),
          "HF_DIR is missing: the folder with config.json and *.safetensors, or a GGUF file");
  CompareJob job;
  job.checkpoint = options.positionals().front();
  check_checkpoint_folder(job.checkpoint.string());
  job.output = options.text("output");
  require(!job.output.empty(), "-o: expected the name of a folder to write, found nothing");
  job.quick = options.flag("quick");
  if (job.quick) job.sizes = quick_sizes();
  job.candidates = parse_candidates(options.given("methods") ? options.text("methods")
                                                             : default_candidates(job.quick));
  job.text = options.text("file");
  for (const std::string& file : options.list("choices")) job.choices.emplace_back(file);
  if (options.given("questions")) job.sizes.questions = options.integer("questions");
  if (options.given("contexts")) job.sizes.contexts = options.integers("contexts");
  if (options.given("calibration-windows"))
    job.sizes.calibration_windows = options.integers("calibration-windows");
  if (options.given("parts")) job.parts = words_of(options, "parts", kCompareParts);
  if (options.given("again")) job.again = words_of(options, "again", kAgainParts);
  set_text_windows(options, job);
  set_calibration_text(options, job);
  job.keep_files = options.flag("keep-files");
  job.threads = static_cast<int>(options.integer("threads"));
  return job;
}

}  // namespace leq
