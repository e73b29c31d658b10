// Where a rank is, said on standard error where a signal ends it: mpirun ends all processes when
// one has died, and gives them no time for more.
#pragma once

#include <cstdint>
#include <string_view>

namespace leq {

// Installs the SIGTERM handler, unless the process has one already.
void report_place_on_signal(int rank, int size);

// Until the place is gone this rank is there: an operation, its name, the step of the model. The
// texts must live as long.
class ReportedPlace {
 public:
  ReportedPlace(std::string_view operation, std::string_view site, std::int64_t step);
  ~ReportedPlace();
  ReportedPlace(const ReportedPlace&) = delete;
  ReportedPlace& operator=(const ReportedPlace&) = delete;
};

}  // namespace leq
