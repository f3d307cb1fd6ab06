<?php
// Calls through every mechanism that PHP has. Each call stands on a line of its own.
namespace Shop;

function burn(int $n): int
{
    $x = 0;
    for ($i = 0; $i < $n; $i++) {
        $x = ($x * 31 + $i) % 1000003;
    }
    return $x;
}

class Tree
{
    public function descend(int $depth): int
    {
        if ($depth === 0) {
            return burn(3000);
        }
        return $this->descend($depth - 1);
    }

    public static function compare($a, $b): int
    {
        burn(500);
        return $a <=> $b;
    }

    public function __toString(): string
    {
        return (string) burn(2000);
    }

    public function __call($name, $arguments)
    {
        return burn(2000);
    }
}

function mapping(): array
{
    return array_map(function ($v) {
        return burn(1000);
    }, [1, 2, 3]);
}

function sorting(): array
{
    $list = [3, 1, 2];
    usort($list, [Tree::class, 'compare']);
    return $list;
}

function matching(): string
{
    return preg_replace_callback('/b/', fn ($m) =>
        burn(1000)
    , 'abcabc');
}

function numbers()
{
    foreach ([1, 2] as $n) {
        yield burn(2000);
    }
}

function generating(): int
{
    $sum = 0;
    foreach (numbers() as $n) {
        $sum += $n;
    }
    return $sum;
}

function evaluating(): int
{
    return eval('return Shop\burn(2000);');
}

function including(): int
{
    return include __DIR__ . '/included.php';
}

function printing(Tree $t): string
{
    return "$t";
}

function missing(Tree $t)
{
    return $t->anything();
}

function fibers()
{
    $fiber = new \Fiber(function () {
        burn(1000);
        \Fiber::suspend();
        burn(1000);
    });
    $fiber->start();
    $fiber->resume();
}

function anonymous(): int
{
    $object = new class {
        public function run(): int
        {
            return burn(2000);
        }
    };
    return $object->run();
}

function appending(): array
{
    $list = [];
    for ($i = 0; $i < 500; $i++) {
        $list[$i & 63] = "item $i";
    }
    return $list;
}

function round(Tree $t): void
{
    $t->descend(10);
    mapping();
    sorting();
    matching();
    generating();
    evaluating();
    including();
    printing($t);
    missing($t);
    fibers();
    anonymous();
    appending();
}

if (PHP_SAPI === 'cli') {
    echo "ready\n";
    while (true) {
        round(new Tree());
    }
}
for ($end = microtime(true) + 0.05; microtime(true) < $end;) {
    round(new Tree());
}
echo 'done';
