// Answers a generation request with the engine's replies (request.h).
#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <random>
#include <utility>

#include "base/stopwatch.h"
#include "runtime/engine_thread.h"
#include "server/dialects.h"

namespace leq {
namespace {

// Interval at which a thread that waits for tokens checks whether the client is still connected.
constexpr double kLookSeconds = 0.1;

std::uint64_t random_bits() {
  std::random_device device;
  return std::uint64_t{device()} << 32 | device();
}

std::unique_ptr<ReplyWriter> writer_of(const GenerationCall& call, const ApiModel& model) {
  switch (call.style) {
    case CallStyle::responses:
      return responses_writer(call, model);
    case CallStyle::messages:
      return messages_writer(call, model);
    case CallStyle::ollama_chat:
    case CallStyle::ollama_generate:
      return ollama_writer(call, model);
    case CallStyle::chat:
    case CallStyle::text:
    case CallStyle::native:
      break;
  }
  return openai_writer(call, model);
}

// Reads a custom tool's input, which the model writes as {"input": "..."}, from pieces of that.
class InputReader {
 public:
  std::string push(std::string_view piece) {
    held_ += piece;
    if (!begun_) {
      const std::size_t quote = held_.find('"', std::min(held_.find(':'), held_.size()));
      if (quote == std::string::npos) return "";
      held_.erase(0, quote + 1);
      begun_ = true;
    }
    std::size_t whole = 0;  // bytes before the end of the text, or before an escape that is open
    while (!ended_ && whole < held_.size()) {
      const std::string_view rest = std::string_view(held_).substr(whole);
      ended_ = rest[0] == '"';
      constexpr std::string_view kHighSurrogates = "89abAB";
      std::size_t bytes = rest[0] != '\\' ? 1 : rest.substr(1, 1) == "u" ? 6 : 2;
      const bool is_pair = bytes == 6 && rest.size() > 3 && (rest[2] == 'd' || rest[2] == 'D') &&
                           kHighSurrogates.find(rest[3]) != std::string_view::npos;
      if (is_pair) bytes = 12;
      if (ended_ || rest.size() < bytes) break;
      whole += bytes;
    }
    const std::string text = '"' + held_.substr(0, whole) + '"';
    held_.erase(0, ended_ ? held_.size() : whole);
    return parse_json(text, "the input").text();
  }

 private:
  std::string held_;
  bool begun_ = false, ended_ = false;
};

// The replies of one call while they are generated.
class Generation {
 public:
  Generation(HttpExchange& exchange, GenerationCall call, const ApiModel& model,
             EngineThread& engine)
      : exchange_(exchange),
        call_(std::move(call)),
        model_(model),
        engine_(engine),
        writer_(writer_of(call_, model)) {}

  void answer(const ReplyTimes& times) {
    make_choices();
    EngineCall wanted = engine_call(times.most_seconds);
    const std::shared_ptr<Mailbox> mailbox = wanted.mailbox;
    const std::vector<RequestId> ids = engine_.submit(std::move(wanted));
    try {
      write_all(times, *mailbox);
    } catch (const Error& error) {
      engine_.cancel(ids);
      if (!call_.stream || !is_connected_) throw;
      error_ = error;
    } catch (...) {
      engine_.cancel(ids);
      throw;
    }
    if (ended_ < choices_.size()) engine_.cancel(ids);
    const TokenCounts counts = writer_->count_tokens(choices_);
    exchange_.facts.prompt_tokens = counts.prompt;
    exchange_.facts.cached_tokens = counts.cached;
    for (const Choice& choice : choices_) exchange_.facts.reply_tokens += std::ssize(choice.tokens);
    if (!is_connected_) {
      if (call_.stream) return;
      throw ApiError(503, "the client went away", "");  // it cannot be told
    }
    if (error_ && !call_.stream) throw *error_;
    if (!call_.stream) {
      HttpReply reply = head();
      reply.body = writer_->whole(choices_);
      return exchange_.reply(reply);
    }
    write(error_ ? writer_->failed(*error_) : writer_->finish(choices_));
    exchange_.end_stream();
  }

 private:
  // Runs until all replies have ended, one has failed, or the client has disconnected.
  void write_all(const ReplyTimes& times, Mailbox& mailbox) {
    is_connected_ = !call_.stream || begin_stream();
    is_connected_ = is_connected_ && echo();
    while (is_connected_ && ended_ < choices_.size() && !error_) {
      for (ReplyUpdate& update : mailbox.take(kLookSeconds)) {
        is_connected_ = is_connected_ && take(std::move(update));
      }
      is_connected_ = is_connected_ && exchange_.client_is_there();
      if (is_connected_ && call_.stream && since_write_.seconds() >= times.ping_seconds) {
        is_connected_ = write(writer_->ping());
      }
    }
  }

  HttpReply head() const {
    HttpReply head;
    add_warning_header(head, call_.notes);
    return head;
  }

  EngineCall engine_call(std::optional<double> most_seconds) const {
    EngineCall wanted;
    if (call_.top_logprobs >= 0) wanted.top_logprobs = call_.top_logprobs;
    wanted.slot = call_.slot;
    SamplingSettings sampling = call_.sampling;
    if (!call_.has_seed) sampling.seed = random_bits();
    for (const std::vector<Token>& prompt : call_.prompts) {
      for (std::uint32_t choice = 0; choice < call_.choices; ++choice) {
        EngineRequest request;
        request.prompt = prompt;
        request.sampling = sampling;
        request.banned = call_.banned;
        request.stop = call_.stop;
        request.choice = choice;
        request.grammar = call_.grammar;
        request.shown = call_.shown;
        request.seconds = most_seconds;
        request.reasoning = call_.reasoning;
        wanted.requests.push_back(std::move(request));
      }
    }
    return wanted;
  }

  void make_choices() {
    for (std::size_t prompt = 0; prompt < call_.prompts.size(); ++prompt) {
      for (std::uint32_t i = 0; i < call_.choices; ++i) {
        Choice choice;
        choice.index = choices_.size();
        choice.prompt = prompt;
        if (call_.use == ReplyUse::read) {
          readers_.emplace_back(call_.reading, call_.prompt_texts[prompt], call_.with_tools,
                                call_.tools);
        }
        choices_.push_back(std::move(choice));
      }
    }
  }

  bool begin_stream() {
    HttpReply begun = head();
    begun.type = writer_->stream_type();
    begun.headers.emplace_back("Cache-Control", "no-cache");
    return exchange_.begin_stream(begun) && write(writer_->begin(choices_));
  }

  // Prepends the prompts to their replies, with the log probabilities of the prompts' tokens if
  // requested.
  bool echo() {
    if (!call_.echo) return true;
    std::vector<TokenLogprobs> logprobs;
    return std::ranges::all_of(choices_, [&](Choice& choice) {
      const std::vector<Token>& prompt = call_.prompts[choice.prompt];
      const bool is_new = choice.index % call_.choices == 0;
      if (call_.top_logprobs >= 0 && is_new) logprobs = prompt_logprobs(prompt);
      ChoicePiece piece;
      piece.content = model_.tokenizer.decode(prompt, false);
      piece.logprobs = placed(choice, logprobs, model_.tokenizer.strips_leading_space());
      return add(choice, piece);
    });
  }

  bool take(ReplyUpdate update) {
    Choice& choice = choices_[update.reply];
    if (!add(choice, read(update.reply, update))) return false;
    if (!update.end) return true;
    choice.end = std::move(*update.end);
    ++ended_;
    if (choice.end.stopped == StopReason::interrupted) {
      const std::string note = engine_.draining() ? "the server's shutdown ended the reply"
                                                  : "the server's time limit ended the reply";
      if (std::ranges::find(call_.notes, note) == call_.notes.end()) call_.notes.push_back(note);
    }
    if (choice.end.stopped == StopReason::failed) {
      error_ = choice.end.error ? *choice.end.error : Error("the reply failed");
      return true;
    }
    return finish(choice);
  }

  // `drop_space`: decoding these tokens removes a space at their beginning.
  std::vector<PlacedLogprobs> placed(Choice& choice, const std::vector<TokenLogprobs>& tokens,
                                     bool drop_space) {
    std::vector<PlacedLogprobs> all;
    for (const TokenLogprobs& token : tokens) {
      std::string text = model_.tokenizer.token_bytes(token.id);
      if (drop_space && text.starts_with(' ')) text.erase(0, 1);
      drop_space = drop_space && model_.tokenizer.token_bytes(token.id).empty();
      const std::int64_t characters = characters_begun(text);
      all.push_back({token, std::move(text), choice.logprob_characters});
      choice.logprob_characters += characters;
    }
    return all;
  }

  // Splits the text of one step into content, reasoning and calls.
  ChoicePiece read(std::size_t index, const ReplyUpdate& update) {
    ChoicePiece piece;
    piece.logprobs = placed(choices_[index], update.logprobs, false);
    piece.tokens = update.tokens;
    if (call_.use == ReplyUse::plain) {
      piece.content = update.text;
    } else {
      static_cast<ReplyPiece&>(piece) = readers_[index].push(update.text);
    }
    return piece;
  }

  // Adds the piece to the choice and sends it to the client of a stream.
  bool add(Choice& choice, ChoicePiece piece) {
    const std::size_t known = choice.content.size();
    choice.reasoning += piece.reasoning;
    choice.content += piece.content;
    for (ToolCallPiece& call : piece.calls) {
      if (call.index >= choice.calls.size()) {
        choice.calls.resize(call.index + 1);
        choice.calls.back().id = "call_" + random_id();
        choice.calls.back().name = call.name;
        choice.calls.back().after = known + call.after;
        const auto alias = std::ranges::find(call_.aliases, call.name, &ToolAlias::shown);
        if (alias != call_.aliases.end()) choice.calls.back().alias = &*alias;
      }
      if (choice.calls[call.index].is_custom()) {
        call.arguments = inputs_[{choice.index, call.index}].push(call.arguments);
      }
      choice.calls[call.index].arguments += call.arguments;
    }
    choice.tokens.insert(choice.tokens.end(), piece.tokens.begin(), piece.tokens.end());
    choice.logprobs.insert(choice.logprobs.end(), piece.logprobs.begin(), piece.logprobs.end());
    const bool has_more = !piece.empty() || (call_.top_logprobs >= 0 && !piece.logprobs.empty());
    const bool sent = !call_.stream || !has_more || write(writer_->more(choice, piece));
    count_reasoning(choice, piece);
    return sent;
  }

  // Tokens whose text is held back, such as line ends, are of the part that comes next.
  static void count_reasoning(Choice& choice, const ChoicePiece& piece) {
    choice.held_tokens += std::ssize(piece.tokens);
    if (piece.empty()) return;
    const bool is_reasoning = piece.content.empty() && piece.calls.empty();
    if (is_reasoning) choice.reasoning_tokens += choice.held_tokens;
    choice.held_tokens = 0;
  }

  bool finish(Choice& choice) {
    ChoicePiece rest;
    if (call_.use != ReplyUse::plain) {
      static_cast<ReplyPiece&>(rest) = readers_[choice.index].finish();
    }
    if (!add(choice, rest)) return false;
    if (!choice.reasoning.empty() && choice.content.empty() && choice.calls.empty()) {
      choice.reasoning_tokens += choice.held_tokens;  // the reply ended in its reasoning
    }
    return !call_.stream || write(writer_->end(choice));
  }

  // The first token has no context, so its log probability is NaN.
  std::vector<TokenLogprobs> prompt_logprobs(const std::vector<Token>& prompt) {
    EmbeddedText text = {.tokens = prompt, .top = call_.top_logprobs};
    feed_text(engine_, text);
    TokenLogprobs first;
    first.id = prompt.front();
    first.logprob = std::numeric_limits<float>::quiet_NaN();
    std::vector<TokenLogprobs> all = {first};
    std::ranges::move(text.logprobs, std::back_inserter(all));
    return all;
  }

  bool write(std::string_view events) {
    if (events.empty()) return true;
    since_write_.restart();
    return exchange_.write(events);
  }

  HttpExchange& exchange_;
  GenerationCall call_;
  const ApiModel& model_;
  EngineThread& engine_;
  std::unique_ptr<ReplyWriter> writer_;
  Stopwatch since_write_;
  bool is_connected_ = false;
  std::vector<Choice> choices_;
  std::vector<ReplyReader> readers_;                                   // one per choice of a chat
  std::map<std::pair<std::size_t, std::size_t>, InputReader> inputs_;  // by choice and call
  std::size_t ended_ = 0;
  std::optional<Error> error_;
};

}  // namespace

void answer_generation(HttpExchange& exchange, GenerationCall call, const ApiModel& model,
                       EngineThread& engine, const ReplyTimes& times) {
  for (const std::vector<Token>& prompt : call.prompts) {
    if (std::ssize(prompt) < engine.context()) continue;
    throw ApiError(400,
                   "the prompt has " + std::to_string(prompt.size()) +
                       " tokens, which leaves no room for a reply in a context of " +
                       std::to_string(engine.context()),
                   "context_length_exceeded");
  }
  for (std::string& note : call.notes) note = spelled(note);
  Generation(exchange, std::move(call), model, engine).answer(times);
}

void feed_text(EngineThread& engine, EmbeddedText& text) {
  const auto chunk = [&](Engine& one) {
    if (!engine.is_over()) return one.embed_chunk(text);
    one.drop_text(text);
    throw Busy("the server is shutting down", true);
  };
  engine.with_idle_sequence(chunk);
  while (!text.done()) engine.between_steps(chunk);
}

}  // namespace leq
