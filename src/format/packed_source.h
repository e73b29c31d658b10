// The tensors of a quantized safetensors checkpoint as a TensorSource in which every weight is one
// tensor: "X.weight" from X.qweight, X.scales, X.qzeros and X.g_idx. The experts of gpt-oss, in
// blocks of MXFP4, are one tensor "X.weight" [E][N][K] from X_blocks [E][N][K / 32][16] and
// X_scales.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "format/packed_matrix.h"
#include "format/tensor_source.h"

namespace leq {

enum class PackedMethod : std::uint8_t { fp8, gptq, awq, compressed_tensors, modelopt, mxfp4 };

// Settings from config.json that cannot be derived from the tensors.
struct PackedOptions {
  PackedMethod method = PackedMethod::fp8;
  std::vector<int> bits;        // possible bits of integers; empty: by their shapes
  std::int64_t group = 0;       // columns per scale; 0: unknown, -1: whole rows
  bool zeros_plus_one = false;  // GPTQ, version 1
  std::int64_t block_rows = 128, block_columns = 128;  // block size of block scales
};
std::string_view packed_method_name(PackedMethod method);

class PackedSource : public TensorSource {
 public:
  // Throws Error naming tensor and location: a part that is missing or has the wrong shape or type,
  // or codes whose layout cannot be determined.
  PackedSource(std::unique_ptr<TensorSource> files, const PackedOptions& options);

  void drop(const SourceTensor& tensor) const override { files_->drop(tensor); }
  void read(const SourceTensor& tensor, std::int64_t first, std::span<float> out) const override;
  bool has_types() const override { return true; }
  std::optional<QuantScheme> own_scheme(const SourceTensor& tensor) const override;
  bool read_codes(const SourceTensor& tensor, const QuantScheme& scheme, std::int64_t first,
                  std::int64_t rows, ChosenCodes& out) const override;

  // Number of quantized weights.
  std::int64_t matrix_count() const;
  // A note for users: "quantized by GPTQ: 28 weights, mostly GPTQ int4 g128".
  std::string note() const;

 private:
  const PackedMatrix* matrix_of(const SourceTensor& tensor) const {
    return matrices_[place_of(tensor)].get();
  }

  std::unique_ptr<TensorSource> files_;
  PackedOptions options_;
  std::vector<std::unique_ptr<PackedMatrix>> matrices_;  // [tensors]; null: not packed
};

}  // namespace leq
