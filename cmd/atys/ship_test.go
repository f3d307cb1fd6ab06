package main

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"atys.dev/atys/internal/auth"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/profile/format"
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1/atysv1connect"
)

// ship is a command of scripts: ship DATA FILE LABEL=VALUE ... has the server at
// $ADDRESS, which keeps what it has in DATA, take a profile as the window of an
// agent that began ten minutes ago. Values of a file of folded stacks are samples of
// 10 ms.
func ship(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: ship DATA FILE LABEL=VALUE ...")
	}
	w, err := format.Read(ts.MkAbs(args[1]))
	ts.Check(err)
	asSampled(w, "builtin", shipped)
	for _, label := range args[2:] {
		name, value, _ := strings.Cut(label, "=")
		w.Target[name] = value
	}
	ts.Check(push(ts.Getenv("ADDRESS"), ts.MkAbs(args[0]), w))
}

// shipped is when the windows of scripts were cut. All agents cut at the same edges of the
// clock.
var shipped = time.Now().Add(-10 * time.Minute).Truncate(10 * time.Second)

// asSampled makes what was read of folded stacks a window of an agent.
func asSampled(w *profile.Window, task string, start time.Time) {
	const each = int64(10 * time.Millisecond)
	w.Head = profile.Head{Task: task, Start: start, Duration: 10 * time.Second, Target: profile.Labels{},
		Types: []profile.ValueType{profile.CPUTime(each)}, Design: profile.DesignRandomised}
	for i, row := range w.Rows.All() {
		n := row.Values[0]
		w.Rows.N[i], row.Values[0], row.Squares[0] = n, n*each, profile.Alike(n, n*each)
	}
	w.Exact.CPU = time.Duration(w.Total(0))
}

// push sends a window once the server answers; one that starts may take long.
func push(address, data string, w *profile.Window) error {
	token := func() (string, error) { return auth.ReadSecret(filepath.Join(data, "operator.token")) }
	client := &http.Client{Timeout: 30 * time.Second, Transport: &auth.Bearer{Token: token, Scheme: "http", Host: address, Next: &http.Transport{}}}
	b := wire.NewBatch(func(profile.Hash) bool { return false })
	if err := b.Add(wire.Seal(w, profile.Run{1})); err != nil {
		return err
	}
	var err error
	for began := time.Now(); time.Since(began) < 2*time.Minute; time.Sleep(50 * time.Millisecond) {
		if _, err = atysv1connect.NewIntakeClient(client, "http://"+address).Push(context.Background(), b.Request()); err == nil {
			return nil
		}
	}
	return fmt.Errorf("ship to %s: %w", address, err)
}
