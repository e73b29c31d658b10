"""A small seeded Qwen3 checkpoint with a tokenizer that adds a token after each text, and what
sentence-transformers and transformers make of it: tests/golden/embeddings, read by
tests/server/embeddings_test.cpp. With a second folder also a checkpoint like EmbeddingGemma, of token ids:
tests/golden/embedding-gemma, read by tests/engine/embed_test.cpp.

    python embedding_goldens.py ../golden/embeddings [../golden/embedding-gemma]
    (torch, transformers 5.24, sentence-transformers 6.2)
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
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, Transformer

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


def embedding_gemma(out):
    torch.manual_seed(0)
    config = transformers.Gemma3TextConfig(
        vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=5, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, max_position_embeddings=256, bos_token_id=None, eos_token_id=1,
        pad_token_id=None, query_pre_attn_scalar=24, sliding_window=14, use_bidirectional_attention=True,
        layer_types=["full_attention" if i % 3 == 2 else "sliding_attention" for i in range(5)],
        rope_parameters={"full_attention": {"rope_type": "default", "rope_theta": 1e6},
                         "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}})
    model = transformers.Gemma3TextModel(config).eval()
    generator = torch.Generator().manual_seed(2)
    for weight in model.parameters():
        noise = torch.randn(weight.shape, generator=generator)
        scale = 0.2 if weight.dim() == 1 else 1.5 / weight.shape[-1] ** 0.5
        weight.data = (weight.data if weight.dim() == 1 else 0) + noise * scale
    out.mkdir(parents=True, exist_ok=True)
    model.to(torch.bfloat16).save_pretrained(out)
    model = transformers.Gemma3TextModel.from_pretrained(out, dtype=torch.float32).eval()
    (out / "vocab.json").write_text(json.dumps({chr(33 + i): i for i in range(94)}))
    (out / "merges.txt").write_text("#version: 0.2\n")
    identity = torch.nn.Identity()
    modules = [Pooling(32, pooling_mode="mean"), Dense(32, 80, bias=False, activation_function=identity),
               Dense(80, 32, bias=False, activation_function=identity), Normalize()]
    listed = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}]
    for i, module in enumerate(modules, 1):
        name = type(module).__name__
        listed.append({"idx": i, "name": str(i), "path": f"{i}_{name}", "type": f"sentence_transformers.models.{name}"})
        (out / f"{i}_{name}").mkdir(exist_ok=True)
        if name != "Normalize":
            module.save(str(out / f"{i}_{name}"))
    (out / "modules.json").write_text(json.dumps(listed, indent=2) + "\n")
    golden = []
    for length in (1, 3, 20, 65):
        ids = torch.tensor([[(i * i * 7 + i * 13 + i // 5) % 94 for i in range(length)]])
        with torch.no_grad():
            features = {"token_embeddings": model(ids).last_hidden_state, "attention_mask": torch.ones_like(ids)}
            for module in modules:
                features = module(features)
        golden.append({"length": length, "embedding": [
            float(f"{x:.7g}") for x in features["sentence_embedding"][0].tolist()]})
    (out / "golden.json").write_text(json.dumps({
        "sentence_transformers": sentence_transformers.__version__, "transformers": transformers.__version__,
        "ids": "(i * i * 7 + i * 13 + i // 5) % 94", "texts": golden}) + "\n")


def main():
    out = pathlib.Path(sys.argv[1])
    if len(sys.argv) > 2:
        embedding_gemma(pathlib.Path(sys.argv[2]))
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
