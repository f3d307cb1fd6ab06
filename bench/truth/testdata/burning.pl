# Burns CPU in functions of known names, and logs how much.
use strict;
use warnings;
use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC CLOCK_THREAD_CPUTIME_ID);

use constant SLOT => 10_000_000;
use constant {SCAN => 1, FIRST => 2, SECOND => 3, IN_PARSE => 4, IN_STORE => 5, STORE => 6, RARE => 7};
my @stacks = ('', 'main::run;main::scan:loop', 'main::run;main::parse:first', 'main::run;main::parse:second',
    'main::run;main::parse;main::hashed:loop', 'main::run;main::store;main::hashed:loop', 'main::run;main::store:loop',
    'main::run;main::rare:loop');
my (%slots, $burned);

# charge gives the CPU time since it was last called to a site.
sub charge {
    my ($site) = @_;
    my $at = int(clock_gettime(CLOCK_MONOTONIC) * 1e9 / SLOT);
    my $now = clock_gettime(CLOCK_THREAD_CPUTIME_ID);
    my $slot = $slots{$at} //= [(0) x @stacks];
    $slot->[$site] += $now - $burned;
    $burned = $now;
}

sub scan {
    my ($n) = @_;
    my $x = 11;
    for my $i (1 .. $n) { $x = ($x * 31 + $i) & 0xFFFF } # burns loop
    return $x;
}

sub rare {
    my ($n) = @_;
    my $x = 13;
    for my $i (1 .. $n) { $x = ($x * 31 + $i) & 0xFFFF } # burns loop
    return $x;
}

sub hashed {
    my ($n) = @_;
    my $x = 17;
    for my $i (1 .. $n) { $x = ($x * 31 + $i) & 0xFFFF } # burns loop
    return $x;
}

sub parse {
    my ($n) = @_;
    my $x = 19;
    for my $i (1 .. $n) { $x = ($x * 31 + $i) & 0xFFFF } # burns first
    charge(FIRST);
    for my $i (1 .. $n / 2) { $x = ($x * 31 + $i) & 0xFFFF } # burns second
    charge(SECOND);
    if ($x % 4 == 0) {
        hashed($n);
        charge(IN_PARSE);
    }
    return $x;
}

sub store {
    my ($n) = @_;
    hashed($n);
    charge(IN_STORE);
    my $x = 23;
    for my $i (1 .. $n / 4) { $x = ($x * 31 + $i) & 0xFFFF } # burns loop
    charge(STORE);
    return $x;
}

sub run {
    my ($size, $end) = @_;
    while (clock_gettime(CLOCK_MONOTONIC) < $end) {
        my $u = int rand 1000;
        my $n = int($size / 4 + rand $size * 1.5);
        charge(0);
        if ($u < 15) {
            rare($n);
            charge(RARE);
        } elsif ($u < 150) {
            store($n);
        } elsif ($u < 450) {
            parse($n);
        } else {
            scan($n);
            charge(SCAN);
        }
    }
    return;
}

scan(10_000);
my $before = clock_gettime(CLOCK_THREAD_CPUTIME_ID);
scan(100_000);
my $size = 100_000 * 200e-6 / (clock_gettime(CLOCK_THREAD_CPUTIME_ID) - $before);
my $start = clock_gettime(CLOCK_MONOTONIC);
$| = 1;
printf '{"victim":"perl","pid":%d,"tid":%d,"slot":%d,"start":%d,"stacks":["%s"]}' . "\n", $$, $$, SLOT, $start * 1e9, join '","', @stacks;
$burned = clock_gettime(CLOCK_THREAD_CPUTIME_ID);
run($size, $start + $ARGV[0]);
$| = 0;
for my $at (sort { $a <=> $b } keys %slots) {
    printf '{"at":%d,"ns":[%s]}' . "\n", $at * SLOT, join ',', map { int($_ * 1e9) } @{$slots{$at}};
}
printf '{"end":%d,"cpu":%d}' . "\n", clock_gettime(CLOCK_MONOTONIC) * 1e9, $burned * 1e9;
