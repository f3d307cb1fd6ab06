package profile

import (
	"encoding/hex"
	"testing"
)

// TestHashesStay holds hashes to what they are: stores and spools keep them for
// years.
func TestHashesStay(t *testing.T) {
	main := Location{Kind: KindNative, BuildID: "b1d", Offset: 0x1234}
	work := Location{Kind: KindPython, Name: "work", File: "/srv/app.py", Line: 7}
	for name, test := range map[string]struct {
		got  Hash
		want string
	}{
		"place in a file":   {main.Hash(), "de0d1836edd339df7266ada95278a0a8"},
		"place with a name": {work.Hash(), "82660277b42425975eaa06b20f3cd5f3"},
		"end":               {EndComplete.Hash(), "c13a617a6e1b6917dddfe17f5922eae3"},
		"stack":             {EndComplete.Hash().Call(main.Hash()).Call(work.Hash()), "c168493b3c82b8cb9a1791769a27b35b"},
	} {
		if got := hex.EncodeToString(test.got[:]); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}

// TestHashesDiffer tries pairs that a careless hash would take for one.
func TestHashesDiffer(t *testing.T) {
	a, b := Location{Name: "a"}.Hash(), Location{Name: "b"}.Hash()
	end := EndComplete.Hash()
	for name, pair := range map[string][2]Hash{
		"text moves between fields": {Location{Name: "ab", File: "c"}.Hash(), Location{Name: "a", File: "bc"}.Hash()},
		"kind":                      {Location{Name: "a", Kind: KindRuby}.Hash(), a},
		"line":                      {Location{Name: "a", Line: 1}.Hash(), a},
		"order of calls":            {end.Call(a).Call(b), end.Call(b).Call(a)},
		"end":                       {end.Call(a), EndTooDeep.Hash().Call(a)},
		"depth":                     {end.Call(a), end.Call(a).Call(a)},
	} {
		if pair[0] == pair[1] {
			t.Errorf("%s: both are %x", name, pair[0])
		}
	}
}
