// A minimal client of leq-server, which sends requests while a case runs.
#pragma once

#include <string>

namespace leq::hostile {

// The port in the last URL of a server's messages that follows `start` ("listening on"); 0 if there
// is none or if its line is incomplete.
int port_in(const std::string& messages, const std::string& start);

// A POST request with JSON.
struct Question {
  std::string path;  // "/completion"
  std::string json;
};

// The body of the answer; "" if none arrives within `seconds` or the connection ends before.
std::string ask(int port, const Question& question, double seconds);

// A summary of an answer: the generated text, "error" or "done"; "" if it is not JSON.
std::string said_in(const std::string& answer);

}  // namespace leq::hostile
