#include "tools/run/prompt.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "tools/common/typed_text.h"
#include "tools/run/output.h"

namespace leq::run {
namespace {

std::string checked_prompt(std::string text, std::string_view what) {
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  require(!text.empty(), what, ": the prompt is empty: write some text into it, or give -p TEXT");
  check_utf8(text, what);
  return text;
}

}  // namespace

std::string read_prompt_text(const std::filesystem::path& path) {
  if (path == "-") return read_prompt_from_stdin();
  return checked_prompt(read_text_file(path, kMaxPromptBytes), path.string());
}

void check_prompt_size(std::size_t bytes) {
  if (bytes <= kMaxPromptBytes) return;
  fail("standard input: a prompt of more than ", human_bytes(kMaxPromptBytes), ": the limit is ",
       human_bytes(kMaxPromptBytes));
}

std::string read_standard_input() {
  std::string text;
  char part[65536];
  for (std::size_t got = 0; (got = std::fread(part, 1, sizeof part, stdin)) > 0;) {
    text.append(part, got);
    check_prompt_size(text.size());
  }
  require(std::ferror(stdin) == 0, "standard input: cannot read: ", std::strerror(errno));
  return text;
}

std::string read_prompt_from_stdin() {
  return checked_prompt(read_standard_input(), "standard input");
}

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
  if (!generator.reuses_prefixes()) {
    note("--prompt-cache " + printable(file.path.string()) +
         " is not used: with act online, codes depend on earlier steps");
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
