// A model behind HTTP: engine, paths and connections put together.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "engine/engine.h"
#include "model/session.h"
#include "server/api.h"
#include "server/engine_thread.h"
#include "server/http_server.h"

namespace leq {

struct ServerOptions {
  HttpOptions http;  // `workers` is set by the server
  AccessRules access;
  EngineOptions engine;
  std::string name;  // of the model, for clients; empty: that of its file
  // For requests that say nothing of it:
  SamplingSettings sampling;
  std::optional<std::uint64_t> seed;
  std::int64_t max_tokens = -1;
  std::string chat_template;  // the name of a format; empty: the model's own template
  bool enable_thinking = true;
  std::int64_t thought_tokens = -1;  // most tokens of thoughts; -1: any number
  std::string thought_words = std::string(kThoughtWords);  // said where they end for that
  std::size_t most_waiting = 64;       // replies, beside those in work; more are refused
  std::optional<double> most_seconds;  // that a reply may take
  double ping_seconds = 15;            // in which a stream's client hears something
  bool with_page = true, with_metrics = true, with_slots = true;
  // A folder for what slots save, and for the texts that are kept from one run to the next.
  std::optional<std::filesystem::path> slot_folder;
  // Lines for people: what of these texts was read and written, marked as errors are.
  std::function<void(const std::string& line)> say = [](const std::string&) {};
};

class Server {
 public:
  // Listens once it is there. `model` and `session` must outlive it, and no one else may use the
  // session. Throws Error on settings that make no sense, and where the address is not to be had.
  Server(const Model& model, Session& session, const ServerOptions& options);
  // As stop(0).
  ~Server();

  int port() const { return http_->port(); }
  // Why the model cannot be asked for chats; empty where it can.
  const std::string& chat_error() const { return chat_error_; }
  // What ended the engine on its own, null while all is well.
  std::optional<std::string> failure() const { return engine_.failure(); }
  HttpServer::Counts connections() const { return http_->counts(); }

  // Takes no more requests. Those in work are written to their ends, for at most so many seconds;
  // then they are interrupted. The texts that are kept go to the slots' folder, where there is one.
  void stop(double seconds);

 private:
  static ApiModel api_model(const Model& model, const RunLimits& limits,
                            const ServerOptions& options, const ChatTemplate* chat,
                            const std::string& chat_error);

  void read_kept();
  void write_kept();

  std::function<void(const std::string&)> say_;
  std::optional<SlotFiles> slot_files_;  // until kept texts are written
  std::string chat_error_;
  std::optional<ChatTemplate> chat_;
  GrammarStore grammars_;
  ApiModel model_;
  EngineThread engine_;
  Api api_;
  std::unique_ptr<HttpServer> http_;
};

}  // namespace leq
