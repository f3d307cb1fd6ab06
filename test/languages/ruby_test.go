package languages

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/unwind"
)

const (
	rubyRound = `<main>;Integer#times;block in <main>;Object#round`
	rubyBurn  = `(;Shop\.burn(;Integer#\S)?)?`
)

// What chains.rb may be doing. Methods written in C may be innermost.
var rubyChains = script{
	kind: profile.KindRuby,
	path: "ruby/chains.rb",
	legal: []string{
		`<main>(;Thread\.new(;Thread#initialize)?|;Thread#join|;Integer#times(;block in <main>)?)?`,
		rubyRound,
		rubyRound + `(;Shop::Tree#descend){1,11}`,
		rubyRound + `(;Shop::Tree#descend){11}` + rubyBurn,
		rubyRound + `;Object#mapping(;Array#map(;block in Object#mapping` + rubyBurn + `)?)?`,
		rubyRound + `;Object#sorting(;Array#sort(;Shop::Tree#<=>` + rubyBurn + `)?)?`,
		rubyRound + `;Object#counting(;Integer#times(;block in Object#counting` + rubyBurn + `)?)?`,
		rubyRound + `;Object#sorting_by(;Enumerable#sort_by(;Array#each(;block in Object#sorting_by` + rubyBurn + `)?)?)?`,
		rubyRound + `;Object#yielding(;Shop::Tree#each_twice(;block in Object#yielding` + rubyBurn + `)?)?`,
		rubyRound + `;Object#printing(;Shop::Tree#to_s` + rubyBurn + `)?`,
		rubyRound + `;Object#rescuing(;Kernel#raise\S*|;rescue in Object#rescuing(;Module#===|(;Shop\.burn(;Integer#\S)?)?))?`,
		rubyRound + `;Object#evaluating(;Kernel#eval(;Object#evaluating` + rubyBurn + `)?)?`,
		rubyRound + `;Object#fibers(;Fiber\S*|;Class#new\S*)?`,
		`block in Object#fibers(` + rubyBurn + `|;Fiber\.yield)?`,
		rubyRound + `;Object#lambdas(;lambda|;block in Object#lambdas` + rubyBurn + `)?`,
		rubyRound + `;Object#generating(;Enumerator\S*|;Class#new\S*|;Enumerator#next(;\S+)?)?`,
		`(Enumerator#each(;Enumerator::Generator#each(;proc|;block in Object#generating(` + rubyBurn + `|;Enumerator::Yielder#<<)?)?)?)?`,
		rubyRound + `;Object#long_one` + rubyBurn,
		rubyRound + `;Shop::Tree#defined` + rubyBurn,
		rubyRound + `;Shop::Tree#method_missing` + rubyBurn,
		rubyRound + `;Shop::Mixed#mixed` + rubyBurn,
		`(block in <main>(;Object#worker(;Integer#times(;block in Object#worker` + rubyBurn + `)?)?)?)?`,
	},
	needed: []string{
		rubyRound + strings.Repeat(`;Shop::Tree#descend`, 11) + `;Shop.burn`,
		rubyRound + `;Object#mapping;Array#map;block in Object#mapping;Shop.burn`,
		rubyRound + `;Object#sorting;Array#sort;Shop::Tree#<=>;Shop.burn`,
		rubyRound + `;Object#counting;Integer#times;block in Object#counting;Shop.burn`,
		rubyRound + `;Object#sorting_by;Enumerable#sort_by;Array#each;block in Object#sorting_by;Shop.burn`,
		rubyRound + `;Object#yielding;Shop::Tree#each_twice;block in Object#yielding;Shop.burn`,
		rubyRound + `;Object#printing;Shop::Tree#to_s;Shop.burn`,
		rubyRound + `;Object#rescuing;rescue in Object#rescuing;Shop.burn`,
		rubyRound + `;Object#evaluating;Kernel#eval;Object#evaluating;Shop.burn`,
		`block in Object#fibers;Shop.burn`,
		rubyRound + `;Object#lambdas;block in Object#lambdas;Shop.burn`,
		`Enumerator#each;Enumerator::Generator#each;block in Object#generating;Shop.burn`,
		rubyRound + `;Object#long_one;Shop.burn`,
		rubyRound + `;Shop::Tree#defined;Shop.burn`,
		rubyRound + `;Shop::Tree#method_missing;Shop.burn`,
		rubyRound + `;Shop::Mixed#mixed;Shop.burn`,
		`block in <main>;Object#worker;Integer#times;block in Object#worker;Shop.burn`,
	},
	calls: map[string]string{
		"block in Object#yielding":  "yield ",
		"block in Object#lambdas":   "f.call",
		"rescue in Object#rescuing": "def rescuing",
		"Shop::Tree#to_s":           "#{tree}",
		"Shop::Tree#method_missing": "anything",
		"Object#evaluating":         "eval",
		"Class#new":                 ".new",
	},
}

// TestRuby records a program that calls through every mechanism there is.
func TestRuby(t *testing.T) {
	needsBPF(t)
	ruby := needs(t, "ruby")
	seen := recordScripts(t, unwind.Ruby, 4*time.Second, map[string]*exec.Cmd{"": exec.Command(ruby, "testdata/ruby/chains.rb")})
	rubyChains.check(t, seen[""])
}
