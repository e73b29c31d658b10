// One model on two ranks, threads of this program:  two_ranks model.leq "Once upon a time"
// It prints what examples/hello prints.
#include <exception>
#include <iostream>
#include <memory>
#include <utility>
#include <vector>

#include "engine/generator.h"
#include "model/ranks.h"
#include "model/session.h"
#include "runtime/make_backend.h"

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: two_ranks MODEL.leq PROMPT\n";
    return 1;
  }
  try {
    const leq::Model model(argv[1], {});
    const leq::RunLimits limits = leq::resolve_limits({.context = 512}, model.config());

    // Each rank computes on a backend of its own. The second follows what the session does.
    const auto backend = leq::make_backend({.device = "cpu", .threads = 1});
    std::vector<std::unique_ptr<leq::Backend>> others;
    others.push_back(leq::make_backend({.device = "cpu", .threads = 1}));
    leq::ThreadFollowers followers(model, std::move(others), limits, {.threads = 2});
    leq::Session session(model, *backend, limits, followers.leader());

    // From here on nothing shows that there are two.
    const leq::Tokenizer& tokenizer = model.tokenizer();
    const auto prompt = tokenizer.encode(argv[2], {.add_bos = tokenizer.add_bos()});
    leq::Generator generator(session, tokenizer, {.sampling = {.temperature = 0.0f}});
    leq::EngineRequest request{.prompt = prompt};
    request.stop.end_tokens = model.end_tokens();
    request.stop.max_tokens = 64;
    request.on_text = [](std::string_view text) { std::cout << text << std::flush; };
    std::cout << argv[2];
    generator.generate(request);
    std::cout << '\n';
  } catch (const std::exception& error) {
    std::cerr << "two_ranks: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
