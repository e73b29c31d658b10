// A conversation in a loop:  chat model.leq   (end with Ctrl-D)
#include <atomic>
#include <exception>
#include <iostream>
#include <string>

#include "engine/generator.h"
#include "model/session.h"
#include "runtime/make_backend.h"

namespace {

void converse(const char* path) {
  const leq::Model model(path, {});
  const auto backend = leq::make_backend({.device = "cpu"});
  leq::Session session(model, *backend, leq::resolve_limits({}, model.config()));
  leq::Generator generator(session, model.tokenizer(), {});

  const auto format = leq::ChatTemplate::of_model(model.chat_template(), path);
  leq::ChatSessionOptions options{.rendering = leq::chat_options(model.tokenizer())};
  options.stop.end_tokens = model.end_tokens();
  leq::ChatSession chat(generator, model.tokenizer(), format, options);

  const std::atomic<bool> interrupted = false;
  for (std::string line; std::cout << "> " << std::flush, std::getline(std::cin, line);) {
    chat.say(
        line, [](std::string_view text) { std::cout << text << std::flush; }, interrupted);
    std::cout << '\n';
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: chat MODEL.leq\n";
    return 1;
  }
  try {
    converse(argv[1]);
  } catch (const std::exception& error) {
    std::cerr << "chat: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
