"""Burns below as many calls as its argument says."""
import sys


def burn(n):
    total = 0
    for i in range(n):
        total += i * i
    return total


def dive(n):
    if n > 1:
        return dive(n - 1)
    print("ready", flush=True)
    while True:
        burn(3000)


sys.setrecursionlimit(10000)
dive(int(sys.argv[1]))
