// A .leq file must contain exactly the tensors that its configuration requires. If a field is
// changed or a tensor is missing or additional, opening the file must give an error with its name.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "errors.h"
#include "format/leq_writer.h"
#include "model/open_model.h"
#include "quantize/run/quantize.h"
#include "reference/random_checkpoint.h"
#include "temporary_folder.h"

namespace leq {
namespace {

class CheckTensors : public testing::Test {
 protected:
  CheckTensors() {
    const Json config = test::small_config_with({{"hidden_size", 64},
                                                 {"num_hidden_layers", 3},
                                                 {"num_attention_heads", 4},
                                                 {"intermediate_size", 96},
                                                 {"vocab_size", 101},
                                                 {"tokenizer_class", "GPT2Tokenizer"}});
    test::RandomCheckpoint checkpoint(folder_.path() / "checkpoint");
    checkpoint.add_llama(config, {});
    QuantizeOptions options;
    options.type = "int4-g32";
    options.threads = 1;
    quantize_checkpoint(checkpoint.write(config), good_, options);
  }

  // Returns the error of a file with this metadata; "" if the file can be opened.
  std::string error_with(const std::function<void(Json& metadata)>& edit) const {
    const LeqReader reader(good_, {.mode = LoadMode::map});
    write_copy(
        changed_, reader, [&](const std::string&) -> const LeqReader& { return reader; }, edit);
    return error_of_changed();
  }
  // Returns the error of a file with the tensors for which `keep` is true, and a vector `extra`.
  std::string error_of_tensors(const std::function<bool(const std::string& name)>& keep,
                               const std::string& extra = "", std::int64_t numbers = 64) const {
    const LeqReader reader(good_, {.mode = LoadMode::map});
    LeqWriter writer(changed_);
    for (const StoredTensor& tensor : reader.tensors()) {
      if (keep(tensor.name)) writer.copy_tensor(reader, tensor);
    }
    if (!extra.empty()) {
      const std::vector<float> values(static_cast<std::size_t>(numbers), 1.0f);
      writer.add_tensor(
          extra, {numbers},
          pack_weight(values, 1, numbers, require_scheme("f32", "test"), ActKind::none, extra), {});
    }
    for (const std::string& name : reader.blob_names()) writer.add_blob(name, *reader.blob(name));
    Json metadata = reader.metadata();
    metadata.erase("leq");
    writer.finish(metadata);
    return error_of_changed();
  }
  std::string error_of_changed() const {
    return test::error_of([&] { const Model model(changed_, {.mode = LoadMode::map}); });
  }

  const test::TemporaryFolder folder_;
  const std::filesystem::path good_ = folder_.path() / "good.leq";
  const std::filesystem::path changed_ = folder_.path() / "changed.leq";
};

TEST_F(CheckTensors, TheConfigurationIsThatOfTheTensors) {
  EXPECT_EQ(error_with([](Json&) {}), "");
  struct Case {
    const char* key;
    Json value;
    const char* expected;
  };
  for (const Case& item :
       {Case{"layers", 2, "layers.2."}, Case{"layers", 4, "layers.3."}, Case{"tied", true, "head"},
        Case{"gated", false, "gate"}, Case{"qk_norm", true, "q_norm"},
        Case{"qkv_bias", true, "q.bias"}, Case{"mlp_bias", true, "bias"},
        Case{"output_bias", true, "o.bias"}, Case{"rotary", false, "position_embedding"},
        Case{"norm", "layer", "norm.bias"}, Case{"vocab", 100, "embedding"},
        Case{"hidden", 128, "gate"}, Case{"kv_heads", 1, "layers.0.k"}}) {
    const std::string message =
        error_with([&](Json& metadata) { metadata["config"][item.key] = item.value; });
    EXPECT_TRUE(message.starts_with(changed_.string() + ": tensor "))
        << item.key << ": " << message;
    EXPECT_NE(message.find(item.expected), std::string::npos) << item.key << ": " << message;
  }
}

TEST_F(CheckTensors, NoTensorIsMissingOrLeftOver) {
  EXPECT_EQ(error_of_tensors([](const std::string&) { return true; }), "");
  const LeqReader reader(good_, {.mode = LoadMode::map});
  for (const StoredTensor& tensor : reader.tensors()) {
    const std::string message =
        error_of_tensors([&](const std::string& name) { return name != tensor.name; });
    EXPECT_NE(message.find("tensor " + tensor.name + " is missing"), std::string::npos) << message;
  }
  const auto all = [](const std::string&) { return true; };
  for (const char* extra : {"layers.3.attention_norm", "more", "layers.0.k.inv_smooth",
                            "layers.0.q.bias", "final_norm.bias"}) {
    EXPECT_NE(error_of_tensors(all, extra).find(extra), std::string::npos) << extra;
  }
  EXPECT_EQ(error_of_tensors(all, "layers.0.q.inv_smooth"), "");
  EXPECT_EQ(error_of_tensors(all, "layers.0.key_mean", 32), "");
  EXPECT_NE(error_of_tensors(all, "layers.0.key_mean").find("expected shape [32]"),
            std::string::npos);
}

TEST_F(CheckTensors, EndTokensAndSamplingAreInTheirRanges) {
  struct Case {
    const char* key;
    Json value;
    const char* expected;
  };
  for (const Case& item :
       {Case{"end_tokens", Json::array({101}), "end token 101: expected an id from 0 to 100"},
        Case{"end_tokens", Json::array({-1}), "end token -1"},
        Case{"end_tokens", Json::array({4294967297}), "no token has the id 4294967297"},
        Case{"end_tokens", Json::array({"x"}), "expected the id of a token"},
        Case{"end_tokens", 3, "a list of ids"},
        Case{"top_k", 1000000000000, "top_k = 1000000000000: expected 1 or more"},
        Case{"top_p", 1.5, "top_p = 1.5: expected"}, Case{"temperature", -1, "temperature = -1"}}) {
    const std::string message =
        error_with([&](Json& metadata) { metadata["generation"][item.key] = item.value; });
    EXPECT_NE(message.find(item.expected), std::string::npos) << item.key << ": " << message;
  }
  EXPECT_EQ(error_with([](Json& metadata) {
              metadata["generation"]["end_tokens"] = Json::array({0, 100});
              metadata["generation"]["top_k"] = 20;
            }),
            "");
}

TEST_F(CheckTensors, EmbeddingsAreMadeInAKnownWay) {
  const auto error_of_embedding = [&](const Json& embedding) {
    return error_with([&](Json& metadata) { metadata["embedding"] = embedding; });
  };
  EXPECT_EQ(error_of_embedding({{"normalize", false}, {"pooling", "last"}, {"end_token", 100}}),
            "");
  EXPECT_NE(error_of_embedding({{"normalize", true}, {"end_token", 101}}).find("end_token 101"),
            std::string::npos);
  EXPECT_NE(error_of_embedding({{"normalize", true}, {"end_token", -2}}).find("end_token -2"),
            std::string::npos);
  EXPECT_NE(error_of_embedding({{"normalize", true}, {"pooling", "max"}}).find("pooling max"),
            std::string::npos);
  EXPECT_NE(error_of_embedding(Json::object()).find("normalize"), std::string::npos);
  EXPECT_NE(error_of_embedding(Json::array({1})).find("embedding"), std::string::npos);
}

}  // namespace
}  // namespace leq
