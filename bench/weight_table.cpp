// Prints a markdown table of the errors of weights: every method that needs no inputs, in the types
// that it writes, on the matrices of safetensors files.
//   weight_table [--conv1d REGEX] FILE.safetensors...
// Matrices whose names match REGEX are stored as [in, out] and are transposed. Below the table are
// orders of errors, and how often they hold; theory predicts all orders but the last.
#include <array>
#include <cmath>
#include <exception>
#include <iostream>
#include <map>
#include <regex>
#include <sstream>

#include "base/error.h"
#include "base/table.h"
#include "base/text.h"
#include "format/tensor_source.h"
#include "quantize/methods/method.h"
#include "quantize/methods/second_order.h"
#include "tensor/weight_layout.h"

namespace leq {
namespace {

struct Weight {
  std::string name;
  std::int64_t rows = 0, columns = 0;
  std::vector<float> values;
};

// The errors of one method and type, for each weight.
struct Errors {
  std::string method, type;
  std::vector<double> of_weight;  // |W - Wq|^2 / |W|^2
  double overall = 0;             // the same for all weights together
  double bits = 0;                // bits per weight with scales, without sums for activations
};

std::vector<float> turned(const std::vector<float>& values, std::int64_t rows,
                          std::int64_t columns) {
  std::vector<float> out(values.size());
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) {
      out[static_cast<std::size_t>(j * rows + i)] =
          values[static_cast<std::size_t>(i * columns + j)];
    }
  }
  return out;
}

void read_weights(const std::string& file, const std::string& conv1d, std::vector<Weight>& out) {
  const auto source = open_safetensors(file);
  for (const SourceTensor& tensor : source->tensors()) {
    if (tensor.shape.size() != 2) continue;
    Weight weight{tensor.name, tensor.shape[0], tensor.shape[1], {}};
    weight.values.resize(static_cast<std::size_t>(weight.rows * weight.columns));
    read_floats(tensor, 0, weight.values);
    if (!conv1d.empty() && std::regex_search(tensor.name, std::regex(conv1d))) {
      weight.values = turned(weight.values, weight.rows, weight.columns);
      std::swap(weight.rows, weight.columns);
    }
    out.push_back(std::move(weight));
  }
}

Errors measure(const QuantMethod& method, const std::string& type,
               const std::vector<Weight>& weights, ThreadPool& pool) {
  Errors errors{std::string(method.name), type, {}, 0, 0};
  double wrong = 0, all = 0, bytes = 0, count = 0;
  for (const Weight& weight : weights) {
    MethodInput input;
    input.name = weight.name;
    input.weight = weight.values;
    input.rows = weight.rows;
    input.columns = weight.columns;
    input.scheme = require_scheme(type, "type");
    input.pool = &pool;
    const ChosenCodes codes = method.choose(input).codes;
    const auto found = dequantize(codes, weight.rows, weight.columns, input.scheme);
    errors.of_weight.push_back(
        weight_error({weight.values, found, weight.rows, weight.columns, &pool}));
    double squares = 0;
    for (const float value : weight.values) squares += static_cast<double>(value) * value;
    wrong += errors.of_weight.back() * squares;
    all += squares;
    const PlaneBytes planes = plane_bytes(input.scheme, ActKind::none, weight.rows, weight.columns);
    bytes += static_cast<double>(planes.codes + planes.scales + planes.zeros);
    count += static_cast<double>(weight.values.size());
  }
  errors.overall = wrong / all;
  errors.bits = 8 * bytes / count;
  return errors;
}

std::vector<Errors> measure_all(const std::vector<Weight>& weights) {
  std::vector<std::string> types = {"int8-tensor", "int8", "uint8", "nf4"};
  for (const char* start : {"int8", "uint8", "int4", "uint4", "int3", "uint3", "int2", "uint2"}) {
    for (const char* group : {"-g128", "-g64", "-g32"}) types.push_back(std::string(start) + group);
  }
  ThreadPool pool(0);
  std::vector<Errors> all;
  for (const char* name : {"absmax", "zeropoint", "rtn", "zeroquant", "nf4"}) {
    const QuantMethod& method = require_method(name);
    for (const std::string& type : types) {
      if (!method.supports(require_scheme(type, "type"))) continue;
      all.push_back(measure(method, type, weights, pool));
    }
  }
  return all;
}

std::string scientific(double value) {
  std::ostringstream text;
  text.precision(3);
  text << std::scientific << value;
  return text.str();
}

// An expected order of errors: how often it holds over all pairs of results, weight by weight.
struct Order {
  std::string text;
  bool equal = false;
  int holds = 0, of = 0;
  std::string broken = {};  // the first result that violates the order

  void compare(const Errors& better, const Errors& worse, const std::vector<Weight>& weights) {
    for (std::size_t i = 0; i < weights.size(); ++i, ++of) {
      const double left = better.of_weight[i], right = worse.of_weight[i];
      if (equal ? left == right : left <= right) {
        ++holds;
      } else if (broken.empty()) {
        broken = better.method + ' ' + better.type + " on " + weights[i].name;
      }
    }
  }
};

// Returns "int4-g64" for "int4-g128", "int8-g128" for "int8"; empty if there is no finer type.
std::string halved(const std::string& type) {
  if (type == "int8" || type == "uint8") return type + "-g128";
  for (const auto& [from, to] : {std::pair{"-g128", "-g64"}, {"-g64", "-g32"}}) {
    const auto at = type.find(from);
    if (at != std::string::npos) return type.substr(0, at) + to;
  }
  return "";
}

void print_orders(const std::vector<Errors>& all, const std::vector<Weight>& weights) {
  std::map<std::pair<std::string, std::string>, const Errors*> by_name;
  for (const Errors& errors : all) by_name[{errors.method, errors.type}] = &errors;
  Order rows{"int8 by row <= by tensor"}, halves{"half the group <= the group"};
  Order weighted{"rtn <= absmax and zeropoint"}, zeros{"rtn in uint <= rtn in int"};
  Order same{"zeroquant = absmax", true};
  for (const auto& [name, errors] : by_name) {
    const auto& [method, type] = name;
    const auto offer = [&](Order& order, const std::string& other, const std::string& other_type) {
      const auto found = by_name.find({other, other_type});
      if (found != by_name.end()) order.compare(*errors, *found->second, weights);
    };
    if (type == "int8") offer(rows, method, "int8-tensor");
    for (const auto& [coarse, of_coarse] : by_name) {
      if (coarse.first == method && halved(coarse.second) == type) {
        halves.compare(*errors, *of_coarse, weights);
      }
    }
    if (method == "rtn") offer(weighted, type[0] == 'u' ? "zeropoint" : "absmax", type);
    if (method == "zeroquant") offer(same, "absmax", type);
    if (method == "rtn" && type[0] == 'u') offer(zeros, "rtn", type.substr(1));
  }
  for (const Order& order : {rows, halves, weighted, same, zeros}) {
    std::cout << "* " << order.text << ": " << order.holds << " of " << order.of
              << (order.broken.empty() ? "" : ", not " + order.broken) << '\n';
  }
}

int run(const std::vector<std::string>& files, const std::string& conv1d) {
  std::vector<Weight> weights;
  for (const std::string& file : files) read_weights(file, conv1d, weights);
  require(!weights.empty(), files.front(), ": no matrix");
  const std::vector<Errors> all = measure_all(weights);
  Table table;
  for (const Errors& errors : all) {
    Row row = {{"method", errors.method}, {"type", errors.type}, {"bits/weight", {errors.bits, 3}}};
    for (std::size_t i = 0; i < weights.size(); ++i) {
      row.emplace_back(weights[i].name, scientific(errors.of_weight[i]));
    }
    row.emplace_back("all", scientific(errors.overall));
    table.add(row);
  }
  std::cout << table.markdown() << '\n';
  print_orders(all, weights);
  return 0;
}

}  // namespace
}  // namespace leq

int main(int argc, char** argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  std::string conv1d;
  if (words.size() >= 2 && words[0] == "--conv1d") {
    conv1d = words[1];
    words.erase(words.begin(), words.begin() + 2);
  }
  if (words.empty()) {
    std::cerr << "usage: weight_table [--conv1d REGEX] FILE.safetensors...\n";
    return 1;
  }
  try {
    return leq::run(words, conv1d);
  } catch (const std::exception& error) {
    std::cerr << "weight_table: " << error.what() << '\n';
    return 1;
  }
}
