package wire

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/wire/atysv1"
)

// TestDictionaryIsTheMessage reads what dictionary wrote as other programs do.
func TestDictionaryIsTheMessage(t *testing.T) {
	for seed := range uint64(100) {
		data := Seal(window(seed), profile.Run{}).GetDictionary()
		m := checkLearn(t, data)
		if again, err := (proto.MarshalOptions{Deterministic: true}).Marshal(m); err != nil || !slices.Equal(again, data) {
			t.Errorf("seed %d: %v, or protobuf writes it otherwise", seed, err)
		}
	}
}

// FuzzLearn reads what nobody wrote: an error, or what protobuf reads.
func FuzzLearn(f *testing.F) {
	for rows := range 3 {
		f.Add(Seal(seed(rows), profile.Run{}).GetDictionary())
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, err := Learn(data); err == nil {
			checkLearn(t, data)
		}
	})
}

// checkLearn compares what Learn reads with the message, which it gives.
func checkLearn(t *testing.T, data []byte) *atysv1.Dictionary {
	t.Helper()
	forest, err := Learn(data)
	if err != nil {
		t.Fatal(err)
	}
	m := &atysv1.Dictionary{}
	if err := proto.Unmarshal(data, m); err != nil {
		t.Fatalf("learnt, and no message: %v", err)
	}
	if len(forest.Places) != len(m.GetLocations()) || len(forest.Calls) != len(m.GetNodes()) {
		t.Fatalf("%d places and %d calls, want %d and %d", len(forest.Places), len(forest.Calls), len(m.GetLocations()), len(m.GetNodes()))
	}
	text := func(number uint32) string {
		if number == 0 {
			return ""
		}
		return string(m.GetStrings()[number])
	}
	for i, l := range m.GetLocations() {
		want := profile.Location{Kind: profile.Kind(l.GetKind()), BuildID: text(l.GetBuildId()), Offset: l.GetOffset(),
			Name: text(l.GetName()), File: text(l.GetFile()), Line: int(l.GetLine())}
		got := forest.Places[i]
		if got.Location != want || got.Hash != want.Hash() || len(got.Names) != len(l.GetNames()) {
			t.Fatalf("place %d is %+v, want %+v with %d names", i, got, want, len(l.GetNames()))
		}
		for j, n := range l.GetNames() {
			want := profile.Frame{Function: text(n.GetFunction()), Linkage: text(n.GetLinkage()), File: text(n.GetFile()), Line: int(n.GetLine()),
				StartLine: int(n.GetStartLine()), Mapping: text(n.GetMapping()), Kind: profile.Kind(n.GetKind()), Class: profile.Class(n.GetClass()), Inlined: n.GetInlined()}
			if got.Names[j] != want {
				t.Fatalf("name %d of place %d is %+v, want %+v", j, i, got.Names[j], want)
			}
		}
	}
	for i, n := range m.GetNodes() {
		c := forest.Calls[i]
		if n.GetCaller() == 0 {
			if c.Caller != -1 || c.End != profile.End(n.GetEnd()) || c.Hash != c.End.Hash() {
				t.Fatalf("call %d is %+v, want an end by %d", i, c, n.GetEnd())
			}
			continue
		}
		caller, place := i-int(n.GetCaller()), int(n.GetLocation())
		if c.Caller != caller || c.Place != place || c.Hash != forest.Calls[caller].Hash.Call(forest.Places[place].Hash) {
			t.Fatalf("call %d is %+v, want one of %d at %d", i, c, caller, place)
		}
	}
	return m
}
