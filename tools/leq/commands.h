// Commands of leq about the models folder.
#pragma once

namespace leq {

int pull_main(int argc, char** argv);
int list_main(int argc, char** argv);
int remove_main(int argc, char** argv);
int ps_main(int argc, char** argv);

}  // namespace leq
