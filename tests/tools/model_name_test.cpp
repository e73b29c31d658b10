// Names of models on the hub and in the models folder, and which files of a repository are a model.
#include "tools/common/model_name.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "errors.h"
#include "hub/hub.h"
#include "temporary_folder.h"
#include "tools/common/pull.h"

namespace leq {
namespace {

TEST(ModelName, HasRepositoryTagAndRevision) {
  struct Case {
    const char *text, *repository, *tag, *revision;
  };
  for (const Case& c : {Case{"Qwen/Qwen3-0.6B", "Qwen/Qwen3-0.6B", "", "main"},
                        {"hf.co/a/b-GGUF:Q4_K_M", "a/b-GGUF", "Q4_K_M", "main"},
                        {"https://huggingface.co/a/b", "a/b", "", "main"},
                        {"a/b:q8@v1.0", "a/b", "q8", "v1.0"},
                        {"a/b@v1.0:q8", "a/b", "q8", "v1.0"},
                        {"a/b@refs/pr/1:latest", "a/b", "", "refs/pr/1"},
                        {"a/b@refs%2Fa-%2D1:q8", "a/b", "q8", "refs/a--1"},
                        {"qwen3:0.6b", "Qwen/Qwen3-0.6B", "", "main"},
                        {"Qwen3", "Qwen/Qwen3-8B", "", "main"},
                        {"llama3.2", "meta-llama/Llama-3.2-3B-Instruct", "", "main"},
                        {"gpt-oss:latest", "openai/gpt-oss-20b", "", "main"}}) {
    const auto name = parse_hub_name(c.text);
    ASSERT_TRUE(name.has_value()) << c.text;
    EXPECT_EQ(name->repository, c.repository) << c.text;
    EXPECT_EQ(name->tag, c.tag) << c.text;
    EXPECT_EQ(name->revision, c.revision) << c.text;
  }
  for (const char* text :
       {"", "a", "a/b/c", "/a/b", "./a/b", "~/a", "a/b.leq", "a/b.gguf", "a /b", "a/b:", "a/b:x y",
        "a/b:q4@v1:q8", "../b", "a/..", "a--b/c", "Why is the sky blue?"}) {
    EXPECT_FALSE(parse_hub_name(text).has_value()) << text;
  }
}

TEST(ModelName, OfAShortNameIsARepository) {
  std::set<std::string_view> families, names;
  std::string_view last;
  for (const ShortName& known : short_names()) {
    const auto hub = parse_hub_name(known.name);
    ASSERT_TRUE(hub.has_value()) << known.name;
    EXPECT_EQ(hub->repository, known.repository);
    EXPECT_EQ(parse_hub_name(known.repository)->repository, known.repository);
    EXPECT_TRUE(names.insert(known.name).second) << known.name;
    EXPECT_TRUE(known.family() == last || families.insert(known.family()).second)
        << known.name << ": the sizes of a family stand together";
    if (known.family() != last) {
      EXPECT_EQ(parse_hub_name(known.family())->repository, known.repository);
    }
    last = known.family();
  }
}

TEST(ModelName, ThatIsNoneGetsAdvice) {
  struct Case {
    const char *name, *expected;
  };
  for (const Case& c :
       {Case{"gemma2", "does not run this family; take gemma3"},
        {"gemma2:9b", "take gemma3"},
        {"qwen3:7b", "no size of qwen3; expected qwen3:8b, qwen3:0.6b"},
        {"llama3.2:1b-instruct-q8_0", "here llama3.2:1b is the model, and --recipe"},
        {"Llama3.2:1B-instruct-q8_0", "here llama3.2:1b is the model"}}) {
    EXPECT_FALSE(parse_hub_name(c.name)) << c.name;
    const std::string error = test::error_of([&] { refuse_known_name(c.name); });
    EXPECT_NE(error.find(c.expected), std::string::npos) << error;
  }
  EXPECT_NO_THROW(refuse_known_name("nothing"));
}

TEST(ModelName, FindsFilesOfTheModelsFolder) {
  const test::TemporaryFolder folder;
  ::setenv("LEQ_MODELS", folder.path().c_str(), 1);
  folder.write("a--b--q8.leq", "");
  folder.write("a--b-c--q4.leq", "");
  folder.write("mine.leq", "");
  folder.write("other.gguf", "");
  std::vector<std::string> names;
  for (const KeptModel& model : kept_models()) names.push_back(model.name);
  EXPECT_EQ(names, (std::vector<std::string>{"a/b-c:q4", "a/b:q8", "mine", "other"}));
  EXPECT_EQ(find_kept("A/B")->name, "a/b:q8");
  EXPECT_EQ(find_kept("mine.leq")->name, "mine");
  EXPECT_EQ(find_kept("Other.gguf")->path, folder / "other.gguf");
  EXPECT_EQ(kept_file("a/b", "q8"), find_kept("a/b:q8")->path);
  EXPECT_FALSE(find_kept("a/b:q4"));
  EXPECT_FALSE(find_kept("a/b-"));
  EXPECT_FALSE(find_kept(""));
  EXPECT_EQ(find_kept("a/b:latest")->name, find_kept("a/b")->name);
  folder.write("folder--q8.leq", "");
  EXPECT_EQ(find_kept("folder:q8")->path, folder / "folder--q8.leq");
  EXPECT_EQ(find_kept("Folder")->name, "folder:q8");
  EXPECT_EQ(kept_file("folder", "q8"), folder / "folder--q8.leq");
  folder.write("c--d@v2--q8.leq", "");
  folder.write("c--d@refs%2Fpr%2F1--q8.leq", "");
  for (const char* name : {"c/d@v2", "c/d:q8@v2", "c/d@v2:q8", "hf.co/C/d@v2"}) {
    ASSERT_TRUE(find_kept(name)) << name;
    EXPECT_EQ(find_kept(name)->name, "c/d@v2:q8");
  }
  EXPECT_EQ(find_kept("c/d:q8@refs/pr/1")->name, "c/d@refs%2Fpr%2F1:q8");
  EXPECT_EQ(find_kept("c/d@refs%2Fpr%2F1:q8")->name, "c/d@refs%2Fpr%2F1:q8");
  EXPECT_FALSE(find_kept("c/d")) << "a revision is another model";
  EXPECT_FALSE(find_kept("c/d:q8"));
  EXPECT_FALSE(find_kept("a/b:q8@v2"));
  EXPECT_EQ(find_kept("a/b@main")->name, "a/b:q8");
  folder.write("A--b--q8.leq", "");
  EXPECT_EQ(find_kept("A/b:q8")->path, folder / "A--b--q8.leq") << "the exact name wins";
  EXPECT_EQ(find_kept("a/b:q8")->path, folder / "a--b--q8.leq");
  ::unsetenv("LEQ_MODELS");
  const std::string home = std::getenv("HOME") == nullptr ? "" : std::getenv("HOME");
  ::unsetenv("HOME");
  EXPECT_EQ(path_of_model("a/b"), "a/b") << "without a folder of models there is none";
  if (!home.empty()) ::setenv("HOME", home.c_str(), 1);
}

// Every listed name is that of one model; a shorter one means the newest of several.
TEST(ModelName, OfEachConversionIsItsOwn) {
  const test::TemporaryFolder folder;
  ::setenv("LEQ_MODELS", (folder / "models").c_str(), 1);
  ::setenv("XDG_CACHE_HOME", folder.path().c_str(), 1);
  std::filesystem::create_directories(folder / "leq");
  const std::string old = folder.write("leq/tale-0123456789abcdef.leq", "");
  EXPECT_EQ(find_kept("tale.gguf")->path, old);
  EXPECT_EQ(find_kept("TALE")->path, old);
  EXPECT_EQ(path_of_model("tale.gguf"), old);
  const std::string newer = folder.write("leq/tale-123456789abcdef0.leq", "");
  folder.write("leq/other-0123456789abcdef.leq", "");
  folder.write("leq/of-python.leq", "");
  std::filesystem::last_write_time(newer,
                                   std::filesystem::last_write_time(old) + std::chrono::seconds(5));
  std::vector<std::string> names;
  for (const KeptModel& model : listed_models()) {
    names.push_back(model.name);
    const auto found = models_named(model.name);
    ASSERT_EQ(found.size(), 1u) << model.name;
    EXPECT_EQ(found.front().path, model.path);
    EXPECT_EQ(listed_name(model.path), model.name);
  }
  EXPECT_EQ(listed_name(folder / "leq/none.leq"), std::nullopt);
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()),
            (std::set<std::string>{"of-python", "other", "tale:0123456789abcdef",
                                   "tale:123456789abcdef0"}));
  ASSERT_EQ(models_named("tale.gguf").size(), 2u);
  EXPECT_EQ(find_kept("tale.gguf")->path, newer);
  EXPECT_EQ(find_kept("tale")->path, newer);
  EXPECT_EQ(path_of_model("none.gguf"), "none.gguf");
  EXPECT_EQ(path_of_model("other/tale.gguf"), "other/tale.gguf") << "another file";
  // A file of the models folder is listed once, and keeps its name.
  std::filesystem::create_directories(folder / "models");
  const std::string kept = folder.write("models/tale.gguf", ""),
                    same = folder.write("models/other.leq", "");
  EXPECT_EQ(find_kept("tale")->path, kept);
  EXPECT_EQ(find_kept("other")->path, same);
  EXPECT_EQ(find_kept("other.gguf")->path, folder / "leq/other-0123456789abcdef.leq");
  EXPECT_EQ(listed_models().size(), 4u);
  ::unsetenv("LEQ_MODELS");
  ::unsetenv("XDG_CACHE_HOME");
}

HubRepository repository_of(const std::vector<std::string>& files) {
  HubRepository repository = {.name = "a/b"};
  for (const std::string& file : files) repository.files.push_back({.name = file});
  return repository;
}

std::vector<std::string> chosen(const std::vector<std::string>& files, const std::string& tag) {
  std::vector<std::string> names;
  for (const HubFile& file : choose_files(repository_of(files), tag, "").files) {
    names.push_back(file.name);
  }
  return names;
}

using Names = std::vector<std::string>;

TEST(ModelFiles, OfGgufAreTheOnesOfATypeWithAllParts) {
  const Names files = {"README.md",
                       "m-Q4_K_S.gguf",
                       "m-Q4_K_M.gguf",
                       "m.IQ4_XS.gguf",
                       "mmproj-m-Q8_0.gguf",
                       "BF16/m-BF16-00001-of-00002.gguf",
                       "BF16/m-BF16-00002-of-00002.gguf"};
  EXPECT_EQ(chosen(files, ""), Names{"m-Q4_K_M.gguf"});
  EXPECT_EQ(chosen(files, "iq4_xs"), Names{"m.IQ4_XS.gguf"});
  EXPECT_EQ(chosen(files, "BF16"), (Names{files[5], files[6]}));
  EXPECT_EQ(choose_files(repository_of(files), "bf16", "").gguf, files[5]);
  EXPECT_NE(test::error_of([&] { chosen(files, "Q8_0"); }).find("Q4_K_S, Q4_K_M, IQ4_XS, BF16"),
            std::string::npos);
  EXPECT_EQ(chosen({"story.gguf", "README.md"}, ""), Names{"story.gguf"});
  const Names of = {"Mixture-of-Thoughts-7B-Q4_K_M.gguf", "Mixture-of-Thoughts-7B-Q8_0.gguf"};
  EXPECT_EQ(chosen(of, ""), Names{of[0]});
  EXPECT_EQ(chosen(of, "Q8_0"), Names{of[1]});
}

TEST(ModelFiles, OfOneTypeHaveNamesOfTheirOwn) {
  const HubRepository repository =
      repository_of({"m-IQ2_M.gguf", "m-UD-IQ2_M.gguf", "n-IQ2_M-00001-of-00002.gguf"});
  EXPECT_EQ(choose_files(repository, "iq2_m", "").gguf, "m-IQ2_M.gguf");
  EXPECT_EQ(choose_files(repository, "m-UD-IQ2_M", "").gguf, "m-UD-IQ2_M.gguf");
  EXPECT_EQ(choose_files(repository, "", "m-IQ2_M.gguf").tag, "IQ2_M");
  EXPECT_EQ(choose_files(repository, "", "m-UD-IQ2_M.gguf").tag, "m-UD-IQ2_M");
  EXPECT_EQ(choose_files(repository, "", "n-IQ2_M-00001-of-00002.gguf").tag, "n-IQ2_M");
}

TEST(ModelFiles, OfACheckpointAreThoseOfItsOwnFolder) {
  const Names files = {"config.json",
                       "model-00001-of-00002.safetensors",
                       "model-00002-of-00002.safetensors",
                       "model.safetensors.index.json",
                       "tokenizer.json",
                       "chat_template.jinja",
                       "modules.json",
                       "1_Pooling/config.json",
                       "2_Dense/config.json",
                       "2_Dense/model.safetensors"};
  Names more = files;
  for (const char* other :
       {"README.md", "consolidated.safetensors", "original/model.safetensors",
        "original/config.json", "2_Dense/pytorch_model.bin", "pytorch_model.bin", "m-Q8_0.gguf"}) {
    more.emplace_back(other);
  }
  EXPECT_EQ(chosen(more, ""), files);
  EXPECT_EQ(chosen(more, "q4"), files);
  EXPECT_EQ(chosen(more, "q8_0"), Names{"m-Q8_0.gguf"});
  EXPECT_NE(test::error_of([&] { chosen(more, "q9"); }).find("q8 | q6 | q5 | q4"),
            std::string::npos);
  for (const char* other : {"pytorch_model.bin", "2_Dense/model.safetensors"}) {
    EXPECT_NE(test::error_of([&] { chosen({other}, ""); }).find("neither"), std::string::npos);
  }
}

}  // namespace
}  // namespace leq
