// Which kernels a step of llama-7b launches, by the choices of cuda/kernels: a change of a kernel's
// shape there must be made here too; names of kernels are looked up, so a lost one is an error.
// Gate, up makes the codes of down while it finishes, attention those of o.
#include <cmath>

#include "bench/gpu/model.h"

namespace leq::bench {
namespace {

constexpr double kWidth = 4096, kHidden = 11008, kHeads = 32, kHeadDim = 128, kVocabulary = 32000;
constexpr int kLayers = 32;
// Where weights and inputs have groups, each of a thread's 64 sums of a slab has a scale of its
// own: 64 products, and what fetches the other side's scales (docs/cuda-kernels.md).
constexpr double kBothInGroups = 76;
// Where inputs alone have groups, on wgmma: the shortest way is that of weights alone.
constexpr double kInputsInGroups = 12;
// Where no warps of their own fetch (mma), a round also brings what the next slab's groups need;
// its shortest way goes around that.
constexpr double kFetchOfGroups = 26;
// What float_gemm_wgmma unpacks of the next block; the shortest way is that of the last one.
constexpr double kFetchOfPart = 30;
constexpr int kWaiting = 8;  // bytes of a group's sum that waits (int_gemv_groups.cuh)

struct Linear {
  const char* name;
  double outputs, inputs;
  bool in_groups;  // inputs with a scale for 128 columns
};
constexpr Linear kQkv = {"qkv", 3 * kWidth, kWidth, false}, kO = {"o", kWidth, kWidth, true},
                 kGateUp = {"gate, up", 2 * kHidden, kWidth, false},
                 kDown = {"down", kWidth, kHidden, true},
                 kHead = {"head", kVocabulary, kWidth, true};

double weight_bytes(const Linear& linear, int bits) {
  const double numbers = linear.outputs * linear.inputs;
  if (bits == 16) return 2 * numbers;
  return bits == 8 ? numbers + 4 * linear.outputs : numbers * bits / 8 + numbers / 128 * 2;
}

// A block for each row.
Launch rows(const char* name, const char* kernel, double blocks, double width, double trips) {
  Launch launch;
  launch.name = name;
  launch.kernel = kernel;
  launch.blocks = blocks;
  launch.warps = 8;
  launch.shared_bytes = static_cast<int>(4 * width);
  launch.other = 40 + 20 * width / 256;
  launch.round_trips = trips;
  return launch;
}

// The head is stored in 8 bits always.
Launch gemv(const Linear& linear, const Scheme& scheme) {
  const int bits = linear.outputs == kHead.outputs ? 8 : scheme.bits;
  const bool grouped = bits < 8 || linear.in_groups;
  Launch launch;
  launch.name = linear.name;
  launch.kernel = grouped ? "int_gemv_groups<" + std::to_string(bits) + ",false>"
                          : std::string("int_gemv<8,1,false,false>");
  launch.blocks = std::ceil(linear.outputs / 16);
  launch.warps = 8;
  launch.shared_bytes = grouped ? static_cast<int>(linear.inputs / 128 * 16 * kWaiting) : 0;
  launch.products = linear.outputs * linear.inputs;
  launch.work = launch.products / 128;
  launch.bytes = weight_bytes(linear, bits);
  launch.ahead_bytes = grouped ? 512.0 * bits : 2048;
  launch.longest = grouped;
  return launch;
}

bool is_hopper(const Machine& machine) {
  return std::string_view(machine.architecture) == "sm_90a";
}

// Blocks of `machine` walk over `tiles` of 128 outputs, 128 inputs a round.
void walk(Launch& launch, const Machine& machine, double tiles, double inputs) {
  launch.blocks = machine.multiprocessors;
  launch.warps = 12;
  launch.shared_bytes = 200 << 10;
  const double walked = std::ceil(tiles / machine.multiprocessors) * machine.multiprocessors;
  launch.rounds = walked * 8 * inputs / 128;
  launch.products *= walked / tiles;
  launch.other = 1200 * walked / machine.multiprocessors;
}

// f32 inputs in two pieces.
Launch float_gemm(const Machine& machine, const Linear& linear, const Scheme& scheme,
                  double tokens) {
  const std::string weights =
      scheme.bits == 16 ? "HalfWeights<2>" : "CodeWeights<" + std::to_string(scheme.bits) + ">";
  const double tiles = std::ceil(tokens / 128) * std::ceil(linear.outputs / 128);
  Launch launch;
  launch.name = linear.name;
  launch.products = 2 * tokens * linear.outputs * linear.inputs;
  launch.bytes = weight_bytes(linear, scheme.bits) + tokens * 4 * (linear.inputs + linear.outputs);
  if (is_hopper(machine)) {
    launch.kernel = "float_gemm_wgmma<FloatHopperShape<" + weights + ">>";
    launch.unit = Unit::wgmma_f16;
    launch.beside = kFetchOfPart;
    walk(launch, machine, tiles, linear.inputs);
  } else {
    launch.kernel = "float_gemm<" + weights + ",FloatGemmShape<128,128,2,4,32,4>>";
    launch.unit = Unit::mma_f16;
    launch.blocks = tiles;
    launch.warps = 8;
    launch.shared_bytes = 96 << 10;
    launch.work = launch.products / (16 * 8 * 16);
    launch.other = 1200;
  }
  return launch;
}

Launch gemm(const Machine& machine, const Linear& linear, const Scheme& scheme, double tokens) {
  if (scheme.f32_inputs) return float_gemm(machine, linear, scheme, tokens);
  const bool hopper = is_hopper(machine);
  const bool grouped = scheme.bits < 8 || linear.in_groups;
  const std::string bits = std::to_string(scheme.bits), group = grouped ? "128" : "0";
  const double tile_tokens = hopper && !grouped && tokens > 128 ? 256 : 128;
  const double tiles = std::ceil(tokens / tile_tokens) * std::ceil(linear.outputs / 128);
  Launch launch;
  launch.name = linear.name;
  launch.products = tokens * linear.outputs * linear.inputs;
  launch.beside = scheme.bits < 8 && linear.in_groups ? kBothInGroups : 0;
  launch.bytes = weight_bytes(linear, scheme.bits) + tokens * (linear.inputs + 4 * linear.outputs);
  if (hopper) {
    if (scheme.bits == 8 && grouped) launch.beside = kInputsInGroups;
    launch.kernel = "int_gemm_wgmma<HopperShape<" + bits + "," + group + "," +
                    std::to_string(static_cast<int>(tile_tokens)) + "," +
                    (scheme.bits < 8 ? "true" : "false") + ">,ScaledSum>";
    launch.unit = Unit::wgmma_s8;
    walk(launch, machine, tiles, linear.inputs);
  } else {
    launch.kernel = "int_gemm<GemmShape<128,128,2,4,3>," + bits + "," + group + ",ScaledSum>";
    launch.unit = Unit::mma_s8;
    launch.blocks = tiles;
    launch.warps = 8;
    launch.shared_bytes = 96 << 10;
    launch.work = launch.products / (16 * 8 * 32);
    launch.other = 1200;
    if (grouped) launch.beside += kFetchOfGroups;
  }
  return launch;
}

std::string attention_kernel(const char* shape) {
  return std::string("attention_tensor<TensorShape<(leq::KvType)2,(leq::KvType)2,128,") + shape;
}

}  // namespace

std::vector<Part> token_of_7b(const Scheme& scheme, int depth) {
  const double spans = std::ceil((depth + 1) / 256.0), tiles = std::ceil((depth + 1) / 64.0);
  const double tile_bytes = 64 * (2 * kHeadDim + 8);
  Launch attention;
  attention.name = "attention";
  attention.kernel = attention_kernel("1,4,1,");
  attention.blocks = kHeads * spans;
  attention.warps = 4;
  attention.shared_bytes = static_cast<int>(3 * tile_bytes) + 6144;
  attention.unit = Unit::mma_f16;
  attention.rounds = 4 * tiles * kHeads;
  attention.products = attention.rounds * 28 * 16 * 8 * 16;
  attention.bytes = tiles * kHeads * tile_bytes;
  attention.ahead_bytes = 2 * tile_bytes / 4;
  attention.other = 800;
  // With the join of several spans, and codes.
  attention.round_trips = spans > 1 ? 7 : 5;

  return {
      {rows("norm", "norm_rows", 1, kWidth, 2), 2 * kLayers},
      {gemv(kQkv, scheme), kLayers},
      {rows("rope, append", "rope_append", 96, kHeadDim, 3), kLayers},
      {attention, kLayers},
      {gemv(kO, scheme), kLayers},
      {gemv(kGateUp, scheme), kLayers},
      {gemv(kDown, scheme), kLayers},
      {rows("last norm", "norm_rows", 1, kWidth, 2), 1},
      {gemv(kHead, scheme), 1},
      {rows("embed", "embed_rows", 1, kWidth, 2), 1},
  };
}

std::vector<Part> prompt_of_7b(const Machine& machine, const Scheme& scheme, int tokens) {
  const double pairs = 0.5 * tokens * tokens;  // query and key, causal
  Launch attention;
  attention.name = "attention";
  attention.kernel = attention_kernel("4,2,2,");
  attention.blocks = std::ceil(tokens / 128.0) * kHeads;
  attention.warps = 8;
  attention.shared_bytes = 75 << 10;
  attention.unit = Unit::mma_f16;
  // Two warps have 32 queries and 64 keys in a round.
  attention.rounds = pairs / (16 * 64) * kHeads;
  // In f16 products: those with int8 keys take less time.
  const double keys = machine.f16_products / machine.s8_products;
  attention.products = pairs * kHeads * kHeadDim * (1 + keys);
  attention.bytes = kHeads * tokens * (2 * kHeadDim + 8);
  attention.other = 800;
  attention.round_trips = 4;
  const double row_bytes = tokens * (scheme.f32_inputs ? 8.0 : 5.0);  // f32, and codes or pieces
  const auto row_kernel = [&](const char* name, const char* kernel, double width) {
    Launch launch = rows(name, kernel, tokens, width, 2);
    launch.bytes = row_bytes * width;
    return launch;
  };
  return {
      {row_kernel("norm", "norm_rows", kWidth), 2 * kLayers},
      {gemm(machine, kQkv, scheme, tokens), kLayers},
      {row_kernel("rope, append", "rope_append", 3 * kWidth), kLayers},
      {attention, kLayers},
      {gemm(machine, kO, scheme, tokens), kLayers},
      {gemm(machine, kGateUp, scheme, tokens), kLayers},
      {row_kernel("codes of down", "quantize_rows", kHidden), kLayers},
      {gemm(machine, kDown, scheme, tokens), kLayers},
      {gemv(kHead, scheme), 1},
  };
}

}  // namespace leq::bench
