// Several prompts at once, one of each line of standard input:  many model.leq < prompts.txt
// They share the steps of one batch and the pages of what they have in common; each gets the reply
// that it would get alone.
#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "runtime/make_backend.h"

namespace {

constexpr int kAtOnce = 8;

void complete(const char* path) {
  const leq::Model model(path, {});
  const auto backend = leq::make_backend({.device = "cpu"});
  leq::RunLimits limits;
  limits.sequences = kAtOnce;
  limits.output_tokens = 4 * kAtOnce;  // their next tokens, and draft tokens for some more
  limits.sequence_context = model.config().context;  // one may take what others do not need
  leq::Session session(model, *backend, leq::resolve_limits(limits, model.config()));
  leq::Engine engine(session, model.tokenizer(), {});

  for (std::string line; std::getline(std::cin, line);) {
    const auto prompt = model.tokenizer().encode(line, {.add_bos = model.tokenizer().add_bos()});
    if (prompt.empty()) continue;
    leq::EngineRequest request;
    request.prompt = prompt;
    request.stop.end_tokens = model.end_tokens();
    request.stop.max_tokens = 64;
    request.on_end = [line](const leq::EngineReply& reply) {
      std::cout << "* " << line << reply.text << "\n  (" << reply.tokens.size() << " tokens, "
                << leq::describe(reply.stopped) << ")\n";
    };
    engine.submit(std::move(request));
  }
  while (engine.step()) {
  }
  const leq::EngineCounts& counts = engine.counts();
  std::cout << counts.reply_tokens << " tokens in " << counts.steps << " steps; "
            << counts.cached_tokens << " of the prompts' tokens were there already, "
            << counts.accepted_tokens << " were drafted\n";
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: many MODEL.leq < PROMPTS\n";
    return 1;
  }
  try {
    complete(argv[1]);
  } catch (const std::exception& error) {
    std::cerr << "many: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
