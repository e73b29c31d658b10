// Finds third-party data and trained models that are stored next to the project, never in it. Tests
// that need them are skipped with a visible reason if they are missing.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

namespace leq::test {

inline std::optional<std::filesystem::path> shared_path(const std::string& relative) {
  const char* named = std::getenv("LEQ_SHARED");
  const std::filesystem::path root = named != nullptr
                                         ? std::filesystem::path(named)
                                         : std::filesystem::path(LEQ_SOURCE_DIR) / ".." / "shared";
  const auto path = root / relative;
  if (std::filesystem::exists(path)) return path;
  // The storyteller is part of the project and always available.
  const auto own = std::filesystem::path(LEQ_SOURCE_DIR) / "examples";
  if (relative == "models/storyteller") return own / "storyteller";
  return std::nullopt;
}

}  // namespace leq::test

// Declares `name` as the path of a shared file, or skips the test.
#define LEQ_SHARED_OR_SKIP(name, relative)                                                   \
  const auto name##_found = ::leq::test::shared_path(relative);                              \
  if (!name##_found) GTEST_SKIP() << "needs ../shared/" << (relative) << " (or LEQ_SHARED)"; \
  const std::filesystem::path name = *name##_found
