// A client of leq-server as small as can be: what asks it while a case runs.
#pragma once

#include <string>

namespace leq::hostile {

// The port of the last URL in a server's messages that is told as `start` ("listening on"); 0
// where there is none, or its line has not ended yet.
int port_in(const std::string& messages, const std::string& start);

// A POST of JSON.
struct Question {
  std::string path;  // "/completion"
  std::string json;
};

// The answer's body; "" where none comes within `seconds`, or the connection ends before it.
std::string ask(int port, const Question& question, double seconds);

// What an answer says: the text that was written, "error" or "done"; "" where it is no JSON.
std::string said_in(const std::string& answer);

}  // namespace leq::hostile
