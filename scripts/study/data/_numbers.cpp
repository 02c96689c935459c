// Parses lines of a text table to float32, without Python's global lock. `study.data.text_table` describes how it is used.
//
// A number is the float64 that is nearest to its text, rounded to float32, as Python's float() and numpy.float32()
// give it. Digits are collected in a 64-bit integer. If it is at most 2^53 and the power of ten at most 10^22, both are
// exact as float64, so that one multiplication or division rounds correctly. All other texts go to std::from_chars.

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

constexpr int FIRST_TEXT = -2;  // place of the first column of texts; the next one's is one less
constexpr int MOST_DIGITS = 19; // that always fit into 64 bits
constexpr uint64_t MOST_EXACT = uint64_t{1} << 53;
constexpr int MOST_POWER = 22;
constexpr double POWERS[MOST_POWER + 1] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                           1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

struct Fault {
    Py_ssize_t row = -1;
    Py_ssize_t column = -1;
    const char *what = nullptr;
};

// The different texts of a column, in order of appearance: a hash table that is at most half full. The texts stay where
// they are, in the block.
class Texts {
  public:
    int32_t number(std::string_view text) {
        if (!all_.empty() && text == all_[last_]) {
            return last_;
        }
        if (2 * all_.size() >= slots_.size()) {
            grow();
        }
        const uint64_t hash = hash_of(text);
        Slot *slot = &slots_[hash & (slots_.size() - 1)];
        while (slot->number >= 0 && !(slot->hash == hash && all_[slot->number] == text)) {
            slot = after(slot);
        }
        if (slot->number < 0) {
            *slot = {hash, static_cast<int32_t>(all_.size())};
            all_.push_back(text);
        }
        return last_ = slot->number;
    }
    const std::vector<std::string_view> &all() const { return all_; }

  private:
    struct Slot {
        uint64_t hash = 0;
        int32_t number = -1; // no text
    };

    std::vector<std::string_view> all_;
    std::vector<Slot> slots_; // a power of two
    int32_t last_ = 0;

    Slot *after(Slot *slot) { return ++slot == slots_.data() + slots_.size() ? slots_.data() : slot; }

    void grow() {
        const std::vector<Slot> before = std::move(slots_);
        slots_.assign(before.empty() ? 64 : 2 * before.size(), Slot());
        for (const Slot &old : before) {
            if (old.number >= 0) {
                Slot *slot = &slots_[old.hash & (slots_.size() - 1)];
                while (slot->number >= 0) {
                    slot = after(slot);
                }
                *slot = old;
            }
        }
    }

    static uint64_t hash_of(std::string_view text) {
        uint64_t hash = text.size();
        size_t done = 0;
        for (; text.size() - done >= 8; done += 8) {
            uint64_t word;
            std::memcpy(&word, text.data() + done, sizeof word);
            hash = mixed(hash ^ word);
        }
        uint64_t word = 0;
        for (; done < text.size(); ++done) {
            word = word << 8 | static_cast<unsigned char>(text[done]);
        }
        return mixed(hash ^ word);
    }

    static uint64_t mixed(uint64_t hash) {
        hash *= 0x9E3779B97F4A7C15; // 2^64 over the golden ratio, as Fibonacci hashing has it
        return hash ^ hash >> 32;
    }
};

inline bool is_digit(char c) { return static_cast<unsigned char>(c - '0') < 10; }

// The value of eight digits, the first in the lowest byte (little-endian): pairs, then fours, then all eight.
inline uint32_t eight_digits(uint64_t digits) {
    digits = (digits & 0x0F0F0F0F0F0F0F0F) * (10 * 0x100 + 1) >> 8;
    digits = (digits & 0x00FF00FF00FF00FF) * (100 * 0x10000 + 1) >> 16;
    return static_cast<uint32_t>((digits & 0x0000FFFF0000FFFF) * (10000 * 0x100000000 + 1) >> 32);
}

// Appends the digits from p on to the mantissa; returns the end of the digits. Eight at a time: the length of numbers
// varies, and a loop over single digits would often be predicted wrongly.
inline const char *append_digits(const char *p, const char *end, uint64_t &mantissa) {
    constexpr uint64_t SCALES[9] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000};
    while (end - p >= 8) {
        uint64_t text;
        std::memcpy(&text, p, sizeof text);
        // The high bit of each byte that is no digit. Carries reach only bytes behind the first such byte.
        const uint64_t others =
            ((text + 0x4646464646464646) | (text - 0x3030303030303030) | text) & 0x8080808080808080;
        if (others == 0) {
            mantissa = 100000000 * mantissa + eight_digits(text);
            p += 8;
            continue;
        }
        const int count = __builtin_ctzll(others) / 8;
        if (count > 0) {
            mantissa = SCALES[count] * mantissa + eight_digits(text << (64 - 8 * count));
        }
        return p + count;
    }
    for (; p != end && is_digit(*p); ++p) {
        mantissa = 10 * mantissa + static_cast<uint64_t>(*p - '0');
    }
    return p;
}

inline bool is_blank(char c) { return c == ' ' || c == '\t'; }

class Block {
  public:
    const char *position;
    const char *end;
    char separator;
    const int32_t *places;
    Py_ssize_t columns;
    std::vector<std::string> missing;
    char *target;
    Py_ssize_t row_stride, column_stride, rows;
    int32_t *codes;
    std::vector<Texts> texts;
    Fault fault;

    void prepare() {
        for (const std::string &word : missing) {
            if (word.empty()) {
                may_be_empty_ = true;
            } else {
                may_begin_missing_[static_cast<unsigned char>(word[0])] = true;
            }
        }
        kinds_[0] = kinds_[static_cast<unsigned char>('"')] = REFUSED;
        for (int c = '~' + 1; c < 256; ++c) {
            kinds_[c] = REFUSED;
        }
        kinds_[static_cast<unsigned char>('\n')] = kinds_[static_cast<unsigned char>('\r')] = END;
        kinds_[static_cast<unsigned char>(separator)] = END;
    }

    bool parse() {
        for (Py_ssize_t row = 0; row < rows; ++row) {
            if (!line(row)) {
                fault.row = row;
                return false;
            }
        }
        if (position != end) {
            fault = {rows, 0, "there are more lines"};
            return false;
        }
        return true;
    }

  private:
    bool may_be_empty_ = false;
    bool may_begin_missing_[256] = {};
    enum : uint8_t { OF_TEXT, REFUSED, END } kinds_[256] = {};

    bool fail(Py_ssize_t column, const char *what) {
        fault.column = column;
        fault.what = what;
        return false;
    }

    bool at_end_of_value(const char *p) const { return p == end || *p == separator || *p == '\n' || *p == '\r'; }

    bool line(Py_ssize_t row) {
        if (at_end_of_line()) {
            return fail(0, "the line is empty");
        }
        char *values = target + row * row_stride;
        for (Py_ssize_t column = 0; column < columns; ++column) {
            const int32_t place = places[column];
            if (place >= 0) {
                float value;
                if (!number(value)) {
                    return fail(column, "a value is neither a number nor one of the words for a missing value");
                }
                std::memcpy(values + place * column_stride, &value, sizeof value);
            } else if (!text(row, place)) {
                return fail(column, "there is a zero byte, a quote or what is not ASCII");
            }
            if (column + 1 < columns) {
                if (position == end || *position != separator) {
                    return fail(column + 1, "the line has too few values");
                }
                ++position;
            }
        }
        if (!at_end_of_line()) {
            return fail(columns, position != end && *position == separator
                                     ? "the line has too many values"
                                     : "there is a carriage return within a line");
        }
        position += position != end && *position == '\r';
        position += position != end;
        return true;
    }

    bool at_end_of_line() const {
        const char *p = position;
        p += p != end && *p == '\r';
        return p == end || *p == '\n';
    }

    bool text(Py_ssize_t row, int32_t place) {
        const char *begin = position;
        while (position != end && kinds_[static_cast<unsigned char>(*position)] == OF_TEXT) {
            ++position;
        }
        if (position != end && kinds_[static_cast<unsigned char>(*position)] == REFUSED) {
            return false;
        }
        if (place <= FIRST_TEXT) {
            const Py_ssize_t which = FIRST_TEXT - place;
            codes[which * rows + row] = texts[which].number({begin, static_cast<size_t>(position - begin)});
        }
        return true;
    }

    bool is_missing() {
        for (const std::string &word : missing) {
            const char *after = position + word.size();
            if (static_cast<size_t>(end - position) >= word.size() &&
                std::memcmp(position, word.data(), word.size()) == 0 && at_end_of_value(after)) {
                position = after;
                return true;
            }
        }
        return false;
    }

    bool number(float &value) {
        if (position == end || at_end_of_value(position)) {
            value = std::numeric_limits<float>::quiet_NaN();
            return may_be_empty_;
        }
        if (may_begin_missing_[static_cast<unsigned char>(*position)] && is_missing()) {
            value = std::numeric_limits<float>::quiet_NaN();
            return true;
        }
        while (position != end && is_blank(*position) && *position != separator) {
            ++position;
        }
        if (!digits(value)) {
            return false;
        }
        while (position != end && is_blank(*position) && *position != separator) {
            ++position;
        }
        return at_end_of_value(position);
    }

    // [+-] digits [. digits] [e [+-] digits], with at least one digit before the exponent.
    bool digits(float &value) {
        const char *p = position;
        const bool negative = p != end && *p == '-';
        p += p != end && (*p == '-' || *p == '+');
        const char *begin = p;
        uint64_t mantissa = 0;
        p = append_digits(p, end, mantissa);
        Py_ssize_t count = p - begin, power = 0;
        if (p != end && *p == '.') {
            const char *point = ++p;
            p = append_digits(p, end, mantissa);
            power = point - p;
            count -= power;
        }
        if (count == 0) {
            return false;
        }
        if (p != end && (*p == 'e' || *p == 'E')) {
            ++p;
            const bool down = p != end && *p == '-';
            p += p != end && (*p == '-' || *p == '+');
            if (p == end || !is_digit(*p)) {
                return false;
            }
            Py_ssize_t exponent = 0;
            for (; p != end && is_digit(*p); ++p) {
                exponent = exponent < 100000 ? 10 * exponent + (*p - '0') : exponent;
            }
            power += down ? -exponent : exponent;
        }
        position = p;
        double exact;
        if (count <= MOST_DIGITS && mantissa <= MOST_EXACT && power <= MOST_POWER && power >= -MOST_POWER) {
            exact = static_cast<double>(mantissa);
            exact = power < 0 ? exact / POWERS[-power] : exact * POWERS[power];
        } else {
            exact = slow(begin, p, power + count);
        }
        value = static_cast<float>(negative ? -exact : exact);
        return true;
    }

    // magnitude: the number's digits before the point, if they were written without an exponent and without a point.
    static double slow(const char *begin, const char *after, Py_ssize_t magnitude) {
        double found = 0;
        const auto result = std::from_chars(begin, after, found);
        if (result.ec != std::errc::result_out_of_range) {
            return found;
        }
        for (const char *p = begin; p != after && (*p == '0' || *p == '.'); ++p) {
            magnitude -= *p == '0';
        }
        return magnitude > 0 ? std::numeric_limits<double>::infinity() : 0.0;
    }
};

// A buffer that is released at the end of its scope.
struct Held {
    Py_buffer view{};
    bool held = false;
    ~Held() {
        if (held) {
            PyBuffer_Release(&view);
        }
    }
    bool get(PyObject *object, int flags) { return held = PyObject_GetBuffer(object, &view, flags) == 0; }
};

PyObject *texts_of(const Block &block) {
    PyObject *columns = PyList_New(static_cast<Py_ssize_t>(block.texts.size()));
    for (size_t column = 0; columns != nullptr && column < block.texts.size(); ++column) {
        const auto &all = block.texts[column].all();
        PyObject *texts = PyList_New(static_cast<Py_ssize_t>(all.size()));
        for (size_t which = 0; texts != nullptr && which < all.size(); ++which) {
            PyObject *text = PyUnicode_DecodeASCII(all[which].data(), static_cast<Py_ssize_t>(all[which].size()), "strict");
            if (text == nullptr) {
                Py_CLEAR(texts);
            } else {
                PyList_SET_ITEM(texts, static_cast<Py_ssize_t>(which), text);
            }
        }
        if (texts == nullptr) {
            Py_CLEAR(columns);
        } else {
            PyList_SET_ITEM(columns, static_cast<Py_ssize_t>(column), texts);
        }
    }
    return columns;
}

bool words_of(PyObject *sequence, std::vector<std::string> &words) {
    PyObject *fast = PySequence_Fast(sequence, "missing: a sequence of bytes is expected");
    bool good = fast != nullptr;
    for (Py_ssize_t index = 0; good && index < PySequence_Fast_GET_SIZE(fast); ++index) {
        char *word;
        Py_ssize_t size;
        good = PyBytes_AsStringAndSize(PySequence_Fast_GET_ITEM(fast, index), &word, &size) == 0;
        if (good) {
            words.emplace_back(word, static_cast<size_t>(size));
        }
    }
    Py_XDECREF(fast);
    return good;
}

PyObject *parse(PyObject *, PyObject *arguments) {
    PyObject *content, *places, *missing, *target, *codes;
    char separator;
    if (!PyArg_ParseTuple(arguments, "OcOOOO", &content, &separator, &places, &missing, &target, &codes)) {
        return nullptr;
    }
    Held text, columns, matrix, numbers;
    if (!text.get(content, PyBUF_SIMPLE) || !columns.get(places, PyBUF_C_CONTIGUOUS) ||
        !matrix.get(target, PyBUF_STRIDES | PyBUF_WRITABLE) || !numbers.get(codes, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE)) {
        return nullptr;
    }
    if (columns.view.itemsize != 4 || matrix.view.itemsize != 4 || numbers.view.itemsize != 4 || matrix.view.ndim != 2 ||
        numbers.view.ndim != 2 || numbers.view.shape[1] != matrix.view.shape[0]) {
        PyErr_SetString(PyExc_TypeError, "places: int32; target: float32 of (rows, numbers); codes: int32 of (texts, rows)");
        return nullptr;
    }
    Block block;
    block.places = static_cast<const int32_t *>(columns.view.buf);
    block.columns = columns.view.len / 4;
    for (Py_ssize_t column = 0; column < block.columns; ++column) {
        if (block.places[column] >= matrix.view.shape[1] || FIRST_TEXT - block.places[column] >= numbers.view.shape[0]) {
            PyErr_SetString(PyExc_IndexError, "places: a place outside of target or codes");
            return nullptr;
        }
    }
    if (!words_of(missing, block.missing)) {
        return nullptr;
    }
    block.position = static_cast<const char *>(text.view.buf);
    block.end = block.position + text.view.len;
    block.separator = separator;
    block.target = static_cast<char *>(matrix.view.buf);
    block.rows = matrix.view.shape[0];
    block.row_stride = matrix.view.strides[0];
    block.column_stride = matrix.view.strides[1];
    block.codes = static_cast<int32_t *>(numbers.view.buf);
    block.texts.resize(static_cast<size_t>(numbers.view.shape[0]));
    block.prepare();
    bool good;
    Py_BEGIN_ALLOW_THREADS;
    good = block.parse();
    Py_END_ALLOW_THREADS;
    if (!good) {
        PyObject *arguments = Py_BuildValue("(sn)", block.fault.what, block.fault.row);
        if (arguments != nullptr) {
            PyErr_SetObject(PyExc_ValueError, arguments);
            Py_DECREF(arguments);
        }
        return nullptr;
    }
    return texts_of(block);
}

PyObject *line_feeds(PyObject *, PyObject *content) {
    Held text;
    if (!text.get(content, PyBUF_SIMPLE)) {
        return nullptr;
    }
    std::vector<int64_t> found;
    Py_BEGIN_ALLOW_THREADS;
    const char *begin = static_cast<const char *>(text.view.buf), *end = begin + text.view.len;
    for (const char *p = begin; (p = static_cast<const char *>(std::memchr(p, '\n', static_cast<size_t>(end - p)))) != nullptr; ++p) {
        found.push_back(p - begin);
    }
    Py_END_ALLOW_THREADS;
    return PyBytes_FromStringAndSize(reinterpret_cast<const char *>(found.data()),
                                     static_cast<Py_ssize_t>(found.size() * sizeof(int64_t)));
}

PyMethodDef METHODS[] = {
    {"parse", parse, METH_VARARGS,
     "parse(content, separator, places, missing, target, codes) -> [[text, ...], ...]\n\n"
     "Parse the lines in content into the rows of target, float32. places: int32 of each column of the text: its column\n"
     "in target, -1 if it is left out, or -2 - k for the k-th column of texts. codes, int32 of (texts, rows): of each\n"
     "row the position of its text in the k-th list that is returned; texts are in order of appearance.\n"
     "Raises ValueError(what, row) for the first fault."},
    {"line_feeds", line_feeds, METH_O, "line_feeds(content) -> the positions of its line feeds, the bytes of int64."},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "_numbers", "Numbers of text tables, compiled.", -1, METHODS,
                      nullptr, nullptr, nullptr, nullptr};

} // namespace

PyMODINIT_FUNC PyInit__numbers() { return PyModule_Create(&MODULE); }
