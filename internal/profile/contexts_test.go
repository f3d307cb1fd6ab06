package profile

import (
	"slices"
	"testing"
)

func TestContextTable(t *testing.T) {
	var table ContextTable
	a, b := Context{Reason: "a"}, Context{Reason: "b"}
	for _, c := range []struct {
		context Context
		want    ContextID
	}{{Context{}, 0}, {a, 1}, {b, 2}, {a, 1}} {
		if id := table.ID(c.context); id != c.want || table.Context(id) != c.context {
			t.Errorf("%v has number %d, which is %v; want %d", c.context, id, table.Context(id), c.want)
		}
	}
	if want := []Context{a, b}; !slices.Equal(table.All(), want) {
		t.Errorf("all are %v, want %v", table.All(), want)
	}
}
