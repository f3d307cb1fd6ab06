# A server that does some work for each request, on a port that it prints, and
# a second interpreter that does so all the time.
use strict;
use warnings;
use threads;
use IO::Socket::INET;
use JSON::PP;
use List::Util qw(sum first reduce max shuffle uniq any);
use Digest::SHA qw(sha256_hex sha512);
use Digest::MD5 qw(md5_hex);
use MIME::Base64;
use Data::Dumper;
use Storable qw(dclone freeze thaw);
use Time::Local;
use POSIX qw(floor strftime);
use Math::BigInt;
use Text::Wrap;
use Encode qw(encode decode);
use Scalar::Util qw(blessed weaken reftype);
use Compress::Zlib;

$SIG{PIPE} = 'IGNORE';
my @items = map { { id => $_, name => "item $_", price => $_ * 1.19, tags => ['a' . $_ % 7, 'b' . $_ % 11] } } 0 .. 299;
my $text = join "\n", map { sprintf '%05d %s %.2f', @$_{qw(id name price)} } @items;

package Shape {
	use overload '+' => sub { Shape->new($_[0]{side} + (ref $_[1] ? $_[1]{side} : $_[1])) }, '""' => sub { "shape $_[0]{side}" }, '<=>' => sub { "$_[0]" cmp "$_[1]" };
	our $AUTOLOAD;
	sub new { my ($class, $side) = @_; return bless { side => $side }, $class }
	sub area { my $self = shift; return $self->{side} ** 2 }
	sub AUTOLOAD { my ($self, @rest) = @_; my $name = $AUTOLOAD; $name =~ s/.*:://; return length($name) + @rest }
	sub DESTROY { my $self = shift; $self->{side} = 0; return }
}

package Circle {
	our @ISA = ('Shape');
	sub area { my $self = shift; return 3.14159 * $self->SUPER::area() }
}

package Counted {
	sub TIEHASH { return bless { n => 0, kept => {} }, shift }
	sub STORE { my ($self, $k, $v) = @_; $self->{n}++; $self->{kept}{$k} = $v; return }
	sub FETCH { my ($self, $k) = @_; $self->{n}++; return $self->{kept}{$k} }
	sub EXISTS { return exists $_[0]{kept}{$_[1]} }
	sub FIRSTKEY { my $self = shift; my $reset = keys %{ $self->{kept} }; return each %{ $self->{kept} } }
	sub NEXTKEY { return each %{ $_[0]{kept} } }
}

package main;

sub fibonacci { my $n = shift; return $n < 2 ? $n : fibonacci($n - 1) + fibonacci($n - 2) }
sub deep { my $n = shift; die { code => 7 } if $n == 0; local $_ = $n; return deep($n - 1) }
sub backwards { return $b->{name} cmp $a->{name} }
sub numbers { my $n = shift; my $i = 0; return sub { return $i < $n ? $i++ ** 2 : undef } }
sub walk { my $x = shift; return ref $x eq 'HASH' ? sum(0, map { walk($_) } values %$x) : ref $x eq 'ARRAY' ? sum(0, map { walk($_) } @$x) : length $x }

my $json = JSON::PP->new->canonical->pretty;
my @jobs = (
	sub { return scalar @{ decode_json(encode_json([@items[0 .. 60]])) } },
	sub { return length $json->encode({ items => [@items[0 .. 40]] }) },
	sub { my $n = 0; while ($text =~ /^(\d{5}) (\w+) (\d+) ([0-9.]+)$/mg) { $n += $1 + length $2 } my $t = $text; $t =~ s/item (\d+)/reverse $1/ge; return $n + length($t) + ('aaaaaaaaaaaaac' =~ /(a+)+b/ ? 1 : 0) },
	sub { my $n = 0; my $s = $text; $s =~ s{(?<id>\d+)(?{ $n++ })}{<$+{id}>}g; (my $u = $s) =~ tr/a-z/A-Z/; return $n + length($u) + scalar split /\W+/, $s },
	sub { my @s = sort { $a->{price} <=> $b->{price} || $a->{name} cmp $b->{name} } shuffle @items; my @t = sort backwards @items; my @u = sort { lc $a cmp lc $b } map { $_->{name} } @items; return $s[0]{id} + $t[0]{id} + @u },
	sub { my $sum = reduce { $a + $b } map { $_->{price} } grep { $_->{id} % 3 } @items; return $sum + max(map { $_->{id} } @items) + (first { $_->{id} > 50 } @items)->{id} + uniq(map { @{ $_->{tags} } } @items) + (any { $_->{id} == 77 } @items) },
	sub { my $n = 0; my $next = numbers(600); while (defined(my $x = $next->())) { $n += $x } return $n },
	sub { my $n = 0; for my $i (1 .. 80) { eval { deep(10 + $i % 10); 1 } or $n += $@->{code}; eval { my $x = 1 / ($i - $i); 1 } or $n += length $@ } return $n },
	sub { my $n = 0; for my $i (1 .. 300) { my $s = $i % 2 ? Circle->new($i) : Shape->new($i); $n += $s->area + length("$s") + $s->anything(1, 2) + ($s + 1)->{side} + ($s->can('area') ? 1 : 0) + $s->isa('Shape') } return $n },
	sub { tie my %h, 'Counted'; $h{$_ % 50} = $_ for 1 .. 400; my $n = sum(map { $h{$_} } keys %h); return $n + tied(%h)->{n} },
	sub { my $t = $text x 3; return length(sha256_hex($t) . md5_hex($t) . sha512($t) . encode_base64($t) . compress($t)) + length uncompress(compress($t)) },
	sub { return walk(dclone(\@items)) + length(freeze(\@items)) + length Dumper([@items[0 .. 20]]) },
	sub { my $x = Math::BigInt->new(3); $x = $x * 7 + 1 for 1 .. 25; return length "$x" },
	sub { my $n = 0; for my $i (1 .. 100) { $n += length strftime('%A %d %B %Y', gmtime($i * 86_400)); $n += timegm(1, 2, 3, 4, 5, 2000 + $i % 20) % 7 } return $n },
	sub { local $Text::Wrap::columns = 60; my $w = wrap('', '  ', substr $text, 0, 2000); return length($w) + length(decode('UTF-8', encode('UTF-8', "gr\x{f6}\x{df}er" x 200))) + length sprintf('%*v02x', '', substr $text, 0, 500) },
	sub { my $s = ''; for my $i (1 .. 2000) { $s .= chr(97 + $i % 26) . $i; substr($s, 0, 1) = 'x' if $i % 5 == 0 } return index($s, 'z25') + length(join ',', reverse split //, substr $s, 0, 500) + unpack('%32C*', $s) + length pack('N*', 1 .. 300) },
	sub { my %h; $h{$_ % 13}{$_ % 7}[$_ % 3] += $_ for 1 .. 1500; my $n = 0; while (my ($k, $v) = each %h) { $n += keys %$v; delete $v->{3} } return $n + walk(\%h) },
	sub { my $n = 0; for my $i (1 .. 8) { $n += eval "my \$x = $i; \$x += \$_ for 1 .. 50; \$x" } my $f = eval 'sub { my $y = shift; return $y * 2 }'; return $n + $f->($n) },
	sub { return fibonacci(12 + $_[0] % 4) },
	sub { my $n = 0; open my $in, '<', \$text or die; while (my $line = <$in>) { chomp $line; my ($id, @rest) = split ' ', $line; $n += $id + @rest } close $in; open my $out, '>', \my $to or die; printf {$out} "%s\n", $_->{name} for @items; return $n + length $to },
	sub { my $n = 0; no strict 'refs'; for my $name (qw(fibonacci walk)) { $n += &{"main::$name"}(5) } local $SIG{__WARN__} = sub { $n += length $_[0] }; warn "w$_\n" for 1 .. 50; local $SIG{__DIE__} = sub { $n++ }; eval { die "x\n" } for 1 .. 50; return $n },
);

threads->create(sub {
	for (my $seed = 0; ; $seed++) { $jobs[$seed % @jobs]->($seed); select undef, undef, undef, 0.005 }
})->detach;

my $server = IO::Socket::INET->new(Listen => 16, LocalAddr => '127.0.0.1', ReuseAddr => 1) or die "listen: $!";
$| = 1;
print $server->sockport, "\n";
my $seed = 0;
while (my $client = $server->accept) {
	while (defined(my $line = <$client>)) { last if $line =~ /^\r?$/ }
	my $body = encode_json({ one => '' . $jobs[$seed % @jobs]->($seed), two => '' . $jobs[$seed / 7 % @jobs]->($seed) });
	$seed++;
	print {$client} "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: " . length($body) . "\r\n\r\n$body";
	close $client;
}
