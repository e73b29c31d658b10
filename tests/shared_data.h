// Finds third-party data and trained models that are stored next to the project, never in it. Tests
// that need them are skipped with a visible reason if they are missing. The seeded checkpoints of
// families (tests/golden/families) are models too, which are always there.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace leq::test {

// Trained models below models/ with logits of transformers beside them.
inline constexpr const char* kTrainedModels[] = {
    "storyteller", "storyteller-outliers", "gpt2-tiny",  "gpt2-tiny-outliers", "mistral-tiny",
    "qwen2-tiny",  "qwen2-tiny-kbias",     "qwen3-tiny", "qwen35-tiny",        "qwen3moe-tiny"};

inline std::optional<std::filesystem::path> shared_path(const std::string& relative) {
  const char* named = std::getenv("LEQ_SHARED");
  const std::filesystem::path root = named != nullptr
                                         ? std::filesystem::path(named)
                                         : std::filesystem::path(LEQ_SOURCE_DIR) / ".." / "shared";
  const auto path = root / relative;
  if (std::filesystem::exists(path)) return path;
  const std::filesystem::path own = LEQ_SOURCE_DIR;
  if (relative == "models/storyteller") return own / "examples/storyteller";
  constexpr std::string_view kModels = "models/";
  if (!relative.starts_with(kModels)) return std::nullopt;
  const auto seeded = own / "tests/golden/families" / relative.substr(kModels.size());
  return std::filesystem::exists(seeded) ? std::optional(seeded) : std::nullopt;
}

}  // namespace leq::test

// Declares `name` as the path of a shared file, or skips the test.
#define LEQ_SHARED_OR_SKIP(name, relative)                                                   \
  const auto name##_found = ::leq::test::shared_path(relative);                              \
  if (!name##_found) GTEST_SKIP() << "needs ../shared/" << (relative) << " (or LEQ_SHARED)"; \
  const std::filesystem::path name = *name##_found
