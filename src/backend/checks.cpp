#include "backend/checks.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/error.h"

namespace leq {

void require_capacity(std::string_view what, std::int64_t tokens, const Rows& rows) {
  ensure(tokens >= 0 && tokens <= rows.capacity, what, ": ", tokens, " rows, room for ",
         rows.capacity);
}

void check_embedding(const Embedding& embedding, const Rows& x, std::int64_t drawn) {
  const auto check = [&](const WeightView& table, std::span<const std::int32_t> ids,
                         std::int64_t may_be_drawn) {
    require_capacity("embed", std::ssize(ids), x);
    ensure(x.values != nullptr && x.width == table.columns, "embed: expected f32 rows of ",
           table.columns, ", found ", x.width);
    for (const std::int32_t id : ids) {
      if (is_placeholder_id(id)) {
        ensure(row_of_placeholder(id) < may_be_drawn, "embed: the token of row ",
               row_of_placeholder(id), " of a draw of ", may_be_drawn);
      } else {
        ensure(id >= 0 && id < table.rows, "embed: id ", id, ", the table has ", table.rows,
               " rows");
      }
    }
  };
  check(embedding.tokens, embedding.ids, drawn);
  if (embedding.positions == nullptr) return;
  check(*embedding.positions, embedding.at, 0);
  ensure(embedding.at.size() == embedding.ids.size(), "embed: ", embedding.at.size(),
         " positions of ", embedding.ids.size(), " tokens");
}

int rotary_dims(const AttentionShape& shape) {
  return shape.rotary_dims > 0 ? shape.rotary_dims : shape.head_dim;
}

float query_scale(const AttentionShape& shape) {
  if (shape.query_scale != 0) return shape.query_scale;
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape.head_dim)));
}

std::int64_t gates_at(const AttentionShape& shape) {
  const std::int64_t stored = shape.queries_only ? 0 : 2 * std::int64_t{shape.kv_heads};
  return (shape.heads + stored) * shape.head_dim;
}

std::int64_t qkv_width(const AttentionShape& shape) {
  const std::int64_t gates = shape.output_gate ? std::int64_t{shape.heads} * shape.head_dim : 0;
  return gates_at(shape) + gates;
}

int query_group(const AttentionShape& shape) {
  return shape.group > 0 ? shape.group : shape.heads / shape.kv_heads;
}

QueryHeads query_heads(const AttentionShape& shape, int kv_head) {
  const int group = query_group(shape), begin = kv_head * group - shape.first_head;
  const int first = std::clamp(begin, 0, shape.heads);
  return {first, std::clamp(begin + group, 0, shape.heads) - first};
}

void check_add_rows(const Rows& y, std::int64_t tokens, const Rows& x) {
  ensure(x.width == y.width && x.values != nullptr && y.values != nullptr,
         "add rows: expected f32 rows of one width, found ", y.width, " and ", x.width);
  require_capacity("add rows", tokens, x);
  require_capacity("add rows", tokens, y);
}

void check_gather(const Rows& x, std::span<const std::int32_t> rows, const Rows& out) {
  ensure(x.width == out.width && x.values != nullptr && out.values != nullptr,
         "gather rows: expected f32 rows of one width, found ", x.width, " and ", out.width);
  require_capacity("gather rows", std::ssize(rows), out);
  for (const std::int32_t row : rows) {
    ensure(row >= 0 && row < x.capacity, "gather rows: row ", row, " of ", x.capacity);
  }
}

void check_norm(const Rows& x, std::int64_t tokens, const Norm& norm, const RowsFor& out) {
  ensure(x.width == norm.width && out.rows.width == norm.width && x.values != nullptr,
         "norm: expected f32 rows of width ", norm.width, ", found ", x.width, " and ",
         out.rows.width);
  require_capacity("norm", tokens, out);
  check_consumer("norm", out);
}

void check_linear_inputs(const Linear& linear, const Rows& x) {
  ensure(x.width == linear.inputs, linear.name, ": expected ", linear.inputs,
         " input columns, found ", x.width);
  for (const LinearSegment& segment : linear.parts()) {
    const WeightView& weight = segment.weight;
    ensure(weight.columns == linear.inputs, linear.name, ": expected weights with ", linear.inputs,
           " columns, found ", weight.columns);
    ensure(weight.act == linear.act, linear.name, ": weights are packed for act ",
           act_name(weight.act), ", the linear has act ", act_name(linear.act));
    if (!is_coded(linear.act)) {
      ensure(x.values != nullptr, linear.name, ": needs f32 inputs");
      continue;
    }
    if (!weight.scheme.takes_codes() || x.format.act != linear.act) [[unlikely]] {
      // The name is formatted only on failure, because this check runs before every product.
      fail(ErrorKind::internal, linear.name, ": expected inputs with act ", act_name(linear.act),
           " for ", scheme_name(weight.scheme), " weights, found act ", act_name(x.format.act));
    }
    const std::int64_t group = sum_group(weight.scheme, weight.act, weight.columns);
    ensure(!weight.scheme.is_offset() || x.format.sum_group == group, linear.name,
           ": expected input sums over ", group, " columns, found ", x.format.sum_group);
  }
}

void check_linear_outputs(const Linear& linear, std::int64_t tokens, const Rows& x,
                          Epilogue epilogue, const RowsFor& target) {
  const Rows& out = target.rows;
  const bool gated = epilogue.is_gated();
  ensure(tokens <= x.capacity && tokens <= out.capacity, linear.name, ": ", tokens,
         " rows, inputs have room for ", x.capacity, ", outputs for ", out.capacity);
  std::int64_t outputs = 0;
  for (const LinearSegment& segment : linear.parts()) outputs += segment.weight.rows;
  ensure(outputs == linear.outputs, linear.name, ": expected ", linear.outputs,
         " outputs, weights have ", outputs);
  ensure(out.width == (gated ? outputs / 2 : outputs), linear.name, ": ", outputs,
         " outputs, found room for ", out.width);
  ensure(!gated || (linear.segments.size() == 2 &&
                    linear.segments[0].weight.rows == linear.segments[1].weight.rows),
         linear.name, ": a gated activation needs two weights of one shape");
  check_consumer(linear.name, target);
  ensure(is_coded(out.format.act) || out.values != nullptr, linear.name,
         ": outputs have neither values nor codes");
  ensure(epilogue != Epilogue::add ||
             (!is_coded(out.format.act) && target.consumer.inv_smooth == nullptr),
         linear.name, ": a residual cannot be quantized or smoothed");
}

void check_qkv(const Rows& qkv, const BatchView& batch, const AttentionShape& shape) {
  const bool whole = shape.group == 0 && shape.kv_heads > 0 && shape.heads % shape.kv_heads == 0;
  const bool shared = shape.group > 0 && shape.first_head >= 0 &&
                      shape.first_head + shape.heads <= shape.kv_heads * shape.group;
  ensure((whole || shared) && shape.heads >= 0 && shape.head_dim > 0 && shape.head_dim % 2 == 0,
         "attention: expected heads as a multiple of kv heads and an even head size, found ",
         shape.heads, ", ", shape.kv_heads, " and ", shape.head_dim);
  require_capacity("attention", batch.tokens, qkv);
  ensure(qkv.values != nullptr && qkv.width == qkv_width(shape), "attention: expected f32 rows of ",
         qkv_width(shape), ", found ", qkv.width);
}

void check_pages(const BatchView& batch) {
  for (const SequenceRun& run : batch.runs) {
    const auto capacity = std::ssize(run.pages) * kPageTokens;
    ensure(run.end_position() <= capacity, "attention: positions up to ", run.end_position(),
           ", the pages hold ", capacity);
  }
}

void check_rope(const RopeTable& rope, const AttentionShape& shape, std::int64_t end) {
  ensure(std::ssize(rope.inv_freq) * 2 == rotary_dims(shape),
         "rotary embedding: ", rope.inv_freq.size(), " frequencies for ", rotary_dims(shape),
         " numbers of a head");
  require(end <= rope.context, ErrorKind::bad_setting, "rotary embedding: position ", end - 1,
          ", table holds ", rope.context, "; raise ", Setting{"context"});
}

void check_query_factors(const RopeTable& rope, const AttentionShape& shape, std::int64_t end) {
  if (!shape.tempered) return;
  ensure(rope.query_period > 0, "temperature of queries: the table has no factors");
  const auto held = static_cast<std::int64_t>(rope.query_factors.size() / sizeof(float));
  ensure((end - 1) / rope.query_period < held, "temperature of queries: position ", end - 1, ", ",
         held, " factors of ", rope.query_period, " positions");
}

void check_attention(const Rows& qkv, const BatchView& batch, const AttentionShape& shape,
                     const RowsFor& target) {
  const Rows& out = target.rows;
  check_qkv(qkv, batch, shape);
  require_capacity("attention", batch.tokens, out);
  ensure(out.width == std::int64_t{shape.heads} * shape.head_dim,
         "attention: expected output rows of ", shape.heads, " x ", shape.head_dim, ", found ",
         out.width);
  check_consumer("output of attention", target);
}

void check_delta_net(const Rows& mixed, const Rows& gates, const BatchView& batch,
                     const DeltaShape& shape, const RowsFor& target) {
  const DeltaShape all = shape.whole();
  const bool divides = all.key_heads > 0 && all.value_heads % all.key_heads == 0 &&
                       shape.value_heads == shape.key_heads * shape.group();
  ensure(divides && shape.key_dim > 0 && shape.value_dim > 0 && shape.taps > 1, "delta net: found ",
         shape.key_heads, " key heads of ", shape.key_dim, ", ", shape.value_heads,
         " value heads of ", shape.value_dim, ", ", shape.taps, " taps");
  for (const Rows* rows : {&mixed, &gates, static_cast<const Rows*>(&target.rows)}) {
    require_capacity("delta net", batch.tokens, *rows);
  }
  ensure((mixed.values != nullptr || mixed.width == 0) &&
             mixed.width == shape.channels() + shape.values(),
         "delta net: expected f32 rows of ", shape.channels() + shape.values(), ", found ",
         mixed.width);
  ensure(gates.values != nullptr && gates.width == 2 * std::int64_t{all.value_heads},
         "delta net: expected f32 rows of ", 2 * all.value_heads, " gates, found ", gates.width);
  ensure(target.rows.width == shape.values(), "delta net: expected output rows of ", shape.values(),
         ", found ", target.rows.width);
  for (const SequenceRun& run : batch.runs) {
    ensure(run.state_to != nullptr || shape.key_heads == 0, "delta net: sequence ", run.sequence,
           " has no state");
  }
  check_consumer("output of the delta net", target);
}

void check_short_conv(const Rows& mixed, const BatchView& batch, const ShortConvShape& shape,
                      const RowsFor& target) {
  ensure(shape.channels >= 0 && shape.channels <= shape.conv_stride && shape.taps > 1,
         "short convolution: found ", shape.channels, " of ", shape.conv_stride, " channels, ",
         shape.taps, " taps");
  require_capacity("short convolution", batch.tokens, mixed);
  require_capacity("short convolution", batch.tokens, target.rows);
  ensure((mixed.values != nullptr || mixed.width == 0) && mixed.width == 3 * shape.channels,
         "short convolution: expected f32 rows of 3 x ", shape.channels, ", found ", mixed.width);
  ensure(target.rows.width == shape.channels, "short convolution: expected output rows of ",
         shape.channels, ", found ", target.rows.width);
  for (const SequenceRun& run : batch.runs) {
    ensure(run.state_to != nullptr || shape.channels == 0, "short convolution: sequence ",
           run.sequence, " has no state");
  }
  check_consumer("output of the short convolution", target);
}

void check_download(const Rows& x, std::int64_t tokens, std::span<const float> out) {
  ensure(x.values != nullptr, "download: these rows are kept as codes alone");
  require_capacity("download", tokens, x);
  ensure(std::ssize(out) >= tokens * x.width, "download: room for ", out.size(),
         " numbers, the rows hold ", tokens * x.width);
}

void check_drawn(std::span<const SampleRequest> requests, std::span<const std::int32_t> drawn) {
  ensure(drawn.size() == requests.size(), "sampler: room for ", drawn.size(), " tokens of ",
         requests.size(), " rows");
}

void check_sample(const Rows& logits, std::span<const SampleRequest> requests) {
  ensure(logits.values != nullptr && logits.width > 0 && logits.width <= kLargestVocabulary,
         "sampler: logits of ", logits.width, " tokens, expected f32 values of 1 to ",
         kLargestVocabulary);
  require_capacity("sampler", std::ssize(requests), logits);
  for (const SampleRequest& request : requests) {
    ensure(request.allowed.empty() || std::ssize(request.allowed) == (logits.width + 63) / 64,
           "sampler: ", request.allowed.size(), " words of allowed tokens for ", logits.width);
    std::int64_t before = -1;
    for (const LogitChange& change : request.changes) {
      ensure(change.id > before && change.id < logits.width && change.repeats >= 0,
             "sampler: token ", change.id, " changed after token ", before,
             ", expected ascending ids below ", logits.width);
      ensure(change.bias <= kLargestLogit && change.minus >= 0 && change.minus <= kLargestLogit,
             "sampler: the logit of token ", change.id, " changed by ", change.bias, " and -",
             change.minus, ", expected numbers");
      before = change.id;
    }
  }
}

void check_assign(std::span<const float> values, const Rows& x) {
  ensure(x.values != nullptr && std::ssize(values) % x.width == 0 &&
             std::ssize(values) / x.width <= x.capacity,
         "assign: ", values.size(), " numbers, the rows hold ", x.capacity, " x ", x.width);
}

void check_consumer(std::string_view site, const RowsFor& out) {
  const ActKind act = out.rows.format.act;
  ensure(!has_stored_scale(act) || out.consumer.act_scale > 0, site,
         ": outputs quantized with act ", act_name(act), " need its scale, found ",
         out.consumer.act_scale);
  ensure(!has_moving_scale(act) || (out.consumer.online != nullptr && out.rows.values != nullptr),
         site, ": outputs quantized with act ", act_name(act),
         " need its scale and their f32 values");
}

std::string undrawn_text(Operations& operations, const Rows& logits, std::int64_t row,
                         std::int32_t drawn) {
  if (drawn == kAllBanned) return "sampler: every token is banned";
  const std::int64_t id = bad_logit_of(drawn);
  std::vector<float> numbers(static_cast<std::size_t>((row + 1) * logits.width));
  operations.download(logits, row + 1, numbers);
  const float logit = numbers[static_cast<std::size_t>(row * logits.width + id)];
  return "sampler: the logit of token " + std::to_string(id) + " is " + std::to_string(logit) +
         ": the model's weights or scales are damaged";
}

void require_drawn(Operations& operations, const Rows& logits,
                   std::span<const std::int32_t> drawn) {
  const auto bad = std::ranges::find_if(drawn, [](std::int32_t id) { return id < 0; });
  if (bad != drawn.end()) fail(undrawn_text(operations, logits, bad - drawn.begin(), *bad));
}

void fail_not_finite(std::string_view site, std::int64_t row) {
  fail(site, ", token ", row, " of the batch: expected finite activations, found NaN or infinity;",
       " the weights may be damaged (leq-inspect ", Setting{"verify"},
       ") or too large for this type");
}

}  // namespace leq
