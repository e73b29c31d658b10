// Requests to the hub without a hub: URLs, the waits that it asks for, words for its answers, and
// the environment's settings.
#include "hub/requests.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <map>
#include <optional>

#include "base/error.h"
#include "errors.h"
#include "hub/hub.h"
#include "temporary_folder.h"

namespace leq {
namespace {

TEST(HubRequests, EscapeWhatUrlsDoNotHold) {
  EXPECT_EQ(url_path("Qwen/Qwen3-0.6B/a b+\u00e9.gguf"), "Qwen/Qwen3-0.6B/a%20b%2B%C3%A9.gguf");
  EXPECT_EQ(url_part("refs/pr/1"), "refs%2Fpr%2F1");
  EXPECT_EQ(url_part("azAZ09-._~%?#"), "azAZ09-._~%25%3F%23");
}

TEST(HubRequests, WaitAsLongAsTheyAreAskedTo) {
  const auto wait = [](const std::string& header) {
    WebResponse response;
    if (!header.empty()) response.headers["retry-after"] = header;
    return wanted_wait(response, 2.5);
  };
  EXPECT_EQ(wait(""), 2.5);
  EXPECT_EQ(wait("7"), 7);
  EXPECT_EQ(wait("0"), 0);
  EXPECT_EQ(wait("-3"), 0);
  EXPECT_EQ(wait("300"), 300);
  EXPECT_EQ(wait("86400"), 300) << "not for a day";
  EXPECT_EQ(wait("Wed, 21 Oct 2015 07:28:00 GMT"), 2.5);
}

TEST(HubRequests, SayWhatAnAnswerMeans) {
  const auto said = [](int status, const std::string& code = "", bool has_token = false,
                       const std::string& failure = "") {
    WebResponse response = {.status = status, .failure = failure};
    if (!code.empty()) response.headers["x-error-code"] = code;
    response.headers["x-error-message"] = "its\nwords";
    const std::optional<Error> error = test::thrown([&] {
      require_success(response, "a/b: model.safetensors", "https://hub.example/a/b/resolve/x",
                      has_token);
    });
    if (error) {
      EXPECT_EQ(error->kind(), ErrorKind::io);
    }
    return error ? std::string(error->what()) : "";
  };
  for (const int status : {200, 206, 302, 399}) EXPECT_EQ(said(status), "") << status;
  const auto expect = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << "expected '" << part << "' in " << text;
  };
  expect(said(400), "a/b: model.safetensors: https://hub.example/a/b/resolve/x: HTTP 400, its");
  EXPECT_EQ(said(400).find('\n'), std::string::npos) << "a server's words stay in the line";
  expect(said(199), "HTTP 199");
  expect(said(403, "GatedRepo"), ": https://hub.example/a/b (HTTP 403");
  expect(said(404, "RevisionNotFound"), "no such revision");
  expect(said(404, "EntryNotFound"), "no such file");
  expect(said(404), "nothing of this name");
  expect(said(403), "a token that may read it");
  expect(said(429), "limits the number of requests");
  expect(said(401), "or it is private");
  EXPECT_EQ(said(401).find("a token was sent"), std::string::npos);
  expect(said(401, "RepoNotFound", true), "a token was sent, and may be wrong");
  EXPECT_EQ(said(404, "RepoNotFound", true).find("a token was sent"), std::string::npos);
  expect(said(0, "", false, "connection refused"),
         "connection refused; the same command continues");
}

// The environment is that of the test alone.
class HubEnvironment : public testing::Test {
 protected:
  HubEnvironment() {
    for (const char* name : kNames) {
      const char* const value = std::getenv(name);
      if (value != nullptr) before_[name] = value;
      ::unsetenv(name);
    }
  }
  ~HubEnvironment() override {
    for (const char* name : kNames) ::unsetenv(name);
    for (const auto& [name, value] : before_) ::setenv(name.c_str(), value.c_str(), 1);
  }
  static void set(const char* name, const std::string& value) { ::setenv(name, value.c_str(), 1); }

  static constexpr std::array kNames = {"HF_ENDPOINT",    "HF_HOME",
                                        "XDG_CACHE_HOME", "HOME",
                                        "HF_TOKEN",       "HUGGING_FACE_HUB_TOKEN",
                                        "HF_TOKEN_PATH",  "HF_HUB_DISABLE_IMPLICIT_TOKEN",
                                        "HF_HUB_CACHE",   "HUGGINGFACE_HUB_CACHE",
                                        "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"};
  std::map<std::string, std::string> before_;
  test::TemporaryFolder folder_;
};

TEST_F(HubEnvironment, NamesTheCacheAsTheClientOfPythonDoes) {
  test::expect_error([] { hub_settings(); }, {"HF_HOME or HOME"}, ErrorKind::io);
  set("HOME", "/h");
  EXPECT_EQ(hub_settings().cache, "/h/.cache/huggingface/hub");
  EXPECT_EQ(hub_settings().endpoint, "https://huggingface.co");
  set("XDG_CACHE_HOME", "~/x");
  EXPECT_EQ(hub_settings().cache, "/h/x/huggingface/hub");
  set("HF_HOME", "~/y");
  EXPECT_EQ(hub_settings().cache, "/h/y/hub");
  set("HUGGINGFACE_HUB_CACHE", "/old");
  EXPECT_EQ(hub_settings().cache, "/old");
  set("HF_HUB_CACHE", "/new");
  EXPECT_EQ(hub_settings().cache, "/new");
  set("HF_HUB_CACHE", "");
  EXPECT_EQ(hub_settings().cache, "/old") << "an empty variable is none";
  set("HF_ENDPOINT", "http://mirror.example//");
  EXPECT_EQ(hub_settings().endpoint, "http://mirror.example");
  set("HF_ENDPOINT", "ftp://mirror.example");
  test::expect_error([] { hub_settings(); }, {"HF_ENDPOINT ftp://mirror.example"});
}

TEST_F(HubEnvironment, HasATokenOfAVariableOrAFile) {
  set("HF_HOME", folder_.path().string());
  EXPECT_EQ(hub_settings().token, "");
  std::ofstream(folder_.path() / "token") << " of the file \n";
  EXPECT_EQ(hub_settings().token, "of the file");
  set("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1");
  EXPECT_EQ(hub_settings().token, "");
  set("HF_HUB_DISABLE_IMPLICIT_TOKEN", "0");
  std::ofstream(folder_.path() / "mine") << "of another";
  set("HF_TOKEN_PATH", (folder_.path() / "mine").string());
  EXPECT_EQ(hub_settings().token, "of another");
  set("HUGGING_FACE_HUB_TOKEN", "old");
  EXPECT_EQ(hub_settings().token, "old");
  set("HF_TOKEN", " new\n");
  EXPECT_EQ(hub_settings().token, "new");
  set("HF_TOKEN", " ");
  EXPECT_EQ(hub_settings().token, "old");
}

TEST_F(HubEnvironment, IsOfflineByTheWordsForYes) {
  set("HOME", "/h");
  for (const char* name : {"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"}) {
    for (const char* yes : {"1", "ON", "yes", "True"}) {
      set(name, yes);
      EXPECT_TRUE(hub_settings().offline) << name << ' ' << yes;
    }
    for (const char* no : {"", "0", "off", "no", "2"}) {
      set(name, no);
      EXPECT_FALSE(hub_settings().offline) << name << ' ' << no;
    }
  }
}

// Offline a repository has the files of its snapshot, as far as they are there.
TEST_F(HubEnvironment, AnOfflineHubListsWhatItHas) {
  const std::string commit(40, 'c');
  const Hub hub(
      {.endpoint = "http://127.0.0.1:9", .token = "", .cache = folder_.path(), .offline = true});
  Hub reading(
      {.endpoint = "http://127.0.0.1:9", .token = "", .cache = folder_.path(), .offline = true});
  test::expect_error([&] { reading.list("a/b"); }, {"a/b: is not in", "HF_HUB_OFFLINE"},
                     ErrorKind::io);
  const auto snapshot = hub.folder("a/b") / "snapshots" / commit;
  std::filesystem::create_directories(snapshot / "onnx");
  std::filesystem::create_directories(hub.folder("a/b") / "refs");
  std::ofstream(snapshot / "onnx" / "model.onnx") << "12345";
  std::ofstream(snapshot / "config.json") << "{}";
  std::ofstream(hub.folder("a/b") / "refs" / "main") << commit << "\n";
  for (const std::string& revision : {std::string("main"), commit}) {
    const HubRepository found = reading.list("a/b", revision);
    EXPECT_EQ(found.commit, commit);
    EXPECT_TRUE(found.cached);
    ASSERT_EQ(found.files.size(), 2u);
    EXPECT_EQ(found.files[0].name, "config.json");
    EXPECT_EQ(found.files[1].name, "onnx/model.onnx");
    EXPECT_EQ(found.files[1].bytes, 5u);
    EXPECT_EQ(reading.fetch(found, found.files), snapshot) << "nothing is missing";
  }
  HubRepository more = reading.list("a/b");
  more.files.push_back({"model.safetensors", 9});
  EXPECT_EQ(hub.missing(more, more.files).size(), 1u);
  test::expect_error([&] { reading.fetch(more, more.files); }, {"model.safetensors is not in"},
                     ErrorKind::io);
  std::ofstream(hub.folder("a/b") / "refs" / "main") << "no commit";
  EXPECT_THROW(reading.list("a/b"), Error);
  EXPECT_THROW(reading.list("../b"), Error);
  EXPECT_THROW(reading.list("a/b", "../../x"), Error);
}

}  // namespace
}  // namespace leq
