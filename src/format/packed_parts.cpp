#include "format/packed_parts.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.h"
#include "base/text.h"

namespace leq {
namespace {

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
      const std::int64_t blocks = parts_.scale->shape[0];
      require_type(*parts_.zeros, "I32", is_type(*parts_.zeros, "I32"));
      require_shape(*parts_.zeros, {blocks, divided(matrix_.rows * matrix_.bits, 32)});
      matrix_.zeros = {parts_.zeros, CodeForm::words_down, options_.zeros_plus_one};
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
    require_type(*parts_.zeros, "I32", is_type(*parts_.zeros, "I32"));
    require_shape(*parts_.zeros, {parts_.scale->shape[0], codes.shape[1]});
    matrix_.zeros = {parts_.zeros, CodeForm::words_awq, false};
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
      require_type(*parts_.zeros, "I32", is_type(*parts_.zeros, "I32"));
      require_shape(*parts_.zeros, {divided(matrix_.rows * matrix_.bits, 32), scale_blocks()});
      matrix_.zeros = {parts_.zeros, CodeForm::words_across, false};
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
    require(false, parts_.zeros->place, ": tensor ", printable(parts_.zeros->name),
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

}  // namespace

std::optional<PackedName> packed_name(std::string_view tensor) {
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

PackedMatrix make_packed_matrix(const PackedParts& parts, const PackedOptions& options) {
  return MatrixMaker(parts, options).make();
}

}  // namespace leq
