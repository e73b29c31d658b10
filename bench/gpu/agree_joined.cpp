// Compares what follows a matmul of one token in the same launch with two launches, bit for bit, at
// the sizes of llama-7b. Many launches follow each other, because tickets of one launch are left
// for the next one.
#include <cstring>
#include <vector>

#include "bench/gpu/agree.h"
#include "cuda/host/memory.h"

namespace leq::LEQ_GPU::bench {
namespace {

constexpr CodeFormat kFormats[] = {{"int8", 8, 0, false, 128},
                                   {"int8-g128", 8, 128, false, 128},
                                   {"int4-g128", 4, 128, false, 128},
                                   {"int3-g128", 3, 128, false, 128},
                                   {"int2-g128", 2, 128, false, 128}};
constexpr int kHeadDim = 128, kLaunches = 64;
constexpr std::int64_t kPosition = 100;

Memory zeros(std::size_t bytes, rt::Stream& stream) { return Memory::filled(bytes, 0, stream); }

std::vector<std::uint32_t> words_of(const Memory& from, std::size_t bytes, rt::Stream& stream) {
  const Pinned host(bytes);
  rt::copy_to_host(host.data(), from.as<void>(), bytes, stream);
  rt::synchronize(stream);
  std::vector<std::uint32_t> words(bytes / 4);
  std::memcpy(words.data(), host.data(), bytes);
  return words;
}

// The launches of one token, and everything that they write.
class OneToken {
 public:
  OneToken(const IntLinear& linear, std::int64_t outputs, rt::Stream& stream)
      : matmul_(linear.arguments(0)),
        outputs_(outputs),
        stream_(stream),
        out_(zeros(bytes_, stream)),
        normed_(zeros(bytes_, stream)),
        codes_(zeros(bytes_, stream)),
        scales_(zeros(bytes_, stream)),
        keys_(zeros(bytes_, stream)),
        values_(zeros(bytes_, stream)),
        ones_(Memory::filled(bytes_, 0x3f800000, stream)),
        lists_(zeros(256, stream)),
        tickets_(zeros(kTickets * sizeof(unsigned), stream)),
        fault_(Memory::filled(8, 0xffffffff, stream)) {
    matmul_.out.values = out_.as<float>();
    const AttentionRun run = {0, 1, static_cast<std::int32_t>(kPosition)};
    const Pinned host(sizeof run);
    std::memcpy(host.data(), &run, sizeof run);
    rt::copy_to_device(lists_.as<void>(), host.data(), sizeof run, stream);
    rt::synchronize(stream);
  }

  NormArguments norm() const {
    NormArguments a;
    a.x = matmul_.out;
    a.out = {normed_.as<float>(), outputs_};
    a.tokens = 1;
    a.width = outputs_;
    a.gain = ones_.as<float>();
    a.eps = 1e-5f;
    a.quantize.out = {codes_.as<std::int8_t>(), scales_.as<float>(), nullptr, 0, 0, 0, 128, 128};
    a.quantize.fault = {fault_.as<unsigned long long>(), 1};
    return a;
  }
  // Zeros behind the run are its row's run and its pages.
  RopeAppendArguments rope() const {
    const auto heads = static_cast<int>(outputs_ / 3 / kHeadDim);
    const std::int64_t page_bytes = std::int64_t{heads} * 64 * (kHeadDim + 4);
    RopeAppendArguments a;
    a.qkv = matmul_.out;
    const auto* const list = lists_.as<std::int32_t>(sizeof(AttentionRun));
    a.batch = {1, lists_.as<AttentionRun>(), 1, list, list + 1, 1, 1, kPosition + 1};
    a.heads = {heads, heads, kHeadDim, 0, 1};
    a.table = ones_.as<float>();
    a.rotary_dims = kHeadDim;
    a.keys = {keys_.as<std::byte>(), page_bytes, KvType::int8};
    a.values = {values_.as<std::byte>(), page_bytes, KvType::int8};
    a.fault = {fault_.as<unsigned long long>(), 1};
    return a;
  }

  // Compares `next` joined with `next` as a launch of its own.
  template <class Next>
  void compare(const Next& next, void (*launch)(const Next&, rt::Stream&), const char* name,
               Tally& tally) const {
    if (!joins(matmul_, next)) return;
    std::vector<std::vector<std::uint32_t>> wanted;
    for (const bool joined : {false, true}) {
      for (const Memory* memory : written()) rt::fill_zero(memory->as<void>(), bytes_, stream_);
      for (int i = 0; i < kLaunches; ++i) {
        if (joined) {
          launch_joined(matmul_, next, tickets_.as<unsigned>(), stream_);
        } else {
          launch_int_matmul(matmul_, stream_);
          launch(next, stream_);
        }
      }
      std::size_t i = 0;
      for (const Memory* memory : written()) {
        const auto found = words_of(*memory, bytes_, stream_);
        if (joined) tally.compare(found, wanted[i++], outputs_, name);
        if (!joined) wanted.push_back(found);
      }
    }
  }

 private:
  std::vector<const Memory*> written() const {
    return {&out_, &normed_, &codes_, &scales_, &keys_, &values_};
  }

  static constexpr std::size_t bytes_ = std::size_t{2} << 20;  // pages of 100 positions

  IntMatmul matmul_;
  std::int64_t outputs_;
  rt::Stream& stream_;
  Memory out_, normed_, codes_, scales_, keys_, values_, ones_, lists_, tickets_, fault_;
};

}  // namespace

Tally compare_joined(bool tiny, rt::Stream& stream) {
  Tally all;
  for (const CodeFormat& format : kFormats) {
    for (const LinearShape& shape : llama_linears(tiny)) {
      if (shape.name != "qkv" && shape.finish != Finish::add) continue;
      LinearShape in_groups = shape;
      in_groups.act_group = format.token_group;
      const IntLinear linear(in_groups, format.bits, format.weight_group, 1, 1, stream);
      const OneToken token(linear, shape.outputs(), stream);
      Tally tally;
      if (shape.finish == Finish::add) token.compare(token.norm(), launch_norm, "norm", tally);
      if (shape.name == "qkv") {
        token.compare(token.rope(), launch_rope_append, "rope_append", tally);
      }
      print(format, shape.name + ", joined", shape.outputs(), shape.columns, tally);
      all.add(tally);
    }
  }
  return all;
}

}  // namespace leq::LEQ_GPU::bench
