// The parts of a .leq file as docs/leq-format.md tells them, and checksums that fit again after a
// change. Shares no code with the reader or the writer.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace leq::hostile {

struct LeqParts {
  std::size_t json_offset = 0, json_bytes = 0;
  struct Range {
    std::string name;  // "layers.0.q codes"
    bool blob = false;
    std::size_t offset = 0, bytes = 0;
  };
  std::vector<Range> ranges;
};

// Of a valid file.
LeqParts parts_of(const std::string& file);
std::string json_of(const std::string& file);

// The file with another JSON; sizes and the checksum of the JSON fit.
std::string with_json(const std::string& file, const std::string& json);
// With the checksum of one range made to fit what lies there now, and that of the JSON.
std::string with_checksum(const std::string& file, const LeqParts& parts, std::size_t range);

// A saved prompt (engine/prompt_file.h) with the checksum of what it holds, which begins here.
inline constexpr std::size_t kPromptBody = 16;
std::string with_prompt_checksum(std::string prompt);

}  // namespace leq::hostile
