// A receipt of a reply: everything that the reply depends on, the reply, and digests of the
// logits during it. On the CPU a reply is a pure function of these (docs/receipts.md), so
// anyone with the model can verify it on any processor: many tokens per step, like a
// prompt.
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

// Digests are taken of the logits of every kDigestTokens-th token, starting with the first.
inline constexpr std::size_t kDigestTokens = 16;

// XXH3-64 of the f32 values of one row of logits [V].
std::uint64_t logits_digest(std::span<const float> logits);

// Collects the digests of a reply; called with the arguments of EngineRequest::on_logits.
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
  std::string model;    // file name of the model, informational
  std::string version;  // version of leq, informational
  PromptOwner owner;    // the file's fingerprint and the types of keys and values
  // As in RunLimits: positions kept in f16 beside codes, and layers with their own KV types.
  std::optional<int> kv_sinks = {}, kv_recent = {};
  std::vector<KvLayerTypes> kv_layers = {};
  std::vector<Token> prompt;
  SamplingSettings sampling;           // the seed included
  std::vector<Token> banned;           // never drawn
  std::vector<Token> end_tokens;       // end the reply
  std::vector<Token> tokens;           // the reply, without the end token
  bool ended = false;                  // by an end token; otherwise by another rule
  std::vector<std::uint64_t> digests;  // [ceil(tokens / kDigestTokens)]
};

std::string receipt_text(const Receipt& receipt);  // JSON
// Throws Error naming `source`, the member, the expected and the actual value.
Receipt parse_receipt(std::string_view text, const std::string& source);

// Written atomically. Both throw Error where the file cannot be written or read.
void write_receipt(const std::filesystem::path& path, const Receipt& receipt);
Receipt read_receipt(const std::filesystem::path& path);

// The first difference between a receipt's reply and its reproduction.
struct ReceiptDifference {
  std::size_t place = 0;  // index of the token; the reply's length where the ends differ
  bool logits = false;    // equal tokens, but different logits before this one
  Token written = kNoToken, expected = kNoToken;  // kNoToken: the reply ends there

  bool operator==(const ReceiptDifference&) const = default;
};

// Limits of a session for check_receipt: a context for the reply, and rows of logits for as many
// tokens per step as improve its speed.
RunLimits receipt_limits(const Receipt& receipt, RunLimits limits);

// Verifies a receipt; nullopt where the reply is reproduced. `session` must have the model and the
// KV types of the receipt. `progress`: prompt and reply tokens done. Throws Error naming `source`
// where an id is outside the model's vocabulary, and as Engine::submit does.
std::optional<ReceiptDifference> check_receipt(
    Session& session, const Tokenizer& tokenizer, const Receipt& receipt, const std::string& source,
    const std::function<void(std::int64_t)>& progress = [](std::int64_t) {});

}  // namespace leq
