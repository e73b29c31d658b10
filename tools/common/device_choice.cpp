#include "tools/common/device_choice.h"

#include <algorithm>
#include <iostream>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "ranks/communicator.h"

namespace leq {
namespace {

constexpr std::int64_t kAllLayers = -1;

constexpr std::pair<std::string_view, NumaMode> kNumaModes[] = {
    {"off", NumaMode::off},
    {"distribute", NumaMode::distribute},
    {"interleave", NumaMode::interleave},
    {"isolate", NumaMode::isolate},
    {"numactl", NumaMode::off}};

// Returns the number of GPU layers requested by -ngl: 0, kAllLayers or a number.
std::int64_t gpu_layers(const Options& options) {
  const std::string& text = options.text("gpu-layers");
  if (text == "all" || text == "-1") return kAllLayers;
  const auto layers = parse_int(text);
  require(layers && *layers >= 0, "-ngl ", printable(text),
          ": expected 0 (the CPU) or all (a GPU)");
  return *layers;
}

// If no GPU is usable, the tool runs on the CPU with a note, because -ngl is often copied from
// other commands.
std::string device_of_layers(const Options& options) {
  const auto devices = list_devices();
  const auto is_gpu = [](const std::string& line) { return line.starts_with("cuda:"); };
  if (std::ranges::any_of(devices, is_gpu)) return "cuda:0";
  static std::once_flag told;
  std::call_once(told, [&] {
    std::cerr
        << options.tool() << ": -ngl " << printable(options.text("gpu-layers"))
        << ": no GPU is usable here, the model runs on the CPU (-dev cuda makes this an error)"
        << std::endl;
  });
  return "cpu";
}

}  // namespace

std::string device_name(const Options& options) {
  std::string device = options.text("device");
  if (!options.declares("gpu-layers") || !options.given("gpu-layers")) return device;
  const bool on_gpu = gpu_layers(options) != 0;
  if (!options.given("device")) return on_gpu ? device_of_layers(options) : "cpu";
  require(on_gpu == (device != "cpu"), "-ngl ", printable(options.text("gpu-layers")), " and -dev ",
          printable(device), " contradict each other; leave one out");
  return device;
}

std::uint64_t memory_cap(const Options& options) {
  if (!options.given("vram")) return 0;
  const std::string& text = options.text("vram");
  const auto bytes = parse_bytes(text);
  require(bytes && *bytes > 0, "--vram ", printable(text), ": expected a size as 8G or 900M");
  require(device_name(options) != "cpu", "--vram ", printable(text),
          ": caps a GPU's memory; give -dev cuda or leave it out");
  return *bytes;
}

Arithmetic arithmetic_of(const Options& options) {
  return options.declares("exact") && options.flag("exact") ? Arithmetic::exact : Arithmetic::fast;
}

Option numa_option() {
  std::vector<std::string> words;
  for (const auto& [word, mode] : kNumaModes) words.emplace_back(word);
  return {.name = "numa",
          .kind = OptionKind::text,
          .value_name = "MODE",
          .fallback = "off",
          .help =
              "NUMA nodes: spread threads and weights over all (distribute), only weights, "
              "page by page (interleave), stay on one node (isolate), or leave both to the "
              "system or numactl (off, numactl)",
          .choices = std::move(words)};
}

NumaMode numa_mode(const Options& options) {
  if (!options.declares("numa")) return NumaMode::off;
  for (const auto& [word, mode] : kNumaModes) {
    if (options.text("numa") == word) return mode;
  }
  return NumaMode::off;
}

DeviceOptions device_options(const Options& options, int threads) {
  return {device_name(options),
          threads,
          {memory_cap(options), arithmetic_of(options)},
          numa_mode(options)};
}

Option rank_option() {
  return {.name = "tp",
          .kind = OptionKind::integer,
          .value_name = "N",
          .fallback = "1",
          .help =
              "ranks that share the model (tensor parallelism), each with its part of the "
              "threads, or its GPU; results are bit-identical",
          .minimum = 1,
          .maximum = ThreadRanks::kMaxRanks};
}

void check_ranks(const Options& options, std::int64_t ranks) {
  require(ranks == 1 || numa_mode(options) == NumaMode::off, "--tp ", ranks,
          ": ranks share the cores evenly; leave --numa out, or start each rank by numactl");
}

int rank_count(const Options& options) {
  if (!options.declares("tp")) return 1;
  const std::int64_t ranks = options.integer("tp");
  check_ranks(options, ranks);
  return static_cast<int>(ranks);
}

std::unique_ptr<Backend> chosen_backend(const Options& options, int threads) {
  std::unique_ptr<Backend> backend;
  naming_gpu_layers(options, [&] { backend = make_backend(device_options(options, threads)); });
  return backend;
}

void naming_gpu_layers(const Options& options, const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    if (!options.given("gpu-layers") || error.kind() != ErrorKind::no_device) throw;
    fail(error.kind(), "-ngl ", printable(options.text("gpu-layers")), ": ", error.marked());
  }
}

void check_gpu_layers(const Options& options, std::int64_t layers) {
  if (!options.given("gpu-layers")) return;
  const std::int64_t asked = gpu_layers(options);
  require(asked == 0 || asked == kAllLayers || asked >= layers, "-ngl ", asked, ": the model has ",
          layers, " layers, and all of them run on one device; use -ngl all for the GPU or -ngl 0",
          " for the CPU");
}

Answer list_devices_answer() {
  return {"list-devices", "print what -dev takes here and exit", [] {
            std::string text;
            for (const std::string& line : list_devices()) text += line + "\n";
            return text;
          }};
}

}  // namespace leq
