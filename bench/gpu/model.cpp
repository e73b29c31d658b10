#include "bench/gpu/model.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "base/error.h"

namespace leq::bench {

KernelCodes::KernelCodes(std::string_view budgets) {
  std::istringstream lines{std::string(budgets)};
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line.front() == '#') continue;
    std::istringstream in(line);
    std::string kernel, architecture;
    KernelCode code;
    int tensor = 0, loop = 0;
    in >> kernel >> architecture >> code.registers;
    require(!in.fail() && code.registers > 0,
            "budgets: expected a kernel, an architecture and registers, found ", line);
    if (in >> tensor >> loop) {
      in >> code.least >> code.most >> code.work;
      require(!in.fail(), "budgets: expected both ways round a main loop and their work, found ",
              line);
    }
    codes_[kernel + ' ' + architecture] = code;
  }
}

const KernelCode& KernelCodes::of(const std::string& begin, const std::string& architecture) const {
  const KernelCode* found = nullptr;
  for (auto at = codes_.lower_bound(begin); at != codes_.end() && at->first.starts_with(begin);
       ++at) {
    if (!at->first.ends_with(' ' + architecture)) continue;
    require(found == nullptr, "budgets: several kernels begin with ", begin);
    found = &at->second;
  }
  require(found != nullptr, "budgets: no kernel begins with ", begin, " for ", architecture);
  return *found;
}

// Clocks, memory and tensor cores by the vendors' data sheets, memory at 90 % of it; of
// products by mma.sync an H200 is taken to reach 62 % of what wgmma does. Launches: guessed.
const std::vector<Machine>& machines() {
  static const std::vector<Machine> list = {
      {"H200", "sm_90a", 132, 1.755, 4320, 227, 2048, 4096, 2048, 1.0},
      {"A100", "sm_80", 108, 1.41, 1835, 163, 2048, 2048, 1024, 1.5},
      {"RTX 4090", "sm_89", 128, 2.52, 907, 99, 1536, 1024, 256, 1.5},
      {"RTX 5090", "sm_120", 170, 2.41, 1613, 99, 1536, 1024, 256, 1.0},
  };
  return list;
}

namespace {

constexpr double kRoundTrip = 0.6;    // us, to memory and back
constexpr double kMmaOfWgmma = 0.62;  // on 9.0
constexpr int kRegisters = 65536, kBlocks = 32, kSchedulers = 4;
constexpr int kReservedShared = 1024;  // of each block, by the driver

// Products a cycle and multiprocessor.
double rate(const Machine& machine, Unit unit) {
  if (unit == Unit::dp4a) return 4 * 64;
  if (unit == Unit::wgmma_s8) return machine.s8_products;
  if (unit == Unit::wgmma_f16) return machine.f16_products;
  const bool hopper = std::string_view(machine.architecture) == "sm_90a";
  const double most = unit == Unit::mma_f16 ? machine.f16_products : machine.s8_products;
  return most * (hopper ? kMmaOfWgmma : 1);
}

int resident_blocks(const Machine& machine, const Launch& launch, const KernelCode& code) {
  const int threads = 32 * launch.warps;
  const int registers = (code.registers + 7) / 8 * 8 * threads;
  const int shared = launch.shared_bytes + kReservedShared;
  return std::max(1, std::min({kRegisters / registers, machine.shared_kib * 1024 / shared,
                               machine.threads / threads, kBlocks}));
}

}  // namespace

Estimate estimate(const Machine& machine, const Launch& launch, const KernelCode& code) {
  Estimate found;
  found.resident = resident_blocks(machine, launch, code);
  found.instructions = launch.other * launch.blocks * launch.warps;
  const double rounds =
      launch.rounds > 0 || code.work == 0 ? launch.rounds : launch.work / code.work;
  found.instructions += rounds * ((launch.longest ? code.most : code.least) + launch.beside);
  // The multiprocessor with most blocks decides.
  const double share = std::ceil(launch.blocks / machine.multiprocessors) / launch.blocks;
  const double cycles_us = machine.ghz * 1e3;
  found.issue_us = found.instructions * share / kSchedulers / cycles_us;
  found.tensor_us = launch.products * share / rate(machine, launch.unit) / cycles_us;
  // Memory gives no more than is on its way at once.
  const double at_work = std::min(launch.blocks, 1.0 * found.resident * machine.multiprocessors);
  const double asked = at_work * launch.warps * launch.ahead_bytes / kRoundTrip * 1e-3;  // GB/s
  const double gbps = launch.ahead_bytes > 0 ? std::min(machine.gbps, asked) : machine.gbps;
  found.memory_us = launch.bytes / gbps * 1e-3;
  found.trips_us = launch.round_trips * kRoundTrip;
  const struct {
    double us;
    const char* name;
  } all[] = {
      {found.memory_us, asked < machine.gbps && launch.ahead_bytes > 0 ? "latency" : "memory"},
      {found.issue_us, "instructions"},
      {found.tensor_us, launch.unit == Unit::dp4a ? "dp4a" : "tensor cores"},
      {found.trips_us, "round trips"}};
  const auto& most = *std::ranges::max_element(all, {}, [](const auto& one) { return one.us; });
  found.us = most.us + machine.launch_us;
  found.bound = most.name;
  return found;
}

}  // namespace leq::bench
