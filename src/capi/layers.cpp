// Layer by layer: embeddings, single layers, the head, and what the linears of a layer read.
#include <algorithm>

#include "capi/internal.h"

namespace leq::capi {
namespace {

// Calls `work(session)` with an empty cache, after checks of the shape that all calls here share.
template <class Work>
void with_layers(leq_session* handle, const void* hidden, std::size_t count, std::size_t width,
                 const Work& work) {
  LiveSession& live = session_of(handle);
  require_use(hidden != nullptr && count > 0, "hidden is NULL, or count is 0");
  const ModelConfig& config = live.model().config();
  if (width != static_cast<std::size_t>(config.width)) {
    misuse("width " + std::to_string(width) + ": expected that of the model, " +
           std::to_string(config.width));
  }
  live.with_tokens([&](std::vector<Token>& fed) {
    Session& session = live.session();
    const std::int64_t most = std::min(session.limits().batch_tokens, session.limits().context);
    require(static_cast<std::int64_t>(count) <= most, "count ", count,
            ": the session has room for ", most, " hidden states at once");
    session.state().drop(0);
    fed.clear();
    work(session);
  });
}

// Row t as a linear reads its input: floats, or codes times scales (in the CPU backend's layout).
void read_row(const Rows& rows, std::int64_t t, std::span<float> out) {
  if (!is_coded(rows.format.act)) {
    std::copy_n(rows.values + t * rows.value_stride, out.size(), out.begin());
    return;
  }
  const std::uint8_t* codes = rows.codes + t * rows.code_stride;
  const float* scales = rows.scales + t * rows.scale_stride;
  const int columns = scale_columns(rows.format.act);
  for (std::size_t k = 0; k < out.size(); ++k) {
    const int code = rows.format.offset_codes ? codes[k] - 128 : static_cast<std::int8_t>(codes[k]);
    const std::size_t group = columns == 0 ? 0 : k / static_cast<std::size_t>(columns);
    out[k] = scales[group] * static_cast<float>(code);
  }
}

class InputObserver : public Observer {
 public:
  InputObserver(leq_on_input on_input, void* user) : on_input_(on_input), user_(user) {}
  bool see(const LayerLinear& linear, const Rows& input, std::int64_t tokens) override {
    const auto width = static_cast<std::size_t>(input.width);
    rows_.resize(static_cast<std::size_t>(tokens) * width);
    for (std::int64_t t = 0; t < tokens; ++t) {
      read_row(input, t, std::span(rows_).subspan(static_cast<std::size_t>(t) * width, width));
    }
    on_input_(user_, std::string(linear.site_name).c_str(), rows_.data(),
              static_cast<std::size_t>(tokens), width);
    return true;
  }

 private:
  leq_on_input on_input_;
  void* user_;
  std::vector<float> rows_;
};

void run_layer(Session& session, std::int64_t layer, std::span<float> hidden, leq_on_input on_input,
               void* user) {
  Transformer& transformer = session.transformer();
  const std::int64_t layers = transformer.config().layer_count();
  require(layer >= 0 && layer < layers, "layer ", layer, ": expected 0 to ", layers - 1);
  require(on_input == nullptr || !transformer.backend().memory().info(),
          "on_input: the inputs of linears are read on the CPU");
  InputObserver observer(on_input, user);
  transformer.observe(on_input == nullptr ? nullptr : &observer);
  try {
    for (const Sublayer which : {Sublayer::mixer, Sublayer::mlp}) {
      transformer.run_sublayer(which, layer, hidden, session.state());
    }
  } catch (...) {
    transformer.observe(nullptr);
    throw;
  }
  transformer.observe(nullptr);
}

std::unique_ptr<leq_logits> run_head(Session& session, std::span<const float> hidden) {
  Transformer& transformer = session.transformer();
  const auto width = static_cast<std::size_t>(transformer.config().width);
  auto logits = std::make_unique<leq_logits>();
  logits->rows = hidden.size() / width;
  logits->columns = static_cast<std::size_t>(transformer.config().vocab);
  logits->numbers.resize(logits->rows * logits->columns);
  const auto most = static_cast<std::size_t>(
      std::min(session.limits().output_tokens, session.limits().batch_tokens));
  for (std::size_t first = 0; first < logits->rows; first += most) {
    const std::size_t rows = std::min(most, logits->rows - first);
    const Rows& some = transformer.head(hidden.subspan(first * width, rows * width));
    transformer.backend().download(
        some, static_cast<std::int64_t>(rows),
        std::span(logits->numbers).subspan(first * logits->columns, rows * logits->columns));
  }
  return logits;
}

}  // namespace
}  // namespace leq::capi

using namespace leq;
using namespace leq::capi;

extern "C" {

leq_status leq_embed_tokens(leq_session* session, const leq_token* tokens, size_t count,
                            float* hidden, size_t width, leq_error* error) {
  return guarded(error, [&] {
    const auto given = tokens_argument(tokens, count);
    with_layers(session, hidden, count, width, [&](Session& layers) {
      const std::int64_t vocab = layers.transformer().config().vocab;
      for (std::size_t i = 0; i < count; ++i) {
        require(given[i] >= 0 && given[i] < vocab, "tokens[", i, "] ", given[i],
                ": expected an id from 0 to ", vocab - 1);
      }
      layers.transformer().embed(given, {hidden, count * width});
    });
  });
}

leq_status leq_run_layer(leq_session* session, int64_t layer, float* hidden, size_t count,
                         size_t width, leq_on_input on_input, void* user, leq_error* error) {
  return guarded(error, [&] {
    with_layers(session, hidden, count, width, [&](Session& layers) {
      run_layer(layers, layer, {hidden, count * width}, on_input, user);
    });
  });
}

leq_status leq_run_head(leq_session* session, const float* hidden, size_t count, size_t width,
                        leq_logits** logits, leq_error* error) {
  if (logits != nullptr) *logits = nullptr;
  return guarded(error, [&] {
    require_use(logits != nullptr, "logits is NULL");
    with_layers(session, hidden, count, width, [&](Session& layers) {
      *logits = run_head(layers, {hidden, count * width}).release();
    });
  });
}

}  // extern "C"
