#include "bench/gpu/agree_layers.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "bench/gpu/random.h"
#include "bench/gpu/timing.h"
#include "cuda/kernels/delta/delta.h"
#include "cuda/kernels/experts/experts.h"

namespace leq::LEQ_GPU::bench {
namespace {

std::vector<std::uint32_t> words_of(const Memory& memory, std::size_t count, rt::Stream& stream) {
  std::vector<std::uint32_t> words(count);
  rt::copy_to_host(words.data(), memory.as<void>(), count * 4, stream);
  rt::synchronize(stream);
  return words;
}

std::int64_t differing(const std::vector<std::uint32_t>& a, const std::vector<std::uint32_t>& b) {
  std::int64_t wrong = 0;
  for (std::size_t i = 0; i < a.size(); ++i) wrong += a[i] != b[i] ? 1 : 0;
  return wrong;
}

// Counts the values whose difference is larger than rounding explains.
std::int64_t far(const std::vector<std::uint32_t>& a, const std::vector<std::uint32_t>& b) {
  constexpr float kTolerance = 2e-4f;
  std::int64_t wrong = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const auto x = std::bit_cast<float>(a[i]), y = std::bit_cast<float>(b[i]);
    wrong += std::fabs(x - y) <= kTolerance * std::max(1.0f, std::fabs(y)) ? 0 : 1;
  }
  return wrong;
}

template <class T>
Memory on_device(const std::vector<T>& values, rt::Stream& stream) {
  return Memory::repeated(std::as_bytes(std::span<const T>(values)), values.size() * sizeof(T),
                          stream);
}

struct ExpertSizes {
  int experts, active, width, hidden;
};

// The linears gate and up of all experts, with groups of 128, and the codes of some tokens.
class Experts {
 public:
  Experts(const ExpertSizes& sizes, int bits, std::int64_t tokens, rt::Stream& stream)
      : sizes_(sizes),
        bits_(bits),
        tokens_(tokens),
        stream_(stream),
        codes_(numbers<std::uint8_t>(
            codes_of_segment() * segments(), stream,
            [](std::uint32_t r) { return static_cast<std::uint8_t>(r >> 9); })),
        scales_(numbers<std::uint16_t>(
            scales_of_segment() * segments(), stream,
            [](std::uint32_t r) { return static_cast<std::uint16_t>(0x1800 + r % 0x800); })),
        x_(numbers<std::int8_t>(
            static_cast<std::size_t>(tokens * sizes.width), stream,
            [](std::uint32_t r) { return static_cast<std::int8_t>(r % 255 - 127); })),
        x_scales_(numbers<float>(static_cast<std::size_t>(tokens) * groups(), stream,
                                 [](std::uint32_t r) { return between(r, 0.005f, 0.015f); })),
        x_sums_(numbers<std::int32_t>(
            static_cast<std::size_t>(tokens) * groups(), stream,
            [](std::uint32_t r) { return static_cast<std::int32_t>(r % 4096) - 2048; })),
        table_(on_device(table(), stream)),
        choice_(on_device(choice(), stream)),
        out_(Memory::filled(out_words() * 4, 0, stream)) {}

  std::size_t out_words() const { return static_cast<std::size_t>(rows() * sizes_.hidden); }
  std::int64_t rows() const { return tokens_ * sizes_.active; }

  std::vector<std::uint32_t> together() const {
    ExpertMatmul a;
    a.matmul = matmul(0, 0, 0);
    a.matmul.tokens = tokens_;
    a.segments = table_.as<CodeSegment>();
    a.choice = {choice_.as<float>(), kStride, sizes_.active};
    a.rows = rows();
    launch_expert_matmul(a, stream_);
    return words_of(out_, out_words(), stream_);
  }
  std::vector<std::uint32_t> row_by_row() const {
    for (std::int64_t row = 0; row < rows(); ++row) {
      const std::int64_t token = row / sizes_.active;
      launch_int_matmul(matmul(expert_of(token, static_cast<int>(row % sizes_.active)), token, row),
                        stream_);
    }
    return words_of(out_, out_words(), stream_);
  }

 private:
  static constexpr std::int64_t kStride = 160;

  std::size_t segments() const { return static_cast<std::size_t>(sizes_.experts) * 2; }
  std::size_t groups() const { return static_cast<std::size_t>(sizes_.width / 128); }
  std::size_t codes_of_segment() const {
    return static_cast<std::size_t>(sizes_.hidden) *
           static_cast<std::size_t>(sizes_.width * bits_ / 8);
  }
  std::size_t scales_of_segment() const {
    return static_cast<std::size_t>(sizes_.hidden) * groups();
  }
  // Returns expert number i of a token; the numbers increase with i.
  int expert_of(std::int64_t token, int i) const {
    const int stride = sizes_.experts / sizes_.active;
    return i * stride + static_cast<int>(token * 7 + i * 3) % stride;
  }
  CodeSegment segment(std::size_t i) const {
    CodeSegment segment;
    segment.rows = sizes_.hidden;
    segment.weight.codes = codes_.as<std::uint8_t>(i * codes_of_segment());
    segment.weight.bits = bits_;
    segment.weight.zero = bits_ == 8 ? 0 : 1 << (bits_ - 1);
    segment.weight.group = 128;
    segment.weight.group_scales = scales_.as<std::uint16_t>(i * scales_of_segment() * 2);
    return segment;
  }
  std::vector<CodeSegment> table() const {
    std::vector<CodeSegment> all;
    for (std::size_t i = 0; i < segments(); ++i) all.push_back(segment(i));
    return all;
  }
  std::vector<float> choice() const {
    std::vector<float> rows(static_cast<std::size_t>(tokens_ * kStride));
    for (std::int64_t t = 0; t < tokens_; ++t) {
      for (int i = 0; i < sizes_.active; ++i) {
        const std::int32_t id = expert_of(t, i);
        std::memcpy(&rows[static_cast<std::size_t>(t * kStride + i)], &id, sizeof id);
      }
    }
    return rows;
  }
  IntMatmul matmul(int expert, std::int64_t token, std::int64_t row) const {
    IntMatmul a;
    for (std::size_t i = 0; i < 2; ++i) {
      a.segments[i] = segment(static_cast<std::size_t>(expert) * 2 + i);
    }
    a.segment_count = 2;
    a.tokens = 1;
    a.columns = sizes_.width;
    const auto of_token = static_cast<std::size_t>(token);
    a.x.codes = x_.as<std::int8_t>(of_token * static_cast<std::size_t>(sizes_.width));
    a.x.scales = x_scales_.as<float>(of_token * groups() * 4);
    a.x.sums = bits_ == 8 ? nullptr : x_sums_.as<std::int32_t>(of_token * groups() * 4);
    a.x.code_stride = sizes_.width;
    a.x.scale_stride = a.x.sum_stride = static_cast<std::int64_t>(groups());
    a.x.group = a.x.sum_group = 128;
    a.finish = Finish::swiglu;
    a.out = {out_.as<float>(static_cast<std::size_t>(row * sizes_.hidden) * 4), sizes_.hidden};
    return a;
  }

  ExpertSizes sizes_;
  int bits_;
  std::int64_t tokens_;
  rt::Stream& stream_;
  Memory codes_, scales_, x_, x_scales_, x_sums_, table_, choice_, out_;
};

// The inputs of Gated DeltaNet for the text of one sequence.
class DeltaText {
 public:
  DeltaText(bool tiny, rt::Stream& stream)
      : stream_(stream),
        heads_(tiny ? 2 : 16),
        tokens_(tiny ? 70 : 200),
        mixed_(normal(static_cast<std::size_t>(tokens_ * width()))),
        gates_(normal(static_cast<std::size_t>(tokens_ * 4 * heads_))),
        vectors_(normal(static_cast<std::size_t>(4 * channels()) + 1024)),
        states_(Memory::filled(2 * state_bytes(), 0, stream)),
        scratch_(Memory::filled(
            static_cast<std::size_t>(delta_rows_numbers(tokens_, channels(), 2 * heads_) +
                                     delta_chunks_numbers(tokens_, 2 * heads_)) *
                4,
            0, stream)),
        out_(Memory::filled(out_words() * 4, 0, stream)),
        fault_(Memory::filled(8, ~0u, stream)) {}

  // Runs the text in steps of `rows` tokens; returns all outputs, then the state.
  std::vector<std::uint32_t> run(std::int64_t rows, bool exact) const {
    int state = -1;
    for (std::int64_t first = 0; first < tokens_; first += rows) {
      const std::int64_t count = std::min(rows, tokens_ - first);
      AttentionRun one;
      one.rows = static_cast<std::int32_t>(count);
      one.first_position = static_cast<std::int32_t>(first);
      if (state >= 0) name(one.state_from, state);
      state = state == 0 ? 1 : 0;
      name(one.state_to, state);
      const Memory runs = on_device(std::vector<AttentionRun>{one}, stream_);
      const Memory row_runs = Memory::filled(static_cast<std::size_t>(count) * 4, 0, stream_);
      DeltaArguments a = arguments(first, count, runs, row_runs);
      a.exact = exact;
      launch_delta_net(a, stream_);
      rt::synchronize(stream_);
    }
    auto words = words_of(out_, out_words(), stream_);
    std::vector<std::uint32_t> last(state_bytes() / 4);
    rt::copy_to_host(last.data(), states_.as<void>(static_cast<std::size_t>(state) * state_bytes()),
                     state_bytes(), stream_);
    rt::synchronize(stream_);
    words.insert(words.end(), last.begin(), last.end());
    return words;
  }

 private:
  static constexpr int kDim = 128, kTaps = 4;

  Memory normal(std::size_t count) const {
    return numbers<float>(count, stream_, [](std::uint32_t r) { return between(r, -1, 1); });
  }
  std::int64_t channels() const { return std::int64_t{4} * heads_ * kDim; }
  std::int64_t values() const { return std::int64_t{2} * heads_ * kDim; }
  std::int64_t width() const { return channels() + values(); }
  std::size_t out_words() const { return static_cast<std::size_t>(tokens_ * values()); }
  std::size_t state_bytes() const {
    return static_cast<std::size_t>(kDim * values() + (kTaps - 1) * channels()) * 4;
  }
  void name(std::uint32_t (&halves)[2], int state) const {
    const auto at = reinterpret_cast<std::uintptr_t>(
        states_.as<void>(static_cast<std::size_t>(state) * state_bytes()));
    halves[0] = static_cast<std::uint32_t>(at & 0xffffffffu);
    halves[1] = static_cast<std::uint32_t>(at >> 32);
  }
  DeltaArguments arguments(std::int64_t first, std::int64_t count, const Memory& runs,
                           const Memory& row_runs) const {
    DeltaArguments a;
    a.mixed = {mixed_.as<float>(static_cast<std::size_t>(first * width()) * 4), width()};
    a.gates = {gates_.as<float>(static_cast<std::size_t>(first * 4 * heads_) * 4), 4 * heads_};
    a.out = {out_.as<float>(static_cast<std::size_t>(first * values()) * 4), values()};
    a.batch.tokens = count;
    a.batch.runs = runs.as<AttentionRun>();
    a.batch.run_count = 1;
    a.batch.longest_run = count;
    a.batch.row_runs = row_runs.as<std::int32_t>();
    a.key_heads = heads_;
    a.value_heads = 2 * heads_;
    a.key_dim = a.value_dim = kDim;
    a.taps = kTaps;
    a.gates_apart = 2 * heads_;
    for (int part = 0; part < 3; ++part) {
      a.conv[part] = vectors_.as<float>() + part * heads_ * kDim;
    }
    a.conv_stride = channels();
    a.a_log = a.conv[0] + kTaps * channels();
    a.dt_bias = a.a_log + 2 * heads_;
    a.norm_gain = a.dt_bias + 2 * heads_;
    a.norm_eps = 1e-6f;
    a.l2_eps = 1e-6f / kDim;
    a.query_gain = 1.0f / kDim;
    a.key_gain = std::sqrt(1.0f / kDim);
    a.scratch = scratch_.as<float>();
    a.fault = {fault_.as<unsigned long long>(), 0};
    return a;
  }

  rt::Stream& stream_;
  int heads_;  // key heads; there are twice as many value heads
  std::int64_t tokens_;
  Memory mixed_, gates_, vectors_, states_, scratch_, out_, fault_;
};

void print(const std::string& weights, const std::string& what, const std::string& size,
           const Tally& tally) {
  print_row({weights, "g128", what, size, number(static_cast<double>(tally.runs), 0),
             number(static_cast<double>(tally.wrong), 0)});
}

}  // namespace

Tally compare_experts(bool tiny, rt::Stream& stream) {
  const ExpertSizes sizes = tiny ? ExpertSizes{4, 2, 256, 64} : ExpertSizes{128, 8, 2048, 768};
  Tally all;
  for (const int bits : {8, 4, 3, 2}) {
    Tally tally;
    for (const std::int64_t tokens : {1, 4, 33}) {
      if (tiny && tokens > 4) continue;
      const Experts experts(sizes, bits, tokens, stream);
      const auto wanted = experts.row_by_row();
      tally.wrong += differing(experts.together(), wanted);
      ++tally.runs;
    }
    print("int" + std::to_string(bits) + "-g128", "experts",
          number(2 * sizes.hidden, 0) + " x " + number(sizes.width, 0), tally);
    all.runs += tally.runs;
    all.wrong += tally.wrong;
  }
  return all;
}

Tally compare_delta_net(bool tiny, rt::Stream& stream) {
  const DeltaText text(tiny, stream);
  const auto recurrence = text.run(1, true);
  Tally exact;
  for (const std::int64_t rows : {3, 64, 1000}) {
    exact.wrong += differing(text.run(rows, true), recurrence);
    ++exact.runs;
  }
  print("", "delta net", "", exact);
  const auto chunks = text.run(1000, false);
  Tally chunked = {2, differing(text.run(64, false), chunks) + far(chunks, recurrence)};
  print("", "delta net, chunks", "", chunked);
  return {exact.runs + chunked.runs, exact.wrong + chunked.wrong};
}

}  // namespace leq::LEQ_GPU::bench
