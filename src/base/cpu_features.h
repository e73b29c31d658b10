// Which instruction sets this processor offers and which one leq uses.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace leq {

// Ascending: each level may use everything below it.
enum class Isa { portable, portable_v3, avx2, avx512vnni };

std::string_view isa_name(Isa isa);

// What the processor and the operating system support, ascending; never empty.
std::vector<Isa> supported_isas();

// The best supported level, narrowed by the environment variable LEQ_ISA (a name of isa_name).
// Throws Error where LEQ_ISA names an unknown level or one that this processor lacks.
Isa chosen_isa();

// "Intel(R) Xeon(R) Processor", for reports; empty where it cannot be read.
std::string cpu_model_name();

}  // namespace leq
