#include "bench/gpu/timing.h"

#include <cstdio>
#include <exception>
#include <fstream>

#include "base/error.h"

namespace leq::LEQ_GPU::bench {

Options parse_options(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--tiny") {
      options.tiny = true;
    } else if (argument == "--only" && i + 1 < argc) {
      options.only = argv[++i];
    } else if (argument == "--ceilings" && i + 1 < argc) {
      std::ifstream file(argv[++i]);
      std::string name;
      for (double value = 0; file >> name >> value;) options.ceilings[name] = value;
    } else {
      fail(argument, ": expected --tiny, --only SECTION or --ceilings FILE");
    }
  }
  return options;
}

void print_row(const std::vector<std::string>& cells) {
  for (const std::string& cell : cells) std::printf("| %s ", cell.c_str());
  std::printf("|\n");
  std::fflush(stdout);
}

void print_head(const std::vector<std::string>& names) {
  print_row(names);
  print_row(std::vector<std::string>(names.size(), "---"));
}

std::string number(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

std::string share(const Options& options, const std::string& name, double value) {
  const auto found = options.ceilings.find(name);
  if (found == options.ceilings.end() || found->second <= 0) return "n/a";
  return number(100 * value / found->second, 1) + " %";
}

int run_bench(int argc, char** argv, void (*body)(const Options& options, rt::Stream& stream)) {
  try {
    const Options options = parse_options(argc, argv);
    const auto devices = rt::devices();
    if (devices.empty()) {
      std::printf("gpu: NOT RUN (%s)\n", rt::why_no_device().c_str());
      return 0;
    }
    const rt::StreamOwner stream = rt::make_stream(0);
    std::printf("%s\n\n", devices[0].name.c_str());
    body(options, *stream);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
    return 1;
  }
}

}  // namespace leq::LEQ_GPU::bench
