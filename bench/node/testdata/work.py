# A service in Python that answers a little, then waits. The argument is parts of a CPU in thousandths.
import json
import random
import sys
import time


def make(n):
    return [{"id": random.randrange(10**6), "name": "customer %d" % random.randrange(500)} for _ in range(n)]


def rank(orders):
    return sorted(orders, key=lambda o: (o["name"], o["id"]))


def digest(text):
    total = 0
    for word in text.split():
        total = (total * 31 + len(word)) % 1000003
    return total


def serve():
    return digest(json.dumps(rank(make(100))))


def main():
    share = int(sys.argv[1]) / 1000 if len(sys.argv) > 1 else 0.02
    while True:
        began = time.process_time()
        for _ in range(10):
            serve()
        worked = time.process_time() - began
        time.sleep(worked / share * (0.5 + random.random()))


main()
