package unwind

import (
	"reflect"
	"testing"

	"atys.dev/atys/internal/lang/v8"
)

// TestV8Parameters compares what lang/v8 writes with what v8.h reads.
func TestV8Parameters(t *testing.T) {
	c, g := reflect.TypeFor[kernelV8Process](), reflect.TypeOf((&v8.Runtime{}).Parameters()).Elem()
	if c.Size() != g.Size() {
		t.Fatalf("struct v8_process has %d bytes, the parameters %d", c.Size(), g.Size())
	}
	of := map[string]reflect.StructField{}
	for i := range c.NumField() {
		of[c.Field(i).Name] = c.Field(i)
	}
	for i := range g.NumField() {
		f := g.Field(i)
		name := string(f.Name[0]-'a'+'A') + f.Name[1:]
		if k, ok := of[name]; !ok || k.Offset != f.Offset || k.Type != f.Type {
			t.Errorf("%s is at %d with %v, in v8.h at %d with %v", name, f.Offset, f.Type, k.Offset, k.Type)
		}
	}
}
