// The bytes of a vocabulary's tokens as a tree, in the order of a walk through it: a node stands
// before all that is below it, so that a walk is one pass, and leaving a branch out is one step.
#pragma once

#include <bitset>
#include <cstdint>
#include <string>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace leq {

class TokenTrie {
 public:
  struct Node {
    std::uint8_t byte = 0;
    std::uint16_t depth = 0;        // bytes up to here, from 1 on; the root has 0
    std::uint32_t end = 0;          // the first node that is not below
    std::uint32_t first_token = 0;  // in tokens(), up to the next node's
  };

  // Tokens without bytes are in no place of it. Bytes beyond the 65,535th of a token are refused:
  // such a token is left out.
  TokenTrie(const Tokenizer& tokenizer, std::size_t vocabulary);

  std::size_t vocabulary() const { return bytes_.size(); }
  const std::string& bytes(Token id) const { return bytes_[static_cast<std::size_t>(id)]; }
  const std::vector<Node>& nodes() const { return nodes_; }  // the root first, one past the last
  const std::vector<Token>& tokens() const { return tokens_; }
  std::uint16_t longest() const { return longest_; }
  const std::bitset<256>& used_bytes() const { return used_bytes_; }  // by some token

 private:
  std::vector<std::string> bytes_;  // by token
  std::vector<Node> nodes_;
  std::vector<Token> tokens_;
  std::uint16_t longest_ = 0;
  std::bitset<256> used_bytes_;
};

}  // namespace leq
