// A quantization method: picks codes and scales of one weight. Methods are functions in a table
// (methods.cpp); what they produce is stored in the few schemes of tensor/quant_scheme.h, and no
// reader of a file can tell who chose its codes.
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

// What a method wants to know of a linear's inputs.
enum class Needs : std::uint8_t {
  nothing,
  diagonal,  // mean squares of each input channel; weights of 1 where there are none
  hessian,   // X^T X
};

struct MethodOptions {
  double damping = 0.01;     // GPTQ: the diagonal grows by this share
  double shrinkage = 0;      // the same, wherever X^T X is used: of few tokens it is an estimate
  bool act_order = true;     // GPTQ: columns by falling diagonal
  int descent_passes = 3;    // GPTQ+, ZeroQuant+: coordinate descent
  bool refit_scales = true;  // GPTQ+, ZeroQuant+: scales solved again for the codes found
};

// One weight W [N][K] and the inputs that it will meet; or some of its rows, perhaps none, where
// ranks divide them: all call then, in turn with each other.
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

// d H d^T of the rows d of W - Q and of W, H = X^T X times one number: [N].
struct OutputErrors {
  std::vector<double> errors, energies;
};

struct MethodResult {
  ChosenCodes codes;
  std::string note;  // what a user should know, such as a fallback; empty where all went well
  // Of methods that weigh errors by H: no need to do so again.
  std::optional<OutputErrors> outputs = {};
};

struct QuantMethod {
  std::string_view name;     // as CheckpointOptions::method has it
  std::string_view summary;  // one line for people
  Needs needs = Needs::nothing;
  bool (*supports)(const QuantScheme& scheme) = nullptr;
  MethodResult (*choose)(const MethodInput& input) = nullptr;
  bool teacher_inputs = false;  // statistics of the unquantized model, never true-sequential
  bool adds_biases = false;     // where bias correction has none to correct
  // Whether ranks may divide a weight's rows: those of a scheme whose rows share no scale are
  // chosen each by itself, but for the scale_mul that choose_ranges finds.
  bool divides_rows = false;
  std::string_view own_type = "int8";  // where the user names none
};

// All methods that choose codes, in the order in which people should see them.
std::span<const QuantMethod> quant_methods();
// Throws Error listing the names where there is no such method.
const QuantMethod& require_method(std::string_view name);

}  // namespace leq
