#include "compare/layer_states.h"

#include "tensor/pack.h"

namespace leq {

std::vector<float> embedded_states(const Model& model, std::span<const Token> tokens) {
  const auto width = static_cast<std::size_t>(model.config().width);
  std::vector<float> hidden(tokens.size() * width), row(width);
  const StoredTensor* table = model.file().find("token_embedding");
  const StoredTensor* places = model.file().find("position_embedding");
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    const auto out = std::span(hidden).subspan(t * width, width);
    unpack_row(table->view, tokens[t], out);
    if (places == nullptr) continue;
    unpack_row(places->view, static_cast<std::int64_t>(t), row);
    for (std::size_t i = 0; i < width; ++i) out[i] += row[i];
  }
  return hidden;
}

std::vector<float> states_after(Session& session, std::int64_t layer, std::vector<float> hidden) {
  for (const Sublayer which : {Sublayer::mixer, Sublayer::mlp}) {
    session.transformer().run_sublayer(which, layer, hidden, session.state());
  }
  return hidden;
}

std::vector<float> visit_layer_states(const Model& model, Session& session,
                                      std::span<const Token> tokens, const StateVisitor& visit) {
  std::vector<float> hidden = embedded_states(model, tokens);
  visit(-1, hidden);
  for (std::int64_t layer = 0; layer < model.config().layer_count(); ++layer) {
    hidden = states_after(session, layer, std::move(hidden));
    visit(layer, hidden);
  }
  return hidden;
}

}  // namespace leq
