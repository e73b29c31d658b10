"""lm-evaluation-harness asks /v1/completions (echo with logprobs) and finds the known shares of right answers.

lm_eval_client.py TOOLS_FOLDER
"""

import os
import pathlib
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
EXPECTED = {"acc": 0.525, "acc_norm": 0.5875}  # by docs/comparing.md's rules from the logits, keys and values in f16


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


def main():
    with Served(sys.argv[1]) as served, tempfile.TemporaryDirectory() as cache:
        there, samples = harness(served, cache)
    check(len(samples) == 80, f"{len(samples)} questions")
    for metric, share in EXPECTED.items():
        check(there[metric + ",none"] == share, f"{metric}: the harness {there[metric + ',none']}, expected {share}")
    print("equal:", EXPECTED)


if __name__ == "__main__":
    main()
