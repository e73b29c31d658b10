// A receipt of a reply: all that the reply depends on, the reply, and digests of the logits on its
// way. On the CPU a reply is a pure function of these (docs/receipts.md), so anybody with the model
// can write it again, on any processor, and say whether it is the same: as one prompt, many tokens
// in a step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/prompt_file.h"
#include "model/sampling_settings.h"
#include "model/session.h"
#include "tokenizer/tokenizer.h"

namespace leq {

// The logits by which every so many-th token was drawn have a digest, from the first on.
inline constexpr std::size_t kDigestTokens = 16;

// Of one row of logits [V]: XXH3-64 of its f32 numbers.
std::uint64_t logits_digest(std::span<const float> logits);

// Collects those of a reply, from what EngineRequest::on_logits is told.
class LogitDigests {
 public:
  // The next `taken` tokens and the logits [taken][V] by which they were drawn.
  void add(std::size_t taken, std::span<const float> logits);
  const std::vector<std::uint64_t>& values() const { return values_; }

 private:
  std::size_t tokens_ = 0;
  std::vector<std::uint64_t> values_;
};

struct Receipt {
  std::string model;    // file name of the model, for people
  std::string version;  // of leq, for people
  PromptOwner owner;    // the file's fingerprint and the types of keys and values
  // As RunLimits has them: what stays in f16 beside codes, and layers with types of their own.
  std::optional<int> kv_sinks = {}, kv_recent = {};
  std::vector<KvLayerTypes> kv_layers = {};
  std::vector<Token> prompt;
  SamplingSettings sampling;           // the seed included
  std::vector<Token> banned;           // never drawn
  std::vector<Token> end_tokens;       // end the reply
  std::vector<Token> tokens;           // the reply, without the end token
  bool ended = false;                  // by an end token; else something else stopped it
  std::vector<std::uint64_t> digests;  // [ceil(tokens / kDigestTokens)]
};

std::string receipt_text(const Receipt& receipt);  // JSON
// Throws Error naming `source`, the member, what was expected and what is there.
Receipt parse_receipt(std::string_view text, const std::string& source);

// Written whole or not at all. Both throw Error where the file cannot be written or read.
void write_receipt(const std::filesystem::path& path, const Receipt& receipt);
Receipt read_receipt(const std::filesystem::path& path);

// Where a reply that was written again is another one.
struct ReceiptDifference {
  std::size_t place = 0;  // of the reply's tokens; its number where the ends differ
  bool logits = false;    // the same tokens, but the logits before this one are others
  Token written = kNoToken, expected = kNoToken;  // kNoToken: the reply ends there

  bool operator==(const ReceiptDifference&) const = default;
};

// Limits of a session that check_receipt can use: room for the reply, and rows of logits for as
// many tokens in one step as pay.
RunLimits receipt_limits(const Receipt& receipt, RunLimits limits);

// Writes the reply again; nullopt where all of it is the same. `session` must be of the model and
// the types of the receipt. `progress`: how many tokens of prompt and reply are done. Throws Error
// naming `source` where an id is none of this model's, and as Engine::submit does.
std::optional<ReceiptDifference> check_receipt(
    Session& session, const Tokenizer& tokenizer, const Receipt& receipt, const std::string& source,
    const std::function<void(std::int64_t)>& progress = [](std::int64_t) {});

}  // namespace leq
