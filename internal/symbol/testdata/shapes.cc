// Functions whose names are easily got wrong; see README.md.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace shapes {

static inline int innermost(int x) { return x * 31 + (x >> 3); }
static inline int middle(int x) {
    int sum = 0;
    for (int i = 0; i < x; i++) sum += innermost(i ^ x);
    return sum;
}

__attribute__((noinline)) int outer(int x) { return middle(x) + middle(x / 2); }

template <typename T> struct Stack {
    std::vector<T> items;
    __attribute__((noinline)) void push(const T &item) { items.push_back(item); }
    T pop() {
        if (items.empty()) throw std::runtime_error("empty");
        T top = items.back();
        items.pop_back();
        return top;
    }
};

__attribute__((noinline)) int rarely(int x) {
    if (__builtin_expect(x > 1000, 0)) {
        fprintf(stderr, "much: %d\n", x);
        abort();
    }
    return x + 1;
}

struct Base {
    virtual ~Base() {}
    virtual int run(int x) = 0;
};

struct Derived : Base {
    int run(int x) override {
        auto twice = [x](int y) __attribute__((noinline)) { return x * y; };
        return twice(x) + innermost(x);
    }
};

} // namespace shapes

extern "C" {
static int chosen(int x) { return x - 1; }
int (*choose(void))(int) { return chosen; }
int indirect(int x) __attribute__((ifunc("choose")));

int original(int x) { return x * 3; }
int alias_of_original(int x) __attribute__((weak, alias("original")));

int assembly(int x);
}

asm(".text\n"
    ".globl assembly\n"
    ".type assembly, @function\n"
    "assembly:\n"
    "  lea 1(%rdi), %eax\n"
    "  nop\n"
    "  ret\n"
    "unnamed_tail:\n"
    "  nop\n"
    "  ret\n");

int main(int argc, char **argv) {
    shapes::Stack<std::string> words;
    for (int i = 0; i < argc; i++) words.push(argv[i]);
    std::map<std::string, int> count;
    while (!words.items.empty()) count[words.pop()]++;
    std::vector<int> numbers(argc * 10);
    for (size_t i = 0; i < numbers.size(); i++) numbers[i] = shapes::outer(int(i));
    std::sort(numbers.begin(), numbers.end(), [](int a, int b) { return a > b; });
    shapes::Derived derived;
    shapes::Base *base = &derived;
    printf("%d %d %d %d %d %zu\n", numbers[0], shapes::rarely(argc), base->run(argc), indirect(argc),
           alias_of_original(argc) + assembly(argc), count.size());
    return 0;
}
