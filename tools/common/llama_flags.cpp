#include "tools/common/llama_flags.h"

#include <vector>

namespace leq {
namespace {

constexpr auto kNoted = ForeignUse::noted;
constexpr auto kRefused = ForeignUse::refused;

// Flags without effect: leq always behaves as they request, or has nothing that they could change.
std::vector<ForeignOption> silent_flags() {
  return {
      {.words = "-fa --flash-attn", .value_may_follow = true},
      {.words = "--jinja --no-jinja --simple-io"},
      {.words = "--warmup --no-warmup"},
      {.words = "--perf --no-perf --show-timings --no-show-timings"},
      {.words = "--log-prefix --no-log-prefix --log-timestamps --no-log-timestamps"},
      {.words = "--log-colors", .value_may_follow = true},
      {.words = "--repack -nr --no-repack --no-host --op-offload --no-op-offload"},
      {.words = "-dt --defrag-thold", .values = 1},
      {.words = "--swa-full -kvu --kv-unified --no-context-shift"},
      {.words = "-ctxcp --ctx-checkpoints --swa-checkpoints -cram --cache-ram", .values = 1},
      {.words = "-fit --fit", .value_may_follow = true},
      {.words = "-dio --direct-io -ndio --no-direct-io"},
      {.words = "-bs --backend-sampling --penalize-nl --no-penalize-nl"},
      {.words = "--no-mmproj --no-mmproj-auto --mmproj-auto"},
  };
}

std::vector<ForeignOption> noted_flags() {
  constexpr std::string_view kFullContext =
      "does nothing: when the context is full, a chat of leq-run leaves out its oldest turns, and "
      "any other reply ends; a larger -c holds more";
  return {
      {"--keep", kNoted, kFullContext, 1},
      {"--context-shift", kNoted, kFullContext},
      {"-i --interactive -if --interactive-first", kNoted,
       "does nothing: leq-run without a prompt is a chat, with one it ends after the reply; -cnv "
       "continues as a chat"},
      {"--keepalive", kNoted,
       "does nothing: a run ends with its model; leq-server keeps one: --sleep-idle-seconds", 1},
      {"-ptc --print-token-count", kNoted, "does nothing: tokens are counted at the end", 1},
      {"-kvo --kv-offload -nkvo --no-kv-offload", kNoted,
       "does nothing: the KV cache lies where the model is (-dev)"},
      {"--check-tensors", kNoted, "does nothing: leq-inspect --verify checks a file"},
      {"-C --cpu-mask -Cr --cpu-range -Cb --cpu-mask-batch -Crb --cpu-range-batch", kNoted,
       "does nothing: taskset chooses processors", 1},
      {"--cpu-strict --cpu-strict-batch --poll --poll-batch", kNoted,
       "ignored: thread polling is not configurable", 1},
      {"--prio --prio-batch", kNoted, "does nothing: nice and chrt set a priority", 1},
      {"-lm --load-mode", kNoted, "does nothing: --mmap, --no-mmap and --mlock choose", 1},
      {"-lv --verbosity --log-verbosity", kNoted, "does nothing: -v prints the plan", 1},
      {"--log-verbose", kNoted, "does nothing: -v prints the plan"},
      {"--verbose-prompt", kNoted,
       "does nothing: leq-inspect --tokenize shows the tokens of a text"},
      {"-sp", kNoted, "does nothing: special tokens of a reply are never printed"},
      {"-fitt --fit-target -fitc --fit-ctx", kNoted,
       "does nothing: --vram caps what is taken of a GPU", 1},
      {"--draft-min --draft-n-min --draft-p-min --draft-p-split --spec-draft-n-min "
       "--spec-draft-p-min --spec-draft-p-split",
       kNoted,
       "does nothing: the number of draft tokens is chosen by measured cost; --draft-max bounds it",
       1},
      {"-td --threads-draft --spec-draft-threads -tbd --threads-batch-draft "
       "--spec-draft-threads-batch -ngld --gpu-layers-draft --n-gpu-layers-draft --spec-draft-ngl "
       "-cd --ctx-size-draft",
       kNoted, "does nothing: a draft model runs where the model does, with its context", 1},
      {"--nowordwrap --wordwrap", kNoted, "does nothing: words are wrapped on a terminal alone"},
      {"--reasoning-format", kNoted, "does nothing: reasoning is printed as the model writes it",
       1},
  };
}

std::vector<ForeignOption> refused_flags() {
  constexpr std::string_view kOneDevice =
      "a model runs on one device as a whole; -dev cuda:1 chooses it, --list-devices shows them";
  constexpr std::string_view kNoDownload =
      "models are downloaded from the Hugging Face hub: -hf USER/MODEL";
  constexpr std::string_view kNoDraft =
      "-md FILE names a draft model, and the text is the same without one: leave this out";
  constexpr std::string_view kGrammar =
      "no reply is written here: leq-run takes grammars and schemas";
  constexpr std::string_view kLora =
      "there are no adapters here: merge it into the checkpoint (peft's merge_and_unload), and "
      "quantize that";
  constexpr std::string_view kRope =
      "positions are scaled as the checkpoint says: change rope_scaling or rope_theta in its "
      "config.json, and quantize it again";
  constexpr std::string_view kText = "leq reads and writes text alone";
  constexpr std::string_view kTemplate =
      "the model's own chat template is run: --chat-template NAME takes a named format instead";
  return {
      {"-sm --split-mode -ts --tensor-split -mg --main-gpu", kRefused, kOneDevice},
      {"-ot --override-tensor -cmoe --cpu-moe -ncmoe --n-cpu-moe --rpc", kRefused, kOneDevice},
      {"-mu --model-url -dr --docker-repo", kRefused, kNoDownload},
      {"--gpt-oss-20b-default --gpt-oss-120b-default --vision-gemma-4b-default "
       "--vision-gemma-12b-default",
       kRefused, kNoDownload},
      {"--format", kRefused, "-j '{\"type\": \"object\"}' makes every reply a JSON object", 1},
      {"--think --hidethinking", kRefused, "--enable-thinking on or off chooses it"},
      {"-cl --cache-list", kRefused, "`leq ls` lists the models"},
      {"-md --model-draft --spec-draft-model --draft --draft-n --draft-max --spec-draft-n-max",
       kRefused, "no reply is written here: leq-run and leq-bench take draft models"},
      {"--spec-type --spec-default", kRefused, kNoDraft},
      {"-devd --device-draft --spec-draft-device -ctkd --cache-type-k-draft --spec-draft-type-k "
       "-ctvd --cache-type-v-draft --spec-draft-type-v -hfd -hfrd "
       "--hf-repo-draft --spec-draft-hf -otd --override-tensor-draft "
       "--spec-draft-override-tensor -cmoed --cpu-moe-draft --spec-draft-cpu-moe -ncmoed "
       "--n-cpu-moe-draft --spec-draft-n-cpu-moe --spec-draft-ncmoe",
       kRefused, kNoDraft},
      {"-Cd --cpu-mask-draft --spec-draft-cpu-mask -Crd --cpu-range-draft --spec-draft-cpu-range "
       "--cpu-strict-draft --spec-draft-cpu-strict --prio-draft --spec-draft-prio --poll-draft "
       "--spec-draft-poll -Cbd --cpu-mask-batch-draft --spec-draft-cpu-mask-batch "
       "--cpu-strict-batch-draft --spec-draft-cpu-strict-batch --prio-batch-draft "
       "--spec-draft-prio-batch --poll-batch-draft --spec-draft-poll-batch "
       "--spec-draft-backend-sampling --no-spec-draft-backend-sampling",
       kRefused, kNoDraft},
      {"--spec-ngram-mod-n-min --spec-ngram-mod-n-max --spec-ngram-mod-n-match "
       "--spec-ngram-simple-size-n --spec-ngram-simple-size-m --spec-ngram-simple-min-hits "
       "--spec-ngram-map-k-size-n --spec-ngram-map-k-size-m --spec-ngram-map-k-min-hits "
       "--spec-ngram-map-k4v-size-n --spec-ngram-map-k4v-size-m --spec-ngram-map-k4v-min-hits "
       "-lcs --lookup-cache-static -lcd --lookup-cache-dynamic",
       kRefused, kNoDraft},
      {"--grammar --grammar-file -j --json-schema -jf --json-schema-file", kRefused, kGrammar},
      {"--lora --lora-scaled --lora-init-without-apply", kRefused, kLora},
      {"--control-vector --control-vector-scaled --control-vector-layer-range", kRefused,
       "there are no control vectors here: say in -sys what they are to do"},
      {"--rope-scaling --rope-scale --rope-freq-base --rope-freq-scale --yarn-orig-ctx "
       "--yarn-ext-factor --yarn-attn-factor --yarn-beta-slow --yarn-beta-fast -gan --grp-attn-n "
       "-gaw --grp-attn-w",
       kRefused, kRope},
      {"--override-kv", kRefused,
       "a file says of its model what the checkpoint says: change its config.json, and quantize it "
       "again"},
      {"--samplers --sampler-seq --sampling-seq", kRefused,
       "the order of the steps is fixed; each is switched off by its own value, as --top-k 0, "
       "--top-p 1, --min-p 0"},
      {"--dynatemp-range --dynatemp-exp --adaptive-target --adaptive-decay", kRefused,
       "the temperature is one number here: --temp, or --mirostat 2, which follows the text"},
      {"--tfs --tfs-z", kRefused, "there is no tail-free sampling here: --min-p or --typical"},
      {"-bf --binary-file", kRefused, "a prompt is text: -f FILE reads one"},
      {"--in-prefix --in-suffix --in-prefix-bos", kRefused,
       "the chat template writes what surrounds a message: -cnv, --chat-template NAME"},
      {"--chat-template-file --chat-template-kwargs --skip-chat-parsing --no-skip-chat-parsing",
       kRefused, kTemplate},
      {"--reasoning-budget --reasoning-budget-message", kRefused,
       "leq-server limits reasoning; --enable-thinking off leaves it out"},
      {"-rea --reasoning --reasoning-effort --reasoning-preserve --no-reasoning-preserve", kRefused,
       "--enable-thinking on|off says whether the model thinks before it answers"},
      {"-hfv -hfrv --hf-repo-v -hffv --hf-file-v -mv --model-vocoder", kRefused, kText},
      {"-mm --mmproj -mmu --mmproj-url -mmdev --mmproj-device --mmproj-offload "
       "--no-mmproj-offload --image --audio --video --image-min-tokens --image-max-tokens",
       kRefused, kText},
      {"-o --output --output-file", kRefused,
       "what was asked for goes to standard output, and nothing else: write > FILE"},
      {"--log-file --log-prompts-dir", kRefused,
       "what is no reply goes to standard error: write 2> FILE"},
      {"--prompt-cache --session", kRefused,
       "leq-run --prompt-cache FILE keeps a prompt; in a chat /save FILE keeps a conversation"},
      {"--prompt-cache-all --prompt-cache-ro", kRefused, "leq-run --prompt-cache FILE takes it"},
      {"--server-base", kRefused, "there is no server here: the model of -m runs in this program"},
      {"--usage", kRefused, "write --help"},
      {"--license", kRefused, "leq has the licence of its file LICENSE"},
      {"--completion-bash", kRefused, "write --completion bash"},
  };
}

}  // namespace

std::span<const ForeignOption> llama_flags() {
  static const std::vector<ForeignOption> kAll = [] {
    std::vector<ForeignOption> all = silent_flags();
    for (const auto& more : {noted_flags(), refused_flags()}) {
      all.insert(all.end(), more.begin(), more.end());
    }
    return all;
  }();
  return kAll;
}

std::span<const ForeignOption> other_programs_flags() {
  static const std::vector<ForeignOption> kAll = {
      {"--imatrix --process-output --output-frequency --save-frequency", kRefused,
       "importance matrices are not read: `leq quantize --recipe q4` gathers statistics of its "
       "own, with --calibration FILE those of another text"},
      {"--hellaswag --hellaswag-tasks --winogrande --winogrande-tasks --multiple-choice "
       "--multiple-choice-tasks",
       kRefused,
       "tasks are not scored here: lm-eval does so with `leq serve`; `leq perplexity` measures "
       "texts"},
      {"--kl-divergence --kl-divergence-base --save-all-logits --ppl-stride --ppl-output-type",
       kRefused, "is for `leq perplexity MODEL -f TEXT`, where --kl-divergence-base names a file"},
      {"--allow-requantize --leave-output-tensor --pure --keep-split --output-tensor-type "
       "--token-embedding-type --include-weights --exclude-weights --prune-layers",
       kRefused,
       "`leq quantize` chooses types by --recipe or --type, and those of single tensors by "
       "--tensor-type, as head=f16"},
      {"--insecure", kRefused,
       "certificates are always checked: SSL_CERT_FILE names those of another authority, and "
       "HF_ENDPOINT=http://HOST a hub without any"},
      {"--dimensions --truncate --embd-normalize --embd-output-format --embd-separator", kRefused,
       "embeddings are requests to `leq serve`: POST /v1/embeddings or /api/embed"},
  };
  return kAll;
}

}  // namespace leq
