// Perplexity protocols: how a text is divided into windows of tokens, and which of these tokens are
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
  hf,            // disjoint windows; exp of the mean of window means (GPTQ, AWQ, ...)
  hf_stride,     // overlapping windows; scores each token once with the longest context
  llamacpp_512,  // chunks of 512 that begin with BOS; scores the second half
};
std::string_view protocol_name(Protocol protocol);  // "hf", "hf-stride", "llamacpp-512"

// Settings as given by a user. For those that are absent the protocol's defaults apply.
struct ProtocolRequest {
  std::string protocol = "hf";
  std::optional<std::string> join = {};     // default hf; not for llamacpp-512
  std::optional<std::int64_t> window = {};  // default min(context, 2048)
  std::optional<std::int64_t> stride = {};  // default 512; window/2 for windows below 1024
  std::int64_t chunks = 0;                  // number of windows to use; 0 = all
};

// Settings with all defaults filled in.
struct ProtocolSettings {
  Protocol protocol = Protocol::hf;
  Join join = Join::hf;
  std::int64_t window = 0;
  std::int64_t stride = 0;  // distance in tokens between starts of windows
  std::int64_t chunks = 0;
};

// `context` is the longest context of the model. Throws Error naming flag, value and range, or two
// flags that contradict each other.
ProtocolSettings resolve_protocol(const ProtocolRequest& request, std::int64_t context);

// `count` tokens of the text from index `first` on are fed as a separate text. The tokens from
// index `scored_from` > first of the whole text on are predicted and scored.
struct Window {
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t scored_from = 0;
  std::int64_t scored() const { return first + count - scored_from; }
};

// The windows of a text of `tokens` tokens. Throws Error naming `text` if it is shorter than one
// window.
std::vector<Window> plan_windows(const ProtocolSettings& settings, std::int64_t tokens,
                                 std::string_view text = "the text");

// A description such as "hf: windows of 1024 tokens side by side, rows joined by hf".
std::string describe(const ProtocolSettings& settings);

}  // namespace leq
