"""A thread for each request: each computes for some milliseconds, and ends.

Prints a ready line as the victims of test/victims do, and runs until SIGTERM or
for so many seconds (the argument).
"""

import json
import os
import random
import signal
import sys
import threading
import time

ended = threading.Event()


def handle():
    until = time.thread_time() + random.uniform(0.002, 0.006)
    total = 0
    while time.thread_time() < until:
        total += sum(i * i for i in range(50))
    return total


def main():
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    end = time.monotonic() + float(sys.argv[1])
    print(json.dumps({"victim": "requests", "pid": os.getpid()}), flush=True)
    while not ended.is_set() and time.monotonic() < end:
        request = threading.Thread(target=handle)
        request.start()
        request.join()
        time.sleep(random.uniform(0.002, 0.008))


main()
