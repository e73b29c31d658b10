// Reports on standard error in which operation a rank was when SIGTERM ended it, because mpirun
// ends all processes at once after one has died.
#pragma once

#include <cstdint>
#include <string_view>

namespace leq {

// Installs the SIGTERM handler, unless the process has a handler already.
void report_place_on_signal(int rank, int size);

// While it exists, records in which operation, at which site and in which step this rank waits. The
// texts must outlive the object.
class ReportedPlace {
 public:
  ReportedPlace(std::string_view operation, std::string_view site, std::int64_t step);
  ~ReportedPlace();
  ReportedPlace(const ReportedPlace&) = delete;
  ReportedPlace& operator=(const ReportedPlace&) = delete;
};

}  // namespace leq
