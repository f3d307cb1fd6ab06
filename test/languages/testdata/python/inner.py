"""Burns in a sub-interpreter; with an argument, only tells whether there are any."""
import sys

try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters

CODE = """
def burn(n):
    total = 0
    for i in range(n):
        total += i * i
    return total

def inside():
    while True:
        burn(3000)

inside()
"""


def outside():
    print("ready", flush=True)
    interpreters.run_string(interpreters.create(), CODE)


if len(sys.argv) == 1:
    outside()
