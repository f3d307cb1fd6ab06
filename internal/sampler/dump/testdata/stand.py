"""Stands still where dump_test.go expects it, one thread asleep and one at work."""
import threading
import time


def spin():
    while True:
        sum(range(100))


class Place:
    def wait(self, n):
        if n > 0:
            return self.wait(n - 1)
        print("ready", flush=True)
        time.sleep(1000)


def outer():
    Place().wait(3)


threading.Thread(target=spin, daemon=True).start()
outer()
