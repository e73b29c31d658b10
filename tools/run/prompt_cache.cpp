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

std::int64_t load_prompt_cache(const PromptCacheFile& file, const PrefixOwner& owner,
                               Generator& generator, std::span<const Token> prompt) {
  if (!file.read_only) check_output(file.path);
  if (!file_exists(file.path)) {
    if (file.read_only) leave_out(file, "there is no such file");
    return 0;
  }
  const PrefixFile saved(file.path);
  if (const std::string reason = saved->reason_against(owner); !reason.empty()) {
    leave_out(file, reason);
    return 0;
  }
  std::int64_t known = 0;
  for (std::size_t i = saved->size(); i-- > 0;) {
    const SavedPrefix prefix = saved->read(i);
    if (generator.load_prefix(prefix, file.path.string())) {
      known = std::max<std::int64_t>(
          known, std::ranges::mismatch(prefix.tokens, prompt).in1 - prefix.tokens.begin());
    } else {
      leave_out(file, "its " + with_commas(std::ssize(prefix.tokens)) +
                          " tokens do not fit into the context; a larger -c holds them");
    }
  }
  return known;
}

void save_prompt_cache(const PromptCacheFile& file, const PrefixOwner& owner, Generator& generator,
                       std::span<const Token> tokens, std::int64_t known) {
  if (file.read_only || known == std::ssize(tokens)) return;
  const SavedPrefix prefix = generator.save_prefix(tokens);
  if (std::ssize(prefix.tokens) <= known) return;
  PrefixWriter writer(file.path, owner);
  writer.add(prefix);
  writer.commit();
}

}  // namespace leq::run
