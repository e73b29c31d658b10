// The methods that choose codes. Each is defined in the file of its name and listed in methods.cpp.
#pragma once

#include "quantize/methods/method.h"

namespace leq {

QuantMethod absmax_method();
QuantMethod zeropoint_method();
QuantMethod rtn_method();
QuantMethod zeroquant_method();
QuantMethod zeroquant_plus_method();
QuantMethod gptq_method();
QuantMethod gptq_plus_method();
QuantMethod nf4_method();
QuantMethod billm_method();

}  // namespace leq
