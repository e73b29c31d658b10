// Perplexity protocols: how a text is cut into windows of tokens, and which tokens of them are
// scored.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "eval/wikitext.h"

namespace leq {

enum class Protocol : std::uint8_t {
  hf,            // disjoint windows; exp of the mean of the windows' means (GPTQ, AWQ, ...)
  hf_stride,     // overlapping windows, each token scored once with the longest context there is
  llamacpp_512,  // chunks of 512 that begin with BOS, the second half scored
};
std::string_view protocol_name(Protocol protocol);  // "hf", "hf-stride", "llamacpp-512"

// Settings as given by a user; absent ones take the protocol's default.
struct ProtocolRequest {
  std::string protocol = "hf";
  std::optional<std::string> join = {};     // default hf; none for llamacpp-512
  std::optional<std::int64_t> window = {};  // default min(context, 2048)
  std::optional<std::int64_t> stride = {};  // default 512; window/2 for windows below 1024
  std::int64_t chunks = 0;                  // first windows only; 0 = all
};

// Settings with all defaults resolved.
struct ProtocolSettings {
  Protocol protocol = Protocol::hf;
  Join join = Join::hf;
  std::int64_t window = 0;
  std::int64_t stride = 0;  // tokens from one window's start to the next
  std::int64_t chunks = 0;
};

// `context` is the longest that the model supports. Throws Error naming flag, value and range, or
// two flags that contradict each other.
ProtocolSettings resolve_protocol(const ProtocolRequest& request, std::int64_t context);

// Tokens [first, first + count) are fed as a separate text; those from `scored_from` on (an index
// into the text, > first) are predicted and scored.
struct Window {
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t scored_from = 0;
  std::int64_t scored() const { return first + count - scored_from; }
};

// The windows of a text of `tokens` tokens. Throws Error naming `text` where it is shorter than one
// window.
std::vector<Window> plan_windows(const ProtocolSettings& settings, std::int64_t tokens,
                                 std::string_view text = "the text");

// "hf: windows of 1024 tokens side by side, rows joined by hf"
std::string describe(const ProtocolSettings& settings);

}  // namespace leq
