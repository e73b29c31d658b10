#include "format/packed_source.h"

#include <algorithm>
#include <array>
#include <map>

#include "base/error.h"
#include "base/text.h"
#include "format/packed_parts.h"

namespace leq {
namespace {

std::optional<QuantScheme> float_scheme(const SourceTensor& tensor) {
  switch (tensor.dtype) {
    case DType::f32:
      return QuantScheme{CodeKind::f32, 32, Scaling::none, 0};
    case DType::f16:
      return QuantScheme{CodeKind::f16, 16, Scaling::none, 0};
    case DType::bf16:
      return QuantScheme{CodeKind::bf16, 16, Scaling::none, 0};
    default:
      return std::nullopt;
  }
}

SourceTensor weight_of(const PackedParts& parts, const PackedMatrix& matrix) {
  SourceTensor tensor = *matrix.codes;
  tensor.name = parts.module + ".weight";
  tensor.dtype = DType::u8;
  tensor.shape = {matrix.rows, matrix.columns};
  tensor.file_dtype = matrix.type;
  return tensor;
}

// Float weights with scales need fake quantization at load time, which is not supported.
void refuse_scales(const PackedParts& parts) {
  const SourceTensor* scale = parts.scale != nullptr ? parts.scale : parts.zeros;
  if (scale == nullptr) return;
  require(parts.weight == nullptr, scale->place, ": tensor ", printable(scale->name),
          ": scales beside a weight of type ",
          parts.weight == nullptr ? "" : printable(parts.weight->file_dtype),
          " are not supported; save the checkpoint compressed");
  require(false, scale->place, ": tensor ", printable(scale->name),
          ": there is no weight that it could be of");
}

}  // namespace

std::string_view packed_method_name(PackedMethod method) {
  constexpr std::array<std::string_view, 5> kNames = {"FP8", "GPTQ", "AWQ", "compressed-tensors",
                                                      "ModelOpt"};
  return kNames[static_cast<std::size_t>(method)];
}

PackedSource::PackedSource(std::unique_ptr<TensorSource> files, const PackedOptions& options)
    : files_(std::move(files)), options_(options) {
  std::map<std::string, PackedParts> modules;
  for (const SourceTensor& tensor : files_->tensors()) {
    const auto name = packed_name(tensor.name);
    if (!name) {
      tensors_.push_back(tensor);
      matrices_.push_back(nullptr);
      continue;
    }
    PackedParts& parts = modules[name->module];
    parts.module = name->module;
    parts.add(name->role, tensor);
  }
  for (const auto& [module, parts] : modules) {
    if (parts.is_packed()) {
      auto matrix = std::make_unique<PackedMatrix>(make_packed_matrix(parts, options));
      tensors_.push_back(weight_of(parts, *matrix));
      matrices_.push_back(std::move(matrix));
    } else {
      refuse_scales(parts);
      if (parts.weight == nullptr) continue;  // only scales of inputs
      tensors_.push_back(*parts.weight);
      matrices_.push_back(nullptr);
    }
  }
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    by_name_.emplace(tensors_[i].name, i);
  }
}

const SourceTensor* PackedSource::find(std::string_view name) const {
  const auto found = by_name_.find(std::string(name));
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

const PackedMatrix* PackedSource::matrix_of(const SourceTensor& tensor) const {
  return matrices_[static_cast<std::size_t>(&tensor - tensors_.data())].get();
}

void PackedSource::drop(const SourceTensor& tensor) const { files_->drop(tensor); }

void PackedSource::read(const SourceTensor& tensor, std::int64_t first,
                        std::span<float> out) const {
  const PackedMatrix* matrix = matrix_of(tensor);
  if (matrix == nullptr) return read_floats(tensor, first, out);
  const std::int64_t all = matrix->rows * matrix->columns;
  ensure(first >= 0 && first <= all && std::ssize(out) <= all - first, tensor.place, ": tensor ",
         printable(tensor.name), " has ", all, " values, ", out.size(), " were asked for from ",
         first);
  for (std::int64_t at = first; at < first + std::ssize(out);) {
    const std::int64_t column = at % matrix->columns;
    const std::int64_t count = std::min(matrix->columns - column, first + std::ssize(out) - at);
    matrix->read_row(
        at / matrix->columns, column,
        out.subspan(static_cast<std::size_t>(at - first), static_cast<std::size_t>(count)));
    at += count;
  }
}

std::optional<QuantScheme> PackedSource::own_scheme(const SourceTensor& tensor) const {
  const PackedMatrix* matrix = matrix_of(tensor);
  return matrix == nullptr ? float_scheme(tensor) : matrix->own_scheme();
}

bool PackedSource::read_codes(const SourceTensor& tensor, const QuantScheme& scheme,
                              std::int64_t first, std::int64_t rows, ChosenCodes& out) const {
  const PackedMatrix* matrix = matrix_of(tensor);
  return matrix != nullptr && matrix->read_codes(scheme, first, rows, out);
}

std::int64_t PackedSource::matrix_count() const {
  return std::ranges::count_if(matrices_, [](const auto& matrix) { return matrix != nullptr; });
}

std::string PackedSource::note() const {
  std::map<std::string, std::int64_t> types;
  for (const auto& matrix : matrices_) {
    if (matrix != nullptr) ++types[matrix->type];
  }
  const auto most = std::ranges::max_element(
      types, [](const auto& a, const auto& b) { return a.second < b.second; });
  return "quantized by " + std::string(packed_method_name(options_.method)) + ": " +
         std::to_string(matrix_count()) + " weights" +
         (types.empty() ? "" : (types.size() == 1 ? ", " : ", mostly ") + most->first);
}

}  // namespace leq
