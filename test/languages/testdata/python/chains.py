"""A program whose legal stacks are known, for CPython 3.6 to 3.14.

Each function that main calls reaches burn through another mechanism of the
interpreter. python_test.go knows which chains are legal, and finds the lines
where burn is called by looking for its name.
"""
import ctypes
import functools
import json
import re
import sys
import threading


def burn(n):
    total = 0
    for i in range(n):
        total += i * i
    return total


class Tree:
    def descend(self, n):
        if n == 1:
            return burn(2000)
        return self.descend(n - 1)


def recursion():
    Tree().descend(10)


def reducer(a, b):
    return burn(300) + b


def reduction():
    functools.reduce(reducer, range(8))


def numbers(n):
    for _ in range(n):
        yield burn(300)


def generator():
    sum(numbers(8))


def relay():
    yield from numbers(8)


def delegation():
    sum(relay())


def sorting():
    sorted(range(8), key=lambda x: burn(300) + x)


def comprehension():
    [burn(300) for _ in range(8)]


def replacement(match):
    burn(300)
    return "b"


def expression():
    re.sub("a", replacement, "aaaaaaaa")


def hook(pairs):
    burn(300)
    return pairs


def parsing():
    json.loads('[{"a":1},{"a":1},{"a":1},{"a":1}]', object_hook=hook)


COMPARE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int))


def compare(a, b):
    burn(300)
    return a[0] - b[0]


COMPARE_IN_C = COMPARE(compare)
LIBC = ctypes.CDLL(None)


def callback():
    values = (ctypes.c_int * 5)(5, 1, 4, 2, 3)
    LIBC.qsort(values, 5, ctypes.sizeof(ctypes.c_int), COMPARE_IN_C)


class Pause:
    def __await__(self):
        yield burn(300)


async def inner():
    burn(300)
    await Pause()
    burn(300)


async def outer():
    await inner()


def coroutine():
    steps = outer()
    try:
        while True:
            steps.send(None)
    except StopIteration:
        pass


class Instance:
    def __init__(self, n):
        self.burned = burn(n)

    def __eq__(self, other):
        return burn(300) < 0


def instances():
    for _ in range(8):
        Instance(300)


def slots():
    Instance(300) in [1, 2, 3]


def naïve():
    burn(2000)


def 関数():
    burn(2000)


def 𐌰𐌱():
    burn(2000)


def characters():
    naïve()
    関数()
    𐌰𐌱()


LONG = "def long():\n" + "".join("    x%d = %d\n" % (i, i) for i in range(1500)) + "    burn(2000)\n"
SCOPE = {"burn": burn}
exec(compile(LONG, "long.py", "exec"), SCOPE)
long = SCOPE["long"]


def table():
    long()


def worker():
    while True:
        burn(3000)


def main():
    threading.Thread(target=worker, daemon=True).start()
    print("ready", flush=True)
    while True:
        recursion()
        reduction()
        generator()
        delegation()
        sorting()
        comprehension()
        expression()
        parsing()
        callback()
        coroutine()
        instances()
        slots()
        characters()
        table()


if __name__ == "__main__":
    main()
