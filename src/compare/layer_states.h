// Hidden states of one window, layer by layer.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "model/open_model.h"
#include "model/session.h"

namespace leq {

// The embeddings of a window's tokens, [T][W], which are the input of the first layer.
std::vector<float> embedded_states(const Model& model, std::span<const Token> tokens);
// The hidden states after a layer. The session's cache is empty before and after the call.
std::vector<float> states_after(Session& session, std::int64_t layer, std::vector<float> hidden);
// Calls visit(layer, states [T][W]) for the embedding, with layer = -1, and after each layer.
// Returns the states after the last layer.
using StateVisitor = std::function<void(std::int64_t layer, std::span<const float> states)>;
std::vector<float> visit_layer_states(
    const Model& model, Session& session, std::span<const Token> tokens,
    const StateVisitor& visit = [](auto, auto) {});

}  // namespace leq
