<?php
// What a request does: some work, of a kind that the request's number chooses.
namespace Live;

interface Priced { public function price(): float; }

trait Labelled
{
    private string $label = '';
    public function label(): string { return $this->label ?: $this->label = sprintf('%05d %s', $this->id, $this->name); }
}

final class Item implements Priced, \JsonSerializable, \IteratorAggregate, \ArrayAccess, \Countable
{
    use Labelled;
    public function __construct(public readonly int $id, public readonly string $name, private array $more = []) {}
    public function price(): float { return $this->id * 1.19; }
    public function jsonSerialize(): array { return ['id' => $this->id, 'name' => $this->name, 'price' => $this->price()]; }
    public function getIterator(): \Generator { foreach ($this->more as $k => $v) { yield $k => $v; } }
    public function offsetExists(mixed $k): bool { return isset($this->more[$k]); }
    public function offsetGet(mixed $k): mixed { return $this->more[$k] ?? null; }
    public function offsetSet(mixed $k, mixed $v): void { $this->more[$k] = $v; }
    public function offsetUnset(mixed $k): void { unset($this->more[$k]); }
    public function count(): int { return count($this->more); }
    public function __get(string $name) { return strtoupper($name); }
    public function __call(string $name, array $with) { return strlen($name) + count($with); }
    public static function __callStatic(string $name, array $with) { return crc32($name) % 10; }
    public function __toString(): string { return $this->label(); }
    public function __invoke(int $x): int { return $x ^ $this->id; }
}

enum Color: string
{
    case Red = 'r';
    case Green = 'g';
    public function next(): self { return match ($this) { self::Red => self::Green, self::Green => self::Red }; }
}

function items(int $n = 300): array
{
    return array_map(fn (int $i) => new Item($i, "item $i", ['a' => $i % 7, 'b' => "x$i"]), range(0, $n - 1));
}

function text(): string { return implode("\n", array_map(fn (Item $i) => "$i " . number_format($i->price(), 2), items())); }

function json(int $seed): int { return count(json_decode(json_encode(items(), JSON_PRETTY_PRINT), true)) + strlen(json_encode(['x' => $seed])); }

function matching(): int
{
    $text = text();
    preg_match_all('/^(?<id>\d{5}) (\w+) (\d+) ([0-9.,]+)$/m', $text, $found, PREG_SET_ORDER);
    $n = count($found) + strlen(preg_replace_callback('/item (\d+)/', fn (array $m) => strrev($m[1]), $text));
    return $n + count(preg_split('/[\s,]+/', $text)) + preg_match('/(a+)+b/', 'aaaaaaaaaaaaaac');
}

function sorting(int $seed): int
{
    $items = items();
    mt_srand($seed);
    shuffle($items);
    usort($items, fn (Item $a, Item $b) => $a->name <=> $b->name);
    uasort($items, [Sorter::class, 'backwards']);
    $numbers = array_map(fn ($i) => $i->id * 7919 % 1009, $items);
    sort($numbers);
    array_multisort($numbers, $items);
    return $items[0]->id + array_sum($numbers) + count(array_unique($numbers));
}

abstract class Sorter
{
    public static function backwards(Item $a, Item $b): int { return strcmp($b->label(), $a->label()); }
}

function numbers(int $n): \Generator
{
    for ($i = 0; $i < $n; $i++) {
        $got = yield $i => $i * $i;
        if ($got) { return $got; }
    }
    return -1;
}

function delegating(int $n): \Generator { $last = yield from numbers($n); yield $last; }

function generating(): int
{
    $sum = 0;
    foreach (delegating(2000) as $x) { $sum += $x; }
    $g = numbers(50);
    while ($g->valid()) { $sum += $g->current(); $g->send(null); }
    return $sum + array_sum(iterator_to_array(numbers(300))) + iterator_count(new \LimitIterator(numbers(100), 0, 10));
}

function deep(int $n): int
{
    if ($n === 0) { throw new \DomainException('refused'); }
    try { return deep($n - 1) + 1; } finally { $n++; }
}

function raising(): int
{
    $n = 0;
    for ($i = 0; $i < 60; $i++) {
        try { deep(10 + $i % 10); } catch (\DomainException $e) { $n += strlen($e->getTraceAsString()); }
        try { intdiv(1, 0); } catch (\DivisionByZeroError) { $n++; }
    }
    return $n + (int) @strlen($missing ?? '');
}

function strings(int $seed): int
{
    $s = '';
    for ($i = 0; $i < 3000; $i++) { $s .= chr(97 + $i % 26) . $i; }
    return strlen(strtoupper($s)) + strpos($s, 'z9') + similar_text(substr($s, 0, 60), substr($s, $seed % 50, 60)) + levenshtein('kitten', 'sitting') +
        strlen(htmlspecialchars(wordwrap($s, 60, '<br>'))) + count(explode('a', $s)) + strlen(ucwords(str_replace('b', ' c', $s))) + strlen(sprintf('%08.3f|%-9s', $seed, 'x'));
}

function hashing(): int
{
    $text = str_repeat(text(), 2);
    return strlen(hash('sha256', $text) . md5($text) . sha1($text) . hash_hmac('sha512', $text, 'k')) + crc32($text) +
        strlen(gzuncompress(gzcompress($text))) + strlen(base64_encode(openssl_encrypt($text, 'aes-128-cbc', str_repeat('k', 16), 0, str_repeat('i', 16)))) + strlen(serialize(unserialize(serialize(items()))));
}

function objects(int $seed): int
{
    $n = 0;
    $c = Color::Red;
    foreach (items(200) as $i) {
        $i['k'] = $seed;
        $n += count($i) + $i->anything(1, 2) + Item::other() + strlen($i->missing . $i) + $i(3) + (isset($i['a']) ? 1 : 0);
        foreach ($i as $k => $v) { $n += strlen($k); }
        unset($i['k']);
        $c = $c->next();
        $copy = clone $i;
    }
    return $n + strlen($c->value);
}

function arrays(): int
{
    $items = items();
    $by = [];
    foreach ($items as $i) { $by[$i->id % 7][] = $i; }
    ksort($by);
    return count(array_filter($items, fn ($i) => $i->id % 3)) + array_reduce($items, fn ($a, $i) => $a + $i->price(), 0) + count(array_merge(...$by)) +
        count(array_combine(array_keys($items), array_column(array_map(fn ($i) => $i->jsonSerialize(), $items), 'name'))) + count(array_slice(array_reverse($items), 3, 9)) + array_search('item 77', array_map(fn ($i) => $i->name, $items));
}

function fibers(): int
{
    $sum = 0;
    for ($i = 0; $i < 20; $i++) {
        $f = new \Fiber(function (int $x): int { for ($j = 0; $j < 5; $j++) { $x += \Fiber::suspend(fibonacci(5)); } return $x; });
        $f->start($i);
        while (!$f->isTerminated()) { $f->resume($i); }
        $sum += $f->getReturn();
    }
    return $sum;
}

function fibonacci(int $n): int { return $n < 2 ? $n : fibonacci($n - 1) + fibonacci($n - 2); }

function numeric(): float
{
    $m = [];
    for ($i = 0; $i < 40; $i++) { for ($j = 0; $j < 40; $j++) { $m[$i][$j] = sin($i * $j) + 1.01 ** $j; } }
    $s = 0;
    for ($i = 0; $i < 40; $i++) { for ($j = 0; $j < 40; $j++) { for ($k = 0; $k < 10; $k++) { $s += $m[$i][$k] * $m[$k][$j]; } } }
    return fmod($s, 7);
}

function rendering(int $seed): int
{
    ob_start();
    foreach (items(150) as $i) { ?><li class="<?= $seed % 3 ?>"><?= htmlspecialchars((string) $i) ?></li><?php }
    return strlen(ob_get_clean()) + eval('return array_sum(range(1, 50));');
}

function reflecting(): int
{
    $n = 0;
    foreach ((new \ReflectionClass(Item::class))->getMethods() as $m) { $n += strlen($m->getName()) + count($m->getParameters()); }
    for ($i = 0; $i < 100; $i++) { $n += call_user_func_array([new Item($i, 'x'), 'label'], []) ? 1 : 0; $n += strlen((new \DateTimeImmutable("@$i"))->modify('+1 day')->format('D, d M Y')); }
    $heap = new \SplPriorityQueue();
    foreach (range(1, 200) as $i) { $heap->insert($i, $i * 7919 % 101); }
    while (!$heap->isEmpty()) { $n += $heap->extract(); }
    return $n;
}

$seed = (int) ($_GET['seed'] ?? 0);
$jobs = ['json', 'matching', 'sorting', 'generating', 'raising', 'strings', 'hashing', 'objects', 'arrays', 'fibers', 'numeric', 'rendering', 'reflecting', 'recursion'];
function recursion(int $seed): int { return fibonacci(15 + $seed % 4); }
foreach ([$seed, intdiv($seed, 7)] as $which) {
    echo $jobs[$which % count($jobs)], ' ', ('Live\\' . $jobs[$which % count($jobs)])($seed), "\n";
}
echo "done\n";
