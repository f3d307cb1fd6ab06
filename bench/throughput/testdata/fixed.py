"""Does as much as it is told to, prints what came out, and ends with status 7."""
import json
import sys


class Item:
    def __init__(self, size):
        self.size = size

    def area(self):
        return self.size * self.size


def key(item):
    return item.area() % 101


def nested(depth, seed):
    if depth == 0:
        return work(seed)
    return nested(depth - 1, seed + depth)


def work(seed):
    items = []
    for _ in range(40):
        seed = (seed * 1103515245 + 12345) & 0x7FFFFFFF
        items.append(Item(seed >> 16))
    items.sort(key=key)
    text = json.dumps([item.area() for item in items])
    return seed ^ len(text) ^ sum(json.loads(text)) & 0xFFFF


x = 1
for _ in range(int(sys.argv[1])):
    x = nested(20, x)
print(x)
sys.exit(7)
