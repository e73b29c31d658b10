#include "cuda/host/matmul_arguments.h"

#include <algorithm>

namespace leq::LEQ_GPU {

bool is_one_launch(const Linear& linear) {
  return linear.segments.size() <= kMaxSegments &&
         std::ranges::all_of(linear.parts(), [&](const LinearSegment& segment) {
           return segment.weight.scheme == linear.segments[0].weight.scheme;
         });
}

std::vector<Linear> launched_parts(const Linear& linear) {
  std::vector<Linear> parts;
  for (const LinearSegment& segment : linear.parts()) {
    const bool joins = !parts.empty() && parts.back().segments.size() < kMaxSegments &&
                       parts.back().segments[0].weight.scheme == segment.weight.scheme;
    if (!joins) {
      parts.push_back(linear);
      parts.back().segments.clear();
      parts.back().outputs = 0;
    }
    parts.back().segments.push_back(segment);
    parts.back().outputs += segment.weight.rows;
  }
  return parts;
}

}  // namespace leq::LEQ_GPU
