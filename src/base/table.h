// Rows of named cells, printed as aligned text, markdown, csv or json. Text and markdown have
// rounded numbers; csv and json have all digits.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace leq {

struct Cell {
  Cell() = default;  // empty: blank in text, null in json
  Cell(std::string text) : value(std::move(text)) {}
  Cell(const char* text) : value(std::string(text)) {}
  Cell(std::int64_t number) : value(number) {}
  Cell(int number) : value(std::int64_t{number}) {}
  Cell(double number, int decimals_shown) : value(number), decimals(decimals_shown) {}

  std::variant<std::monostate, std::string, std::int64_t, double> value;
  int decimals = 0;  // for real numbers in text and markdown
};

// Cells in the order of the columns, each with the name of its column.
using Row = std::vector<std::pair<std::string, Cell>>;

class Table {
 public:
  // A name that no earlier row had adds a column; cells that a row lacks are empty.
  void add(const Row& row);

  bool empty() const { return rows_.empty(); }
  std::size_t size() const { return rows_.size(); }

  // Columns under their names, with numbers right-aligned and two spaces between columns.
  std::string text() const;
  std::string markdown() const;
  // RFC 4180 with "\n" line ends; the first line has the column names.
  std::string csv() const;
  // An array of objects with keys in column order; numbers that are not finite become null.
  std::string json() const;

 private:
  std::vector<std::string> columns_;
  std::vector<std::vector<Cell>> rows_;  // [rows][columns so far]
};

// One row as a json object with keys in the row's order.
std::string json_object(const Row& row);

}  // namespace leq
