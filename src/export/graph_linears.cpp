#include "export/graph_linears.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.h"
#include "export/weight_codes.h"
#include "model/weights.h"
#include "tensor/quant_scheme.h"

namespace leq {
namespace {

using Dims = std::vector<std::int64_t>;

OnnxType code_type(const WeightCodes& codes, int bits) {
  if (bits == 8) return codes.is_signed ? OnnxType::i8 : OnnxType::u8;
  return codes.is_signed ? OnnxType::i4 : OnnxType::u4;
}

std::vector<std::int16_t> widened(const std::vector<std::uint8_t>& values) {
  return {values.begin(), values.end()};
}

std::span<const std::byte> plane_of(const WeightView& view, std::uint64_t bytes) {
  return {view.codes, static_cast<std::size_t>(bytes)};
}

// The accuracy_level of MatMulNBits for int8 inputs with one scale per block.
constexpr std::int64_t kInt8Inputs = 4;

// The block size for rows with one scale: the largest one that divides the row; if none does, the
// last block is shorter.
std::int64_t block_of_row(std::int64_t columns) {
  for (const std::int64_t block : {128, 64, 32}) {
    if (columns % block == 0) return block;
  }
  return 32;
}

// A weight in MatMulNBits' layout: unsigned codes [N][blocks][block], with codes of value 0 as
// padding of the last block; leq's own codes and scales, with row scales repeated for each block.
struct NbitsBlocks {
  std::vector<std::int16_t> codes;
  std::vector<float> scales;     // [N][blocks]
  std::vector<std::byte> zeros;  // packed row by row
};

NbitsBlocks nbits_blocks(const WeightCodes& codes, std::int64_t block) {
  const std::int64_t blocks = (codes.columns + block - 1) / block;
  const int offset = codes.is_signed ? 1 << (codes.bits - 1) : 0;
  NbitsBlocks out;
  for (std::int64_t row = 0; row < codes.rows; ++row) {
    std::vector<std::int16_t> row_zeros;
    for (std::int64_t i = 0; i < blocks; ++i) {
      const auto at = static_cast<std::size_t>(row * codes.blocks + (codes.by_row() ? 0 : i));
      const int zero = codes.is_signed ? 0 : codes.zeros[at];
      out.scales.push_back(codes.scales[at]);
      row_zeros.push_back(static_cast<std::int16_t>(zero));
      for (std::int64_t k = i * block; k < (i + 1) * block; ++k) {
        const int code = k < codes.columns
                             ? codes.codes[static_cast<std::size_t>(row * codes.columns + k)]
                             : zero;
        out.codes.push_back(static_cast<std::int16_t>(code + offset));
      }
    }
    const auto bytes = code_bytes(row_zeros, codes.bits);
    out.zeros.insert(out.zeros.end(), bytes.begin(), bytes.end());
  }
  return out;
}

}  // namespace

const StoredTensor& GraphLinears::stored(const std::string& name) const {
  const StoredTensor* tensor = file_.find(name);
  ensure(tensor != nullptr, file_.name(), ": no tensor ", name);
  return *tensor;
}

Value GraphLinears::vector(const std::string& name) {
  if (graph_.has_tensor(name)) return name;
  const StoredTensor* tensor = file_.find(name);
  if (tensor == nullptr) return "";
  return graph_.floats(name, {tensor->view.columns}, weight_floats(tensor->view));
}

std::vector<Value> GraphLinears::outputs(const std::string& prefix,
                                         const std::vector<std::string>& names, Value x) {
  x = input(x, stored(prefix + names.front()));
  std::vector<Value> results;
  for (const std::string& name : names) {
    const StoredTensor& weight = stored(prefix + name);
    Value y = multiplied(x, weight, false);
    const Value bias = vector(prefix + name + ".bias");
    if (!bias.empty()) y = graph_.add("Add", {y, bias});
    results.push_back(output(y, weight.view.rows));
  }
  return results;
}

Value GraphLinears::logits(Value x, bool tied) {
  const StoredTensor& weight = stored(tied ? "token_embedding" : "head");
  return output(multiplied(input(x, weight), weight, tied), weight.view.rows);
}

// Smooths and quantizes x; in a graph of fixed shape x becomes a matrix, as some targets require.
Value GraphLinears::input(Value x, const StoredTensor& first) {
  if (tokens_ > 0) x = graph_.add("Reshape", {x, graph_.integers({tokens_, first.view.columns})});
  const Value smooth = vector(inv_smooth_tensor(first.name));
  if (!smooth.empty()) x = graph_.add("Mul", {x, smooth});
  return quantized(x, first);
}

Value GraphLinears::output(const Value& y, std::int64_t outputs) {
  if (tokens_ == 0) return y;
  return graph_.add("Reshape", {y, graph_.integers({1, tokens_, outputs})});
}

// Quantizes x and dequantizes it again, in the file's input format (act).
Value GraphLinears::quantized(Value x, const StoredTensor& first) {
  const ActKind act = first.view.act;
  if (!quantized_inputs_ || !is_coded(act) || target_.contrib) return x;
  if (!has_stored_scale(act)) {
    const std::int64_t group = scale_columns(act);
    if (!target_.dynamic_inputs) return x;  // reached only for the head (check_export_target)
    return dynamically_quantized(x, first.view.columns, group == 0 ? first.view.columns : group);
  }
  // QuantizeLinear clamps at -128, whereas leq clamps at -127.
  const Value cut = graph_.add("Max", {x, graph_.scalar(-127.0f * first.act_scale)});
  const Value scale = graph_.scalar(first.act_scale);
  const std::int8_t none = 0;
  const std::string zero_name = "const.i8.0";
  const Value zero =
      graph_.has_tensor(zero_name)
          ? zero_name
          : graph_.tensor(zero_name, OnnxType::i8, {}, std::as_bytes(std::span(&none, 1)));
  const Value codes = graph_.add("QuantizeLinear", {cut, scale, zero});
  return graph_.add("DequantizeLinear", {codes, scale, zero});
}

// Quantizes with one scale per `group` columns of each row: max |x| / 127.
Value GraphLinears::dynamically_quantized(const Value& x, std::int64_t columns,
                                          std::int64_t group) {
  const std::int64_t groups = (columns + group - 1) / group;
  Value sizes = graph_.add("Abs", {x});
  if (groups == 1) {
    sizes = graph_.add("ReduceMax", {sizes, graph_.integers({-1})});
  } else {
    const std::int64_t pad = groups * group - columns;
    std::vector<std::int64_t> pads = {0, 0, 0, 0, 0, pad}, cut = {0, 0, groups, group};
    if (tokens_ > 0) pads = {0, 0, 0, pad}, cut = {0, groups, group};
    if (pad > 0) sizes = graph_.add("Pad", {sizes, graph_.integers(pads)});
    sizes = graph_.add("Reshape", {sizes, graph_.integers(cut)});
    sizes =
        graph_.add("ReduceMax", {sizes, graph_.integers({-1})}, {{"keepdims", std::int64_t{0}}});
  }
  const Value largest = graph_.add("Max", {sizes, graph_.scalar(kSmallestAbsmax)});
  const Value scale = graph_.add("Div", {largest, graph_.scalar(127.0f)});
  const OnnxAttributes blocks = {{"axis", std::int64_t{-1}},
                                 {"block_size", groups == 1 ? columns : group}};
  OnnxAttributes to_codes = blocks;
  to_codes["output_dtype"] = static_cast<std::int64_t>(OnnxType::i8);
  const Value codes = graph_.add("QuantizeLinear", {x, scale}, to_codes);
  return graph_.add("DequantizeLinear", {codes, scale}, blocks);
}

// `is_table`: the weight is also that of the embedding, stored as [V][W].
Value GraphLinears::multiplied(const Value& x, const StoredTensor& weight, bool is_table) {
  if (target_.contrib && has_weight_codes(weight.view)) return matmul_nbits(x, weight);
  Value matrix = dequantized(weight, is_table);
  if (is_table) {
    matrix = graph_.add("Transpose", {matrix}, {{"perm", std::vector<std::int64_t>{1, 0}}});
  }
  return graph_.add("MatMul", {x, matrix});
}

Value GraphLinears::as_f32(const Value& x, const WeightView& stored) {
  const CodeKind kind = stored.scheme.kind;
  if (target_.float_embedding || (kind != CodeKind::f16 && kind != CodeKind::bf16)) return x;
  return graph_.add("Cast", {x}, {{"to", static_cast<std::int64_t>(OnnxType::f32)}});
}

// Float weights as stored; formats without plain codes are converted to f32. [K][N], or [V][W] for
// a table.
Value GraphLinears::float_matrix(const StoredTensor& weight, bool is_table) {
  const WeightView& view = weight.view;
  if (is_table) return as_f32(codes_of_table(weight), view);
  const Dims dims = {view.columns, view.rows};
  const CodeKind kind = view.scheme.kind;
  if (target_.float_embedding || (kind != CodeKind::f16 && kind != CodeKind::bf16)) {
    return graph_.floats(weight.name, dims,
                         transposed(weight_floats(view), view.rows, view.columns));
  }
  std::vector<std::uint16_t> halves(static_cast<std::size_t>(view.rows * view.columns));
  std::memcpy(halves.data(), view.codes, halves.size() * sizeof(std::uint16_t));
  const auto columns_first = transposed(halves, view.rows, view.columns);
  const OnnxType type = kind == CodeKind::f16 ? OnnxType::f16 : OnnxType::bf16;
  return as_f32(graph_.tensor(weight.name, type, dims, std::as_bytes(std::span(columns_first))),
                view);
}

// The dequantized f32 values of a weight: [K][N], or [V][W] for a table.
Value GraphLinears::dequantized(const StoredTensor& weight, bool is_table) {
  const bool as_floats = is_table && target_.float_embedding;
  if (as_floats || !has_weight_codes(weight.view)) return float_matrix(weight, is_table);
  const WeightCodes codes = weight_codes(weight.view);
  // Reached only for the head, whose inputs may be floats; linears of layers were refused before.
  if (target_.one_scale && !codes.one_scale()) return float_matrix(weight, is_table);
  if (is_table) return dequantized_table(weight, codes);
  const auto columns_first = [&](const auto& values, std::int64_t columns) {
    return transposed(values, codes.rows, columns);
  };
  const OnnxType type = code_type(codes, codes.bits);
  const Dims dims = codes.by_row() ? Dims{codes.rows} : Dims{codes.blocks, codes.rows};
  std::vector<Value> inputs = {
      graph_.tensor(weight.name, type, {codes.columns, codes.rows},
                    code_bytes(columns_first(codes.codes, codes.columns), codes.bits)),
      graph_.floats(weight.name + ".scales", dims, columns_first(codes.scales, codes.blocks))};
  if (!codes.is_signed) {
    inputs.push_back(
        graph_.tensor(weight.name + ".zeros", type, dims,
                      code_bytes(columns_first(widened(codes.zeros), codes.blocks), codes.bits)));
  }
  OnnxAttributes attributes = {{"axis", std::int64_t{codes.by_row() ? 1 : 0}}};
  if (!codes.by_row()) attributes["block_size"] = codes.block;
  return graph_.add("DequantizeLinear", inputs, attributes);
}

// The values [V][W] of a head that is also the lookup table; its scales are [V][blocks].
Value GraphLinears::dequantized_table(const StoredTensor& table, const WeightCodes& codes) {
  std::vector<Value> inputs = {codes_of_table(table), table.name + ".scales"};
  if (!codes.is_signed) inputs.push_back(table.name + ".zeros");
  if (codes.by_row()) {
    for (std::size_t i = 1; i < inputs.size(); ++i) {
      inputs[i] = graph_.add("Reshape", {inputs[i], graph_.integers({codes.rows})});
    }
    return graph_.add("DequantizeLinear", inputs, {{"axis", std::int64_t{0}}});
  }
  return graph_.add("DequantizeLinear", inputs,
                    {{"axis", std::int64_t{1}}, {"block_size", codes.block}});
}

// A table [V][W], either as 8-bit codes with NAME.scales [V][blocks] (and NAME.zeros) or as floats.
// Runtimes do not support lookups in 4-bit codes.
Value GraphLinears::codes_of_table(const StoredTensor& table) {
  const WeightView& view = table.view;
  if (graph_.has_tensor(table.name)) return table.name;
  const Dims dims = {view.rows, view.columns};
  if (target_.float_embedding || (!has_weight_codes(view) && !view.scheme.is_float())) {
    return graph_.floats(table.name, dims, weight_floats(view));
  }
  if (view.scheme.is_float()) {
    const OnnxType type = view.scheme.kind == CodeKind::f32   ? OnnxType::f32
                          : view.scheme.kind == CodeKind::f16 ? OnnxType::f16
                                                              : OnnxType::bf16;
    return graph_.tensor(table.name, type, dims,
                         plane_of(view, onnx_bytes(type, view.rows * view.columns)));
  }
  const WeightCodes codes = weight_codes(view);
  const OnnxType type = code_type(codes, 8);
  graph_.floats(table.name + ".scales", {codes.rows, codes.blocks}, codes.scales);
  if (!codes.is_signed) {
    graph_.tensor(table.name + ".zeros", type, {codes.rows, codes.blocks},
                  code_bytes(widened(codes.zeros), 8));
  }
  return graph_.tensor(table.name, type, dims, code_bytes(codes.codes, 8));
}

Value GraphLinears::lookup(const std::string& table, const Value& ids) {
  const StoredTensor& weight = stored(table);
  const auto rows = [&](const Value& from) { return graph_.add("Gather", {from, ids}); };
  const Value found = rows(codes_of_table(weight));
  if (target_.float_embedding || !has_weight_codes(weight.view)) return as_f32(found, weight.view);
  const QuantScheme& scheme = weight.view.scheme;
  std::vector<Value> inputs = {found, rows(weight.name + ".scales")};
  if (scheme.kind == CodeKind::uint_) inputs.push_back(rows(weight.name + ".zeros"));
  return graph_.add("DequantizeLinear", inputs,
                    {{"axis", std::int64_t{-1}},
                     {"block_size", scheme.scaling == Scaling::group ? std::int64_t{scheme.group}
                                                                     : weight.view.columns}});
}

Value GraphLinears::matmul_nbits(const Value& x, const StoredTensor& weight) {
  const WeightCodes codes = weight_codes(weight.view);
  const std::int64_t block = codes.by_row() ? block_of_row(codes.columns) : codes.block;
  const NbitsBlocks blocks = nbits_blocks(codes, block);
  const std::int64_t count = std::ssize(blocks.scales) / codes.rows;
  const std::string name = weight.name + ".blocks";
  std::vector<Value> inputs = {
      x,
      graph_.tensor(name, OnnxType::u8, {codes.rows, count, block * codes.bits / 8},
                    code_bytes(blocks.codes, codes.bits)),
      graph_.floats(name + ".scales", {codes.rows, count}, blocks.scales)};
  if (!codes.is_signed) {
    inputs.push_back(graph_.tensor(name + ".zeros", OnnxType::u8,
                                   {codes.rows, std::ssize(blocks.zeros) / codes.rows},
                                   blocks.zeros));
  }
  OnnxAttributes attributes = {{"K", codes.columns},
                               {"N", codes.rows},
                               {"bits", std::int64_t{codes.bits}},
                               {"block_size", block}};
  if (quantized_inputs_ && is_coded(weight.view.act)) attributes["accuracy_level"] = kInt8Inputs;
  return graph_.add_contrib("MatMulNBits", inputs, attributes);
}

}  // namespace leq
