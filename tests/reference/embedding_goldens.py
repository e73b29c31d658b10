"""A small seeded Qwen3 checkpoint with a tokenizer that adds a token after each text, and what
sentence-transformers and transformers make of it: tests/golden/embeddings, read by
tests/server/embeddings_test.cpp.

    python embedding_goldens.py ../golden/embeddings    (torch, transformers 5.24, sentence-transformers 6.2)
"""

import json
import pathlib
import shutil
import sys
import tempfile

import sentence_transformers
import tokenizers
import torch
import transformers
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

TEXTS = ["The capital of China is Beijing.", "What is the capital of China?", "yes",
         "Instruct: Given a web search query, retrieve relevant passages that answer the query\n"
         "Query: Explain gravity", "Gravity is a force that attracts two bodies towards each other. "
         "It gives weight to physical objects and is responsible for the movement of planets."]
QUERY = TEXTS[1]
DOCUMENTS = [TEXTS[0], TEXTS[4], "No: it is not.", "<|im_end|> is a text here"]
# The prompt of Qwen3-Reranker's model card.
PREFIX = ('<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct '
          'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n')
SUFFIX = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
TASK = "Given a web search query, retrieve relevant passages that answer the query"
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
           r"|\s+(?!\S)|\s+")


def make_tokenizer(folder):
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([
        tokenizers.pre_tokenizers.Split(tokenizers.Regex(PATTERN), "isolated"),
        tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    made.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    made.train_from_iterator([*TEXTS, *DOCUMENTS, PREFIX, TASK, "yes", "no"] * 4, trainer)
    made.add_special_tokens(SPECIAL)
    end = made.token_to_id(SPECIAL[0])
    made.post_processor = tokenizers.processors.Sequence([
        tokenizers.processors.ByteLevel(trim_offsets=False),
        tokenizers.processors.TemplateProcessing(
            single="$A <|endoftext|>", pair="$A $B <|endoftext|>", special_tokens=[(SPECIAL[0], end)])])
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token=SPECIAL[2], pad_token=SPECIAL[0]).save_pretrained(folder)
    return made.get_vocab_size()


def make_model(folder, vocab):
    torch.manual_seed(0)
    config = transformers.Qwen3Config(
        vocab_size=vocab, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, max_position_embeddings=512, tie_word_embeddings=True)
    model = transformers.Qwen3ForCausalLM(config).eval()
    generator = torch.Generator().manual_seed(1)
    for weight in model.parameters():
        noise = torch.randn(weight.shape, generator=generator)
        scale = 0.2 if weight.dim() == 1 else 1.5 / weight.shape[-1] ** 0.5
        weight.data = (weight.data if weight.dim() == 1 else 0) + noise * scale
    # Published embedding models are the base model alone.
    model.model.to(torch.bfloat16).save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)


def embed(folder, mode, normalize, **options):
    modules = [Transformer(str(folder), model_kwargs={"dtype": torch.float32}),
               Pooling(32, pooling_mode=mode), *([Normalize()] if normalize else [])]
    model = sentence_transformers.SentenceTransformer(modules=modules, device="cpu")
    rows = model.encode(TEXTS, batch_size=1, **options)
    return [[float(f"{x:.7g}") for x in row] for row in rows.tolist()]


def ranks(folder):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.Qwen3ForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    yes, no = (tokenizer.convert_tokens_to_ids(word) for word in ("yes", "no"))

    def ids(text, plain=False):
        return tokenizer(text, add_special_tokens=False, split_special_tokens=plain)["input_ids"]

    def score(document):
        pair = f"<Instruct>: {TASK}\n<Query>: {QUERY}\n<Document>: {document}"
        tokens = ids(PREFIX) + ids(pair, plain=True) + ids(SUFFIX)
        with torch.no_grad():
            logits = model(torch.tensor([tokens])).logits[0, -1]
        return torch.softmax(logits[[yes, no]], 0)[0].item()

    return [score(document) for document in DOCUMENTS]


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        make_model(folder, make_tokenizer(folder))
        golden = {
            "sentence_transformers": sentence_transformers.__version__, "transformers": transformers.__version__,
            "texts": TEXTS, "last": embed(folder, "lasttoken", True), "mean": embed(folder, "mean", True),
            "cls": embed(folder, "cls", True), "last_unscaled": embed(folder, "lasttoken", False),
            "last_of_8": embed(folder, "lasttoken", True, truncate_dim=8, normalize_embeddings=True),
            "query": QUERY, "documents": DOCUMENTS, "scores": ranks(folder)}
        # As sentence-transformers stores Qwen3-Embedding.
        sentence_transformers.SentenceTransformer(
            modules=[Transformer(str(folder)), Pooling(32, pooling_mode="lasttoken"), Normalize()],
            device="cpu").save(str(folder / "saved"), create_model_card=False)
        for name in ("modules.json", "1_Pooling"):
            target = out / name
            if target.is_dir():
                shutil.rmtree(target)
            copy = shutil.copytree if (folder / "saved" / name).is_dir() else shutil.copy
            copy(folder / "saved" / name, target)
        for name in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"):
            shutil.copy(folder / name, out / name)
    (out / "golden.json").write_text(json.dumps(golden) + "\n")
    print("scores", golden["scores"])


main()
