# Calls through every mechanism that Perl has. Each call stands on a line of its own.
use strict;
use warnings;
use List::Util qw(first reduce);

sub burn {
    my $n = shift;
    my $x = 0;
    for (my $i = 0; $i < $n; $i++) {
        $x = ($x * 31 + $i) % 1000003;
    }
    return $x;
}

package Tree;
use overload '""' => sub {
    main::burn(500);
    return "tree";
};

sub new { return bless {}, shift }

sub descend {
    my ($self, $depth) = @_;
    if ($depth == 0) {
        my $n = 2000;
        return main::burn($n);
    }
    return $self->descend($depth - 1);
}

sub TIESCALAR { return bless {}, shift }

sub FETCH {
    main::burn(500);
    return 1;
}

package Falling;

sub DESTROY {
    main::burn(500);
}

package main;

my $tree = Tree->new;

sub sorting {
    my @sorted = sort {
        burn(200);
        $a <=> $b
    } 3, 1, 2;
}

sub compare {
    burn(200);
    return $a <=> $b;
}

sub sorting_by {
    my @sorted = sort compare 3, 1, 2;
}

sub finding {
    my $found = first {
        burn(500);
        $_ == 3
    } 1, 2, 3;
}

sub protected {
    my $found = first {
        eval {
            burn(500);
        };
        0
    } 1, 2;
}

sub printing {
    my $text = "$tree";
}

sub fetching {
    tie my $tied, 'Tree';
    my $value = $tied;
}

sub dropping {
    my $falling = bless {}, 'Falling';
    undef $falling;
}

sub evaluating {
    eval 'burn(1000); 1' or die;
}

sub requiring {
    delete $INC{'Required.pm'};
    require Required;
}

my $closure = sub {
    burn(1000);
};

sub replacing {
    my $text = "abc";
    $text =~ s/b/burn(1000)/e;
}

sub round {
    $tree->descend(10);
    sorting();
    sorting_by();
    finding();
    protected();
    printing();
    fetching();
    dropping();
    evaluating();
    requiring();
    $closure->();
    replacing();
}

$| = 1;
print "ready\n";
while (1) {
    round();
}
