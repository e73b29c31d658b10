// A minimal client of leq-server that sends requests while a case runs.
#pragma once

#include <string>

namespace leq::hostile {

// Returns the port in the last URL of a server's messages after `start` ("listening on"); 0 if
// there is none or if its line is incomplete.
int port_in(const std::string& messages, const std::string& start);

// A POST request with JSON.
struct Question {
  std::string path;  // "/completion"
  std::string json;
};

// Returns the body of the answer; "" if none arrives in `seconds` or the connection ends early.
std::string ask(int port, const Question& question, double seconds);

// Summarizes an answer: the generated text, "error" or "done"; "" if the answer is not JSON.
std::string said_in(const std::string& answer);

}  // namespace leq::hostile
