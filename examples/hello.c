/* The C API in a page:  hello_c model.leq "Once upon a time"
 * Completes a text as it comes, and ends at the first token that the caller does not want. */
#include <leq.h>
#include <stdio.h>
#include <string.h>

/* Pieces come on the thread that asked for the reply; nonzero would end it. */
static int32_t show(void* user, const leq_piece* piece) {
  (void)user;
  if (piece != NULL) fwrite(piece->text, 1, piece->text_bytes, stdout);
  return fflush(stdout);
}

static leq_status complete(leq_session* session, leq_model* model, const char* prompt,
                           leq_error* error) {
  leq_token* tokens = NULL;
  size_t count = 0;
  leq_status status = leq_tokenize(model, prompt, strlen(prompt), 0, &tokens, &count, error);
  if (status != LEQ_OK) return status;

  leq_generate_options options = {sizeof options};
  options.max_tokens = 64;
  options.settings = "{\"temperature\": 0}";
  options.on_piece = show;
  leq_replies* replies = NULL;
  const leq_token* prompts[] = {tokens};
  printf("%s", prompt);
  status = leq_generate(session, prompts, &count, 1, &options, &replies, error);
  printf("\n");
  leq_replies_free(replies);
  leq_free(tokens);
  return status;
}

int main(int argc, char** argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: hello_c MODEL.leq PROMPT\n");
    return 2;
  }
  leq_error error = {sizeof error};
  leq_model* model = NULL;
  leq_session* session = NULL;
  leq_session_options options = {sizeof options};
  options.context = 512;
  leq_status status = leq_open(argv[1], NULL, &model, &error);
  if (status == LEQ_OK) status = leq_session_new(model, &options, &session, &error);
  if (status == LEQ_OK) status = complete(session, model, argv[2], &error);
  if (status != LEQ_OK) fprintf(stderr, "hello_c: %s: %s\n", leq_status_name(status), error.text);
  leq_session_close(session);
  leq_close(model);
  return status == LEQ_OK ? 0 : 1;
}
