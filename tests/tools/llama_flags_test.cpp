// Flags that users of llama.cpp type: each is an option of leq-run, has no effect, or is refused
// with advice. No answer may name another flag that is only spelled similarly.
#include "tools/common/llama_flags.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "base/error.h"
#include "base/text.h"
#include "errors.h"
#include "tools/common/options.h"
#include "tools/tool_runner.h"

namespace leq {
namespace {

// The flags listed in llama-cli's help, in its order: common, sampling, and tool flags.
constexpr std::string_view kFlags =
    "-h --help --version -cl --cache-list --completion-bash -t --threads -tb --threads-batch -C "
    "--cpu-mask -Cr --cpu-range --cpu-strict --prio --poll -Cb --cpu-mask-batch -Crb "
    "--cpu-range-batch --cpu-strict-batch --prio-batch --poll-batch -c --ctx-size -n --predict "
    "--n-predict -b --batch-size -ub --ubatch-size --keep --swa-full -fa --flash-attn -p --prompt "
    "--perf --no-perf -f --file -bf --binary-file -e --escape --no-escape --rope-scaling "
    "--rope-scale --rope-freq-base --rope-freq-scale --yarn-orig-ctx --yarn-ext-factor "
    "--yarn-attn-factor --yarn-beta-slow --yarn-beta-fast -kvo --kv-offload -nkvo "
    "--no-kv-offload --repack -nr --no-repack --no-host -ctk --cache-type-k -ctv --cache-type-v "
    "-dt --defrag-thold -np --parallel --rpc --mlock --mmap --no-mmap -dio --direct-io -ndio "
    "--no-direct-io -lm --load-mode --numa -dev --device --list-devices -ot --override-tensor "
    "-cmoe --cpu-moe -ncmoe --n-cpu-moe -ngl --gpu-layers --n-gpu-layers -sm --split-mode -ts "
    "--tensor-split -mg --main-gpu -fit --fit -fitt --fit-target -fitc --fit-ctx --check-tensors "
    "--override-kv --op-offload --no-op-offload --lora --lora-scaled --control-vector "
    "--control-vector-scaled --control-vector-layer-range -m --model -mu --model-url -dr "
    "--docker-repo -hf -hfr --hf-repo -hff --hf-file -hft --hf-token --log-disable --log-file "
    "--log-colors -v --verbose --log-verbose --offline -lv --verbosity --log-verbosity "
    "--log-prefix --no-log-prefix --log-timestamps --no-log-timestamps --spec-draft-type-k -ctkd "
    "--cache-type-k-draft --spec-draft-type-v -ctvd --cache-type-v-draft "
    "--samplers -s --seed --sampler-seq --sampling-seq --ignore-eos --temp --temperature --top-k "
    "--top-p --min-p --top-nsigma --top-n-sigma --xtc-probability --xtc-threshold --typical "
    "--typical-p --repeat-last-n --repeat-penalty --presence-penalty --frequency-penalty "
    "--dry-multiplier --dry-base --dry-allowed-length --dry-penalty-last-n "
    "--dry-sequence-breaker --adaptive-target --adaptive-decay --dynatemp-range --dynatemp-exp "
    "--mirostat --mirostat-lr --mirostat-ent -l --logit-bias --grammar --grammar-file -j "
    "--json-schema -jf --json-schema-file -bs --backend-sampling "
    "--server-base --verbose-prompt --display-prompt --no-display-prompt -co --color -ctxcp "
    "--ctx-checkpoints --swa-checkpoints -cram --cache-ram --context-shift --no-context-shift "
    "-sys --system-prompt --show-timings --no-show-timings -sysf --system-prompt-file -r "
    "--reverse-prompt -sp --special -cnv --conversation -no-cnv --no-conversation -st "
    "--single-turn -mli --multiline-input --warmup --no-warmup -mm --mmproj -mmu --mmproj-url "
    "--mmproj-auto --no-mmproj --no-mmproj-auto --mmproj-offload --no-mmproj-offload -mmdev "
    "--mmproj-device --image --audio --video --image-min-tokens --image-max-tokens -o --output "
    "--output-file --chat-template-kwargs --jinja --no-jinja --reasoning-format -rea --reasoning "
    "--reasoning-effort --reasoning-budget --reasoning-budget-message --reasoning-preserve "
    "--no-reasoning-preserve --chat-template --chat-template-file --skip-chat-parsing "
    "--no-skip-chat-parsing --simple-io --log-prompts-dir --spec-draft-hf -hfd -hfrd "
    "--hf-repo-draft --spec-draft-threads -td --threads-draft --spec-draft-threads-batch -tbd "
    "--threads-batch-draft --spec-draft-cpu-mask -Cd --spec-draft-device -devd --device-draft "
    "--spec-draft-ngl -ngld --gpu-layers-draft --n-gpu-layers-draft --spec-draft-model -md "
    "--model-draft --spec-type --spec-draft-n-max --spec-draft-n-min --draft --draft-n "
    "--draft-max --draft-min --draft-n-min --gpt-oss-20b-default --spec-default "
    // These are flags of earlier versions.
    "-i --interactive -if --interactive-first --in-prefix --in-suffix --in-prefix-bos "
    "--prompt-cache --prompt-cache-all --prompt-cache-ro -gan --grp-attn-n -gaw --grp-attn-w "
    "--tfs --penalize-nl --no-penalize-nl -ld --logdir --usage --license -hfv -hffv -ptc "
    "--print-token-count --lora-init-without-apply";

// Runs leq-run with only this flag; if it is an option, the error names a missing argument.
std::string answer_to(const std::string& flag) { return test::run_program("leq-run", {flag}).err; }

TEST(LlamaFlags, EveryFlagOfLlamaCliIsKnown) {
  std::size_t count = 0;
  std::set<std::string> unknown;
  const auto known_here = [&](const std::string& word) {
    return std::ranges::any_of(llama_flags(), [&](const ForeignOption& foreign) {
      const auto words = split(foreign.words, " ");
      return std::ranges::find(words, word) != words.end();
    });
  };
  const std::string help =
      " " + replace_all(test::run_program("leq-run", {"--help"}).out, ",", " ");
  for (const auto part : split(kFlags, " ")) {
    const std::string flag(part);
    ++count;
    if (known_here(flag)) continue;
    if (replace_all(help, "\n", " ").find(" " + flag + " ") != std::string::npos) continue;
    if (answer_to(flag).find("unknown option") != std::string::npos) unknown.insert(flag);
  }
  EXPECT_GT(count, 250u);
  EXPECT_EQ(unknown, (std::set<std::string>{"-ld", "--logdir"}));  // removed years ago
}

TEST(LlamaFlags, AreNoOptionsOfLeqRunAndStandOnce) {
  std::set<std::string> seen;
  for (const ForeignOption& foreign : llama_flags()) {
    for (const auto word : split(foreign.words, " ")) {
      EXPECT_TRUE(word.starts_with('-')) << word;
      EXPECT_TRUE(seen.insert(std::string(word)).second) << word;
    }
    EXPECT_EQ(foreign.text.empty(), foreign.use == ForeignUse::silent) << foreign.words;
  }
}

TEST(LlamaFlags, ThoseOfOtherProgramsAreRefusedByEveryTool) {
  const ToolSpec tool{.name = "leq-sample", .summary = "a sample", .usage = {}};
  const auto none = [](const std::string&) { return std::nullopt; };
  std::set<std::string> seen;
  for (const ForeignOption& foreign : llama_flags()) {
    for (const auto word : split(foreign.words, " ")) seen.insert(std::string(word));
  }
  for (const ForeignOption& foreign : other_programs_flags()) {
    for (const auto part : split(foreign.words, " ")) {
      const std::string word(part);
      EXPECT_TRUE(seen.insert(word).second) << word;
      const std::vector<std::string> words = {word};
      EXPECT_EQ(test::error_of([&] { (void)parse_options(tool, words, none); }),
                word + ": " + std::string(foreign.text));
    }
  }
}

// Returns a tool with two options, for testing every row of the table as typed.
ToolSpec small_tool() {
  ToolSpec tool{.name = "leq-sample", .summary = "a sample", .usage = {}};
  tool.options = {{.name = "prompt", .spellings = "-p", .kind = OptionKind::text},
                  {.name = "color", .value_may_follow = true}};
  tool.foreign = llama_flags();
  return tool;
}

Options parse(const std::vector<std::string>& words) {
  return parse_options(small_tool(), words, [](const std::string&) { return std::nullopt; });
}

TEST(LlamaFlags, EachRowIsRefusedNotedOrTaken) {
  for (const ForeignOption& foreign : llama_flags()) {
    for (const auto part : split(foreign.words, " ")) {
      const std::string word(part);
      std::vector<std::string> words = {word};
      for (int i = 0; i < foreign.values; ++i) words.emplace_back("7");
      words.insert(words.end(), {"-p", "x"});
      if (foreign.use == ForeignUse::refused) {
        EXPECT_EQ(test::error_of([&] { parse(words); }), word + ": " + std::string(foreign.text));
        continue;
      }
      const Options options = parse(words);
      EXPECT_EQ(options.text("prompt"), "x") << word;
      const std::string note = word + ": " + std::string(foreign.text);
      EXPECT_EQ(options.notes(), foreign.use == ForeignUse::noted ? std::vector<std::string>{note}
                                                                  : std::vector<std::string>())
          << word;
      if (!foreign.value_may_follow) continue;
      for (const char* value : {"on", "off", "auto"}) {
        EXPECT_EQ(parse({word, value, "-p", "x"}).text("prompt"), "x") << word;
      }
    }
  }
}

TEST(LlamaFlags, ValuesMayBeWrittenWithTheirWord) {
  EXPECT_EQ(parse({"--keep=7", "-p", "x"}).notes().size(), 1u);
  EXPECT_TRUE(parse({"--flash_attn=on", "-p", "x"}).notes().empty());
  EXPECT_THROW(parse({"--keep"}), Error);
  EXPECT_THROW(parse({"-fa", "perhaps"}), Error);  // an argument that this tool does not accept
}

TEST(LlamaFlags, ASwitchMaySayOnOffOrAuto) {
  EXPECT_TRUE(parse({"--color"}).flag("color"));
  EXPECT_TRUE(parse({"--color", "on"}).flag("color"));
  EXPECT_TRUE(parse({"--color", "auto"}).flag("color"));
  EXPECT_FALSE(parse({"--color", "off"}).flag("color"));
  EXPECT_FALSE(parse({"--color=off"}).flag("color"));
  EXPECT_TRUE(parse({"--color", "-p", "on"}).flag("color"));
}

// These words used to be answered with the name of another flag.
TEST(LlamaFlags, AdviceIsAboutTheWordThatWasTyped) {
  for (const char* word : {"-sm", "-ts", "-mg"}) {
    const std::string answer = answer_to(word);
    EXPECT_NE(answer.find("-dev cuda:1"), std::string::npos) << answer;
    EXPECT_EQ(answer.find("did you mean"), std::string::npos) << answer;
  }
  EXPECT_NE(answer_to("-mu").find("-hf USER/MODEL"), std::string::npos);
  EXPECT_NE(answer_to("--lora").find("no adapters"), std::string::npos);
  const std::string advice = test::run_program("leq-bench", {"--grammar"}).err;
  EXPECT_NE(advice.find("leq-run takes grammars"), std::string::npos) << advice;
}

}  // namespace
}  // namespace leq
