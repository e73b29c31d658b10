/* leq's C API: C99, opaque handles, no exceptions, no global state, nothing printed.
 *
 * Calls return a status and, where the caller passes a leq_error, say in words what is wrong. After
 * a call that failed its outputs are NULL or 0. Options are structs whose first member is their
 * size:
 *
 *   leq_session_options options = {sizeof options};
 *   options.context = 4096;
 *
 * A member that is 0 or NULL has its default, and a NULL pointer to options means defaults alone.
 * Programs compiled with an older header keep working: the library reads what `size` says is there.
 *
 * Text is UTF-8 with its length in bytes beside it; strings without a length end with a zero byte.
 * What a function returns in a `void*`, `char*` or `leq_token*` that is not const is the caller's,
 * to be freed by leq_free.
 *
 * Threads: a model and a grammar are read-only and shared by any threads. A session may be used by
 * several threads at once: generations, chats and embeddings share its batches, and each gets what
 * it would get alone. Callbacks run on the caller's thread. leq_cancel_request may be called from
 * any thread and from a signal handler. No handle survives fork().
 *
 * Misuse: NULL, a handle of another kind, sizes out of range and calls in the wrong order are
 * LEQ_MISUSE. A closed handle is freed memory: using it is undefined, as it is for a FILE*. A
 * model may be closed while sessions use it: its memory goes with the last of them. */
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

/* The number in the shared library's name. Another one means that structs or calls have changed. */
#define LEQ_ABI_VERSION 1

LEQ_API uint32_t leq_abi_version(void); /* of the library */
LEQ_API const char* leq_version(void);  /* "0.1.0" */

/* ---- Errors ---- */

typedef int32_t leq_status;
enum {
  LEQ_OK = 0,
  LEQ_BAD_INPUT = 1,   /* a file, a text or a token is not what it should be */
  LEQ_BAD_SETTING = 2, /* a setting is out of range or unknown; leq_error.setting names it */
  LEQ_NO_MEMORY = 3,
  LEQ_NO_DEVICE = 4,   /* a device is not here or fails */
  LEQ_IO = 5,          /* the system refuses to open, read or write */
  LEQ_INTERRUPTED = 6, /* a callback or leq_cancel_request ended it */
  LEQ_INTERNAL = 7,    /* a mistake in leq */
  LEQ_MISUSE = 8,      /* a NULL, a handle of another kind, a size, or an order of calls */
  LEQ_CONTEXT_FULL = 9 /* a prompt leaves no room for a reply, or fed tokens do not fit */
};
LEQ_API const char* leq_status_name(leq_status status); /* "bad_input" */

/* Set `size` once; the other members are written by every call that fails. */
typedef struct leq_error {
  uint32_t size;
  leq_status status;
  char setting[64]; /* the setting that the text names first, or "" */
  char text[952];   /* one line: place, expected, found, what to try; cut where it is longer */
} leq_error;

LEQ_API void leq_free(void* block); /* NULL is fine */

/* ---- Cancelling ---- */

typedef struct leq_cancel leq_cancel;
LEQ_API leq_cancel* leq_cancel_new(void); /* NULL without memory */
/* Calls with this handle end before their next token, or within a tenth of a second: with
 * LEQ_INTERRUPTED, replies with LEQ_STOP_INTERRUPTED. */
LEQ_API void leq_cancel_request(leq_cancel* cancel);
LEQ_API void leq_cancel_reset(leq_cancel* cancel);
LEQ_API void leq_cancel_free(leq_cancel* cancel);

/* Progress, `done` of `total` in units of the work. Returning nonzero ends it: LEQ_INTERRUPTED. */
typedef int32_t (*leq_on_progress)(void* user, const char* work, int64_t done, int64_t total);

/* ---- Models ---- */

typedef int32_t leq_token;
typedef struct leq_model leq_model;

enum { LEQ_LOAD_AUTOMATIC = 0, LEQ_LOAD_MAP = 1, LEQ_LOAD_READ = 2 };

typedef struct leq_open_options {
  uint32_t size;
  int32_t load; /* LEQ_LOAD_...: map the file, or read it into huge pages */
  int32_t lock; /* nonzero: keep it in memory */
  int32_t reserved;
  /* The folder for conversions of GGUF files, which the next call finds there; NULL: that of the
   * tools, $XDG_CACHE_HOME/leq or ~/.cache/leq; "": none, they are kept in memory. */
  const char* cache;
  leq_on_progress on_progress; /* of a conversion */
  void* user;
} leq_open_options;

/* A .leq file, checked whole but for the planes of its tensors (leq_verify). A GGUF file is
 * converted with its own numbers, as leq-run does. */
LEQ_API leq_status leq_open(const char* path, const leq_open_options* options, leq_model** model,
                            leq_error* error);
/* A .leq file in memory; its bytes are copied. */
LEQ_API leq_status leq_open_memory(const void* bytes, size_t size, const leq_open_options* options,
                                   leq_model** model, leq_error* error);
LEQ_API void leq_close(leq_model* model); /* NULL is fine */

typedef struct leq_model_info {
  uint32_t size;
  int32_t layers;
  int64_t context; /* positions that the model was made for */
  int64_t vocab;   /* V, logits in a row */
  int64_t width;   /* W, numbers of an embedding */
  int64_t parameters;
  uint64_t file_bytes;
  double bits_per_weight;
  leq_token bos, eos;    /* -1: none */
  int32_t has_tokenizer; /* 0 or 1, as the next ones */
  int32_t adds_bos;
  int32_t has_chat_template;
  int32_t reserved;
} leq_model_info;
LEQ_API leq_status leq_model_get_info(const leq_model* model, leq_model_info* info,
                                      leq_error* error);
/* What leq-inspect prints of the file as JSON: configuration, tensors, provenance. */
LEQ_API leq_status leq_inspect(const leq_model* model, char** json, leq_error* error);
/* Compares the checksums of all tensors. */
LEQ_API leq_status leq_verify(const leq_model* model, leq_error* error);

/* ---- Text and tokens ---- */

enum {
  LEQ_PLAIN = 1, /* special tokens in the text are plain text */
  LEQ_NO_BOS = 2 /* without the token that the tokenizer puts in front */
};
/* Ids of a text of any bytes, as the tools make them of a prompt. */
LEQ_API leq_status leq_tokenize(const leq_model* model, const char* text, size_t bytes,
                                uint32_t flags, leq_token** tokens, size_t* count,
                                leq_error* error);
/* The bytes of a sequence, with a zero byte behind them; special tokens only where asked for. */
LEQ_API leq_status leq_detokenize(const leq_model* model, const leq_token* tokens, size_t count,
                                  int32_t with_special, char** text, size_t* bytes,
                                  leq_error* error);
/* A conversation as the model reads it. `request`: a JSON object with "messages" and, where wanted,
 * "tools", "add_generation_prompt", "chat_template_kwargs" ..., as /v1/chat/completions has them.
 * `text` and `tokens` may be NULL where one of them is not wanted. */
LEQ_API leq_status leq_apply_chat_template(const leq_model* model, const char* request,
                                           size_t bytes, char** text, size_t* text_bytes,
                                           leq_token** tokens, size_t* count, leq_error* error);

/* ---- Grammars: which texts a reply may be ---- */

typedef struct leq_grammar leq_grammar;
LEQ_API leq_status leq_grammar_from_gbnf(const char* text, size_t bytes, leq_grammar** grammar,
                                         leq_error* error);
/* Of a JSON schema. `strict`: keywords that cannot be held are an error; else they are left out. */
LEQ_API leq_status leq_grammar_from_schema(const char* text, size_t bytes, int32_t strict,
                                           leq_grammar** grammar, leq_error* error);
LEQ_API void leq_grammar_free(leq_grammar* grammar);

/* ---- Sessions: memory and threads to run a model ---- */

typedef struct leq_session leq_session;

enum { LEQ_NO_SPECULATION = 1 }; /* as speculate "off" */

typedef struct leq_session_options {
  uint32_t size;
  int32_t threads;          /* 0: one for each usable core */
  int64_t context;          /* positions in all sequences together; 0: min(the model's, 8192) */
  int64_t sequence_context; /* in one of them; 0: all, where one may take what others do not need */
  int32_t sequences;        /* replies written at once; 0: 1 */
  int32_t batch_tokens;     /* fed in one step; 0: 512 */
  int32_t logit_rows;       /* rows of leq_feed in one step; 0: few, LEQ_ALL_LOGITS takes longer */
  uint32_t flags;           /* LEQ_NO_SPECULATION */
  const char* key_type;     /* "f32", "f16", "int8", ...; NULL: as the file was made for */
  const char* value_type;
  const char* device; /* NULL: "cpu" */
  /* What guesses tokens, which changes no reply: "ngram" (what followed the same text earlier),
   * "mtp" (the model's head of multi-token prediction), "auto" (both, as far as the model has a
   * head) or "off"; NULL: auto */
  const char* speculate;
} leq_session_options;

LEQ_API leq_status leq_session_new(leq_model* model, const leq_session_options* options,
                                   leq_session** session, leq_error* error);
/* Ends what other threads still write on it, as interrupted; they must have returned before. */
LEQ_API void leq_session_close(leq_session* session);

typedef struct leq_memory_plan {
  uint32_t size;
  uint32_t reserved;
  int64_t context; /* as the options resolve to */
  /* kv_bytes: with the states of Gated DeltaNet */
  uint64_t weight_bytes, kv_bytes, scratch_bytes, total_bytes;
  uint64_t available_bytes; /* on this machine now; 0: unknown */
} leq_memory_plan;
/* The bytes that a session will take, to the byte, from the file's header: before anything is
 * loaded. */
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

/* What a step added to one of the replies. */
typedef struct leq_piece {
  uint32_t size;
  uint32_t reserved;
  size_t reply;     /* which of them */
  const char* text; /* whole characters; valid during the call */
  size_t text_bytes;
  const leq_token* tokens;
  size_t token_count;
  const float* logprobs; /* [token_count], where they were asked for; else NULL */
} leq_piece;
/* Called for every piece, and with NULL at least ten times a second while there is none. Nonzero
 * ends all replies of the call. */
typedef int32_t (*leq_on_piece)(void* user, const leq_piece* piece);

typedef struct leq_generate_options {
  uint32_t size;
  int32_t logprobs;   /* n: of each token, and of the n most probable ones in its place; 0: none */
  int64_t max_tokens; /* 0: until the model ends or the context is full */
  /* A JSON object: "temperature", "top_k", "top_p", "min_p", "seed", "stop", "logit_bias",
   * "ignore_eos" and whatever else docs/sampling.md lists; NULL: the model's defaults. Without a
   * seed a random one is drawn. */
  const char* settings;
  const leq_grammar* grammar;
  const leq_cancel* cancel;
  leq_on_piece on_piece;
  void* user;
  int32_t receipts; /* nonzero: leq_reply.receipt, which a grammar or `act online` excludes */
  int32_t reserved;
} leq_generate_options;

typedef struct leq_replies leq_replies;
/* One reply to each prompt, written together as far as the session has sequences; each is what it
 * would be alone. prompts[i] has counts[i] tokens. Returns the first error of a reply; `replies` is
 * there all the same where prompts were taken at all. A reply that was cancelled is no error. */
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
  const char* stop_string; /* the one that was found, or "" */
  const char* failure;     /* why it failed, or "" */
  int64_t cached_tokens;   /* of the prompt, which were there already */
  int64_t fed_tokens;      /* of the prompt, fed now */
  double prompt_seconds, reply_seconds;
  uint64_t seed;            /* that its tokens were drawn with */
  const float* logprobs;    /* [logprob_count], natural logarithms; NULL where none were wanted */
  size_t logprob_count;     /* token_count, and one more for an end token */
  size_t top_count;         /* n */
  const leq_token* top_ids; /* [logprob_count][n], the most probable first */
  const float* top_logprobs;
  const char* receipt; /* JSON, as leq-run writes it (docs/receipts.md); NULL: not wanted */
} leq_reply;
LEQ_API leq_status leq_replies_at(const leq_replies* replies, size_t index, leq_reply* reply,
                                  leq_error* error);

typedef struct leq_receipt_check {
  uint32_t size;
  int32_t same;    /* nonzero: the reply and its logits are those of the receipt */
  size_t place;    /* of the first token that differs */
  int32_t logits;  /* nonzero: not the tokens differ there but the logits before it */
  leq_token found; /* -1: the reply ends there */
  leq_token expected;
  int32_t reserved;
} leq_receipt_check;
/* Generates the reply of a receipt again. Empties the session's cache, and is LEQ_MISUSE while
 * another thread has a call in work. */
LEQ_API leq_status leq_check_receipt(leq_session* session, const char* receipt, size_t bytes,
                                     leq_receipt_check* result, leq_error* error);

/* ---- Requests as JSON ---- */

/* One event of a stream, a JSON object of "object": "chat.completion.chunk"; NULL at least ten
 * times a second while there is none. Nonzero ends the reply. */
typedef int32_t (*leq_on_event)(void* user, const char* json, size_t bytes);

typedef struct leq_request_options {
  uint32_t size;
  uint32_t reserved;
  const leq_cancel* cancel;
  leq_on_event on_event;
  void* user;
} leq_request_options;

/* What leq-server answers to /v1/chat/completions and /v1/completions: tools, schemas, several
 * choices, log probabilities (docs/server.md). With "stream": true the events go to on_event and
 * `reply` is NULL; else it is the whole reply. */
LEQ_API leq_status leq_chat_completion(leq_session* session, const char* request, size_t bytes,
                                       const leq_request_options* options, char** reply,
                                       leq_error* error);
LEQ_API leq_status leq_completion(leq_session* session, const char* request, size_t bytes,
                                  const leq_request_options* options, char** reply,
                                  leq_error* error);

/* ---- Embeddings ---- */

/* The mean over the tokens of the normed last hidden states; `numbers` has room for `width`, which
 * is the model's. */
LEQ_API leq_status leq_embed(leq_session* session, const leq_token* tokens, size_t count,
                             float* numbers, size_t width, leq_error* error);

/* ---- Prompts in files ---- */

/* Keys and values of the longest beginning of `tokens` that the session has fed, as leq_generate
 * left it; `kept`: of how many tokens. The file appears whole or not at all. */
LEQ_API leq_status leq_save_state(leq_session* session, const leq_token* tokens, size_t count,
                                  const char* path, size_t* kept, leq_error* error);
/* From now on prompts that begin so need not feed it again; their replies are the same. */
LEQ_API leq_status leq_load_state(leq_session* session, const char* path, size_t* kept,
                                  leq_error* error);

/* ---- Token by token ----
 * A session is used in one of two ways: by the calls above, or by leq_feed. Changing from one to
 * the other empties its cache. While another thread has a call above in work leq_feed is
 * LEQ_MISUSE. */

enum { LEQ_LAST_LOGITS = 0, LEQ_ALL_LOGITS = 1, LEQ_NO_LOGITS = 2 };

/* Rows of logits [rows][V], f32, on the host: they stay as they are until they are freed. */
typedef struct leq_logits leq_logits;
LEQ_API const float* leq_logits_data(const leq_logits* logits);
LEQ_API size_t leq_logits_rows(const leq_logits* logits);
LEQ_API size_t leq_logits_columns(const leq_logits* logits);
LEQ_API void leq_logits_free(leq_logits* logits);

/* Appends tokens to what was fed. `logits` may be NULL with LEQ_NO_LOGITS. After an error nothing
 * was fed. */
LEQ_API leq_status leq_feed(leq_session* session, const leq_token* tokens, size_t count,
                            int32_t which, leq_logits** logits, leq_error* error);
LEQ_API size_t leq_position(const leq_session* session); /* tokens that were fed; 0 of NULL */
/* Forgets all from `position` on; `left` may be less, 0 at the worst, where the cache has lost what
 * the next token would read: what is missing is to be fed again. */
LEQ_API leq_status leq_rewind(leq_session* session, size_t position, size_t* left,
                              leq_error* error);
/* Draws a token from a row of V logits by settings as in leq_generate_options, which must have a
 * seed unless the temperature is 0. `context`: the tokens before it, for penalties; `index`: its
 * place in the reply. A reply that is drawn so is that of leq_generate. */
LEQ_API leq_status leq_sample(const leq_model* model, const float* row, size_t columns,
                              const leq_token* context, size_t count, uint32_t index,
                              const char* settings, leq_token* token, leq_error* error);

/* ---- Measuring ---- */

typedef struct leq_perplexity_options {
  uint32_t size;
  int32_t threads;
  const char* protocol; /* "hf" (NULL), "hf-stride" or "llamacpp-512" */
  const char* join;     /* "hf" or "none": how the text's rows are joined; NULL: the protocol's */
  int64_t window;       /* tokens; 0: the model's context, at most 2048 */
  int64_t stride;       /* hf-stride's; 0: 512, or half of a window below 1024 */
  int64_t chunks;       /* the first windows only; 0: all */
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
/* As leq-perplexity measures it, in memory of its own. */
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
/* KL divergence of a model from its base, side by side on the same windows. */
LEQ_API leq_status leq_divergence(leq_model* base, leq_model* model, const char* text, size_t bytes,
                                  const leq_perplexity_options* options,
                                  leq_divergence_result* result, leq_error* error);

/* ---- Quantizing ---- */

/* A line of text for users about what is being done. */
typedef void (*leq_on_line)(void* user, const char* line);

typedef struct leq_quantize_options {
  uint32_t size;
  int32_t threads;
  /* "q8", "q4", "auto". NULL, where neither method nor type is given: codes of a GGUF file or of a
   * quantized checkpoint are kept, anything else is quantized by q8. */
  const char* recipe;
  const char* method;      /* "absmax", "gptq+", ...; NULL: absmax */
  const char* type;        /* "int8", "int4-g128", ...; NULL: the method's */
  const char* calibration; /* text in UTF-8; NULL: the built-in one */
  size_t calibration_bytes;
  int64_t samples; /* windows of calibration text; 0: 128, or as many as the recipe takes */
  int64_t length;  /* tokens in one; 0: 512 */
  int64_t seed;
  int32_t judge; /* nonzero: measure KL divergence from the checkpoint at the end */
  /* nonzero: remove what an interrupted run left; 0: continue it, or refuse where settings differ
   */
  int32_t restart;
  const leq_cancel* cancel;
  leq_on_progress on_progress;
  leq_on_line on_line;
  void* user;
  double target_bpw; /* recipe auto: bits of a weight, scales included; 0: 4.25 */
} leq_quantize_options;

typedef struct leq_quantize_result {
  uint32_t size;
  int32_t judged; /* whether `kl` was measured */
  uint64_t file_bytes;
  int64_t parameters;
  double bits_per_weight;
  double worst_error; /* relative squared error of one tensor's weights */
  double kl;          /* nats */
} leq_quantize_result;
/* A Hugging Face folder or a GGUF file to a .leq file, complete or not at all. */
LEQ_API leq_status leq_quantize(const char* checkpoint, const char* output,
                                const leq_quantize_options* options, leq_quantize_result* result,
                                leq_error* error);

#ifdef __cplusplus
}
#endif

#endif /* LEQ_H */
