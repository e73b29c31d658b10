// Rows of named cells, shown as aligned text, markdown, csv or json. People see rounded numbers;
// csv and json hold every digit.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace leq {

struct Cell {
  Cell() = default;  // nothing: blank for people, null in json
  Cell(std::string text) : value(std::move(text)) {}
  Cell(const char* text) : value(std::string(text)) {}
  Cell(std::int64_t number) : value(number) {}
  Cell(int number) : value(std::int64_t{number}) {}
  Cell(double number, int decimals_shown) : value(number), decimals(decimals_shown) {}

  std::variant<std::monostate, std::string, std::int64_t, double> value;
  int decimals = 0;  // of a real number, in text and markdown
};

// Cells in the order of the columns, each with its column's name.
using Row = std::vector<std::pair<std::string, Cell>>;

class Table {
 public:
  // A name that no row had before becomes a further column; a cell that a row lacks is empty.
  void add(const Row& row);

  bool empty() const { return rows_.empty(); }
  std::size_t size() const { return rows_.size(); }

  // Columns under their names, numbers to the right, two spaces between.
  std::string text() const;
  std::string markdown() const;
  // RFC 4180 with "\n" line ends, the names in the first line.
  std::string csv() const;
  // An array of objects with the keys in column order; numbers that are not finite become null.
  std::string json() const;
  // A <table>; what people see, and of numbers every digit in data-value, as json has them.
  std::string html() const;

 private:
  std::vector<std::string> columns_;
  std::vector<std::vector<Cell>> rows_;  // [rows][columns so far]
};

// One row as a json object, its keys in the row's order.
std::string json_object(const Row& row);

}  // namespace leq
