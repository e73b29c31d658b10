#include "tools/run/many.h"

#include <unistd.h>

#include <iostream>
#include <map>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/progress.h"
#include "base/text.h"
#include "tools/common/interrupt.h"
#include "tools/common/setting_flags.h"
#include "tools/run/output.h"
#include "tools/run/prompt.h"
#include "tools/run/report.h"
#include "tools/run/screen_text.h"

namespace leq::run {
namespace {

struct Prompt {
  std::string text;
  std::string where;  // "prompts.txt:3"
  std::vector<Token> ids;
};

// A line is a prompt; a line that begins with a brace is a JSON object with the key "prompt", as in
// JSONL files, which allows prompts of several lines.
std::string prompt_of(std::string_view line, const std::string& where) {
  if (!line.starts_with('{')) return std::string(line);
  const Json object = parse_json(line, where);
  require(object.is_object() && object.contains("prompt") && object.at("prompt").is_string(), where,
          ": expected {\"prompt\": \"...\"} or a line of plain text");
  return object.at("prompt").text();
}

std::vector<Prompt> read_prompts(const RunArgs& args, const Tokenizer& tokenizer) {
  const std::string all = read_prompt_text(*args.prompt_file);
  const std::string name =
      *args.prompt_file == "-" ? "standard input" : printable(args.prompt_file->string());
  std::vector<Prompt> prompts;
  std::int64_t number = 0;
  for (const std::string_view line : split(all, "\n")) {
    ++number;
    if (trim(line).empty()) continue;
    Prompt prompt;
    prompt.where = name + ":" + std::to_string(number);
    prompt.text = prompt_of(line, prompt.where);
    prompt.ids = tokenizer.encode(
        prompt.text, {.parse_special = args.parse_special, .add_bos = tokenizer.add_bos()});
    prompts.push_back(std::move(prompt));
  }
  require(!prompts.empty(), name, ": expected a prompt in each line, found none");
  return prompts;
}

std::string json_line(std::size_t index, const Prompt& prompt, const EngineReply& reply) {
  Json line = {{"index", static_cast<std::int64_t>(index)},
               {"prompt", prompt.text},
               {"text", reply.text},
               {"stop", std::string(stop_name(reply.stopped))},
               {"prompt_tokens", std::ssize(prompt.ids)},
               {"cached_tokens", reply.cached_tokens},
               {"tokens", std::ssize(reply.tokens)},
               {"first_token_seconds", reply.first_token_seconds},
               {"prompt_tokens_per_second", reply.prompt_tokens_per_second()},
               {"tokens_per_second", reply.reply_tokens_per_second()}};
  if (reply.error) line["error"] = with_flags(reply.error->marked());
  return line.dump_any() + "\n";
}

// Prints replies in the order of their prompts, whatever order they end in.
class InOrder {
 public:
  InOrder(const RunArgs& args, const std::vector<Prompt>& prompts)
      : args_(args), prompts_(prompts), progress_("replies", std::ssize(prompts), "prompts") {
    if (on_terminal_) use_utf8_characters();
  }

  void add(std::size_t index, const EngineReply& reply) {
    ++ended_;
    progress_.clear();
    texts_[index] = text_of(index, reply);
    for (auto next = texts_.find(printed_); next != texts_.end(); next = texts_.find(printed_)) {
      std::cout << next->second << std::flush;
      require(std::cout.good(), ErrorKind::io, "standard output cannot be written");
      texts_.erase(next);
      ++printed_;
    }
  }

  void show_progress() { progress_.update(ended_); }
  void end_progress() { progress_.clear(); }

 private:
  std::string text_of(std::size_t index, const EngineReply& reply) const {
    const Prompt& prompt = prompts_[index];
    if (args_.jsonl) return json_line(index, prompt, reply);
    const std::string before = index > 0 ? "\n" : "";
    const std::string failed =
        reply.error ? " [" + with_flags(reply.error->marked()) + "]" : std::string();
    const std::string text = (args_.display_prompt ? prompt.text : "") + reply.text + failed;
    return before + (on_terminal_ ? plain_screen_text(text) : text) + "\n";
  }

  const RunArgs& args_;
  const std::vector<Prompt>& prompts_;
  std::map<std::size_t, std::string> texts_;
  std::size_t printed_ = 0;
  std::int64_t ended_ = 0;
  Progress progress_;
  bool on_terminal_ = isatty(STDOUT_FILENO) == 1;
};

}  // namespace

int complete_many(const RunArgs& args, const Model& model, Session& session,
                  const SharedRequest& shared, const EngineOptions& options,
                  const std::function<void()>& begin) {
  const Tokenizer& tokenizer = model.tokenizer();
  const std::vector<Prompt> prompts = read_prompts(args, tokenizer);
  Engine engine(session, tokenizer, options);
  engine.check_grammar(shared.grammar);
  InOrder printer(args, prompts);
  bool failed = false;
  std::vector<RequestId> ids;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    EngineRequest request;
    request.prompt = prompts[i].ids;
    request.sampling = shared.sampling;
    request.banned = shared.banned;
    request.stop = shared.stop;
    request.grammar = shared.grammar;
    request.on_end = [&, i](const EngineReply& reply) {
      failed = failed || reply.error.has_value();
      printer.add(i, reply);
    };
    try {
      ids.push_back(engine.submit(std::move(request)));
    } catch (const Error& error) {
      throw Error(prompts[i].where + ": " + error.marked(), error.kind());
    }
  }
  begin();
  const InterruptScope scope;
  const Stopwatch watch;
  do {
    printer.show_progress();
    if (!scope.interrupted()) continue;
    for (const RequestId id : ids) engine.cancel(id);
  } while (engine.step());
  printer.end_progress();
  const EngineCounts& counts = engine.counts();
  const double seconds = watch.seconds();
  note(with_commas(std::ssize(prompts)) + " replies in " + fixed(seconds, 1) + " s: prompts " +
       with_commas(counts.prompt_tokens) + " tokens (" + with_commas(counts.cached_tokens) +
       " more were shared), replies " + with_commas(counts.reply_tokens) + " tokens, " +
       fixed(static_cast<double>(counts.reply_tokens) / seconds, 1) + " tokens/s together");
  if (const Error* error = engine.draft_error()) note(draft_error_line(*error));
  if (args.verbose) {
    for (const auto& line : draft_lines(counts)) note(line);
  }
  if (scope.interrupted()) return kInterruptedStatus;
  return failed ? 1 : 0;
}

}  // namespace leq::run
