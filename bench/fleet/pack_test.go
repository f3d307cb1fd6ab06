package main

import (
	"bytes"
	"io"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"google.golang.org/protobuf/proto"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/wire/atysv1"
)

// TestPackedIsWhatAgentsSend holds requests that are put together against those
// that agents make.
func TestPackedIsWhatAgentsSend(t *testing.T) {
	b, err := newBuild(rand.New(rand.NewPCG(1, 1)), "0123")
	if err != nil {
		t.Fatal(err)
	}
	series := &atysv1.Series{Labels: map[string]string{"service": "shop", "instance": "web-1"}}
	head, err := packSeries(series)
	if err != nil {
		t.Fatal(err)
	}
	run, start := profile.Run{7}, time.Unix(1_700_000_000, 0)
	for i, s := range b.shapes[:4] {
		want, explaining := s.of(series, run, start), []byte(nil)
		if i > 0 {
			want.Dictionary, want.IfUnknown = s.sealed.GetDictionary(), i == 2
			explaining = explains(s.packed.dictionary, want.IfUnknown)
		}
		z, err := zstd.NewReader(bytes.NewReader(s.packed.request(head, explaining, run, start)))
		if err != nil {
			t.Fatal(err)
		}
		defer z.Close()
		plain, err := io.ReadAll(z)
		if err != nil {
			t.Fatal(err)
		}
		got := &atysv1.PushRequest{}
		if err := proto.Unmarshal(plain, got); err != nil {
			t.Fatal(err)
		}
		if !proto.Equal(got, want) {
			t.Errorf("requests differ:\n%.300v\n%.300v", got, want)
		}
	}
}

// of is the window of an instance at a time.
func (s *shape) of(series *atysv1.Series, run profile.Run, start time.Time) *atysv1.PushRequest {
	w := proto.CloneOf(s.sealed.GetWindow())
	w.Run, w.StartUnixNano = run[:], start.UnixNano()
	return &atysv1.PushRequest{Windows: []*atysv1.Window{w}, Series: []*atysv1.Series{series}, Stacks: s.sealed.GetStacks()}
}
