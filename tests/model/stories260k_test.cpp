// stories260K, a complete trained model from elsewhere, converted to a checkpoint folder and held
// against its published text.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "base/file.h"
#include "base/json.h"
#include "convert/quantize_checkpoint.h"
#include "model/session.h"
#include "platform/make_backend.h"
#include "reference/stories260k.h"
#include "shared_data.h"

namespace leq {
namespace {

std::filesystem::path convert(const std::filesystem::path& data) {
  const auto folder =
      std::filesystem::temp_directory_path() / ("leq_stories260k_" + std::to_string(::getpid()));
  test::write_stories260k_model(data / "stories260K.bin", folder);
  test::write_stories260k_tokenizer(data / "tok512.bin", folder);
  return folder;
}

TEST(Stories260K, TellsItsPublishedStoryTokenByToken) {
  LEQ_SHARED_OR_SKIP(data, "data/weights/stories260K");
  const auto folder = convert(data);
  const auto file = folder / "model.leq";
  quantize_checkpoint(folder, file, {{.threads = 1}, "f32", ActChoice::automatic},
                      [](auto, auto) {});
  const Json reference = parse_json(read_file(data / "reference.json", 1 << 24), "reference.json");
  // BOS and 200 tokens, whose text is the one that llama2.c's own test expects.
  const auto want =
      reference.at("third_party_greedy").at("ids_from_this_check").get<std::vector<Token>>();
  ASSERT_EQ(want.size(), 201u);
  const Model model(file, {});
  EXPECT_EQ(model.tokenizer().encode(reference.at("nll_text").get<std::string>(),
                                     {.parse_special = true, .add_bos = true}),
            reference.at("nll_ids").get<std::vector<Token>>());
  const auto backend = make_backend({"cpu", 2});
  RunLimits limits;
  limits.key_type = limits.value_type = KvType::f32;
  Session session(model, *backend, resolve_limits(limits, model.config()));
  std::vector<Token> next = {want[0]};
  for (std::size_t i = 0; i < 200; ++i) {
    const auto logits = session.feed(0, next);
    const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
    ASSERT_EQ(best, want[i + 1]) << "token " << i;
    next = {static_cast<Token>(best)};
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace leq
