// Helpers that build options, for tools with many similar options.
#pragma once

#include "tools/common/options.h"

namespace leq {

inline constexpr double kNoLimit = std::numeric_limits<double>::infinity();

inline Option text_row(std::string name, std::string value_name, std::string help,
                       std::string group, std::vector<std::string> choices = {}) {
  return {.name = std::move(name),
          .kind = OptionKind::text,
          .value_name = std::move(value_name),
          .help = std::move(help),
          .group = std::move(group),
          .choices = std::move(choices)};
}

// `kind`: integer, real or integers.
inline Option number_row(OptionKind kind, std::string name, std::string value_name,
                         std::string fallback, std::string help, std::string group, double minimum,
                         double maximum = kNoLimit) {
  return {.name = std::move(name),
          .kind = kind,
          .value_name = std::move(value_name),
          .fallback = std::move(fallback),
          .help = std::move(help),
          .group = std::move(group),
          .minimum = minimum,
          .maximum = maximum};
}

// Options for splitting a text into windows: protocol, window, chunks, join.
std::vector<Option> window_rows(const std::string& group);

}  // namespace leq
