<?php
// Spends its time in a regular expression that PCRE has compiled.
namespace Text;

function search(string $text): int
{
    return preg_match_all('/^(\d{5}) (?<word>\w+) (\d+) ([0-9.]+)$/m', $text);
}

echo "ready\n";
$text = str_repeat("00012 item 12 14.28\nneither this, nor that: 12345\n", 500);
while (true) {
    search($text);
}
