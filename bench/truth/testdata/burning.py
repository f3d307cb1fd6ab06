"""Burns CPU in functions of known names, and logs how much."""
import json
import os
import random
import sys
import threading
import time

SLOT = 10_000_000
SCAN, FIRST, SECOND, IN_PARSE, IN_STORE, STORE, RARE = range(1, 8)
STACKS = ["", "run;scan:loop", "run;parse:first", "run;parse:second", "run;parse;hash:loop", "run;store;hash:loop",
          "run;store:loop", "run;rare:loop"]

slots = {}
burned = 0


def charge(site):
    """Gives the CPU time since it was last called to a site."""
    global burned
    at = time.monotonic_ns() // SLOT
    now = time.thread_time_ns()
    slot = slots.get(at)
    if slot is None:
        slot = slots[at] = [0] * len(STACKS)
    slot[site] += now - burned
    burned = now


def scan(n):
    x = 11
    for i in range(n): x = (x * 31 + i) & 0xFFFF  # burns loop
    return x


def rare(n):
    x = 13
    for i in range(n): x = (x * 31 + i) & 0xFFFF  # burns loop
    return x


def hash(n):
    x = 17
    for i in range(n): x = (x * 31 + i) & 0xFFFF  # burns loop
    return x


def parse(n):
    x = 19
    for i in range(n): x = (x * 31 + i) & 0xFFFF  # burns first
    charge(FIRST)
    for i in range(n // 2): x = (x * 31 + i) & 0xFFFF  # burns second
    charge(SECOND)
    if x % 4 == 0:
        hash(n)
        charge(IN_PARSE)
    return x


def store(n):
    hash(n)
    charge(IN_STORE)
    x = 23
    for i in range(n // 4): x = (x * 31 + i) & 0xFFFF  # burns loop
    charge(STORE)
    return x


def run(size, end):
    while time.monotonic_ns() < end:
        u, n = random.randrange(1000), random.randrange(size // 4, size * 7 // 4)
        charge(0)
        if u < 15:
            rare(n)
            charge(RARE)
        elif u < 150:
            store(n)
        elif u < 450:
            parse(n)
        else:
            scan(n)
            charge(SCAN)


def main():
    global burned
    scan(10000)
    before = time.thread_time_ns()
    scan(100000)
    size = 100000 * 200_000 // max(time.thread_time_ns() - before, 1)
    start = time.monotonic_ns()
    print(json.dumps({"victim": "python", "pid": os.getpid(), "tid": threading.get_native_id(), "slot": SLOT,
                      "start": start, "stacks": STACKS}), flush=True)
    burned = time.thread_time_ns()
    run(size, start + int(float(sys.argv[1]) * 1e9))
    for at in sorted(slots):
        print(json.dumps({"at": at * SLOT, "ns": slots[at]}))
    print(json.dumps({"end": time.monotonic_ns(), "cpu": time.process_time_ns()}))


main()
