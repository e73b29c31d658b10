#include "base/table.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "base/json.h"
#include "base/text.h"

namespace leq {
namespace {

// The shortest decimal that reads back as the same number.
std::string exact(double value) {
  if (!std::isfinite(value)) return fixed(value, 0);
  std::array<char, 32> buffer;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  return {buffer.data(), end.ptr};
}

struct ForText {
  int decimals;
  std::string operator()(std::monostate) const { return ""; }
  std::string operator()(const std::string& text) const {
    return printable(replace_all(text, "\n", " "), std::string::npos);
  }
  std::string operator()(std::int64_t number) const { return std::to_string(number); }
  std::string operator()(double number) const { return fixed(number, decimals); }
};

struct ForCsv {
  std::string operator()(std::monostate) const { return ""; }
  std::string operator()(const std::string& text) const {
    if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
    return '"' + replace_all(text, "\"", "\"\"") + '"';
  }
  std::string operator()(std::int64_t number) const { return std::to_string(number); }
  std::string operator()(double number) const { return exact(number); }
};

struct ForJson {
  std::string operator()(std::monostate) const { return "null"; }
  std::string operator()(const std::string& text) const { return Json(text).dump_any(); }
  std::string operator()(std::int64_t number) const { return Json(number).dump(); }
  std::string operator()(double number) const { return Json(number).dump(); }  // null if not finite
};

std::string shown(const Cell& cell) { return std::visit(ForText{cell.decimals}, cell.value); }

bool is_number(const Cell& cell) {
  return std::holds_alternative<std::int64_t>(cell.value) ||
         std::holds_alternative<double>(cell.value);
}

// The width in characters, not bytes: "12.3 ± 0.1" has ten.
std::size_t width_of(std::string_view text) {
  std::size_t width = 0;
  while (!text.empty()) {
    text.remove_prefix(std::max<std::size_t>(1, utf8_length(text)));
    ++width;
  }
  return width;
}

std::string padded(const std::string& text, std::size_t width, bool align_right) {
  const std::string space(width - std::min(width, width_of(text)), ' ');
  return align_right ? space + text : text + space;
}

// An object whose members are in the order of the columns; Json would sort them.
class JsonObject {
 public:
  explicit JsonObject(std::string indent) : indent_(std::move(indent)) {}
  void add(const std::string& name, const std::string& value) {
    text_ +=
        (text_.empty() ? "{\n" : ",\n") + indent_ + "  " + Json(name).dump_any() + ": " + value;
  }
  std::string text() const { return text_.empty() ? "{}" : text_ + '\n' + indent_ + '}'; }

 private:
  std::string indent_, text_;
};

// The formatted cells of all rows, and their alignment.
struct Grid {
  std::vector<std::string> names;
  std::vector<std::vector<std::string>> cells;  // [rows][columns]
  std::vector<std::size_t> widths;
  std::vector<bool> numeric;  // columns with only numbers and blanks
};

Grid make_grid(const std::vector<std::string>& columns,
               const std::vector<std::vector<Cell>>& rows) {
  Grid grid{.names = columns, .cells = {}, .widths = {}, .numeric = {}};
  for (const auto& name : columns) {
    grid.widths.push_back(width_of(name));
    grid.numeric.push_back(!rows.empty());
  }
  for (const auto& row : rows) {
    auto& line = grid.cells.emplace_back(columns.size());
    for (std::size_t column = 0; column < row.size(); ++column) {
      line[column] = shown(row[column]);
      grid.widths[column] = std::max(grid.widths[column], width_of(line[column]));
      if (!line[column].empty() && !is_number(row[column])) grid.numeric[column] = false;
    }
  }
  return grid;
}

}  // namespace

void Table::add(const Row& row) {
  auto& cells = rows_.emplace_back(columns_.size());
  for (const auto& [name, cell] : row) {
    const auto found = std::ranges::find(columns_, name);
    const auto column = static_cast<std::size_t>(found - columns_.begin());
    if (found == columns_.end()) {
      columns_.push_back(name);
      cells.emplace_back();
    }
    cells[column] = cell;
  }
}

std::string Table::text() const {
  const Grid grid = make_grid(columns_, rows_);
  std::string out;
  const auto add_line = [&](const std::vector<std::string>& cells) {
    std::string line;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      line += (i == 0 ? "" : "  ") + padded(cells[i], grid.widths[i], grid.numeric[i]);
    }
    out += line.substr(0, line.find_last_not_of(' ') + 1) + '\n';
  };
  add_line(grid.names);
  for (const auto& cells : grid.cells) add_line(cells);
  return out;
}

std::string Table::markdown() const {
  Grid grid = make_grid(columns_, rows_);
  for (auto& cells : grid.cells) {
    for (std::size_t i = 0; i < cells.size(); ++i) {
      cells[i] = replace_all(replace_all(cells[i], "|", "\\|"), "\n", " ");
      grid.widths[i] = std::max({grid.widths[i], width_of(cells[i]), std::size_t{3}});
    }
  }
  std::string out;
  const auto add_line = [&](const std::vector<std::string>& cells) {
    for (std::size_t i = 0; i < cells.size(); ++i) {
      out += "| " + padded(cells[i], grid.widths[i], grid.numeric[i]) + " ";
    }
    out += "|\n";
  };
  add_line(grid.names);
  for (std::size_t i = 0; i < grid.names.size(); ++i) {
    out += grid.numeric[i] ? "| " + std::string(grid.widths[i] - 1, '-') + ": "
                           : "| " + std::string(grid.widths[i], '-') + " ";
  }
  out += "|\n";
  for (const auto& cells : grid.cells) add_line(cells);
  return out;
}

std::string Table::csv() const {
  std::string out;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    out += (i == 0 ? "" : ",") + ForCsv{}(columns_[i]);
  }
  out += '\n';
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      if (i > 0) out += ',';
      if (i < row.size()) out += std::visit(ForCsv{}, row[i].value);
    }
    out += '\n';
  }
  return out;
}

std::string Table::json() const {
  std::string text;
  for (const auto& row : rows_) {
    JsonObject object("  ");
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      object.add(columns_[i], i < row.size() ? std::visit(ForJson{}, row[i].value) : "null");
    }
    text += (text.empty() ? "[\n  " : ",\n  ") + object.text();
  }
  return (text.empty() ? "[]" : text + "\n]") + '\n';
}

std::string json_object(const Row& row) {
  JsonObject object("");
  for (const auto& [name, cell] : row) object.add(name, std::visit(ForJson{}, cell.value));
  return object.text() + '\n';
}

}  // namespace leq
