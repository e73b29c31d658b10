// Runs a model on one device to compare devices: logits of a text that is fed in chunks.
#pragma once

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/session.h"
#include "runtime/make_backend.h"

namespace leq::test {

struct KvTypes {
  KvType keys = KvType::f32, values = KvType::f32;
  std::optional<int> recent = {};  // newest positions kept in f16 in addition to block codes
};

class Engine {
 public:
  Engine(const std::string& device, const std::filesystem::path& file, KvTypes kv,
         int sequences = 1, Arithmetic arithmetic = Arithmetic::fast)
      : model(file, {}),
        backend(make_backend({device, 1, {.memory_cap = 0, .arithmetic = arithmetic}})) {
    RunLimits limits;
    limits.key_type = kv.keys;
    limits.value_type = kv.values;
    limits.kv_recent = kv.recent;
    limits.sequences = sequences;
    limits.context = std::min<std::int64_t>(256, model.config().context) * sequences;
    limits.batch_tokens = limits.output_tokens = 160;
    session.emplace(model, *backend, resolve_limits(limits, model.config()));
  }

  std::size_t vocab() const { return static_cast<std::size_t>(model.config().vocab); }

  // Returns logits [ids][V] of one sequence: `prompt` ids in chunks, then one by one.
  std::vector<float> logits(const std::vector<Token>& ids, std::size_t chunk, std::size_t prompt) {
    session->state().drop(0);
    std::vector<float> out(ids.size() * vocab());
    for (std::size_t first = 0; first < ids.size();) {
      const std::size_t count = first < prompt ? std::min(chunk, prompt - first) : 1;
      Batch batch;
      batch.add(0, ids.data() + first, static_cast<std::int64_t>(count), Batch::Want::all);
      const Rows& rows = session->transformer().forward(batch, session->state());
      backend->download(rows, static_cast<std::int64_t>(count),
                        std::span(out).subspan(first * vocab(), count * vocab()));
      first += count;
    }
    return out;
  }
  std::vector<float> logits(const std::vector<Token>& ids, std::size_t chunk) {
    return logits(ids, chunk, ids.size());
  }

  Model model;
  std::unique_ptr<Backend> backend;
  std::optional<Session> session;
};

}  // namespace leq::test
