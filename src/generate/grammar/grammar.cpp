#include "generate/grammar/grammar.h"

#include <algorithm>
#include <utility>

#include "generate/grammar/dead_ends.h"

namespace leq {
namespace {

using Edge = Grammar::Edge;

// Appends the parts of an edge that remain if only the given bytes are accepted.
void append_parts(std::vector<Edge>& parts, const Edge& edge, const std::bitset<256>& bytes) {
  bool follows = false;  // the previous byte belongs to the last part
  for (std::size_t byte = edge.first; byte <= edge.last; ++byte) {
    const auto now = static_cast<std::uint8_t>(byte);
    if (bytes[byte] && follows) {
      parts.back().last = now;
    } else if (bytes[byte]) {
      parts.push_back({now, now, edge.to});
    }
    follows = bytes[byte];
  }
}

bool takes_only(const Edge& edge, const std::bitset<256>& bytes) {
  for (std::size_t byte = edge.first; byte <= edge.last; ++byte) {
    if (!bytes[byte]) return false;
  }
  return true;
}

}  // namespace

std::shared_ptr<const Grammar> Grammar::written_with(std::shared_ptr<const Grammar> grammar,
                                                     const std::bitset<256>& bytes) {
  const bool whole = std::ranges::all_of(grammar->places_, [&](const Place& place) {
    return std::ranges::all_of(place.edges, [&](const Edge& e) { return takes_only(e, bytes); });
  });
  if (whole) return grammar;
  const std::shared_ptr<Grammar> left(new Grammar(*grammar));
  for (Place& place : left->places_) {
    std::vector<Edge> edges;
    for (const Edge& edge : place.edges) append_parts(edges, edge, bytes);
    place.edges = std::move(edges);
  }
  return drop_dead_ends(left->places_, left->starts_, left->root_) ? left : nullptr;
}

}  // namespace leq
