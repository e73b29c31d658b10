#include "tools/bench/speculate.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"
#include "base/progress.h"
#include "base/stopwatch.h"
#include "engine/engine.h"

namespace leq {
namespace {

constexpr std::string_view kProse =
    "The harbour lay quiet under a low grey sky when the ferry came in. A boy with a red scarf "
    "waited at the end of the pier and counted the gulls on the roof of the fish market. Nobody "
    "had told him who would come, only that he should bring the cart and be on time. He heard the "
    "engine long before he saw the light. When the ropes were tied an old woman stepped down with "
    "a wooden box under her arm, looked around, and walked straight towards him.\n\n"
    "\"You must be Tom,\" she said. \"";

constexpr std::string_view kJson =
    "[\n"
    "  {\"id\": 1, \"name\": \"pump\", \"unit\": \"bar\", \"minimum\": 0, \"maximum\": 16},\n"
    "  {\"id\": 2, \"name\": \"valve\", \"unit\": \"percent\", \"minimum\": 0, \"maximum\": 100},\n"
    "  {\"id\": 3, \"name\": \"tank\", \"unit\": \"litre\", \"minimum\": 0, \"maximum\": 500},\n"
    "  {\"id\": 4, \"name\": \"motor\", \"unit\": \"rpm\", \"minimum\": 0, \"maximum\": 3000},\n"
    "  {\"id\": 5, \"name\": \"heater\", \"unit\": \"watt\", \"minimum\": 0, \"maximum\": 2000},\n"
    "  {\"id\": 6, \"name\": \"";

constexpr std::string_view kQuotes =
    "Report of the committee: The bridge over the mill stream was built with oak beams, which have "
    "begun to rot at the northern end. The committee recommends that the beams at the northern end "
    "are replaced before the winter, and that the bridge is closed to carts until the work is "
    "done. The cost is not to exceed four hundred crowns.\n\n"
    "Summary with quotes: The report says that \"the bridge over the mill stream was built with "
    "oak beams, which have begun to rot at the northern end\". It recommends \"that the beams at "
    "the northern end are replaced before the winter, and that";

struct Mode {
  std::string name;
  EngineOptions options;
};

// Measurements of the replies of one engine to one text.
struct Measured {
  std::vector<double> rates;  // tokens per second
  EngineCounts counts;
};

Cell share(std::int64_t part, std::int64_t whole) {
  if (whole == 0) return {};
  return {static_cast<double>(part) / static_cast<double>(whole), 3};
}

double write_reply(Engine& engine, const SpeculationText& text, const SpeculationTest& test) {
  EngineRequest request;
  request.prompt = text.prompt;
  request.sampling.seed = test.seed;
  request.stop.max_tokens = test.reply;
  request.replay = {text.replayed, test.draft_share};
  std::optional<EngineReply> ended;
  request.on_end = [&](const EngineReply& reply) { ended = reply; };
  engine.submit(std::move(request));
  while (!ended) engine.step();
  if (ended->error) throw *ended->error;
  return ended->reply_tokens_per_second();
}

// Alternates between the modes, so that other load on the machine affects all modes equally.
std::vector<Measured> measure(const std::vector<Mode>& modes, const Tokenizer& tokenizer,
                              Session& session, const SpeculationText& text,
                              const SpeculationTest& test, Progress& progress, int& done) {
  std::vector<Measured> all(modes.size());
  std::vector<std::unique_ptr<Engine>> engines;
  for (const Mode& mode : modes) {
    engines.push_back(std::make_unique<Engine>(session, tokenizer, mode.options));
  }
  for (int run = -1; run < test.runs; ++run) {
    for (std::size_t i = 0; i < modes.size(); ++i) {
      const double rate = write_reply(*engines[i], text, test);
      if (run >= 0) all[i].rates.push_back(rate);
      all[i].counts = engines[i]->counts();
      progress.update(++done);
    }
  }
  return all;
}

// An MTP head also reads hidden states, for which zeros suffice when only time is measured.
const Rows& forward(Session& session, const Batch& batch) {
  Transformer& transformer = session.transformer();
  if (!transformer.config().reads_hidden) return transformer.forward(batch, session.state());
  const std::vector<float> zeros(batch.tokens.size() *
                                 static_cast<std::size_t>(transformer.config().width));
  return transformer.forward(batch, session.state(), zeros);
}

void feed(Session& session, std::span<const Token> tokens) {
  const auto chunk = static_cast<std::size_t>(session.limits().batch_tokens);
  for (; !tokens.empty(); tokens = tokens.subspan(std::min(chunk, tokens.size()))) {
    Batch batch;
    batch.add(0, tokens.data(), std::ssize(tokens.first(std::min(chunk, tokens.size()))),
              Batch::Want::none);
    (void)forward(session, batch);
  }
}

// Returns the seconds of a step after a prompt, with `rows` tokens and a draw after each of them.
double step_seconds(Session& session, const std::vector<Token>& prompt, std::int64_t rows,
                    int runs) {
  const SequenceState state = session.state();
  Transformer& transformer = session.transformer();
  state.drop(0);
  feed(session, prompt);
  state.only_checkpoint(0);
  std::vector<SampleRequest> requests(static_cast<std::size_t>(rows));
  std::vector<Token> drawn(requests.size()), tokens(requests.size(), prompt.back());
  Batch batch;
  batch.add(0, tokens.data(), rows, Batch::Want::all);
  std::vector<double> seconds;
  for (int run = -1; run < runs; ++run) {
    const Stopwatch watch;
    transformer.backend().sample(forward(session, batch), requests, drawn);
    if (run >= 0) seconds.push_back(watch.seconds());
    (void)state.restore(0, std::ssize(prompt));
  }
  state.drop(0);
  return median(seconds);
}

}  // namespace

std::vector<SpeculationText> built_in_texts(const Tokenizer& tokenizer) {
  std::vector<SpeculationText> texts;
  for (const auto& [name, text] :
       {std::pair{"prose", kProse}, std::pair{"json", kJson}, std::pair{"quotes", kQuotes}}) {
    texts.push_back({name, tokenizer.encode(text, {.add_bos = tokenizer.add_bos()}), {}});
  }
  return texts;
}

std::vector<Token> numbered_words(std::string_view text, std::int64_t vocabulary) {
  constexpr std::int64_t kFirst = 16;
  std::map<std::string_view, Token> numbers;
  std::vector<Token> tokens;
  const auto in_word = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           static_cast<unsigned char>(c) >= 128;
  };
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at + 1;  // a space belongs to the following word
    if (in_word(text[at]) || (text[at] == ' ' && end < text.size() && in_word(text[end]))) {
      while (end < text.size() && in_word(text[end])) ++end;
    }
    const auto next = static_cast<std::int64_t>(numbers.size());
    const auto number = static_cast<Token>(kFirst + next % (vocabulary - kFirst));
    tokens.push_back(numbers.try_emplace(text.substr(at, end - at), number).first->second);
    at = end;
  }
  return tokens;
}

RunLimits speculation_limits(const SpeculationTest& test, RunLimits limits) {
  std::int64_t longest = 0;
  for (const auto& text : test.texts) longest = std::max(longest, std::ssize(text.prompt));
  // Each of the three engines keeps the pages of its text; for recurrent models also partly filled
  // pages at saved states.
  limits.sequence_context = longest + test.reply + 2 * kMaxDraftTokens;
  limits.context = 6 * round_up(limits.sequence_context, kPageTokens);
  limits.output_tokens = 1 + kMaxDraftTokens;
  limits.batch_tokens = std::max<std::int64_t>(limits.batch_tokens, 2 * kMaxDraftTokens);
  return limits;
}

void bench_speculation(const BenchModel& model, Session& session, const std::string& draft_name,
                       Session* draft, const SpeculationTest& test, Table& table) {
  std::vector<Mode> modes = {{"off", {.speculate = false}},
                             {"found", {.max_draft_tokens = test.max_draft_tokens}}};
  if (draft != nullptr && draft->transformer().config().reads_hidden) {
    modes.push_back(
        {"mtp", {.find_drafts = false, .draft = draft, .max_draft_tokens = test.max_draft_tokens}});
  } else if (draft != nullptr) {
    modes.push_back({"drafted", {.draft = draft, .max_draft_tokens = test.max_draft_tokens}});
  }
  const std::optional<Tokenizer> numbers =
      model.tokenizer() != nullptr
          ? std::nullopt
          : std::optional<Tokenizer>(numbered_tokens(model.config().vocab));
  const Tokenizer& tokenizer = numbers ? *numbers : *model.tokenizer();
  const std::string title = model.name() + " " + model.scheme();
  Progress progress(title + " drafts",
                    static_cast<int>(test.texts.size() * modes.size()) * (test.runs + 1),
                    "replies");
  int done = 0;
  for (const SpeculationText& text : test.texts) {
    const auto all = measure(modes, tokenizer, session, text, test, progress, done);
    for (std::size_t i = 0; i < modes.size(); ++i) {
      const EngineCounts& counts = all[i].counts;
      const double rate = median(all[i].rates);
      table.add({{"model", title},
                 {"draft", modes[i].options.draft != nullptr ? Cell(draft_name) : Cell()},
                 {text.replayed.empty() ? "text" : "replayed_text", text.name},
                 {"drafts", modes[i].name},
                 {"tokens_per_second", Cell(rate, 2)},
                 {"gain", Cell(rate / median(all[0].rates), 3)},
                 {"tokens_per_step", share(counts.reply_tokens, counts.steps)},
                 {"right_share", share(counts.accepted_tokens, counts.draft_tokens)},
                 {"right_drafts_share", share(counts.right_drafts, counts.drafted_tokens)},
                 {"step_ms", Cell()}});
    }
  }
  const std::vector<Token>& prompt = test.texts[0].prompt;
  const double alone = step_seconds(session, prompt, 1, 3 * test.runs);
  for (const std::int64_t drafts : {0, 1, 2, 3, 4, 7, 8, 11, 15}) {
    const double seconds = step_seconds(session, prompt, 1 + drafts, 3 * test.runs);
    const auto rows = static_cast<double>(1 + drafts);
    table.add({{"model", title},
               {"drafts", std::to_string(drafts) + ", all right"},
               {"tokens_per_second", Cell(rows / seconds, 2)},
               {"gain", Cell(rows * alone / seconds, 3)},
               {"tokens_per_step", Cell(rows, 3)},
               {"step_ms", Cell(1e3 * seconds, 3)}});
  }
  if (draft == nullptr) return;
  const double seconds = step_seconds(*draft, prompt, 1, 3 * test.runs);
  table.add({{"model", title},
             {"draft", draft_name},
             {"drafts", "a draft's own step"},
             {"step_ms", Cell(1e3 * seconds, 3)}});
}

}  // namespace leq
