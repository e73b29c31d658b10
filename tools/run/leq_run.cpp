// leq-run: completes a text or chats with a model.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "base/version.h"
#include "engine/generator.h"
#include "engine/receipt.h"
#include "grammar/matcher.h"
#include "model/ranks.h"
#include "runtime/runtime.h"
#include "tools/common/interrupt.h"
#include "tools/common/mains.h"
#include "tools/common/model_file.h"
#include "tools/common/model_name.h"
#include "tools/common/model_options.h"
#include "tools/common/model_setup.h"
#include "tools/common/modelfile.h"
#include "tools/common/setting_flags.h"
#include "tools/common/typed_text.h"
#include "tools/run/chat.h"
#include "tools/run/history_file.h"
#include "tools/run/many.h"
#include "tools/run/options.h"
#include "tools/run/output.h"
#include "tools/run/prompt.h"
#include "tools/run/report.h"

#include <sys/stat.h>
#include <unistd.h>

namespace leq::run {
namespace {

constexpr int kCutStatus = 2;  // the reply is no whole text of its grammar

std::uint64_t random_seed() {
  std::random_device device;
  return device();  // 32 bits: easy to retype
}

// Whether standard input is a file or a pipe, which end, in contrast to a terminal or a socket.
bool is_piped() {
  struct stat input = {};
  return fstat(STDIN_FILENO, &input) == 0 && (S_ISFIFO(input.st_mode) || S_ISREG(input.st_mode));
}

std::optional<std::string> given_prompt(const RunArgs& args) {
  if (args.joins_pipe && is_piped()) {  // a question about the text in the pipe
    std::string text = read_standard_input();
    check_utf8(text, "standard input");
    while (text.ends_with('\n')) text.pop_back();
    return text.empty() ? *args.prompt : text + '\n' + *args.prompt;
  }
  if (args.prompt) return args.prompt;
  if (args.prompt_file) return read_prompt_text(*args.prompt_file);
  // Piped input is the prompt, except in a chat, where its lines are messages.
  if (args.mode != Mode::chat && isatty(STDIN_FILENO) == 0) return read_prompt_from_stdin();
  return std::nullopt;
}

bool wants_chat(const RunArgs& args, const Model& model) {
  if (args.mode != Mode::automatic) return args.mode == Mode::chat;
  return !model.chat_template().empty() || !args.chat_template.empty();
}

ChatTemplate chat_template_of(const RunArgs& args, const Model& model) {
  if (!args.chat_template.empty()) return ChatTemplate::by_name(args.chat_template);
  if (model.chat_template().empty()) {
    const auto known = ChatTemplate::names();
    const std::vector<std::string> names(known.begin(), known.end());
    fail(model.file().name(), ": the model has no chat template: name one with --chat-template (",
         join(names), "), or give a prompt with -p");
  }
  return ChatTemplate::of_model(model.chat_template(), model.file().name());
}

// The stop rules of the reply and the banned ids, from the options about the end of a text.
struct Ending {
  StopRules stop;
  std::vector<Token> banned;
};

Ending ending_for(const RunArgs& args, const Model& model, const ChatTemplate* format) {
  Ending ending;
  ending.stop.end_tokens = model.end_tokens();
  ending.stop.strings = args.stop_strings;
  ending.stop.max_tokens = args.max_tokens;
  if (args.ignore_eos) {
    if (format != nullptr) format->add_stops(model.tokenizer(), ending.stop);
    ending.banned = ending.stop.end_tokens;
  }
  return ending;
}

// A run with all its settings.
struct Run {
  const RunArgs& args;
  const Runtime& setup;
  const SamplingChoice& sampling;
  Generator& generator;
  const Ending& ending;

  const Model& model() const { return *setup.model; }
};

// Called after the last check, so that an error is printed without this text.
void report_start(const RunArgs& args, const Runtime& setup, const SamplingChoice& sampling) {
  if (args.plain) {
    if (!setup.note.empty()) note(with_flags(setup.note));
    return;
  }
  note(model_line(*setup.model));
  if (setup.draft_model) note("draft " + model_line(*setup.draft_model));
  if (!setup.note.empty()) note(with_flags(setup.note));
  if (args.verbose) {
    for (const auto& line : plan_lines(*setup.model, *setup.session)) note(line);
  }
  std::string settings = join(sampling.notes);
  for (const LogitBias& bias : args.logit_bias) {
    settings += ", logit-bias " + logit_bias_text(bias) + " (flag)";
  }
  if (sampling.settings.temperature > 0) {
    settings += ", seed " + std::to_string(sampling.settings.seed) + " (" +
                (args.seed ? std::string(origin_name(args.seed_origin)) : "random") + ")";
  }
  note("settings: " + settings);
}

void report_end(const Run& run, const RunTotals& totals) {
  if (!run.args.plain && !totals.empty()) note(totals.line());
  for (const auto& line : online_lines(*run.setup.session)) note(line);
  if (const Error* error = run.generator.draft_error()) note(draft_error_line(*error));
  for (const auto& line : unrecorded_lines(*run.setup.backend)) note(line);
  if (!run.args.verbose) return;
  for (const auto& line : step_lines(*run.setup.backend)) note(line);
  for (const auto& line : ahead_lines(run.generator.counts())) note(line);
  for (const auto& line : draft_lines(run.generator.counts())) note(line);
}

void explain_stop(const Run& run, const FinishedReply& reply, bool has_text) {
  if (reply.stopped == StopReason::context_full) {
    note("stopped: the context of " + with_commas(run.generator.context()) + " positions is full" +
         context_advice(run.generator));
  }
  if (reply.stopped == StopReason::end_token && !has_text && !run.model().chat_template().empty()) {
    note("the model ended its reply at once: it is made for chats; ask it without --raw");
  }
}

// Not 0 if the reply was interrupted, or cut before the end of the text that the grammar demands.
int status_of(const Run& run, const FinishedReply& reply) {
  if (reply.stopped == StopReason::interrupted) return kInterruptedStatus;
  const bool is_cut =
      reply.stopped == StopReason::token_limit || reply.stopped == StopReason::context_full;
  if (run.args.grammar == nullptr || !is_cut) return 0;
  const Tokenizer& tokenizer = run.model().tokenizer();
  GrammarMatcher matcher(
      run.args.grammar,
      make_token_trie(tokenizer, static_cast<std::size_t>(run.model().config().vocab)));
  GrammarState state = matcher.start();
  for (const Token token : reply.tokens) {
    if (state != kOutOfGrammar) state = matcher.after(state, token);
  }
  if (state == kOutOfGrammar || matcher.may_end(state)) return 0;
  note("the reply is cut after " + with_commas(std::ssize(reply.tokens)) +
       " tokens, before the end that the " + (run.args.json ? "JSON" : "grammar or schema") +
       " demands; -n and -c set the limits");
  return kCutStatus;
}

std::vector<Token> encode_prompt(const Run& run, const std::string& prompt) {
  const Tokenizer& tokenizer = run.model().tokenizer();
  std::vector<Token> ids = tokenizer.encode(
      prompt, {.parse_special = run.args.parse_special, .add_bos = tokenizer.add_bos()});
  require(!ids.empty(),
          prompt.empty() ? "the prompt is empty, and this model's tokenizer adds nothing to it"
                         : "this model's tokenizer makes no tokens of the prompt",
          ": give some other text with -p");
  run.generator.check_prompt(ids);
  return ids;
}

// Makes the checks that are possible before the run.
void check_receipt_output(const Run& run) {
  require(run.setup.session->transformer().online().empty(),
          "--receipt: this model's activations remember how a prompt was fed (act online), so that "
          "its replies cannot be written again; quantize it with --act row");
  check_output(*run.args.receipt);
  std::vector<std::filesystem::path> others = {run.args.model};
  if (run.args.prompt_file) others.push_back(*run.args.prompt_file);
  if (run.args.draft_model) others.push_back(*run.args.draft_model);
  if (run.args.prompt_cache) others.push_back(run.args.prompt_cache->path);
  require_no_input(*run.args.receipt, others);
}

Receipt receipt_of(const Run& run, std::span<const Token> prompt, const FinishedReply& reply,
                   const std::vector<std::uint64_t>& digests) {
  return {.model = run.args.model.filename().string(),
          .version = kVersion,
          .owner = {run.model().file().fingerprint(), run.setup.session->limits().key_type,
                    run.setup.session->limits().value_type},
          .kv_sinks = run.setup.session->limits().kv_sinks,
          .kv_recent = run.setup.session->limits().kv_recent,
          .kv_layers = run.setup.session->limits().kv_layers,
          .prompt = {prompt.begin(), prompt.end()},
          .sampling = run.generator.sampling(),
          .banned = run.ending.banned,
          .end_tokens = run.ending.stop.end_tokens,
          .tokens = reply.tokens,
          .ended = reply.stopped == StopReason::end_token,
          .digests = digests};
}

int complete(const Run& run, const std::string& prompt) {
  const std::vector<Token> ids = encode_prompt(run, prompt);
  if (run.args.receipt) check_receipt_output(run);
  const std::optional<PromptCacheFile>& cache = run.args.prompt_cache;
  const PrefixOwner owner = prefix_owner(run.model(), *run.setup.session);
  const std::int64_t known = cache ? load_prompt_cache(*cache, owner, run.generator, ids) : 0;
  report_start(run.args, run.setup, run.sampling);
  if (ids.size() > 1 && ids[0] == run.model().tokenizer().bos() && ids[1] == ids[0]) {
    note("the prompt begins with the token that is put in front anyway: it is there twice now");
  }
  ReplyPrinter printer(choose_colors(run.args.color.value_or(false)), false);
  if (run.args.display_prompt) printer.prompt(prompt);
  const InterruptScope scope;
  EngineRequest request;
  request.prompt = ids;
  request.stop = run.ending.stop;
  request.grammar = run.args.grammar;
  request.on_prompt = [&](std::int64_t fed, std::int64_t all) { printer.feeding(fed, all); };
  bool has_text = false;
  request.on_text = [&](std::string_view text) {
    has_text = has_text || !trim(text).empty();
    printer.reply(text);
  };
  LogitDigests digests;
  if (run.args.receipt) {
    request.on_logits = [&](std::span<const Token> taken, std::span<const float> logits) {
      digests.add(taken.size(), logits);
    };
  }
  const FinishedReply reply = run.generator.generate(request, &scope.flag());
  printer.finish();
  if (run.args.receipt) {
    write_receipt(*run.args.receipt, receipt_of(run, ids, reply, digests.values()));
  }
  if (cache) {
    std::vector<Token> tokens = ids;
    if (cache->with_reply) tokens.insert(tokens.end(), reply.tokens.begin(), reply.tokens.end());
    save_prompt_cache(*cache, owner, run.generator, tokens, known);
  }
  explain_stop(run, reply, has_text);
  RunTotals totals;
  totals.add(reply);
  report_end(run, totals);
  return status_of(run, reply);
}

// How a run ended.
struct Ended {
  int status = 0;
  std::optional<ChatFile> chat = {};  // to be reopened with another context
};

Ended chat(const Run& run, const ChatTemplate& format, std::optional<std::string> first,
           const std::optional<ChatFile>& saved, ChatView& view) {
  const RunArgs& args = run.args;
  ChatSessionOptions options;
  options.rendering = chat_options(run.model().tokenizer());
  options.rendering.enable_thinking = args.thinking;
  options.stop = run.ending.stop;
  options.grammar = args.grammar;
  if (args.chat_template.empty()) options.style = reply_style(run.model().chat_template());
  const Colors colors = choose_colors(args.color.value_or(allows_colors()));
  ReplyPrinter printer(colors, true);
  options.on_left_out = [&](std::size_t messages) {
    printer.finish();
    note("the context of " + with_commas(run.generator.context()) +
         " positions is full: the first " + std::to_string(messages) +
         " messages are left out from here on" + context_advice(run.generator));
  };
  options.on_prompt = [&](std::int64_t fed, std::int64_t all) { printer.feeding(fed, all); };
  std::filesystem::path saved_as;
  if (args.chat_name) saved_as = named_chat_path(*args.chat_name);
  ChatSession session(run.generator, run.model().tokenizer(), format, options);
  if (saved) session.restore(saved->chat);
  if (args.system) session.set_system(*args.system);
  if (args.greets) report_start(args, run.setup, run.sampling);
  if (!args.greets) tell("the context has " + with_commas(run.generator.context()) + " tokens");
  if (saved && args.greets) {
    const bool same = saved->model == args.model.filename().string();
    note("the chat " + *args.chat_name + " goes on after " +
         std::to_string(session.state().messages.size()) + " messages" +
         (same ? "" : " (written with " + saved->model + ")") + "; /clear begins anew");
  }
  RunTotals totals;
  ChatLoop loop(session, run.generator, printer, totals, view,
                {.first_message = std::move(first),
                 .single_turn = args.single_turn,
                 .plain = args.plain,
                 .greets = args.greets,
                 .multi_line = args.multi_line,
                 .colored = colors == Colors::on,
                 .fixed_context = run.setup.session->ranks() > 1,
                 .model = args.model,
                 .model_name = args.model_name,
                 .model_line = model_line(run.model()),
                 .chat_template = run.model().chat_template(),
                 .template_name = std::string(format.name()),
                 .saved_as = saved_as,
                 .settings = {.max_tokens = args.max_tokens,
                              .stop = args.stop_strings,
                              .thinking = args.thinking,
                              .json = args.json,
                              .context = args.context}});
  std::optional<ChatFile> again = loop.run();
  if (!again) report_end(run, totals);
  return {args.single_turn ? status_of(run, totals.last()) : 0, std::move(again)};
}

// Sets what a saved chat was left with, but sampling, except where `given` says that the command
// line has it.
void take_settings(const ChatSettings& saved, RunArgs& args,
                   const std::function<bool(const char*)>& given) {
  const SamplingSettings& sampling = saved.sampling;
  if (!given("seed")) {
    args.seed = sampling.seed;
    args.seed_origin = SettingOrigin::chat;
  }
  if (!given("logit-bias")) args.logit_bias = sampling.logit_bias;
  if (!given("dry-sequence-breaker")) args.dry_breakers = sampling.dry_breakers;
  if (!given("n-predict")) args.max_tokens = saved.max_tokens;
  if (!given("reverse-prompt")) args.stop_strings = saved.stop;
  if (!given("enable-thinking")) args.thinking = saved.thinking;
  if (!given("ctx-size")) args.context = saved.context;
  if (saved.json == args.json) return;
  args.json = saved.json;
  args.grammar = saved.json ? json_grammar() : nullptr;
}

// The sampling settings; those of a saved chat where nothing is given and the model's differ.
SamplingChoice sampling_of(const RunArgs& args, const Model& model,
                           const std::optional<ChatFile>& saved) {
  const PerParameter<double>& own = model.generation().sampling;
  SamplingChoice choice = choose_sampling(args.sampling, own);
  if (saved) {
    const SamplingSettings& kept = saved->settings.sampling;
    GivenSampling given = args.sampling;
    for (const SamplingParameter& parameter : kSamplingParameters) {
      const double value = parameter_value(kept, parameter);
      if (given[parameter.name] || value == parameter_value(choice.settings, parameter)) continue;
      given[parameter.name] = {value, SettingOrigin::chat};
    }
    choice = choose_sampling(given, own);
    choice.settings.penalties_when_greedy |= kept.penalties_when_greedy;
  }
  choice.settings.seed = args.seed ? *args.seed : random_seed();
  choice.settings.logit_bias = args.logit_bias;
  if (args.dry_breakers) choice.settings.dry_breakers = *args.dry_breakers;
  return choice;
}

ToolSpec tool_spec() {
  ToolSpec spec = run_tool_spec();
  spec.answers.push_back(list_devices_answer());
  return spec;
}

void set_limits(const Options& options, const RunArgs& args, const Model& model,
                RunLimits& limits) {
  limits.context = args.context;
  limits.sequences = static_cast<int>(options.integer("parallel"));
  if (limits.sequences > 1) limits.sequence_context = std::numeric_limits<std::int64_t>::max();
  const Drafting drafting = !args.speculate ? Drafting::off
                            : args.draft_model || drafts_by_mtp(options, model)
                                ? Drafting::by_model
                                : Drafting::from_text;
  limits.output_tokens = reply_rows(limits.sequences, drafting);
}

// Runs an opened model once, or until a chat asks for another context.
Ended run_opened(const RunArgs& args, const Runtime& setup,
                 const std::optional<std::string>& prompt, const std::optional<ChatFile>& saved,
                 ChatView& view) {
  const Model& model = *setup.model;
  (void)model.tokenizer();  // throws an error with advice
  const bool chats = !args.many && wants_chat(args, model);
  require(chats || prompt || args.many, "no prompt: give one with -p TEXT or -f FILE",
          model.chat_template().empty() ? " (this model has no chat template, so there is no chat)"
                                        : "");
  std::optional<ChatTemplate> format;
  if (chats) format = chat_template_of(args, model);
  const SamplingChoice choice = sampling_of(args, model, saved);
  const Ending ending = ending_for(args, model, format ? &*format : nullptr);
  const EngineOptions engine = {.speculate = args.speculate,
                                .find_drafts = args.find_drafts,
                                .draft = setup.draft_session.get(),
                                .max_draft_tokens = args.max_draft_tokens};
  if (args.many) {
    const SharedRequest shared = {choice.settings, ending.banned, ending.stop, args.grammar};
    return {complete_many(args, model, *setup.session, shared, engine,
                          [&] { report_start(args, setup, choice); })};
  }
  Generator generator(*setup.session, model.tokenizer(),
                      {.sampling = choice.settings, .banned = ending.banned, .engine = engine});
  generator.check_grammar(args.grammar);
  const Run run = {args, setup, choice, generator, ending};
  if (!format) return {complete(run, *prompt)};
  return chat(run, *format, prompt, saved, view);
}

// `typed` lacks what a name of `leq create` sets: a saved chat wins over it, and it is the model's
// own where settings are printed.
int run_with(Options options, const Options& typed, const std::string& name) {
  if (is_completion(typed) && options.given("system-prompt") && !typed.given("system-prompt")) {
    options.clear("system-prompt");
    note(printable(typed.given("model") ? typed.text("model") : name) +
         ": without its system prompt, which a completion does not have");
  }
  RunArgs args = read_args(options);
  args.model_name = name;
  check_model_file("-m", options.text("model"));  // before reading a prompt
  const std::optional<std::string> prompt = args.many ? std::nullopt : given_prompt(args);
  watch_interrupts(choose_colors(args.color.value_or(allows_colors())) == Colors::on ? kColorsOff
                                                                                     : "");
  if (prompt && !args.chats_on) args.single_turn = true;
  args.plain = prompt && args.mode != Mode::completion && !args.chats_on && !args.verbose;
  std::optional<ChatFile> saved;
  if (args.chat_name && file_exists(named_chat_path(*args.chat_name))) {
    saved = load_chat(named_chat_path(*args.chat_name));
    ChatSettings kept = saved->settings;
    if (args.grammar != nullptr) kept.json = args.json;
    take_settings(kept, args, [&](const char* flag) { return typed.given(flag); });
    if (!typed.given("system-prompt") && options.given("system-prompt")) args.system.reset();
  }
  for (const SamplingParameter& parameter : kSamplingParameters) {
    auto& given = args.sampling[parameter.name];
    if (!given || typed.given(parameter_word(parameter))) continue;
    given->origin = SettingOrigin::model;
    if (saved) given.reset();
  }
  if (typed.from_environment("seed")) args.seed_origin = SettingOrigin::environment;
  if (!typed.given("seed") && options.given("seed") && !saved) {
    args.seed_origin = SettingOrigin::model;
  }
  ChatView view = {.verbose = args.verbose,
                   .wrap = args.wrap,
                   .own_seed = args.seed && args.seed_origin != SettingOrigin::chat};
  const auto open = [&] {
    return set_up_model(
        options,
        [&](const Model& model, RunLimits& limits) { set_limits(options, args, model, limits); },
        args.draft_model);
  };
  std::optional<Runtime> setup = open();
  Ended ended = run_opened(args, *setup, prompt, saved, view);
  while (ended.chat) {
    const std::int64_t before = args.context;
    saved = std::move(ended.chat);
    args.sampling = {};
    args.system.reset();
    args.greets = false;
    take_settings(saved->settings, args, [](const char*) { return false; });
    setup.reset();  // its memory is free before more is asked for
    try {
      setup = open();
    } catch (const Error& error) {
      if (isatty(STDIN_FILENO) == 0) throw;
      std::fprintf(stderr, "leq-run: error: %s\n",
                   printable(with_flags(error), std::string::npos).c_str());
      args.context = before;
      setup = open();
    }
    ended = run_opened(args, *setup, std::nullopt, saved, view);
  }
  return ended.status;
}

// Throws Error if the name is that of a saved chat and of no model.
void refuse_chat(const std::string& name) {
  if (!is_chat_name(name) || !file_exists(named_chat_path(name)) || file_exists(name)) return;
  if (find_created(name) || find_kept(name) || parse_hub_name(name)) return;
  const std::string model = load_chat(named_chat_path(name)).model;
  fail("'", name, "': a chat, and no model: go on with `leq run MODEL --chat ", name, "`",
       model.empty() ? "" : " (it was written with " + printable(model) + ")");
}

}  // namespace
}  // namespace leq::run

const leq::Tool leq::kRun = {
    "leq-run", leq::run::tool_spec, [](const leq::Options& options) {
      const std::string name = !options.given("model") && !options.positionals().empty()
                                   ? options.positionals().front()
                                   : std::string();
      leq::run::refuse_chat(name);
      return leq::with_model_files(options, [&](const leq::Options& resolved) {
        return leq::run::run_with(resolved, options, name.empty() ? resolved.text("model") : name);
      });
    }};
