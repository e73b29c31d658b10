// Compares the table of settings with the sources, which name settings, and with the tools' flags.
#include "tools/common/setting_flags.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <regex>
#include <set>
#include <string>

#include "model/memory_plan.h"
#include "runtime/make_backend.h"
#include "sampling/settings.h"
#include "source_files.h"
#include "tensor/quant_scheme.h"
#include "tools/tool_runner.h"

namespace leq::test {
namespace {

std::set<std::string> matches(const std::string& text, const char* pattern) {
  const std::regex regex(pattern);
  std::set<std::string> found;
  const auto end = std::sregex_iterator();
  for (auto it = std::sregex_iterator(text.begin(), text.end(), regex); it != end; ++it) {
    found.insert((*it)[1]);
  }
  return found;
}

std::set<std::string> settings_of_sources(const std::vector<std::string>& folders) {
  std::set<std::string> found;
  for (const auto& file : source_files(folders)) {
    found.merge(matches(source_text(file), R"re(Setting\{"([^"]*)"\})re"));
  }
  return found;
}

// Returns all words that the tools accept, as shown by their help.
std::set<std::string> flags_of_tools() {
  std::set<std::string> found;
  for (const char* tool :
       {"leq-quantize", "leq-run", "leq-perplexity", "leq-inspect", "leq-bench", "leq-server"}) {
    found.merge(matches(run_program(tool, {"--help"}).out, R"((?:^|\n|, ) *(--?[a-z][a-z0-9-]*))"));
  }
  return found;
}

TEST(SettingFlags, EverySettingThatTheLibraryNamesHasAFlag) {
  auto named = settings_of_sources({"src", "families", "cuda"});
  named.erase("messages");  // a member of requests
  EXPECT_GT(named.size(), 30u) << "the test reads no sources";
  for (const std::string& setting : named) {
    EXPECT_TRUE(flag_of(setting).starts_with('-')) << setting;
  }
}

TEST(SettingFlags, EveryEntryIsNamedAndIsAnOptionOfATool) {
  const auto named = settings_of_sources({"src", "families", "cuda", "tools"});
  const auto flags = flags_of_tools();
  EXPECT_GT(flags.size(), 80u) << "the test reads no help";
  for (const SettingFlag& entry : setting_flags()) {
    EXPECT_TRUE(named.contains(std::string(entry.setting))) << entry.setting;
    EXPECT_TRUE(flags.contains(std::string(entry.flag))) << entry.flag;
  }
}

TEST(SettingFlags, EverySettingOfSamplingIsAnOptionOfLeqRun) {
  const auto flags = matches(run_program("leq-run", {"--help"}).out, R"((--[a-z-]+)(?:,| [A-Z]))");
  for (const SamplingParameter& parameter : kSamplingParameters) {
    EXPECT_TRUE(flags.contains(flag_of(parameter.name))) << parameter.name;
  }
  EXPECT_EQ(flag_of("temperature"), "--temp");
  EXPECT_EQ(flag_of("top_k"), "--top-k");
}

TEST(SettingFlags, AreSortedAndNameEachSettingOnce) {
  const auto before = [](const SettingFlag& a, const SettingFlag& b) {
    return !(a.setting < b.setting);
  };
  EXPECT_EQ(std::ranges::adjacent_find(setting_flags(), before), setting_flags().end());
}

TEST(SettingFlags, AreWrittenInMessages) {
  try {
    fail(Setting{"context"}, " 9000: use ", Setting{"key_type"}, " int8, or another ",
         Setting{"not_in_the_table"});
  } catch (const Error& error) {
    EXPECT_EQ(with_flags(error), "-c 9000: use -ctk int8, or another not_in_the_table");
  }
  EXPECT_EQ(with_flags(Setting{"samples"}.marked() + " 4"), "--samples 4");
}

std::string told(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_setting) << error.what();
    return with_flags(error);
  }
  return "no error";
}

// Users have seen these messages word for word since the first version.
TEST(SettingFlags, MessagesOfTheLibraryTellFlagsToUsersOfTools) {
  ModelConfig config;
  config.context = 512;
  const auto limits = [&](const RunLimits& wanted) {
    return told([&] { resolve_limits(wanted, config); });
  };
  EXPECT_EQ(limits({.context = 9000}),
            "-c 9000: that is 9000 positions a sequence, the model has at most 512; use -c 512 or "
            "less");
  EXPECT_EQ(limits({.sequences = 0}), "-np 0: expected 1 to 4096");
  EXPECT_EQ(limits({.batch_tokens = 0}), "-b 0: expected 1 to 65536");
  EXPECT_EQ(limits({.output_tokens = 0}), "output rows 0: expected 1 to 65536");
  EXPECT_EQ(told([] { make_backend({.device = "tpu"}); }),
            "-dev tpu: expected cpu, cuda, cuda:N, cuda:GPU-UUID, sim or sim:SIZE; --list-devices "
            "shows what there is");
  EXPECT_EQ(told([] { parse_kv_type("q8_0", Setting{"value_type"}); }),
            "-ctv q8_0: expected " +
                kv_type_names(", ").replace(kv_type_names(", ").rfind(", "), 2, " or ") +
                "; the closest is int8");
  EXPECT_EQ(limits({.kv_sinks = 65}), "--kv-sink 65: expected 0 to 64");
  EXPECT_TRUE(told([] {
                require_scheme("int9", Setting{"type"}.marked());
              }).starts_with("--type: unknown type \"int9\"; use one of "));
}

}  // namespace
}  // namespace leq::test
