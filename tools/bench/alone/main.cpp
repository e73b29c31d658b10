#include "tools/common/mains.h"

int main(int argc, char** argv) { return leq::bench_main(argc, argv); }
