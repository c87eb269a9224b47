// The declared fields of Chrome-trace events to columns, by simdjson's on-demand parser.
//
// A limit for benchmarks, not a reader: it takes only what writers of traces write, no broken text.
// Built by simdjson.py as a shared library; one call of `simdjson_next` fills one batch.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <simdjson.h>

using namespace simdjson;

namespace {

constexpr int64_t ABSENT = INT64_MIN;
enum Kind { CHAR, SYM, US, INT, ID, PRODUCT, ARGS };

struct Field {
  std::string key;
  int where, kind, row, text_row;
};

inline uint64_t mix(uint64_t h) {
  h *= 0xFF51AFD7ED558CCDull;
  return h ^ (h >> 32);
}

inline uint64_t text_hash(const char *p, size_t n) {
  uint64_t h = n * 0x9E3779B97F4A7C15ull;
  for (; n >= 8; p += 8, n -= 8) {
    uint64_t word;
    memcpy(&word, p, 8);
    h = mix(h ^ word);
  }
  if (n) {
    uint64_t word = 0;
    memcpy(&word, p, n);
    h = mix(h ^ word);
  }
  return h ^ (h >> 29);
}

struct Symbols {
  std::vector<char> arena;
  std::vector<int64_t> offsets{0};
  std::vector<uint64_t> hashes;
  std::vector<int32_t> slots = std::vector<int32_t>(1 << 12, -1);

  int32_t code(std::string_view text) {
    const uint64_t h = text_hash(text.data(), text.size());
    size_t mask = slots.size() - 1, i = h & mask;
    for (; slots[i] >= 0; i = (i + 1) & mask) {
      const int32_t c = slots[i];
      const size_t n = offsets[c + 1] - offsets[c];
      if (hashes[c] == h && n == text.size() && !memcmp(&arena[offsets[c]], text.data(), n))
        return c;
    }
    const int32_t c = int32_t(hashes.size());
    arena.insert(arena.end(), text.begin(), text.end());
    offsets.push_back(int64_t(arena.size()));
    hashes.push_back(h);
    slots[i] = c;
    if (2 * hashes.size() > slots.size()) {
      slots.assign(2 * slots.size(), -1);
      mask = slots.size() - 1;
      for (size_t k = 0; k < hashes.size(); k++) {
        for (i = hashes[k] & mask; slots[i] >= 0; i = (i + 1) & mask) {
        }
        slots[i] = int32_t(k);
      }
    }
    return c;
  }
};

struct Scan {
  padded_string text;
  ondemand::parser parser;
  ondemand::document document;
  ondemand::array events;
  ondemand::array_iterator at, end;
  std::vector<Field> fields;
  int32_t table[1024];
  Symbols symbols;
  int n_ints = 0, n_syms = 0;

  static size_t slot(std::string_view key, int where) {
    uint64_t first = 0, last = 0;
    const size_t n = std::min<size_t>(8, key.size());
    memcpy(&first, key.data(), n);
    memcpy(&last, key.data() + key.size() - n, n);
    return mix(first ^ (last << 1) ^ (key.size() * 31 + where * 7)) & 1023;
  }

  int find(std::string_view key, int where) const {
    for (size_t i = slot(key, where);; i = (i + 1) & 1023) {
      const int f = table[i];
      if (f < 0 || (fields[f].where == where && fields[f].key == key)) return f;
    }
  }
};

// Integer nanoseconds of microseconds with up to three decimals.
inline int64_t nanoseconds(std::string_view t) {
  const char *p = t.data(), *end = p + t.size();
  const bool negative = p < end && *p == '-';
  if (negative) p++;
  int64_t v = 0;
  while (p < end && unsigned(*p - '0') < 10) v = 10 * v + (*p++ - '0');
  v *= 1000;
  if (p < end && *p == '.') {
    int64_t scale = 100;
    for (p++; p < end && unsigned(*p - '0') < 10 && scale; p++, scale /= 10) v += (*p - '0') * scale;
  }
  return negative ? -v : v;
}

inline std::string_view inside_quotes(std::string_view token) {
  return token.substr(1, token.rfind('"') - 1);
}

inline int64_t integer(std::string_view t) {
  const char *p = t.data(), *end = p + t.size();
  if (p < end && *p == '"') p++;
  if (p < end && *p == 't') return 1;
  if (p < end && *p == 'f') return 0;
  const bool negative = p < end && *p == '-';
  if (negative) p++;
  uint64_t v = 0;
  const char *first = p;
  while (p < end && unsigned(*p - '0') < 10) v = 10 * v + uint64_t(*p++ - '0');
  return p == first ? ABSENT : negative ? -int64_t(v) : int64_t(v);
}

struct Row {
  uint8_t *ph;
  int64_t *ints;
  int32_t *syms;
  size_t capacity, row;
};

void take(Scan &s, ondemand::object object, int where, Row &out) {
  for (auto field : object) {
    const char *key = field.key().value().raw();
    const char *stop = static_cast<const char *>(memchr(key, '"', 1 << 16));
    const int f = s.find({key, size_t(stop - key)}, where);
    if (f < 0) continue;
    const Field &d = s.fields[f];
    ondemand::value value = field.value();
    if (d.kind == ARGS) {
      if (value.type() == ondemand::json_type::object) take(s, value.get_object(), 1, out);
      continue;
    }
    if (d.kind == PRODUCT) {
      if (value.type() != ondemand::json_type::array) continue;
      int64_t product = 1;
      for (auto item : value.get_array()) product *= int64_t(item.get_int64());
      out.ints[d.row * out.capacity + out.row] = product;
      continue;
    }
    const std::string_view token = value.raw_json_token();
    const bool quoted = token[0] == '"';
    if (token[0] == 'n') continue;
    if (d.kind == CHAR) {
      out.ph[out.row] = uint8_t(token[1]);
    } else if (d.kind == SYM || (d.kind == ID && quoted)) {
      const int row = d.kind == ID ? d.text_row : d.row;
      const auto text = quoted ? inside_quotes(token) : token;
      out.syms[row * out.capacity + out.row] = s.symbols.code(text);
    } else {
      out.ints[d.row * out.capacity + out.row] = d.kind == US ? nanoseconds(token) : integer(token);
    }
  }
}

}  // namespace

extern "C" {

// Opens a trace. `keys` holds the declared keys one a line as "where kind row text_row key".
Scan *simdjson_open(const char *path, const char *keys, int n_ints, int n_syms) {
  auto s = new Scan;
  s->n_ints = n_ints;
  s->n_syms = n_syms;
  std::fill(std::begin(s->table), std::end(s->table), -1);
  for (const char *line = keys; *line;) {
    Field f;
    int used = 0;
    sscanf(line, "%d %d %d %d %n", &f.where, &f.kind, &f.row, &f.text_row, &used);
    const char *end = strchr(line, '\n');
    f.key.assign(line + used, end);
    size_t i = Scan::slot(f.key, f.where);
    while (s->table[i] >= 0) i = (i + 1) & 1023;
    s->table[i] = int32_t(s->fields.size());
    s->fields.push_back(f);
    line = end + 1;
  }
  try {
    s->text = padded_string::load(path);
    s->document = s->parser.iterate(s->text);
    if (s->document.type() == ondemand::json_type::array)
      s->events = s->document.get_array();
    else
      s->events = s->document["traceEvents"].get_array();
    s->at = s->events.begin();
    s->end = s->events.end();
    return s;
  } catch (const simdjson_error &) {
    delete s;
    return nullptr;
  }
}

// Fills up to `capacity` rows; how many, or -1 where the text is not as it should be.
int64_t simdjson_next(Scan *s, uint8_t *ph, int64_t *ints, int32_t *syms, int64_t capacity) {
  Row out{ph, ints, syms, size_t(capacity), 0};
  try {
    const char *start = s->text.data();
    for (; out.row < out.capacity && s->at != s->end; ++s->at) {
      if (out.row % 512 == 0) {
        const size_t n = std::min<size_t>(512, out.capacity - out.row);
        memset(ph + out.row, 0, n);
        for (int i = 0; i < s->n_ints; i++)
          std::fill_n(ints + i * capacity + out.row, n, ABSENT);
        for (int i = 0; i < s->n_syms; i++) memset(syms + i * capacity + out.row, 0xff, 4 * n);
      }
      ondemand::object event = (*s->at).get_object();
      const char *at = s->document.current_location().value();
      ints[(s->n_ints - 1) * capacity + out.row] = at - start;
      take(*s, event, 0, out);
      out.row++;
    }
    return int64_t(out.row);
  } catch (const simdjson_error &) {
    return -1;
  }
}

// Raw texts of the distinct strings so far: their number; where they lie and end.
int64_t simdjson_symbols(Scan *s, const char **arena, const int64_t **offsets) {
  *arena = s->symbols.arena.data();
  *offsets = s->symbols.offsets.data();
  return int64_t(s->symbols.hashes.size());
}

void simdjson_close(Scan *s) { delete s; }
}
