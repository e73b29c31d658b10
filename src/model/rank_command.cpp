#include "model/rank_command.h"

#include <cstring>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"

namespace leq {
namespace {

constexpr std::string_view kSource = "a command between ranks";
constexpr std::int64_t kMostPositions = std::int64_t{1} << 40;  // upper bound of any valid position

class Writer {
 public:
  template <class T>
  void number(T value) {
    static_assert(std::is_trivially_copyable_v<T>);
    const std::size_t at = bytes_.size();
    bytes_.resize(at + sizeof value);
    std::memcpy(bytes_.data() + at, &value, sizeof value);
  }
  void list(std::span<const std::int32_t> numbers) {
    number(static_cast<std::int64_t>(numbers.size()));
    const auto bytes = std::as_bytes(numbers);
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

void write(Writer& writer, const RankStep& step) {
  writer.number(step.wanted);
  writer.list(step.batch.tokens);
  writer.list(step.batch.outputs);
  writer.list(step.positions);
  writer.list(step.copies);
  writer.number(static_cast<std::int64_t>(step.runs.size()));
  ensure(step.states.size() == step.runs.size(), kSource, ": ", step.states.size(), " states");
  for (std::size_t i = 0; i < step.runs.size(); ++i) {
    const SequenceRun& run = step.runs[i];
    writer.number(step.states[i].from);
    writer.number(step.states[i].to);
    writer.number(run.sequence);
    writer.number(run.first_row);
    writer.number(run.rows);
    writer.number(run.first_position);
    writer.list(run.pages);
  }
}

void write(Writer& writer, const PageCopy& copy) {
  writer.number(copy.of);
  writer.number(copy.from);
  writer.number(copy.to);
}

void write(Writer&, const RankEnd&) {}

void write(Writer& writer, const StateTransfer& transfer) {
  writer.number(transfer.kind);
  writer.number(transfer.state);
}

void write(Writer& writer, const SequenceTransfer& transfer) {
  writer.number(transfer.kind);
  writer.list(transfer.pages);
  writer.list(transfer.copies);
}

std::vector<std::int32_t> read_list(ByteReader& reader) {
  const auto count = reader.read<std::int64_t>("the length of a list");
  require(count >= 0 && static_cast<std::uint64_t>(count) <= reader.left() / 4, kSource,
          ": a list of ", count, " numbers");
  const auto bytes = reader.take(static_cast<std::uint64_t>(count) * 4, "a list");
  std::vector<std::int32_t> numbers(static_cast<std::size_t>(count));
  if (count > 0) std::memcpy(numbers.data(), bytes.data(), bytes.size());
  return numbers;
}

template <class Enum>
Enum read_enum(ByteReader& reader, Enum last) {
  const auto value = reader.read<std::uint8_t>("a kind");
  require(value <= static_cast<std::uint8_t>(last), kSource, ": kind ", int{value});
  return static_cast<Enum>(value);
}

// Checks that lists have the same length, rows are in order, and pages hold all positions.
void check_step(const RankStep& step) {
  const std::int64_t tokens = std::ssize(step.batch.tokens);
  bool fits = std::ssize(step.positions) == tokens;
  for (const std::int32_t row : step.batch.outputs) fits = fits && row >= 0 && row < tokens;
  std::int64_t rows = 0;
  for (const SequenceRun& run : step.runs) {
    fits = fits && run.first_row == rows && run.rows > 0 && run.rows <= tokens - rows &&
           run.first_position >= 0 && run.first_position <= kMostPositions &&
           run.end_position() <= std::ssize(run.pages) * kPageTokens;
    if (!fits) break;
    rows += run.rows;
  }
  require(fits && rows == tokens, kSource, ": a step that contradicts itself");
}

RankStep read_step(ByteReader& reader) {
  RankStep step;
  step.wanted = read_enum(reader, RankStep::Wanted::hidden);
  step.batch.tokens = read_list(reader);
  step.batch.outputs = read_list(reader);
  step.positions = read_list(reader);
  step.copies = read_list(reader);
  const auto runs = reader.read<std::int64_t>("the number of runs");
  require(runs >= 0 && runs <= std::ssize(step.batch.tokens), kSource, ": ", runs, " runs");
  for (std::int64_t i = 0; i < runs; ++i) {
    FixedStates::StepStates& states = step.states.emplace_back();
    states.from = reader.read<std::int32_t>("a state");
    states.to = reader.read<std::int32_t>("a state");
    SequenceRun run;
    run.sequence = reader.read<std::int32_t>("a sequence");
    run.first_row = reader.read<std::int64_t>("a row");
    run.rows = reader.read<std::int64_t>("the rows of a run");
    run.first_position = reader.read<std::int64_t>("a position");
    step.pages.push_back(read_list(reader));
    run.pages = step.pages.back();  // moving step.pages later does not move this list's numbers
    step.runs.push_back(run);
  }
  check_step(step);
  return step;
}

PageCopy read_copy(ByteReader& reader) {
  PageCopy copy;
  copy.of = read_enum(reader, PageCopy::Of::f16_copy);
  copy.from = reader.read<std::int32_t>("a page");
  copy.to = reader.read<std::int32_t>("a page");
  return copy;
}

SequenceTransfer read_transfer(ByteReader& reader) {
  SequenceTransfer transfer;
  transfer.kind = read_enum(reader, SequenceTransfer::Kind::load);
  transfer.pages = read_list(reader);
  transfer.copies = read_list(reader);
  return transfer;
}

StateTransfer read_state_transfer(ByteReader& reader) {
  StateTransfer transfer;
  transfer.kind = read_enum(reader, StateTransfer::Kind::write);
  transfer.state = reader.read<std::int32_t>("a state");
  return transfer;
}

}  // namespace

RankCommand as_rank_command(const KvCommand& command) {
  return std::visit([](const auto& one) -> RankCommand { return one; }, command);
}

std::vector<std::byte> encode(const RankCommand& command) {
  Writer writer;
  writer.number(static_cast<std::uint8_t>(command.index()));
  std::visit([&](const auto& one) { write(writer, one); }, command);
  return writer.take();
}

RankCommand decode_command(std::span<const std::byte> bytes) {
  ByteReader reader(bytes, kSource);
  RankCommand command;
  switch (reader.read<std::uint8_t>("its kind")) {
    case 0:
      command = read_step(reader);
      break;
    case 1:
      command = read_copy(reader);
      break;
    case 2:
      command = RankEnd();
      break;
    case 3:
      command = read_transfer(reader);
      break;
    case 4:
      command = read_state_transfer(reader);
      break;
    default:
      fail(kSource, ": of no known kind");
  }
  require(reader.left() == 0, kSource, ": ", reader.left(), " bytes too many");
  return command;
}

}  // namespace leq
