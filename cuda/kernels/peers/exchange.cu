#include "cuda/kernels/peers/exchange.cuh"
#include "cuda/words/run.h"

namespace leq::LEQ_GPU {

void launch_exchange(const ExchangeArguments& a, rt::Stream& stream) {
  rt::run(stream,
          {"exchange_rows", dim3(static_cast<unsigned>(a.blocks)), dim3(kExchangeThreads), 0,
           rt::Start::early},
          exchange_rows<CountedExchange>, a);
}

}  // namespace leq::LEQ_GPU
