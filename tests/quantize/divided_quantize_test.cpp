// Several ranks must write the same bytes as one rank: with and without calibration, for all
// methods, also if windows and tensors do not divide evenly or are fewer than the ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <thread>

#include "base/error.h"
#include "convert/import.h"
#include "convert/packed_folder.h"
#include "errors.h"
#include "quantize/run/quantize.h"
#include "quantize/run/quantize_tensor.h"
#include "ranks/communicator.h"
#include "reference/random_checkpoint.h"
#include "temporary_folder.h"

namespace leq {
namespace {

std::filesystem::path checkpoint_in(const std::filesystem::path& folder) {
  const Json config = test::small_config("qwen2", "Qwen2ForCausalLM");
  test::RandomCheckpoint checkpoint(folder);
  checkpoint.add_llama(config, {.qkv_bias = true});
  return checkpoint.write(config);
}

// Creates five experts, two for each token, in one of two layers.
std::filesystem::path experts_in(const std::filesystem::path& folder) {
  Json config = test::small_config("qwen3_moe", "Qwen3MoeForCausalLM");
  config["num_local_experts"] = 5;
  config["num_experts_per_tok"] = 2;
  config["moe_intermediate_size"] = 72;
  config["mlp_only_layers"] = {1};
  test::RandomCheckpoint checkpoint(folder);
  checkpoint.add_llama(config,
                       {.qk_norm = true, .experts = test::RandomCheckpoint::Experts::single});
  return checkpoint.write(config);
}

QuantizeOptions options_of(const std::string& method, const std::string& type,
                           std::int64_t windows) {
  Random random(5);
  std::string text;
  while (text.size() < 300) text += static_cast<char>('a' + random.below(26));
  QuantizeOptions options;
  options.method = method;
  options.type = type;
  options.threads = 1;
  options.calibration = {text, "letters", windows, 32, 9};
  return options;
}

std::string bytes_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Ranks other than the leader get another output path, where no file may appear. Returns each
// rank's error, "" for none.
std::vector<std::string> quantize_on(int count, const std::filesystem::path& source,
                                     const std::filesystem::path& output,
                                     const QuantizeOptions& options,
                                     const std::function<void(int, QuantizeOptions&)>& change) {
  ThreadRanks ranks(count, {.threads = count});
  std::vector<std::string> errors(static_cast<std::size_t>(count));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < count; ++rank) {
    threads.emplace_back([&, rank] {
      QuantizeOptions own = options;
      own.ranks = &ranks[rank];
      if (change) change(rank, own);
      try {
        quantize_checkpoint(source, rank == 0 ? output : output.parent_path() / "nobody" / "x.leq",
                            own);
      } catch (const Error& error) {
        errors[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

struct Way {
  const char* method;
  const char* type;
  std::int64_t windows = 5;
  ActChoice act = ActChoice::automatic;
  bool experts = false;
};

class DividedQuantize : public testing::TestWithParam<Way> {};

TEST_P(DividedQuantize, WritesTheFileOfOneRank) {
  const Way& way = GetParam();
  const test::TemporaryFolder folder;
  const auto source = way.experts ? experts_in(folder / "hf") : checkpoint_in(folder / "hf");
  QuantizeOptions options = options_of(way.method, way.type, way.windows);
  options.act = way.act;
  quantize_checkpoint(source, folder / "1.leq", options);
  const std::string one = bytes_of(folder / "1.leq");
  ASSERT_GT(one.size(), 10'000u);
  for (const int count : {2, 3, 8}) {
    const auto errors = quantize_on(count, source, folder / "n.leq", options, {});
    for (const std::string& error : errors) EXPECT_EQ(error, "");
    EXPECT_EQ(bytes_of(folder / "n.leq") == one, true) << count << " ranks";
    EXPECT_EQ(std::filesystem::exists(folder / "nobody"), false);
    EXPECT_EQ(std::filesystem::exists(folder / "n.leq.partial"), false);
  }
}
// The input is a GPTQ checkpoint, whose codes are kept or quantized again within a memory limit.
TEST(DividedPacked, WritesTheFileOfOneRank) {
  const test::TemporaryFolder folder;
  test::PackedFolder packed;
  test::add_llama(packed, [](int n, int k) {
    return test::gptq_parts(test::random_integers(n, k, 4, 64, false, 31), true);
  });
  const auto source =
      packed.write(test::small_llama({{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 64}}));
  QuantizeOptions own;
  own.threads = 1;
  keep_types(import_checkpoint(source), own);
  for (const QuantizeOptions& options : {own, options_of("gptq", "int4-g32", 3)}) {
    quantize_checkpoint(source, folder / "1.leq", options);
    for (const int count : {2, 3}) {
      for (const std::string& error : quantize_on(count, source, folder / "n.leq", options, {})) {
        EXPECT_EQ(error, "");
      }
      EXPECT_EQ(bytes_of(folder / "n.leq") == bytes_of(folder / "1.leq"), true) << count;
    }
  }
  QuantizeOptions bounded = options_of("gptq", "int4-g32", 3);
  bounded.max_ram = std::uint64_t{1} << 30;
  quantize_checkpoint(source, folder / "n.leq", bounded);
  EXPECT_EQ(bytes_of(folder / "n.leq") == bytes_of(folder / "1.leq"), true);
  bounded.max_ram = 1 << 20;
  test::expect_error([&] { quantize_checkpoint(source, folder / "n.leq", bounded); }, {},
                     ErrorKind::no_memory);
}

INSTANTIATE_TEST_SUITE_P(Methods, DividedQuantize,
                         testing::Values(Way{"absmax", "int8"}, Way{"absmax", "int8-tensor"},
                                         Way{"absmax", "f16"}, Way{"rtn", "int4-g64"},
                                         Way{"gptq", "int4-g32"}, Way{"gptq", "int3-g64", 2},
                                         Way{"gptq+", "int3-g64"}, Way{"smoothquant", "int8"},
                                         Way{"smoothquant", "int8", 7, ActChoice::tensor},
                                         Way{"awq", "uint4-g64"}, Way{"billm", "b1"},
                                         Way{"gptq", "int8-tensor"},
                                         Way{"absmax", "int8", 5, ActChoice::automatic, true},
                                         Way{"gptq", "int4-g32", 7, ActChoice::automatic, true},
                                         Way{"smoothquant", "int8", 5, ActChoice::automatic, true},
                                         Way{"awq", "uint4-g64", 6, ActChoice::automatic, true}),
                         [](const auto& item) {
                           std::string name = std::string(item.param.method) + "_" +
                                              item.param.type + "_" +
                                              std::to_string(item.param.windows) +
                                              (item.param.experts ? "_experts" : "");
                           std::ranges::replace_if(
                               name, [](char c) { return std::isalnum(c) == 0; }, '_');
                           return name;
                         });

TEST(DividedQuantize, EndsAllRanksWithTheErrorOfOne) {
  const test::TemporaryFolder folder;
  const auto source = checkpoint_in(folder.path() / "hf");
  const QuantizeOptions options = options_of("gptq", "int4-g32", 5);
  const auto differs =
      quantize_on(3, source, folder / "n.leq", options, [](int rank, QuantizeOptions& own) {
        if (rank == 2) own.calibration.samples = 6;
      });
  for (const std::string& error : differs) {
    EXPECT_TRUE(error.starts_with("rank 2 of 3: the checkpoint and the settings")) << error;
  }
  const auto stopped =
      quantize_on(2, source, folder / "n.leq", options, [](int rank, QuantizeOptions& own) {
        if (rank == 0) own.stop = [] { return true; };
      });
  EXPECT_TRUE(stopped[0].starts_with("interrupted")) << stopped[0];
  EXPECT_TRUE(stopped[1].starts_with("rank 0 of 2: interrupted")) << stopped[1];
  const auto after_a_block =
      quantize_on(2, source, folder / "n.leq", options, [&](int rank, QuantizeOptions& own) {
        const auto block = folder / "n.leq.partial/block-00000.leq";
        if (rank == 0) own.stop = [block] { return std::filesystem::exists(block); };
      });
  EXPECT_TRUE(after_a_block[0].starts_with("interrupted")) << after_a_block[0];
  const auto resumed =
      quantize_on(2, source, folder / "n.leq", options, [](int, QuantizeOptions&) {});
  EXPECT_NE(resumed[0].find("one rank"), std::string::npos) << resumed[0];
  EXPECT_FALSE(std::filesystem::exists(folder / "n.leq"));
}

QuantizedTensor some_tensor() {
  std::vector<float> values(70 * 130);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 37) - 18;
  QuantizedTensor tensor;
  tensor.weight = pack_weight(values, 70, 130, *parse_scheme("uint4-g64"), ActKind::row, "w");
  tensor.record = {.method = "rtn",
                   .error = 0.5,
                   .loss = 0.25,
                   .loss_of_hessian = true,
                   .act_scale = 3,
                   .online_mode = OnlineMode::streaming,
                   .note = "a note",
                   .fold = "a fold"};
  return tensor;
}

std::vector<std::byte> bytes_of(const QuantizedTensor& tensor) {
  std::vector<std::byte> bytes;
  append_tensor(bytes, tensor);
  return bytes;
}

TEST(TensorBytes, ComeBackAsTheyWere) {
  const QuantizedTensor want = some_tensor();
  const QuantizedTensor found = tensors_of_bytes(bytes_of(want)).at(0);
  EXPECT_EQ(found.weight.scheme, want.weight.scheme);
  EXPECT_EQ(found.weight.act, want.weight.act);
  EXPECT_EQ(found.weight.rows, 70);
  EXPECT_EQ(found.weight.columns, 130);
  EXPECT_EQ(found.weight.scale_mul, want.weight.scale_mul);
  EXPECT_EQ(found.weight.codes, want.weight.codes);
  EXPECT_EQ(found.weight.scales, want.weight.scales);
  EXPECT_EQ(found.weight.zeros, want.weight.zeros);
  EXPECT_EQ(found.weight.sums, want.weight.sums);
  EXPECT_EQ(found.record.method, "rtn");
  EXPECT_EQ(found.record.error, 0.5);
  EXPECT_EQ(found.record.loss, std::optional(0.25));
  EXPECT_EQ(found.record.loss_of_hessian, true);
  EXPECT_EQ(found.record.act_scale, 3);
  EXPECT_EQ(found.record.online_mode, OnlineMode::streaming);
  EXPECT_EQ(found.record.note, "a note");
  EXPECT_EQ(found.record.fold, "a fold");
}

TEST(TensorBytes, AreRefusedWhereTheyEndOrFitNothing) {
  const std::vector<std::byte> whole = bytes_of(some_tensor());
  for (std::size_t size = 1; size < whole.size(); ++size) {
    EXPECT_THROW(tensors_of_bytes(std::span(whole).first(size)), Error) << size;
  }
  std::vector<std::byte> longer = whole;
  longer.push_back(std::byte{0});
  EXPECT_THROW(tensors_of_bytes(longer), Error);
  QuantizedTensor other = some_tensor();
  other.weight.rows = 200;
  EXPECT_THROW(tensors_of_bytes(bytes_of(other)), Error);
  std::vector<std::byte> several;
  append_tensor(several, some_tensor());
  append_tensor(several, some_tensor());
  EXPECT_EQ(tensors_of_bytes(several).size(), 2u);
  several.pop_back();
  EXPECT_THROW(tensors_of_bytes(several), Error);
}

}  // namespace
}  // namespace leq
