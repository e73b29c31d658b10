// The entry points of the tools, which are one program, leq: `leq run` and `leq-run` (a link to it)
// call run_main.
#pragma once

namespace leq {

int bench_main(int argc, char** argv);
int inspect_main(int argc, char** argv);
int perplexity_main(int argc, char** argv);
int quantize_main(int argc, char** argv);
int run_main(int argc, char** argv);
int server_main(int argc, char** argv);

}  // namespace leq
