"""A server that does some work for each request, on a port that it prints: a
thread for each connection, and beside them one that runs an event loop."""
import asyncio
import collections
import contextlib
import copy
import csv
import ctypes
import datetime
import decimal
import difflib
import enum
import fractions
import functools
import hashlib
import heapq
import http.server
import io
import itertools
import json
import logging
import operator
import pickle
import queue
import random
import re
import socket
import socketserver
import sqlite3
import string
import struct
import sys
import textwrap
import threading
import urllib.parse
import xml.etree.ElementTree
import zlib

try:
    import numpy
except ImportError:
    numpy = None

ITEMS = [{'id': i, 'name': 'item %d' % i, 'price': i * 1.19, 'tags': ['a%d' % (i % 7), 'b%d' % (i % 11)]} for i in range(1000)]
TEXT = '\n'.join('%(id)05d %(name)s %(price).2f' % item for item in ITEMS)
BYTES = TEXT.encode()


@functools.total_ordering
class Item:
    __slots__ = ('ident', 'name')

    def __init__(self, ident, name):
        self.ident, self.name = ident, name

    def __lt__(self, other):
        return self.name < other.name

    def __eq__(self, other):
        return self.name == other.name

    def __hash__(self):
        return hash((self.ident, self.name))

    def __getattr__(self, name):
        if name.startswith('_'):
            raise AttributeError(name)
        return name.upper()

    @property
    def label(self):
        return '{0.ident}: {0.name!r}'.format(self)


class Color(enum.Enum):
    RED = 1
    GREEN = 2


def jsons(seed):
    return sum(len(x) for x in json.loads(json.dumps(ITEMS[:300], indent=seed % 2 or None), object_hook=lambda d: d))


def regexes(seed):
    found = re.findall(r'(?m)^(\d{5}) (\w+) (\d+) ([0-9.]+)$', TEXT)
    return len(found) + len(re.sub(r'item (\d+)', lambda m: m.group(1)[::-1], TEXT[:6000]))


def database(seed):
    with contextlib.closing(sqlite3.connect(':memory:')) as connection:
        connection.create_function('twice', 1, lambda x: x * 2)
        connection.execute('create table t(i integer primary key, name text, price real)')
        connection.executemany('insert into t values(:id, :name, :price)', ITEMS[:300])
        rows = connection.execute('select name, sum(twice(price)) from t where i % 3 = ? group by substr(name, 1, 6) order by 2 desc', (seed % 3,))
        return sum(row[1] for row in rows)


def compressed(seed):
    packer = zlib.compressobj(6)
    packed = packer.compress(BYTES) + packer.flush()
    return len(zlib.decompress(packed)) + zlib.crc32(BYTES)


def hashed(seed):
    total = 0
    for name in ('sha256', 'md5', 'blake2b', 'sha3_256', 'sha1'):
        total += hashlib.new(name, BYTES * 3).digest()[0]
    return total + hashlib.pbkdf2_hmac('sha256', b'secret', b'salt', 300)[0]


COMPARE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int))
QSORT = ctypes.CDLL(None).qsort


def called_back(seed):
    numbers = (ctypes.c_int * 150)(*(i * 7919 % 1009 for i in range(150)))
    QSORT(numbers, len(numbers), ctypes.sizeof(ctypes.c_int), COMPARE(lambda a, b: a[0] - b[0]))
    return numbers[3]


def sorts(seed):
    items = [Item(i, 'n%d' % (i * 7919 % 1009)) for i in range(400)]
    random.Random(seed).shuffle(items)
    return (len(sorted(items, key=lambda i: i.label)) + sorted(items)[0].ident + max(items).ident + len(set(items)) +
            sorted(ITEMS, key=operator.itemgetter('name'))[0]['id'] + heapq.nsmallest(5, items)[0].ident +
            len(sorted(items[:100], key=functools.cmp_to_key(lambda a, b: (a.name > b.name) - (a.name < b.name)))))


def numbers(n):
    for i in range(n):
        yield i * i


def delegating(n):
    yield from numbers(n)
    return (yield -1)


def generators(seed):
    return (sum(delegating(2000)) + sum(x for x in numbers(2000) if x % 3) + len([y for x in range(50) for y in range(x)]) +
            len({k: v for k, v in zip(range(300), numbers(300))}) + len(list(itertools.islice(itertools.permutations(range(6)), 500))) +
            sum(map(lambda x: x + 1, filter(None, range(1000)))) + functools.reduce(lambda a, b: a ^ b, range(1000)))


def decimals(seed):
    with decimal.localcontext() as context:
        context.prec = 40
        total = sum((decimal.Decimal(1) / decimal.Decimal(i + seed) for i in range(1, 150)), decimal.Decimal(0)).sqrt()
    return total + int(sum(fractions.Fraction(1, i) for i in range(1, 40)))


def pickles(seed):
    items = [Item(i, 'x' * (i % 9)) for i in range(200)]
    return len(pickle.loads(pickle.dumps({'items': [(i.ident, i.name) for i in items], 'more': ITEMS[:100], 'when': datetime.datetime.now()})))


def raising(seed):
    def deep(n):
        if n == 0:
            raise ValueError('refused %d' % seed)
        try:
            return deep(n - 1)
        finally:
            n += 1
    caught = 0
    for i in range(40):
        try:
            deep(10 + i % 15)
        except ValueError as e:
            caught += len(str(e))
        try:
            {}['missing']
        except KeyError:
            caught += 1
    return caught


LOG = logging.getLogger('live')
LOG.setLevel(logging.INFO)
LOG.addHandler(logging.StreamHandler(io.StringIO()))
LOG.propagate = False


def logs(seed):
    for i in range(30):
        LOG.info('request %d of %s', i, seed)
        LOG.debug('never')
    LOG.handlers[0].stream.seek(0)
    return LOG.handlers[0].stream.truncate()


def strings(seed):
    words = TEXT[:8000].split()
    counts = collections.Counter(word.strip(string.punctuation).title() for word in words)
    joined = '|'.join(sorted(counts))
    return (len(textwrap.fill(joined, 70)) + joined.count('1') + len(joined.encode('utf-16').decode('utf-16')) + joined.find('zz') +
            len(string.Template('$a and $b').substitute(a=joined[:20], b=seed)) + len(difflib.get_close_matches('item 12', words[:60])))


def parsed(seed):
    tree = xml.etree.ElementTree.fromstring('<r>' + ''.join('<i n="%d"><t>%s</t></i>' % (i['id'], i['name']) for i in ITEMS[:150]) + '</r>')
    table = io.StringIO()
    writer = csv.DictWriter(table, ['id', 'name', 'price', 'tags'])
    writer.writeheader()
    writer.writerows(ITEMS[:150])
    table.seek(0)
    return len(list(csv.reader(table))) + len(tree.findall('.//t')) + len(urllib.parse.parse_qs('&'.join('a%d=%%20b' % i for i in range(100))))


def structures(seed):
    deque = collections.deque(maxlen=50)
    tree = collections.defaultdict(lambda: collections.defaultdict(int))
    for i in range(1500):
        deque.append(struct.pack('<IHd', i, i & 99, i * 0.5))
        tree[i % 13][i % 7] += struct.unpack('<IHd', deque[-1])[0]
    point = collections.namedtuple('Point', 'x y')
    return sum(point(i, i).x for i in range(500)) + len(copy.deepcopy(ITEMS[:20])) + Color(1 + seed % 2).value + len(json.dumps(tree))


@functools.lru_cache(maxsize=100)
def cached(n):
    return n * n


def fibonacci(n):
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


def recursion(seed):
    return fibonacci(15 + seed % 4) + sum(cached(i % 150) for i in range(1000))


def evaluated(seed):
    names = {}
    exec(compile('def f(x):\n    return [x + i for i in range(100)]\nresult = f(%d)' % seed, 'made', 'exec'), names)
    return sum(names['result']) + eval('sum(i for i in range(200))')


def arrays(seed):
    if numpy is None:
        return sum(bytearray(BYTES)) + len(memoryview(BYTES)[::2].tolist())
    a = numpy.arange(40000, dtype=float).reshape(200, 200)
    return float((a @ a.T + numpy.sin(a)).sum() + numpy.sort(numpy.random.rand(5000))[7] + numpy.vectorize(lambda x: x + 1)(a[0]).sum())


def queued(seed):
    waiting = queue.Queue()
    worker = threading.Thread(target=lambda: [waiting.put(jsons(i)) for i in range(2)])
    worker.start()
    worker.join()
    return waiting.get() + waiting.get()


JOBS = [jsons, regexes, database, compressed, hashed, called_back, sorts, generators, decimals, pickles, raising, logs, strings, parsed,
        structures, recursion, evaluated, arrays, queued]


async def produce(channel):
    for i in range(20):
        await channel.put(i)
        await asyncio.sleep(0)


async def consume(channel):
    total = 0
    for _ in range(20):
        total += await channel.get()
        total += len(json.dumps(ITEMS[:5]))
    return total


async def converse(reader, writer):
    line = await reader.readline()
    channel = asyncio.Queue()
    results = await asyncio.gather(produce(channel), consume(channel))
    writer.write(line.upper() + str(results[1]).encode() + b'\n')
    await writer.drain()
    writer.close()


async def ask(port):
    reader, writer = await asyncio.open_connection('127.0.0.1', port)
    writer.write(b'question\n')
    answer = await reader.read()
    writer.close()
    return answer


async def loop():
    server = await asyncio.start_server(converse, '127.0.0.1', 0)
    port = server.sockets[0].getsockname()[1]
    while True:
        await asyncio.gather(*(ask(port) for _ in range(3)))
        await asyncio.sleep(0.02)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    seeds = itertools.count()

    def do_GET(self):
        seed = next(self.seeds)
        body = json.dumps({'one': str(JOBS[seed % len(JOBS)](seed)), 'two': str(JOBS[seed // 7 % len(JOBS)](seed))}).encode()
        self.send_response(200)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, form, *args):
        LOG.info(form, *args)


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True


def main():
    events = asyncio.new_event_loop()
    threading.Thread(target=lambda: events.run_until_complete(loop()), daemon=True).start()
    server = Server(('127.0.0.1', 0), Handler)
    server.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # or half the time is waited for
    print(server.server_address[1])
    sys.stdout.flush()
    server.serve_forever()


main()
