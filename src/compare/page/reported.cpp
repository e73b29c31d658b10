// The numbers that the paper reports (arXiv 2406.19657, Tables 1, 2 and 5): quoted, never measured
// here, and never in a table with what is.
#include "compare/page/report_tables.h"

namespace leq {
namespace {

struct ReportedPerplexity {
  const char* model;
  double fp16, smoothquant, simquant, awq, gptq, zeroquant;
};
constexpr ReportedPerplexity kPerplexities[] = {
    {"GPT-2 (117M)", 4.01, 6.31, 7.16, 6.89, 7.23, 8.93},
    {"GPT-2 (345M)", 3.78, 5.89, 6.67, 6.45, 6.78, 8.12},
    {"LLaMA-7B", 5.68, 6.12, 6.45, 6.23, 6.56, 7.89},
    {"LLaMA-13B", 5.23, 5.67, 5.89, 5.71, 5.94, 7.12},
    {"Mistral-7B", 4.89, 5.34, 5.67, 5.41, 5.78, 6.95},
    {"Qwen3-14B", 4.67, 5.12, 5.38, 5.19, 5.45, 6.67}};

struct ReportedSpeed {
  const char* method;
  int gpt2, llama, mistral, qwen3;
  double memory;
};
constexpr ReportedSpeed kSpeeds[] = {{"FP16", 2456, 1247, 1189, 892, 56.2},
                                     {"TensorRT-LLM", 3234, 2134, 2067, 1456, 28.1},
                                     {"GPTQ (4 bits)", 2789, 1987, 1923, 1378, 14.7},
                                     {"AWQ (4 bits)", 2934, 2089, 2012, 1423, 15.2},
                                     {"SmoothQuant", 3156, 2156, 2078, 1467, 28.9},
                                     {"SimQuant", 3089, 2098, 2034, 1445, 26.3},
                                     {"ZeroQuant", 2967, 2023, 1956, 1389, 24.7}};

struct ReportedParts {
  const char* method;
  double load, quant, gemm, comm, sync;
};
constexpr ReportedParts kParts[] = {{"FP16", 24.1, 0.0, 38.4, 1.5, 2.3},
                                    {"INT8 (Sym)", 12.3, 3.5, 22.5, 2.7, 3.0},
                                    {"SimQuant", 11.1, 4.2, 20.1, 3.3, 3.5},
                                    {"SmoothQuant", 10.8, 4.0, 19.5, 3.1, 3.4}};

}  // namespace

std::vector<ReportTable> reported_tables() {
  ReportTable perplexity = {"reported_perplexity", "Table 1: perplexity, WikiText-2", {}};
  for (const ReportedPerplexity& row : kPerplexities) {
    perplexity.table.add({{"model", row.model},
                          {"FP16", Cell(row.fp16, 2)},
                          {"SmoothQuant", Cell(row.smoothquant, 2)},
                          {"SimQuant", Cell(row.simquant, 2)},
                          {"AWQ", Cell(row.awq, 2)},
                          {"GPTQ", Cell(row.gptq, 2)},
                          {"ZeroQuant", Cell(row.zeroquant, 2)},
                          {"source", "reported"}});
  }
  ReportTable speed = {"reported_speed", "Table 2: tokens per second, 8 A100", {}};
  for (const ReportedSpeed& row : kSpeeds) {
    speed.table.add({{"method", row.method},
                     {"GPT-2", row.gpt2},
                     {"LLaMA-7B", row.llama},
                     {"Mistral-7B", row.mistral},
                     {"Qwen3-14B", row.qwen3},
                     {"memory, GB", Cell(row.memory, 1)},
                     {"source", "reported"}});
  }
  ReportTable parts = {"reported_parts", "Table 5: ms per layer, GPT-2, 8 A100", {}};
  for (const ReportedParts& row : kParts) {
    parts.table.add({{"method", row.method},
                     {"load", Cell(row.load, 1)},
                     {"quant", Cell(row.quant, 1)},
                     {"gemm", Cell(row.gemm, 1)},
                     {"comm", Cell(row.comm, 1)},
                     {"sync", Cell(row.sync, 1)},
                     {"source", "reported"}});
  }
  return {std::move(perplexity), std::move(speed), std::move(parts)};
}

}  // namespace leq
