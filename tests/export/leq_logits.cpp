// Prints leq's results for scripts that compare them: leq_logits MODEL OUT COUNT ID... writes the
// logits of all ids as f32 [ids][V] to OUT, and prints the COUNT greedy ids that follow. The KV
// cache is f32.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "model/session.h"
#include "runtime/make_backend.h"

namespace leq {
namespace {

void write_logits(const char* path, std::span<const float> logits) {
  AtomicFile file(path);
  file.append(std::as_bytes(logits));
  file.commit();
}

void run(int argc, char** argv) {
  require(argc > 4, "leq_logits MODEL OUT COUNT ID...");
  const Model model(argv[1], {});
  const auto backend = make_backend({"cpu", 1});
  std::vector<Token> ids;
  for (int i = 4; i < argc; ++i) ids.push_back(std::atoi(argv[i]));
  const int count = std::atoi(argv[3]);
  RunLimits limits;
  limits.key_type = limits.value_type = KvType::f32;
  limits.batch_tokens = limits.output_tokens = std::ssize(ids);
  limits.context = std::ssize(ids) + count;
  Session session(model, *backend, resolve_limits(limits, model.config()));
  Batch batch;
  batch.add(0, ids.data(), std::ssize(ids), Batch::Want::all);
  const auto vocab = static_cast<std::size_t>(model.config().vocab);
  std::vector<float> logits(ids.size() * vocab);
  backend->download(session.transformer().forward(batch, session.state()), std::ssize(ids), logits);
  write_logits(argv[2], logits);
  std::vector<float> last(logits.end() - model.config().vocab, logits.end());
  for (int i = 0; i < count; ++i) {
    const Token next = static_cast<Token>(std::ranges::max_element(last) - last.begin());
    std::printf("%d ", next);
    const auto fed = session.feed(0, std::span(&next, 1));
    last.assign(fed.begin(), fed.end());
  }
}

}  // namespace
}  // namespace leq

int main(int argc, char** argv) {
  try {
    leq::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "leq_logits: %s\n", error.what());
    return 1;
  }
  return 0;
}
