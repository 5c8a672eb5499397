#include "packing.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <new>
#include <vector>

#include "threads.h"

namespace thalweg {
namespace {

constexpr float kToInteger = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer

// The group's codes if the format holds all 32 values exactly. The scales tried are the ones that
// quantisers choose: the value of largest magnitude has the code of largest magnitude.
bool encode(Format format, const float* w, Group* out) {
  float low = w[0], high = w[0], extreme = w[0];
  for (int i = 0; i < kGroup; ++i) {
    if (!(std::fabs(w[i]) < 65504.0f)) return false;
    low = w[i] < low ? w[i] : low;
    high = w[i] > high ? w[i] : high;
    extreme = std::fabs(w[i]) > std::fabs(extreme) ? w[i] : extreme;
  }
  float range = format == Format::Q8   ? std::fabs(extreme) / 127.0f
                : format == Format::Q4 ? extreme / -8.0f
                                       : (high - low) / 15.0f;
  float d = f16_to_float(float_to_f16(range));
  float m = format == Format::Q4M ? f16_to_float(float_to_f16(low)) : 0.0f;
  out->scale[0] = out->scale[1] = d;
  out->minimum = m;
  float least = format == Format::Q8 ? -127 : format == Format::Q4 ? -8 : 0;
  float most = format == Format::Q8 ? 127 : format == Format::Q4 ? 7 : 15;
  for (int i = 0; i < kGroup; ++i) {
    float q = d == 0.0f ? 0.0f : ((w[i] - m) / d + kToInteger) - kToInteger;
    if (!(q >= least && q <= most)) return false;
    if ((format == Format::Q4M ? std::fma(q, d, m) : q * d) != w[i]) return false;
    out->code[i] = static_cast<uint8_t>(static_cast<int>(q) + code_bias(format));
  }
  return true;
}

bool row_fits(Format format, const float* w, int64_t k) {
  switch (format) {
    case Format::F32: return true;
    case Format::BF16:
      for (int64_t i = 0; i < k; ++i) {
        if (bits_of(w[i]) & 0xffff) return false;
      }
      return true;
    case Format::F16:
      for (int64_t i = 0; i < k; ++i) {
        if (bits_of(f16_to_float(float_to_f16(w[i]))) != bits_of(w[i])) return false;
      }
      return true;
    default: {
      Group group;
      for (int64_t i = 0; i < k; i += kGroup) {
        if (!encode(format, w + i, &group)) return false;
      }
      return true;
    }
  }
}

bool fits(Format format, const Part& part, int64_t k) {
  std::atomic<bool> all{true};
  Split pieces = split(part.rows, k);
  parallel(pieces.num_pieces(), [&](int64_t piece) {
    for (int64_t i = pieces.begin(piece); i < pieces.end(piece) && all; ++i) {
      if (!row_fits(format, reinterpret_cast<const float*>(part.data) + i * k, k)) all = false;
    }
  });
  return all;
}

Format narrowest(const Part& part, int64_t k) {
  if (part.source != Source::F32) return native_format(part.source);
  for (Format format : {Format::Q4, Format::Q4M, Format::Q8, Format::BF16, Format::F16}) {
    if (!is_plain(format) && k % kGroup != 0) continue;
    if (fits(format, part, k)) return format;
  }
  return Format::F32;
}

// Of column c, as `linear.cpp` reads them.
int64_t half_place(Format format, int64_t c) {
  if (format == Format::F16) return c;
  return c % 16 * 2 + c / 16;
}
// Of input j of a group, without the shift of half bytes: 4 inputs of a column lie together.
int64_t byte_place(int64_t c, int64_t j) { return j / 4 * 4 * kPanel + c * 4 + j % 4; }

void put_number(Format format, uint8_t* p, int64_t c, float x) {
  if (has_float_scale(format)) {
    std::memcpy(p + c * 4, &x, 4);
  } else {
    uint16_t h = float_to_f16(x);
    std::memcpy(p + c * 2, &h, 2);
  }
}

float number(Format format, const uint8_t* p, int64_t c) {
  if (!has_float_scale(format)) return f16_to_float(load_half(p + c * 2));
  float x;
  std::memcpy(&x, p + c * 4, 4);
  return x;
}

// The rows of a section, one of a panel's columns each, and how to find them.
class Rows {
 public:
  Rows(const Part* first, const Part* last, int64_t k) : k_(k) {
    for (const Part* part = first; part != last; ++part) {
      parts_.push_back({*part, n_});
      n_ += part->rows;
    }
  }
  int64_t size() const { return n_; }

  void put(Format format, uint8_t* panel, int64_t c, int64_t row) const {
    size_t i = parts_.size() - 1;
    while (parts_[i].first_row > row) --i;
    const Part& part = parts_[i].part;
    const uint8_t* data = part.data + (row - parts_[i].first_row) * row_bytes(part.source, k_);
    if (is_plain(format)) return put_plain(format, panel, c, part.source, data);
    for (int64_t g = 0; g < k_ / kGroup; ++g, panel += panel_bytes(format, kGroup)) {
      Group group;
      if (part.source == Source::F32) {
        encode(format, reinterpret_cast<const float*>(data) + g * kGroup, &group);
      } else {
        read_group(part.source, data, part.groups ? part.groups[g] : g, &group);
      }
      put_group(format, panel, c, group);
    }
  }

 private:
  struct Placed {
    Part part;
    int64_t first_row;
  };

  void put_plain(Format format, uint8_t* panel, int64_t c, Source source,
                 const uint8_t* data) const {
    for (int64_t i = 0; i < k_; ++i) {
      if (format == Format::F32) {
        std::memcpy(panel + (i * kPanel + c) * 4, data + i * 4, 4);
        continue;
      }
      uint16_t h;
      if (source == Source::F32) {
        float x;
        std::memcpy(&x, data + i * 4, 4);
        h = format == Format::F16 ? float_to_f16(x) : static_cast<uint16_t>(bits_of(x) >> 16);
      } else {
        h = load_half(data + i * 2);
      }
      std::memcpy(panel + (i * kPanel + half_place(format, c)) * 2, &h, 2);
    }
  }

  static void put_group(Format format, uint8_t* panel, int64_t c, const Group& group) {
    int64_t size = group_size(format);
    for (int64_t start = 0; start < kGroup; start += size, panel += panel_bytes(format, size)) {
      put_number(format, panel, c, group.scale[start / 16]);
      if (has_minimum(format)) put_number(format, panel + scale_bytes(format), c, group.minimum);
      uint8_t* out = panel + codes_offset(format);
      const uint8_t* code = group.code + start;
      if (is_half_byte(format)) {  // inputs j and j + 16 in a byte
        for (int64_t j = 0; j < size / 2; ++j) {
          out[byte_place(c, j)] = static_cast<uint8_t>(code[j] | code[j + 16] << 4);
        }
      } else {
        for (int64_t j = 0; j < size; ++j) out[byte_place(c, j)] = code[j];
      }
    }
  }

  std::vector<Placed> parts_;
  int64_t k_, n_ = 0;
};

uint8_t* allocate(int64_t bytes) {
  constexpr int64_t kHuge = int64_t{2} << 20;
  int64_t alignment = bytes >= kHuge ? kHuge : 64;
  int64_t size = ceil_div(bytes > 0 ? bytes : 1, alignment) * alignment;
  void* p = std::aligned_alloc(alignment, size);
  if (!p) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE  // whole ones: the rest of the last would be memory for nothing
  if (alignment == kHuge) madvise(p, bytes / kHuge * kHuge, MADV_HUGEPAGE);
#endif
  return static_cast<uint8_t*>(p);
}

const char* name_of(Format format) {
  switch (format) {
    case Format::F32: return "f32";
    case Format::BF16: return "bf16";
    case Format::F16: return "f16";
    case Format::Q8: return "q8";
    case Format::Q4: return "q4";
    case Format::Q4M: return "q4m";
    case Format::Q4K: return "q4k";
    case Format::Q5K: return "q5k";
    case Format::Q6K: return "q6k";
  }
  return "";
}

}  // namespace

Packed::Packed(const std::vector<Part>& parts, int64_t k) : k_(k) {
  std::vector<Format> formats;
  for (const Part& part : parts) formats.push_back(narrowest(part, k));
  for (size_t first = 0, last; first < parts.size(); first = last) {
    last = first + 1;
    while (last < parts.size() && formats[last] == formats[first]) ++last;
    add_section(parts.data() + first, parts.data() + last, formats[first]);
  }
}

void Packed::add_section(const Part* first, const Part* last, Format format) {
  Rows rows(first, last, k_);
  int64_t num_panels = ceil_div(rows.size(), kPanel), each = panel_bytes(format, k_);
  uint8_t* data = memory_.emplace_back(allocate(num_panels * each)).get();
  parallel(num_panels, [&](int64_t panel) {
    uint8_t* p = data + panel * each;
    int64_t columns = std::min(kPanel, rows.size() - panel * kPanel);
    if (columns < kPanel) std::memset(p, 0, each);
    for (int64_t c = 0; c < columns; ++c) rows.put(format, p, c, panel * kPanel + c);
  });
  sections_.push_back({format, rows.size(), k_, each, data});
  n_ += rows.size();
  nbytes_ += num_panels * each;
}

std::string Packed::format_name() const {
  std::string names;
  for (const PackedView& section : sections_) {
    names += (names.empty() ? "" : " + ") + std::string(name_of(section.format));
  }
  return names;
}

void Packed::row(int64_t i, float* out) const {
  const PackedView* section = sections_.data();
  while (i >= section->n) i -= section++->n;
  Format format = section->format;
  const uint8_t* panel = section->data + i / kPanel * section->panel_bytes;
  int64_t c = i % kPanel, size = group_size(format);
  if (format == Format::F32) {
    for (int64_t j = 0; j < k_; ++j) std::memcpy(out + j, panel + (j * kPanel + c) * 4, 4);
  } else if (is_plain(format)) {
    const uint8_t* p = panel + half_place(format, c) * 2;
    for (int64_t j = 0; j < k_; ++j) {
      uint16_t h = load_half(p + j * kPanel * 2);
      out[j] = format == Format::F16 ? f16_to_float(h) : bf16_to_float(h);
    }
  } else {
    for (int64_t g = 0; g < k_; g += size, panel += panel_bytes(format, size)) {
      float d = number(format, panel, c);
      float m = has_minimum(format) ? number(format, panel + scale_bytes(format), c) : 0.0f;
      const uint8_t* codes = panel + codes_offset(format);
      for (int64_t j = 0; j < size; ++j) {
        int code = is_half_byte(format) ? codes[byte_place(c, j % 16)] >> (j / 16 * 4) & 15
                                        : codes[byte_place(c, j)];
        float q = static_cast<float>(code - code_bias(format));
        out[g + j] = has_minimum(format) ? std::fma(q, d, m) : q * d;
      }
    }
  }
}

}  // namespace thalweg
