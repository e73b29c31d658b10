// Which files of a folder are models, their names, and which other names mean them.
#include "runtime/model_files.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "base/error.h"
#include "temporary_folder.h"

namespace leq::test {
namespace {

TEST(ModelFolder, NamesFilesAndPartsOfFiles) {
  const TemporaryFolder folder;
  for (const char* name : {"a.leq", "a.gguf", "b.gguf", "c-00001-of-00002.gguf",
                           "c-00002-of-00002.gguf", "d-00002-of-00002.gguf", "e.txt", ".f.leq"}) {
    std::ofstream(folder / name) << "12345";
  }
  std::filesystem::create_directory(folder / "g.leq");
  std::map<std::string, std::pair<std::string, std::uint64_t>> found;
  for (const ModelFile& file : models_in(folder.path())) {
    found[file.name] = {file.path.filename(), file.bytes};
  }
  EXPECT_EQ(found, (decltype(found){{"a", {"a.leq", 5}},
                                    {"a.gguf", {"a.gguf", 5}},
                                    {"b", {"b.gguf", 5}},
                                    {"c", {"c-00001-of-00002.gguf", 10}}}));
  EXPECT_THROW((void)models_in(folder / "nope"), Error);
}

TEST(GgufPath, IsOfAPartOnlyWithTwoNumbers) {
  const GgufPath part = gguf_path("folder/c-00002-of-00003.gguf");
  EXPECT_EQ(part.model, "folder/c");
  EXPECT_EQ(part.number, "00002");
  EXPECT_EQ(part.count, "00003");
  EXPECT_FALSE(part.is_first());
  EXPECT_TRUE(part.same_model(gguf_path("folder/c-00001-of-00003.gguf")));
  EXPECT_FALSE(part.same_model(gguf_path("folder/c-00001-of-00002.gguf")));
  EXPECT_FALSE(part.same_model(gguf_path("folder/c.gguf")));
  EXPECT_EQ(gguf_path("c-12345-of-67890.gguf").number, "12345");
  EXPECT_EQ(gguf_path("c-12345-of-67890.gguf").count, "67890");
  for (const char* whole : {"Mixture-of-Thoughts-7B", "m-0001-of-0002", "m-00001-of-0000x", "",
                            "m_00001-of-00002", "-00001-of-00002"}) {
    EXPECT_EQ(gguf_path(std::string(whole) + ".gguf").model, whole);
    EXPECT_TRUE(gguf_path(whole).is_first());
  }
}

TEST(ModelNames, MatchInTheirUsualSpellings) {
  struct Case {
    const char *wanted, *name, *file;
    NameMatch match;
  };
  for (const Case& c : {Case{"a/b:q8", "a/b:q8", "a--b--q8.leq", NameMatch::exact},
                        {"A/B:Q8", "a/b:q8", "a--b--q8.leq", NameMatch::spelling},
                        {"a/b:q8:latest", "a/b:q8", "a--b--q8.leq", NameMatch::spelling},
                        {"a--b--q8.leq", "a/b:q8", "a--b--q8.leq", NameMatch::spelling},
                        {"a/b", "a/b:q8", "a--b--q8.leq", NameMatch::untagged},
                        {"a/b:latest", "a/b:q8", "a--b--q8.leq", NameMatch::untagged},
                        {"a/b:q4", "a/b:q8", "a--b--q8.leq", NameMatch::none},
                        {"a", "a/b:q8", "a--b--q8.leq", NameMatch::none},
                        {"a/", "a/b:q8", "a--b--q8.leq", NameMatch::none},
                        {"tale.gguf", "tale", "tale-0123456789abcdef.leq", NameMatch::spelling},
                        {"TALE.Gguf", "tale", "x.leq", NameMatch::spelling},
                        {"tale.leq", "tale", "tale.leq", NameMatch::spelling},
                        {"folder/tale.leq", "tale", "tale.leq", NameMatch::none},
                        {"", "tale", "tale.leq", NameMatch::none},
                        {".leq", "tale", "tale.leq", NameMatch::none},
                        {":latest", "tale", "tale.leq", NameMatch::none}}) {
    EXPECT_EQ(match_name(c.wanted, c.wanted, c.name, c.file), c.match)
        << c.wanted << " of " << c.name;
    EXPECT_EQ(match_name("short", c.wanted, c.name, c.file), c.match) << "the whole name counts";
    EXPECT_EQ(match_name(c.wanted, "longer", c.name, c.file), c.match) << "and the given one";
  }
}

}  // namespace
}  // namespace leq::test
