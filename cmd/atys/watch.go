package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"

	"atys.dev/atys/internal/remote"
	"atys.dev/atys/internal/render"
	"atys.dev/atys/internal/wire/atysv1"
	"atys.dev/atys/internal/wire/atysv1/atysv1connect"
)

func watchCommand() *cobra.Command {
	var f objectFlags
	c := &cobra.Command{
		Use:   "watch profiles|agents|targets|relays [NAME]",
		Short: "List what a server knows, then each change, until Ctrl-C",
		Example: `  atys watch agents
  atys watch profile checkout-cpu -o json`,
		RunE: func(c *cobra.Command, args []string) error {
			kind, name, err := kindAndName(args, 1, 2)
			if err = cmp.Or(err, f.checkOutput(outputs)); err != nil {
				return err
			}
			return watch(c, f, kind, name)
		},
	}
	f.clientFlags.add(c)
	f.addOutput(c, outputs, "as a table")
	return c
}

func watch(c *cobra.Command, f objectFlags, kind, name string) error {
	control, address, err := f.control()
	if err != nil {
		return err
	}
	w := newWatched(changeWriter(os.Stdout, kind, f.output))
	failures := 0
	for {
		w.begin()
		err := watchOnce(c.Context(), control, &atysv1.GetRequest{Kind: kind, Name: name}, w.told)
		if c.Context().Err() != nil {
			return nil
		}
		if final(err) || !w.synced { // one that never answered may be the wrong one
			return explain(address, err)
		}
		failures++
		if w.listed == nil { // until now it answered
			failures = 1
			fmt.Fprintf(os.Stderr, "atys: %s answers no more; what changed is shown once it does\n", address)
		}
		select {
		case <-time.After(remote.Backoff(failures)):
		case <-c.Context().Done():
			return nil
		}
	}
}

// watchOnce tells what a server tells, until it does no more.
func watchOnce(ctx context.Context, control atysv1connect.ControlClient, r *atysv1.GetRequest, tell func(*atysv1.Change) error) error {
	stream, err := control.Watch(ctx, r)
	if err != nil {
		return err
	}
	defer stream.Close()
	for stream.Receive() {
		if err := tell(stream.Msg()); err != nil {
			return &untold{err}
		}
	}
	if err := stream.Err(); err != nil {
		return err
	}
	return connect.NewError(connect.CodeUnavailable, errors.New("it tells no more"))
}

// untold says that changes cannot be printed.
type untold struct{ error }

func (e *untold) Unwrap() error { return e.error }

// final tells whether asking again gives the same.
func final(err error) bool {
	var here *untold
	if errors.As(err, &here) {
		return true
	}
	switch connect.CodeOf(err) {
	case connect.CodeInvalidArgument, connect.CodeUnauthenticated, connect.CodePermissionDenied, connect.CodeUnimplemented:
		return true
	}
	return false
}

// watched shows changes as they come, and after an interruption, when a server tells
// all there is anew, what is not as it was.
type watched struct {
	show   func(*atysv1.Change) error
	known  map[string]*atysv1.Object
	synced bool            // once at least
	listed map[string]bool // told of all there is; nil once that is over
}

func newWatched(show func(*atysv1.Change) error) *watched {
	return &watched{show: show, known: map[string]*atysv1.Object{}}
}

// begin has all there is be told next.
func (w *watched) begin() { w.listed = map[string]bool{} }

func (w *watched) told(c *atysv1.Change) error {
	if c.GetObject() == nil {
		return w.allTold(c)
	}
	key := objectKey(c.GetObject())
	old := w.known[key]
	w.known[key] = c.GetObject()
	switch {
	case c.GetWhat() == "removed":
		delete(w.known, key)
	case w.listed != nil:
		w.listed[key] = true
		if old != nil && old.GetJson() == c.GetObject().GetJson() {
			return nil
		}
		if old != nil {
			c = &atysv1.Change{What: "changed", Object: c.GetObject()}
		}
	}
	return w.show(c)
}

// allTold shows what is not there any more, and the first time that all was told.
func (w *watched) allTold(c *atysv1.Change) error {
	if w.listed == nil {
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(w.known)) {
		if o := w.known[key]; !w.listed[key] {
			delete(w.known, key)
			if err := w.show(&atysv1.Change{What: "removed", Object: o}); err != nil {
				return err
			}
		}
	}
	w.listed = nil
	if w.synced {
		return nil
	}
	w.synced = true
	return w.show(c)
}

// objectKey tells objects of a kind apart: relays may have the same name.
func objectKey(o *atysv1.Object) string {
	return o.GetName() + " " + o.GetRelay().GetOffer().GetAddress()
}

// changeWriter prints changes as they come: as rows, or for programs as a JSON
// object a line or a YAML document each.
func changeWriter(to io.Writer, kind, format string) func(*atysv1.Change) error {
	switch format {
	case "json", "yaml":
		return func(c *atysv1.Change) error { return writeChange(to, format, c) }
	}
	wide := format == "wide"
	fmt.Fprintln(to, "WHAT     "+strings.Join(objectHead(kind, wide), "  "))
	return func(c *atysv1.Change) error {
		if c.GetObject() == nil {
			return nil
		}
		row, err := objectRow(c.GetObject(), wide, time.Now())
		if err != nil {
			return err
		}
		for i := range row {
			row[i] = render.Printable(row[i])
		}
		_, err = fmt.Fprintf(to, "%-7s  %s\n", render.Printable(c.GetWhat()), strings.Join(row, "  "))
		return err
	}
}

// writeChange prints a change for programs: also that all there was has been told.
func writeChange(to io.Writer, format string, c *atysv1.Change) error {
	change := struct {
		What   string          `json:"what"`
		Object json.RawMessage `json:"object,omitempty"`
	}{What: c.GetWhat(), Object: json.RawMessage(c.GetObject().GetJson())}
	text, err := json.Marshal(change)
	if err != nil {
		return err
	}
	if format == "yaml" {
		if text, err = yaml.JSONToYAML(text); err != nil {
			return err
		}
		text = append([]byte("---\n"), text...)
	} else {
		text = append(text, '\n')
	}
	_, err = to.Write(harmless(text))
	return err
}
