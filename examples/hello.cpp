// The smallest program that runs a model:  hello model.leq "Once upon a time"
#include <exception>
#include <iostream>

#include "engine/generator.h"
#include "model/session.h"
#include "runtime/make_backend.h"

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: hello MODEL.leq PROMPT\n";
    return 1;
  }
  try {
    // A file, a device, and the memory to run one on the other.
    const leq::Model model(argv[1], {});
    const auto backend = leq::make_backend({.device = "cpu"});
    const leq::RunLimits limits = leq::resolve_limits({.context = 512}, model.config());
    leq::Session session(model, *backend, limits);

    // Text to tokens, tokens to more tokens, and back to text as it comes.
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
    std::cerr << "hello: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
