package unwind

import (
	"reflect"
	"strings"
	"testing"

	"atys.dev/atys/internal/lang/python"
)

// TestPythonParameters asserts that package lang/python fills what python.h reads.
func TestPythonParameters(t *testing.T) {
	c, g := reflect.TypeFor[kernelPythonProcess](), reflect.TypeFor[python.Parameters]()
	if c.Size() != g.Size() {
		t.Errorf("%d bytes, python.h has %d", g.Size(), c.Size())
	}
	fields, bytes := 0, uintptr(0)
	for i := range c.NumField() {
		of := c.Field(i)
		if of.Name == "_" {
			continue
		}
		fields++
		bytes += of.Type.Size()
		same, ok := g.FieldByNameFunc(func(name string) bool { return strings.EqualFold(name, of.Name) })
		if !ok || same.Offset != of.Offset || same.Type.Size() != of.Type.Size() {
			t.Errorf("%s is at %d with %d bytes in python.h, in Go %+v", of.Name, of.Offset, of.Type.Size(), same)
		}
	}
	if bytes != c.Size() { // the map would not take it
		t.Errorf("python.h has %d bytes of padding", c.Size()-bytes)
	}
	if fields != g.NumField() {
		t.Errorf("%d fields, python.h has %d", g.NumField(), fields)
	}
}
