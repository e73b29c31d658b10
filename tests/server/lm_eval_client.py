"""lm-evaluation-harness asks /v1/completions (echo with logprobs) and finds what leq-perplexity --choices finds.

lm_eval_client.py TOOLS_FOLDER
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

from served import SOURCE, Served, check, skip

os.environ["HF_HUB_OFFLINE"] = os.environ["HF_DATASETS_OFFLINE"] = "1"
try:
    import lm_eval
    import lm_eval.tasks
    import tenacity  # of lm_eval[api], which looks for it when a model is made
    from lm_eval.models.openai_completions import LocalCompletionsAPI
except ImportError as error:
    skip(f"no lm_eval, or a part of it: {error}")

STORY = SOURCE / "examples/storyteller"
QUESTIONS = STORY / "choices.jsonl"


def harness(served, cache):
    os.environ["HF_DATASETS_CACHE"] = cache
    task = {
        "task": "tales", "dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(QUESTIONS)}},
        "test_split": "test", "output_type": "multiple_choice", "doc_to_text": "{{context}}",
        "doc_to_choice": "choices", "doc_to_target": "label",
        "metric_list": [{"metric": "acc"}, {"metric": "acc_norm"}]}
    model = LocalCompletionsAPI(
        base_url=served.url + "/v1/completions", model="storyteller", tokenizer=str(STORY),
        tokenizer_backend="huggingface", add_bos_token=True, batch_size=8, max_length=512)
    found = lm_eval.simple_evaluate(model=model, tasks=[task], bootstrap_iters=0)
    return found["results"]["tales"], found["samples"]["tales"]


def ours(served):
    answer = subprocess.run(
        [served.tools / "leq-perplexity", *served.model, "--choices", QUESTIONS, "-c", "512", "-o", "json",
         "-ctk", "f16", "-ctv", "f16"], check=True, capture_output=True, text=True)
    return json.loads(answer.stdout)


def main():
    with Served(sys.argv[1]) as served, tempfile.TemporaryDirectory() as cache:
        here = ours(served)
        there, samples = harness(served, cache)
    check(len(samples) == here["questions"], f"{len(samples)} questions, {here['questions']} here")
    for metric in ("acc", "acc_norm"):
        check(there[metric + ",none"] == here[metric],
              f"{metric}: the harness {there[metric + ',none']}, leq-perplexity {here[metric]}")
    print("equal:", {metric: here[metric] for metric in ("acc", "acc_norm")})


if __name__ == "__main__":
    main()
