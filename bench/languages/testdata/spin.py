"""Works, and says every 50 ms how much it has done."""
import os
import time


def leaf(n):
    total = 0
    for i in range(n):
        total += i * i % 7
    return total


def nested(depth):
    if depth == 0:
        return leaf(200)
    return nested(depth - 1)


done, said = 0, time.monotonic()
while True:
    nested(20)
    os.urandom(512)  # some time in the kernel, as programs spend it: a profiler reads its names once
    done += 1
    now = time.monotonic()
    if now - said >= 0.05:
        said = now
        print(f"{now:.6f} {done}", flush=True)
