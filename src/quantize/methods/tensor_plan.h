// The plan of a model's tensors: the scheme, input format and method of each.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/linear_sites.h"
#include "model/model_config.h"
#include "quantize/methods/method.h"
#include "tensor/pack.h"

namespace leq {

// How one tensor is stored.
struct TensorPlan {
  QuantScheme scheme;
  ActKind act = ActKind::none;
  OnlineMode online_mode = OnlineMode::safe;  // for act online
  const QuantMethod* method = nullptr;        // nullptr: nearest codes (absmax)
  MethodOptions options = {};
  std::string label = {};  // name of the method in the file, if not method->name: "awq"
};
// Called with a tensor's name, "layers.3.q", and its role.
using TensorPlanner = std::function<TensorPlan(const std::string& name, TensorRole role)>;

// How the inputs of quantized linears are quantized.
enum class ActChoice : std::uint8_t {
  automatic,  // int8 with a scale per 128 columns; in narrow models per 32 for down and head if
              // their weights have a scale per row or per 32 columns; or what a TypeOverride sets
  none,       // inputs are not quantized
  row,        // this kind for all linears of blocks; the head as with automatic
  g128,
  g32,
  tensor,
  online,
  streaming,  // online: one scale, updated after each step
};
std::optional<ActChoice> parse_act_choice(std::string_view name);  // "auto", "none", "row", ...
std::string_view act_choice_name(ActChoice choice);

// Models narrower than this get finer groups, because rounding errors average over fewer columns.
inline constexpr std::int64_t kNarrowWidth = 2048;

// Float types store vectors and learned positions in f32. Integer types store linears of blocks in
// the scheme, embedding and head in int8 per row (a tied table is planned as the head).
TensorPlan plan_tensor(TensorRole role, const QuantScheme& type, const ModelConfig& config,
                       ActChoice act);

// The type of all tensors whose names contain a match of a regular expression (ECMAScript).
struct TypeOverride {
  std::string pattern;
  QuantScheme scheme;
  // Inputs of block linears, where the type fits them and ActChoice::automatic leaves them open. A
  // later override without this keeps an earlier one's.
  std::optional<ActKind> act = {};
};

struct PlanRequest {
  QuantScheme type;
  ActChoice act = ActChoice::automatic;
  const QuantMethod* method = nullptr;  // method of the linears of blocks
  MethodOptions options = {};
  std::string label = {};
  std::vector<TypeOverride> overrides = {};  // the last match takes precedence
};
// The plan of all tensors. Throws Error if a pattern is not a regular expression, matches no tensor
// that can be quantized, or gives embedding or head a type other than a float type or int8; if the
// method does not support a type; and as check_plan does.
TensorPlanner make_planner(const PlanRequest& request, const ModelConfig& config);

// Throws Error naming two linears that read the same input but need it in different formats.
void check_plan(const ModelConfig& config, const TensorPlanner& plan);

// One tensor to be quantized, whose f32 rows are read on demand.
struct TensorInput {
  std::string name;
  Shape shape;  // [N, K] or [n]
  TensorRole role = TensorRole::vector;
  std::function<void(std::int64_t first, std::int64_t count, std::span<float> out)> read;
  std::function<void()> drop;  // optional; frees what reading has cached
  // Reads rows as codes that the checkpoint stores, like TensorSource::read_codes; may be empty.
  std::function<bool(const QuantScheme& scheme, std::int64_t first, std::int64_t count,
                     ChosenCodes& out)>
      read_codes = {};
  std::optional<QuantScheme> own_scheme = {};  // stores the checkpoint's values exactly
  std::string source_type = {};                // "Q4_K"; empty if all tensors have the same type
};

}  // namespace leq
