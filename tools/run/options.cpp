#include "tools/run/options.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "tools/common/model_options.h"
#include "tools/run/prompt.h"

namespace leq::run {
namespace {

using Kind = OptionKind;

constexpr double kMaxCount = 1ull << 40;
constexpr double kMaxSeed = 9007199254740992.0;  // 2^53, exact in a double

std::vector<Option> text_options() {
  return {
      {.name = "prompt",
       .spellings = "-p",
       .kind = Kind::text,
       .value_name = "TEXT",
       .help = "text to go on from; in a chat the first message",
       .group = "Text"},
      {.name = "file",
       .spellings = "-f",
       .kind = Kind::text,
       .value_name = "FILE",
       .help = "read the prompt from a file, - for standard input; one newline at its end is "
               "left out",
       .group = "Text"},
      {.name = "n-predict",
       .spellings = "-n --predict",
       .kind = Kind::integer,
       .value_name = "N",
       .fallback = "-1",
       .help = "most tokens of a reply, -1 = until the context is full",
       .group = "Text",
       .minimum = -1,
       .maximum = kMaxCount},
      {.name = "reverse-prompt",
       .spellings = "-r",
       .kind = Kind::list,
       .value_name = "TEXT",
       .help = "end the reply before this text; may be given several times",
       .group = "Text"},
      {.name = "ignore-eos", .help = "go on where the model would end its reply", .group = "Text"},
  };
}

std::vector<Option> spelling_options() {
  return {
      {.name = "display-prompt",
       .fallback = "true",
       .help = "do not print the prompt before its completion",
       .group = "Text"},
      {.name = "escape",
       .spellings = "-e",
       .fallback = "true",
       .help = "take backslashes in -p, -sys and -r as they are, not \\n \\t \\\\ \\xHH as what "
               "they stand for",
       .group = "Text"},
      {.name = "special",
       .fallback = "true",
       .help = "read special tokens written in a prompt as plain text",
       .group = "Text"},
      {.name = "color",
       .spellings = "-co",
       .help = "colours, where standard output is a terminal; thinking is dimmed",
       .group = "Text"},
  };
}

std::vector<Option> chat_options() {
  return {
      {.name = "conversation",
       .spellings = "-cnv",
       .fallback = "auto",
       .help = "chat, or do not; without it there is a chat where there is no prompt and the "
               "model has a template",
       .group = "Chat",
       .negations = "-no-cnv"},
      {.name = "single-turn",
       .spellings = "-st",
       .help = "chat for one turn, then exit",
       .group = "Chat"},
      {.name = "system-prompt",
       .spellings = "-sys",
       .kind = Kind::text,
       .value_name = "TEXT",
       .help = "chat with this system prompt",
       .group = "Chat"},
      {.name = "multiline-input",
       .spellings = "-mli",
       .help = "a message goes on over several lines until one ends with a backslash",
       .group = "Chat"},
      {.name = "chat-template",
       .kind = Kind::text,
       .value_name = "NAME",
       .help = "use this template, not the one that the model brings",
       .group = "Chat"},
      {.name = "enable-thinking",
       .kind = Kind::text,
       .value_name = "on|off",
       .fallback = "on",
       .help = "let models that can think before they answer do so",
       .group = "Chat",
       .choices = {"on", "off"}},
  };
}

// "keep the N most probable tokens, 0 = all (model's, or 40)"
std::string knob_help(const SamplingKnob& knob) {
  const std::string own = number_text(knob_value(SamplingSettings{}, knob));
  return std::string(knob.help) + (knob.config_key.empty() ? " (" : " (model's, or ") + own + ")";
}

// Numbers that are not whole are checked with the model's, by choose_sampling.
Option knob_option(const SamplingKnob& knob) {
  Option option = {.name = knob_word(knob),
                   .kind = knob.is_whole() ? Kind::integer : Kind::real,
                   .value_name = std::string(knob.value_name),
                   .help = knob_help(knob),
                   .group = "Sampling"};
  if (!knob.short_name.empty()) option.spellings = "--" + std::string(knob.name);
  if (knob.is_whole()) {
    option.minimum = knob.least;
    option.maximum = knob.most;
  }
  return option;
}

std::vector<Option> sampling_options() {
  std::vector<Option> options = {{.name = "seed",
                                  .spellings = "-s",
                                  .kind = Kind::integer,
                                  .value_name = "N",
                                  .fallback = "-1",
                                  .help = "of the random numbers, -1 = a new one, which is printed",
                                  .group = "Sampling",
                                  .minimum = -1,
                                  .maximum = kMaxSeed}};
  for (const SamplingKnob& knob : kSamplingKnobs) options.push_back(knob_option(knob));
  return options;
}

GivenSampling read_sampling(const Options& options) {
  GivenSampling given;
  for (const SamplingKnob& knob : kSamplingKnobs) {
    const std::string name = knob_word(knob);
    if (!options.given(name)) continue;
    given[knob.name] = {
        knob.is_whole() ? static_cast<double>(options.integer(name)) : options.real(name),
        options.from_environment(name) ? SettingOrigin::environment : SettingOrigin::flag};
  }
  return given;
}

void read_text(const Options& options, RunArgs& args) {
  const auto text_of = [&](const std::string& text, std::string_view option) {
    std::string out = options.flag("escape") ? process_escapes(text) : text;
    check_utf8(out, option);
    return out;
  };
  require(!options.given("prompt") || !options.given("file"),
          "-p and -f both give a prompt: use one of them");
  if (options.given("prompt")) args.prompt = text_of(options.text("prompt"), "-p");
  if (options.given("file")) args.prompt_file = options.text("file");
  if (options.given("system-prompt")) args.system = text_of(options.text("system-prompt"), "-sys");
  for (const auto& stop : options.list("reverse-prompt")) {
    require(!stop.empty(), "-r: expected some text, found none");
    args.stop_strings.push_back(text_of(stop, "-r"));
  }
  args.max_tokens = options.integer("n-predict");
  args.ignore_eos = options.flag("ignore-eos");
  args.parse_special = options.flag("special");
  args.display_prompt = options.flag("display-prompt");
  args.color = options.flag("color");
  args.verbose = options.flag("verbose");
}

// -st and -sys mean nothing outside of a chat, so they start one.
Mode read_mode(const Options& options) {
  const bool chat_words = options.flag("single-turn") || options.given("system-prompt");
  if (!options.has("conversation")) return chat_words ? Mode::chat : Mode::automatic;
  const bool chat = options.flag("conversation");
  require(chat || !chat_words, "-no-cnv and ", options.flag("single-turn") ? "-st" : "-sys",
          " contradict each other: leave one out");
  return chat ? Mode::chat : Mode::completion;
}

}  // namespace

ToolSpec run_tool_spec() {
  ToolSpec spec;
  spec.name = "leq-run";
  spec.summary = "completes a text or chats with a model";
  spec.usage = {"-m model.leq -p \"Once upon a time\"", "-m model.leq -f prompt.txt -n 200",
                "-m model.leq                           (a chat)"};
  for (const auto& group : {model_options({"parallel"}), text_options(), spelling_options(),
                            chat_options(), sampling_options()}) {
    spec.options.insert(spec.options.end(), group.begin(), group.end());
  }
  return spec;
}

RunArgs read_args(const Options& options) {
  RunArgs args;
  args.model = options.text("model");
  args.mode = read_mode(options);
  read_text(options, args);
  args.single_turn = options.flag("single-turn");
  args.multi_line = options.flag("multiline-input");
  if (options.given("chat-template")) args.chat_template = options.text("chat-template");
  args.thinking = options.text("enable-thinking") == "on";
  args.sampling = read_sampling(options);
  const std::int64_t seed = options.integer("seed");
  if (seed >= 0) args.seed = static_cast<std::uint64_t>(seed);
  return args;
}

}  // namespace leq::run
