// Damage must be as described, and the same for the same case number.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "hostile/byte_damage.h"
#include "hostile/folder_state.h"
#include "hostile/json_damage.h"
#include "hostile/leq_parts.h"

namespace leq::hostile {
namespace {

constexpr const char* kText =
    R"({"a": [1, 2.5, "x"], "b": {"c": null, "d": true, "e/f": {"g": -3}}, "text": "äöü"})";

TEST(JsonDamage, IsValidJsonUnlessMarkedMalformed) {
  std::map<JsonHarm, int> seen;
  for (std::uint64_t number = 0; number < 3000; ++number) {
    Dice dice(1, number);
    const DamagedJson damaged = damage_json(kText, dice);
    ++seen[damaged.harm];
    if (damaged.harm == JsonHarm::bomb) continue;  // may take long, or never end
    // nlohmann-json stops at a NUL, as if the text ended there.
    const bool json =
        damaged.text.find('\0') == std::string::npos && nlohmann::json::accept(damaged.text);
    if (damaged.harm == JsonHarm::malformed) {
      EXPECT_FALSE(json) << damaged.what << " at " << damaged.where << ": " << damaged.text;
    } else if (!damaged.where.empty()) {
      EXPECT_TRUE(json) << damaged.what << " at " << damaged.where << ": " << damaged.text;
    }
    if (damaged.harm == JsonHarm::none) {
      EXPECT_EQ(nlohmann::json::parse(damaged.text), nlohmann::json::parse(kText));
    }
    if (damaged.harm == JsonHarm::missing) {
      const nlohmann::json::json_pointer where(damaged.where);
      EXPECT_TRUE(nlohmann::json::parse(kText).contains(where));
      EXPECT_FALSE(nlohmann::json::parse(damaged.text).contains(where));
    }
  }
  for (const JsonHarm harm :
       {JsonHarm::none, JsonHarm::malformed, JsonHarm::bomb, JsonHarm::value, JsonHarm::type,
        JsonHarm::missing, JsonHarm::duplicate, JsonHarm::unknown}) {
    EXPECT_GT(seen[harm], 5) << static_cast<int>(harm);
  }
}

TEST(JsonDamage, IsTheSameForTheSameNumber) {
  for (std::uint64_t number = 0; number < 50; ++number) {
    Dice first(3, number), again(3, number), other(4, number);
    const std::string text = damage_json(kText, first).text;
    EXPECT_EQ(text, damage_json(kText, again).text);
    if (number == 0) continue;
    EXPECT_NE(first.bits(), other.bits());
  }
}

TEST(ByteDamage, ChangesWhatItSaysAndNothingElse) {
  std::string bytes;
  for (int i = 0; i < 500; ++i) bytes += static_cast<char>(i * 37);
  for (std::uint64_t number = 0; number < 3000; ++number) {
    Dice dice(1, number);
    const DamagedBytes damaged = damage_bytes(bytes, {0, 64, 300}, dice);
    EXPECT_EQ(damaged.size_changed(), damaged.bytes.size() != bytes.size()) << damaged.what;
    if (damaged.size_changed()) continue;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      if (i >= damaged.first && i < damaged.last) continue;
      EXPECT_EQ(damaged.bytes[i], bytes[i]) << damaged.what << " at " << i;
    }
  }
}

TEST(LeqParts, ReadsAGoldenFileAndRepairsItsChecksums) {
  const std::string file = read_bytes(LEQ_SOURCE_DIR "/tests/golden/leq/v1-int8.leq");
  const LeqParts parts = parts_of(file);
  EXPECT_EQ(parts.json_offset + parts.json_bytes, file.size());
  ASSERT_FALSE(parts.ranges.empty());
  EXPECT_EQ(with_json(file, json_of(file)), file);
  std::string damaged = file;
  damaged[parts.ranges[0].offset] ^= 1;
  const std::string repaired = with_checksum(damaged, parts, 0);
  EXPECT_NE(json_of(repaired), json_of(file));
  // If the old byte is restored, the old checksum is correct again.
  std::string back = repaired;
  back[parts.ranges[0].offset] ^= 1;
  EXPECT_EQ(nlohmann::json::parse(json_of(with_checksum(back, parts, 0))),
            nlohmann::json::parse(json_of(file)));
}

}  // namespace
}  // namespace leq::hostile
