// Embeddings and judgements of a Qwen3 checkpoint, compared with those of sentence-transformers and
// transformers (reference/embedding_goldens.py). Its tokenizer adds a token after each text that is
// not its end token.
#include <gtest/gtest.h>

#include <cmath>

#include "base/file.h"
#include "errors.h"
#include "server/served_model.h"
#include "temporary_folder.h"

namespace leq {
namespace {

namespace fs = std::filesystem;
using test::error_of;
using test::ServedModel;
using test::TemporaryFolder;

using Vectors = std::vector<std::vector<double>>;

// f32 in another order of sums. A vector of the wrong token differs by more than 0.1.
constexpr double kTolerance = 1e-5;

const fs::path& golden_folder() {
  static const fs::path folder = fs::path(LEQ_SOURCE_DIR) / "tests/golden/embeddings";
  return folder;
}

const Json& golden() {
  static const Json json =
      parse_json(read_file(golden_folder() / "golden.json", 1 << 20), "golden");
  return json;
}

// The checkpoint with other files beside its weights; nullopt: the file is taken away.
class Checkpoint {
 public:
  explicit Checkpoint(const std::string& name = "checkpoint") : folder_(holder_ / name) {
    fs::copy(golden_folder(), folder_, fs::copy_options::recursive);
  }
  const fs::path& folder() const { return folder_; }
  void write(const std::string& name, const Json& json) const {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name) << json.dump();
  }
  void remove(const std::string& name) const { fs::remove_all(folder_ / name); }
  Model model() const {
    const fs::path file = holder_ / "model.leq";
    QuantizeOptions options;
    options.type = "f32";
    options.threads = 1;
    quantize_checkpoint(folder_, file, options);
    return Model(file, {});
  }

 private:
  TemporaryFolder holder_;
  fs::path folder_;
};

Json module(const char* type, const char* path) {
  return {{"type", std::string("sentence_transformers.models.") + type}, {"path", path}};
}

class Served {
 public:
  explicit Served(const Checkpoint& checkpoint, std::optional<Pooling> pooling = std::nullopt)
      : model_(checkpoint.model()), served_(2, options(pooling), model_, 1, KvType::f32) {}

  const Model& model() const { return model_; }
  ServedModel::Answer post(const std::string& path, const Json& body) const {
    return served_.post(path, body);
  }
  Vectors embed(Json more = Json::object()) const {
    more["input"] = golden()["texts"];
    const auto answer = post("/v1/embeddings", more);
    EXPECT_EQ(answer.status, 200) << answer.body;
    Vectors rows;
    for (const Json& one : answer.json["data"]) {
      rows.push_back(one["embedding"].get<std::vector<double>>());
    }
    return rows;
  }

 private:
  static ServerOptions options(std::optional<Pooling> pooling) {
    ServerOptions options;
    options.http.port = 0;
    options.pooling = pooling;
    return options;
  }
  Model model_;
  ServedModel served_;
};

void expect_close(const Vectors& found, const char* expected_name) {
  const auto expected = golden()[expected_name].get<Vectors>();
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    ASSERT_EQ(found[i].size(), expected[i].size());
    double length = 0, product = 0, other = 0;
    for (std::size_t k = 0; k < found[i].size(); ++k) {
      product += found[i][k] * expected[i][k];
      length += found[i][k] * found[i][k];
      other += expected[i][k] * expected[i][k];
    }
    EXPECT_NEAR(product / std::sqrt(length * other), 1, kTolerance) << expected_name << ' ' << i;
    EXPECT_NEAR(std::sqrt(length / other), 1, kTolerance) << expected_name << ' ' << i;
  }
}

TEST(EmbeddingGoldens, AreThoseOfSentenceTransformers) {
  const Checkpoint checkpoint;
  const Served served(checkpoint);
  expect_close(served.embed(), "last");
  expect_close(served.embed({{"dimensions", 8}}), "last_of_8");
  const auto answer = served.post("/v1/embeddings", {{"input", golden()["texts"][0]}});
  EXPECT_FALSE(answer.json.contains("warnings")) << answer.body;
  const auto ollama = served.post("/api/embed", {{"input", golden()["texts"]}});
  expect_close(ollama.json["embeddings"].get<Vectors>(), "last");
}

TEST(EmbeddingGoldens, TakeOtherPoolingsFromTheFilesOrFromAnOption) {
  for (const std::string name : {"mean", "cls", "last"}) {
    const Checkpoint checkpoint;
    expect_close(Served(checkpoint, parse_pooling(name)).embed(), name.c_str());
    // Flags, as older versions of sentence-transformers write them.
    checkpoint.write("1_Pooling/config.json", {{"word_embedding_dimension", 32},
                                               {"pooling_mode_cls_token", name == "cls"},
                                               {"pooling_mode_mean_tokens", name == "mean"},
                                               {"pooling_mode_lasttoken", name == "last"}});
    expect_close(Served(checkpoint).embed(), name.c_str());
  }
}

// A prompt and a text are one text, which sentence-transformers embeds likewise.
TEST(EmbeddingGoldens, HavePromptsByName) {
  const std::string text = golden()["texts"][3].get<std::string>();
  const std::size_t end = text.find("Query: ") + 7;
  const Checkpoint checkpoint;
  checkpoint.write("config_sentence_transformers.json",
                   {{"prompts", {{"query", text.substr(0, end)}, {"document", ""}}}});
  const Served served(checkpoint);
  const auto embed = [&](const std::string& name, const std::string& of) {
    const auto answer = served.post("/v1/embeddings", {{"input", of}, {"prompt_name", name}});
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.json["data"][0]["embedding"].get<std::vector<double>>();
  };
  const auto want = golden()["last"].get<Vectors>()[3];
  const auto query = embed("query", text.substr(end)), document = embed("document", text);
  for (std::size_t i = 0; i < want.size(); ++i) {
    EXPECT_NEAR(query[i], want[i], kTolerance);
    EXPECT_NEAR(document[i], want[i], kTolerance);
  }
  const auto unknown = served.post("/v1/embeddings", {{"input", "x"}, {"prompt_name", "a"}});
  EXPECT_EQ(unknown.status, 400);
  EXPECT_NE(unknown.body.find("one of document, query"), std::string::npos) << unknown.body;
}

TEST(EmbeddingGoldens, AreNotScaledWithoutANormalizeModule) {
  const Checkpoint checkpoint;
  checkpoint.write("modules.json",
                   Json::array({module("Transformer", ""), module("Pooling", "1_Pooling")}));
  expect_close(Served(checkpoint).embed(), "last_unscaled");
}

// One vector per token: the last is that of the pooling "last".
TEST(EmbeddingGoldens, AreOnePerTokenWithoutPooling) {
  const Checkpoint checkpoint;
  const Served served(checkpoint, Pooling::none);
  const auto answer = served.post("/v1/embeddings", {{"input", golden()["texts"]}});
  ASSERT_EQ(answer.status, 200) << answer.body;
  Vectors last;
  std::size_t rows = 0;
  for (const Json& one : answer.json["data"]) {
    const auto vectors = one["embedding"].get<Vectors>();
    rows += vectors.size();
    last.push_back(vectors.back());
  }
  EXPECT_EQ(rows, answer.json["usage"]["prompt_tokens"].get<std::size_t>());
  expect_close(last, "last_unscaled");
  EXPECT_EQ(served.post("/v1/embeddings", {{"input", "x"}, {"encoding_format", "base64"}}).status,
            400);
  EXPECT_EQ(served.post("/v1/rerank", {{"query", "x"}, {"documents", Json::array({"y"})}}).status,
            501);
}

TEST(EmbeddingGoldens, AreMeansWithAWarningIfNoFileSaysMore) {
  const Checkpoint checkpoint;
  checkpoint.remove("modules.json");
  checkpoint.remove("1_Pooling");
  const Served served(checkpoint);
  expect_close(served.embed(), "mean");
  const auto answer = served.post("/v1/embeddings", {{"input", "x"}});
  ASSERT_EQ(answer.json["warnings"].size(), 1u) << answer.body;
  EXPECT_NE(answer.json["warnings"][0].text().find("pooled"), std::string::npos);
  const Json asked = {{"input", "x"}, {"query", "x"}, {"documents", Json::array({"y"})}};
  for (const char* path : {"/v1/embeddings", "/v1/rerank", "/embedding", "/api/embed"}) {
    EXPECT_TRUE(served.post(path, asked).headers.contains("X-Leq-Warnings")) << path;
  }
}

TEST(EmbeddingFiles, AreRefusedByNameIfNotSupported) {
  struct Case {
    std::string name;
    Json json;
    std::string part;
  };
  const std::vector<Case> cases = {
      {"1_Pooling/config.json", {{"pooling_mode", "weightedmean"}}, "weightedmean"},
      {"1_Pooling/config.json", {{"pooling_mode_max_tokens", true}}, "max_tokens"},
      {"1_Pooling/config.json", {{"pooling_mode", Json::array({"mean", "cls"})}}, "several"},
      {"1_Pooling/config.json",
       {{"pooling_mode_mean_tokens", true}, {"pooling_mode_cls_token", true}},
       "several"},
      {"1_Pooling/config.json", Json::array({1}), "1_Pooling"},
      {"modules.json", Json::array({module("Dense", "2_Dense")}), "Dense"},
      {"modules.json", Json::array({module("Pooling", "../1_Pooling")}), "../1_Pooling"},
      {"modules.json", Json::object({{"a", 1}}), "modules"},
  };
  for (const Case& one : cases) {
    const Checkpoint checkpoint;
    checkpoint.write(one.name, one.json);
    const std::string error = error_of([&] { (void)checkpoint.model(); });
    EXPECT_NE(error.find(one.part), std::string::npos) << one.json.dump() << ": " << error;
  }
}

// Qwen3-Reranker, known by its name or by sentence-transformers' module.
TEST(RerankGoldens, AreTheProbabilitiesOfYes) {
  const Checkpoint named("Qwen3-Reranker-0.1B"), saved;
  named.remove("modules.json");
  named.remove("1_Pooling");
  saved.write("modules.json",
              Json::array({module("Transformer", ""), module("LogitScore", "1_LogitScore")}));
  const Model model = named.model();
  const auto id = [](const char* word, const Model& of) { return of.tokenizer().encode(word, {}); };
  const auto yes = id("yes", model), no = id("no", model);
  ASSERT_EQ(yes.size() + no.size(), 2u);
  saved.write("1_LogitScore/config.json", {{"true_token_id", yes[0]}, {"false_token_id", no[0]}});
  const auto expected = golden()["scores"].get<std::vector<double>>();
  for (const Checkpoint* checkpoint : {&named, &saved}) {
    const Served served(*checkpoint);
    for (const char* path : {"/v1/rerank", "/rerank", "/v1/reranking", "/v2/rerank"}) {
      const auto answer = served.post(path, {{"query", golden()["query"]},
                                             {"documents", golden()["documents"]},
                                             {"return_documents", true}});
      ASSERT_EQ(answer.status, 200) << answer.body;
      ASSERT_EQ(answer.json["results"].size(), expected.size());
      double before = 1;
      for (const Json& result : answer.json["results"]) {
        const auto index = result["index"].get<std::size_t>();
        EXPECT_NEAR(result["relevance_score"].get<double>(), expected[index], kTolerance) << index;
        EXPECT_LE(result["relevance_score"].get<double>(), before);
        EXPECT_EQ(result["document"]["text"], golden()["documents"][index]);
        before = result["relevance_score"].get<double>();
      }
    }
    EXPECT_EQ(served.post("/v1/embeddings", {{"input", "x"}}).status, 501);
  }
  saved.write("1_LogitScore/config.json", {{"true_token_id", no[0]}, {"false_token_id", yes[0]}});
  EXPECT_NE(error_of([&] { (void)saved.model(); }).find("Qwen3-Reranker"), std::string::npos);
}

}  // namespace
}  // namespace leq
