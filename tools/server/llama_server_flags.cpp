#include "tools/server/llama_server_flags.h"

#include <vector>

#include "tools/common/llama_flags.h"

namespace leq::server_tool {
namespace {

constexpr auto kTold = ForeignUse::told;
constexpr auto kRefused = ForeignUse::refused;

std::vector<ForeignOption> own_flags() {
  return {
      {.words = "-cb --cont-batching -nocb --no-cont-batching"},
      {.words = "--embedding --embeddings --cache-prompt --no-cache-prompt --props"},
      {.words = "--prefill-assistant --no-prefill-assistant"},
      {"--threads-http", kTold, "does nothing: replies have a thread each, all who wait have one",
       1},
      {"--cache-reuse -sps --slot-prompt-similarity", kTold,
       "does nothing: a prompt begins with the pages of the longest beginning that is there", 1},
      {"--sleep-idle-seconds", kTold, "does nothing: the model stays where it is", 1},
      {"--grammar --grammar-file -j --json-schema -jf --json-schema-file", kRefused,
       "each request says it: response_format, json_schema or grammar"},
      {"--pooling", kRefused, "an embedding is the mean over a text's tokens: leave this out", 1},
      {.words = "--rerank --reranking"},
      {"--path --api-prefix --media-path --webui-config --webui-config-file", kRefused,
       "the page and the paths are as docs/server.md has them; a proxy in front can change them",
       1},
      {"--models-preset", kRefused,
       "the models of --models-dir are all served with the flags of the command line", 1},
      {.words = "--models-autoload"},
      {"--no-models-autoload", kTold, "does nothing: a model is loaded when a request names it"},
  };
}

}  // namespace

std::span<const ForeignOption> llama_server_flags() {
  static const std::vector<ForeignOption> kAll = [] {
    std::vector<ForeignOption> all = own_flags();
    for (const ForeignOption& option : llama_flags()) {
      if (!option.words.starts_with("--reasoning-budget ")) all.push_back(option);  // an option
    }
    return all;
  }();
  return kAll;
}

}  // namespace leq::server_tool
