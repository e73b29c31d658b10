// The numbers reported in the paper (arXiv 2406.19657, Tables 1 to 5). They are quoted, never
// measured here, and never put in one table with measured numbers.
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
constexpr ReportedSpeed kSpeeds[] = {
    {"FP16", 2456, 1247, 1189, 892, 56.2},           {"TensorRT-LLM", 3234, 2134, 2067, 1456, 28.1},
    {"GPTQ (4 bits)", 2789, 1987, 1923, 1378, 14.7}, {"AWQ (4 bits)", 2934, 2089, 2012, 1423, 15.2},
    {"SmoothQuant", 3156, 2156, 2078, 1467, 28.9},   {"SimQuant", 3089, 2098, 2034, 1445, 26.3},
    {"ZeroQuant", 2967, 2023, 1956, 1389, 24.7}};

struct ReportedMatrix {
  const char* model;
  const char* measure;
  int decimals;
  double gptq, awq, tensorrt, own;
  const char* improvement;
};
constexpr ReportedMatrix kMatrix[] = {
    {"GPT-2", "perplexity", 2, 7.23, 6.89, 7.45, 6.31, "+9.1%"},
    {"GPT-2", "tokens/s", 0, 2789, 2934, 3234, 3156, "-2.4%"},
    {"GPT-2", "memory, GB", 1, 3.2, 3.4, 6.8, 6.9, "-1.5%"},
    {"GPT-2", "setup, min", 0, 12, 10, 3, 2, "+33%"},
    {"GPT-2", "calibration samples", 0, 32, 32, 128, 16, "+87%"},
    {"LLaMA-7B", "perplexity", 2, 6.56, 6.23, 6.45, 6.12, "+1.8%"},
    {"LLaMA-7B", "tokens/s", 0, 1987, 2089, 2134, 2156, "+1.0%"},
    {"LLaMA-7B", "memory, GB", 1, 14.7, 15.2, 28.1, 28.9, "-2.8%"},
    {"LLaMA-7B", "setup, min", 0, 45, 38, 12, 8, "+33%"},
    {"LLaMA-7B", "calibration samples", 0, 128, 128, 512, 64, "+87%"},
    {"Mistral-7B", "perplexity", 2, 5.78, 5.41, 5.67, 5.34, "+1.3%"},
    {"Mistral-7B", "tokens/s", 0, 1923, 2012, 2067, 2078, "+0.5%"},
    {"Mistral-7B", "memory, GB", 1, 14.2, 14.8, 27.3, 28.1, "-2.9%"},
    {"Mistral-7B", "setup, min", 0, 42, 35, 11, 7, "+36%"},
    {"Mistral-7B", "calibration samples", 0, 125, 125, 498, 62, "+88%"},
    {"Qwen3-14B", "perplexity", 2, 5.45, 5.19, 5.38, 5.12, "+1.4%"},
    {"Qwen3-14B", "tokens/s", 0, 1378, 1423, 1456, 1467, "+0.8%"},
    {"Qwen3-14B", "memory, GB", 1, 28.4, 29.1, 56.2, 57.8, "-2.8%"},
    {"Qwen3-14B", "setup, min", 0, 78, 65, 21, 14, "+33%"},
    {"Qwen3-14B", "calibration samples", 0, 256, 256, 1024, 128, "+87%"}};

constexpr std::pair<const char*, double> kEightBits[] = {
    {"GPT-2", 4.01},
    {"GPT-2 INT8", 6.83},
    {"GPT-2 AbsMax Quantize", 9.32},
    {"GPT-2 ZeroPoint Quantize", 8.93},
    {"GPT-2 Smooth Quant Apply", 6.31},
    {"GPT-2 Sim Quantize", 7.16},
    {"GPT-2 Sym Quantize 8bit", 7.01},
    {"GPT-2 Sym Quantize 8bit ZeroQuant Func", 7.37}};

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
  ReportTable matrix = {"reported_matrix", "Table 3: comparison at 8K positions", {}};
  for (const ReportedMatrix& row : kMatrix) {
    matrix.table.add({{"model", row.model},
                      {"measure", row.measure},
                      {"GPTQ", Cell(row.gptq, row.decimals)},
                      {"AWQ", Cell(row.awq, row.decimals)},
                      {"TensorRT", Cell(row.tensorrt, row.decimals)},
                      {"LLMEasyQuant", Cell(row.own, row.decimals)},
                      {"improvement", row.improvement},
                      {"source", "reported"}});
  }
  ReportTable eight_bits = {"reported_eight_bits", "Table 4: perplexity of GPT-2", {}};
  for (const auto& [method, perplexity_of_row] : kEightBits) {
    eight_bits.table.add(
        {{"method", method}, {"perplexity", Cell(perplexity_of_row, 2)}, {"source", "reported"}});
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
  return {std::move(perplexity), std::move(speed), std::move(matrix), std::move(eight_bits),
          std::move(parts)};
}

}  // namespace leq
