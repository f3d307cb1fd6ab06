"""Forks with multiprocessing, again and again: each child burns in work."""
import multiprocessing
import time


def burn(n):
    total = 0
    for i in range(n):
        total += i * i
    return total


def work():
    end = time.process_time() + 0.1
    while time.process_time() < end:
        burn(20000)


def main():
    multiprocessing.set_start_method("fork")
    print("ready", flush=True)
    while True:
        child = multiprocessing.Process(target=work)
        child.start()
        child.join()


if __name__ == "__main__":
    main()
