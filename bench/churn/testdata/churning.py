"""Makes functions, runs them and forgets them; or does so in children that are killed, or become others, while they run."""
import gc
import os
import random
import signal
import sys
import threading
import time

SOURCE = """
class Made{n}:
    def go{n}(self, rounds):
        return self.outer{n}(rounds)

    def outer{n}(self, rounds):
        return self.middle{n}(rounds) + 1

    def middle{n}(self, rounds):
        x = 0
        for i in range(rounds):
            x += inner{n}(i)
        return x


def inner{n}(i):
    x = i
    for j in range(20):
        x = (x * 31 + j) & 0xFFFF
    return x
"""


def make(number):
    n = "%06d" % number
    names = {}
    exec(compile(SOURCE.format(n=n), "made%s.py" % n, "exec"), names)
    return getattr(names["Made" + n](), "go" + n)


def churn():
    kept = []
    number = 0
    while True:
        number = (number + 1) % 1000000
        go = make(number)
        for _ in range(200 if number % 4 == 0 else 5):
            go(20)
        kept.append(go)
        if len(kept) == 50:
            kept.clear()
            gc.collect()


def become(after):
    """Another image of this program takes this one's place while its main thread works."""
    time.sleep(after)
    os.execv(sys.executable, [sys.executable, sys.argv[0], "child"])


def child():
    go = make(random.randrange(1000000))
    if random.random() < 0.3:
        threading.Thread(target=become, args=(random.uniform(0, 0.03),), daemon=True).start()
    signal.setitimer(signal.ITIMER_REAL, random.uniform(0.001, 0.08))  # whose signal kills
    while True:
        go(20)


def parent():
    while True:
        children = []
        for _ in range(4):
            pid = os.fork()
            if pid == 0:
                child()
            children.append(pid)
        for pid in children:
            _, status = os.waitpid(pid, 0)
            if not os.WIFSIGNALED(status) or os.WTERMSIG(status) != signal.SIGALRM:
                sys.exit("a child ended otherwise than it was meant to: %#x" % status)


if sys.argv[1] == "child":
    child()
print('{"pid": %d}' % os.getpid(), flush=True)
churn() if sys.argv[1] == "churn" else parent()
