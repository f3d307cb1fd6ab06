# Starts short scripts at a steady rate, and tells how many ended otherwise than they should.
# Usage: scripts.pl SECONDS RATE PYTHON
use strict;
use warnings;
use POSIX qw(WNOHANG _exit);
use Time::HiRes qw(time sleep);

my ($seconds, $rate, $python) = @ARGV;
my @sh = ('/bin/sh', '-c', 'i=0; while [ $i -lt 400 ]; do i=$((i+1)); done; exit 3');
my @perl = ($^X, '-e', 'my $x = 0; $x += $_ * $x % 7 for 1 .. 20000; exit 3');
my @python = ($python, '-S', '-c', "x = 0\nfor i in range(20000): x += i % 7\nraise SystemExit(3)");
my @cycle = ((\@sh) x 7, \@perl, \@perl, (\@sh) x 7, \@perl, \@perl, \@python, \@sh);
my ($started, $ended, $wrong, $behind) = (0, 0, 0, 0);

sub reap {
    while ((my $pid = waitpid -1, WNOHANG) > 0) {
        $ended++;
        $wrong++ if $? != 3 << 8;
    }
}

$| = 1;
printf qq({"pid":%d}\n), $$;
my $began = time;
while ((my $due = $began + $started / $rate) < $began + $seconds) {
    my $now = time;
    if ($due > $now) {
        sleep $due - $now;
    }
    $behind++ if $now > $due + 1;
    my @command = @{$cycle[$started % @cycle]};
    my $pid = fork;
    die "fork: $!" unless defined $pid;
    if ($pid == 0) {
        exec { $command[0] } @command or _exit(127);
    }
    $started++;
    reap();
}
while ((my $pid = waitpid -1, 0) > 0) {
    $ended++;
    $wrong++ if $? != 3 << 8;
}
printf qq({"started":%d,"ended":%d,"wrong":%d,"behind":%d,"seconds":%.1f}\n), $started, $ended, $wrong, $behind, time - $began;
