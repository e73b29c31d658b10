// Parsing of candidates from their text form.
#include "compare/candidate.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace leq {
namespace {

std::string error_of(const std::string& spec) {
  try {
    parse_candidate(spec);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Candidate, PartsAreMethodTypeInputsWindowsAndCache) {
  const Candidate candidate = parse_candidate(" smoothquant:int8+online#16@simq4 ");
  EXPECT_EQ(candidate.spec, "smoothquant:int8+online#16@simq4");
  EXPECT_EQ(candidate.method, "smoothquant");
  EXPECT_EQ(candidate.type, "int8");
  EXPECT_EQ(candidate.act, ActChoice::online);
  EXPECT_EQ(candidate.windows, 16);
  EXPECT_EQ(candidate.cache, KvType::simq4);
}

TEST(Candidate, APlusMayBelongToTheMethod) {
  EXPECT_EQ(parse_candidate("gptq+").method, "gptq+");
  const Candidate candidate = parse_candidate("gptq+:int4-g64+row");
  EXPECT_EQ(candidate.method, "gptq+");
  EXPECT_EQ(candidate.type, "int4-g64");
  EXPECT_EQ(candidate.act, ActChoice::row);
}

TEST(Candidate, SimQuantIsTheUnquantizedModelWithAQuantizedCache) {
  const Candidate candidate = parse_candidate("simquant:2");
  EXPECT_TRUE(candidate.is_base());
  EXPECT_EQ(candidate.cache, KvType::simq2);
  EXPECT_EQ(parse_candidate("simquant").cache, KvType::simq8);
}

TEST(Candidate, WhatIsUnknownIsToldInALine) {
  EXPECT_NE(error_of("smoothquan").find("unknown method smoothquan; use base, simquant, absmax"),
            std::string::npos);
  EXPECT_NE(error_of("gptq:int5").find("int5"), std::string::npos);
  EXPECT_NE(error_of("gptq+often:int4").find("unknown inputs"), std::string::npos);
  EXPECT_NE(error_of("gptq:int4-g128+often").find("unknown inputs often"), std::string::npos);
  EXPECT_NE(error_of("gptq#none").find("calibration windows"), std::string::npos);
  EXPECT_NE(error_of("simquant:3").find("8, 4 and 2 bits"), std::string::npos);
  EXPECT_NE(error_of("q8:int8").find("a type of its own"), std::string::npos);
  EXPECT_THROW(parse_candidates(" , "), Error);
}

TEST(Candidate, ListsHaveEachOnceAndNotTheBase) {
  const auto candidates = parse_candidates("q8,base,gptq, q8");
  ASSERT_EQ(candidates.size(), 2u);
  EXPECT_EQ(candidates[1].method, "gptq");
  for (const bool quick : {false, true}) {
    EXPECT_GE(parse_candidates(default_candidates(quick)).size(), 9u);
  }
}

}  // namespace
}  // namespace leq
