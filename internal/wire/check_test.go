package wire

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/wire/atysv1"
)

// pushed is a request of one window.
func pushed(t *testing.T, w *profile.Window) *atysv1.PushRequest {
	t.Helper()
	b := NewBatch(func(profile.Hash) bool { return false })
	if err := b.Add(Seal(w, profile.Run{1})); err != nil {
		t.Fatal(err)
	}
	return b.Request()
}

// many are losses, or comments, that are told apart.
func many(n int) (losses []*atysv1.Loss, comments []string) {
	for i := range n {
		losses = append(losses, &atysv1.Loss{Reason: "lost", Detail: fmt.Sprint(i), N: 1})
		comments = append(comments, fmt.Sprint(i))
	}
	return losses, comments
}

// TestHeadsAreBounded refuses more to be said about a window than is kept, and
// says which part of it is too much.
func TestHeadsAreBounded(t *testing.T) {
	for _, test := range []struct {
		name  string
		spoil func(*atysv1.Window)
		want  string // "": it is taken
	}{
		{"all there may be", func(w *atysv1.Window) {
			w.Losses, _ = many(profile.MaxLosses)
			_, w.Comments = many(profile.MaxComments)
			w.Losses[0].Detail, w.Comments[0], w.Task = strings.Repeat("x", maxText), strings.Repeat("x", maxText), strings.Repeat("x", MaxLabel)
		}, ""},
		{"losses", func(w *atysv1.Window) { w.Losses, _ = many(profile.MaxLosses + 1) }, "257 losses"},
		{"comments", func(w *atysv1.Window) { _, w.Comments = many(profile.MaxComments + 1) }, "65 comments"},
		{"reason", func(w *atysv1.Window) { w.Losses = []*atysv1.Loss{{Reason: strings.Repeat("x", MaxLabel+1)}} }, "loss 0"},
		{"detail", func(w *atysv1.Window) { w.Losses = []*atysv1.Loss{{}, {Detail: strings.Repeat("x", maxText+1)}} }, "loss 1"},
		{"comment", func(w *atysv1.Window) { w.Comments = []string{"", strings.Repeat("x", maxText+1)} }, "comment 1"},
		{"task", func(w *atysv1.Window) { w.Task = strings.Repeat("y", MaxLabel+1) }, `its task, "yyy`},
		{"design", func(w *atysv1.Window) { w.Design = strings.Repeat("y", MaxLabel+1) }, `its design, "yyy`},
		{"kind", func(w *atysv1.Window) { w.Types[0].Kind = strings.Repeat("y", MaxLabel+1) }, `its kind of values, "yyy`},
		{"unit", func(w *atysv1.Window) { w.Types[0].Unit = strings.Repeat("y", MaxLabel+1) }, `its unit of values, "yyy`},
		{"source", func(w *atysv1.Window) { w.Exact = &atysv1.Exact{Source: strings.Repeat("y", MaxLabel+1)} }, `its source of exact times, "yyy`},
		{"rate", func(w *atysv1.Window) { w.Rate = &atysv1.Rate{Hertz: math.NaN()} }, "a rate of NaN Hz"},
		{"endless rate", func(w *atysv1.Window) { w.Rate = &atysv1.Rate{Hertz: math.Inf(1)} }, "a rate of +Inf Hz"},
		{"negative rate", func(w *atysv1.Window) { w.Rate = &atysv1.Rate{Hertz: -1} }, "a rate of -1 Hz"},
		{"policy", func(w *atysv1.Window) { w.Rate = &atysv1.Rate{Policy: strings.Repeat("y", MaxLabel+1)} }, `of a rate: "yyy`},
		{"why", func(w *atysv1.Window) { w.Rate = &atysv1.Rate{Why: strings.Repeat("y", maxText+1)} }, `why a rate is what it is, "yyy`},
	} {
		r := pushed(t, window(3))
		test.spoil(r.GetWindows()[0])
		_, err := CheckPush(r)
		if got := fmt.Sprint(err); test.want == "" && err != nil || test.want != "" && (!strings.Contains(got, "window 0: "+test.want) || len(got) > 400) {
			t.Errorf("%s: %.500s", test.name, got)
		}
	}
}

// TestPartsLieWithin refuses windows that are said to contain what begins before or
// after them.
func TestPartsLieWithin(t *testing.T) {
	for after, want := range map[int64]string{0: "", 1: "", 10_000_000_000: "", 10_000_000_001: "window 0 lasts", -1: "window 0 lasts"} {
		r := addedUp(profile.Labels{"service": "shop"})
		r.Windows[0].Contains[1].AfterNs = after
		if _, err := CheckPush(r); want == "" && err != nil || want != "" && !strings.HasPrefix(fmt.Sprint(err), want) {
			t.Errorf("%d ns: %v", after, err)
		}
	}
}

// TestPartsAreBounded has the windows of a request contain so many, whichever does.
func TestPartsAreBounded(t *testing.T) {
	for more, want := range map[int]string{0: "", 1: "10001 windows that others contain"} {
		r := addedUp(profile.Labels{"service": "shop"})
		part := r.Windows[0].Contains[0]
		first, second := proto.CloneOf(r.Windows[0]), proto.CloneOf(r.Windows[0])
		first.Contains = slices.Repeat([]*atysv1.Contained{part}, MaxWindows/2)
		second.Contains = slices.Repeat([]*atysv1.Contained{part}, MaxWindows/2+more)
		r.Windows = []*atysv1.Window{first, second}
		if _, err := CheckPush(r); want == "" && err != nil || want != "" && !strings.HasPrefix(fmt.Sprint(err), want) {
			t.Errorf("%d: %v", MaxWindows+more, err)
		}
	}
}

// TestWhatIsSealedIsTaken seals a window of which far too much is said: its
// receiver takes it, and no sample is missing that was counted as lost.
func TestWhatIsSealedIsTaken(t *testing.T) {
	w := window(3)
	w.Losses, w.Comments = nil, nil
	w.Rate = profile.Rate{Hertz: 99, Why: strings.Repeat("é", maxText), Policy: strings.Repeat("é", MaxLabel)}
	for i := range 10 * profile.MaxLosses {
		w.Losses = append(w.Losses, profile.Loss{Reason: profile.LossReason(fmt.Sprint("reason ", i%3)), Detail: fmt.Sprint(i, strings.Repeat("é", maxText)), N: 1, Value: 2})
		w.Comments = append(w.Comments, fmt.Sprint(i, strings.Repeat("é", maxText)))
	}
	r := pushed(t, w)
	if _, err := CheckPush(r); err != nil {
		t.Fatal(err)
	}
	h, _, err := Head(throughBytes(t, r.GetWindows()[0]))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		reason := profile.LossReason(fmt.Sprint("reason ", i))
		if got, want := h.LossOf(reason), w.LossOf(reason); got != want {
			t.Errorf("%v, want %v", got, want)
		}
	}
	if h.Rate.Hertz != 99 || len(h.Rate.Why) < maxText-1 {
		t.Errorf("a rate of %g Hz, of which %d bytes are told", h.Rate.Hertz, len(h.Rate.Why))
	}
	if len(h.Comments) != profile.MaxComments {
		t.Errorf("%d comments", len(h.Comments))
	}
}

// TestLossesAddUp reads losses that are told twice as if they were added one by one.
func TestLossesAddUp(t *testing.T) {
	m := &atysv1.Window{Run: make([]byte, len(profile.Run{}))}
	var want profile.Head
	for i := range 60 {
		l := profile.Loss{Reason: profile.LossReason(fmt.Sprint(i % 3)), Detail: fmt.Sprint(i % 7), N: int64(i % 2), Value: int64(i % 5)}
		want.AddLoss(l)
		m.Losses = append(m.Losses, &atysv1.Loss{Reason: string(l.Reason), Detail: l.Detail, N: l.N, Value: l.Value})
	}
	if h, _, err := Head(m); err != nil || !slices.Equal(h.Losses, want.Losses) {
		t.Errorf("%v: %v, want %v", err, h.Losses, want.Losses)
	}
}

// TestFitLabel has names that are too long, or no text, become labels that are taken.
func TestFitLabel(t *testing.T) {
	long := strings.Repeat("日本", 100)
	seen := map[string]bool{}
	for _, name := range []string{"", "checkout", "a\xffb", long + "a", long + "b", strings.Repeat("x", 1<<20)} {
		fit := FitLabel(name)
		if err := CheckLabels(profile.Labels{"service": fit}); err != nil || strings.ToValidUTF8(fit, "") != fit || seen[fit] {
			t.Errorf("%.20q becomes %q: %v", name, fit, err)
		}
		if len(name) <= MaxLabel && strings.ToValidUTF8(name, "") == name && fit != name {
			t.Errorf("%q becomes %q", name, fit)
		}
		seen[fit] = true
	}
}

// TestMisnumberedWithoutRows drops the exemplars of a window that has no rows.
func TestMisnumberedWithoutRows(t *testing.T) {
	r := &atysv1.PushRequest{Series: []*atysv1.Series{{}}, Windows: []*atysv1.Window{{Numbered: 1, Exemplars: []*atysv1.Exemplar{{Trace: "t"}}}}}
	if _, err := CheckPush(r); err != nil {
		t.Fatal(err)
	}
	if w := r.GetWindows()[0]; len(w.GetExemplars()) != 0 || len(w.GetComments()) != 1 {
		t.Errorf("%d exemplars and the comments %q are left", len(w.GetExemplars()), w.GetComments())
	}
}
