package disk

import (
	"bytes"
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
)

// FuzzCalls decodes calls: false, or what is the same bytes again.
func FuzzCalls(f *testing.F) {
	f.Add(encodeCalls([]call{{nobody, 1}, {0, 7}, {1, 9}}, 0), 0)
	f.Fuzz(func(t *testing.T, data []byte, first int) {
		if first < 0 || first > 1<<20 {
			return
		}
		calls, ok := decodeCalls(data, first)
		if !ok {
			return
		}
		for i, c := range calls {
			if c.caller != nobody && int(c.caller) >= first+i {
				t.Fatalf("call %d is called by %d", first+i, c.caller)
			}
		}
		if again, ok := decodeCalls(encodeCalls(calls, first), first); !ok || len(again) != len(calls) {
			t.Fatalf("%d calls, written and read again %d", len(calls), len(again))
		}
	})
}

func TestKeysSort(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	ordered := []key{
		windowKey("a", store.Raw, "x", 1, at, "task", "cpu", profile.Run{9}),
		windowKey("a", store.Raw, "x", 1, at.Add(1), "task", "cpu", profile.Run{1}),
		windowKey("a", store.Raw, "x", 2, at, "task", "cpu", profile.Run{1}),
		windowKey("a", store.Raw, "x", 1, at.Add(day), "task", "cpu", profile.Run{1}),
		windowKey("a", store.Series10m, "x", 1, at, "task", "cpu", profile.Run{1}),
	}
	for i := 1; i < len(ordered); i++ {
		if bytes.Compare(ordered[i-1], ordered[i]) >= 0 {
			t.Errorf("key %d does not sort before %d", i-1, i)
		}
	}
	prefix := seriesKey("a", store.Raw, days(at), "x", 1)
	f, ok := parseStart(ordered[1], len(prefix))
	if !ok || !f.start.Equal(at.Add(1)) || f.task != "task" || f.run != (profile.Run{1}) {
		t.Errorf("%v %q %x %v", f.start, f.task, f.run, ok)
	}
}
