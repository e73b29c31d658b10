#include "eval/kl_reference.h"

#include <filesystem>

#include "base/text.h"

namespace leq {
namespace {

RunLimits limits_of(const MixedSearch& request, const ModelConfig& config) {
  RunLimits limits;
  limits.context = request.window;
  limits.output_tokens = kOutputRows;
  limits.key_type = limits.value_type = kExactKv;
  return resolve_limits(limits, config);
}

}  // namespace

KlReference::KlReference(const MixedSearch& request, const Model& model, Workers& workers)
    : workers_(workers), limits_(limits_of(request, model.config())) {
  ProtocolSettings settings;
  settings.join = Join::none;
  settings.window = settings.stride = request.window;
  settings.chunks = request.windows;
  tokens_ = encode_text(model.tokenizer(), request.text);
  windows_ = plan_windows(settings, std::ssize(tokens_));
  key_.protocol = protocol_name(settings.protocol);
  key_.join = join_name(settings.join);
  key_.text_sha256 = key_.dataset_hash = sha256_hex(request.text);
  key_.tokens_sha256 = token_hash(tokens_, kNoToken);
  key_.window = key_.stride = request.window;
  key_.tokens = std::ssize(tokens_);
  key_.windows = std::ssize(windows_);
  for (const Window& window : windows_) key_.scored += window.scored();
  key_.vocab = model.config().vocab;
  Session session(model, *workers_.backend, limits_);
  write_divergence_base(session, workers_.pool, run(), request.base_file, key_);
  base_ = std::make_unique<DivergenceBaseReader>(request.base_file);
  std::error_code ignored;
  std::filesystem::remove(request.base_file, ignored);  // readable as long as it is open
}

std::string KlReference::identity() const {
  return key_.tokens_sha256 + ' ' + std::to_string(key_.window) + ' ' +
         std::to_string(key_.windows);
}

Divergence KlReference::measure(const MixedModel& mixed, const Assignment& assignment, KvType keys,
                                KvType values) const {
  Backend& backend = *workers_.backend;
  RunLimits limits = limits_;
  limits.key_type = keys;
  limits.value_type = values;
  Session session(mixed.model().config(), mixed.bind(assignment, backend), mixed.bytes(assignment),
                  backend, limits);
  return measure_divergence(session, workers_.pool, run(), *base_, key_);
}

}  // namespace leq
