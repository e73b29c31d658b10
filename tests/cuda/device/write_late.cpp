// write_late on a GPU, where the hardware decides when a kernel begins: the numbers stay.
#include "../device_memory.h"

void leq::cuda::write_late(std::initializer_list<std::span<std::byte>>) {}
