// Several models in one server: which model a request gets, when models are loaded and unloaded,
// and the effect of a model that cannot be loaded on the others.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <thread>

#include "base/mapping_watch.h"
#include "server/folder_server.h"
#include "server/raw_client.h"
#include "server/served_model.h"
#include "temporary_folder.h"

namespace leq::test {
namespace {

namespace fs = std::filesystem;

const char* const kStory =
    "{\"model\": \"int8\", \"prompt\": \"Once upon a time\", \"seed\": 3, "
    "\"max_tokens\": 24}";

std::string text_of(const std::pair<int, Json>& answer) {
  EXPECT_EQ(answer.first, 200) << answer.second.dump();
  return answer.first == 200 ? answer.second["choices"][0]["text"].text() : "";
}

// Returns the reply of a server that only has this model.
std::string alone(const std::string& type) {
  const Model model(file_of(type), {});
  const ServedModel served(2, story_options(), model);
  const auto answer = served.post("/v1/completions", kStory);
  return answer.json["choices"][0]["text"].text();
}

TEST(ModelsOfAFolder, ARequestsModelChooses) {
  const FolderServer models;
  const auto int8 = models.complete("int8"), int4 = models.complete("int4");
  EXPECT_EQ(text_of(int8), alone("int8"));
  EXPECT_EQ(text_of(int4), alone("int4-g64"));
  EXPECT_NE(text_of(int8), text_of(int4));
  EXPECT_EQ(int4.second["model"].text(), "int4");
  EXPECT_EQ(text_of(models.complete("int8.leq")), text_of(int8));  // a file name works, too
}

TEST(ModelsOfAFolder, ListsAllWithTheirStates) {
  const FolderServer models;
  using States = std::map<std::string, std::string>;
  EXPECT_EQ(models.states(),
            (States{{"int8", "unloaded"}, {"int4", "unloaded"}, {"f16", "unloaded"}}));
  (void)models.complete("int4");
  EXPECT_EQ(models.states(),
            (States{{"int8", "unloaded"}, {"int4", "loaded"}, {"f16", "unloaded"}}));
  const Json one = parse_json(models.text("/v1/models/int4"), "a model");
  EXPECT_EQ(one["status"]["memory_bytes"].dump(), "100");
  EXPECT_EQ(one["max_model_len"].dump(), "1024");
  EXPECT_EQ(models.client().Get("/v1/models/other")->status, 404);
  fs::copy_file(file_of("int8"), models.folder / "late.leq");
  EXPECT_EQ(models.states()["late"], "unloaded");
  EXPECT_EQ(text_of(models.complete("late")), text_of(models.complete("int8")));
}

TEST(ModelsOfAFolder, AnUnknownModelIsNotFound) {
  const FolderServer models;
  const auto [status, json] = models.complete("nope");
  EXPECT_EQ(status, 404);
  EXPECT_EQ(json["error"]["code"].text(), "model_not_found");
  EXPECT_EQ(models.complete("../int8").first, 404);
  EXPECT_EQ(models.complete("").first, 400);  // ambiguous: there are three models
  EXPECT_EQ(models.post("/v1/messages", R"({"model": "nope", "max_tokens": 5, "messages": []})")
                .second["error"]["type"]
                .text(),
            "not_found_error");
  EXPECT_EQ(models.post("/tokenize", R"({"content": "x", "model": 7})").first, 400);
}

TEST(ModelsOfAFolder, TheDefaultModelIsLoadedAtOnce) {
  FolderServer models(2, "int4.leq");
  EXPECT_EQ(models.states()["int4"], "loaded");
  EXPECT_EQ(models.loads_of("int4"), 1);
  const auto answer = models.complete("");
  EXPECT_EQ(answer.second["model"].text(), "int4");
  EXPECT_EQ(text_of(answer), alone("int4-g64"));
  EXPECT_EQ(parse_json(models.text("/v1/models"), "models")["data"][0]["id"].text(), "int4");
}

TEST(ModelsOfAFolder, ConcurrentFirstRequestsLoadAModelOnce) {
  FolderServer models;
  std::vector<std::thread> clients;
  std::atomic<int> answered = 0;
  for (int i = 0; i < 12; ++i) {
    clients.emplace_back([&, i] {
      if (models.complete(i % 3 == 0 ? "int4" : "int8", 6).first == 200) ++answered;
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(answered, 12);
  EXPECT_EQ(models.loads_of("int8"), 1);
  EXPECT_EQ(models.loads_of("int4"), 1);
}

TEST(ModelsOfAFolder, UnloadsTheOneUsedLongestAgo) {
  FolderServer models(2);
  for (const char* name : {"int8", "int4", "int8", "f16"}) (void)models.complete(name, 2);
  EXPECT_EQ(models.states()["int4"], "unloaded");
  EXPECT_EQ(models.states()["int8"], "loaded");
  EXPECT_EQ(models.states()["f16"], "loaded");
  (void)models.complete("int4", 2);
  EXPECT_EQ(models.states()["int8"], "unloaded");
  EXPECT_EQ(models.loads_of("int4"), 2);
  EXPECT_NE(models.text("/metrics").find("leq:model_unloads_total 2"), std::string::npos);
}

TEST(ModelsOfAFolder, AreOneNameEverywhereAndTakeOthers) {
  FolderServer models(3, "", 64, [](PoolOptions& pool) {
    pool.whole_name = [](const std::string& name) { return name == "short" ? "int8" : name; };
  });
  for (const char* name : {"int8", "int8.leq", "INT8", "int8:latest", "Int8.leq:latest", "short"}) {
    const auto [status, reply] = models.complete(name, 2);
    EXPECT_EQ(status, 200) << name;
    EXPECT_EQ(reply["model"].text(), "int8") << name;
    const Json shown = parse_json(models.text("/v1/models/" + std::string(name)), "a model");
    EXPECT_EQ(shown["id"].text(), "int8") << name;
    const std::string body = Json::object({{"model", name}}).dump();
    EXPECT_EQ(models.post("/api/show", body).first, 200) << name;
    EXPECT_EQ(models.post("/api/generate", body).second["model"].text(), "int8") << name;
  }
  EXPECT_EQ(models.loads_of("int8"), 1);
  std::vector<std::string> ids, tags;
  const Json openai = parse_json(models.text("/v1/models"), "list"),
             ollama = parse_json(models.text("/api/tags"), "list");
  for (const Json& one : openai["data"]) ids.push_back(one["id"].text());
  for (const Json& one : ollama["models"]) tags.push_back(one["name"].text());
  EXPECT_EQ(ids, (std::vector<std::string>{"f16", "int4", "int8"}));
  EXPECT_EQ(tags, ids);
  EXPECT_EQ(parse_json(models.text("/api/ps"), "ps")["models"][0]["model"].text(), "int8");
  for (const char* name : {"int", "int8x", "leq", ".leq"}) {
    EXPECT_EQ(models.complete(name, 2).first, 404) << name;
  }
}

// Adds the names cat and dog for int8 to a folder's; `alone`: these two are the only models.
std::function<void(PoolOptions&)> with_names(bool alone = false) {
  return [alone](PoolOptions& pool) {
    pool.files = [alone, files = pool.files] {
      std::vector<ModelFile> all = files();
      ModelFile one = *std::ranges::find(all, "int8", &ModelFile::name);
      if (alone) all.clear();
      one.name_of = NameOf::settings;
      for (const char* name : {"cat", "dog"}) {
        one.name = name;
        all.push_back(one);
      }
      return all;
    };
  };
}

std::vector<std::string> ids_of(const FolderServer& models) {
  std::vector<std::string> ids;
  const Json list = parse_json(models.text("/v1/models"), "list");
  for (const Json& one : list["data"]) ids.push_back(one["id"].text());
  return ids;
}

// The four APIs: a question without settings, the members that say the same as the settings of cat,
// and the text of the answer.
struct Api {
  const char *path, *question, *settings;
  std::string (*text)(const Json& answer);
};
const Api kApis[] = {
    {"/v1/chat/completions", R"("messages":[{"role":"user","content":"Tell me a story."}])",
     R"("messages":[{"role":"system","content":"You tell of a cat."},)"
     R"({"role":"user","content":"Tell me a story."}],"temperature":0,"max_tokens":12)",
     [](const Json& answer) { return answer["choices"][0]["message"]["content"].text(); }},
    {"/v1/responses", R"("input":"Tell me a story.")",
     R"("input":"Tell me a story.","instructions":"You tell of a cat.","temperature":0,)"
     R"("max_output_tokens":12)",
     [](const Json& answer) { return answer["output"][0]["content"][0]["text"].text(); }},
    {"/v1/messages", R"("messages":[{"role":"user","content":"Tell me a story."}])",
     R"("messages":[{"role":"user","content":"Tell me a story."}],"system":"You tell of a cat.",)"
     R"("temperature":0,"max_tokens":12)",
     [](const Json& answer) { return answer["content"][0]["text"].text(); }},
    {"/api/chat", R"("stream":false,"messages":[{"role":"user","content":"Tell me a story."}])",
     R"("stream":false,"messages":[{"role":"system","content":"You tell of a cat."},)"
     R"({"role":"user","content":"Tell me a story."}],"options":{"temperature":0,"num_predict":12})",
     [](const Json& answer) { return answer["message"]["content"].text(); }},
    {"/api/generate", R"("stream":false,"prompt":"Tell me a story.")",
     R"("stream":false,"prompt":"Tell me a story.","system":"You tell of a cat.",)"
     R"("options":{"temperature":0,"num_predict":12})",
     [](const Json& answer) { return answer["response"].text(); }},
};

std::string asked(const std::string& model, const std::string& members) {
  return "{\"model\":\"" + model + "\"," + members + "}";
}

TEST(NamesOfSettings, MeanARequestThatSaysThemItself) {
  FolderServer models(2, "", 64, with_names());
  for (const Api& api : kApis) {
    const auto [status, own] = models.post(api.path, asked("int8", api.settings));
    ASSERT_EQ(status, 200) << api.path << own.dump();
    const std::string want = api.text(own);
    EXPECT_GT(want.size(), 10u) << api.path;
    for (const char* name : {"cat", "CAT", "cat:latest"}) {
      const auto [again, named] = models.post(api.path, asked(name, api.question));
      ASSERT_EQ(again, 200) << api.path << named.dump();
      EXPECT_EQ(api.text(named), want) << api.path;
      EXPECT_EQ(named["model"].text(), "cat") << api.path;
    }
    EXPECT_NE(api.text(models.post(api.path, asked("dog", api.question)).second), want) << api.path;
    const auto two = models.post(api.path, asked("dog", api.settings)).second;
    EXPECT_EQ(api.text(two), want) << api.path << ": a request's own settings win";
  }
  EXPECT_EQ(models.loads_of("int8"), 1) << "all names share the loaded model";
  EXPECT_NE(models.text("/metrics").find("leq:models_loaded 1\n"), std::string::npos);
}

TEST(NamesOfSettings, HaveThePromptOfTheirSystemMessage) {
  FolderServer models(2, "", 64, with_names());
  const auto prompt = [&](const std::string& model, const std::string& path, const Api& api,
                          bool with_own) {
    return models.post(path, asked(model, with_own ? api.settings : api.question)).second;
  };
  const Api &chat = kApis[0], &responses = kApis[1], &messages = kApis[2];
  EXPECT_EQ(prompt("cat", "/apply-template", chat, false).dump(),
            prompt("int8", "/apply-template", chat, true).dump());
  EXPECT_EQ(prompt("dog", "/apply-template", chat, true).dump(),
            prompt("int8", "/apply-template", chat, true).dump());
  EXPECT_NE(prompt("cat", "/apply-template", chat, false).dump(),
            prompt("int8", "/apply-template", chat, false).dump());
  EXPECT_EQ(prompt("cat", "/v1/messages/count_tokens", messages, false).dump(),
            prompt("int8", "/v1/messages/count_tokens", messages, true).dump());
  EXPECT_EQ(prompt("cat", "/v1/responses/input_tokens", responses, false).dump(),
            prompt("int8", "/v1/responses/input_tokens", responses, true).dump());
  // One prefix cache: what one name was asked need not be fed again for another.
  (void)models.post(chat.path, asked("cat", chat.question));
  const Json usage = models.post(chat.path, asked("int8", chat.settings)).second["usage"];
  EXPECT_GT(usage["prompt_tokens_details"]["cached_tokens"].get<int>(), 0);
}

TEST(NamesOfSettings, AreModelsOfTheirOwnInAllLists) {
  FolderServer models(2, "", 64, with_names());
  EXPECT_EQ(ids_of(models), (std::vector<std::string>{"cat", "dog", "f16", "int4", "int8"}));
  (void)models.complete("dog", 2);
  std::map<std::string, std::string> states = models.states();
  EXPECT_EQ(states["cat"], "loaded");
  EXPECT_EQ(states["int8"], "loaded");
  EXPECT_EQ(states["int4"], "unloaded");
  std::vector<std::string> tags;
  const Json ollama = parse_json(models.text("/api/tags"), "list");
  for (const Json& one : ollama["models"]) tags.push_back(one["name"].text());
  EXPECT_EQ(tags, ids_of(models));
  EXPECT_EQ(parse_json(models.text("/v1/models/dog"), "one")["id"].text(), "dog");
  const Json shown = models.post("/api/show", R"({"model":"dog"})").second;
  EXPECT_EQ(shown["system"].text(), "You tell of a dog.");
  EXPECT_EQ(shown["parameters"].text(), "temperature 0\n");
  EXPECT_EQ(shown["modelfile"].text(), "FROM int8\n");
  EXPECT_FALSE(models.post("/api/show", R"({"model":"int8"})").second.contains("system"));
  EXPECT_EQ(models.post("/models/unload", R"({"model":"cat"})").first, 200);
  EXPECT_EQ(models.states()["int8"], "unloaded");
  EXPECT_EQ(models.complete("bird").first, 404);
}

TEST(NamesOfSettings, MayBeTheOnlyNamesAndTheDefault) {
  FolderServer models(2, "", 64, with_names(true));
  EXPECT_EQ(ids_of(models), (std::vector<std::string>{"cat", "dog"}));
  const Api& chat = kApis[0];
  const std::string cat = chat.text(models.post(chat.path, asked("cat", chat.question)).second);
  const std::string dog = chat.text(models.post(chat.path, asked("dog", chat.question)).second);
  EXPECT_NE(cat, dog);
  EXPECT_EQ(models.complete("int8").first, 404);
  EXPECT_EQ(models.post(chat.path, "{" + std::string(chat.question) + "}").first, 400);
  EXPECT_EQ(models.loads_of("int8"), 1);

  FolderServer first(2, "int8.leq", 64, [](PoolOptions& pool) {
    with_names(true)(pool);
    pool.file_name = "dog";
  });
  EXPECT_EQ(ids_of(first), (std::vector<std::string>{"dog", "cat"}));
  const std::string nameless = "{" + std::string(chat.question) + "}";
  EXPECT_EQ(chat.text(first.post(chat.path, nameless).second), dog);
  EXPECT_EQ(chat.text(first.post(chat.path, asked("cat", chat.question)).second), cat);
  EXPECT_EQ(first.loads_of("int8"), 1);

  // The file's own name beside them is that of the same loaded model, without the settings.
  FolderServer all(2, "int8.leq", 64, [](PoolOptions& pool) {
    with_names()(pool);
    pool.file_name = "dog";
  });
  EXPECT_EQ(ids_of(all), (std::vector<std::string>{"dog", "cat", "f16", "int4", "int8"}));
  EXPECT_EQ(chat.text(all.post(chat.path, nameless).second), dog);
  const Json own = all.post(chat.path, asked("int8", chat.settings)).second;
  EXPECT_EQ(chat.text(own), cat);
  EXPECT_EQ(own["model"].text(), "int8");
  EXPECT_EQ(all.loads_of("int8"), 1);
}

TEST(DefaultStops, AreThoseOfARequestWithoutAny) {
  const ServedModel usual;
  const auto text = [](const ServedModel& server, const std::string& more) {
    const auto answer =
        server.post("/v1/completions", R"({"prompt":"Once upon a time","temperature":0,)"
                                       R"("max_tokens":24)" +
                                           more + "}");
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.json["choices"][0]["text"].text();
  };
  const std::string whole = text(usual, "");
  ServerOptions options = story_options();
  options.stop = {whole.substr(8, 4)};
  const std::string cut = whole.substr(0, whole.find(options.stop[0]));
  const ServedModel stops(4, options);
  EXPECT_EQ(text(stops, ""), cut);
  EXPECT_EQ(text(stops, R"(,"stop":[])"), cut);
  EXPECT_EQ(text(stops, R"(,"stop":"qqq")"), whole) << "the request's own are in their place";
}

constexpr const char* kLongStream =
    R"({"model": "int8", "prompt": "Once", "ignore_eos": true, "max_tokens": 900, "stream": true,)"
    R"( "seed": 5, "temperature": 0.9})";

// A client to whom int8 writes a reply.
RawClient long_stream(const FolderServer& models) {
  RawClient stream(models.server->port());
  stream.send(plain_request("POST", "/v1/completions", kLongStream));
  stream.read_until("data: ");
  return stream;
}

TEST(ModelsOfAFolder, ARunningReplyKeepsItsModel) {
  FolderServer models(1);
  RawClient stream = long_stream(models);
  std::pair<int, Json> other;
  std::thread waits([&] { other = models.complete("int4", 4); });
  const std::string reply = stream.read_all(60);
  waits.join();
  EXPECT_NE(reply.find("\"finish_reason\":\"length\""), std::string::npos) << reply.substr(0, 2000);
  EXPECT_NE(reply.find("data: [DONE]"), std::string::npos);
  EXPECT_EQ(other.first, 200) << other.second.dump();
  EXPECT_EQ(models.states()["int8"], "unloaded");
}

// Small requests for one model arrive without a gap; the other model must get its turn anyway.
TEST(ModelsOfAFolder, ABusyModelDoesNotKeepOthersOutForEver) {
  FolderServer models(1);
  (void)models.complete("int8", 1);
  std::atomic<bool> over = false;
  std::vector<std::thread> busy;
  for (int i = 0; i < 8; ++i) {
    busy.emplace_back([&] {
      while (!over) (void)models.complete("int8", 60);
    });
  }
  EXPECT_EQ(models.complete("int4", 4).first, 200);
  over = true;
  for (std::thread& one : busy) one.join();
}

TEST(ModelsOfAFolder, WhoGoesAwayWhileItWaitsLoadsNothing) {
  FolderServer models(1);
  RawClient stream = long_stream(models);
  {
    RawClient gone(models.server->port());
    gone.send(plain_request("POST", "/v1/completions", R"({"model": "int4", "prompt": "x"})"));
    while (models.states()["int4"] != "loading") std::this_thread::yield();
  }
  while (models.states()["int4"] != "unloaded") std::this_thread::yield();
  EXPECT_NE(stream.read_all(60).find("data: [DONE]"), std::string::npos);
  EXPECT_EQ(models.loads_of("int4"), 0);
}

TEST(ModelsOfAFolder, ADamagedFileSaysSoAndHurtsNoOther) {
  const FolderServer models;
  fs::copy_file(file_of("int8"), models.folder / "cut.leq");
  fs::resize_file(models.folder / "cut.leq", 100000);
  std::ofstream(models.folder / "none.gguf") << "not a model";
  (void)models.complete("int8", 2);
  for (const char* name : {"cut", "cut", "none"}) {
    const auto [status, json] = models.complete(name);
    EXPECT_EQ(status, 500) << name;
    EXPECT_EQ(json["error"]["code"].text(), "model_load_failed");
    EXPECT_EQ(json["error"]["message"].text().find(models.folder.path().string()),
              std::string::npos);
  }
  EXPECT_NE(models.complete("cut").second["error"]["message"].text().find("cut off"),
            std::string::npos);
  EXPECT_EQ(models.states()["cut"], "failed");
  EXPECT_EQ(models.states()["int8"], "loaded");
  EXPECT_EQ(text_of(models.complete("int8")), alone("int8"));
  // The damaged file is replaced by a complete one, which must be read.
  fs::copy_file(file_of("int8"), models.folder / "whole");
  fs::rename(models.folder / "whole", models.folder / "cut.leq");
  EXPECT_EQ(text_of(models.complete("cut")), alone("int8"));
}

TEST(ModelsOfAFolder, AFileThatIsReplacedIsReadAgain) {
  FolderServer models;
  const std::string before = text_of(models.complete("int8"));
  fs::copy_file(file_of("int4-g64"), models.folder / "new");
  fs::last_write_time(models.folder / "new",
                      fs::last_write_time(models.folder / "int8.leq") + std::chrono::seconds(1));
  fs::rename(models.folder / "new", models.folder / "int8.leq");
  EXPECT_EQ(text_of(models.complete("int8")), alone("int4-g64"));
  EXPECT_EQ(models.loads_of("int8"), 2);
}

// The mapped file becomes shorter while a reply reads it: the system reports that by SIGBUS.
TEST(ModelsOfAFolder, AMappedFileThatBecomesShorterFailsItsModelAlone) {
  if (*LEQ_SANITIZE != '\0') GTEST_SKIP() << "sanitizers handle the signal themselves";
  watch_mappings("models-test", LostPages::read_zeros);
  FolderServer models;
  models.mode = LoadMode::map;
  const std::string expected = text_of(models.complete("int4"));
  RawClient fails(models.server->port()), goes_on(models.server->port());
  const auto stream_of = [](const std::string& model) {
    return plain_request("POST", "/v1/completions", replace_all(kLongStream, "int8", model));
  };
  goes_on.send(stream_of("int4"));
  fails.send(stream_of("int8"));
  fails.read_until("data: ");
  fs::resize_file(models.folder / "int8.leq", 0);
  const std::string failed = fails.read_all(60), other = goes_on.read_all(60);
  EXPECT_NE(failed.find("the model int8 has failed: its file became shorter"), std::string::npos)
      << failed.substr(0, 2000);
  EXPECT_NE(failed.find("data: [DONE]\n\n", failed.find("has failed")), std::string::npos);
  EXPECT_NE(other.find("\"finish_reason\":\"length\""), std::string::npos);
  EXPECT_EQ(models.states()["int8"], "failed");
  EXPECT_EQ(models.states()["int4"], "loaded");
  const auto [status, json] = models.complete("int8");
  EXPECT_EQ(status, 500);
  EXPECT_EQ(json["error"]["code"].text(), "model_load_failed");
  EXPECT_EQ(text_of(models.complete("int4")), expected);
  EXPECT_EQ(models.loads_of("int4"), 1);
  fs::copy_file(file_of("int8"), models.folder / "whole");
  fs::rename(models.folder / "whole", models.folder / "int8.leq");
  EXPECT_EQ(text_of(models.complete("int8")), alone("int8"));
  watch_mappings("models-test");
}

// Waits until the model has this state.
void await(const FolderServer& models, const std::string& name, const std::string& state) {
  for (int i = 0; i < 1000 && models.states()[name] != state; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(models.states()[name], state) << name;
}

TEST(ModelsOfAFolder, AnIdleModelSleepsUntilItsNextRequest) {
  FolderServer models(3, "", 64, [](PoolOptions& pool) {
    pool.idle_seconds = 0.2;
    pool.idle_seconds_of = {{"int4", kNeverIdle}};
    pool.pinned = {"f16"};
  });
  const std::string expected = text_of(models.complete("int8"));
  for (const char* name : {"int4", "f16"}) (void)models.complete(name, 2);
  RawClient stream = long_stream(models);
  EXPECT_EQ(models.states()["int8"], "loaded");
  EXPECT_NE(stream.read_all(60).find("data: [DONE]"), std::string::npos);
  const int loads = models.loads_of("int8");  // nothing was unloaded while its reply ran
  await(models, "int8", "sleeping");
  EXPECT_EQ(models.server->models().counts().memory_bytes, 2 * kBytesOfOne);
  EXPECT_EQ(models.states()["int4"], "loaded");
  EXPECT_EQ(models.states()["f16"], "loaded");
  EXPECT_EQ(text_of(models.complete("int8")), expected);
  EXPECT_EQ(models.loads_of("int8"), loads + 1);
  EXPECT_EQ(models.loads_of("int4") + models.loads_of("f16"), 2);
}

TEST(ModelsOfAFolder, RequestsLoadAndUnload) {
  FolderServer models(2, "", 64, [](PoolOptions& pool) { pool.pinned = {"int4", "f16"}; });
  EXPECT_EQ(models.post("/models/load", R"({"model":"int8"})").second.dump(),
            R"({"success":true})");
  EXPECT_EQ(models.states()["int8"], "loaded");
  EXPECT_EQ(models.post("/models/unload", R"({"model":"int8"})").second.dump(),
            R"({"success":true})");
  EXPECT_EQ(models.states()["int8"], "unloaded");
  EXPECT_EQ(models.post("/models/unload", R"({"model":"int8"})").first, 200);  // as it is
  EXPECT_EQ(models.post("/models/load", R"({"model":"nope"})").first, 404);
  EXPECT_EQ(models.post("/models/unload", R"({"model":"nope"})").first, 404);
  for (const char* name : {"int4", "f16"}) (void)models.complete(name, 2);
  EXPECT_EQ(models.post("/models/unload", R"({"model":"f16"})").first, 400);
  const auto [status, json] = models.complete("int8", 2);  // both places are taken for ever
  EXPECT_EQ(status, 500);
  EXPECT_EQ(json["error"]["code"].text(), "model_too_large");
}

// While both wait for the only place, the one that will take it for ever has none yet.
TEST(ModelsOfAFolder, ALoadBehindAPinnedModelsEndsWhenThatIsLoaded) {
  FolderServer models(1, "", 64, [](PoolOptions& pool) { pool.pinned = {"int4"}; });
  RawClient stream = long_stream(models);
  constexpr std::array kNames = {"int4", "f16"};
  std::array<std::string, 2> errors = {"none", "none"};
  std::array<std::atomic<int>, 2> looks = {};  // of loads that wait, whether they are wanted
  std::vector<std::thread> clients;
  for (std::size_t i = 0; i < 2; ++i) {
    clients.emplace_back([&, i] {
      try {
        (void)models.server->models().lease(kNames[i], [&, i] { return ++looks[i] < 200; });
      } catch (const ApiError& error) {
        errors[i] = error.code();
      }
    });
    while (looks[i] == 0) std::this_thread::yield();
  }
  stream.close();
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(errors, (std::array<std::string, 2>{"none", "model_too_large"}));
}

TEST(ModelsOfAFolder, KeepAliveOfOllamasClients) {
  const FolderServer models;
  const auto ask = [&](const std::string& members) {
    return models.post("/api/generate",
                       R"({"model":"int8:latest","stream":false,)" + members + "}");
  };
  const auto expires = [&] {
    return parse_json(models.text("/api/ps"), "ps")["models"][0]["expires_at"].text();
  };
  EXPECT_EQ(ask(R"("keep_alive":-1)").second["done_reason"].text(), "load");
  EXPECT_EQ(models.states()["int8"], "loaded");
  EXPECT_TRUE(expires().starts_with("9999"));
  EXPECT_EQ(ask(R"("prompt":"x","options":{"num_predict":2},"keep_alive":"1h30m")").first, 200);
  EXPECT_FALSE(expires().starts_with("9999"));
  EXPECT_EQ(ask(R"("keep_alive":0)").second["done_reason"].text(), "unload");
  EXPECT_EQ(models.states()["int8"], "unloaded");
  EXPECT_EQ(parse_json(models.text("/api/ps"), "ps")["models"].size(), 0u);
  EXPECT_EQ(ask(R"("prompt":"x","options":{"num_predict":2},"keep_alive":"0s")").first, 200);
  await(models, "int8", "sleeping");
  EXPECT_EQ(ask(R"("keep_alive":"soon")").first, 400);
}

// A request that comes while the model is unloaded says how long the next load stays.
TEST(ModelsOfAFolder, KeepAliveOfARequestDuringAnUnload) {
  std::atomic<bool> unloading = false, waiting = false;
  FolderServer models(2, "", 64, [&](PoolOptions& pool) {
    pool.whole_name = [&](const std::string& name) {
      if (unloading) waiting = true;  // in the lock that the request keeps until it waits
      return name;
    };
  });
  models.at_unload = [&] {
    if (unloading.exchange(true)) return;
    while (!waiting) std::this_thread::yield();
  };
  const std::string body = R"({"model":"int8","input":"x","keep_alive":0})";
  EXPECT_EQ(models.post("/api/embed", body).first, 200);
  while (!unloading) std::this_thread::yield();
  EXPECT_EQ(models.post("/api/embed", body).first, 200);
  await(models, "int8", "sleeping");
  EXPECT_EQ(models.loads_of("int8"), 2);
}

TEST(ModelsOfAFolder, ARemovedFileIsNotFound) {
  FolderServer models(2, "int4.leq");
  for (const char* name : {"int8", "int4"}) {
    (void)models.complete(name, 2);
    EXPECT_EQ(models.post("/models/unload", Json::object({{"model", name}}).dump()).first, 200);
    fs::remove(models.folder / (std::string(name) + ".leq"));
    EXPECT_EQ(models.complete(name, 2).first, 404) << name;
  }
  EXPECT_EQ(models.states().contains("int8"), false);
}

// A server of one file, which sleeps too; any name is its own.
TEST(ModelsOfAFolder, TheOnlyModelSleepsAndWakes) {
  FolderServer models(9, "int8.leq", 64, [](PoolOptions& pool) {
    pool.files = {};
    pool.idle_seconds = 0.1;
  });
  const std::string expected = text_of(models.complete("any"));
  EXPECT_EQ(models.states().size(), 1u);
  await(models, "int8", "sleeping");
  EXPECT_NE(models.text("/health").find("ok"), std::string::npos);
  EXPECT_EQ(models.states()["int8"], "sleeping");
  EXPECT_EQ(text_of(models.complete("")), expected);
}

TEST(ModelsOfAFolder, AModelLargerThanAllMemoryIsRefused) {
  FolderServer models(2);
  models.f16_bytes = 3 * kBytesOfOne;
  (void)models.complete("int8", 2);
  const auto [status, json] = models.complete("f16");
  EXPECT_EQ(status, 500);
  EXPECT_EQ(json["error"]["code"].text(), "model_too_large");
  EXPECT_EQ(models.states()["int8"], "loaded");  // nothing was unloaded for it
}

TEST(ModelsOfAFolder, TooManyThatWaitAreTold) {
  FolderServer models(1, "", 1);  // limit of 4 requests for all models together
  RawClient stream = long_stream(models);
  std::vector<RawClient> waiting;
  for (int i = 0; i < 5; ++i) {
    waiting.emplace_back(models.server->port());
    waiting.back().send(
        plain_request("POST", "/v1/completions", R"({"model": "int4", "prompt": "x"})"));
  }
  const bool told = std::ranges::any_of(waiting, [](RawClient& one) {
    return one.read_until("\r\n\r\n", 1).find("503") != std::string::npos;
  });
  EXPECT_TRUE(told);
  EXPECT_NE(models.text("/health").find("ok"), std::string::npos);
}

TEST(ModelsOfAFolder, MetricsAndSlotsNameTheModel) {
  const FolderServer models;
  (void)models.complete("int8", 3);
  (void)models.complete("int4", 5);
  const std::string metrics = models.text("/metrics");
  EXPECT_NE(metrics.find("leq:tokens_predicted_total{model=\"int8\"} 3\n"), std::string::npos);
  EXPECT_NE(metrics.find("leq:tokens_predicted_total{model=\"int4\"} 5\n"), std::string::npos);
  EXPECT_NE(metrics.find("leq:models_loaded 2\n"), std::string::npos);
  EXPECT_NE(metrics.find("_bucket{model=\"int4\",le=\"+Inf\"} 1\n"), std::string::npos);
  const Json slots = parse_json(models.text("/slots"), "slots");
  ASSERT_EQ(slots.size(), 4u);
  EXPECT_EQ(slots[0]["model"].text(), "int4");
  EXPECT_EQ(slots[3]["model"].text(), "int8");
  EXPECT_NE(models.text("/props?model=int8").find("\"model_alias\":\"int8\""), std::string::npos);
}

TEST(ModelsOfAFolder, AQueryAndABodyNameOneModel) {
  const FolderServer models;
  const std::string body = R"({"model": "int8", "prompt": "x", "max_tokens": 1})";
  EXPECT_EQ(models.post("/v1/completions?model=int8", body).first, 200);
  const auto [status, reply] = models.post("/v1/completions?model=int4", body);
  EXPECT_EQ(status, 400);
  EXPECT_NE(reply["error"]["message"].text().find("the body names int8, the query int4"),
            std::string::npos);
}

TEST(ModelsOfAFolder, StopsWhileRepliesRunAndRequestsWait) {
  FolderServer models(1);
  RawClient stream(models.server->port()), waits(models.server->port());
  stream.send(plain_request("POST", "/v1/completions", kLongStream));
  stream.read_until("data: ");
  waits.send(plain_request("POST", "/v1/completions", R"({"model": "int4", "prompt": "x"})"));
  while (models.states()["int4"] != "loading") std::this_thread::yield();
  models.server->stop(60);
  EXPECT_NE(stream.read_all().find("data: [DONE]"), std::string::npos);
  const std::string refused = waits.read_all();
  EXPECT_NE(refused.find("shutting_down"), std::string::npos) << refused;
}

// There is memory for two of three models, and idle ones sleep at once. Each reply must be that of
// the requested model.
TEST(ModelsOfAFolder, ManyClientsGetTheirModelsRepliesWhileModelsComeAndGo) {
  const char* more = std::getenv("LEQ_MODEL_REQUESTS");
  const int requests = more != nullptr ? std::atoi(more) : 8;  // per client
  FolderServer models(2, "", 64, [](PoolOptions& pool) { pool.idle_seconds = 0.01; });
  std::map<std::string, std::string> expected;
  for (const char* name : {"int8", "int4", "f16"}) expected[name] = text_of(models.complete(name));
  EXPECT_NE(expected["int8"], expected["int4"]);
  std::atomic<int> right = 0, wrong = 0;
  std::vector<std::thread> clients;
  for (int i = 0; i < 8; ++i) {
    clients.emplace_back([&, i] {
      for (int j = 0; j < requests; ++j) {
        const char* name =
            std::array{"int8", "int4", "f16"}[static_cast<std::size_t>(i * j + j) % 3];
        if ((i + j) % 5 == 0) {  // disconnects, at any stage of its request
          RawClient gone(models.server->port());
          gone.send(plain_request("POST", "/v1/completions",
                                  R"({"max_tokens":50,"stream":true,"prompt":"x","model":")" +
                                      std::string(name) + "\"}"));
          continue;
        }
        const auto answer = models.complete(name);
        const bool good = answer.first == 200 && text_of(answer) == expected[name];
        ++(good ? right : wrong);
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(right, 8 * requests / 2);
  const PoolCounts counts = models.server->models().counts();
  EXPECT_GT(counts.drops, 2);
  EXPECT_LE(counts.memory_bytes, 2 * kBytesOfOne);
  EXPECT_EQ(counts.failures, 0);
}

// Another attempt may find memory, and what was reserved for the first is free.
TEST(ModelsOfAFolder, AModelThatFindsNoMemoryIsTriedAgain) {
  FolderServer models(1);
  int attempts = 0;
  models.at_load = [&] {
    if (++attempts == 1) throw Error("no room for the weights", ErrorKind::no_memory);
    if (attempts == 2) throw std::bad_alloc();
  };
  for (const char* why : {"no room for the weights", "out of memory"}) {
    const auto [status, json] = models.complete("int8", 2);
    EXPECT_EQ(status, 503);
    EXPECT_EQ(json["error"]["code"].text(), "model_load_failed");
    EXPECT_EQ(json["error"]["message"].text(),
              "the model int8 cannot be loaded: " + std::string(why));
    EXPECT_EQ(models.states()["int8"], "unloaded");
    EXPECT_EQ(models.server->models().counts().memory_bytes, 0u);
  }
  EXPECT_EQ(text_of(models.complete("int4")), alone("int4-g64"));
  EXPECT_EQ(text_of(models.complete("int8")), alone("int8"));
  EXPECT_EQ(models.server->models().counts().failures, 2);
  EXPECT_EQ(models.server->models().counts().loads, 2);
  EXPECT_NE(models.text("/metrics").find("leq:model_load_failures_total 2\n"), std::string::npos);
}

TEST(ModelsOfAFolder, KeepAliveHasTheUnitsOfOllama) {
  const FolderServer models;
  const std::vector<std::pair<const char*, double>> cases = {
      {"\"90s\"", 90}, {"\"2m\"", 120},   {"\"1h30m\"", 5400}, {"\"1.5h\"", 5400},
      {"45", 45},      {"\"1m15s\"", 75}, {"\"600\"", 600},    {"\"60000ms\"", 60},
      {"\"7e1\"", -1}, {"\"5x\"", -1},    {"\"\"", -1},        {"true", -1}};
  for (const auto& [text, seconds] : cases) {
    const auto [status, json] =
        models.post("/api/generate", R"({"model":"int8","keep_alive":)" + std::string(text) + "}");
    EXPECT_EQ(status, seconds < 0 ? 400 : 200) << text << json.dump();
    if (seconds < 0) continue;
    for (const ModelStatus& one : models.server->models().list()) {
      if (one.file.name != "int8") continue;
      EXPECT_NEAR(one.idle_seconds, seconds, 5) << text;
    }
  }
}

}  // namespace
}  // namespace leq::test
