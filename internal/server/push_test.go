package server

import (
	"fmt"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/store/mem"
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
)

// keyOf tells windows of a request apart as a store does.
func keyOf(r *atysv1.PushRequest, m *atysv1.Window) (string, error) {
	h, run, err := wire.Head(m)
	wire.SetRight(&h)
	return fmt.Sprintf("%q %q %v %x", profile.Labels(r.GetSeries()[m.GetSeries()].GetLabels()).String(), h.Task, h.Start, run), err
}

// distinct counts the windows of a request, and their samples: of those that are
// told twice the last.
func distinct(r *atysv1.PushRequest) (windows int, n int64, err error) {
	samples := map[string]int64{}
	for _, m := range r.GetWindows() {
		key, err := keyOf(r, m)
		if err != nil {
			return 0, 0, err
		}
		samples[key] = 0
		for _, count := range m.GetRows().GetN() {
			samples[key] += count
		}
	}
	for _, count := range samples {
		n += count
	}
	return len(samples), n, nil
}

// held counts the windows that a store has, and their samples.
func held(t *testing.T, s *mem.Store) (windows int, n int64) {
	t.Helper()
	s.Settle()
	all := store.Query{From: time.Unix(0, 0), To: noon.Add(24 * time.Hour)}
	if err := s.Scan(t.Context(), "default", all, func(w *profile.Window, _ profile.Run) error {
		windows, n = windows+1, n+w.N()
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return windows, n
}

// taken is a request without the windows that are refused of it.
func taken(r *atysv1.PushRequest, refused []*atysv1.Refused) *atysv1.PushRequest {
	out := map[int]bool{}
	for _, one := range refused {
		out[int(one.GetWindow())] = true
	}
	kept := &atysv1.PushRequest{Series: r.GetSeries()}
	for i, w := range r.GetWindows() {
		if !out[i] {
			kept.Windows = append(kept.Windows, w)
		}
	}
	return kept
}

// FuzzPush pushes what nobody made: it is refused for good, and nothing of it is
// kept, or all of its windows are that are not named, once, however often they come.
func FuzzPush(f *testing.F) {
	add := func(r *atysv1.PushRequest) {
		data, err := proto.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	for _, known := range []bool{false, true} {
		r, _ := request(f, known, "shop", noon, noon.Add(-time.Second), noon.Add(-2*time.Hour))
		add(r)
		r.Windows[1].StartUnixNano = r.Windows[0].StartUnixNano // one that comes twice
		add(r)
		r.Partly, r.Windows[0].StartUnixNano = true, noon.Add(24*time.Hour).UnixNano() // one that is named
		add(r)
		r.Windows[2].Run = nil // one that is refused, and all others for it
		add(r)
	}
	r, _ := request(f, false, "shop", noon)
	w, rows := r.Windows[0], len(r.Windows[0].GetRows().GetStack())
	w.Threads, w.Contexts, w.Rows.Thread, w.Rows.Context, w.Types = nil, nil, nil, nil, w.Types[:1]
	w.Rows.Value = w.Rows.Value[:rows]
	for _, value := range w.Rows.Value {
		w.Rows.Groups = append(w.Rows.Groups, value, 0, 0, 0, 0, 0, 0, 0)
	}
	w.Contains = []*atysv1.Contained{{Run: make([]byte, 16)}}
	add(r) // as a relay adds up
	codec := wire.NewBinary()
	f.Fuzz(func(t *testing.T, data []byte) {
		r := &atysv1.PushRequest{}
		if codec.Unmarshal(data, r) != nil {
			return
		}
		kept := mem.New(1)
		s, err := New(Options{Store: kept, Now: func() time.Time { return noon }})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			answer, err := s.Push(t.Context(), proto.CloneOf(r))
			windows, n := held(t, kept)
			if err != nil && connect.CodeOf(err) != connect.CodeInvalidArgument && connect.CodeOf(err) != connect.CodeResourceExhausted {
				t.Fatalf("refused, but not for good: %v", err)
			}
			if err != nil || len(answer.GetUnknown())+len(answer.GetOverlaps()) > 0 {
				if windows > 0 {
					t.Fatalf("%d windows are kept of what was not taken: %v", windows, err)
				}
				continue
			}
			r := taken(r, answer.GetRefused())
			want, samples, err := distinct(r)
			if err != nil {
				t.Fatalf("taken, and cannot be read: %v", err)
			}
			contains := false
			for _, m := range r.GetWindows() {
				contains = contains || len(m.GetContains()) > 0
			}
			if windows > want || !contains && (windows < want || n != samples) { // what is contained is not kept again
				t.Fatalf("%d windows of %d samples are kept, of %d and %d", windows, n, want, samples)
			}
		}
	})
}
