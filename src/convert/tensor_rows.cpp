#include "convert/tensor_rows.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "base/error.h"

namespace leq {
namespace {

std::int64_t columns_of(const Shape& shape) { return shape.size() == 2 ? shape[1] : 1; }

// Which stored row is row `row`.
std::int64_t stored_row(const StoredRows& rows, std::int64_t row) {
  return rows.rule.order != nullptr ? rows.rule.order->row(rows.config, row) : rows.first_row + row;
}

// What a rule makes of each number once its row is read.
void finish_row(const TensorRule& rule, const ModelConfig& config, std::span<float> row) {
  // In f32, whatever the stored type: 1 + w has bits that w's type has not.
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
    const double norm = std::sqrt(mean + double{config.norm_eps});
    for (float& number : row) number = static_cast<float>(double{number} / norm);
  }
  if (rule.columns != nullptr) {
    const std::vector<float> stored(row.begin(), row.end());
    for (std::size_t k = 0; k < row.size(); ++k) {
      row[k] =
          stored[static_cast<std::size_t>(rule.columns->row(config, static_cast<std::int64_t>(k)))];
    }
  }
}

auto read_rows(const StoredRows& rows) {
  return [source = &rows.source, tensor = &rows.tensor, rule = rows.rule, config = rows.config,
          first_row = rows.first_row, columns = columns_of(rows.shape)](
             std::int64_t first, std::int64_t count, std::span<float> out) {
    const auto width = static_cast<std::size_t>(columns);
    const std::int64_t stored = columns * rule.column_parts;  // columns of a stored row
    const bool at_once = rule.order == nullptr && rule.column_parts == 1;
    if (at_once) {
      source->read(*tensor, (first_row + first) * columns,
                   out.first(static_cast<std::size_t>(count) * width));
    }
    for (std::int64_t i = 0; i < count; ++i) {
      const std::span<float> row = out.subspan(static_cast<std::size_t>(i) * width, width);
      if (!at_once) {
        const std::int64_t from =
            rule.order != nullptr ? rule.order->row(config, first + i) : first_row + first + i;
        source->read(*tensor, from * stored + columns * rule.column_part, row);
      }
      finish_row(rule, config, row);
    }
  };
}

auto read_transposed(const StoredRows& rows) {
  const std::int64_t stored = rows.rule.parts * rows.shape[0];
  return [source = &rows.source, tensor = &rows.tensor, columns = columns_of(rows.shape),
          first_row = rows.first_row,
          stored](std::int64_t first, std::int64_t count, std::span<float> out) {
    std::vector<float> line(static_cast<std::size_t>(count));
    for (std::int64_t k = 0; k < columns; ++k) {
      source->read(*tensor, k * stored + first_row + first, line);
      for (std::int64_t n = 0; n < count; ++n) {
        out[static_cast<std::size_t>(n * columns + k)] = line[static_cast<std::size_t>(n)];
      }
    }
  };
}

auto read_taps_first(const StoredRows& rows) {
  const Shape conv = conv_shape(rows.config);
  std::vector<std::int64_t> channels;  // where each is stored
  for (std::int64_t i = 0; i < conv[0]; ++i) channels.push_back(stored_row(rows, i));
  return [source = &rows.source, tensor = &rows.tensor, channels, taps = conv[2]](
             std::int64_t first, std::int64_t count, std::span<float> out) {
    std::vector<float> all(channels.size() * static_cast<std::size_t>(taps));
    source->read(*tensor, 0, all);
    for (std::int64_t i = 0; i < count; ++i) {
      const auto at = static_cast<std::size_t>(first + i);
      const std::int64_t channel = channels[at % channels.size()];
      const auto tap = static_cast<std::int64_t>(at / channels.size());
      out[static_cast<std::size_t>(i)] = all[static_cast<std::size_t>(channel * taps + tap)];
    }
  };
}

// Whether columns move in whole groups of a scheme, so that codes and scales can move with them.
bool moves_groups(const StoredRows& rows, const QuantScheme& scheme) {
  if (rows.rule.columns == nullptr) return true;
  const std::int64_t columns = columns_of(rows.shape);
  const std::int64_t group = scheme.scaling == Scaling::group ? scheme.group : 0;
  if (group == 0 || columns % group != 0) return scheme.is_float();
  const auto stored = [&](std::int64_t k) { return rows.rule.columns->row(rows.config, k); };
  for (std::int64_t k = 0; k < columns; ++k) {
    if (stored(k) != stored(k / group * group) + k % group) return false;
    if (stored(k / group * group) % group != 0) return false;
  }
  return true;
}

// Numbers of a row, `each` columns to one of them, in the order of leq's columns.
template <class T>
void move_columns(const TensorRule& rule, const ModelConfig& config, std::int64_t each,
                  std::vector<T>& row) {
  const std::vector<T> stored = row;
  for (std::size_t i = 0; i < row.size(); ++i) {
    const std::int64_t from = rule.columns->row(config, static_cast<std::int64_t>(i) * each) / each;
    row[i] = stored[static_cast<std::size_t>(from)];
  }
}

auto read_code_rows(const StoredRows& rows) {
  return [source = &rows.source, tensor = &rows.tensor, rule = rows.rule, config = rows.config,
          first_row = rows.first_row](const QuantScheme& scheme, std::int64_t first,
                                      std::int64_t count, ChosenCodes& out) {
    if (rule.order == nullptr && rule.columns == nullptr) {
      return source->read_codes(*tensor, scheme, first_row + first, count, out);
    }
    out = {};
    for (std::int64_t row = first; row < first + count; ++row) {
      const std::int64_t at =
          rule.order != nullptr ? rule.order->row(config, row) : first_row + row;
      ChosenCodes one;
      if (!source->read_codes(*tensor, scheme, at, 1, one)) return false;
      if (rule.columns != nullptr) {
        move_columns(rule, config, 1, one.codes);
        move_columns(rule, config, scheme.group, one.scales);
        move_columns(rule, config, scheme.group, one.zeros);
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

RowReaders row_readers(const StoredRows& rows) {
  const TensorRule& rule = rows.rule;
  if (rule.transposed) return {read_transposed(rows)};
  if (rule.taps_first) return {read_taps_first(rows)};
  RowReaders readers = {read_rows(rows)};
  const bool computed = rule.added != 0 || rule.log_of_negative || rule.normed_rows;
  if (computed || rule.column_parts > 1) return readers;
  const auto own = rows.source.own_scheme(rows.tensor);
  if (own && !moves_groups(rows, *own)) return readers;
  readers.own_scheme = own;
  const bool moves_codes = rule.columns == nullptr || (own && !own->is_float());
  if (moves_codes) readers.read_codes = read_code_rows(rows);
  return readers;
}

}  // namespace leq
