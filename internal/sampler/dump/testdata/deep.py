"""Stands still in as many functions as it is told, each with its own code: more memory than is read at once."""
import sys
import time


def innermost():
    print("ready", flush=True)
    time.sleep(1000)


functions = {"function0": innermost}
for n in range(1, int(sys.argv[1]) + 1):
    exec("def function%d(): return function%d()" % (n, n - 1), functions)
functions["function" + sys.argv[1]]()
