<?php
// Burns CPU in functions of known names, and logs how much.
const SLOT = 10000000;
const SCAN = 1, FIRST = 2, SECOND = 3, IN_PARSE = 4, IN_STORE = 5, STORE = 6, RARE = 7;
const STACKS = ['', 'run;scan:loop', 'run;parse:first', 'run;parse:second', 'run;parse;hashed:loop', 'run;store;hashed:loop',
    'run;store:loop', 'run;rare:loop'];

$slots = [];
$burned = 0;

function cpu()
{
    $u = getrusage();
    return ($u['ru_utime.tv_sec'] + $u['ru_stime.tv_sec']) * 1000000000 + ($u['ru_utime.tv_usec'] + $u['ru_stime.tv_usec']) * 1000;
}

// charge gives the CPU time since it was last called to a site.
function charge($site)
{
    global $slots, $burned;
    $at = intdiv(hrtime(true), SLOT);
    $now = cpu();
    if (!isset($slots[$at])) {
        $slots[$at] = array_fill(0, count(STACKS), 0);
    }
    $slots[$at][$site] += $now - $burned;
    $burned = $now;
}

function scan($n)
{
    $x = 11;
    for ($i = 0; $i < $n; $i++) $x = ($x * 31 + $i) & 0xFFFF; // burns loop
    return $x;
}

function rare($n)
{
    $x = 13;
    for ($i = 0; $i < $n; $i++) $x = ($x * 31 + $i) & 0xFFFF; // burns loop
    return $x;
}

function hashed($n)
{
    $x = 17;
    for ($i = 0; $i < $n; $i++) $x = ($x * 31 + $i) & 0xFFFF; // burns loop
    return $x;
}

function parse($n)
{
    $x = 19;
    for ($i = 0; $i < $n; $i++) $x = ($x * 31 + $i) & 0xFFFF; // burns first
    charge(FIRST);
    for ($i = intdiv($n, 2); $i > 0; $i--) $x = ($x * 31 + $i) & 0xFFFF; // burns second
    charge(SECOND);
    if ($x % 4 == 0) {
        hashed($n);
        charge(IN_PARSE);
    }
    return $x;
}

function store($n)
{
    hashed($n);
    charge(IN_STORE);
    $x = 23;
    for ($i = intdiv($n, 4); $i > 0; $i--) $x = ($x * 31 + $i) & 0xFFFF; // burns loop
    charge(STORE);
    return $x;
}

function run($size, $end)
{
    while (hrtime(true) < $end) {
        $u = mt_rand(0, 999);
        $n = mt_rand(intdiv($size, 4), intdiv($size * 7, 4));
        charge(0);
        if ($u < 15) {
            rare($n);
            charge(RARE);
        } elseif ($u < 150) {
            store($n);
        } elseif ($u < 450) {
            parse($n);
        } else {
            scan($n);
            charge(SCAN);
        }
    }
}

scan(100000);
$before = cpu();
scan(1000000);
$size = intdiv(1000000 * 200000, max(cpu() - $before, 1));
$start = hrtime(true);
echo json_encode(['victim' => 'php', 'pid' => getmypid(), 'slot' => SLOT, 'start' => $start, 'stacks' => STACKS]), "\n";
flush();
$burned = cpu();
run($size, $start + (int)($argv[1] * 1e9));
ksort($slots);
foreach ($slots as $at => $ns) {
    echo json_encode(['at' => $at * SLOT, 'ns' => $ns]), "\n";
}
echo json_encode(['end' => hrtime(true), 'cpu' => $burned]), "\n";
