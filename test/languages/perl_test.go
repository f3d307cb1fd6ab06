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
	perlRound = `(main program);main::round`
	perlLegal = `\(main program\);main::round`
)

// What chains.pl may be doing.
var perlChains = script{
	kind: profile.KindPerl,
	path: "perl/chains.pl",
	legal: []string{
		`\(main program\)(;main::round)?`,
		perlLegal + `(;Tree::descend){1,11}`,
		perlLegal + `(;Tree::descend){11}(;main::burn)?`,
		perlLegal + `;main::(sorting|replacing)(;main::burn)?`,
		perlLegal + `;main::sorting_by(;main::compare(;main::burn)?)?`,
		perlLegal + `;main::(finding|protected)(;main::__ANON__\[chains.pl:\d+\](;main::burn)?)?`,
		perlLegal + `;main::printing(;Tree::__ANON__\[chains.pl:17\](;main::burn)?)?`,
		perlLegal + `;main::fetching(;Tree::TIESCALAR|;Tree::FETCH(;main::burn)?)?`,
		perlLegal + `;main::dropping(;Falling::DESTROY(;main::burn)?)?`,
		perlLegal + `;main::evaluating(;\(eval\)(;main::burn)?)?`,
		perlLegal + `;main::requiring(;require( Required.pm(;Required::BEGIN|;main::burn)?)?)?`,
		perlLegal + `;main::__ANON__\[chains.pl:105\](;main::burn)?`,
	},
	needed: []string{
		perlRound + strings.Repeat(`;Tree::descend`, 11) + `;main::burn`,
		perlRound + `;main::sorting;main::burn`,
		perlRound + `;main::sorting_by;main::compare;main::burn`,
		perlRound + `;main::finding;main::__ANON__[chains.pl:67];main::burn`,
		perlRound + `;main::protected;main::__ANON__[chains.pl:74];main::burn`,
		perlRound + `;main::printing;Tree::__ANON__[chains.pl:17];main::burn`,
		perlRound + `;main::fetching;Tree::FETCH;main::burn`,
		perlRound + `;main::dropping;Falling::DESTROY;main::burn`,
		perlRound + `;main::evaluating;(eval);main::burn`,
		perlRound + `;main::requiring;require Required.pm;main::burn`,
		perlRound + `;main::__ANON__[chains.pl:105];main::burn`,
		perlRound + `;main::replacing;main::burn`,
	},
	calls: map[string]string{
		"main::compare":                 "sort compare",
		"main::__ANON__[chains.pl:67]":  "} 1, 2",
		"main::__ANON__[chains.pl:74]":  "} 1, 2",
		"main::__ANON__[chains.pl:105]": "$closure->",
		"Tree::__ANON__[chains.pl:17]":  `"$tree"`,
		"Tree::FETCH":                   "= $tied",
		"Tree::TIESCALAR":               "tie my",
		"Falling::DESTROY":              "undef",
		"(eval)":                        "eval '",
		"require Required.pm":           "require Required",
		"require":                       "require Required",
	},
}

// TestPerl records a program that calls through every mechanism there is, with
// the interpreter in the program.
func TestPerl(t *testing.T) {
	needsBPF(t)
	perl := needs(t, "perl")
	seen := recordScripts(t, unwind.Perl, 4*time.Second, map[string]*exec.Cmd{"": exec.Command(perl, "-Itestdata/perl", "testdata/perl/chains.pl")})
	perlChains.check(t, seen[""])
}
