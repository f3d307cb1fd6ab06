package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"

	"google.golang.org/protobuf/proto"

	"atys.dev/atys/internal/auth"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/server"
	"atys.dev/atys/internal/spool"
	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/store/disk"
	"atys.dev/atys/internal/store/storetest"
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
	"atys.dev/atys/internal/wire/atysv1/atysv1connect"
	"atys.dev/atys/test/golden"
)

// orders are profiles that somebody has applied.
var orders = []string{
	`{"kind":"Profile","name":"always","kinds":["cpu"],"frequency":19,"events":["page-faults"],"prometheus":{"top":10}}`,
	`{"kind":"Profile","name":"nightly","select":"{service=~\"search|shop\"}","frequency":{"min":19,"max":999,"policy":"auto"},"instances":2,"pruning":"P99","threads":"each"}`,
}

// lives are of which life of its agent a node's windows are.
func lives(node string) profile.Run { return profile.Run{1, node[1]} }

// makeStore writes a store as a server does that days of windows come to, and backups
// of it.
func makeStore(ctx context.Context, dir, backups string) (err error) {
	data := filepath.Join(dir, "store")
	s, err := disk.Open(disk.Options{Dir: data, Reserve: 1})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	at, err := golden.Serve(s, filepath.Join(dir, "profiles"), golden.Now, nil)
	if err != nil {
		return err
	}
	defer at.Close()
	control := atysv1connect.NewControlClient(at.As(auth.Operator), at.URL, golden.Asking())
	if _, err := control.Apply(ctx, &atysv1.ApplyRequest{Objects: orders}); err != nil {
		return err
	}
	to := at.Remote(auth.Agent)
	err = days(func(node string, cut []*profile.Window) error {
		var sealed []*atysv1.Spooled
		for _, w := range cut {
			sealed = append(sealed, wire.Seal(w, lives(node)))
		}
		return push(ctx, to, sealed)
	})
	if err != nil {
		return err
	}
	if err := makeOthers(ctx, s); err != nil {
		return err
	}
	if err := rollUp(ctx, s); err != nil {
		return err
	}
	if err := s.Drop(ctx, auth.DefaultTenant, store.Raw, golden.Epoch().AddDate(0, 0, 1)); err != nil {
		return err
	}
	return backUp(ctx, at, filepath.Join(backups, "backup.tar"))
}

// push has windows be kept.
func push(ctx context.Context, to interface {
	Push(context.Context, *atysv1.PushRequest) (*atysv1.PushResponse, error)
}, sealed []*atysv1.Spooled) error {
	r, err := golden.Request(sealed...)
	if err != nil {
		return err
	}
	answer, err := to.Push(ctx, r)
	if err == nil && len(answer.GetUnknown())+len(answer.GetOverlaps())+len(answer.GetRefused()) > 0 {
		err = fmt.Errorf("not all was kept: %v", answer)
	}
	return err
}

// makeOthers puts what does not come by days: what a relay has added up, and windows
// of another tenant.
func makeOthers(ctx context.Context, s store.Store) error {
	var parts []*profile.Window
	at := golden.Epoch().AddDate(0, 0, 1).Add(9 * 3600e9)
	for i, node := range nodes {
		w := make1(program{"queue", "go", func(m *maker) { m.rows(9, nil) }}, node, at, i)
		w.Start = at // of one second, as relays want them
		parts = append(parts, w)
	}
	if err := s.Put(ctx, auth.DefaultTenant, store.Raw, storetest.Added(profile.Run{9}, parts...)); err != nil {
		return err
	}
	w := make1(programs()[0], "n3", at, 1)
	return s.Put(ctx, "team-a", store.Raw, storetest.Batch(profile.Run{3}, w))
}

// rollUp adds up all that is stale.
func rollUp(ctx context.Context, s store.Store) error {
	tenants, err := s.Tenants(ctx)
	if err != nil {
		return err
	}
	for _, tenant := range tenants {
		for steps := []store.Step{{}}; len(steps) > 0; {
			if steps, err = s.Stale(ctx, tenant); err != nil {
				return err
			}
			for _, step := range steps {
				if err := s.Roll(ctx, tenant, step); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// backUp asks a server for a backup, as "atys store backup" does.
func backUp(ctx context.Context, at *golden.Served, file string) (err error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, at.URL+server.BackupPath, nil)
	if err != nil {
		return err
	}
	response, err := at.As(auth.Operator).Do(q)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("back up: %s", response.Status)
	}
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, response.Body)
	return errors.Join(err, out.Close())
}

// makeSpool writes a spool whose agent has not shipped for a while, and has lost some.
func makeSpool(dir string) (err error) {
	s, err := spool.Open(dir, 8<<20)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	n := 0
	return days(func(node string, cut []*profile.Window) error {
		if n++; node != "n1" || n < 40 {
			return nil
		}
		var records [][]byte
		for _, w := range cut {
			record, err := proto.MarshalOptions{Deterministic: true}.Marshal(wire.Seal(w, profile.Run{7}))
			if err != nil {
				return err
			}
			records = append(records, record)
		}
		if n%5 == 0 {
			if _, err := s.AddTelling(records, 0, s.Untold()); err != nil {
				return err
			}
			s.Lose(spool.Losses{Dropped: 2, Damaged: 1, Unkept: 1})
			return nil
		}
		_, err := s.Add(records)
		return err
	})
}
