// Writes a report: index.html, report.json, a CSV file for each table, and an image for a README.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/json.h"

namespace leq {

struct WrittenReport {
  std::filesystem::path page;
  std::uint64_t page_bytes = 0;
  std::string summary;  // the head-to-head table and the claims, for a terminal
};

// Writes each file atomically. Throws Error if a file cannot be written.
WrittenReport write_report(const Json& results, const std::filesystem::path& folder);

}  // namespace leq
