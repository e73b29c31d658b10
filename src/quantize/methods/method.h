// A quantization method chooses codes and scales of one weight. Methods are functions in a table
// (methods.cpp). Their results use the few schemes of tensor/quant_scheme.h, so that a file's
// reader does not depend on the method.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/thread_pool.h"
#include "quantize/calibration/statistics.h"
#include "ranks/communicator.h"
#include "tensor/pack.h"
#include "tensor/quant_scheme.h"

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
  int descent_passes = 3;    // GPTQ+, ZeroQuant+: passes of coordinate descent
  bool refit_scales = true;  // GPTQ+, ZeroQuant+: refits scales for the chosen codes
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
  bool teacher_inputs = false;  // uses statistics of the unquantized model, not true-sequential
  bool adds_biases = false;     // adds missing biases for bias correction
  // Whether ranks may divide a weight's rows. Rows of a scheme without shared scales are chosen
  // independently, except for scale_mul, which choose_ranges computes over all ranks.
  bool divides_rows = false;
  std::string_view own_type = "int8";  // default type of the method
};

// All methods that choose codes, in display order.
std::span<const QuantMethod> quant_methods();
// Throws Error listing all names if there is no method of this name.
const QuantMethod& require_method(std::string_view name);

// The methods that choose codes. Each is defined in the file of its name and listed in methods.cpp.
QuantMethod absmax_method();
QuantMethod zeropoint_method();
QuantMethod rtn_method();
QuantMethod zeroquant_method();
QuantMethod zeroquant_plus_method();
QuantMethod gptq_method();
QuantMethod gptq_plus_method();
QuantMethod nf4_method();
QuantMethod billm_method();

}  // namespace leq
