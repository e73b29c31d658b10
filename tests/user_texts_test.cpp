// Checks that certain messages, help texts and labels keep their wording, because each of them was
// once worded in terms that users did not understand.
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <string_view>

#include "source_files.h"

namespace leq {
namespace {

struct UserText {
  std::string_view file, text;
};

constexpr std::array<UserText, 21> kTexts = {{
    {"web/page.html", "Leave a field empty to use the server's default."},
    {"web/page.js", "Max tokens"},
    {"web/store.js", "Browser storage is full; delete some conversations to save new"},
    {"src/server/server.cpp", "unknown path "},
    {"src/server/server.cpp", " is not allowed for "},
    {"src/base/json.cpp", "duplicate key "},
    {"src/server/fields.cpp", " is empty; expected a JSON object"},
    {"tools/server/leq_server.cpp", "warning: no API key: anyone who can reach "},
    {"tools/server/leq_server.cpp", " parallel sequences share "},
    {"tools/server/leq_server.cpp", "shutting down: waiting up to "},
    {"src/server/access.cpp", "cross-origin request refused (see "},
    {"src/quantize/run/partial_run.cpp", "restarting  removed the partial results in "},
    {"tools/common/model_options.cpp", "maximum draft tokens per step (at most 16)"},
    {"tools/common/model_options.cpp", "context size in tokens, shared by all sequences; 0: for "},
    {"tools/common/device_choice.cpp", "results are bit-identical"},
    {"tools/run/options.cpp", "chat on after the prompt's answer; --raw: complete the prompt "},
    {"tools/quantize/options.cpp", "the rounding method"},
    {"tools/inspect/leq_inspect.cpp", ": verified: all "},
    {"src/chat/jinja/operators.cpp", "cannot concatenate "},
    {"src/quantize/run/quantize.cpp", " tokens, then folds and codes: "},
    {"tools/common/llama_flags.cpp", "ignored: thread polling is not configurable"},
}};

TEST(UserTexts, UseStandardTerms) {
  for (const auto& [file, text] : kTexts) {
    EXPECT_NE(test::source_text(std::string(file)).find(text), std::string::npos)
        << file << ": " << text;
  }
}

}  // namespace
}  // namespace leq
