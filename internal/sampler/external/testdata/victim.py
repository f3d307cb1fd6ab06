"""Two threads, each three times as long in heavy as in light; one child process."""
import multiprocessing
import sys
import threading


def leaf(n):
    total = 0
    for i in range(n):
        total += i
    return total


def light():
    return leaf(2000)


class Shop:
    def heavy(self):
        return leaf(6000)


def work():
    shop = Shop()
    while True:
        light()
        shop.heavy()


if __name__ == "__main__":
    threading.Thread(target=work, name="worker; one (a)", daemon=True).start()
    if "child" in sys.argv:
        multiprocessing.get_context("fork").Process(target=work, daemon=True).start()
    print("ready", flush=True)
    work()
