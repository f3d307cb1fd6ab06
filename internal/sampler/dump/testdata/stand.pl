# Stands still where dump_test.go expects it.
use strict;

sub Place::wait {
    my ($n) = @_;
    return Place::wait($n - 1) + 1 if $n > 0;
    $| = 1;
    print "ready\n";
    sleep 1000;
}

sub outer {
    my @sorted = sort { Place::wait(3); $a <=> $b } (2, 1);
}

outer();
