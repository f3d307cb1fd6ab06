package fleet

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"atys.dev/atys/internal/wire/atysv1"
)

const three = `{"kind":"Profile","name":"some","select":"{service=\"shop\"}","instances":3}`

// again is the fleet after a restart, so much later.
func (c *commanded) again(t *testing.T, dir string, later time.Duration) *commanded {
	t.Helper()
	c.Fleet.Close()
	next := command(t, dir)
	next.now = c.now.Add(later)
	next.Fleet.profiles.began = next.now
	return next
}

// told is what an agent hears that attends first.
func (c *commanded) told(t *testing.T, node string) *atysv1.Orders {
	t.Helper()
	orders, _, _ := c.Fleet.orders(node, 0)
	return orders
}

// TestChoicesOutliveTheServer has a server start again and again: whom a profile
// chose stays chosen, whoever is heard of first.
func TestChoicesOutliveTheServer(t *testing.T) {
	dir := t.TempDir()
	c := command(t, dir)
	c.report(t, "x", "abcdef")
	c.report(t, "y", "ghijkl")
	c.apply(t, three)
	want := c.chosen(t)
	for restart := range 8 {
		c = c.again(t, dir, time.Minute)
		if got := c.chosen(t); !slices.Equal(got, want) {
			t.Fatalf("restart %d: before anybody is heard of, chosen are %v, want %v", restart, got, want)
		}
		if task := c.told(t, "x").GetTasks()[0]; task.GetRecorded() != 3 || task.GetEligible() != 12 {
			t.Errorf("agents are told of %d of %d", task.GetRecorded(), task.GetEligible())
		}
		c.report(t, "y", "") // it has not looked yet
		c.report(t, "x", "abcdef")
		if got := c.chosen(t); !slices.Equal(got, want) {
			t.Fatalf("restart %d: once one agent is heard of, chosen are %v, want %v", restart, got, want)
		}
		c.report(t, "y", "ghijkl")
		c.now = c.now.Add(settleTime)
		c.report(t, "x", "abcdef")
		if got := c.chosen(t); !slices.Equal(got, want) {
			t.Fatalf("restart %d: chosen are %v, want %v", restart, got, want)
		}
	}
}

// TestChosenThatDoNotComeBack has an agent be gone after a restart: its targets are
// chosen until it should have been heard of.
func TestChosenThatDoNotComeBack(t *testing.T) {
	dir := t.TempDir()
	c := command(t, dir)
	c.report(t, "y", "abc")
	c.apply(t, three)
	c = c.again(t, dir, time.Minute)
	c.report(t, "x", "def")
	if got := c.chosen(t); fmt.Sprint(got) != "[ya yb yc]" {
		t.Errorf("soon after the start chosen are %v", got)
	}
	if p := c.status(t, "some"); p.GetInstances().GetRecorded() != 3 || p.GetInstances().GetEligible() != 6 {
		t.Errorf("%d of %d", p.GetInstances().GetRecorded(), p.GetInstances().GetEligible())
	}
	c.now = c.now.Add(settleTime)
	c.report(t, "x", "def")
	if got := c.chosen(t); fmt.Sprint(got) != "[xd xe xf]" {
		t.Errorf("half a minute after the start chosen are %v", got)
	}
}

// TestChoicesThatAreLost has nothing be left of what was chosen: agents keep what
// they have until all have been heard of.
func TestChoicesThatAreLost(t *testing.T) {
	for name, lose := range map[string]func(path string) error{
		"there is none":            os.Remove,
		"it is empty":              func(path string) error { return os.Truncate(path, 0) },
		"it is of another profile": func(path string) error { return os.WriteFile(path, []byte(`{"id":"x","chosen":{}}`), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			c := command(t, dir)
			c.report(t, "x", "ab")
			c.report(t, "y", "cdef")
			c.apply(t, lasting, three)
			c.Fleet.Close()
			if err := lose(filepath.Join(dir, "default", "some.chosen")); err != nil {
				t.Fatal(err)
			}
			c = c.again(t, dir, time.Minute)
			c.report(t, "x", "ab")
			if o := c.told(t, "x"); !o.GetUnchanged() || o.GetRevision() != 0 || len(o.GetTasks()) != 0 {
				t.Errorf("orders %v before the other agent is heard of", o)
			}
			c.report(t, "y", "cdef")
			c.now = c.now.Add(settleTime)
			c.report(t, "y", "cdef")
			if o := c.told(t, "x"); o.GetUnchanged() || len(o.GetTasks()) != 2 {
				t.Errorf("orders %v half a minute after the start", o)
			}
			if p := c.status(t, "some"); p.GetInstances().GetRecorded() != 3 || p.GetInstances().GetEligible() != 6 {
				t.Errorf("%d of %d", p.GetInstances().GetRecorded(), p.GetInstances().GetEligible())
			}
		})
	}
}

// TestOrdersAreNotHeldForLong has nobody tell of any target.
func TestOrdersAreNotHeldForLong(t *testing.T) {
	dir := t.TempDir()
	c := command(t, dir)
	c.apply(t, three)
	if err := os.Remove(filepath.Join(dir, "default", "some.chosen")); err != nil {
		t.Fatal(err)
	}
	c = c.again(t, dir, 0)
	if o := c.told(t, "x"); !o.GetUnchanged() {
		t.Errorf("orders %v at the start", o)
	}
	c.now = c.now.Add(holdOrders)
	if o := c.told(t, "x"); o.GetUnchanged() || len(o.GetTasks()) != 1 {
		t.Errorf("orders %v a minute later", o)
	}
}
