#include "tools/run/options.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "chat/chat_template.h"
#include "tools/common/llama_flags.h"
#include "tools/common/model_options.h"
#include "tools/common/pull.h"
#include "tools/common/typed_text.h"
#include "tools/run/history_file.h"
#include "tools/run/prompt.h"

namespace leq::run {
namespace {

using Kind = OptionKind;

std::vector<Option> prompt_options() {
  return {
      {.name = "prompt",
       .spellings = "-p",
       .kind = Kind::text,
       .value_name = "TEXT",
       .help = "a question, or with -cnv the first message; with --raw a text to complete"},
      {.name = "file",
       .spellings = "-f",
       .kind = Kind::text,
       .value_name = "FILE",
       .help = "read the prompt from a file, - for standard input, without one newline at its end"},
      {.name = "escape",
       .spellings = "-e",
       .fallback = "true",
       .help = "keep backslashes in -p, -sys and -r as written; otherwise \\n \\t \\\\ \\xHH are "
               "replaced by the characters that they stand for"},
      {.name = "special",
       .fallback = "true",
       .help = "treat special tokens written in a prompt as plain text"},
      {.name = "display-prompt",
       .fallback = "true",
       .help = "do not print the prompt before its completion"},
      {.name = "prompt-cache",
       .kind = Kind::text,
       .value_name = "FILE",
       .help = "keep the prompt's KV cache in FILE and skip the prefill of what FILE already "
               "contains; for completions, the reply is the same"},
      {.name = "prompt-cache-all",
       .help = "with --prompt-cache: save the reply's keys and values too"},
      {.name = "prompt-cache-ro", .help = "with --prompt-cache: do not write FILE"},
  };
}

std::vector<Option> generation_options() {
  return {
      {.name = "n-predict",
       .spellings = "-n --predict --num-predict",
       .kind = Kind::integer,
       .value_name = "N",
       .fallback = "-1",
       .help = "maximum tokens to generate, -1 = until the context is full",
       .minimum = -2,  // as in llama.cpp
       .maximum = kMaxCount},
      {.name = "reverse-prompt",
       .spellings = "-r",
       .kind = Kind::list,
       .value_name = "TEXT",
       .help = "stop before this text; may be given several times"},
      {.name = "ignore-eos", .help = "do not stop at the model's end-of-sequence token"},
      {.name = "color",
       .spellings = "-co",
       .fallback = "auto",
       .help = "use colors, where standard output is a terminal (default: in a chat); reasoning is "
               "dimmed, Markdown's bold and code are shown",
       .value_may_follow = true},
      {.name = "receipt",
       .kind = Kind::text,
       .value_name = "FILE",
       .help = "write all that the reply depends on, its tokens and digests of its logits to FILE; "
               "leq-inspect --check-receipt reproduces it on any processor; for completions"},
  };
}

constexpr std::uint64_t kMaxGrammarBytes = 4u << 20;
constexpr const char* kAnyObject = R"({"type": "object"})";

struct Source {
  std::string_view name;  // the option's name
  bool is_file = false;
  bool is_schema = false;
};
constexpr std::array<Source, 5> kSources = {{{"format", false, true},
                                             {"grammar", false, false},
                                             {"grammar-file", true, false},
                                             {"json-schema", false, true},
                                             {"json-schema-file", true, true}}};

std::shared_ptr<const Grammar> read_from(const Source& source, const Options& options) {
  if (source.name == "format") return json_grammar();
  const std::string& given = options.text(source.name);
  const std::string text = source.is_file ? read_file(given, kMaxGrammarBytes) : given;
  const std::string name = source.is_file ? given : "--" + std::string(source.name);
  return source.is_schema ? Grammar::from_json_schema(text, name) : Grammar::from_gbnf(text, name);
}

std::vector<Option> grammar_options() {
  return {
      {.name = "grammar",
       .kind = OptionKind::text,
       .value_name = "GBNF",
       .help = "constrain the reply to this grammar, in llama.cpp's notation"},
      {.name = "grammar-file",
       .kind = OptionKind::text,
       .value_name = "FILE",
       .help = "read the grammar from a file"},
      {.name = "json-schema",
       .spellings = "-j",
       .kind = OptionKind::text,
       .value_name = "SCHEMA",
       .help = "constrain the reply to JSON that matches this schema; {} for any JSON"},
      {.name = "json-schema-file",
       .spellings = "-jf",
       .kind = OptionKind::text,
       .value_name = "FILE",
       .help = "read the schema from a file"},
      {.name = "format",
       .kind = OptionKind::text,
       .value_name = "json",
       .help = "every reply is a JSON object, as with -j '{\"type\": \"object\"}'",
       .choices = {"json"}},
  };
}

std::shared_ptr<const Grammar> read_grammar(const Options& options) {
  const Source* chosen = nullptr;
  for (const Source& source : kSources) {
    if (!options.given(source.name)) continue;
    require(chosen == nullptr, "--", chosen == nullptr ? "" : chosen->name, " and --", source.name,
            " contradict each other: leave one out");
    chosen = &source;
  }
  return chosen == nullptr ? nullptr : read_from(*chosen, options);
}

std::vector<Option> chat_options() {
  const auto names = ChatTemplate::names();
  return {
      {.name = "conversation",
       .spellings = "-cnv",
       .fallback = "auto",
       .help =
           "chat on after the prompt's answer; --raw: complete the prompt as it stands (default: "
           "a prompt is answered if the model has a chat template, otherwise completed)",
       .negations = "-no-cnv --raw"},
      {.name = "single-turn", .spellings = "-st", .help = "chat for one turn, then exit"},
      {.name = "system-prompt",
       .spellings = "-sys",
       .kind = Kind::text,
       .value_name = "TEXT",
       .help = "system prompt of the question or the chat"},
      {.name = "system-prompt-file",
       .spellings = "-sysf",
       .kind = Kind::text,
       .value_name = "FILE",
       .help = "read the system prompt from a file, without one newline at its end"},
      {.name = "chat",
       .kind = Kind::text,
       .value_name = "NAME",
       .help = "go on with the chat of this name and its settings; it is saved after every turn "
               "in ~/.local/state/leq/chats"},
      {.name = "multiline-input",
       .spellings = "-mli",
       .help = "allow messages of several lines: a message ends at a line that ends with a "
               "backslash"},
      {.name = "wordwrap",
       .fallback = "true",
       .help = "do not wrap words at the terminal's width",
       .negations = "--nowordwrap"},
      {.name = "chat-template",
       .kind = Kind::text,
       .value_name = "NAME",
       .help = "use this template instead of the model's own",
       .suggestions = {names.begin(), names.end()}},
      {.name = "enable-thinking",
       .kind = Kind::text,
       .value_name = "on|off",
       .fallback = "on",
       .help = "reasoning before the answer, for models that support it",
       .choices = {"on", "off"}},
  };
}

std::vector<Option> many_options() {
  return {
      {.name = "output",
       .spellings = "-o",
       .kind = Kind::text,
       .value_name = "FORMAT",
       .fallback = "text",
       .help = "with -np and -f: how replies are printed; jsonl = one JSON object per line",
       .choices = {"text", "jsonl"}},
  };
}

std::vector<Option> list_options() {
  return {
      {.name = "dry-sequence-breaker",
       .kind = Kind::list,
       .value_name = "TEXT",
       .help = "DRY: a repeated sequence ends at TEXT; may be given several times and replaces the "
               "default breakers (newline, colon, quotation mark, asterisk); none = no breakers"},
      {.name = "logit-bias",
       .spellings = "-l",
       .kind = Kind::list,
       .value_name = "ID+BIAS",
       .help = "add to a token's logit, as 15043+1, or 29905-inf for never; may be given several "
               "times"},
  };
}

// Processes escapes if they are enabled, and checks that the text is valid UTF-8.
std::string text_of(const Options& options, const std::string& text, std::string_view option) {
  std::string out = options.flag("escape") ? process_escapes(text) : text;
  check_utf8(out, option);
  return out;
}

// NO_COLOR as defined by no-color.org: the flag overrides it, LEQ_ARG_COLOR does not.
bool asks_for_no_color() {
  const char* value = std::getenv("NO_COLOR");
  return value != nullptr && *value != '\0';
}

// "none" in a list, alone or with others, is ignored, as in llama.cpp.
void read_lists(const Options& options, RunArgs& args) {
  for (const auto& bias : options.list("logit-bias")) {
    args.logit_bias.push_back(parse_logit_bias(bias));
  }
  if (!options.given("dry-sequence-breaker")) return;
  args.dry_breakers.emplace();
  for (const auto& text : options.list("dry-sequence-breaker")) {
    if (text == "none") {
      args.dry_breakers->clear();
    } else {
      args.dry_breakers->push_back(text_of(options, text, "--dry-sequence-breaker"));
    }
  }
}

void read_text(const Options& options, RunArgs& args) {
  require(!options.given("prompt") || !options.given("file"),
          "-p and -f both give a prompt: use one of them");
  if (options.given("prompt")) args.prompt = text_of(options, options.text("prompt"), "-p");
  if (options.given("file")) args.prompt_file = options.text("file");
  if (const auto& words = options.positionals(); !words.empty()) {
    if (words.size() > 1) {
      fail("found ", words.size(), " words without a flag ('", printable(words[0]), "', '",
           printable(words[1]), "' ...): a prompt of several words stands in quotation marks");
    }
    require(!args.prompt && !args.prompt_file, "'", printable(words[0]),
            "' is a prompt beside that of ", args.prompt ? "-p" : "-f", ": use one of them");
    args.prompt = text_of(options, words[0], "the prompt");
    args.joins_pipe = true;
  }
  require(!options.given("system-prompt") || !options.given("system-prompt-file"),
          "-sys and -sysf both give a system prompt: use one of them");
  if (options.given("system-prompt")) {
    args.system = text_of(options, options.text("system-prompt"), "-sys");
  }
  if (options.given("system-prompt-file")) {
    args.system = read_prompt_text(options.text("system-prompt-file"));
  }
  for (const auto& stop : options.list("reverse-prompt")) {
    require(!stop.empty(), "-r: expected some text, found none");
    args.stop_strings.push_back(text_of(options, stop, "-r"));
  }
  args.max_tokens = std::max<std::int64_t>(options.integer("n-predict"), -1);
  args.ignore_eos = options.flag("ignore-eos");
  args.parse_special = options.flag("special");
  args.display_prompt = options.flag("display-prompt");
  if (options.has("color")) {
    args.color =
        options.flag("color") && !(options.from_environment("color") && asks_for_no_color());
  }
  args.verbose = options.flag("verbose");
}

// The flag that makes sense in a chat alone, so that it selects chat mode; empty if there is none.
std::string_view chat_flag(const Options& options) {
  if (options.flag("single-turn")) return "-st";
  if (options.given("system-prompt")) return "-sys";
  if (options.given("system-prompt-file")) return "-sysf";
  return options.given("chat") ? "--chat" : "";
}

bool takes_many(const Options& options) {
  return options.text("output") == "jsonl" || options.integer("parallel") > 1;
}

Mode read_mode(const Options& options) {
  const std::string_view chats = chat_flag(options);
  if (!options.has("conversation")) {
    return !chats.empty()           ? Mode::chat
           : is_completion(options) ? Mode::completion
                                    : Mode::automatic;
  }
  const bool chat = options.flag("conversation");
  require(chat || chats.empty(), "--raw (-no-cnv) and ", chats,
          " contradict each other: leave one out");
  return chat ? Mode::chat : Mode::completion;
}

}  // namespace

std::shared_ptr<const Grammar> json_grammar() {
  return Grammar::from_json_schema(kAnyObject, "format json");
}

ToolSpec run_tool_spec() {
  ToolSpec spec;
  spec.name = "leq-run";
  spec.summary = "answers questions, chats, and completes texts";
  spec.foreign = llama_flags();
  spec.max_positionals = std::numeric_limits<std::size_t>::max();  // rejected later, with advice
  spec.usage = {"MODEL                                  (a chat)", "MODEL \"Why is the sky blue?\"",
                "MODEL --raw \"Once upon a time\"       (completes)",
                "-m model.leq -f prompt.txt -n 200"};
  spec.advice = std::string(kModelNames);
  spec.statuses = "2 if -n or -c cut a reply before the end that its grammar or schema demands";
  add_options(spec, model_options());
  for (Option& option : spec.options) {
    if (option.name == "ctx-size") option.spellings += " --num-ctx";  // one sequence has all of it
  }
  add_options(spec, hub_options());
  add_options(spec, in_group("Prompt", prompt_options()));
  add_options(spec, in_group("Generation", generation_options()));
  add_options(spec, in_group("Grammar", grammar_options()));
  add_options(spec, in_group("Chat", chat_options()));
  add_options(spec, in_group("Many prompts", many_options()));
  add_options(spec, speculation_options("Speculative decoding"));
  add_options(spec, sampling_options());
  add_options(spec, in_group("Sampling", list_options()));
  return spec;
}

bool is_completion(const Options& options) {
  if (options.has("conversation")) return !options.flag("conversation");
  return options.given("receipt") || options.given("prompt-cache") || takes_many(options);
}

RunArgs read_args(const Options& options) {
  RunArgs args;
  args.model = options.text("model");
  args.mode = read_mode(options);
  read_text(options, args);
  args.single_turn = options.flag("single-turn");
  args.chats_on = options.given("conversation") || options.given("chat");
  args.multi_line = options.flag("multiline-input");
  if (options.given("chat")) {
    args.chat_name = options.text("chat");
    (void)named_chat_path(*args.chat_name);  // checked before the model is loaded
  }
  if (options.given("chat-template")) {
    args.chat_template = options.text("chat-template");
    (void)ChatTemplate::by_name(args.chat_template);  // checked even if there is no chat
  }
  args.thinking = options.text("enable-thinking") == "on";
  args.grammar = read_grammar(options);
  args.json = options.given("format");
  args.wrap = options.flag("wordwrap");
  args.context = options.integer("ctx-size");
  args.jsonl = options.text("output") == "jsonl";
  args.many = takes_many(options);
  args.max_draft_tokens = options.integer("draft-max");
  const std::string& speculate = options.text("speculate");
  args.speculate = speculates(options);
  args.find_drafts = finds_drafts(options);
  if (options.given("model-draft")) {
    require(speculate == "auto", "-md and --speculate ", speculate,
            " contradict each other: leave one out");
    if (args.speculate) args.draft_model = options.text("model-draft");
  }
  require(!args.many || args.prompt_file, options.given("parallel") ? "-np" : "-o jsonl",
          ": is for many prompts at once, one in each line of -f FILE (- for standard input)");
  require(!args.many || !args.prompt,
          "-np and -o jsonl read prompts from -f FILE: leave out the other one");
  const std::string_view chats = chat_flag(options);
  require(!args.many || args.mode != Mode::chat, options.given("parallel") ? "-np" : "-o jsonl",
          " and ", chats.empty() ? "-cnv" : chats, " contradict each other: leave one out");
  if (options.given("prompt-cache")) {
    args.prompt_cache = {options.text("prompt-cache"), options.flag("prompt-cache-all"),
                         options.flag("prompt-cache-ro")};
  }
  for (const char* flag : {"prompt-cache-all", "prompt-cache-ro"}) {
    require(args.prompt_cache || !options.flag(flag), "--", flag, ": needs --prompt-cache FILE");
  }
  require(!args.prompt_cache || (!args.many && args.mode != Mode::chat),
          "--prompt-cache: keeps the prompt of one completion; leave out ",
          args.many ? "-np" : "-cnv, -st and -sys", " (in a chat /save FILE keeps a conversation)");
  if (options.given("receipt")) args.receipt = options.text("receipt");
  require(!args.receipt || (!args.many && args.mode != Mode::chat),
          "--receipt: works with a single completion only; leave out ",
          args.many ? "-np" : "-cnv, -st and -sys");
  require(!args.receipt || args.grammar == nullptr,
          "--receipt: holds no grammar, without which the reply cannot be written again; leave out "
          "one of the two");
  args.sampling = read_sampling(options);
  read_lists(options, args);
  const std::int64_t seed = options.integer("seed");
  if (seed >= 0) args.seed = static_cast<std::uint64_t>(seed);
  return args;
}

}  // namespace leq::run
