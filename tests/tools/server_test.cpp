// leq-server as a program: its messages, its shutdown, and its restart.
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>

#include "base/json.h"
#include "server/raw_client.h"
#include "tools/process.h"
#include "tools/tool_runner.h"

namespace leq::test {
namespace {

const TemporaryFolder& folder() {
  static const TemporaryFolder made;
  return made;
}

const std::string& story_file() {
  static const std::string path = [] {
    const std::string made = (folder() / "story.leq").string();
    const ToolRun run =
        run_program("leq-quantize", {std::string(LEQ_SOURCE_DIR) + "/examples/storyteller", "-o",
                                     made, "--type", "int8", "--method", "rtn"});
    require(run.status == 0, run.err);
    return made;
  }();
  return path;
}

struct Running {
  std::unique_ptr<Process> process;
  int port = 0;
};

Running start_with(std::vector<std::string> words) {
  words.insert(words.begin(), std::string(LEQ_TOOLS_DIR) + "/leq-server");
  Running running = {std::make_unique<Process>(words, Process::Input::pipe)};
  constexpr std::string_view kAddress = "listening on http://127.0.0.1:";
  EXPECT_TRUE(running.process->wait_for_error(std::string(kAddress)));
  EXPECT_TRUE(running.process->wait_for_error("\n"));
  const std::string& said = running.process->err;
  running.port = std::atoi(said.c_str() + said.find(kAddress) + kAddress.size());
  return running;
}

Running start(std::vector<std::string> words) {
  words.insert(words.begin(), {"-m", story_file()});
  return start_with(words);
}

std::string health(int port) {
  RawClient client(port);
  client.send(plain_request("GET", "/health"));
  return client.read_all(10);
}

TEST(LeqServer, EndsWithStatus0WhereItIsToldTo) {
  for (const int signal : {SIGTERM, SIGINT}) {
    const Running running = start({"--port", "0"});
    EXPECT_NE(health(running.port).find(R"({"status":"ok"})"), std::string::npos);
    running.process->signal(signal);
    EXPECT_EQ(running.process->finish(), 0) << running.process->err;
    EXPECT_NE(running.process->err.find("leq-server: stopped\n"), std::string::npos);
    EXPECT_EQ(running.process->out, "");
  }
}

TEST(LeqServer, ComesBackOnItsPortAfterItWasKilled) {
  Running first = start({"--port", "0"});
  RawClient left_over(first.port);
  left_over.send("GET / HT");
  first.process->signal(SIGKILL);
  EXPECT_EQ(first.process->finish(), 1000 + SIGKILL);
  const Running second = start({"--port", std::to_string(first.port)});
  EXPECT_EQ(second.port, first.port);
  EXPECT_NE(health(second.port).find("ok"), std::string::npos);
}

TEST(LeqServer, AnswersWithSeveralRanksAsWithOne) {
  std::string want;
  for (const char* ranks : {"1", "2"}) {
    const Running running = start({"--port", "0", "--tp", ranks, "-np", "2"});
    RawClient client(running.port);
    client.send(plain_request("POST", "/completion",
                              R"({"prompt":"Once upon a time","n_predict":40,"seed":7})"));
    const std::string answer = client.read_all(60);
    const std::size_t at = answer.find("\"content\"");
    ASSERT_NE(at, std::string::npos) << answer;
    const std::string content = answer.substr(at, answer.find("\",", at + 12) - at);
    if (want.empty()) want = content;
    EXPECT_EQ(content, want) << ranks << " ranks";
    EXPECT_GT(content.size(), 60u);
    running.process->signal(SIGTERM);
    EXPECT_EQ(running.process->finish(), 0) << running.process->err;
  }
}

TEST(LeqServer, FinishesAStreamBeforeItEnds) {
  const Running running = start({"--port", "0"});
  RawClient client(running.port);
  client.send(plain_request(
      "POST", "/v1/completions",
      R"({"prompt":"Once","ignore_eos":true,"max_tokens":400,"stream":true,"seed":4})"));
  client.read_until("data: ");
  running.process->signal(SIGTERM);
  EXPECT_NE(client.read_all().find("data: [DONE]"), std::string::npos);
  EXPECT_EQ(running.process->finish(), 0);
}

void expect_error(const std::vector<std::string>& words, const std::string& part) {
  std::vector<std::string> all = {"-m", story_file()};
  all.insert(all.end(), words.begin(), words.end());
  expect_tool_error(run_program("leq-server", all), {part});
}

TEST(LeqServer, SaysWhatItCannotDo) {
  const Running running = start({"--port", "0"});
  expect_error({"--port", std::to_string(running.port)}, "choose another --port or --host");
  expect_error({"--host", "no such host"}, "--host no such host: no such address");
  expect_error({"--ssl-cert-file", "/no"}, "belong together");
  expect_error({"--ssl-cert-file", "/no", "--ssl-key-file", "/no"}, "/no: cannot open");
  expect_error({"--ssl-cert-file", "/etc/hostname", "--ssl-key-file", "/etc/hostname"},
               "/etc/hostname: expected a certificate");
  expect_error({"--api-key", "two words"}, "--api-key: expected visible letters");
  expect_error({"--api-key-file", "/no/such"}, "/no/such");
  for (const char* site : {"example.org", "https://example.org/", "://x", "https://"}) {
    expect_error({"--cors-origin", site}, std::string("--cors-origin ") + site + ": expected");
  }
  expect_error({"--max-body", "much"}, "--max-body much");
  expect_error({"--chat-template", "nothing"}, "nothing");
  expect_error({"--temp", "-1"}, "--temp");
}

std::string ask(int port, const std::string& body) {
  RawClient client(port);
  client.send(plain_request("POST", "/v1/completions", body));
  return client.read_all(60);
}

// With real memory plans, there is memory for one model and a part of another.
TEST(LeqServer, ServesTheModelsOfAFolderWithinItsMemory) {
  const TemporaryFolder models;
  std::filesystem::copy_file(story_file(), models / "one.leq");
  std::filesystem::copy_file(story_file(), models / "two.leq");
  std::ofstream(models / "three.leq") << "nothing";
  const Running running = start_with({"--models-dir", models.path().string(), "--models-memory",
                                      "20M", "-np", "2", "--port", "0"});
  EXPECT_NE(running.process->err.find("3 models, loaded when a request names it, within 21"),
            std::string::npos);
  for (const char* name : {"one", "two", "one"}) {
    const std::string answer = ask(
        running.port, R"({"prompt":"Once","max_tokens":3,"model":")" + std::string(name) + "\"}");
    EXPECT_NE(answer.find("\"model\":\"" + std::string(name) + '"'), std::string::npos) << answer;
  }
  EXPECT_NE(ask(running.port, R"({"prompt":"Once","model":"three"})").find("500"),
            std::string::npos);
  EXPECT_NE(ask(running.port, R"({"prompt":"Once","model":"four"})").find("model_not_found"),
            std::string::npos);
  running.process->signal(SIGTERM);
  EXPECT_EQ(running.process->finish(), 0) << running.process->err;
  const std::string& said = running.process->err;
  EXPECT_NE(said.find("one: unloaded"), std::string::npos) << said;
  EXPECT_NE(said.find("three cannot be loaded"), std::string::npos) << said;
}

Json fetched(int port, const std::string& path) {
  RawClient client(port);
  client.send(plain_request("GET", path));
  const std::string answer = client.read_all(10);
  return parse_json(answer.substr(answer.find("\r\n\r\n") + 4), "the answer");
}

TEST(LeqServer, ServesSeveralFiles) {
  const TemporaryFolder folder;
  const std::string a = folder / "a.leq", b = folder / "b.leq", c = folder / "c.leq";
  for (const std::string& file : {a, b, c}) std::filesystem::copy_file(story_file(), file);
  const Running running = start_with({a, b, "--port", "0"});
  RawClient client(running.port);
  client.send(plain_request("GET", "/v1/models"));
  const std::string listed = client.read_all(10);
  EXPECT_NE(listed.find(R"("id":"a")"), std::string::npos) << listed;
  EXPECT_NE(listed.find(R"("id":"b")"), std::string::npos) << listed;
  EXPECT_EQ(listed.find(R"("id":"c")"), std::string::npos) << "it is not named";
  running.process->signal(SIGTERM);
  EXPECT_EQ(running.process->finish(), 0) << running.process->err;
  expect_tool_error(run_program("leq-server", {a, b, a}), {"a: two models of this name"});
}

// Without a model, those of `leq ls` are served under the same names; there may be none yet.
TEST(LeqServer, ServesAllThatLeqLsLists) {
  const TemporaryFolder folder;
  ::setenv("LEQ_MODELS", (folder / "models").c_str(), 1);
  ::setenv("XDG_CACHE_HOME", (folder / "cache").c_str(), 1);
  {
    const Running running = start_with({"--port", "0"});
    EXPECT_NE(running.process->err.find("no models yet; `leq pull "), std::string::npos)
        << running.process->err;
    std::filesystem::create_directories(folder / "cache/leq");
    const std::string model = folder / "models/tales--Story--int8.leq",
                      conversion = folder / "cache/leq/tale.Q8-0123456789abcdef.leq";
    for (const std::string& file : {model, conversion}) {
      std::filesystem::copy_file(story_file(), file);
    }
    for (const auto& [name, id] : std::vector<std::pair<std::string, std::string>>{
             {"tales/Story:int8", "tales/Story:int8"},
             {"tales/story", "tales/Story:int8"},
             {"hf.co/tales/Story:latest", "tales/Story:int8"},
             {"tale.Q8", "tale.Q8"},
             {"/there/tale.q8.gguf", "tale.Q8"}}) {
      const std::string answer =
          ask(running.port, R"({"prompt":"Once","max_tokens":3,"model":")" + name + "\"}");
      EXPECT_NE(answer.find(R"("model":")" + id + '"'), std::string::npos) << name << answer;
    }
    const Json models = fetched(running.port, "/v1/models")["data"];
    ASSERT_EQ(models.size(), 2u);
    EXPECT_EQ(models[0]["id"].text(), "tale.Q8");
    EXPECT_EQ(models[1]["id"].text(), "tales/Story:int8");
    // Named on the command line, it has the same name.
    for (const std::string& given : {std::string("tales/Story"), model}) {
      const Running one = start_with({given, "--port", "0"});
      EXPECT_EQ(fetched(one.port, "/v1/models")["data"][0]["id"].text(), "tales/Story:int8");
      EXPECT_EQ(fetched(one.port, "/api/tags")["models"][0]["name"].text(), "tales/Story:int8");
    }
  }
  ::unsetenv("LEQ_MODELS");
  ::unsetenv("XDG_CACHE_HOME");
}

TEST(LeqServer, AServedModelTakesWhatInspectPlans) {
  const TemporaryFolder models;
  std::filesystem::copy_file(story_file(), models / "one.leq");
  const std::vector<std::vector<std::string>> settings = {{"-t", "1"},
                                                          {"-t", "1", "-c", "512", "-ctk", "int8"}};
  for (const std::vector<std::string>& words : settings) {
    std::vector<std::string> plan = {"--fit", "--json", "-np", "4"},
                             serve = {"--models-dir", models.path().string(), "--port", "0"};
    plan.insert(plan.begin(), (models / "one.leq").string());
    plan.insert(plan.end(), words.begin(), words.end());
    serve.insert(serve.end(), words.begin(), words.end());
    const Running running = start_with(serve);
    EXPECT_NE(ask(running.port, R"({"prompt":"Once","max_tokens":3,"model":"one"})").find("200"),
              std::string::npos);
    const Json planned = parse_json(run_program("leq-inspect", plan).out, "the plan");
    EXPECT_EQ(fetched(running.port, "/v1/models/one")["status"]["memory_bytes"].dump(),
              planned["total_bytes"].dump());
    EXPECT_EQ(
        fetched(running.port, "/props?model=one")["default_generation_settings"]["n_ctx"].dump(),
        planned["context"].dump());
  }
}

TEST(LeqServer, PresetsAreOptionsOfSingleModels) {
  const TemporaryFolder models;
  for (const char* name : {"one.leq", "two.leq", "three.leq"}) {
    std::filesystem::copy_file(story_file(), models / name);
  }
  const std::string file = (models / "presets.ini").string();
  std::ofstream(file) << "version = 1\n; of llama-server\n[*]\nctx-size = 256\nn-gpu-layers=99\n"
                         "temp = 0.25\ntop-k = 3\nn-predict = 3\njinja = true\n\n[two]\n# its "
                         "own\n c = 384 \nnp=1\n"
                         "[three]\ntemp=0.5\n n-predict = 5\n";
  const Running running = start_with({"--models-dir", models.path().string(), "--models-preset",
                                      file, "--port", "0", "--top-k", "7"});
  EXPECT_NE(running.process->err.find("[*]: --n-gpu-layers: does nothing"), std::string::npos)
      << running.process->err;
  struct Expected {
    const char* name;
    int context, slots, tokens;
    const char* temperature;
  };
  for (const Expected& expected :
       {Expected{"one", 256, 4, 3, "0.25"}, Expected{"two", 384, 1, 3, "0.25"},
        Expected{"three", 256, 4, 5, "0.5"}}) {
    const std::string name = expected.name;
    const std::string answer =
        ask(running.port, R"({"prompt":"Once","ignore_eos":true,"model":")" + name + "\"}");
    EXPECT_NE(answer.find("\"completion_tokens\":" + std::to_string(expected.tokens)),
              std::string::npos)
        << answer;
    const Json properties = fetched(running.port, "/props?model=" + name);
    const Json& settings = properties["default_generation_settings"];
    EXPECT_EQ(settings["n_ctx"].dump(), std::to_string(expected.context)) << name;
    EXPECT_EQ(properties["total_slots"].dump(), std::to_string(expected.slots)) << name;
    EXPECT_EQ(settings["params"]["temperature"].dump(), expected.temperature) << name;
    EXPECT_EQ(settings["params"]["top_k"].dump(), "7") << name;
  }
  const auto error_with = [&](const std::string& text) {
    std::ofstream(file) << text;
    return run_program("leq-server", {"--models-dir", models.path().string(), "--models-preset",
                                      file, "--port", "0"})
        .err;
  };
  EXPECT_NE(error_with("[*]\nctx-siz = 9\n").find("[*]: unknown option --ctx-siz; did you mean"),
            std::string::npos);
  EXPECT_NE(error_with("[one]\nc = many\n").find("presets.ini [one]: -c: expected a whole"),
            std::string::npos);
  EXPECT_NE(error_with("[one]\nport = 1\n").find("unknown option --port"), std::string::npos);
  EXPECT_NE(error_with("[one]\n\nmmap\n").find("presets.ini:3: expected a section or NAME"),
            std::string::npos);
  EXPECT_NE(error_with("c = 5\n").find("presets.ini:1: expected a section, as [*]"),
            std::string::npos);
  EXPECT_NE(error_with("[four]\nc = 5\n").find("--models-preset four: there is no such model"),
            std::string::npos);
}

TEST(LeqServer, GoesOnWhenAMappedFileBecomesShorter) {
  const TemporaryFolder models;
  for (const char* name : {"one.leq", "two.leq"}) {
    std::filesystem::copy_file(story_file(), models / name);
  }
  const Running running = start_with({"--models-dir", models.path().string(), "--port", "0",
                                      "--mmap", "--sleep-idle-seconds", "two=0.2"});
  RawClient client(running.port);
  client.send(plain_request("POST", "/v1/completions",
                            R"({"model":"one","prompt":"Once","ignore_eos":true,"stream":true,)"
                            R"("max_tokens":900,"seed":4})"));
  client.read_until("data: ");
  std::filesystem::resize_file(models / "one.leq", 0);
  EXPECT_NE(client.read_all(60).find("the model one has failed: its file became shorter"),
            std::string::npos);
  for (int i = 0; i < 2; ++i) {
    EXPECT_NE(ask(running.port, R"({"prompt":"Once","max_tokens":3,"model":"two"})").find("200"),
              std::string::npos);
    EXPECT_TRUE(running.process->wait_for_error("two: unloaded, it was idle"));
  }
  EXPECT_NE(ask(running.port, R"({"prompt":"Once","model":"one"})").find("model_load_failed"),
            std::string::npos);
  running.process->signal(SIGTERM);
  EXPECT_EQ(running.process->finish(), 0) << running.process->err;
}

TEST(LeqServer, TheOnlyModelSleepsAndWakes) {
  const Running running = start({"--port", "0", "--sleep-idle-seconds", "0.2", "-a", "tale"});
  for (int i = 0; i < 2; ++i) {
    const std::string answer = ask(running.port, R"({"prompt":"Once","max_tokens":3})");
    EXPECT_NE(answer.find("\"model\":\"tale\""), std::string::npos) << answer;
    EXPECT_TRUE(running.process->wait_for_error("tale: unloaded, it was idle"));
    EXPECT_EQ(fetched(running.port, "/v1/models")["data"][0]["status"]["value"].text(), "sleeping");
  }
  running.process->signal(SIGTERM);
  EXPECT_EQ(running.process->finish(), 0) << running.process->err;
}

TEST(LeqServer, RefusesAFolderThatDoesNotGoWithOtherFlags) {
  const auto error_of = [](std::vector<std::string> words) {
    const ToolRun run = run_program("leq-server", words);
    EXPECT_EQ(run.status, 1);
    return run.err;
  };
  const std::string here = folder().path().string();
  EXPECT_NE(error_of({"--models-dir", here, "-hf", "a/b"}).find("-hf and --models-dir"),
            std::string::npos);
  EXPECT_NE(error_of({"--models-dir", "/no/such"}).find("--models-dir /no/such: expected a folder"),
            std::string::npos);
  EXPECT_NE(error_of({"--models-dir", here, "--tp", "2"}).find("--tp 2"), std::string::npos);
  EXPECT_NE(error_of({"--models-dir", here, "-md", story_file()}).find("-md"), std::string::npos);
  EXPECT_NE(error_of({"--models-dir", here, "--models-memory", "much"}).find("as 16G"),
            std::string::npos);
  EXPECT_NE(error_of({"--models-dir", here, "--pin", "nope"}).find("--pin nope"),
            std::string::npos);
  EXPECT_NE(
      error_of({"--models-dir", here, "--sleep-idle-seconds", "nope=5"}).find("no such model"),
      std::string::npos);
  EXPECT_NE(error_of({"-m", story_file(), "--sleep-idle-seconds", "soon"}).find("expected seconds"),
            std::string::npos);
  EXPECT_NE(error_of({"-m", story_file(), "--pin", "story"}).find("--models-dir"),
            std::string::npos);
  EXPECT_NE(error_of({"--models-dir", here, "-m", "nope.leq"}).find("no such file"),
            std::string::npos);
}

TEST(LeqServer, KnowsTheFlagsOfLlamaServer) {
  const Running running =
      start({"--port", "0", "--threads-http", "8", "-cb", "--props", "--rerank"});
  EXPECT_NE(running.process->err.find("--threads-http: does nothing"), std::string::npos)
      << running.process->err;
  expect_error({"--slot-save-path", "x"}, "--slot-save-path x: expected a folder");
  expect_error({"--pooling", "max"}, "--pooling: expected mean | last | cls | none | rank");
}

}  // namespace
}  // namespace leq::test
