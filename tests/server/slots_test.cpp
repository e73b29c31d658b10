// Tests texts of slots in files: saved, restored, erased, and kept between runs of a server.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "engine/saved_prefix.h"
#include "server/served_model.h"
#include "shared_data.h"
#include "temporary_folder.h"

namespace leq::test {
namespace {

namespace fs = std::filesystem;

class Slots : public testing::Test {
 protected:
  ServerOptions options() {
    ServerOptions options = story_options();
    options.slot_folder = folder_.path();
    options.say = [this](const std::string& line) { said_.push_back(line); };
    return options;
  }
  static ServedModel::Answer complete(const ServedModel& served, int slot = -1) {
    return served.post("/completion", {{"prompt", kStory},
                                       {"n_predict", 20},
                                       {"seed", 3},
                                       {"id_slot", slot},
                                       {"temperature", 1.0}});
  }
  static ServedModel::Answer act(const ServedModel& served, const std::string& slot,
                                 const std::string& action, const Json& name) {
    return served.post("/slots/" + slot + "?action=" + action, Json::object({{"filename", name}}));
  }

  static constexpr const char* kStory =
      "Once upon a time there was a little bear who lived in the woods. One day the bear found a "
      "red ball under a big tree, and it was very happy. The bear took the ball to its friend, the "
      "fox, and they played until the sun went down behind the hills.";
  TemporaryFolder folder_;
  std::vector<std::string> said_;
};

TEST_F(Slots, AreSavedRestoredAndErased) {
  const ServedModel served(2, options());
  const auto first = complete(served, 1);
  ASSERT_EQ(first.status, 200) << first.body;
  const auto tokens = first.json["tokens_evaluated"].get<std::int64_t>();
  const auto saved = act(served, "1", "save", "story.bin");
  ASSERT_EQ(saved.status, 200) << saved.body;
  EXPECT_EQ(saved.json["id_slot"].get<int>(), 1);
  EXPECT_EQ(saved.json["filename"].text(), "story.bin");
  EXPECT_EQ(saved.json["n_saved"].get<std::int64_t>(), tokens + 19);  // the last token was not fed
  EXPECT_EQ(saved.json["n_written"].get<std::uint64_t>(),
            fs::file_size(folder_.path() / "story.bin"));

  const auto erased = act(served, "1", "erase", "");
  ASSERT_EQ(erased.status, 200) << erased.body;
  EXPECT_EQ(erased.json["n_erased"].get<std::int64_t>(), tokens + 20);
  EXPECT_EQ(act(served, "1", "save", "empty").json["error"]["code"].text(), "slot_empty");
  EXPECT_EQ(complete(served).json["tokens_cached"].get<std::int64_t>(), 0);

  const ServedModel other(2, options());
  const auto restored = act(other, "0", "restore", "story.bin");
  ASSERT_EQ(restored.status, 200) << restored.body;
  EXPECT_EQ(restored.json["n_restored"], saved.json["n_saved"]);
  EXPECT_EQ(restored.json["n_read"], saved.json["n_written"]);
  const auto again = complete(other);
  EXPECT_EQ(again.json["tokens_cached"].get<std::int64_t>(), tokens - 1);
  EXPECT_EQ(again.json["content"], first.json["content"]);
}

TEST_F(Slots, OfHybridsAndExpertsGoOnInAnotherServer) {
  for (const std::string name : {"qwen35-tiny", "qwen3moe-tiny"}) {
    SCOPED_TRACE(name);
    LEQ_SHARED_OR_SKIP(checkpoint, "models/" + name);
    const Model model(quantized(checkpoint, "int8"), {});
    const ServedModel served(2, options(), model), other(2, options(), model);
    const auto first = complete(served, 1);
    ASSERT_EQ(first.status, 200) << first.body;
    const auto tokens = first.json["tokens_evaluated"].get<std::int64_t>();
    const auto saved = act(served, "1", "save", name);
    ASSERT_EQ(saved.status, 200) << saved.body;
    EXPECT_EQ(saved.json["n_saved"].get<std::int64_t>(), tokens + 19);
    const auto restored = act(other, "0", "restore", name);
    ASSERT_EQ(restored.status, 200) << restored.body;
    EXPECT_EQ(restored.json["n_restored"], saved.json["n_saved"]);
    // The states inside the text came too, so that the same prompt feeds one token again.
    const auto again = complete(other);
    EXPECT_EQ(again.json["tokens_cached"].get<std::int64_t>(), tokens - 1);
    EXPECT_EQ(again.json["content"], first.json["content"]);
    // In the next reply all saved tokens are cached, and the answers of both servers are equal.
    const auto next = [&](const ServedModel& one) {
      return one.post("/completion", {{"prompt", kStory + first.json["content"].text() + " Then"},
                                      {"n_predict", 12},
                                      {"seed", 4}});
    };
    const auto here = next(served), there = next(other);
    EXPECT_GE(there.json["tokens_cached"].get<std::int64_t>(), tokens);
    EXPECT_EQ(there.json["content"], here.json["content"]);
    EXPECT_EQ(complete(other).json["content"], first.json["content"]);
  }
}

// A slot is restored by as many ranks as saved it, and refused with the reason by others.
TEST_F(Slots, OfSeveralRanksGoOnWithAsManyRanks) {
  const auto served_by = [this](int ranks) {
    return std::make_unique<ServedModel>(2, options(), story_model(), ranks);
  };
  std::string text;
  for (const int ranks : {1, 2, 3}) {
    const std::string name = "by" + std::to_string(ranks);
    {
      const auto served = served_by(ranks);
      const auto answer = complete(*served, 0);
      ASSERT_EQ(answer.status, 200) << answer.body;
      if (ranks == 1) text = answer.json["content"].text();
      EXPECT_EQ(answer.json["content"].text(), text) << ranks << " ranks";
      ASSERT_EQ(act(*served, "0", "save", name).status, 200);
    }
    for (const fs::path& kept : fs::directory_iterator(folder_.path())) {
      if (kept.filename().string().starts_with("texts-")) fs::remove(kept);
    }
    const auto other = served_by(ranks);
    ASSERT_EQ(act(*other, "1", "restore", name).status, 200);
    const auto again = complete(*other);
    EXPECT_GT(again.json["tokens_cached"].get<std::int64_t>(), 0);
    EXPECT_EQ(again.json["content"].text(), text);
    if (ranks == 1) continue;
    const auto refused = act(*other, "1", "restore", "by1");
    EXPECT_EQ(refused.status, 400);
    EXPECT_NE(refused.body.find("number of ranks"), std::string::npos) << refused.body;
  }
}

TEST_F(Slots, NamesStayInTheFolder) {
  const ServedModel served(2, options());
  ASSERT_EQ(complete(served, 0).status, 200);
  ASSERT_EQ(act(served, "0", "save", "good name ü.bin").status, 200);
  const std::string nul("a\0b", 3);
  for (const Json& name : {Json(""), Json("."), Json(".."), Json("../x"), Json("/tmp/x"),
                           Json("a/b"), Json("a\\b"), Json("..\\x"), Json(".hidden"), Json("a\nb"),
                           Json(nul), Json(std::string(201, 'a')), Json(7), Json(nullptr)}) {
    for (const char* action : {"save", "restore"}) {
      const auto answer = act(served, "0", action, name);
      EXPECT_EQ(answer.status, 400) << name.dump() << answer.body;
      EXPECT_EQ(answer.json["error"]["param"].text(), "filename") << answer.body;
    }
  }
  // "%2e%2e%2f" is an ordinary name in JSON and not a path.
  EXPECT_EQ(act(served, "0", "save", "%2e%2e%2fx").status, 200);
  fs::create_symlink("/etc/passwd", folder_.path() / "link");
  fs::create_directory(folder_.path() / "folder");
  ASSERT_EQ(mkfifo((folder_.path() / "pipe").c_str(), 0600), 0);
  for (const char* name : {"link", "folder", "pipe"}) {
    EXPECT_NE(act(served, "0", "save", name).status, 200) << name;
    EXPECT_EQ(act(served, "0", "restore", name).status, 400) << name;
  }
  EXPECT_TRUE(fs::is_symlink(folder_.path() / "link"));
  EXPECT_EQ(act(served, "0", "restore", "missing").status, 400);
  EXPECT_EQ(file_names(folder_.path()),
            (std::vector<std::string>{"%2e%2e%2fx", "folder", "good name ü.bin", "link", "pipe"}));
}

TEST_F(Slots, AFileOfAnotherKindIsNotReplaced) {
  const ServedModel served(2, options());
  ASSERT_EQ(complete(served, 0).status, 200);
  std::ofstream(folder_.path() / "model.leq") << "a model";
  EXPECT_EQ(act(served, "0", "save", "model.leq").status, 400);
  EXPECT_EQ(read_file(folder_.path() / "model.leq", 100), "a model");
  for (int i = 0; i < 2; ++i) EXPECT_EQ(act(served, "0", "save", "prompt").status, 200);
}

TEST_F(Slots, DamagedAndForeignFilesAreRefused) {
  const ServedModel served(2, options());
  ASSERT_EQ(complete(served, 0).status, 200);
  ASSERT_EQ(act(served, "0", "save", "good").status, 200);
  const std::string whole = read_file(folder_.path() / "good", 1 << 30);
  const auto put = [&](const std::string& bytes) {
    std::ofstream(folder_.path() / "bad", std::ios::binary) << bytes;
    return act(served, "0", "restore", "bad").status;
  };
  EXPECT_EQ(put(whole), 200);
  EXPECT_EQ(put(""), 400);
  EXPECT_EQ(put(whole.substr(0, whole.size() / 2)), 400);
  EXPECT_EQ(put(whole + "x"), 400);
  std::string flipped = whole;
  flipped[flipped.size() / 2] ^= 4;
  EXPECT_EQ(put(flipped), 400);
  // Another model or layout, with a valid checksum, and the format of older versions.
  const PrefixReader good(std::as_bytes(std::span(whole)), "good");
  const std::size_t of_header = prefix_header_bytes(good.owner()).size();
  const auto with_owner = [&](const PrefixOwner& owner) {
    const auto header = prefix_header_bytes(owner);
    return std::string(reinterpret_cast<const char*>(header.data()), header.size()) +
           whole.substr(of_header);
  };
  EXPECT_EQ(put(with_owner(good.owner())), 200);
  EXPECT_EQ(put(with_owner({good.owner().model ^ 1, good.owner().layout})), 400);
  EXPECT_EQ(put(with_owner({good.owner().model, "GPU pages 1"})), 400);
  EXPECT_EQ(put("LEQPRM01" + whole.substr(8)), 400);
}

TEST_F(Slots, WhatIsAskedWronglyIsRefused) {
  const ServedModel served(2, options());
  EXPECT_EQ(act(served, "2", "save", "a").status, 404);
  EXPECT_EQ(act(served, "-1", "save", "a").status, 404);
  EXPECT_EQ(act(served, "x", "save", "a").status, 404);
  EXPECT_EQ(act(served, "99999999999999999999", "save", "a").status, 404);
  EXPECT_EQ(act(served, "0", "burn", "a").json["error"]["param"].text(), "action");
  EXPECT_EQ(served.post("/slots/0", Json::object({{"filename", "a"}})).status, 400);
  EXPECT_EQ(served.post("/slots/0?action=save", std::string("[")).status, 400);
  EXPECT_EQ(complete(served, 2).json["error"]["param"].text(), "id_slot");
  EXPECT_EQ(served.get("/slots/0?action=save").status, 405);
  const ServedModel without(2);
  const auto refused = act(without, "0", "save", "a");
  EXPECT_EQ(refused.status, 501);
  EXPECT_NE(refused.body.find("slot-save-path"), std::string::npos) << refused.body;
}

// A second run after the first has ended gives the same reply and feeds only one token.
TEST_F(Slots, TextsAreKeptFromOneRunToTheNext) {
  Json first;
  {
    const ServedModel served(2, options());
    first = complete(served).json;
    EXPECT_EQ(first["tokens_cached"].get<std::int64_t>(), 0);
  }
  ASSERT_EQ(said_.size(), 1u);
  const ServedModel served(4, options());
  ASSERT_EQ(said_.size(), 2u);
  const Json again = complete(served).json;
  EXPECT_EQ(again["content"], first["content"]);
  EXPECT_EQ(again["timings"]["prompt_n"].get<int>(), 1) << again.dump();
}

TEST_F(Slots, TextsOfHybridsAreKeptFromOneRunToTheNext) {
  LEQ_SHARED_OR_SKIP(checkpoint, "models/qwen35-tiny");
  const Model model(quantized(checkpoint, "int8"), {});
  const auto chat = [](const ServedModel& served, const char* question) {
    const Json messages = Json::array(
        {{{"role", "system"}, {"content", kStory}}, {{"role", "user"}, {"content", question}}});
    return served
        .post("/v1/chat/completions",
              {{"messages", messages}, {"max_tokens", 12}, {"seed", 3}, {"temperature", 1.0}})
        .json;
  };
  const auto cached = [](const Json& answer) {
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"].get<std::int64_t>();
  };
  Json first, other;
  {
    const ServedModel served(2, options(), model);
    first = chat(served, "Who?");
    other = chat(served, "When was that?");
  }
  const ServedModel served(2, options(), model);
  const Json again = chat(served, "Who?");
  EXPECT_EQ(again["choices"][0]["message"]["content"], first["choices"][0]["message"]["content"]);
  EXPECT_GT(cached(again), cached(other)) << "the whole prompt but its last message's beginning";
  EXPECT_GT(cached(other), 0);
  EXPECT_EQ(cached(chat(served, "Why?")), cached(other)) << "the system message";
}

// A long conversation of a hybrid: after a restart, and in another server that restores the slot, a
// regenerated turn, edited ones and another chat feed as few tokens as in the server that goes on.
TEST_F(Slots, AConversationOfAHybridIsEditedAfterARestartAsBefore) {
  LEQ_SHARED_OR_SKIP(checkpoint, "models/qwen35-tiny");
  const Model model(quantized(checkpoint, "int8"), {});
  struct Answered {
    std::string text;
    std::int64_t prompt = 0, cached = 0;
  };
  const auto ask = [](const ServedModel& served, const Json& messages) {
    const auto answer =
        served.post("/v1/chat/completions",
                    {{"messages", messages}, {"max_tokens", 10}, {"seed", 3}, {"id_slot", 0}});
    EXPECT_EQ(answer.status, 200) << answer.body;
    const Json& usage = answer.json["usage"];
    return Answered{answer.json["choices"][0]["message"]["content"].text(),
                    usage["prompt_tokens"].get<std::int64_t>(),
                    usage["prompt_tokens_details"]["cached_tokens"].get<std::int64_t>()};
  };
  const auto user = [](const std::string& text) {
    return Json{{"role", "user"}, {"content", text}};
  };
  std::string long_story;  // several hundred tokens
  for (int i = 0; i < 8; ++i) long_story += std::to_string(i) + ". " + kStory + " ";
  const Json system = {{"role", "system"}, {"content", kStory}};
  Json before = Json::array({system});  // the conversation before its last turn
  const auto converse = [&](const ServedModel& served) {
    before = Json::array({system});
    for (const std::string& text : {std::string("Who?"), long_story, std::string("And then?")}) {
      before.push_back(user(text));
      before.push_back({{"role", "assistant"}, {"content", ask(served, before).text}});
    }
    Json all = before;
    all.push_back(user("Why was that?"));
    ask(served, all);
    return all;
  };
  std::vector<Answered> expected;
  std::vector<Json> requests;
  {
    const ServedModel served(2, story_options(), model);
    requests.push_back(converse(served));  // regenerated
    Json edited = before, second = Json::array({system, before[1], before[2]});
    edited.push_back(user("Where was that?"));
    requests.push_back(edited);
    second.push_back(user(long_story.substr(0, long_story.size() - 60) + " and slept."));
    requests.push_back(second);
    requests.push_back(Json::array({system, user("Sing of the owl.")}));
    for (const Json& request : requests) expected.push_back(ask(served, request));
  }
  EXPECT_GT(expected[0].cached, expected[0].prompt - 8) << "all but the reply's beginning";
  EXPECT_GT(expected[1].cached, expected[1].prompt - 24) << "up to the edited question";
  EXPECT_GT(expected[2].cached, expected[2].prompt - 560) << "up to a mark in the long message";
  EXPECT_GE(expected[2].cached, 512);
  EXPECT_GT(expected[3].cached, 0) << "the system message";
  { converse(ServedModel(2, options(), model)); }
  const ServedModel restarted(2, options(), model);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const Answered again = ask(restarted, requests[i]);
    const Answered fresh = ask(ServedModel(2, story_options(), model), requests[i]);
    EXPECT_EQ(fresh.cached, 0);
    EXPECT_EQ(expected[i].text, fresh.text) << i;
    EXPECT_EQ(again.text, fresh.text) << i;
    EXPECT_EQ(again.cached, expected[i].cached) << i;
  }
  const TemporaryFolder slots;  // without the texts of the run before
  ServerOptions with_slots = story_options();
  with_slots.slot_folder = slots.path();
  const ServedModel saver(2, with_slots, model), restoring(2, with_slots, model);
  converse(saver);
  EXPECT_EQ(act(saver, "0", "save", "conversation").status, 200);
  EXPECT_EQ(act(restoring, "0", "restore", "conversation").status, 200);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const Answered again = ask(restoring, requests[i]);
    EXPECT_EQ(again.text, expected[i].text) << i;
    EXPECT_EQ(again.cached, expected[i].cached) << i;
  }
}

TEST_F(Slots, AServerStartsWithoutTextsThatAreDamaged) {
  { complete(ServedModel(2, options())); }
  const std::vector<std::string> names = file_names(folder_.path());
  ASSERT_EQ(names.size(), 1u);
  const fs::path file = folder_.path() / names[0];
  const std::string whole = read_file(file, 1 << 30);
  std::ofstream(file, std::ios::binary) << whole.substr(0, whole.size() - 5);
  said_.clear();
  {
    const ServedModel served(2, options());
    ASSERT_EQ(said_.size(), 1u);
    EXPECT_NE(said_[0].find("fed as usual"), std::string::npos) << said_[0];
    EXPECT_EQ(complete(served).json["tokens_cached"].get<std::int64_t>(), 0);
  }
  // Rewritten with the same text; only positions after its end may have other numbers.
  const std::string again = read_file(file, 1 << 30);
  EXPECT_EQ(again.size(), whole.size());
  const PrefixReader before(std::as_bytes(std::span(whole)), "before"),
      after(std::as_bytes(std::span(again)), "after");
  ASSERT_EQ(after.size(), before.size());
  EXPECT_EQ(after.read(0).tokens, before.read(0).tokens);
}

TEST_F(Slots, TheFolderMustBeThereAndItsFileNoLink) {
  ServerOptions wrong = options();
  wrong.slot_folder = folder_.path() / "nowhere";
  EXPECT_THROW(ServedModel(2, wrong), Error);
  { complete(ServedModel(2, options())); }
  const fs::path file = folder_.path() / file_names(folder_.path()).at(0);
  fs::rename(file, folder_.path() / "elsewhere");
  fs::create_symlink(folder_.path() / "elsewhere", file);
  EXPECT_THROW(ServedModel(2, options()), Error);
}

}  // namespace
}  // namespace leq::test
