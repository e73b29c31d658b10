#include "quantize/run/block_run.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backend/layout.h"
#include "base/error.h"
#include "base/text.h"
#include "model/linear_sites.h"
#include "model/memory_plan.h"
#include "model/weights.h"
#include "quantize/rewrites/fold.h"
#include "ranks/communicator.h"

namespace leq {

std::vector<std::string> parts_of(const LinearSite& site) {
  std::vector<std::string> parts;
  for (const LinearSpec& weight : site.coded_weights()) parts.push_back(weight.name);
  return parts;
}

std::size_t site_of(std::span<const LinearSite> sites, std::string_view part) {
  for (std::size_t i = 0; i < sites.size(); ++i) {
    if (std::ranges::find(sites[i].weights, part, &LinearSpec::name) != sites[i].weights.end()) {
      return i;
    }
  }
  fail(ErrorKind::internal, "layer: no linear ", part);
}

std::vector<std::vector<std::size_t>> stages_of(std::span<const LinearSite> sites) {
  std::vector<std::vector<std::size_t>> stages;
  for (std::size_t i = 0; i < sites.size(); ++i) {
    const bool same_block = i > 0 && sites[i].block_name() == sites[i - 1].block_name();
    if (!same_block) stages.emplace_back();
    stages.back().push_back(i);
  }
  return stages;
}

std::vector<std::size_t> all_sites(std::span<const LinearSite> sites) {
  std::vector<std::size_t> all(sites.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  return all;
}

namespace {

// The layer whose keys and values the layer reads; -1: it has its own.
std::int64_t owner_of(const ModelConfig& config, std::int64_t layer) {
  const AttentionConfig* attention = config.layer(layer).attention();
  return attention != nullptr ? attention->kv_of : -1;
}

// The layer as a model, and after it the one whose keys it reads.
ModelConfig one_block(ModelConfig config, std::int64_t layer, std::int64_t length) {
  const std::int64_t owner = owner_of(config, layer);
  std::vector<LayerConfig> layers = {config.layer(layer)};
  if (owner >= 0) {
    layers.push_back(config.layer(owner));
    layers[0].attention()->kv_of = 1;
  }
  config.layers = std::move(layers);
  config.mtp.reset();
  config.vocab = config.layer_input > 0 ? length : 1;  // rows of a window's tokens
  config.tied = true;
  config.embedding_projection = false;
  if (config.learned_positions) config.context = 1;  // only a placeholder row
  return config;
}

KvShape cache_shape(const ModelConfig& config, std::int64_t length) {
  const AttentionConfig* attention = config.layer(0).attention();
  const auto [kv_heads, head_dim] = config.kv_heads_of(attention ? *attention : AttentionConfig());
  return {1, static_cast<int>(kv_heads), static_cast<int>(head_dim), kExactKv, kExactKv, length, 1};
}

// Fixed states for a single sequence without checkpoints.
std::unique_ptr<FixedStates> block_states(DeviceMemory& memory, const ModelConfig& config) {
  RunLimits limits;
  limits.kept_states = 0;
  return make_fixed_states(memory, config, limits, place_of(config, 0, 1).own());
}

ForwardLimits forward_limits_of(std::int64_t length) { return {length, 1, length}; }

StoredTensor stored(const std::string& name, const Shape& shape, const std::vector<float>& values) {
  StoredTensor tensor;
  tensor.name = name;
  tensor.shape = shape;
  tensor.view.rows = shape.size() == 2 ? shape[0] : 1;
  tensor.view.columns = shape.back();
  tensor.view.codes = reinterpret_cast<const std::byte*>(values.data());
  return tensor;
}

TensorFinder finder(const std::map<std::string, StoredTensor, std::less<>>& tensors) {
  return [&tensors](std::string_view name) -> const StoredTensor* {
    const auto found = tensors.find(name);
    return found == tensors.end() ? nullptr : &found->second;
  };
}

}  // namespace

BlockRun::BlockRun(const ModelConfig& config, std::int64_t layer, const BlockTensors& block,
                   Backend& backend, std::int64_t length, const BlockSource* source)
    : zeros_(static_cast<std::size_t>(config.width)),
      config_(one_block(config, layer, length)),
      layer_(layer),
      source_(source),
      sites_(linear_sites(config_, 0)),
      weights_(bind(block, owner_of(config, layer), backend)),
      cache_(backend.memory(), backend.layout(), cache_shape(config_, length)),
      states_(block_states(backend.memory(), config_)),
      transformer_(config_, weights_, backend, forward_limits_of(length)) {}

void BlockRun::add(std::int64_t place, const BlockTensors& block) {
  std::map<std::string, Shape> shapes;
  for (const TensorSpec& spec : layer_tensors(config_, place)) shapes[spec.name] = spec.shape;
  for (const auto& [part, matrix] : block.parts) {
    const auto known = shapes.find(part);  // absent: inv_smooth or key_mean
    const std::string name = layer_tensor(place, part);
    const Shape shape = known != shapes.end() ? known->second : Shape{matrix.columns};
    tensors_[name] = stored(name, shape, matrix.values);
  }
}

Weights BlockRun::bind(const BlockTensors& block, std::int64_t owner, Backend& backend) {
  add(0, block);
  ensure(source_ != nullptr || (owner < 0 && config_.layer_input == 0),
         "block: a layer that does not run alone has no source");
  if (owner >= 0) {
    owner_ = source_->load(owner);
    add(1, owner_);
  }
  zeros_.resize(static_cast<std::size_t>(config_.vocab * config_.width));
  for (const char* name : {"token_embedding", "position_embedding"}) {
    tensors_[name] = stored(name, {config_.vocab, config_.width}, zeros_);
  }
  if (const std::int64_t numbers = config_.layer_input; numbers > 0) {
    const std::int64_t all = config_.layer_count() * numbers;
    rows_.resize(static_cast<std::size_t>(config_.vocab * all));
    tensors_["layer_embedding"] = stored("layer_embedding", {config_.vocab, all}, rows_);
    projection_.resize(static_cast<std::size_t>(all * config_.width));
    source_->read("layer_projection", layer_ * numbers, numbers,
                  std::span(projection_).first(static_cast<std::size_t>(numbers * config_.width)));
    tensors_["layer_projection"] = stored("layer_projection", {all, config_.width}, projection_);
    projection_norm_.resize(static_cast<std::size_t>(numbers));
    source_->read("layer_projection_norm", 0, numbers, projection_norm_);
    tensors_["layer_projection_norm"] =
        stored("layer_projection_norm", {numbers}, projection_norm_);
  }
  for (const char* name : {"final_norm", "final_norm.bias"}) {
    tensors_[name] = stored(name, {config_.width}, zeros_);
  }
  return bind_weights(finder(tensors_), "block", config_, backend.memory());
}

bool BlockRun::run(Sublayer which, std::span<float> hidden, Observer* observer) {
  transformer_.observe(observer);
  const BesideStream beside = {
      which == Sublayer::mixer ? std::span(owner_hidden_) : std::span<float>(),
      which == Sublayer::mlp && config_.layer_input > 0};
  return transformer_.run_sublayer(which, 0, hidden, {cache_, states_.get()}, beside);
}

void BlockRun::start(std::span<const Token> tokens, const HiddenStates* owner,
                     std::int64_t window) {
  if (owner != nullptr) {
    owner_hidden_.resize(static_cast<std::size_t>(owner->numbers()));
    owner->read(window, owner_hidden_);
  }
  const auto numbers = static_cast<std::size_t>(config_.layer_input);
  if (numbers == 0) return;
  const auto width = static_cast<std::size_t>(config_.width);
  const std::size_t stride = numbers * config_.layers.size();
  std::vector<float> all(static_cast<std::size_t>(source_->columns("layer_embedding")));
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    source_->read("token_embedding", tokens[t], 1, std::span(zeros_).subspan(t * width, width));
    source_->read("layer_embedding", tokens[t], 1, all);
    std::copy_n(all.data() + static_cast<std::size_t>(layer_) * numbers, numbers,
                rows_.data() + t * stride);
  }
}

std::uint64_t BlockRun::bytes(const ModelConfig& config, std::int64_t layer, const Layout& layout,
                              std::int64_t length) {
  const ModelConfig one = one_block(config, layer, length);
  // Placeholder weights are used, because only their sizes matter here; all linears read f32 rows.
  std::map<std::string, StoredTensor, std::less<>> tensors;
  std::vector<float> zeros;
  for (const TensorSpec& spec : tensor_list(one)) {
    if (spec.shape.size() == 1) {
      zeros.resize(std::max(zeros.size(), static_cast<std::size_t>(spec.shape[0])));
    }
  }
  for (const TensorSpec& spec : tensor_list(one)) {
    tensors[spec.name] = stored(spec.name, spec.shape, zeros);
  }
  CountingMemory of_weights(layout), memory(layout);
  const Weights weights = bind_weights(finder(tensors), "block", one, of_weights);
  const KvCache cache(memory, layout, cache_shape(one, length));
  const auto states = block_states(memory, one);
  const Workspace work(one, weights, memory, layout, forward_limits_of(length),
                       place_of(one, 0, 1));
  return memory.allocated();
}

Matrix matrix_of(const Shape& shape) {
  Matrix matrix;
  matrix.rows = shape.size() == 2 ? shape[0] : 1;
  matrix.columns = shape.back();
  matrix.values.resize(static_cast<std::size_t>(matrix.rows * matrix.columns));
  return matrix;
}

BlockSource::BlockSource(const ModelConfig& config, std::span<const TensorInput> tensors)
    : config_(config) {
  for (const TensorInput& tensor : tensors) tensors_[tensor.name] = &tensor;
}

void BlockSource::read(std::string_view name, std::int64_t row, std::int64_t rows,
                       std::span<float> out) const {
  tensors_.find(name)->second->read(row, rows, out);
}

std::int64_t BlockSource::columns(std::string_view name) const {
  return tensors_.find(name)->second->shape.back();
}

BlockTensors BlockSource::load(std::int64_t layer) const {
  BlockTensors block;
  for (const TensorSpec& spec : layer_tensors(config_, layer)) {
    const TensorInput& tensor = *tensors_.at(layer_tensor(layer, spec.name));
    Matrix matrix = matrix_of(tensor.shape);
    tensor.read(0, tensor.shape.size() == 2 ? matrix.rows : matrix.columns, matrix.values);
    if (tensor.drop) tensor.drop();
    block.parts[spec.name] = std::move(matrix);
  }
  return block;
}

void BlockSource::embed(const CalibrationData& data, HiddenStates& hidden) const {
  const TensorInput& table = *tensors_.at("token_embedding");
  const TensorInput* positions =
      config_.learned_positions ? tensors_.at("position_embedding") : nullptr;
  const auto width = static_cast<std::size_t>(config_.width);
  const auto scale = static_cast<float>(config_.embedding_scale);
  std::vector<float> states(static_cast<std::size_t>(hidden.numbers())), place(width);
  for (std::int64_t window = 0; window < hidden.windows(); ++window) {
    const auto& tokens = data.windows[static_cast<std::size_t>(window)];
    for (std::size_t t = 0; t < tokens.size(); ++t) {
      const std::span<float> row = std::span(states).subspan(t * width, width);
      table.read(tokens[t], 1, row);
      for (float& x : row) x *= scale;
      if (positions != nullptr) {
        positions->read(static_cast<std::int64_t>(t), 1, place);
        for (std::size_t i = 0; i < width; ++i) row[i] += place[i];
      }
    }
    hidden.write(window, states);
  }
}

BlockInputs::BlockInputs(const ModelConfig& config, const CalibrationData& data,
                         std::filesystem::path file)
    : config_(config), data_(data), file_(std::move(file)) {}

void BlockInputs::keep(std::int64_t layer, const HiddenStates& hidden) {
  bool read = false;
  for (std::int64_t later = layer + 1; later < config_.layer_count(); ++later) {
    read = read || owner_of(config_, later) == layer;
  }
  if (!read) return;
  auto& copy = owners_[layer];
  copy = std::make_unique<HiddenStates>(hidden.windows(), hidden.numbers(), file_);
  std::vector<float> states(static_cast<std::size_t>(hidden.numbers()));
  for (std::int64_t window = 0; window < hidden.windows(); ++window) {
    hidden.read(window, states);
    copy->write(window, states);
  }
}

void BlockInputs::start(BlockRun& run, std::int64_t window) const {
  const auto owner = owners_.find(owner_of(config_, run.layer()));
  run.start(data_.windows[static_cast<std::size_t>(window)],
            owner != owners_.end() ? owner->second.get() : nullptr, window);
}

namespace {

// Gathers the statistics of a pass, and also those of either half of the windows, for comparison. A
// single rank accumulates inputs as they arrive. Several ranks run one window each and exchange the
// results; then every rank accumulates all of them in the order of windows.
class Collector final : public Observer {
 public:
  Collector(const PassContext& context, const Pass& pass)
      : context_(context), sites_(context.run.sites()), pass_(pass), wanted_(pass.wanted) {
    wanted_.share = {context.ranks.rank(), context.ranks.size()};
  }

  void start_window(std::int64_t window, std::int64_t tokens) {
    window_ = window;
    tokens_ = tokens;
  }

  bool see(const LayerLinear& linear, const Rows& input, std::int64_t tokens) override {
    const std::size_t site = linear.site;
    if (wants(site) && context_.ranks.size() > 1 && is_routed(site)) {
      std::vector<float>& values = routed_[site];
      values.resize(static_cast<std::size_t>(tokens * sites_[site].inputs));
      context_.backend.download(input, tokens, values);
    } else if (wants(site)) {
      const std::span<float> values = seen_of(site, context_.ranks.rank(), tokens);
      context_.backend.download(input, tokens, values);
      if (context_.ranks.size() == 1) {
        add(site, window_, values);
      } else {
        StatisticsWanted wanted = pass_.wanted;
        wanted.hessian = false;
        accumulate(of_window_[site] = {}, rows_of(site, window_, values), wanted, place_of(site),
                   context_.pool);
      }
    }
    const Sublayer sublayer = sites_[site].sublayer;
    const Extent extent = sublayer == Sublayer::mixer ? pass_.mixer : pass_.mlp;
    return extent == Extent::whole || std::ranges::any_of(pass_.sites, [&](std::size_t later) {
             return sites_[later].sublayer == sublayer && later > site;
           });
  }

  // Called after each rank has run one window, starting at `first`; the last ranks may have none.
  void share_windows(std::int64_t first) {
    if (context_.ranks.size() == 1) return;
    const std::int64_t there =
        std::min<std::int64_t>(context_.ranks.size(), context_.hidden.windows() - first);
    for (const std::size_t site : pass_.sites) {
      if (is_routed(site)) {
        share_routed(site, first, there);
        continue;
      }
      const std::vector<InputStatistics> parts = gather_statistics(site, there);
      if (wanted_.hessian) gather_inputs(site, there);
      for (std::int64_t window = 0; window < there; ++window) {
        InputStatistics& all = result_[site];
        merge(all, parts[static_cast<std::size_t>(window)]);
        if (!wanted_.hessian) continue;
        add_hessian(all, seen_of(site, static_cast<int>(window)), wanted_.share, context_.pool);
      }
    }
  }

  SiteStatistics finish() {
    for (auto& [site, statistics] : result_) {
      statistics.largest_token.resize(static_cast<std::size_t>(statistics.columns));
    }
    if (pass_.wanted.hessian && context_.ranks.size() > 1) {
      for (auto& [site, statistics] : result_) join_hessian(statistics);
    }
    return std::move(result_);
  }

 private:
  bool wants(std::size_t site) const {
    return std::find(pass_.sites.begin(), pass_.sites.end(), site) != pass_.sites.end();
  }

  // Whether the site reads only the tokens that a router assigns to its expert.
  bool is_routed(std::size_t site) const { return sites_[site].share() < 1; }

  // Every rank accumulates all rows, as a window's number of rows is known only after the gather.
  void share_routed(std::size_t site, std::int64_t first, std::int64_t there) {
    const auto own = std::as_bytes(std::span(routed_[site]));
    const auto all = gather_bytes(context_.ranks, {own.begin(), own.end()}, Receivers::all,
                                  "inputs of " + place_of(site));
    std::vector<float>& values = routed_[site];
    for (std::int64_t window = 0; window < there; ++window) {
      const std::vector<std::byte>& bytes = all[static_cast<std::size_t>(window)];
      values.resize(bytes.size() / sizeof(float));
      if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
      add(site, first + window, values);
    }
    values.clear();
  }

  void add(std::size_t site, std::int64_t window, std::span<const float> values) {
    accumulate(result_[site], rows_of(site, window, values), wanted_, place_of(site),
               context_.pool);
  }

  WindowRows rows_of(std::size_t site, std::int64_t window, std::span<const float> values) {
    const LinearSite& of = sites_[site];
    const std::int64_t total = context_.hidden.windows() * tokens_;
    if (!is_routed(site)) return {values, of.inputs, window * tokens_, total};
    // For an expert, the expected number of its tokens; the real number is counted during the pass.
    const auto expected = static_cast<std::int64_t>(static_cast<double>(total) * of.share());
    const std::int64_t before = result_[site].tokens;
    const std::int64_t most = before + std::ssize(values) / of.inputs;
    return {values, of.inputs, before, std::max({expected, most, std::int64_t{1}})};
  }

  // Site name for errors: "layers.3 (qkv)".
  std::string place_of(std::size_t site) const {
    return context_.block + " (" + sites_[site].name + ")";
  }

  // Buffer for the inputs of a rank's window. With one rank, all sites use the same buffer.
  std::span<float> seen_of(std::size_t site, int rank, std::int64_t tokens) {
    if (context_.ranks.size() > 1) return seen_of(site, rank);
    std::vector<float>& buffer = seen_[0];
    const auto numbers = static_cast<std::size_t>(tokens * sites_[site].inputs);
    if (buffer.size() < numbers) buffer.resize(numbers);
    return std::span(buffer).first(numbers);
  }

  // The inputs in a rank's window: computed by this rank, or gathered from another rank.
  std::span<float> seen_of(std::size_t site, int rank) {
    const auto one = static_cast<std::size_t>(tokens_ * sites_[site].inputs);
    std::vector<float>& all = seen_[site];
    all.resize(one * static_cast<std::size_t>(context_.ranks.size()));
    return std::span(all).subspan(one * static_cast<std::size_t>(rank), one);
  }

  // Gathers the statistics of the windows of ranks 0 ... there - 1.
  std::vector<InputStatistics> gather_statistics(std::size_t site, std::int64_t there) {
    std::vector<std::byte> own;
    if (context_.ranks.rank() < there) {
      each_array(of_window_[site], [&](auto values) {
        const auto bytes = std::as_bytes(values);
        own.insert(own.end(), bytes.begin(), bytes.end());
      });
    }
    const auto all =
        gather_bytes(context_.ranks, own, Receivers::all, "statistics of " + place_of(site));
    const std::int64_t columns = sites_[site].inputs;
    std::vector<InputStatistics> parts;
    for (std::int64_t window = 0; window < there; ++window) {
      const std::vector<std::byte>& bytes = all[static_cast<std::size_t>(window)];
      InputStatistics& part = parts.emplace_back();
      part.tokens = tokens_;
      const std::size_t known = resize_arrays(part, columns, 0);
      const std::size_t row = static_cast<std::size_t>(columns) * sizeof(float);
      ensure(bytes.size() >= known && (bytes.size() - known) % row == 0, place_of(site), ": ",
             bytes.size(), " bytes of statistics for ", columns, " inputs");
      resize_arrays(part, columns, static_cast<std::int64_t>((bytes.size() - known) / row));
      fill_arrays(part, bytes);
    }
    return parts;
  }

  // Gathers the inputs in the windows of ranks 0 ... there - 1.
  void gather_inputs(std::size_t site, std::int64_t there) {
    std::vector<OwnedRows> windows;
    for (int rank = 0; rank < there; ++rank) {
      const auto seen = std::as_writable_bytes(seen_of(site, rank));
      windows.push_back({.owner = rank, .data = seen.data(), .bytes = seen.size()});
    }
    gather_owned(context_.ranks, windows, "inputs of " + context_.block + "." + sites_[site].name);
  }

  // Gathers X^T X, of which each rank has computed some tiles.
  void join_hessian(InputStatistics& statistics) {
    const std::int64_t columns = statistics.columns;
    std::vector<std::vector<TileCorners>> of_ranks;
    for (TileShare share = {0, wanted_.share.count}; share.index < share.count; ++share.index)
      of_ranks.push_back(tiles_of(columns, share));
    const auto stride = static_cast<std::size_t>(columns) * sizeof(double);
    for (std::size_t number = 0; number < of_ranks[0].size(); ++number) {
      std::vector<OwnedRows> parts;
      std::vector<TileCorners> theirs;
      for (int rank = 0; rank < context_.ranks.size(); ++rank) {
        const auto& tiles = of_ranks[static_cast<std::size_t>(rank)];
        if (number >= tiles.size()) continue;
        const TileCorners& tile = tiles[number];
        double* const first = statistics.hessian.data() + tile.top * columns + tile.left;
        parts.push_back({rank, reinterpret_cast<std::byte*>(first), tile.bottom - tile.top,
                         static_cast<std::size_t>(tile.right - tile.left) * sizeof(double),
                         stride});
        if (rank != context_.ranks.rank()) theirs.push_back(tile);
      }
      gather_owned(context_.ranks, parts, "X^T X of " + context_.block);
      for (const TileCorners& tile : theirs) mirror(tile, columns, statistics.hessian);
    }
  }

  const PassContext& context_;
  const std::vector<LinearSite>& sites_;
  const Pass& pass_;
  StatisticsWanted wanted_;
  std::int64_t window_ = 0, tokens_ = 0;              // current window, tokens per window
  std::map<std::size_t, InputStatistics> of_window_;  // with several ranks: of this rank's window
  std::map<std::size_t, std::vector<float>> seen_;    // [ranks][tokens][K] in each rank's window
  std::map<std::size_t, std::vector<float>> routed_;  // expert rows of this rank's window
  SiteStatistics result_;
};

}  // namespace

// A rank runs every N-th window, the same windows in all passes, because it stores their states.
SiteStatistics run_pass(const PassContext& context, const Pass& pass) {
  Collector collector(context, pass);
  HiddenStates& hidden = context.hidden;
  std::vector<float> states(static_cast<std::size_t>(hidden.numbers()));  // [length][W]
  for (std::int64_t first = 0; first < hidden.windows(); first += context.ranks.size()) {
    const std::int64_t window = first + context.ranks.rank();
    collector.start_window(window, context.run.tokens_of(states.size()));
    if (window < hidden.windows()) {
      hidden.read(window, states);
      if (context.inputs != nullptr) context.inputs->start(context.run, window);
      if (pass.mixer != Extent::none) context.run.run(Sublayer::mixer, states, &collector);
      if (pass.mlp != Extent::none) context.run.run(Sublayer::mlp, states, &collector);
      if (pass.keep) hidden.write(window, states);
    }
    collector.share_windows(first);
    for (int done = 0; done < context.ranks.size() && first + done < hidden.windows(); ++done) {
      context.on_window();
    }
  }
  return collector.finish();
}

namespace {

// Bytes per element of X^T X: for methods that solve with it (the factor's triangle in double, and
// derived data), and for computing losses. The constants after these are bytes per weight of the
// current linear: f32 copies, codes, planes, and buffers for the losses.
constexpr std::uint64_t kBytesPerSolved = 4 + 8;
constexpr std::uint64_t kBytesPerWeighed = sizeof(float);
constexpr std::uint64_t kBytesPerWeight = 4 * sizeof(float);
// Bytes of tables, stacks, file buffers, and the program itself.
constexpr std::uint64_t kFixedBytes = 40 << 20;

std::uint64_t numbers_of(const TensorSpec& spec) {
  std::uint64_t numbers = 1;
  for (const std::int64_t size : spec.shape) numbers *= static_cast<std::uint64_t>(size);
  return numbers;
}

std::uint64_t statistics_bytes(std::int64_t columns, std::int64_t samples, bool hessian) {
  const auto k = static_cast<std::uint64_t>(columns);
  return k * (2 * sizeof(float) + 3 * sizeof(double)) + sizeof(InputStatistics) +
         k * static_cast<std::uint64_t>(samples) * sizeof(float) +
         (hessian ? k * k * sizeof(double) : 0);
}

// The first layer of each kind. Layers that differ only in their window need the same memory.
std::vector<std::int64_t> layers_of_each_kind(const ModelConfig& config) {
  std::vector<LayerConfig> kinds;
  std::vector<std::int64_t> layers;
  for (std::int64_t layer = 0; layer < config.layer_count(); ++layer) {
    LayerConfig kind = config.layer(layer);
    if (AttentionConfig* attention = kind.attention()) attention->window = 0;
    if (std::ranges::find(kinds, kind) != kinds.end()) continue;
    kinds.push_back(kind);
    layers.push_back(layer);
  }
  return layers;
}

// Layers whose keys others read; the states that enter them are kept.
std::uint64_t owners(const ModelConfig& config) {
  std::set<std::int64_t> found;
  for (std::int64_t layer = 0; layer < config.layer_count(); ++layer) {
    found.insert(owner_of(config, layer));
  }
  found.erase(-1);
  return found.size();
}

CalibrationMemory plan_layer(const ModelConfig& config, std::int64_t layer,
                             const CalibrationShape& shape, const Layout& layout) {
  std::uint64_t numbers = 0, largest = 0;  // numbers in the layer's tensors, in the largest linear
  if (const std::int64_t owner = owner_of(config, layer); owner >= 0) {
    for (const TensorSpec& spec : layer_tensors(config, owner)) numbers += numbers_of(spec);
  }
  for (const TensorSpec& spec : layer_tensors(config, layer)) {
    const std::uint64_t of_tensor = numbers_of(spec);
    numbers += of_tensor;
    if (is_block_linear(spec.role)) largest = std::max(largest, of_tensor);
  }
  std::int64_t widest = 0;
  std::uint64_t all = 0, one = 0;  // total of all sites, and the largest stage
  const std::vector<LinearSite> sites = linear_sites(config, layer);
  for (const std::vector<std::size_t>& stage : stages_of(sites)) {
    std::uint64_t of_stage = 0;
    for (const std::size_t at : stage) {
      const LinearSite& site = sites[at];
      widest = std::max(widest, site.inputs);
      all += statistics_bytes(site.inputs, shape.sample_tokens, shape.hessian_together);
      of_stage += statistics_bytes(site.inputs, shape.sample_tokens, shape.hessian_of_one);
    }
    one = std::max(one, of_stage);
  }
  CalibrationMemory memory;
  memory.block = numbers * sizeof(float);
  memory.statistics = shape.together ? std::max(all, one) : one;
  const auto k = static_cast<std::uint64_t>(widest);
  const std::uint64_t of_hessian = shape.hessian_of_one     ? kBytesPerSolved
                                   : shape.hessian_together ? kBytesPerWeighed
                                                            : 0;
  memory.method = largest * kBytesPerWeight + kFixedBytes + k * k * of_hessian;
  const auto window = static_cast<std::uint64_t>(shape.length * config.width) * sizeof(float);
  const auto input = static_cast<std::uint64_t>(shape.length * widest) * sizeof(float);
  // X^T X is computed from a packed copy of the input, which needs memory too.
  const bool hessian = shape.hessian_of_one || shape.hessian_together;
  memory.forward =
      BlockRun::bytes(config, layer, layout, shape.length) + window + (hessian ? 2 * input : input);
  memory.hidden = window * static_cast<std::uint64_t>(shape.windows) * (1 + owners(config));
  return memory;
}

}  // namespace

CalibrationMemory plan_calibration(const ModelConfig& config, const CalibrationShape& shape,
                                   const Layout& layout, std::uint64_t limit) {
  CalibrationMemory memory;
  for (const std::int64_t layer : layers_of_each_kind(config)) {
    const CalibrationMemory one = plan_layer(config, layer, shape, layout);
    memory.block = std::max(memory.block, one.block);
    memory.forward = std::max(memory.forward, one.forward);
    memory.statistics = std::max(memory.statistics, one.statistics);
    memory.method = std::max(memory.method, one.method);
    memory.hidden = std::max(memory.hidden, one.hidden);
  }
  if (limit > 0 && memory.total() > limit) std::swap(memory.hidden, memory.hidden_on_disk);
  require(limit == 0 || memory.total() <= limit, ErrorKind::no_memory, Setting{"max_ram"}, " ",
          given_bytes(limit), ": calibration needs ", describe(memory),
          "; raise it, take a smaller ", Setting{"length"}, ", or another method");
  return memory;
}

std::string describe(const CalibrationMemory& memory) {
  std::string text = human_bytes(memory.total()) + " (block " + human_bytes(memory.block) +
                     ", forward " + human_bytes(memory.forward) + ", statistics " +
                     human_bytes(memory.statistics) + ", method " + human_bytes(memory.method);
  if (memory.hidden > 0) text += ", hidden states " + human_bytes(memory.hidden);
  text += ")";
  if (memory.hidden_on_disk > 0) {
    text += " and hidden states of " + human_bytes(memory.hidden_on_disk) + " on disk";
  }
  return text;
}

}  // namespace leq
