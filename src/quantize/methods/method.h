// A quantization method chooses codes and scales of one weight. Methods are functions in a table
// (method.cpp). Their results use the few schemes of tensor/quant_scheme.h, so that a file's
// reader does not depend on the method.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/thread_pool.h"
#include "model/linear_sites.h"
#include "model/model_config.h"
#include "quantize/calibration/calibration.h"
#include "ranks/communicator.h"
#include "tensor/pack.h"
#include "tensor/quant_scheme.h"
#include "tensor/table_codes.h"

namespace leq {

// The input statistics that a method needs.
enum class Needs : std::uint8_t {
  nothing,
  diagonal,  // mean square of each input channel; 1 without statistics
  hessian,   // X^T X
};

struct MethodOptions {
  double damping = 0.01;     // GPTQ: relative increase of H's diagonal
  double shrinkage = 0;      // share of its diagonal added to X^T X, for every use: shrinkage_of
  bool act_order = true;     // GPTQ: rounds columns by descending diagonal of H
  int descent_passes = 3;    // GPTQ+: passes of coordinate descent
  bool refit_scales = true;  // GPTQ+: refits scales for the chosen codes
};

// One weight W [N][K] with the statistics of its inputs. If ranks divide the rows, each passes its
// own, possibly none; all ranks then call the method for the same weights in the same order.
struct MethodInput {
  std::string_view name;  // name for error messages
  std::span<const float> weight;
  std::int64_t rows = 0;     // N
  std::int64_t columns = 0;  // K
  QuantScheme scheme;        // an integer scheme, nf4 or b1
  const InputStatistics* statistics = nullptr;
  MethodOptions options;
  ThreadPool* pool = nullptr;  // results do not depend on the number of threads
  Communicator* ranks = &one_rank();
};

// Losses d H d^T of each row d of W - Q and of W: [N]. H = X^T X times an unknown factor.
struct OutputErrors {
  std::vector<double> errors, energies;
};

struct MethodResult {
  ChosenCodes codes;
  std::string note;  // message for the user, for example about a fallback
  // Set by methods that weight errors by H, so that the losses need not be computed again.
  std::optional<OutputErrors> outputs = {};
};

struct QuantMethod {
  std::string_view name;     // the name that QuantizeOptions::method uses
  std::string_view summary;  // one line for users
  Needs needs = Needs::nothing;
  bool (*supports)(const QuantScheme& scheme) = nullptr;
  MethodResult (*choose)(const MethodInput& input) = nullptr;
  // Whether ranks may divide a weight's rows. Rows of a scheme without shared scales are chosen
  // independently, except for scale_mul, which choose_ranges computes over all ranks.
  bool divides_rows = false;
  std::string_view own_type = "int8";  // default type of the method
};

// All methods that choose codes, in display order.
std::span<const QuantMethod> quant_methods();
// Throws Error listing all names if there is no method of this name.
const QuantMethod& require_method(std::string_view name);

// Method billm (billm.cpp); the others are rows of the table in method.cpp.
QuantMethod billm_method();

// The plan of a model's tensors: the scheme, input format and method of each.

// How one tensor is stored.
struct TensorPlan {
  QuantScheme scheme;
  ActKind act = ActKind::none;
  OnlineMode online_mode = OnlineMode::safe;  // for act online
  const QuantMethod* method = nullptr;        // nullptr: nearest codes (absmax)
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

// Ranges: rules for the scale of one group of weights, and the ranges of a whole weight. Scales are
// rounded to storable values before any code is computed with them.

// Limits of b-bit integer codes. Symmetric schemes: [-127, 127] at 8 bits, otherwise [-2^(b-1),
// 2^(b-1) - 1]. With a zero point: [0, 2^b - 1].
struct CodeLimits {
  int low = 0, high = 0;
  // Of codes with a table, which are their numbers here: the nearest ones (tensor/table_codes.h).
  const float* table = nullptr;
};
CodeLimits code_limits(const QuantScheme& scheme);

// The range that a rule chooses for the values x of one group, before rounding:
// value = scale * code or, with a zero point z = round(-low / scale), value = scale * (code - z).
struct Range {
  float scale = 0;
  float low = 0;  // <= 0; without a zero point always 0
};

// A rule. `x` has at least one finite value. `importance` is the weight (>= 0) of each squared
// error, which only weighted rules read. `bits` is 2, 3, 4 or 8.
using RangeRule = Range (*)(std::span<const float> x, std::span<const float> importance, int bits);

// scale = max |x| / (2^(b-1) - 1), without zero point.
Range fit_absmax(std::span<const float> x, std::span<const float> importance, int bits);
// Below 8 bits, the first x of largest |x| gets the additional negative level:
// scale = x / -2^(b-1), which may be negative. With 8 bits the result is that of fit_absmax.
Range fit_signed(std::span<const float> x, std::span<const float> importance, int bits);
// With zero point: low = min(0, min x), high = max(0, max x), scale = (high - low) / (2^b - 1).
Range fit_minmax(std::span<const float> x, std::span<const float> importance, int bits);
// Symmetric codes with (nearly) the least sum w (x - s l)^2. Tries 19 scales around each of the two
// that map the largest |x| to the lowest or highest level. For the codes l of each, the best scale
// is sum w x l / sum w l^2. Finally single codes change by one as long as the error decreases. (The
// idea is that of llama.cpp's importance matrix.)
Range fit_weighted(std::span<const float> x, std::span<const float> importance, int bits);
// Like fit_weighted, but tries five zero points around fit_minmax's, with 19 scales for each.
Range fit_weighted_zero(std::span<const float> x, std::span<const float> importance, int bits);

// Ranges of a weight [N][K] as values that a file can store, before codes are chosen.
struct Ranges {
  std::int64_t group = 0;           // columns that share a scale; K with a scale per row
  std::int64_t per_row = 0;         // G = ceil(K / group)
  std::vector<float> scales;        // [N][G]
  std::vector<float> divisors;      // [N][G] scales; infinity if all codes have value 0
  std::vector<std::uint8_t> zeros;  // [N][G] if there are zero points, otherwise empty
  float scale_mul = 1.0f;           // common factor of f16 group scales, otherwise 1
  CodeLimits limits;

  std::size_t index(std::int64_t row, std::int64_t column) const {
    return static_cast<std::size_t>(row * per_row + column / group);
  }
  int zero(std::size_t at) const { return zeros.empty() ? 0 : zeros[at]; }
};

// code = clip(round_half_even(x / s) + z), with an f32 division (docs/leq-format.md). Clipping
// before rounding is equivalent, because the limits are integers. With a table: the number.
inline int nearest_code(float x, float divisor, int zero, CodeLimits limits) {
  constexpr float kRounder = 12582912.0f;  // 1.5 * 2^23: adding it rounds to nearest even
  const auto low = static_cast<float>(limits.low - zero);
  const auto high = static_cast<float>(limits.high - zero);
  const float y = x / divisor;
  if (limits.table != nullptr) return static_cast<int>(limits.table[half_steps(y)]);
  return static_cast<int>(((y < low ? low : y > high ? high : y) + kRounder) - kRounder) + zero;
}

// Throws Error naming weight, row and column if a value is not finite.
void require_finite(const MethodInput& input);

// Ranges of input.weight by `rule`, for integer schemes. `importance` is [K], or empty for weights
// of 1. A group whose largest |x| (zero point: range) is below kSmallestAbsmax gets scale 1 and
// codes of value 0; Scaling::tensor uses the scale of the row with the largest scale.
Ranges choose_ranges(const MethodInput& input, RangeRule rule,
                     std::span<const float> importance = {});
// Ranges of method rtn: least squared error, weighted by input_importance. With one scale
// per tensor returns plain ranges, because at 8 bits a search over all rows gains
// nothing.
Ranges weighted_ranges(const MethodInput& input);
// Ranges from the largest values (with zero point: minimum and maximum): fit_signed or fit_minmax.
Ranges plain_ranges(const MethodInput& input);
// Rounds every weight to its nearest code in these ranges; codes with a table are their numbers.
ChosenCodes nearest_codes(const MethodInput& input, Ranges ranges);

// Weights of squared errors for each input channel: the mean squares of the inputs [K]. Empty
// without statistics or if all inputs were 0.
std::vector<float> input_importance(const MethodInput& input);

// Calls body(row) for every row, in the pool if there is one.
template <class Body>
void for_rows(ThreadPool* pool, std::int64_t rows, const Body& body) {
  if (pool == nullptr) {
    for (std::int64_t row = 0; row < rows; ++row) body(row);
    return;
  }
  pool->run(rows, [&body](std::int64_t row, int) { body(row); });
}

}  // namespace leq
