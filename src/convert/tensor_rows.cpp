#include "convert/tensor_rows.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "base/error.h"

namespace leq {
namespace {

using Rows = std::shared_ptr<const StoredRows>;

std::int64_t columns_of(const Shape& shape) { return shape.size() == 2 ? shape[1] : 1; }

// The row and column in the stored tensor for leq's row `row` and column `column`.
std::int64_t stored_row(const StoredRows& rows, std::int64_t row) {
  return rows.rule.order != nullptr ? rows.rule.order->row(*rows.config, row)
                                    : rows.first_row + row;
}
std::int64_t stored_column(const StoredRows& rows, std::int64_t column) {
  return rows.rule.columns->row(*rows.config, column);
}

// Applies the rule's elementwise transformation to a row.
void finish_row(const StoredRows& rows, std::span<float> row) {
  const TensorRule& rule = rows.rule;
  // Computed in f32 for all stored types, because 1 + w may need more bits than w's type has.
  if (rule.added != 0) {
    for (float& number : row) number = number + rule.added;
  }
  if (rule.log_of_negative) {
    for (float& number : row) number = static_cast<float>(std::log(-double{number}));
  }
  if (rule.normed_rows) {
    double squares = 0;
    for (const float number : row) squares += double{number} * double{number};
    const double mean = squares / static_cast<double>(row.size());
    const double norm = std::sqrt(mean + double{rows.config->norm_eps});
    for (float& number : row) number = static_cast<float>(double{number} / norm);
  }
  if (rule.columns == nullptr) return;
  const std::vector<float> stored(row.begin(), row.end());
  for (std::size_t k = 0; k < row.size(); ++k) {
    row[k] = stored[static_cast<std::size_t>(stored_column(rows, static_cast<std::int64_t>(k)))];
  }
}

auto read_rows(const Rows& rows) {
  return [rows](std::int64_t first, std::int64_t count, std::span<float> out) {
    const TensorRule& rule = rows->rule;
    const std::int64_t columns = columns_of(rows->shape);
    const auto width = static_cast<std::size_t>(columns);
    const bool at_once = rule.order == nullptr && rule.column_parts == 1;
    if (at_once) {
      rows->source.read(rows->tensor, (rows->first_row + first) * columns,
                        out.first(static_cast<std::size_t>(count) * width));
    }
    for (std::int64_t i = 0; i < count; ++i) {
      const std::span<float> row = out.subspan(static_cast<std::size_t>(i) * width, width);
      if (!at_once) {
        const std::int64_t part = stored_row(*rows, first + i) * rule.column_parts;
        rows->source.read(rows->tensor, columns * (part + rule.column_part), row);
      }
      finish_row(*rows, row);
    }
  };
}

auto read_transposed(const Rows& rows) {
  return [rows](std::int64_t first, std::int64_t count, std::span<float> out) {
    const std::int64_t columns = columns_of(rows->shape);
    const std::int64_t stored = rows->rule.parts * rows->shape[0];
    std::vector<float> line(static_cast<std::size_t>(count));
    for (std::int64_t k = 0; k < columns; ++k) {
      rows->source.read(rows->tensor, k * stored + rows->first_row + first, line);
      for (std::int64_t n = 0; n < count; ++n) {
        out[static_cast<std::size_t>(n * columns + k)] = line[static_cast<std::size_t>(n)];
      }
    }
  };
}

auto read_taps_first(const Rows& rows) {
  return [rows](std::int64_t first, std::int64_t count, std::span<float> out) {
    const Shape conv = conv_shape(*rows->config);
    const std::int64_t channels = conv[0], taps = conv[2];
    std::vector<float> all(static_cast<std::size_t>(channels * taps));
    rows->source.read(rows->tensor, 0, all);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t tap = (first + i) / channels, channel = (first + i) % channels;
      out[static_cast<std::size_t>(i)] =
          all[static_cast<std::size_t>(stored_row(*rows, channel) * taps + tap)];
    }
  };
}

bool moves_columns(const StoredRows& rows) {
  if (rows.rule.columns == nullptr) return false;
  for (std::int64_t k = 0; k < columns_of(rows.shape); ++k) {
    if (stored_column(rows, k) != k) return true;
  }
  return false;
}

// Whether columns are permuted in whole groups of a scheme, so that codes and scales can be
// permuted with them. Groups of k types have 256 columns, which is more than a head has.
bool moves_groups(const StoredRows& rows, const QuantScheme& scheme) {
  if (rows.rule.columns == nullptr || scheme.is_float()) return true;
  const std::int64_t columns = columns_of(rows.shape);
  const std::int64_t group = scheme.scaling == Scaling::group ? scheme.group : 0;
  if (scheme.is_super() || group == 0 || columns % group != 0) return false;
  for (std::int64_t k = 0; k < columns; ++k) {
    const std::int64_t begin = stored_column(rows, k / group * group);
    if (begin % group != 0 || stored_column(rows, k) != begin + k % group) return false;
  }
  return true;
}

// Permutes a row's values, each of which covers `each` columns, to leq's order of columns.
template <class T>
void move_columns(const StoredRows& rows, std::int64_t each, std::vector<T>& row) {
  const std::vector<T> stored = row;
  for (std::size_t i = 0; i < row.size(); ++i) {
    const std::int64_t from = stored_column(rows, static_cast<std::int64_t>(i) * each) / each;
    row[i] = stored[static_cast<std::size_t>(from)];
  }
}

auto read_code_rows(const Rows& rows) {
  return
      [rows](const QuantScheme& scheme, std::int64_t first, std::int64_t count, ChosenCodes& out) {
        const TensorRule& rule = rows->rule;
        if (rule.order == nullptr && rule.columns == nullptr) {
          return rows->source.read_codes(rows->tensor, scheme, rows->first_row + first, count, out);
        }
        out = {};
        for (std::int64_t row = first; row < first + count; ++row) {
          ChosenCodes one;
          if (!rows->source.read_codes(rows->tensor, scheme, stored_row(*rows, row), 1, one)) {
            return false;
          }
          if (rule.columns != nullptr) {
            move_columns(*rows, 1, one.codes);
            move_columns(*rows, scheme.group, one.scales);
            move_columns(*rows, scheme.group, one.zeros);
          }
          out.codes.insert(out.codes.end(), one.codes.begin(), one.codes.end());
          out.scales.insert(out.scales.end(), one.scales.begin(), one.scales.end());
          out.zeros.insert(out.zeros.end(), one.zeros.begin(), one.zeros.end());
        }
        return true;
      };
}

}  // namespace

Shape conv_shape(const ModelConfig& config) {
  const DeltaNetConfig& delta = *config.delta_net();
  return {delta.channels(), 1, delta.conv_taps};
}

RowReaders row_readers(StoredRows stored) {
  if (!moves_columns(stored)) stored.rule.columns = nullptr;
  const auto rows = std::make_shared<const StoredRows>(std::move(stored));
  const TensorRule& rule = rows->rule;
  if (rule.transposed) return {read_transposed(rows)};
  if (rule.taps_first) return {read_taps_first(rows)};
  RowReaders readers = {read_rows(rows)};
  const bool computed = rule.added != 0 || rule.log_of_negative || rule.normed_rows;
  if (computed || rule.column_parts > 1) return readers;
  const auto own = rows->source.own_scheme(rows->tensor);
  if (own && !moves_groups(*rows, *own)) return readers;
  readers.own_scheme = own;
  const bool moves_codes = rule.columns == nullptr || (own && !own->is_float());
  if (moves_codes) readers.read_codes = read_code_rows(rows);
  return readers;
}

}  // namespace leq
