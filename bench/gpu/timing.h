// Measures launches in microseconds; also has what the programs share: options, the ceilings that
// 2_ceilings.sh measured, and table cells.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "cuda/rt/rt.h"

namespace leq::LEQ_GPU::bench {

// Returns the time of launch(0) ... launch(items - 1) in one CUDA graph, divided by `items`; the
// median over repetitions. Items should have data of their own, so that no cache holds the data. On
// the emulator each item runs once.
double microseconds(rt::Stream& stream, int items, const std::function<void(int item)>& launch);

struct Options {
  bool tiny = false;  // small sizes, to test these programs on the emulator
  std::string only;   // one section of a program that has several; empty: all
  std::map<std::string, double> ceilings;
};
// Parses [--tiny] [--only SECTION] [--ceilings FILE]; the file has lines "name value". Throws
// Error.
Options parse_options(int argc, char** argv);

// Prints one row of a Markdown table.
void print_row(const std::vector<std::string>& cells);
void print_head(const std::vector<std::string>& names);
std::string number(double value, int digits);
// Returns value / ceilings[name] in percent; "n/a" if the ceiling is missing.
std::string share(const Options& options, const std::string& name, double value);

// Runs a program's body and returns the exit status; reports errors or a missing device on stderr.
int run_bench(int argc, char** argv, void (*body)(const Options& options, rt::Stream& stream));

}  // namespace leq::LEQ_GPU::bench
