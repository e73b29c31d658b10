// A quantization method: chooses codes and scales of one weight. Methods are functions in a table
// (methods.cpp); their results are stored in the few schemes of tensor/quant_scheme.h, so that
// reading a file does not depend on the method.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/thread_pool.h"
#include "comm/communicator.h"
#include "quantize/calibration/statistics.h"
#include "tensor/chosen_codes.h"
#include "tensor/quant_scheme.h"

namespace leq {

// The input statistics that a method needs.
enum class Needs : std::uint8_t {
  nothing,
  diagonal,  // mean square of each input channel; 1 where there are no statistics
  hessian,   // X^T X
};

struct MethodOptions {
  double damping = 0.01;     // GPTQ: relative increase of the diagonal
  double shrinkage = 0;      // the same, wherever X^T X is used: of few tokens it is an estimate
  bool act_order = true;     // GPTQ: columns by descending diagonal
  int descent_passes = 3;    // GPTQ+, ZeroQuant+: coordinate descent
  bool refit_scales = true;  // GPTQ+, ZeroQuant+: refits scales for the chosen codes
};

// One weight W [N][K] with the statistics of its inputs; or some of its rows, possibly none, where
// ranks divide them: all ranks call the method then, for the same weights in the same order.
struct MethodInput {
  std::string_view name;  // for errors
  std::span<const float> weight;
  std::int64_t rows = 0;     // N
  std::int64_t columns = 0;  // K
  QuantScheme scheme;        // an integer scheme, nf4 or b1
  const InputStatistics* statistics = nullptr;
  MethodOptions options;
  ThreadPool* pool = nullptr;  // the result is the same for any number of threads
  Communicator* ranks = &one_rank();
};

// d H d^T of the rows d of W - Q and of W, with H = X^T X times one number: [N].
struct OutputErrors {
  std::vector<double> errors, energies;
};

struct MethodResult {
  ChosenCodes codes;
  std::string note;  // message for the user, such as a fallback; empty if none
  // Set by methods that weight errors by H, so that they need not be computed again.
  std::optional<OutputErrors> outputs = {};
};

struct QuantMethod {
  std::string_view name;     // as in CheckpointOptions::method
  std::string_view summary;  // one line for users
  Needs needs = Needs::nothing;
  bool (*supports)(const QuantScheme& scheme) = nullptr;
  MethodResult (*choose)(const MethodInput& input) = nullptr;
  bool teacher_inputs = false;  // needs statistics of the unquantized model, never true-sequential
  bool adds_biases = false;     // adds a bias where bias correction needs one
  // Whether ranks may divide a weight's rows: rows of a scheme without shared scales are chosen
  // independently, except for the scale_mul that choose_ranges finds.
  bool divides_rows = false;
  std::string_view own_type = "int8";  // default type
};

// All methods that choose codes, in display order.
std::span<const QuantMethod> quant_methods();
// Throws Error listing the names where there is no such method.
const QuantMethod& require_method(std::string_view name);

}  // namespace leq
