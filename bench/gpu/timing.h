// Times of launches, in microseconds, and what programs here share: options, the ceilings that
// 2_ceilings.sh measured, table cells.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "cuda/rt/rt.h"

namespace leq::LEQ_GPU::bench {

// Median over repetitions of the time of launch(0) ... launch(items - 1) in one CUDA graph, divided
// by `items`: give each item data of its own, so that no cache holds it. On the emulator each
// runs once.
double microseconds(rt::Stream& stream, int items, const std::function<void(int item)>& launch);

struct Options {
  bool tiny = false;  // sizes for the emulator, to test these programs
  std::map<std::string, double> ceilings;
};
// [--tiny] [--ceilings FILE], a file of lines "name value". Throws Error.
Options parse_options(int argc, char** argv);

// Prints one line of a Markdown table.
void print_row(const std::vector<std::string>& cells);
void print_head(const std::vector<std::string>& names);
std::string number(double value, int digits);
// value / ceilings[name] in percent; "n/a" where there is none.
std::string share(const Options& options, const std::string& name, double value);

// Runs a program's body: its errors go to stderr; without a device it says so. Its exit status.
int run_bench(int argc, char** argv, void (*body)(const Options& options, rt::Stream& stream));

}  // namespace leq::LEQ_GPU::bench
