#include "tools/inspect/receipt.h"

#include <algorithm>

#include "base/error.h"
#include "base/progress.h"
#include "base/stopwatch.h"
#include "base/text.h"
#include "engine/receipt.h"
#include "tools/common/device_choice.h"

namespace leq {
namespace {

std::string token_text(const Tokenizer& tokenizer, Token id) {
  if (id == kNoToken) return "its end";
  return std::to_string(id) + " '" + printable(tokenizer.decode(std::span(&id, 1), true)) + "'";
}

[[noreturn]] void fail_for(const ReceiptDifference& difference, const Receipt& receipt,
                           const Tokenizer& tokenizer, const std::string& source) {
  const std::string place = "token " +
                            with_commas(static_cast<std::int64_t>(difference.place) + 1) + " of " +
                            with_commas(std::ssize(receipt.tokens));
  if (difference.logits) {
    fail(source, ": the logits before ", place, " are others here, though all tokens so far agree");
  }
  fail(source, ": ", place, " is ", token_text(tokenizer, difference.expected),
       " in the receipt, and ", token_text(tokenizer, difference.written), " here");
}

}  // namespace

std::string check_receipt_file(const std::filesystem::path& path,
                               const std::filesystem::path& model_path, const Options& options) {
  const std::string source = printable(path.string());
  const Receipt receipt = read_receipt(path);
  const Model model(model_path, {});
  require(model.file().fingerprint() == receipt.owner.model, source, ": the receipt is of another ",
          "model, '", printable(receipt.model), "', not of ", model.file().name());
  const auto threads = static_cast<int>(std::max<std::int64_t>(0, options.integer("threads")));
  const auto backend = chosen_backend(options, threads);
  const RunLimits limits = resolve_limits(receipt_limits(receipt, {}), model.config());
  Session session(model, *backend, limits);
  const Stopwatch watch;
  const auto difference = [&] {
    Progress progress("receipt", std::ssize(receipt.prompt) + std::ssize(receipt.tokens), "tokens");
    return check_receipt(session, model.tokenizer(), receipt, source,
                         [&](std::int64_t done) { progress.update(done); });
  }();
  if (difference) fail_for(*difference, receipt, model.tokenizer(), source);
  const double seconds = watch.seconds();
  const auto tokens = std::ssize(receipt.tokens);
  const auto checkpoints = std::ssize(receipt.digests);
  return source + ": verified: all " + with_commas(tokens) + " tokens match, and the logits at " +
         with_commas(checkpoints) + (checkpoints == 1 ? " checkpoint (" : " checkpoints (") +
         fixed(seconds, 2) + " s, " + fixed(static_cast<double>(tokens) / seconds, 1) + " t/s)\n";
}

}  // namespace leq
