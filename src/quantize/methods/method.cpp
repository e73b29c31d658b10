// The table of methods, those that round to nearest, and the plan of a model's tensors.
#include "quantize/methods/method.h"

#include <algorithm>
#include <array>
#include <map>

#include "base/error.h"
#include "base/text.h"
#include "model/linear_sites.h"
#include "quantize/methods/gptq.h"
#include "tensor/nf4.h"
#include "tokenizer/pattern.h"

namespace leq {

namespace {

bool supports_int(const QuantScheme& scheme) { return scheme.kind == CodeKind::int_; }
bool supports_uint(const QuantScheme& scheme) { return scheme.kind == CodeKind::uint_; }
// Excludes one scale per tensor, for which weighted_ranges gains nothing; absmax supports it.
bool supports_rtn(const QuantScheme& scheme) {
  return scheme.takes_codes() && scheme.scaling != Scaling::tensor && !scheme.has_byte_scales();
}

MethodResult choose_absmax(const MethodInput& input) {
  return {nearest_codes(input, choose_ranges(input, fit_signed)), ""};
}
MethodResult choose_zeropoint(const MethodInput& input) {
  return {nearest_codes(input, choose_ranges(input, fit_minmax)), ""};
}
// Each input channel is weighted by its mean square for the calibration tokens.
MethodResult choose_rtn(const MethodInput& input) {
  if (input.scheme.is_super()) return choose_super_rtn(input);
  ChosenCodes chosen = nearest_codes(input, weighted_ranges(input));
  if (input.scheme.has_table()) numbers_to_codes(input.scheme.kind, chosen.codes);
  return {std::move(chosen), ""};
}

bool supports_gptq(const QuantScheme& scheme) {
  return scheme.takes_codes() && !scheme.has_byte_scales();
}
bool supports_zeroquant(const QuantScheme& scheme) {
  return scheme.kind == CodeKind::int_ && scheme.scaling != Scaling::tensor;
}

bool supports_nf4(const QuantScheme& scheme) { return scheme.kind == CodeKind::nf4; }
MethodResult choose_levels(const MethodInput& input) {
  require_finite(input);
  return {choose_nf4(input.weight, input.rows, input.columns), ""};
}

}  // namespace

std::span<const QuantMethod> quant_methods() {
  static const QuantMethod kMethods[] = {
      {.name = "absmax",
       .summary = "nearest code, range from the largest |w|; no calibration (int types)",
       .supports = supports_int,
       .choose = choose_absmax,
       .divides_rows = true},
      {.name = "zeropoint",
       .summary = "nearest code, range from min to max; no calibration (uint types)",
       .supports = supports_uint,
       .choose = choose_zeropoint,
       .divides_rows = true,
       .own_type = "uint8"},
      {.name = "rtn",
       .summary = "nearest code, range of least error weighted by the inputs (int, uint, k and "
                  "table types)",
       .needs = Needs::diagonal,
       .supports = supports_rtn,
       .choose = choose_rtn,
       .divides_rows = true,
       .own_type = "int4-g128"},
      {.name = "zeroquant",
       .summary = "groups of columns by the largest |w|; with act row (int-g types)",
       .supports = supports_zeroquant,
       .choose = choose_absmax,
       .divides_rows = true,
       .own_type = "int8-g128"},
      {.name = "gptq",
       .summary = "compensates rounding errors in later columns (int, uint, k and table types)",
       .needs = Needs::hessian,
       .supports = supports_gptq,
       .choose = choose_gptq,
       .divides_rows = true,
       .own_type = "int4-g128"},
      {.name = "gptq+",
       .summary = "gptq with weighted ranges, coordinate descent and refitted scales",
       .needs = Needs::hessian,
       .supports = supports_gptq,
       .choose = choose_gptq_plus,
       .divides_rows = true,
       .own_type = "int4-g128"},
      {.name = "nf4",
       .summary = "the nearest of 16 levels of a normal distribution, blocks of 64 (type nf4)",
       .supports = supports_nf4,
       .choose = choose_levels,
       .own_type = "nf4"},
      billm_method(),
  };
  return kMethods;
}

const QuantMethod& require_method(std::string_view name) {
  std::vector<std::string> names;
  for (const QuantMethod& method : quant_methods()) {
    if (method.name == name) return method;
    names.emplace_back(method.name);
  }
  fail(ErrorKind::bad_setting, "unknown method \"", printable(name), "\"; use one of ",
       join(names));
}

// The plan of a model's tensors.

namespace {

// Number of columns that share a sum of input codes; 0: the format has no sums. Like act, the
// number is part of a linear's input format.
std::int64_t sums_of(const TensorPlan& plan, std::int64_t columns) {
  return plan.scheme.is_offset() ? sum_group(plan.scheme, plan.act, columns) : 0;
}

struct ActWord {
  ActChoice choice;
  std::string_view name;
  ActKind kind;  // input format of all linears of blocks
  OnlineMode online_mode = OnlineMode::safe;
};
constexpr std::array<ActWord, 8> kActWords = {{
    {ActChoice::automatic, "auto", ActKind::none},
    {ActChoice::none, "none", ActKind::none},
    {ActChoice::row, "row", ActKind::row},
    {ActChoice::g128, "g128", ActKind::g128},
    {ActChoice::g32, "g32", ActKind::g32},
    {ActChoice::tensor, "tensor", ActKind::tensor},
    {ActChoice::online, "online", ActKind::online},
    {ActChoice::streaming, "streaming", ActKind::online, OnlineMode::streaming},
}};

const ActWord& word_of(ActChoice choice) {
  return *std::find_if(kActWords.begin(), kActWords.end(),
                       [&](const ActWord& word) { return word.choice == choice; });
}

// Uses input groups finer than 128 columns where rounding inputs costs most (docs/quantization.md):
// inputs of down are products, and errors in the head's inputs change the logits directly. A group
// of weights must not extend over two scales of the inputs.
ActKind act_of_role(TensorRole role, const QuantScheme& scheme, const ModelConfig& config) {
  const bool fine = role == TensorRole::mlp_output || role == TensorRole::head ||
                    role == TensorRole::token_embedding;
  const bool narrow = config.width < kNarrowWidth;
  return narrow && fine && fits_act(scheme, ActKind::g32) ? ActKind::g32 : ActKind::g128;
}

bool is_kept_f32(TensorRole role) {
  return role == TensorRole::vector || role == TensorRole::position_embedding ||
         role == TensorRole::exact_linear;
}

struct OwnType {
  QuantScheme scheme;
  std::optional<ActKind> act;
};

// Types by pattern. Later patterns take precedence; each pattern must match a tensor.
std::map<std::string, OwnType> overridden(const PlanRequest& request,
                                          const std::vector<TensorSpec>& specs) {
  std::map<std::string, OwnType> own;
  PatternMatcher matcher;
  PatternMatch match;
  for (const TypeOverride& type : request.overrides) {
    const Pattern pattern(type.pattern, Setting{"overrides"}.marked());
    bool used = false;
    for (const TensorSpec& spec : specs) {
      if (is_kept_f32(spec.role)) continue;
      if (!matcher.find(pattern, spec.name, 0, match)) continue;
      OwnType& found = own[spec.name];
      found = {type.scheme, type.act ? type.act : found.act};
      used = true;
    }
    require(used, Setting{"overrides"}, " ", printable(type.pattern), "=", scheme_name(type.scheme),
            ": fits no weight; names are like ", specs.back().name, " and layers.0.q");
  }
  return own;
}

}  // namespace

std::optional<ActChoice> parse_act_choice(std::string_view name) {
  for (const ActWord& word : kActWords) {
    if (word.name == name) return word.choice;
  }
  return std::nullopt;
}

std::string_view act_choice_name(ActChoice choice) { return word_of(choice).name; }

TensorPlan plan_tensor(TensorRole role, const QuantScheme& type, const ModelConfig& config,
                       ActChoice act) {
  constexpr QuantScheme kF32 = {};
  if (is_kept_f32(role)) return {kF32, ActKind::none};
  if (type.is_float()) return {type, ActKind::none};
  const bool table = role == TensorRole::head || role == TensorRole::token_embedding;
  const QuantScheme scheme = table ? QuantScheme{CodeKind::int_, 8, Scaling::row, 0} : type;
  // nf4 and b1 weights require f32 inputs.
  if (act == ActChoice::none || !scheme.takes_codes()) return {scheme, ActKind::none};
  const bool linear = is_block_linear(role);
  if (linear && act != ActChoice::automatic) {
    return {scheme, word_of(act).kind, word_of(act).online_mode};
  }
  if (role == TensorRole::token_embedding && !config.tied) return {scheme, ActKind::none};
  return {scheme, act_of_role(role, scheme, config)};
}

TensorPlanner make_planner(const PlanRequest& request, const ModelConfig& config) {
  const std::vector<TensorSpec> specs = tensor_list(config);
  const auto own_types = overridden(request, specs);
  std::map<std::string, TensorPlan> plans;
  for (const TensorSpec& spec : specs) {
    const auto found = own_types.find(spec.name);
    QuantScheme type = found == own_types.end() ? request.type : found->second.scheme;
    // A multi-token prediction head is rounded to nearest, because calibration runs only the layers
    // of the model.
    const bool calibrated = !spec.name.starts_with(kMtp);
    const bool by_method =
        calibrated || request.method == nullptr || request.method->needs == Needs::nothing;
    if (!by_method && type.kind == CodeKind::b1) type = {CodeKind::int_, 8, Scaling::row, 0};
    const ActChoice act = calibrated ? request.act : ActChoice::automatic;
    TensorPlan plan = plan_tensor(spec.role, type, config, act);
    if (found != own_types.end()) {
      plan.scheme = type;
      if (!plan.scheme.takes_codes()) plan.act = ActKind::none;
      const std::optional<ActKind> own = found->second.act;
      const bool takes_own = act == ActChoice::automatic && is_block_linear(spec.role) && own &&
                             is_coded(plan.act) && fits_act(type, *own);
      if (takes_own) plan.act = *own;
      if (!is_block_linear(spec.role) && plan.act != ActKind::none) {
        plan.act = act_of_role(spec.role, plan.scheme, config);
      }
    }
    if (is_block_linear(spec.role) && !plan.scheme.is_float() && by_method) {
      require(request.method == nullptr || request.method->supports(plan.scheme), Setting{"method"},
              " ", request.method == nullptr ? "" : request.method->name,
              " does not choose codes of ", scheme_name(plan.scheme), " (", spec.name,
              "); use another ", Setting{"type"}, " or ", Setting{"method"});
      plan.method = request.method;
      plan.label = request.label;
    }
    plans[spec.name] = std::move(plan);
  }
  TensorPlanner planner = [plans = std::move(plans)](const std::string& name, TensorRole) {
    const auto found = plans.find(name);
    return found != plans.end() ? found->second
                                : TensorPlan{};  // vectors added by a rewrite are f32
  };
  check_plan(config, planner);
  return planner;
}

void check_plan(const ModelConfig& config, const TensorPlanner& plan) {
  for (const TensorSpec& spec : tensor_list(config)) {
    const TensorPlan now = plan(spec.name, spec.role);
    require(fits_act(now.scheme, now.act), Setting{"act"}, " ", act_name(now.act), ": groups of ",
            now.scheme.group, " weights (", spec.name, ") span several scales of the inputs; use ",
            Setting{"act"}, " g128, or a ", Setting{"type"}, " with smaller groups");
  }
  for (std::int64_t layer = 0; layer < config.layer_count(); ++layer) {
    std::string last, block;
    TensorPlan last_plan;
    for (const LinearSite& site : linear_sites(config, layer)) {
      if (site.block_name() != block) last.clear();
      block = site.block_name();
      for (const LinearSpec& weight : site.coded_weights()) {
        const std::string name = layer_tensor(layer, weight.name);
        const TensorPlan now = plan(name, role_of(site, weight));
        require(last.empty() || (now.act == last_plan.act &&
                                 sums_of(now, site.inputs) == sums_of(last_plan, site.inputs)),
                ErrorKind::bad_setting, "tensors ", last, " (", scheme_name(last_plan.scheme),
                ", act ", act_name(last_plan.act), ") and ", name, " (", scheme_name(now.scheme),
                ", act ", act_name(now.act),
                ") share their input but want it in different formats; give both the same type");
        last = name;
        last_plan = now;
      }
    }
  }
  if (!config.mtp) return;
  check_plan(mtp_model(config), [&](const std::string& name, TensorRole role) {
    return plan(is_shared_with_mtp(name) ? name : std::string(kMtp) + name, role);
  });
}

}  // namespace leq
