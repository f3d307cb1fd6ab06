"""Code whose tables of lines have every kind of entry; generate.py compiles it."""
import contextlib


def plain(a, b):
    c = a + b
    d = c * 2

    return d - 1


def several_lines(a):
    value = plain(
        a,
        plain(a,
              2),
    ) + [
        1,
        2,
    ][0]
    return (value
            if value > 3
            else plain(value, value))


def back_and_forth(items):
    for item in items:
        if item:
            continue
        elif not items:
            break
        print(item,
              items)
    else:
        return None
    while items:
        items = items[1:]
    return [x
            for x in items
            if x]


@contextlib.contextmanager
def manager(n):
    try:
        yield n
    except ValueError as e:
        raise TypeError("x") from e
    finally:
        n += 1


def managed():
    with manager(1) as a, manager(2) as b:
        assert a < b, "order"
        with manager(3):
            pass
    return a


async def waiting(source):
    async for item in source:
        await item
    async with source as s:
        return [await x async for x in s]


class Base(object):
    x = 1

    def method(self, *args, **kw):
        lambda: (
            self.x,
            args)
        return {
            "a": kw,
            "b": [
                i for i in args],
        }

    @property
    @staticmethod
    def other():
        global LATER
        LATER = 1
        del LATER


def far():
    a = 1
    # Lines that need more than one step of a table follow.
    FAR_LINES
    return a


def long_code(a):
    LONG_CODE
    return a
