// Runs leq-inspect on files created by leq-quantize, both as programs.
#include <gtest/gtest.h>
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <regex>
#include <string>

#include "base/json.h"
#include "base/text.h"
#include "tools/small_models.h"

namespace leq::test {
namespace {

Json inspect(const std::string& path) {
  const ToolRun run = run_program("leq-inspect", {path, "--json"});
  EXPECT_EQ(run.status, 0) << run.err;
  return parse_json(run.out, "output");
}

TEST(Inspect, ListsEveryTensorWithTheChecksumsOfItsBytes) {
  const TemporaryFolder folder;
  for (const char* type : {"f16", "int8", "int4-g128", "uint3-g64", "nf4"}) {
    const std::string path = make_small_model(folder, "llama", type);
    const Json report = inspect(path);
    const std::string bytes = read_bytes(path);
    EXPECT_EQ(report.at("file_bytes"), bytes.size());
    EXPECT_EQ(report.at("type"), type);
    // Tensors: 2 blocks of 7 linears and 2 norms, the embedding, the head and the final norm.
    EXPECT_EQ(report.at("tensors").size(), 2u * 9 + 3);
    for (const Json& tensor : report.at("tensors")) {
      std::uint64_t total = 0;
      for (const auto& [name, plane] : tensor.at("planes").items()) {
        const auto offset = plane.at("offset").get<std::size_t>();
        const auto size = plane.at("bytes").get<std::size_t>();
        ASSERT_LE(offset + size, bytes.size());
        char hash[17];
        std::snprintf(hash, sizeof hash, "%016llx",
                      static_cast<unsigned long long>(XXH3_64bits(bytes.data() + offset, size)));
        EXPECT_EQ(plane.at("xxh3"), hash) << tensor.at("name") << " " << name;
        total += size;
      }
      EXPECT_EQ(tensor.at("bytes"), total);
    }
  }
}

// The table prints losses as percentages of a norm. "error" and "loss" in the JSON are squares, as
// docs/leq-format.md defines.
TEST(Inspect, TellsLossesInPercent) {
  const TemporaryFolder folder;
  RandomCheckpoint checkpoint(folder / "checkpoint");
  checkpoint.add_llama(small_llama_config(), {});
  const std::string source = checkpoint.write(small_llama_config()).string();
  const std::string path = folder / "small.leq";
  const ToolRun made = run_program("leq-quantize", {source, "-o", path, "--type", "int4-g32"});
  ASSERT_EQ(made.status, 0) << made.err;
  double worst = 0;
  const Json report = inspect(path);
  for (const Json& tensor : report.at("tensors")) {
    worst = std::max(worst, tensor.at("error").get<double>());
  }
  const double percent = 100 * std::sqrt(worst);
  EXPECT_GT(percent, 2);
  EXPECT_LT(percent, 20);
  const ToolRun table = run_program("leq-inspect", {path, "--all"});
  double most = 0;
  for (const auto line : split(table.out, "\n")) {
    // The last two columns of a line are the error and the checksum.
    if (line.find("]") == std::string::npos || line.find("int4") == std::string::npos) continue;
    const std::string text(line.substr(0, line.find_last_of(' ')));
    const std::string trimmed(trim(text));
    most = std::max(most, std::strtod(trimmed.substr(trimmed.find_last_of(' ')).c_str(), nullptr));
  }
  EXPECT_NEAR(most, percent, 0.00051) << table.out;
}

TEST(Inspect, TotalsAddUp) {
  const TemporaryFolder folder;
  const Json report = inspect(make_small_model(folder, "gpt2", "int8"));
  std::int64_t numbers = 0;
  std::uint64_t bytes = 0;
  std::size_t tensors = 0;
  for (const auto& [scheme, total] : report.at("totals").items()) {
    numbers += total.at("numbers").get<std::int64_t>();
    bytes += total.at("bytes").get<std::uint64_t>();
    tensors += total.at("tensors").get<std::size_t>();
  }
  // Computed by hand: wte, wpe, 2 blocks of 12 W^2 + 13 W, and the final norm; W = 128.
  EXPECT_EQ(numbers, (130 + 192) * 128 + 2 * (12 * 128 * 128 + 13 * 128) + 2 * 128);
  EXPECT_EQ(report.at("parameters"), numbers);
  EXPECT_EQ(tensors, report.at("tensors").size());
  EXPECT_DOUBLE_EQ(report.at("bits_per_weight").get<double>(),
                   static_cast<double>(bytes) * 8 / static_cast<double>(numbers));
  EXPECT_TRUE(report.at("totals").contains("int8"));
  EXPECT_TRUE(report.at("totals").contains("f32"));
}

TEST(Inspect, CountsExperts) {
  const TemporaryFolder folder;
  Json config = small_config("qwen3_moe", "Qwen3MoeForCausalLM");
  config["head_dim"] = 32;
  config["num_local_experts"] = 5;
  config["num_experts_per_tok"] = 2;
  config["moe_intermediate_size"] = 72;
  config["tokenizer_class"] = "GPT2Tokenizer";
  RandomCheckpoint checkpoint(folder / "moe");
  checkpoint.add_llama(config, {.qk_norm = true, .experts = RandomCheckpoint::Experts::stacked});
  const std::string path = (folder / "moe.leq").string();
  const ToolRun made = run_program(
      "leq-quantize", {checkpoint.write(config).string(), "-o", path, "--type", "int8"});
  ASSERT_EQ(made.status, 0) << made.err;
  const Json report = inspect(path);
  // Computed by hand: embedding and head; 2 layers of q and o (6 x 32 rows), k and v (2 x 32), 5
  // experts of 3 x 72, a router of 5, norms of 96, 96, 32 and 32; the final norm.
  EXPECT_EQ(report.at("parameters"),
            2 * 131 * 96 + 2 * ((2 * 192 + 2 * 64 + 5 * 3 * 72 + 5 + 2) * 96 + 64) + 96);
  std::int64_t experts = 0;
  for (const Json& tensor : report.at("tensors")) {
    const std::string name = tensor.at("name").text();
    experts += name.find(".experts.") != std::string::npos ? 1 : 0;
    if (name.ends_with(".router")) {
      EXPECT_EQ(tensor.at("scheme").text(), "f32") << name;
    }
  }
  EXPECT_EQ(experts, 2 * 5 * 3);
  const ToolRun people = run_program("leq-inspect", {path});
  EXPECT_NE(people.out.find("5 experts of 72, 2 a token, on 2 layers"), std::string::npos)
      << people.out;
}

TEST(Inspect, TellsPeopleConfigurationTokenizerAndProvenance) {
  const TemporaryFolder folder;
  const std::string model = make_small_model(folder, "llama", "int4-g128");
  const ToolRun run = run_program("leq-inspect", {model, "--all"});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(run.err, "");
  // Without --all, a screen: the two layers in one row.
  const std::string screen = run_program("leq-inspect", {model}).out;
  EXPECT_TRUE(std::regex_search(
      screen, std::regex(R"(\nlayers\.\*\.down +\[96, 160\] +int4-g128 +g128 +2 )")))
      << screen;
  EXPECT_EQ(screen.find("\nlayers.1"), std::string::npos) << screen;
  EXPECT_LT(std::ranges::count(screen, '\n'), 50) << screen;
  for (const char* part :
       {"2 layers", "head_dim", "bits per weight", "tokenizer", "provenance", "LlamaForCausalLM",
        "layers.1.down", "[96, 160]", "int4-g128", "g128", "absmax"}) {
    EXPECT_NE(run.out.find(part), std::string::npos) << part << "\n" << run.out;
  }
}

TEST(Inspect, VerifyAcceptsAWholeFileAndNamesADamagedTensor) {
  const TemporaryFolder folder;
  const std::string path = make_small_model(folder, "llama", "int8");
  const ToolRun whole = run_program("leq-inspect", {path, "--verify"});
  EXPECT_EQ(whole.status, 0) << whole.err;
  EXPECT_NE(whole.out.find("are whole"), std::string::npos) << whole.out;

  std::string bytes = read_bytes(path);
  std::size_t offset = 0;
  const Json report = inspect(path);
  for (const Json& tensor : report.at("tensors")) {
    if (tensor.at("name") == "layers.1.up")
      offset = tensor.at("planes").at("codes").at("offset").get<std::size_t>();
  }
  ASSERT_GT(offset, 0u);
  bytes[offset + 100] = static_cast<char>(bytes[offset + 100] ^ 1);
  const std::string damaged = folder.write("damaged.leq", bytes);
  EXPECT_EQ(run_program("leq-inspect", {damaged}).status, 0);
  const ToolRun run = run_program("leq-inspect", {damaged, "--verify"});
  EXPECT_EQ(run.status, 1);
  EXPECT_NE(run.err.find("layers.1.up"), std::string::npos) << run.err;
}

TEST(Inspect, TakesTheModelAsOtherToolsDo) {
  const TemporaryFolder folder;
  const std::string model = make_small_model(folder, "llama", "int8");
  const ToolRun alone = run_program("leq-inspect", {model});
  EXPECT_EQ(run_program("leq-inspect", {"-m", model}).out, alone.out);
  EXPECT_EQ(run_program("leq-inspect", {"-m", model, model}).status, 1);
}

TEST(Inspect, PlansLayersWithTypesOfTheirOwn) {
  const TemporaryFolder folder;
  const std::string model = make_small_model(folder, "llama", "int8");
  const auto cache_bytes = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {model, "--fit", "--json", "-ctk", "f16", "-ctv", "f16"});
    const ToolRun run = run_program("leq-inspect", more);
    EXPECT_EQ(run.status, 0) << run.err;
    return parse_json(run.out, "plan").at("kv_bytes").get<std::int64_t>();
  };
  const std::int64_t layers = inspect(model).at("config").at("layers").get<std::int64_t>();
  const std::int64_t all = cache_bytes({});
  EXPECT_EQ(cache_bytes({"--kv-layers", "0=f32"}), all + all / layers);
  EXPECT_EQ(cache_bytes({"--kv-layers", "0=f32/f16"}), all + all / layers / 2);
  for (const std::string wrong : {"0", "99=f16", "0=q8_0"}) {
    const ToolRun run = run_program("leq-inspect", {model, "--fit", "--kv-layers", wrong});
    EXPECT_EQ(run.status, 1);
    EXPECT_NE(run.err.find("--kv-layers"), std::string::npos) << run.err;
  }
}

TEST(Inspect, RefusesATruncatedFile) {
  const TemporaryFolder folder;
  const std::string bytes = read_bytes(make_small_model(folder, "llama", "int8"));
  const std::string path = folder.write("short.leq", bytes.substr(0, bytes.size() / 2));
  const ToolRun run = run_program("leq-inspect", {path});
  EXPECT_EQ(run.status, 1);
  EXPECT_NE(run.err.find("short.leq"), std::string::npos) << run.err;
}

// The checkpoint's tokenizer maps the 94 printable characters to ids from '!' = 0.
TEST(InspectTokenize, PrintsIdsAsOneArrayFromEveryKindOfPath) {
  const TemporaryFolder folder;
  const std::string model = make_small_model(folder, "gpt2", "int8");
  const std::string text = folder.write("text.txt", "!\"AZ~");
  for (const std::string& path : {model, (folder / "gpt2-checkpoint").string(),
                                  (folder / "gpt2-checkpoint").string() + "/vocab.json"}) {
    const ToolRun run = run_program("leq-inspect", {path, "--tokenize", text});
    EXPECT_EQ(run.status, 0) << path << run.err;
    EXPECT_EQ(std::count(run.out.begin(), run.out.end(), '\n'), 1);
    EXPECT_EQ(parse_json(run.out, "output"), Json({0, 1, 32, 57, 93})) << path;
  }
  const ToolRun piped = run_program("leq-inspect", {model, "--tokenize", "-"}, "!\"AZ~");
  EXPECT_EQ(parse_json(piped.out, "output"), Json({0, 1, 32, 57, 93}));
  EXPECT_EQ(run_program("leq-inspect", {model, "--tokenize", "-"}, "").out, "[]\n");
}

// Rank files and vocabularies name no pre-tokenizer, all other files do.
TEST(InspectTokenize, TakesAKnownPreTokenizerWhereNoneIsNamed) {
  const TemporaryFolder folder;
  const std::string model = make_small_model(folder, "gpt2", "int8");
  const auto run = [&](const std::string& path, const std::string& name) {
    return run_program("leq-inspect", {path, "--tokenize", "-", "--pretokenizer", name}, "!A");
  };
  for (const std::string& path : {model, (folder / "gpt2-checkpoint/vocab.json").string()}) {
    expect_tool_error(run(path, "foo"), {"--pretokenizer: expected gpt-2 | llama-3 | qwen2 | "});
    const ToolRun taken = run(path, "qwen2");
    EXPECT_EQ(taken.status, 0) << taken.err;
    EXPECT_EQ(taken.err.find("--pretokenizer: does nothing") != std::string::npos, path == model)
        << taken.err;
  }
  expect_tool_error(run_program("leq-inspect", {model, "--pretokenizer", "qwen2"}),
                    {"--pretokenizer: needs --tokenize FILE"});
}

TEST(InspectTokenize, NamesWhatItCannotRead) {
  const TemporaryFolder folder;
  const std::string model = make_small_model(folder, "gpt2", "int8");
  const ToolRun invalid = run_program("leq-inspect", {model, "--tokenize", "-"},
                                      "abc\xff"
                                      "d");
  EXPECT_EQ(invalid.status, 1);
  EXPECT_EQ(invalid.out, "");
  EXPECT_NE(invalid.err.find("byte 3"), std::string::npos) << invalid.err;
  const ToolRun missing = run_program("leq-inspect", {model, "--tokenize", "/no/such/text"});
  EXPECT_EQ(missing.status, 1);
  EXPECT_NE(missing.err.find("/no/such/text"), std::string::npos) << missing.err;
}

}  // namespace
}  // namespace leq::test
