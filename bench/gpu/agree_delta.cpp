#include <algorithm>
#include <cmath>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include "bench/gpu/agree.h"
#include "bench/gpu/cpu_delta.h"
#include "bench/gpu/timing.h"

namespace leq::LEQ_GPU::bench {
namespace {

using Outputs = std::vector<std::vector<float>>;  // of each sequence

std::span<const std::uint32_t> words(const std::vector<float>& values) {
  return {reinterpret_cast<const std::uint32_t*>(values.data()), values.size()};
}

// Steps of at most `rows` tokens of each sequence.
std::vector<DeltaStep> in_steps(const std::vector<int>& lengths, int rows) {
  std::vector<DeltaStep> steps;
  for (int done = 0; done < *std::ranges::max_element(lengths); done += rows) {
    DeltaStep& step = steps.emplace_back();
    for (int s = 0; s < static_cast<int>(std::ssize(lengths)); ++s) {
      const int left = lengths[static_cast<std::size_t>(s)] - done;
      if (left > 0) step.push_back({s, std::min(left, rows)});
    }
  }
  return steps;
}

void compare(const Outputs& found, const Outputs& wanted, std::int64_t stride,
             const std::string& what, Tally& tally) {
  for (std::size_t s = 0; s < found.size(); ++s) {
    tally.compare(words(found[s]), words(wanted[s]), stride,
                  "delta net, sequence " + std::to_string(s) + ", " + what);
  }
}

// Counts outputs that are further from the formulas in double than f32 explains.
void compare_formulas(const std::vector<std::vector<double>>& formulas, const Outputs& found,
                      const std::string& what, Tally& tally) {
  double largest = 0;
  for (std::size_t s = 0; s < found.size(); ++s) {
    ++tally.runs;
    for (std::size_t i = 0; i < found[s].size(); ++i) {
      const double difference = std::fabs(found[s][i] - formulas[s][i]);
      if (!(difference <= kDeltaTolerance)) ++tally.wrong;
      largest = std::max(largest, difference);
    }
  }
  std::printf("%sdelta net, %s: at most %.2g from the formulas\n",
              largest <= kDeltaTolerance ? "" : "WRONG ", what.c_str(), largest);
}

}  // namespace

Tally compare_delta_net(bool tiny) {
  const DeltaCase sizes = tiny ? DeltaCase{1, 2, 128, 40, 4} : DeltaCase{16, 32, 128, 128, 4};
  const std::vector<int> lengths = tiny ? std::vector<int>{130, 65} : std::vector<int>{300, 129};
  constexpr int kWhole = 1000;
  const DeltaText text(sizes, lengths);
  std::vector<std::vector<double>> formulas;
  for (std::size_t s = 0; s < lengths.size(); ++s) formulas.push_back(text.in_double(s));

  Tally exact;
  const Outputs recurrence = text.run(in_steps(lengths, 1));
  for (const int rows : {3, 64, kWhole}) {
    compare(text.run(in_steps(lengths, rows), true), recurrence, sizes.values(),
            "exact, steps of " + std::to_string(rows), exact);
  }
  if (const auto cpu = cpu_delta_net(text)) {
    compare({recurrence[0]}, {*cpu}, sizes.values(), "beside the CPU", exact);
  } else {
    std::printf("delta net beside the CPU: not compared, this build has no CPU backend\n");
  }
  compare_formulas(formulas, recurrence, "recurrence", exact);
  Tally chunks;
  const Outputs whole = text.run(in_steps(lengths, kWhole));
  for (const int rows : {64, 128}) {
    compare(text.run(in_steps(lengths, rows)), whole, sizes.values(),
            "chunks, steps of " + std::to_string(rows), chunks);
  }
  compare_formulas(formulas, whole, "chunks", chunks);
  compare_formulas(formulas, text.run(in_steps(lengths, 100)), "chunks and single tokens", chunks);

  const CodeFormat f32 = {"f32", 32, 0, false, -1};
  print(f32, "delta net", sizes.values(), sizes.width(), exact);
  print(f32, "delta net, chunks", sizes.values(), sizes.width(), chunks);
  exact.add(chunks);
  return exact;
}

}  // namespace leq::LEQ_GPU::bench
