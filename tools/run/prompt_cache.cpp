#include "tools/run/prompt_cache.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "tools/run/output.h"

namespace leq::run {
namespace {

void leave_out(const PromptCacheFile& file, const std::string& why) {
  note("--prompt-cache " + printable(file.path.string()) + ": " + why +
       ", so the prompt is fed as usual" +
       (file.read_only ? "" : " and the file is written again"));
}

}  // namespace

PromptOwner prompt_owner(const Model& model, const Session& session) {
  return {model.file().fingerprint(), session.limits().key_type, session.limits().value_type};
}

std::int64_t load_prompt_cache(const PromptCacheFile& file, const PromptOwner& owner,
                               Generator& generator, std::span<const Token> prompt) {
  if (!file.read_only) check_output(file.path);
  if (!file_exists(file.path)) {
    if (file.read_only) leave_out(file, "there is no such file");
    return 0;
  }
  const SavedPrompt saved = read_prompt_file(file.path);
  if (saved.owner.model != owner.model) {
    leave_out(file, "it was written with another model");
    return 0;
  }
  if (saved.owner != owner) {
    leave_out(file, "it was written with other KV types (-ctk, -ctv)");
    return 0;
  }
  if (!generator.load_prompt(saved, file.path.string())) {
    leave_out(file, "its " + with_commas(std::ssize(saved.tokens)) +
                        " tokens do not fit into the context; a larger -c holds them");
    return 0;
  }
  return std::ranges::mismatch(saved.tokens, prompt).in1 - saved.tokens.begin();
}

void save_prompt_cache(const PromptCacheFile& file, const PromptOwner& owner, Generator& generator,
                       std::span<const Token> tokens, std::int64_t known) {
  if (file.read_only || known == std::ssize(tokens)) return;
  SavedPrompt prompt = generator.save_prompt(tokens);
  if (std::ssize(prompt.tokens) <= known) return;
  prompt.owner = owner;
  write_prompt_file(file.path, prompt);
}

}  // namespace leq::run
