#include "comm/agreement.h"

#include <cstring>

#include "base/bytes.h"

namespace leq {
namespace {

constexpr std::string_view kSite = "the comparison of programs and settings";

void write_text(std::vector<std::byte>& bytes, std::string_view text) {
  const std::uint64_t size = text.size();
  const auto length = std::as_bytes(std::span(&size, 1));
  bytes.insert(bytes.end(), length.begin(), length.end());
  const auto letters = as_bytes(text);
  bytes.insert(bytes.end(), letters.begin(), letters.end());
}

std::string read_text(ByteReader& reader) {
  const auto size = reader.read<std::uint64_t>("a length");
  return std::string(as_text(reader.take(size, "a text")));
}

// The first difference; empty if there is none.
std::string difference(std::span<const std::byte> leaders, const std::vector<RankFact>& facts) {
  ByteReader reader(leaders, kSite);
  for (const RankFact& fact : facts) {
    const std::string name = reader.left() == 0 ? "" : read_text(reader);
    if (name != fact.name) return "it is another program than the leader: its version differs";
    const std::string value = read_text(reader);
    if (value != fact.value) return fact.name + ": " + fact.value + ", the leader has " + value;
  }
  return reader.left() == 0 ? "" : "it is another program than the leader: its version differs";
}

}  // namespace

void require_agreement(Communicator& ranks, const std::vector<RankFact>& facts) {
  std::vector<std::byte> bytes;
  for (const RankFact& fact : facts) {
    write_text(bytes, fact.name);
    write_text(bytes, fact.value);
  }
  ranks.broadcast(bytes, kSite);
  const std::string differs = ranks.leads() ? "" : difference(bytes, facts);
  if (!differs.empty())
    throw ranks.abort(rank_error(ranks, Error(differs, ErrorKind::bad_setting)));
  ranks.barrier(kSite);
}

}  // namespace leq
