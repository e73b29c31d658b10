// The parts of a .leq file as defined by docs/leq-format.md, and functions that repair checksums
// after a change. This code shares nothing with the reader or the writer.
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

// The parts of a valid file.
LeqParts parts_of(const std::string& file);
std::string json_of(const std::string& file);

// Returns the file with another JSON, and with updated sizes and checksum of the JSON.
std::string with_json(const std::string& file, const std::string& json);
// Updates the checksum of one range, and then the checksum of the JSON that contains it.
std::string with_checksum(const std::string& file, const LeqParts& parts, std::size_t range);

// Updates the checksums of a file of saved prefixes (engine/saved_prefix.h), as far as its sizes
// make sense.
std::string with_prefix_checksums(std::string file);

}  // namespace leq::hostile
