"""Prints, as JSON, the code objects of sample.py with their tables of lines, and
what the interpreter that runs this says of the lines: the oracle of lines_test.go.

    python3.x generate.py sample.py >3.x.json
"""
import dis
import json
import sys
import types


def ranges(code):
    size = len(code.co_code)
    if hasattr(code, "co_lines"):
        return [[start, end, line or 0] for start, end, line in code.co_lines()]
    starts = list(dis.findlinestarts(code)) + [(size, 0)]
    found = [[0, starts[0][0], code.co_firstlineno]] if starts[0][0] else []
    return found + [[start, starts[i + 1][0], line] for i, (start, line) in enumerate(starts[:-1])]


def walk(code, found):
    table = code.co_linetable if hasattr(code, "co_linetable") else code.co_lnotab
    found.append({"name": code.co_name, "first": code.co_firstlineno, "table": table.hex(),
                  "size": len(code.co_code), "lines": ranges(code)})
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            walk(const, found)
    return found


def main():
    with open(sys.argv[1]) as f:
        source = f.read()
    source = source.replace("FAR_LINES", "a = (a +" + 300 * "\n" + "      a)" + 200 * "\n    ")
    source = source.replace("LONG_CODE", "a = " + " + ".join("a[%d]" % i for i in range(200)))
    codes = walk(compile(source, "sample.py", "exec"), [])
    print("[\n" + ",\n".join(json.dumps(c) for c in codes) + "\n]")


main()
