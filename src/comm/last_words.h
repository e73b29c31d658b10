// Where a rank is, said on standard error where a signal ends it: mpirun ends all processes when
// one has died, and gives them no time for more.
#pragma once

#include <cstdint>
#include <string_view>

namespace leq {

// From now on SIGTERM is answered so, where nobody else has asked for it. Of one process.
void speak_last_words(int rank, int size);

// Until the place is gone this rank is there: an operation, its name, the step of the model. The
// texts must live as long.
class LastPlace {
 public:
  LastPlace(std::string_view operation, std::string_view site, std::int64_t step);
  ~LastPlace();
  LastPlace(const LastPlace&) = delete;
  LastPlace& operator=(const LastPlace&) = delete;
};

}  // namespace leq
