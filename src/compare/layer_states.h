// Hidden states of one window, layer by layer.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/open_model.h"
#include "model/session.h"

namespace leq {

// Rows of the tables for a window's tokens, [T][W]: what enters the first layer of a model whose
// residual stream is not rotated.
std::vector<float> embedded_states(const Model& model, std::span<const Token> tokens);
// The states after a layer. The session's cache is empty before and after.
std::vector<float> states_after(Session& session, std::int64_t layer, std::vector<float> hidden);
// ... and after all of them.
std::vector<float> last_states(const Model& model, Session& session, std::span<const Token> tokens);

}  // namespace leq
