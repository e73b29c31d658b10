/* leq's C API: C99, opaque handles, no exceptions, no global state, no output to the terminal.
 *
 * Calls return a status and, if the caller passes a leq_error, describe the error in words. The
 * outputs of a failed call are NULL or 0. Options are structs whose first member is the size of the
 * struct:
 *
 *   leq_session_options options = {sizeof options};
 *   options.context = 4096;
 *
 * A member that is 0 or NULL has its default value; a NULL pointer to options means all defaults.
 * Programs compiled with an older header keep working, because the library reads only `size` bytes.
 *
 * Text is UTF-8 and its length in bytes is a separate argument; strings without a length end with a
 * zero byte. Memory that a function returns in a `void*`, `char*` or `leq_token*` that is not const
 * belongs to the caller, who frees it with leq_free.
 *
 * Threads: models and grammars are read-only, and any threads may share them. Several threads may
 * use one session concurrently: generations, chats and embeddings share its batches, and each one
 * gets the same result as alone. Callbacks run on the caller's thread. leq_cancel_request may be
 * called from any thread and from a signal handler. No handle may be used after fork().
 *
 * Misuse: NULL, a handle of another kind, sizes out of range and calls in the wrong order return
 * LEQ_MISUSE. Closing a handle frees it, so using it afterwards is undefined, as for a FILE*. A
 * model may be closed while sessions use it: its memory is freed with the last session. */
#ifndef LEQ_H
#define LEQ_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define LEQ_API __attribute__((visibility("default")))
#else
#define LEQ_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The number in the shared library's name. It changes whenever structs or calls change. */
#define LEQ_ABI_VERSION 1

LEQ_API uint32_t leq_abi_version(void); /* of the loaded library */
LEQ_API const char* leq_version(void);  /* "0.1.0" */

/* ---- Errors ---- */

typedef int32_t leq_status;
enum {
  LEQ_OK = 0,
  LEQ_BAD_INPUT = 1,   /* a file, a text or a token is invalid */
  LEQ_BAD_SETTING = 2, /* a setting is out of range or unknown; leq_error.setting names it */
  LEQ_NO_MEMORY = 3,
  LEQ_NO_DEVICE = 4,   /* a device is missing or fails */
  LEQ_IO = 5,          /* the system refuses to open, read or write */
  LEQ_INTERRUPTED = 6, /* a callback or leq_cancel_request ended the call */
  LEQ_INTERNAL = 7,    /* a bug in leq */
  LEQ_MISUSE = 8,      /* NULL, a handle of another kind, a wrong size or order of calls */
  LEQ_CONTEXT_FULL = 9 /* a prompt leaves no position for a reply, or fed tokens do not fit */
};
LEQ_API const char* leq_status_name(leq_status status); /* "bad_input" */

/* Set `size` once; every call that fails writes the other members. */
typedef struct leq_error {
  uint32_t size;
  leq_status status;
  char setting[64]; /* the setting that the text names first, or "" */
  char text[952];   /* one line: place, expected, found, remedy; truncated if it is too long */
} leq_error;

LEQ_API void leq_free(void* block); /* NULL is allowed */

/* ---- Cancelling ---- */

typedef struct leq_cancel leq_cancel;
LEQ_API leq_cancel* leq_cancel_new(void); /* NULL if out of memory */
/* Calls with this handle end before their next token or within a tenth of a second, those that
 * measure before their next 512 tokens. They return LEQ_INTERRUPTED, except leq_generate: it
 * returns LEQ_OK, and its replies have LEQ_STOP_INTERRUPTED. */
LEQ_API void leq_cancel_request(leq_cancel* cancel);
LEQ_API void leq_cancel_reset(leq_cancel* cancel);
LEQ_API void leq_cancel_free(leq_cancel* cancel);

/* Reports `done` of `total` units of `work`. Returning nonzero ends the call: LEQ_INTERRUPTED. */
typedef int32_t (*leq_on_progress)(void* user, const char* work, int64_t done, int64_t total);

/* ---- Models ---- */

typedef int32_t leq_token;
typedef struct leq_model leq_model;

enum { LEQ_LOAD_AUTOMATIC = 0, LEQ_LOAD_MAP = 1, LEQ_LOAD_READ = 2 };

typedef struct leq_open_options {
  uint32_t size;
  int32_t load; /* LEQ_LOAD_...: map the file, or read it into huge pages */
  int32_t lock; /* nonzero: lock the file in memory */
  int32_t reserved;
  /* The folder in which conversions of GGUF files are cached; NULL: the tools' folder, which is
   * $XDG_CACHE_HOME/leq or ~/.cache/leq; "": none, so that a conversion is only in memory. */
  const char* cache;
  leq_on_progress on_progress; /* of a conversion */
  void* user;
} leq_open_options;

/* Opens a .leq file and checks all of it except the data of its tensors (see leq_verify). A GGUF
 * file is converted without changing its quantized values, as in leq-run. */
LEQ_API leq_status leq_open(const char* path, const leq_open_options* options, leq_model** model,
                            leq_error* error);
/* Opens a .leq file in memory; its bytes are copied. */
LEQ_API leq_status leq_open_memory(const void* bytes, size_t size, const leq_open_options* options,
                                   leq_model** model, leq_error* error);
LEQ_API void leq_close(leq_model* model); /* NULL is allowed */

typedef struct leq_model_info {
  uint32_t size;
  int32_t layers;
  int64_t context; /* maximum context length of the model */
  int64_t vocab;   /* V, logits in a row */
  int64_t width;   /* W, numbers of an embedding */
  int64_t parameters;
  uint64_t file_bytes;
  double bits_per_weight;
  leq_token bos, eos;    /* -1: none */
  int32_t has_tokenizer; /* 0 or 1, like the next two members */
  int32_t adds_bos;
  int32_t has_chat_template;
  int32_t reserved;
  /* Embeddings as the file says: the pooling, also "rank" for a model that judges documents (NULL:
   * the file does not say); the token after each text (-1: none); whether they have a length of 1
   */
  const char* pooling;
  leq_token embedding_end;
  int32_t normalizes;
} leq_model_info;
LEQ_API leq_status leq_model_get_info(const leq_model* model, leq_model_info* info,
                                      leq_error* error);
/* The JSON that leq-inspect prints about the file: configuration, tensors, provenance. */
LEQ_API leq_status leq_inspect(const leq_model* model, char** json, leq_error* error);
/* Compares the checksums of all tensors. */
LEQ_API leq_status leq_verify(const leq_model* model, leq_error* error);

/* ---- Tensors and tables of the file, for programs that convert it to other formats ---- */

/* A tensor's values as f32 [rows][columns]; `count` is rows x columns. leq_inspect lists the
 * tensors with names, shapes and types. */
LEQ_API leq_status leq_tensor_floats(const leq_model* model, const char* name, float* numbers,
                                     size_t count, leq_error* error);
/* The codes of an int or uint type as int8_t or uint8_t [rows][columns], their scales
 * [rows][blocks], and for uint types the zero points [rows][blocks], otherwise NULL. A value is
 * (code - zero point) x scale; a block is the type's group of columns, or the row. `count` is rows
 * x columns, `blocks` is rows x blocks of a row. */
LEQ_API leq_status leq_tensor_codes(const leq_model* model, const char* name, void* codes,
                                    size_t count, float* scales, uint8_t* zeros, size_t blocks,
                                    leq_error* error);
/* A table of the file, such as "tokenizer.merges" (docs/tokenizers.md), without a copy: `bytes` is
 * valid until the model is closed. */
LEQ_API leq_status leq_table(const leq_model* model, const char* name, const void** bytes,
                             size_t* size, leq_error* error);
/* What leq_inspect leaves out, as JSON: each layer, frequencies of RoPE for `context` positions (0:
 * the model's), sampling defaults under transformers' names. `model_type`: a
 * class of transformers, whose keys of config.json and places of tensors are added; "": that of the
 * file's own family; NULL: none. */
LEQ_API leq_status leq_describe(const leq_model* model, const char* model_type, int64_t context,
                                char** json, leq_error* error);

/* ---- Text and tokens ---- */

enum {
  LEQ_PLAIN = 1, /* special tokens in the text are treated as plain text */
  LEQ_NO_BOS = 2 /* do not prepend the tokenizer's BOS token */
};
/* Converts a text of any bytes to token ids, as the tools convert a prompt. */
LEQ_API leq_status leq_tokenize(const leq_model* model, const char* text, size_t bytes,
                                uint32_t flags, leq_token** tokens, size_t* count,
                                leq_error* error);
/* The text of a sequence, zero-terminated; without special tokens unless `with_special`. */
LEQ_API leq_status leq_detokenize(const leq_model* model, const leq_token* tokens, size_t count,
                                  int32_t with_special, char** text, size_t* bytes,
                                  leq_error* error);
/* Renders a conversation as the model's prompt. `request`: a JSON object with "messages" and,
 * optionally, "tools", "add_generation_prompt", "chat_template_kwargs" ..., in the format of
 * /v1/chat/completions. `text` or `tokens` may be NULL if it is not needed. */
LEQ_API leq_status leq_apply_chat_template(const leq_model* model, const char* request,
                                           size_t bytes, char** text, size_t* text_bytes,
                                           leq_token** tokens, size_t* count, leq_error* error);

/* ---- Grammars: the allowed texts of a reply ---- */

typedef struct leq_grammar leq_grammar;
LEQ_API leq_status leq_grammar_from_gbnf(const char* text, size_t bytes, leq_grammar** grammar,
                                         leq_error* error);
/* From a JSON schema. `strict`: an unsupported keyword is an error; otherwise it is ignored. */
LEQ_API leq_status leq_grammar_from_schema(const char* text, size_t bytes, int32_t strict,
                                           leq_grammar** grammar, leq_error* error);
LEQ_API void leq_grammar_free(leq_grammar* grammar);

/* ---- Sessions: memory and threads to run a model ---- */

typedef struct leq_session leq_session;

enum { LEQ_NO_SPECULATION = 1 }; /* like speculate "off" */

typedef struct leq_session_options {
  uint32_t size;
  int32_t threads;          /* 0: one for each usable core */
  int64_t context;          /* positions shared by all sequences; 0: min(the model's, 8192) */
  int64_t sequence_context; /* limit of one sequence; 0: all positions that others do not use */
  int32_t sequences;        /* replies generated concurrently; 0: 1 */
  int32_t batch_tokens;     /* fed in one step; 0: 512 */
  int32_t logit_rows;       /* leq_feed's rows per step; 0: few, which slows LEQ_ALL_LOGITS down */
  uint32_t flags;           /* LEQ_NO_SPECULATION */
  const char* key_type;     /* "f32", "f16", "int8", ...; NULL: the type the file was made for */
  const char* value_type;
  const char* device; /* NULL: "cpu" */
  /* Speculative decoding, which does not change replies: "ngram" (drafts from repeated text),
   * "mtp" (the model's multi-token prediction head), "auto" (both, if the model has such a head)
   * or "off"; NULL: auto */
  const char* speculate;
  /* Of leq_embed: "mean" over the tokens, the "last" one, "cls" (the first one) or "none" (a vector
   * per token); NULL: as the model's file says, otherwise the mean */
  const char* pooling;
} leq_session_options;

LEQ_API leq_status leq_session_new(leq_model* model, const leq_session_options* options,
                                   leq_session** session, leq_error* error);
/* Interrupts all replies in progress; the calls of other threads must have returned before. */
LEQ_API void leq_session_close(leq_session* session);

typedef struct leq_memory_plan {
  uint32_t size;
  uint32_t reserved;
  int64_t context; /* the context size that results from the options */
  /* kv_bytes: includes the states of Gated DeltaNet */
  uint64_t weight_bytes, kv_bytes, scratch_bytes, total_bytes;
  uint64_t available_bytes; /* currently available on this machine; 0: unknown */
} leq_memory_plan;
/* The exact number of bytes that a session will use, computed from the file's header before
 * anything is loaded. */
LEQ_API leq_status leq_plan_memory(const char* path, const leq_session_options* options,
                                   leq_memory_plan* plan, leq_error* error);

/* ---- Replies ---- */

enum {
  LEQ_STOP_NONE = 0,
  LEQ_STOP_END_TOKEN = 1,
  LEQ_STOP_STRING = 2,
  LEQ_STOP_TOKEN_LIMIT = 3,
  LEQ_STOP_CONTEXT_FULL = 4,
  LEQ_STOP_INTERRUPTED = 5,
  LEQ_STOP_FAILED = 6
};

/* The tokens and text that one step added to one of the replies. */
typedef struct leq_piece {
  uint32_t size;
  uint32_t reserved;
  size_t reply;     /* index of the reply */
  const char* text; /* whole characters; valid during the call */
  size_t text_bytes;
  const leq_token* tokens;
  size_t token_count;
  const float* logprobs; /* [token_count] if requested, otherwise NULL */
} leq_piece;
/* Called for every piece, and with NULL at least ten times a second while there is none. Returning
 * nonzero ends all replies of the call. */
typedef int32_t (*leq_on_piece)(void* user, const leq_piece* piece);

typedef struct leq_generate_options {
  uint32_t size;
  int32_t logprobs;   /* n: for each token and the n most probable tokens; 0: none */
  int64_t max_tokens; /* 0: until the model ends or the context is full */
  /* A JSON object: "temperature", "top_k", "top_p", "min_p", "seed", "stop", "logit_bias",
   * "ignore_eos" and the others in docs/sampling.md; NULL: the model's defaults. Without a seed, a
   * random one is used. */
  const char* settings;
  const leq_grammar* grammar;
  const leq_cancel* cancel;
  leq_on_piece on_piece;
  void* user;
  int32_t receipts; /* nonzero: set leq_reply.receipt; not with a grammar or `act online` */
  int32_t reserved;
} leq_generate_options;

typedef struct leq_replies leq_replies;
/* Generates one reply to each prompt, concurrently if the session has several sequences; each reply
 * is the same as alone. prompts[i] has counts[i] tokens. Returns the first error of a reply, but
 * sets `replies` even then, provided the prompts were accepted. A cancelled reply is no error. */
LEQ_API leq_status leq_generate(leq_session* session, const leq_token* const* prompts,
                                const size_t* counts, size_t prompt_count,
                                const leq_generate_options* options, leq_replies** replies,
                                leq_error* error);
LEQ_API size_t leq_replies_count(const leq_replies* replies);
LEQ_API void leq_replies_free(leq_replies* replies);

/* Pointers are valid until leq_replies_free. */
typedef struct leq_reply {
  uint32_t size;
  int32_t stop; /* LEQ_STOP_... */
  const char* text;
  size_t text_bytes;
  const leq_token* tokens; /* without the end token */
  size_t token_count;
  const char* stop_string; /* the one that ended the reply, or "" */
  const char* failure;     /* why it failed, or "" */
  int64_t cached_tokens;   /* prompt tokens found in the cache */
  int64_t fed_tokens;      /* prompt tokens fed by this call */
  double prompt_seconds, reply_seconds;
  uint64_t seed;            /* the seed of its draws */
  const float* logprobs;    /* [logprob_count], natural logarithms; NULL if not requested */
  size_t logprob_count;     /* token_count, plus one for an end token */
  size_t top_count;         /* n */
  const leq_token* top_ids; /* [logprob_count][n], the most probable first */
  const float* top_logprobs;
  const char* receipt; /* JSON as written by leq-run (docs/receipts.md); NULL: not requested */
} leq_reply;
LEQ_API leq_status leq_replies_at(const leq_replies* replies, size_t index, leq_reply* reply,
                                  leq_error* error);

typedef struct leq_receipt_check {
  uint32_t size;
  int32_t same;    /* nonzero: the reply and its logits are those of the receipt */
  size_t place;    /* index of the first token that differs */
  int32_t logits;  /* nonzero: the token is the same, but the logits before it differ */
  leq_token found; /* -1: the reply ends there */
  leq_token expected;
  int32_t reserved;
} leq_receipt_check;
/* Generates the reply of a receipt again. Clears the session's cache; returns LEQ_MISUSE while
 * another thread's call is running. */
LEQ_API leq_status leq_check_receipt(leq_session* session, const char* receipt, size_t bytes,
                                     leq_receipt_check* result, leq_error* error);

/* ---- Requests as JSON ---- */

/* Called for every event of a stream, a JSON object with "object": "chat.completion.chunk", and
 * with NULL at least ten times a second while there is none. Returning nonzero ends the reply. */
typedef int32_t (*leq_on_event)(void* user, const char* json, size_t bytes);

typedef struct leq_request_options {
  uint32_t size;
  uint32_t reserved;
  const leq_cancel* cancel;
  leq_on_event on_event;
  void* user;
} leq_request_options;

/* The replies of leq-server to /v1/chat/completions and /v1/completions: tools, schemas, several
 * choices, log probabilities (docs/server.md). With "stream": true the events are passed to
 * on_event and `reply` is NULL; otherwise it is the whole reply. */
LEQ_API leq_status leq_chat_completion(leq_session* session, const char* request, size_t bytes,
                                       const leq_request_options* options, char** reply,
                                       leq_error* error);
LEQ_API leq_status leq_completion(leq_session* session, const char* request, size_t bytes,
                                  const leq_request_options* options, char** reply,
                                  leq_error* error);

/* ---- Embeddings ---- */

/* The last hidden states after the final norm, pooled as leq_session_options says; `numbers` has
 * `width` elements, which is the model's width, and with the pooling "none" `count` times as many.
 */
LEQ_API leq_status leq_embed(leq_session* session, const leq_token* tokens, size_t count,
                             float* numbers, size_t width, leq_error* error);

/* ---- Prompts in files ---- */

/* Saves the keys and values of the longest prefix of `tokens` in the session's cache, as left by
 * leq_generate; `kept`: the length of that prefix. The file is written atomically. */
LEQ_API leq_status leq_save_state(leq_session* session, const leq_token* tokens, size_t count,
                                  const char* path, size_t* kept, leq_error* error);
/* Prompts that begin with the loaded tokens skip feeding them; their replies stay the same. */
LEQ_API leq_status leq_load_state(leq_session* session, const char* path, size_t* kept,
                                  leq_error* error);

/* ---- Token by token ----
 * A session is used in one of two ways: with the calls above, or with leq_feed and those below it.
 * Changing from one to the other clears its cache. While one of the calls above runs in another
 * thread, leq_feed returns LEQ_MISUSE. So do all calls of a callback of leq_run_layer. */

enum { LEQ_LAST_LOGITS = 0, LEQ_ALL_LOGITS = 1, LEQ_NO_LOGITS = 2 };

/* Rows of logits [rows][V], f32, in host memory; they are unchanged until they are freed. */
typedef struct leq_logits leq_logits;
LEQ_API const float* leq_logits_data(const leq_logits* logits);
LEQ_API size_t leq_logits_rows(const leq_logits* logits);
LEQ_API size_t leq_logits_columns(const leq_logits* logits);
LEQ_API void leq_logits_free(leq_logits* logits);

/* Appends tokens to those fed before. `logits` may be NULL with LEQ_NO_LOGITS. If an error is
 * returned, no token was fed. */
LEQ_API leq_status leq_feed(leq_session* session, const leq_token* tokens, size_t count,
                            int32_t which, leq_logits** logits, leq_error* error);
LEQ_API size_t leq_position(const leq_session* session); /* tokens fed so far; 0 for NULL */
/* Removes the tokens from `position` on. `left`, the new position, may be smaller (as low as 0) if
 * the cache has lost entries that the next token needs: feed the tokens from `left` on again. */
LEQ_API leq_status leq_rewind(leq_session* session, size_t position, size_t* left,
                              leq_error* error);
/* Draws a token from a row of V logits with settings as in leq_generate_options, which must have a
 * seed unless the temperature is 0. `context`: the tokens before it, for penalties; `index`: its
 * index in the reply. A reply drawn token by token is the same as that of leq_generate. */
LEQ_API leq_status leq_sample(const leq_model* model, const float* row, size_t columns,
                              const leq_token* context, size_t count, uint32_t index,
                              const char* settings, leq_token* token, leq_error* error);

/* ---- Layer by layer ----
 * On the hidden states [count][width] of one text from its first token on: f32, `width` that of the
 * model, `count` at most the session's batch_tokens and context. These calls need the session
 * alone, as leq_feed does, and clear its cache. */

/* The embeddings of tokens: the input of layer 0. */
LEQ_API leq_status leq_embed_tokens(leq_session* session, const leq_token* tokens, size_t count,
                                    float* hidden, size_t width, leq_error* error);
/* The numbers [count][width] that a site's weights are multiplied with: folded and, where they are
 * quantized, rounded. `site`: "qkv", "o", "gate_up", "down", ... */
typedef void (*leq_on_input)(void* user, const char* site, const float* rows, size_t count,
                             size_t width);
/* Replaces the hidden states before a layer by those after it. `on_input` may be NULL; it needs a
 * session on the CPU. */
LEQ_API leq_status leq_run_layer(leq_session* session, int64_t layer, float* hidden, size_t count,
                                 size_t width, leq_on_input on_input, void* user, leq_error* error);
/* The logits of hidden states after the last layer. */
LEQ_API leq_status leq_run_head(leq_session* session, const float* hidden, size_t count,
                                size_t width, leq_logits** logits, leq_error* error);

/* ---- Measuring ---- */

typedef struct leq_perplexity_options {
  uint32_t size;
  int32_t threads;
  const char* protocol; /* "hf" (NULL), "hf-stride" or "llamacpp-512" */
  const char* join; /* "hf" or "none": how rows are joined; NULL: the protocol's for wiki.test.raw,
                       else none */
  int64_t window;   /* tokens; 0: the model's context, at most 2048 */
  int64_t stride;   /* of hf-stride; 0: min(512, half the window) */
  int64_t chunks;   /* number of windows, from the first; 0: all */
  const char* key_type;
  const char* value_type;
  const char* device;
  const leq_cancel* cancel;
  leq_on_progress on_progress;
  void* user;
} leq_perplexity_options;

typedef struct leq_perplexity_result {
  uint32_t size;
  uint32_t reserved;
  double ppl, nll, standard_error; /* nll in nats; the error is that of ppl */
  int64_t windows, scored, tokens;
} leq_perplexity_result;
/* Measures like leq-perplexity, in a session of its own. */
LEQ_API leq_status leq_perplexity(leq_model* model, const char* text, size_t bytes,
                                  const leq_perplexity_options* options,
                                  leq_perplexity_result* result, leq_error* error);

typedef struct leq_divergence_result {
  uint32_t size;
  uint32_t reserved;
  double kl_mean, kl_mean_error, kl_median, kl_p99; /* nats, from the base to the model */
  double same_top1, same_top1_error;                /* share of positions */
  double ppl, ppl_base;
  int64_t windows, scored;
} leq_divergence_result;
/* The KL divergence of a model from its base, both evaluated on the same windows. */
LEQ_API leq_status leq_divergence(leq_model* base, leq_model* model, const char* text, size_t bytes,
                                  const leq_perplexity_options* options,
                                  leq_divergence_result* result, leq_error* error);

/* ---- Quantizing ---- */

/* A line of text for users about the current work. */
typedef void (*leq_on_line)(void* user, const char* line);

typedef struct leq_quantize_options {
  uint32_t size;
  int32_t threads;
  /* "q8", "q4", "auto". NULL, if neither method nor type is given: codes of a GGUF file or of a
   * quantized checkpoint are kept, other checkpoints are quantized with q8. */
  const char* recipe;
  const char* method;      /* "absmax", "gptq+", ...; NULL: absmax */
  const char* type;        /* "int8", "int4-g128", ...; NULL: the method's */
  const char* calibration; /* text in UTF-8; NULL: the built-in one */
  size_t calibration_bytes;
  int64_t samples; /* windows of calibration text; 0: 128, or the recipe's number */
  int64_t length;  /* tokens per window; 0: 512 */
  int64_t seed;
  int32_t judge; /* nonzero: measure KL divergence from the checkpoint at the end */
  /* nonzero: discard an interrupted run's files; 0: continue it, or fail if the settings differ
   */
  int32_t restart;
  const leq_cancel* cancel;
  leq_on_progress on_progress;
  leq_on_line on_line;
  void* user;
  double target_bpw; /* recipe auto: bits per weight, including scales; 0: q4's size */
  const char* act; /* how inputs are quantized: "none", "row", "online", ...; NULL: the method's */
  int32_t search_evaluations; /* recipe auto: measurements of KL; 0: 96 */
  int32_t search_windows;     /* recipe auto: windows of 512 tokens to measure on; 0: 16 */
} leq_quantize_options;

typedef struct leq_quantize_result {
  uint32_t size;
  int32_t judged; /* whether `kl` was measured */
  uint64_t file_bytes;
  int64_t parameters;
  double bits_per_weight;
  double worst_error; /* largest relative squared error of a tensor's weights */
  double kl;          /* nats */
} leq_quantize_result;
/* Quantizes a Hugging Face folder or a GGUF file to a .leq file, which is written atomically. */
LEQ_API leq_status leq_quantize(const char* checkpoint, const char* output,
                                const leq_quantize_options* options, leq_quantize_result* result,
                                leq_error* error);

#ifdef __cplusplus
}
#endif

#endif /* LEQ_H */
