# Makes subs, runs them and forgets them.
use strict;
use warnings;
no warnings 'redefine';

sub source {
    my ($n) = @_;
    return <<"SOURCE";
#line 1 "made$n.pl"
package Made$n;
sub go$n {
    my (\$rounds) = \@_;
    return outer$n(\$rounds) + 0;
}
sub outer$n {
    my (\$rounds) = \@_;
    return middle$n(\$rounds) + 1;
}
sub middle$n {
    my (\$rounds) = \@_;
    my \$x = 0;
    for my \$i (1 .. \$rounds) {
        \$x += inner$n(\$i);
    }
    return \$x;
}
sub inner$n {
    my (\$x) = \@_;
    for my \$j (1 .. 20) {
        \$x = (\$x * 31 + \$j) & 0xFFFF;
    }
    return \$x;
}
\\&go$n;
SOURCE
}

sub churn {
    for (my $number = 0; ; $number = ($number + 1) % 1_000_000) {
        my $n = sprintf '%06d', $number;
        my $go = eval source($n) or die $@;
        $go->(20) for 1 .. ($number % 4 ? 5 : 200);
        undef $go;
        no strict 'refs';
        undef &{"Made${n}::$_$n"} for qw(go outer middle inner);
        delete $main::{"Made${n}::"};
    }
}

$| = 1;
print qq({"pid": $$}\n);
churn();
