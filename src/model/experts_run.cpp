#include "model/experts_run.h"

#include "backend/rows_slice.h"

namespace leq {
namespace {

const LayerLinear& at(const std::vector<LayerLinear>& linears, std::int64_t expert) {
  return linears[static_cast<std::size_t>(expert)];
}

}  // namespace

void ExpertsRun::route(const Rows& normed, std::int64_t tokens) {
  const ExpertsMlpConfig& config = weights.config;
  Rows logits = work.router_logits_of(config);  // [T, E]
  backend.linear(normed, tokens, weights.router, Epilogue::none, logits);
  backend.route(logits, tokens, {config.experts, config.active, config.normalized},
                weights.router.name, work.routes);
  if (!weights.shared) return;
  backend.linear(normed, tokens, weights.shared->gate, Epilogue::none, work.shared_gate);
  backend.route(work.shared_gate, tokens, {.experts = 1, .active = 1, .by_sigmoid = true},
                weights.shared->gate.name, work.shared_routes);
}

void ExpertsRun::gate(const Rows& normed) {
  const auto gated = [&](const auto& gate_up, const auto& down, const ExpertRoutes& routes) {
    const SharedBlock product = work.shared_input_of(down(0));
    const auto reader = [&](std::int64_t expert) {
      const RowsConsumer whole = work.consumer_of(down(expert));
      if (ranks.alone()) return whole;
      return slice_consumer(whole, product.whole.rows, ranks.own().mlp(down(expert).inputs));
    };
    backend.experts_gated(normed, routes, {gate_up, reader},
                          work.grouped_input_of(weights.gate_up.front()), product.own.rows);
    ranks.gather(product, routes.rows(), Receivers::all, down(0).name);
  };
  const auto expert = [](const std::vector<LayerLinear>& linears) {
    return [&linears](std::int64_t e) -> const LayerLinear& { return at(linears, e); };
  };
  gated(expert(weights.gate_up), expert(weights.down), work.routes);
  if (!weights.shared) return;
  const auto shared = [](const LayerLinear& linear) {
    return [&linear](std::int64_t) -> const LayerLinear& { return linear; };
  };
  gated(shared(weights.shared->gate_up), shared(weights.shared->down), work.shared_routes);
}

void ExpertsRun::each_product(
    const std::function<void(const LayerLinear& linear, const Rows& rows)>& visit) const {
  const SharedBlock product = work.shared_input_of(weights.down.front());
  for (std::int64_t e = 0; e < weights.config.experts; ++e) {
    const auto i = static_cast<std::size_t>(e);
    const Slice group = {work.routes.first[i], work.routes.first[i + 1]};
    visit(weights.down[i], slice_tokens(product.whole.rows, group));
  }
  if (!weights.shared) return;
  const LayerLinear& down = weights.shared->down;
  visit(down, slice_tokens(work.shared_input_of(down).whole.rows, {0, work.shared_routes.rows()}));
}

void ExpertsRun::add(Rows& x) {
  const auto expert = [&](std::int64_t e) -> const Linear& { return at(weights.down, e); };
  backend.experts_add(work.shared_input_of(weights.down.front()).whole, work.routes, expert, x);
  if (!weights.shared) return;
  const LayerLinear& down = weights.shared->down;
  const auto shared = [&](std::int64_t) -> const Linear& { return down; };
  backend.experts_add(work.shared_input_of(down).whole, work.shared_routes, shared, x);
}

}  // namespace leq
