// Measures a grammar's share of a step: an engine replays given documents (Replay) alternately with
// and without their grammar. Usage: grammar_steps MODEL.leq [REPLIES], with REPLIES concurrent
// replies (default 1). A grammar's one-time costs are in the times of its first document.
#include <algorithm>
#include <exception>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "base/stopwatch.h"
#include "base/text.h"
#include "engine/engine.h"
#include "runtime/make_backend.h"

namespace {

using namespace leq;

constexpr int kTurns = 2;

struct Sample {
  std::string name;
  std::function<std::shared_ptr<const Grammar>()> compile;
  std::string document;
};

std::vector<Sample> samples() {
  const std::string person =
      R"({"type": "object", "properties": {"name": {"type": "string", "maxLength": 60},
      "age": {"type": "integer"}, "tags": {"type": "array", "items": {"type": "string"}},
      "note": {"type": "string"}}, "required": ["name", "age", "tags", "note"]})";
  const std::string ada =
      R"({"name": "Ada Lovelace", "age": 36, "tags": ["mathematics", "poetry"], "note": "She wrote the first program, for an engine that was never built."})";
  const std::string sums =
      "root ::= (sum \" = \" number \"\\n\")+\n"
      "sum ::= part ((\" + \" | \" - \") part)*\n"
      "part ::= number | \"(\" sum \")\"\n"
      "number ::= \"0\" | [1-9] [0-9]*\n";
  const std::string list = "root ::= (\"- \" [^\\n]+ \"\\n\")+\n";
  return {
      {"schema", [person] { return Grammar::from_json_schema(person, "person"); }, ada},
      {"gbnf, sums", [sums] { return Grammar::from_gbnf(sums, "sums"); },
       "12 + 30 = 42\n(7 - 3) + (10 + (2 - 1)) = 15\n100 - 58 + 4 = 46\n1 + 2 + 3 + 4 = 10\n"},
      {"gbnf, lines", [list] { return Grammar::from_gbnf(list, "lines"); },
       "- a wire of 30 cm is what light passes in a nanosecond\n- Grace Hopper carried some\n"
       "- and gave them to admirals who asked why satellites take so long\n"},
  };
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

// Returns the seconds of each step. The first step includes the time for submitting the requests,
// in which the grammar's token tree and first mask are built.
std::vector<double> write(Engine& engine, const std::vector<Token>& document, int replies,
                          const std::shared_ptr<const Grammar>& grammar) {
  EngineRequest request;
  request.prompt = {document.front()};
  request.replay.tokens = document;
  request.grammar = grammar;
  request.stop.max_tokens = std::ssize(document);
  Stopwatch watch;
  for (int i = 0; i < replies; ++i) {
    request.on_end = [](const EngineReply& reply) {
      if (reply.error) throw Error(*reply.error);
    };
    engine.submit(request);
  }
  std::vector<double> seconds;
  while (engine.step()) {
    seconds.push_back(watch.seconds());
    watch.restart();
  }
  return seconds;
}

void measure(Engine& engine, const Tokenizer& tokenizer, const Sample& sample, int replies) {
  const std::vector<Token> document = tokenizer.encode(sample.document, {});
  const auto grammar = sample.compile();
  std::vector<double> first = write(engine, document, replies, grammar), free, held;
  for (int turn = 0; turn < kTurns; ++turn) {
    std::ranges::copy(write(engine, document, replies, nullptr), std::back_inserter(free));
    std::ranges::copy(write(engine, document, replies, grammar), std::back_inserter(held));
  }
  const double step = median(free);
  const auto share = [&](double seconds) { return fixed((seconds / step - 1) * 100, 2) + " %"; };
  std::cout << "| " << sample.name << " | " << document.size() << " | " << fixed(step * 1e3, 2)
            << " | " << fixed(median(held) * 1e3, 2) << ": " << share(median(held)) << " | "
            << fixed(median(first) * 1e3, 2) << ": " << share(median(first)) << " | "
            << fixed(mean(free) * 1e3, 2) << " | " << fixed(mean(first) * 1e3, 2) << ": "
            << share(mean(first) * step / mean(free)) << " |\n";
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "usage: grammar_steps MODEL.leq [REPLIES]\n";
    return 1;
  }
  try {
    const int replies = argc > 2 ? std::stoi(argv[2]) : 1;
    const Model model(argv[1], {});
    const auto backend = make_backend({.device = "cpu"});
    RunLimits limits;
    limits.sequences = replies;
    limits.output_tokens = replies;
    limits.context = 512 * std::int64_t{replies};
    Session session(model, *backend, resolve_limits(limits, model.config()));
    Engine engine(session, model.tokenizer(), {.reuse_prefixes = false, .speculate = false});
    write(engine, model.tokenizer().encode("A page of memory is touched once.", {}), replies,
          nullptr);
    std::cout
        << "| grammar | tokens | ms of a step | with it | its first document | mean of a step "
           "| of the first document |\n|---|---:|---:|---:|---:|---:|---:|\n";
    for (const Sample& sample : samples()) measure(engine, model.tokenizer(), sample, replies);
  } catch (const std::exception& error) {
    std::cerr << "grammar_steps: " << error.what() << "\n";
    return 1;
  }
  return 0;
}
