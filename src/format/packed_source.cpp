#include "format/packed_source.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/text.h"
#include "format/packed_matrix.h"

namespace leq {
namespace {

// --- the parts of one quantized weight, identified by name suffixes, and the matrix that they form

enum class PackedRole : std::uint8_t {
  weight,  // floats, I8 or F8 codes
  packed,  // codes in words or bytes
  scale,
  zeros,
  column_groups,  // group index of each column, in any order
  shape,
  common_scale,  // multiplies all scales
  activations,   // scales of inputs, keys and values; ignored, since leq computes its own
};

// The result for "layers.0.q_proj.weight_scale" is {"layers.0.q_proj", scale}; it is nullopt for
// tensors that are not part of a weight.
struct PackedName {
  std::string module;
  PackedRole role;
};

struct PackedParts {
  std::string module;
  const SourceTensor* weight = nullptr;
  const SourceTensor* packed = nullptr;
  const SourceTensor* scale = nullptr;
  const SourceTensor* zeros = nullptr;
  const SourceTensor* column_groups = nullptr;
  const SourceTensor* shape = nullptr;
  const SourceTensor* common_scale = nullptr;

  // Throws Error naming the second of two tensors with the same role.
  void add(PackedRole role, const SourceTensor& tensor);
  // Whether the parts are codes with scales; false for a floating-point weight.
  bool is_packed() const;
};

struct Suffix {
  std::string_view ending;
  PackedRole role;
};
constexpr std::array<Suffix, 25> kSuffixes = {{
    {"weight", PackedRole::weight},
    {"weight_packed", PackedRole::packed},
    {"qweight", PackedRole::packed},
    {"weight_scale", PackedRole::scale},
    {"weight_scale_inv", PackedRole::scale},
    {"qscale_weight", PackedRole::scale},
    {"scales", PackedRole::scale},
    {"weight_zero_point", PackedRole::zeros},
    {"qzeros", PackedRole::zeros},
    {"g_idx", PackedRole::column_groups},
    {"weight_g_idx", PackedRole::column_groups},
    {"weight_shape", PackedRole::shape},
    {"weight_global_scale", PackedRole::common_scale},
    {"weight_scale_2", PackedRole::common_scale},
    {"activation_scale", PackedRole::activations},
    {"input_activation_scale", PackedRole::activations},
    {"input_scale", PackedRole::activations},
    {"input_zero_point", PackedRole::activations},
    {"input_global_scale", PackedRole::activations},
    {"qscale_act", PackedRole::activations},
    {"output_scale", PackedRole::activations},
    {"q_scale", PackedRole::activations},
    {"k_scale", PackedRole::activations},
    {"v_scale", PackedRole::activations},
    {"kv_scale", PackedRole::activations},
}};

bool is_type(const SourceTensor& tensor, std::string_view type) {
  return tensor.file_dtype == type;
}

bool is_float8(const SourceTensor& tensor) {
  return is_type(tensor, "F8_E4M3") || is_type(tensor, "F8_E5M2");
}

bool is_plain_float(const SourceTensor& tensor) {
  return tensor.dtype == DType::f32 || tensor.dtype == DType::f16 || tensor.dtype == DType::bf16;
}

std::int64_t divided(std::int64_t count, std::int64_t by) { return (count + by - 1) / by; }

void require_type(const SourceTensor& tensor, std::string_view types, bool fits) {
  require(fits, tensor.place, ": tensor ", printable(tensor.name), " has type ",
          printable(tensor.file_dtype), ", expected ", types);
}

void require_shape(const SourceTensor& tensor, const Shape& want) {
  require(tensor.shape == want, tensor.place, ": tensor ", printable(tensor.name),
          ": expected shape ", shape_text(want), ", found ", shape_text(tensor.shape));
}

void require_matrix(const SourceTensor& tensor) {
  require(tensor.shape.size() == 2 && tensor.shape[0] > 0 && tensor.shape[1] > 0, tensor.place,
          ": tensor ", printable(tensor.name), ": expected a matrix, found shape ",
          shape_text(tensor.shape));
}

// Builds one PackedMatrix from its parts; all methods throw Error naming a tensor.
class MatrixMaker {
 public:
  MatrixMaker(const PackedParts& parts, const PackedOptions& options)
      : parts_(parts), options_(options) {}

  PackedMatrix make() {
    const SourceTensor& codes = parts_.packed != nullptr ? *parts_.packed : *parts_.weight;
    matrix_.codes = &codes;
    if (options_.method == PackedMethod::mxfp4) {
      make_blocks();
      return std::move(matrix_);
    }
    require_matrix(codes);
    require(parts_.packed == nullptr || parts_.weight == nullptr, codes.place, ": tensor ",
            printable(codes.name), ": there is also ",
            parts_.weight == nullptr ? "" : printable(parts_.weight->name),
            ", which of the two counts is not known");
    require(parts_.scale != nullptr, codes.place, ": tensor ", printable(codes.name), " holds ",
            printable(codes.file_dtype), " codes, but there is no tensor of scales beside it");
    const bool is_words = is_type(codes, "I32");
    if (is_words && options_.method == PackedMethod::gptq) {
      make_gptq();
    } else if (is_words && options_.method == PackedMethod::awq) {
      make_awq();
    } else if (is_words) {
      make_words();
    } else if (is_type(codes, "I8")) {
      make_bytes();
    } else if (is_float8(codes)) {
      make_float8();
    } else {
      require_type(codes, "I32, I8, F8_E4M3, F8_E5M2 or U8", is_type(codes, "U8"));
      make_float4();
    }
    return std::move(matrix_);
  }

 private:
  // ---- integers packed in words

  // Scales [blocks][N], one per row and column block; the number of blocks gives the group size.
  void set_down_scales() {
    const SourceTensor& scale = *parts_.scale;
    require_type(scale, "F16, BF16 or F32", is_plain_float(scale));
    require_matrix(scale);
    const std::int64_t blocks = scale.shape[0];
    require_shape(scale, {blocks, matrix_.rows});
    set_group(blocks);
    matrix_.scales.tensor = &scale;
    matrix_.scales.row_stride = 1;
    matrix_.scales.column_stride = matrix_.rows;
  }

  void set_group(std::int64_t blocks) {
    const SourceTensor& scale = *parts_.scale;
    const std::int64_t columns = matrix_.columns;
    std::int64_t group = options_.group > 0 ? std::min(options_.group, columns) : columns;
    if (divided(columns, group) != blocks) group = divided(columns, blocks);
    require(divided(columns, group) == blocks, scale.place, ": tensor ", printable(scale.name),
            " has ", blocks, " scales for a row of ", columns, " columns");
    matrix_.scales.columns = group;
  }

  int gptq_bits() const {
    std::vector<int> widths = options_.bits;
    for (const int bits : {4, 8, 3, 2}) widths.push_back(bits);
    const std::int64_t rows = matrix_.rows;
    if (parts_.zeros == nullptr) return widths.front();
    const std::int64_t words = parts_.zeros->shape.empty() ? 0 : parts_.zeros->shape.back();
    const auto found =
        std::ranges::find_if(widths, [&](int bits) { return divided(rows * bits, 32) == words; });
    require(found != widths.end(), parts_.zeros->place, ": tensor ", printable(parts_.zeros->name),
            ": ", words, " words hold no zero points of ", rows, " rows in 2, 3, 4 or 8 bits");
    return *found;
  }

  // Zero points in words.
  void set_zeros(CodeForm form, const Shape& shape, bool plus_one) {
    require_type(*parts_.zeros, "I32", is_type(*parts_.zeros, "I32"));
    require_shape(*parts_.zeros, shape);
    matrix_.zeros = {parts_.zeros, form, plus_one};
  }

  void make_gptq() {
    const SourceTensor& codes = *matrix_.codes;
    matrix_.form = CodeForm::words_down;
    matrix_.rows = codes.shape[1];
    matrix_.bits = gptq_bits();
    require(codes.shape[0] * 32 % matrix_.bits == 0, codes.place, ": tensor ",
            printable(codes.name), ": ", codes.shape[0], " words hold no whole number of codes of ",
            matrix_.bits, " bits");
    matrix_.columns = codes.shape[0] * 32 / matrix_.bits;
    set_down_scales();
    if (parts_.zeros != nullptr) {
      set_zeros(CodeForm::words_down,
                {parts_.scale->shape[0], divided(matrix_.rows * matrix_.bits, 32)},
                options_.zeros_plus_one);
    }
    set_order();
    name("GPTQ int" + std::to_string(matrix_.bits));
  }

  void make_awq() {
    const SourceTensor& codes = *matrix_.codes;
    matrix_.form = CodeForm::words_awq;
    matrix_.bits = 4;
    matrix_.columns = codes.shape[0];
    matrix_.rows = codes.shape[1] * 8;
    set_down_scales();
    require(parts_.zeros != nullptr, codes.place, ": tensor ", printable(codes.name),
            " has no zero points (qzeros) beside it");
    set_zeros(CodeForm::words_awq, {parts_.scale->shape[0], codes.shape[1]}, false);
    name("AWQ int4");
  }

  // Codes [N][words]; a separate tensor contains the unpacked shape.
  void make_words() {
    const SourceTensor& codes = *matrix_.codes;
    matrix_.form = CodeForm::words_across;
    matrix_.rows = codes.shape[0];
    matrix_.columns = stored_columns();
    const auto fits = [&](int bits) {
      return divided(matrix_.columns * bits, 32) == codes.shape[1];
    };
    const auto found = std::ranges::find_if(options_.bits, fits);
    require(found != options_.bits.end() && *found >= 2 && *found <= 8, codes.place, ": tensor ",
            printable(codes.name), ": ", codes.shape[1], " words for ", matrix_.columns,
            " columns are no codes of the bits that quantization_config names, 2 to 8");
    matrix_.bits = *found;
    set_scales();
    if (parts_.zeros != nullptr) {
      set_zeros(CodeForm::words_across, {divided(matrix_.rows * matrix_.bits, 32), scale_blocks()},
                false);
    }
    set_order();
    name("int" + std::to_string(matrix_.bits));
  }

  std::int64_t stored_columns() const {
    const SourceTensor& codes = *matrix_.codes;
    const SourceTensor* shape = parts_.shape;
    require(shape != nullptr, codes.place, ": tensor ", printable(codes.name),
            " has no weight_shape beside it");
    const bool wide = is_type(*shape, "I64");
    require_type(*shape, "I64 or I32", wide || is_type(*shape, "I32"));
    require_shape(*shape, {2});
    std::array<std::int64_t, 2> sizes{};
    for (std::size_t i = 0; i < 2; ++i) {
      if (wide) {
        std::memcpy(&sizes[i], shape->bytes.data() + i * 8, 8);
      } else {
        std::int32_t size = 0;
        std::memcpy(&size, shape->bytes.data() + i * 4, 4);
        sizes[i] = size;
      }
    }
    require(sizes[0] == codes.shape[0] && sizes[1] > 0 && sizes[1] <= codes.shape[1] * 32,
            shape->place, ": tensor ", printable(shape->name), " says [", sizes[0], ", ", sizes[1],
            "], the codes are ", shape_text(codes.shape), " words");
    return sizes[1];
  }

  // ---- bytes and floats

  void make_bytes() {
    take_shape(1);
    matrix_.form = CodeForm::signed_bytes;
    set_scales();
    if (parts_.zeros != nullptr) {
      const SourceTensor& zeros = *parts_.zeros;
      require_type(zeros, "I8", is_type(zeros, "I8"));
      require(zeros.shape == Shape{matrix_.rows}
                  ? scale_blocks() == 1
                  : zeros.shape == Shape{matrix_.rows, scale_blocks()},
              zeros.place, ": tensor ", printable(zeros.name), ": expected shape ",
              shape_text({matrix_.rows, scale_blocks()}), ", found ", shape_text(zeros.shape));
      matrix_.zeros = {&zeros, CodeForm::signed_bytes, false};
    }
    name("int8");
  }

  void make_float8() {
    take_shape(1);
    matrix_.form =
        is_type(*matrix_.codes, "F8_E4M3") ? CodeForm::float8_e4m3 : CodeForm::float8_e5m2;
    refuse_zeros();
    set_scales();
    name(matrix_.codes->file_dtype);
  }

  void make_float4() {
    take_shape(2);
    matrix_.form = CodeForm::float4_e2m1;
    matrix_.bits = 4;
    refuse_zeros();
    set_scales();
    const bool is_mx = matrix_.scales.is_exponent;
    require(is_mx || parts_.common_scale != nullptr, matrix_.codes->place, ": tensor ",
            printable(matrix_.codes->name),
            " has no weight_global_scale or weight_scale_2 beside it");
    if (parts_.common_scale != nullptr) set_common_scale();
    name(is_mx ? "MXFP4" : "NVFP4");
  }

  // Codes [E][N][K / 32][16] with a scale for each block, as a matrix of E N rows.
  void make_blocks() {
    const SourceTensor& codes = *matrix_.codes;
    const bool fits = codes.shape.size() == 4 && codes.shape[3] == 16 && codes.shape[0] > 0 &&
                      codes.shape[1] > 0 && codes.shape[2] > 0;
    require(fits && is_type(codes, "U8"), codes.place, ": tensor ", printable(codes.name),
            ": expected U8 blocks [experts, rows, blocks, 16], found ", printable(codes.file_dtype),
            " ", shape_text(codes.shape));
    require(parts_.scale != nullptr, codes.place, ": tensor ", printable(codes.name),
            ": there is no tensor of scales beside it");
    const SourceTensor& scale = *parts_.scale;
    require_type(scale, "U8", is_type(scale, "U8"));
    require_shape(scale, {codes.shape[0], codes.shape[1], codes.shape[2]});
    matrix_.form = CodeForm::float4_e2m1;
    matrix_.bits = 4;
    matrix_.rows = codes.shape[0] * codes.shape[1];
    matrix_.columns = codes.shape[2] * 32;
    matrix_.scales = {.tensor = &scale,
                      .is_exponent = true,
                      .columns = 32,
                      .row_stride = codes.shape[2],
                      .column_stride = 1};
    name("MXFP4");
  }

  void set_common_scale() {
    const SourceTensor& common = *parts_.common_scale;
    require_type(common, "F32", common.dtype == DType::f32);
    require(common.bytes.size() == sizeof(float), common.place, ": tensor ", printable(common.name),
            ": expected one number, found shape ", shape_text(common.shape));
    std::memcpy(&matrix_.common, common.bytes.data(), sizeof(float));
    matrix_.divides = common.name.ends_with("weight_global_scale");
  }

  void take_shape(std::int64_t codes_in_byte) {
    matrix_.rows = matrix_.codes->shape[0];
    matrix_.columns = matrix_.codes->shape[1] * codes_in_byte;
  }

  void refuse_zeros() const {
    if (parts_.zeros == nullptr) return;
    fail(parts_.zeros->place, ": tensor ", printable(parts_.zeros->name),
         ": zero points beside floats are not supported");
  }

  // Scales per tensor, per row, per group of columns, or per block, as determined by their shape.
  void set_scales() {
    const SourceTensor& scale = *parts_.scale;
    ScalePlane& plane = matrix_.scales;
    plane.tensor = &scale;
    plane.is_exponent = is_type(scale, "F8_E8M0") || is_type(scale, "U8");
    require_type(scale, "F32, F16, BF16, F8_E4M3, F8_E8M0 or U8",
                 plane.is_exponent || is_type(scale, "F8_E4M3") || is_plain_float(scale));
    const std::int64_t rows = matrix_.rows, columns = matrix_.columns;
    const Shape blocks = {divided(rows, options_.block_rows),
                          divided(columns, options_.block_columns)};
    std::int64_t numbers = 1;
    for (const std::int64_t size : scale.shape) numbers *= size;
    if (numbers == 1 && scale.shape.size() <= 2) {
      plane.rows = rows;
      plane.columns = columns;
      plane.row_stride = 0;
    } else if (scale.shape == Shape{rows} || scale.shape == Shape{rows, 1}) {
      plane.columns = columns;
    } else if (scale.shape.size() == 2 && scale.shape[0] == rows && scale.shape[1] > 0) {
      set_group(scale.shape[1]);
      plane.row_stride = scale.shape[1];
      plane.column_stride = 1;
    } else {
      require(scale.shape == blocks, scale.place, ": tensor ", printable(scale.name),
              ": expected one scale, ", rows, " of rows, ", rows, " x groups of columns, or ",
              shape_text(blocks), " of blocks, found shape ", shape_text(scale.shape));
      plane.rows = options_.block_rows;
      plane.columns = options_.block_columns;
      plane.row_stride = blocks[1];
      plane.column_stride = 1;
    }
  }

  std::int64_t scale_blocks() const { return divided(matrix_.columns, matrix_.scales.columns); }

  // The group index of each column, if columns were sorted before grouping (act-order).
  void set_order() {
    const SourceTensor* order = parts_.column_groups;
    if (order == nullptr || order->shape == Shape{0}) return;
    require_type(*order, "I32", is_type(*order, "I32"));
    require_shape(*order, {matrix_.columns});
    std::vector<std::int32_t> groups(static_cast<std::size_t>(matrix_.columns));
    std::memcpy(groups.data(), order->bytes.data(), groups.size() * sizeof(std::int32_t));
    bool in_order = true, all_zero = true;
    for (std::size_t k = 0; k < groups.size(); ++k) {
      require(groups[k] >= 0 && groups[k] < scale_blocks(), order->place, ": tensor ",
              printable(order->name), ": column ", k, " is of group ", groups[k], " of ",
              scale_blocks());
      in_order = in_order && groups[k] == static_cast<std::int64_t>(k) / matrix_.scales.columns;
      all_zero = all_zero && groups[k] == 0;
    }
    // Some writers store zeros if columns are in order.
    if (!in_order && !all_zero) matrix_.column_blocks = std::move(groups);
  }

  void name(std::string type) {
    const ScalePlane& plane = matrix_.scales;
    if (matrix_.has_row_scales()) {
      type += plane.row_stride == 0 ? " tensor" : " row";
    } else if (plane.rows > 1) {
      type += " " + std::to_string(plane.rows) + "x" + std::to_string(plane.columns);
    } else {
      type += " g" + std::to_string(plane.columns);
    }
    if (!matrix_.column_blocks.empty()) type += " act-order";
    matrix_.type = std::move(type);
  }

  const PackedParts& parts_;
  const PackedOptions& options_;
  PackedMatrix matrix_;
};

std::optional<PackedName> packed_name(std::string_view tensor, PackedMethod method) {
  if (method == PackedMethod::mxfp4) {
    constexpr std::string_view kBlocks = "_blocks", kScales = "_scales";
    const bool codes = tensor.ends_with(kBlocks);
    if (!codes && !tensor.ends_with(kScales)) return std::nullopt;
    const std::size_t length = tensor.size() - (codes ? kBlocks : kScales).size();
    return PackedName{std::string(tensor.substr(0, length)),
                      codes ? PackedRole::packed : PackedRole::scale};
  }
  const std::size_t dot = tensor.rfind('.');
  if (dot == std::string_view::npos) return std::nullopt;
  const auto* found = std::ranges::find(kSuffixes, tensor.substr(dot + 1), &Suffix::ending);
  if (found == kSuffixes.end()) return std::nullopt;
  return PackedName{std::string(tensor.substr(0, dot)), found->role};
}

void PackedParts::add(PackedRole role, const SourceTensor& tensor) {
  const SourceTensor* none = nullptr;  // ignored, because leq computes its own scales
  std::array<const SourceTensor**, 8> places = {&weight,        &packed, &scale,        &zeros,
                                                &column_groups, &shape,  &common_scale, &none};
  const SourceTensor*& place = *places[static_cast<std::size_t>(role)];
  require(place == nullptr, tensor.place, ": tensor ", printable(tensor.name), " says what tensor ",
          place == nullptr ? "" : printable(place->name), " says");
  place = &tensor;
}

bool PackedParts::is_packed() const {
  if (packed != nullptr) return true;
  if (weight == nullptr) return false;
  return is_type(*weight, "I8") || is_type(*weight, "U8") || is_float8(*weight);
}

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
  if (const Shape& stored = matrix.codes->shape; stored.size() == 4) {
    tensor.shape = {stored[0], stored[1], matrix.columns};
  }
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
  fail(scale->place, ": tensor ", printable(scale->name),
       ": there is no weight that it could be of");
}

}  // namespace

std::string_view packed_method_name(PackedMethod method) {
  constexpr std::array<std::string_view, 6> kNames = {
      "FP8", "GPTQ", "AWQ", "compressed-tensors", "ModelOpt", "MXFP4"};
  return kNames[static_cast<std::size_t>(method)];
}

PackedSource::PackedSource(std::unique_ptr<TensorSource> files, const PackedOptions& options)
    : files_(std::move(files)), options_(options) {
  std::map<std::string, PackedParts> modules;
  for (const SourceTensor& tensor : files_->tensors()) {
    require(tensor.shape.size() != 3 || !tensor.name.ends_with("_packed"), tensor.place,
            ": tensor ", printable(tensor.name),
            " holds the codes of all experts, as llm-compressor 0.12 joins them, which is not "
            "read; quantize the model with a version that writes each expert");
    const auto name = packed_name(tensor.name, options.method);
    if (!name) {
      add(tensor);
      matrices_.push_back(nullptr);
      continue;
    }
    PackedParts& parts = modules[name->module];
    parts.module = name->module;
    parts.add(name->role, tensor);
  }
  for (const auto& [module, parts] : modules) {
    if (parts.is_packed()) {
      auto matrix = std::make_unique<PackedMatrix>(MatrixMaker(parts, options).make());
      add(weight_of(parts, *matrix));
      matrices_.push_back(std::move(matrix));
    } else {
      refuse_scales(parts);
      if (parts.weight == nullptr) continue;  // only scales of inputs
      add(*parts.weight);
      matrices_.push_back(nullptr);
    }
  }
}

void PackedSource::read(const SourceTensor& tensor, std::int64_t first,
                        std::span<float> out) const {
  const PackedMatrix* matrix = matrix_of(tensor);
  if (matrix == nullptr) return read_floats(tensor, first, out);
  const std::int64_t all = matrix->rows * matrix->columns;
  require_elements(tensor, all, first, out.size());
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
